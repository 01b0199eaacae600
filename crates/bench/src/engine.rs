//! A shard on a thread, run as the node runs its own, but with any machine and any disk.
//!
//! The node takes its machines from its registry and its files from the real disk. What must be
//! measured with a machine of the bench, or on a disk that keeps a tape, runs here: the same
//! [`Shard`], [`FileLog`] and [`FjallBase`], and a loop in the same order as the node's runner.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use journal::{Disk, Event, EventSink, FileLog, Options};
use kernel::limits::{CHECKPOINT_BYTES, ENTRY_COMMANDS_MAX, OVERLAY_BYTES_MAX};
use kernel::machine::Place;
use kernel::rows::RowsReader;
use kernel::{BaseError, Envelope, ShardId};
use parking_lot::{Condvar, Mutex};
use shard::{Answer, CheckpointJob, Machines, Opened, Request, Shard, SubmitError};
use store::{Breath, FjallBase, StoreOptions};
use tokio::sync::oneshot;

use crate::disk::SHARD_THREAD;
use crate::proc::wall_ms;

/// Requests that wait at most; whoever pushes more waits.
const INBOX_MAX: usize = 4 * ENTRY_COMMANDS_MAX;
/// As the node's runner, and as its checkpointer.
const NAP_MAX: Duration = Duration::from_millis(500);
/// Between two looks whether everything is done.
const CLOSING_NAP: Duration = Duration::from_millis(5);
const REST_FACTOR: u32 = 3;
const REST_MAX: Duration = Duration::from_millis(20);
const NICE: i32 = 15;

/// Whom to tell; nobody, for those who only watch.
type Ticket = Option<oneshot::Sender<Answer>>;

enum Note {
    Log(Event),
    Checkpointed(CheckpointJob, Result<(), BaseError>),
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request<Ticket>>,
    notes: VecDeque<Note>,
    closed: bool,
    /// The thread sleeps, and a request is reason to wake it.
    wants_requests: bool,
    /// Why the engine has ended, if it was not told to.
    failed: Option<String>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    wake: Condvar,
    drained: Condvar,
}

impl Inbox {
    fn note(&self, note: Note) {
        self.state.lock().notes.push_back(note);
        self.wake.notify_one();
    }

    fn wait(&self, wants_requests: bool, timeout: Duration) -> VecDeque<Note> {
        let mut state = self.state.lock();
        let timeout = if state.closed { timeout.min(CLOSING_NAP) } else { timeout };
        let deadline = Instant::now() + timeout;
        while state.notes.is_empty() && (!wants_requests || state.requests.is_empty()) {
            state.wants_requests = wants_requests;
            if self.wake.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.wants_requests = false;
        std::mem::take(&mut state.notes)
    }

    fn take(&self) -> Vec<Request<Ticket>> {
        let mut state = self.state.lock();
        let count = state.requests.len().min(ENTRY_COMMANDS_MAX);
        let taken = state.requests.drain(..count).collect();
        self.drained.notify_all();
        taken
    }
}

/// How an engine is to be run.
pub(crate) struct EngineOptions {
    /// What it runs.
    pub(crate) machines: Machines,
    /// Where its log is written.
    pub(crate) disk: Arc<dyn Disk>,
    /// Rows in memory at which it checkpoints.
    pub(crate) checkpoint_bytes: usize,
}

/// A running shard.
pub(crate) struct Engine {
    inbox: Arc<Inbox>,
    reader: RowsReader,
    thread: Option<JoinHandle<()>>,
}

/// How long opening took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Reading and checking the log.
    pub(crate) log: Duration,
    /// Applying it.
    pub(crate) replay: Duration,
    /// Commands applied.
    pub(crate) commands: u64,
}

/// Makes the calling thread, and those it starts, give way.
fn give_way() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICE) {
        eprintln!("bench: cannot lower the priority of a background thread: {error}");
    }
}

/// The store's own threads inherit the priority of the thread that opens it.
fn open_base(dir: &Path) -> Result<FjallBase, BaseError> {
    let open = || {
        give_way();
        FjallBase::open(&dir.join("rows"), StoreOptions::default())
    };
    std::thread::scope(|scope| scope.spawn(open).join().expect("it does not panic"))
}

fn open(
    dir: &Path,
    options: EngineOptions,
    sink: EventSink,
) -> Result<(Opened<Ticket>, Opening, usize)> {
    let base = open_base(dir)?;
    let started = Instant::now();
    let log = FileLog::open(options.disk, &dir.join("log"), &Options::default(), sink)?;
    let log_took = started.elapsed();
    let started = Instant::now();
    let place = Place { shard: ShardId(0), shard_count: 1 };
    let mut go_on = |_| {};
    let (log, base) = (Box::new(log), Arc::new(base));
    let opened = Shard::open(place, log, base, options.machines, CHECKPOINT_BYTES, &mut go_on)?;
    ensure!(opened.unfinished.is_none(), "the disk is full");
    let commands = opened.replayed_commands;
    let opening = Opening { log: log_took, replay: started.elapsed(), commands };
    Ok((opened, opening, options.checkpoint_bytes))
}

/// Opens a shard, says how long that took, and lets go of it.
pub(crate) fn open_only(dir: &Path, options: EngineOptions) -> Result<Opening> {
    let (opened, opening, _) = open(dir, options, Arc::new(|_| {}))?;
    drop(opened);
    Ok(opening)
}

