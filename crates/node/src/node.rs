//! The node: shards, what they publish, and the way to them.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use journal::{FileLog, RealDisk};
use kernel::idempotency::{self, Known};
use kernel::limits::{
    CHECKPOINT_BYTES, CHECKPOINT_LOG_BYTES, COMMAND_BYTES_MAX, OVERLAY_BYTES_MAX,
};
use kernel::machine::{KERNEL, Place, Usage};
use kernel::rows::{RowsLost, RowsReader};
use kernel::{Base, BaseError, Envelope, IdempotencyKey, ShardId, TenantId, VirtualShard};
use parking_lot::Mutex;
use shard::{Answer, Machines, Opened, Outcome, Progress, Refused, Request, Shard};
use store::{FjallBase, StoreOptions};
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::archive::Archive;
use crate::folder::{Folder, FolderError};
use crate::inbox::{Inbox, Note, PushError};
use crate::meters::Meters;
use crate::porter::Porter;
use crate::queue_bodies::BODY_READS_MAX;
use crate::runner::{Boards, Clock, NodeInbox, RunState, Runner};
use crate::status::{Readiness, ShardState, StatusBoard};
use crate::usage::UsageBoard;
use crate::views::Views;
use crate::waiters::Waiters;
use crate::{checkpointer, effects, mailman, registry};

/// Called from each shard's thread as it replays its log.
pub type OnProgress = Arc<dyn Fn(ShardId, Progress) + Send + Sync>;

/// How a node is to be run.
#[derive(Clone)]
pub struct NodeConfig {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// For a new folder; the default is one a core.
    pub shards: Option<u16>,
    /// For recents.
    pub recents: recents::Settings,
    /// Where cold data goes; the default is a folder beside the shards.
    pub archive_dir: Option<PathBuf>,
    /// Memory for read views.
    pub views_bytes_max: usize,
    /// Rows in memory at which a shard checkpoints.
    pub checkpoint_bytes: usize,
    /// Bytes that the log grows by at which a shard checkpoints, however few rows there are.
    pub checkpoint_log_bytes: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Bytes that the log leaves free on the disk.
    pub log_reserve_bytes: u64,
    /// Memory for blocks of the row store, for each shard.
    pub store_cache_bytes: u64,
    /// The wall clock.
    pub clock: Clock,
    /// Told how far replay has come.
    pub on_progress: OnProgress,
}

fn wall_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig {
            data_dir: PathBuf::from("./stampede-data"),
            shards: None,
            recents: recents::Settings::default(),
            archive_dir: None,
            views_bytes_max: 256 << 20,
            checkpoint_bytes: CHECKPOINT_BYTES,
            checkpoint_log_bytes: CHECKPOINT_LOG_BYTES,
            segment_bytes: journal::Options::default().segment_bytes,
            log_reserve_bytes: journal::Options::default().reserve_bytes,
            store_cache_bytes: StoreOptions::default().cache_bytes,
            clock: Arc::new(wall_clock),
            on_progress: Arc::new(|_, _| {}),
        }
    }
}

pub(crate) type BaseResult = Result<Arc<dyn Base>, BaseError>;

/// What a node is made of; tests have some of it otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) machines: fn() -> Machines,
    /// The rows on disk of the shard with this folder.
    pub(crate) open_base: fn(&NodeConfig, PathBuf) -> BaseResult,
    pub(crate) overlay_bytes_max: usize,
}

impl Parts {
    pub(crate) const USUAL: Parts =
        Parts { machines: registry::machines, open_base, overlay_bytes_max: OVERLAY_BYTES_MAX };
}

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A shard's log cannot be opened.
    #[error("shard {shard}: {source}")]
    Log {
        /// Which.
        shard: ShardId,
        /// Why.
        source: journal::OpenError,
    },
    /// A shard's rows cannot be opened.
    #[error("shard {shard}: {source}")]
    Rows {
        /// Which.
        shard: ShardId,
        /// Why.
        source: BaseError,
    },
    /// A shard's log cannot be replayed.
    #[error("shard {shard}: {source}")]
    Replay {
        /// Which.
        shard: ShardId,
        /// Why.
        source: shard::OpenError,
    },
    /// The archive cannot be used.
    #[error("the archive at {url}: {what}")]
    Archive {
        /// Where.
        url: String,
        /// Why.
        what: String,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The first commands were refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Why the node did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too much is waiting. Nothing was written.
    #[error("too many requests are waiting")]
    Overloaded {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// The disk is full. Nothing was written.
    #[error("the disk is full")]
    DiskFull,
    /// The shard has stopped. Whether the command took effect shows when it is back.
    #[error("the shard has stopped: {why}")]
    Stopped {
        /// What happened.
        why: String,
    },
    /// The node is about to end. Nothing was written.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The idempotency key was used with another body.
    #[error("the idempotency key was used with another body")]
    IdempotencyConflict,
    /// The command is too large. Nothing was written.
    #[error("a command may have {limit_bytes} bytes")]
    TooLarge {
        /// What is allowed.
        limit_bytes: usize,
    },
    /// Cold data cannot be read.
    #[error("the archive cannot be read: {what}")]
    Archive {
        /// Why.
        what: String,
    },
    /// What goes to the archive cannot be written there.
    #[error("the archive cannot be written to: {what}")]
    ArchiveWrite {
        /// Why.
        what: String,
    },
}

/// A running node. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    pub(crate) inner: Arc<Inner>,
}

struct ShardHandle {
    inbox: Arc<NodeInbox>,
    reader: RowsReader,
}

pub(crate) struct Inner {
    pub(crate) folder: Folder,
    shards: Vec<ShardHandle>,
    pub(crate) boards: Arc<Boards>,
    pub(crate) archive: Archive,
    pub(crate) body_reads: Arc<Semaphore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    shutting_down: AtomicBool,
    /// Mail and effects. Taken at shutdown.
    background: Mutex<Option<tokio::runtime::Runtime>>,
    recents: recents::Settings,
    clock: Clock,
}

/// Of the inbox, for what the node itself has to say: all of it in the order in which it is said.
const OWN_LANE: VirtualShard = VirtualShard(0);

impl Inner {
    pub(crate) fn shard_count(&self) -> u16 {
        self.folder.shard_count
    }

    pub(crate) fn reader(&self, shard: ShardId) -> RowsReader {
        self.shards[usize::from(shard.0)].reader.clone()
    }

    /// Queues a command of the node's own.
    pub(crate) fn submit_to(
        &self,
        shard: ShardId,
        envelope: Envelope,
    ) -> impl Future<Output = Result<Bytes, Refusal>> + Send + use<> {
        self.submit_in_lane(shard, OWN_LANE, envelope, 0)
    }

    /// Queues a command at once, in the order of calling, and resolves when it is applied.
    fn submit_in_lane(
        &self,
        shard: ShardId,
        lane: VirtualShard,
        envelope: Envelope,
        weight: usize,
    ) -> impl Future<Output = Result<Bytes, Refusal>> + Send + use<> {
        let queued = self.push(shard, lane, envelope, weight);
        async move {
            match queued?.await {
                Ok(Answer::Done(Outcome::Reply(reply))) => Ok(reply),
                Ok(Answer::Done(Outcome::IdempotencyConflict)) => Err(Refusal::IdempotencyConflict),
                Ok(Answer::Refused(Refused::DiskFull)) => Err(Refusal::DiskFull),
                Ok(Answer::Refused(Refused::Stopped(why))) => Err(Refusal::Stopped { why }),
                Err(_gone) => Err(Refusal::Stopped { why: "its thread has ended".into() }),
            }
        }
    }

    /// *Check*: what cannot succeed is refused here, without entering the shard.
    fn push(
        &self,
        shard: ShardId,
        lane: VirtualShard,
        envelope: Envelope,
        weight: usize,
    ) -> Result<oneshot::Receiver<Answer>, Refusal> {
        // Mail is bounded by what a machine may send.
        if envelope.command.len() > COMMAND_BYTES_MAX && envelope.machine != KERNEL {
            return Err(Refusal::TooLarge { limit_bytes: COMMAND_BYTES_MAX });
        }
        let (ticket, answer) = oneshot::channel();
        let handle = &self.shards[usize::from(shard.0)];
        match handle.inbox.push(lane, Request::new(envelope, ticket).weighing(weight)) {
            Ok(()) => {
                self.boards.porter.ring(usize::from(shard.0), &handle.inbox);
                Ok(answer)
            }
            Err((PushError::Full, _)) => Err(Refusal::Overloaded { retry_after_ms: 250 }),
            Err((PushError::Closed, _)) => match self.boards.status.get(shard) {
                ShardState::Stopped { why } => Err(Refusal::Stopped { why }),
                _ => Err(Refusal::ShuttingDown),
            },
        }
    }
}