impl Engine {
    /// Opens the shard in `dir` and runs it.
    pub(crate) fn start(dir: &Path, options: EngineOptions) -> Result<Engine> {
        let inbox = Arc::new(Inbox::default());
        let for_log = Arc::clone(&inbox);
        let sink: EventSink = Arc::new(move |event| for_log.note(Note::Log(event)));
        let (opened, _, checkpoint_bytes) = open(dir, options, sink)?;
        let reader = opened.shard.reader();
        let runner = Runner {
            shard: opened.shard,
            inbox: Arc::clone(&inbox),
            checkpoint_bytes,
            checkpointing: false,
            waits_for_room: false,
            more_to_load: true,
        };
        let thread = std::thread::Builder::new()
            .name(SHARD_THREAD.into())
            .spawn(move || runner.run())
            .context("cannot start a thread")?;
        Ok(Engine { inbox, reader, thread: Some(thread) })
    }

    /// Does a command. Resolves once it is durable and applied.
    pub(crate) fn submit(&self, envelope: Envelope) -> oneshot::Receiver<Answer> {
        let (ticket, answer) = oneshot::channel();
        let mut state = self.inbox.state.lock();
        state.requests.push_back(Request::new(envelope, Some(ticket)));
        let wake = std::mem::take(&mut state.wants_requests);
        drop(state);
        if wake {
            self.inbox.wake.notify_one();
        }
        answer
    }

    /// Has commands done, without answers; waits while too many wait already.
    pub(crate) fn feed(&self, envelopes: Vec<Envelope>) -> Result<()> {
        let mut state = self.inbox.state.lock();
        while state.requests.len() > INBOX_MAX && state.failed.is_none() {
            self.inbox.drained.wait(&mut state);
        }
        if let Some(why) = &state.failed {
            anyhow::bail!("the shard has stopped: {why}");
        }
        let requests = envelopes.into_iter().map(|envelope| Request::new(envelope, None));
        state.requests.extend(requests);
        drop(state);
        self.inbox.wake.notify_one();
        Ok(())
    }

    /// The rows, to read.
    pub(crate) fn reader(&self) -> &RowsReader {
        &self.reader
    }

    /// Does what is left to do, and ends.
    fn close(&mut self) {
        self.inbox.state.lock().closed = true;
        self.inbox.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported there.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

struct Runner {
    shard: Shard<Ticket>,
    inbox: Arc<Inbox>,
    checkpoint_bytes: usize,
    checkpointing: bool,
    waits_for_room: bool,
    more_to_load: bool,
}

impl Runner {
    fn run(mut self) {
        loop {
            let nap = self.nap();
            for note in self.inbox.wait(self.wants_requests(), nap) {
                self.note(note);
            }
            if self.shard.stopped().is_none() {
                self.append();
                self.shard.commit();
                self.more_to_load = self.shard.preload_timers(wall_ms());
                self.checkpoint();
            }
            let mut state = self.inbox.state.lock();
            if let Some(why) = self.shard.stopped() {
                state.failed = Some(why.to_owned());
                state.requests.clear();
                self.inbox.drained.notify_all();
            }
            let done = state.closed && state.requests.is_empty() && self.shard.is_idle();
            if done && !self.checkpointing {
                return;
            }
        }
    }

    fn wants_requests(&self) -> bool {
        self.shard.can_append()
            && !self.waits_for_room
            && self.shard.active_bytes() <= OVERLAY_BYTES_MAX
    }

    fn nap(&self) -> Duration {
        if !self.shard.is_idle() {
            return NAP_MAX;
        }
        if self.more_to_load {
            return Duration::ZERO;
        }
        Duration::from_millis(self.shard.wake_ms().saturating_sub(wall_ms())).min(NAP_MAX)
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Log(event) => {
                self.waits_for_room &= event != Event::Room;
                for (ticket, answer) in self.shard.on_event(&event).answers {
                    if let Some(ticket) = ticket {
                        // Who asked may have gone away.
                        let _ = ticket.send(answer);
                    }
                }
            }
            Note::Checkpointed(job, result) => {
                self.checkpointing = false;
                let finished = match result {
                    Ok(()) => self.shard.finish_checkpoint(job).map_err(|e| e.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                match finished {
                    Ok(layer) => drop(std::thread::spawn(move || drop(layer))),
                    Err(why) => self.shard.stop(why, &mut shard::Published::default()),
                }
            }
        }
    }

    fn append(&mut self) {
        while self.wants_requests() {
            let now_ms = wall_ms();
            let requests = self.inbox.take();
            if requests.is_empty() && !self.shard.wants_pulse(now_ms) {
                return;
            }
            let mut seed = [0; 16];
            getrandom::fill(&mut seed).expect("the system has randomness");
            if let Err((error, requests)) = self.shard.submit(now_ms, seed, requests) {
                let mut state = self.inbox.state.lock();
                for request in requests.into_iter().rev() {
                    state.requests.push_front(request);
                }
                match error {
                    SubmitError::Busy => {}
                    SubmitError::NoRoom => self.waits_for_room = true,
                    SubmitError::DiskFull => {
                        self.shard.stop("the disk is full".into(), &mut shard::Published::default())
                    }
                    SubmitError::Stopped(why) => {
                        self.shard.stop(why, &mut shard::Published::default());
                    }
                }
                return;
            }
        }
    }

    fn checkpoint(&mut self) {
        if self.checkpointing || self.shard.active_bytes() < self.checkpoint_bytes {
            return;
        }
        let Some(job) = self.shard.begin_checkpoint() else { return };
        self.checkpointing = true;
        let inbox = Arc::clone(&self.inbox);
        std::thread::spawn(move || {
            give_way();
            let breath = Mutex::new(Breath::default());
            let pace = || {
                breath.lock().breathe_for(|worked| (worked * REST_FACTOR).min(REST_MAX));
            };
            let result = job.run(&pace);
            inbox.note(Note::Checkpointed(job, result));
        });
    }
}