impl Node {
    /// Opens the data folder, replays what has to be, and serves. Blocks until then.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: NodeConfig) -> Result<Node, StartError> {
        Node::start_with(config, Parts::USUAL)
    }

    /// [`Node::start`] with other parts than usual.
    pub(crate) fn start_with(config: NodeConfig, parts: Parts) -> Result<Node, StartError> {
        check_settings(config.recents)?;
        let folder = Folder::open(&config.data_dir, config.shards)?;
        let beside = || folder.archive_dir();
        let archive_dir = config.archive_dir.clone().unwrap_or_else(beside);
        let archive = Archive::open(&archive_dir, &folder)?;
        let boards = Arc::new(boards(&config, folder.shard_count));
        let opening: Vec<_> = (0..folder.shard_count)
            .map(ShardId)
            .map(|shard| open_in_thread(&config, &folder, shard, parts))
            .collect();
        let mut shards = Vec::new();
        let mut threads = Vec::new();
        for (number, opening) in opening.into_iter().enumerate() {
            let shard = ShardId(u16::try_from(number).expect("counted from a u16"));
            let (opened, inbox) = opening.join().expect("opening does not panic")?;
            let Opened { shard: opened, outputs, replayed_commands, unfinished } = opened;
            tracing::info!(%shard, replayed_commands, "shard open");
            boards.publish(shard, outputs);
            let reader = opened.reader();
            let runner = Runner {
                shard: opened,
                inbox: inbox.clone(),
                boards: boards.clone(),
                clock: Arc::clone(&config.clock),
                overlay_bytes_max: parts.overlay_bytes_max,
                // Later than with a full overlay would be never: nothing is written then.
                checkpoint_bytes: config.checkpoint_bytes.min(parts.overlay_bytes_max),
                checkpoint_log_bytes: config.checkpoint_log_bytes,
                meters: Meters::new(shard.0),
                state: RunState::new(unfinished),
            };
            threads.push(run_in_thread(runner));
            shards.push(ShardHandle { inbox, reader });
        }
        let inner = Arc::new(Inner {
            folder,
            shards,
            boards,
            archive,
            body_reads: Arc::new(Semaphore::new(BODY_READS_MAX)),
            threads: Mutex::new(threads),
            shutting_down: AtomicBool::new(false),
            background: Mutex::new(None),
            recents: config.recents,
            clock: Arc::clone(&config.clock),
        });
        let node = Node { inner };
        node.start_background(&config)?;
        Ok(node)
    }

    fn start_background(&self, config: &NodeConfig) -> Result<(), StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(4)
            .thread_name("effects")
            .enable_all()
            .build()
            .expect("the system has room for a thread");
        let shard_ids = || (0..self.inner.shard_count()).map(ShardId);
        for shard in shard_ids() {
            runtime.spawn(effects::execute(Arc::clone(&self.inner), shard));
            for to in shard_ids().filter(|to| *to != shard) {
                runtime.spawn(mailman::carry(Arc::clone(&self.inner), shard, to));
            }
        }
        let settings = config.recents;
        let inner = Arc::clone(&self.inner);
        // Another runtime may be running this thread, so its result comes over a channel.
        let (done, configured) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let result = configure(&inner, settings).await;
            let _gone = done.send(result);
        });
        configured.recv().expect("configure answers")?;
        *self.inner.background.lock() = Some(runtime);
        Ok(())
    }

    /// Has a porter on this runtime, until it ends: with most of those who ask among its tasks,
    /// fewer threads are woken for them.
    pub fn have_porter_here(&self) {
        let porter = &self.inner.boards.porter;
        tokio::spawn(Arc::clone(porter).carry());
        for (number, shard) in self.inner.shards.iter().enumerate() {
            tokio::spawn(Arc::clone(porter).ring_bell(number, Arc::clone(&shard.inbox)));
        }
    }

    /// Does a command where `at` is placed. Resolves once it is durable and applied.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn submit(&self, at: VirtualShard, envelope: Envelope) -> Result<Bytes, Refusal> {
        self.submit_heavy(at, envelope, 0).await
    }

    /// [`Node::submit`] of a command that makes many more bytes of rows than it has itself: about so
    /// many. What a shard does at a time is bounded by that.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn submit_heavy(
        &self,
        at: VirtualShard,
        envelope: Envelope,
        weight: usize,
    ) -> Result<Bytes, Refusal> {
        self.inner.submit_in_lane(self.shard_of(at), at, envelope, weight).await
    }

    /// [`Node::submit`] for whoever does not wait for the answer. It is in the inbox when this returns,
    /// and needs no runtime for that.
    ///
    /// # Errors
    /// See [`Refusal`]: only what is refused at the inbox.
    pub fn submit_unheard(&self, at: VirtualShard, envelope: Envelope) -> Result<(), Refusal> {
        self.inner.push(self.shard_of(at), at, envelope, 0).map(drop)
    }

    pub(crate) fn shard_of(&self, at: VirtualShard) -> ShardId {
        at.shard(self.inner.shard_count())
    }

    /// The number of the shard where `at` is placed.
    #[must_use]
    pub fn shard_number(&self, at: VirtualShard) -> u16 {
        self.shard_of(at).0
    }

    /// Another number whenever a key or a tenant may have changed: what was found out about
    /// credentials holds while it stays the same. To be asked for before looking.
    #[must_use]
    pub fn credentials_version(&self) -> u64 {
        self.inner.boards.credentials.load(Ordering::Acquire)
    }

    /// Whether a request with this key was answered before, so that submitting it writes nothing.
    ///
    /// # Errors
    /// [`Refusal::Stopped`] when rows cannot be read.
    pub async fn is_answered(
        &self,
        at: VirtualShard,
        key: Option<IdempotencyKey>,
    ) -> Result<bool, Refusal> {
        let Some(key) = key else { return Ok(false) };
        let reader = self.rows(at);
        let known = self.read(move || idempotency::look_up(&reader, &key)).await?;
        Ok(known != Known::New)
    }

    /// The rows where `at` is placed, to be read on a thread that may block.
    #[must_use]
    pub fn rows(&self, at: VirtualShard) -> RowsReader {
        self.inner.reader(self.shard_of(at))
    }

    /// Reads rows on a thread that may block.
    ///
    /// # Errors
    /// [`Refusal::Stopped`] when they cannot be read.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let stopped = |error: tokio::task::JoinError| {
            let ended = |error: tokio::task::JoinError| error.to_string();
            Refusal::Stopped { why: error.try_into_panic().map_or_else(ended, |p| panic_text(&*p)) }
        };
        tokio::task::spawn_blocking(work).await.map_err(stopped)
    }

    /// The rows of every shard, to be read on a thread that may block.
    #[must_use]
    pub fn all_rows(&self) -> Vec<RowsReader> {
        self.inner.shards.iter().map(|shard| shard.reader.clone()).collect()
    }

    /// What the node's clock shows, in Unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        (self.inner.clock)()
    }

    /// What a tenant uses, over all shards.
    #[must_use]
    pub fn usage(&self, tenant: TenantId) -> Usage {
        self.inner.boards.usage.of(tenant)
    }

    /// Whether the node can serve, shard by shard.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.inner.boards.status.readiness(self.inner.shutting_down.load(Ordering::Relaxed))
    }

    /// The settings of recents that are in force.
    #[must_use]
    pub fn recents_settings(&self) -> recents::Settings {
        self.inner.recents
    }

    /// The number of shards.
    #[must_use]
    pub fn shard_count(&self) -> u16 {
        self.inner.shard_count()
    }

    /// The node's own secret, for deriving tokens.
    #[must_use]
    pub fn secret(&self) -> &[u8; 32] {
        &self.inner.folder.secret
    }

    /// Takes no more commands, finishes those inside, checkpoints, and ends the shards' threads.
    pub async fn shutdown(&self) {
        let node = self.clone();
        // Joining threads blocks.
        let ended = tokio::task::spawn_blocking(move || node.shutdown_blocking()).await;
        ended.expect("shutting down does not panic");
    }

    /// [`Node::shutdown`] for callers without a runtime.
    pub fn shutdown_blocking(&self) {
        self.inner.shutting_down.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.inner.background.lock().take() {
            runtime.shutdown_background();
        }
        for shard in &self.inner.shards {
            shard.inbox.close();
        }
        for thread in std::mem::take(&mut *self.inner.threads.lock()) {
            thread.join().expect("a shard's thread catches its panics");
        }
    }
}

/// Puts the settings into every shard whose rows have others.
async fn configure(inner: &Arc<Inner>, settings: recents::Settings) -> Result<(), Refusal> {
    for shard in (0..inner.shard_count()).map(ShardId) {
        if recents::settings(&inner.reader(shard)) != settings {
            let command = recents::Command::Configure(settings).encode();
            let (machine, tenant) = (recents::MACHINE, TenantId::SYSTEM);
            let envelope = Envelope { machine, tenant, idempotency: None, command };
            match inner.submit_to(shard, envelope).await {
                // Reads must be served even so; the next start tries again.
                Err(Refusal::DiskFull) => tracing::warn!("no room for new settings of recents"),
                other => drop(other?),
            }
        }
    }
    Ok(())
}

fn check_settings(recents: recents::Settings) -> Result<(), StartError> {
    let wrong = |what: &str| Err(StartError::Setting(what.into()));
    if !(1..=1000).contains(&recents.keep) {
        return wrong("recents-keep must be from 1 to 1000");
    }
    if recents.archive_after_days == 0 || recents.idle_days == 0 {
        return wrong("recents-archive-after-days and recents-idle-days must be 1 at least");
    }
    Ok(())
}

fn boards(config: &NodeConfig, shard_count: u16) -> Boards {
    let mut first_etag = [0; 8];
    getrandom::fill(&mut first_etag).expect("the system has randomness");
    // Half the range, so that counting up never wraps.
    let first_etag = u64::from_be_bytes(first_etag) >> 1;
    let count = usize::from(shard_count);
    Boards {
        porter: Arc::new(Porter::new(shard_count)),
        views: (0..count).map(|_| Views::new(config.views_bytes_max / count, first_etag)).collect(),
        waiters: Arc::new(Waiters::new()),
        credentials: AtomicU64::new(0),
        usage: UsageBoard::new(shard_count),
        status: StatusBoard::new(shard_count),
        effects: (0..count).map(|_| Notify::new()).collect(),
        mail: (0..count * count).map(|_| Notify::new()).collect(),
    }
}

type OpenResult = Result<(Opened<crate::runner::Ticket>, Arc<NodeInbox>), StartError>;

/// Shards open side by side: replay is bound by the processor.
fn open_in_thread(
    config: &NodeConfig,
    folder: &Folder,
    shard: ShardId,
    parts: Parts,
) -> JoinHandle<OpenResult> {
    let (log_dir, rows_dir) = (folder.log_dir(shard), folder.rows_dir(shard));
    let place = Place { shard, shard_count: folder.shard_count };
    let config = config.clone();
    let open = move || {
        let Parts { machines, open_base, overlay_bytes_max } = parts;
        let base =
            open_base(&config, rows_dir).map_err(|source| StartError::Rows { shard, source })?;
        let inbox: Arc<NodeInbox> = Arc::new(Inbox::new());
        let for_log = Arc::clone(&inbox);
        let sink: journal::EventSink = Arc::new(move |event| for_log.note(Note::Log(event)));
        let options = journal::Options {
            segment_bytes: config.segment_bytes,
            reserve_bytes: config.log_reserve_bytes,
            ..journal::Options::default()
        };
        let log = FileLog::open(Arc::new(RealDisk), &log_dir, &options, sink)
            .map_err(|source| StartError::Log { shard, source })?;
        let mut progress = |progress: Progress| (config.on_progress)(shard, progress);
        let opened =
            Shard::open(place, Box::new(log), base, machines(), overlay_bytes_max, &mut progress)
                .map_err(|source| StartError::Replay { shard, source })?;
        Ok((opened, inbox))
    };
    std::thread::Builder::new()
        .name(format!("open-{shard}"))
        .spawn(open)
        .expect("the system has room for a thread")
}

/// Opened on a thread that gives way, because the store's own threads inherit its priority:
/// compaction must not compete with the shard.
fn open_base(config: &NodeConfig, dir: PathBuf) -> BaseResult {
    let options = StoreOptions { cache_bytes: config.store_cache_bytes, ..StoreOptions::default() };
    let open = move || {
        checkpointer::give_way();
        FjallBase::open(&dir, options)
    };
    let base = std::thread::scope(|scope| scope.spawn(open).join().expect("it does not panic"))?;
    Ok(Arc::new(base))
}

fn run_in_thread(runner: Runner) -> JoinHandle<()> {
    let id = runner.shard.place().shard;
    let (inbox, boards) = (Arc::clone(&runner.inbox), Arc::clone(&runner.boards));
    let run = move || {
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| runner.run())) {
            let why = panic_text(&*panic);
            tracing::error!(shard = id.0, why, "shard stopped");
            boards.status.set(id, ShardState::Stopped { why });
            // Whoever waits inside finds their ticket dropped.
            inbox.close();
            while !inbox.take(usize::MAX).is_empty() {}
        }
    };
    std::thread::Builder::new()
        .name(format!("shard-{id}"))
        .spawn(run)
        .expect("the system has room for a thread")
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(RowsLost(error)) = panic.downcast_ref() {
        return error.to_string();
    }
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a bug without a message".into())
}
