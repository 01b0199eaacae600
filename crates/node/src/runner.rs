//! The thread of a shard: the only writer of its state.
//!
//! ```text
//!   loop: wait for a note, a request or a deadline
//!         notes     the log is durable so far: apply, publish
//!                   a checkpoint is done: drop the frozen layer, trim
//!         timers    load ahead when idle
//!         memory    begin a checkpoint when the overlay has grown
//!         requests  take a fair batch, stamp, append, commit; a pulse when a timer is due
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::Event;
use kernel::machine::Output;
use kernel::{BaseError, MachineId, ShardId};
use shard::{Answer, CheckpointJob, Published, Refused, Request, Shard, SubmitError};
use tokio::sync::{Notify, oneshot};

use crate::checkpointer;
use crate::courtesy::Courtesy;
use crate::inbox::{Inbox, Note};
use crate::meters::Meters;
use crate::pace::{Pace, slow_from};
use crate::porter::Porter;
use crate::status::{ShardState, StatusBoard};
use crate::usage::UsageBoard;
use crate::views::Views;
use crate::waiters::{Waiters, line_key};

/// Whom to tell.
pub(crate) type Ticket = oneshot::Sender<Answer>;
/// A shard as the node runs it.
pub(crate) type NodeShard = Shard<Ticket>;
/// The way in.
pub(crate) type NodeInbox = Inbox<Ticket, NodeNote>;

/// What the node's threads tell a shard.
pub(crate) enum NodeNote {
    /// A checkpoint's job has ended.
    Checkpointed(CheckpointJob, Result<(), BaseError>),
}

impl std::fmt::Debug for NodeNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NodeNote::Checkpointed(job, result) = self;
        write!(f, "Checkpointed({}, {result:?})", job.through())
    }
}

/// What shards publish to.
pub(crate) struct Boards {
    pub(crate) porter: Arc<Porter>,
    /// Of each shard: rows of two shards may have the same key.
    pub(crate) views: Vec<Views>,
    pub(crate) waiters: Arc<Waiters>,
    /// Grows after every view of a key or a tenant that is published.
    pub(crate) credentials: AtomicU64,
    pub(crate) usage: UsageBoard,
    pub(crate) status: StatusBoard,
    /// Woken when a shard has asked for an effect.
    pub(crate) effects: Vec<Notify>,
    /// Woken when a shard has mail for another: `from * shard_count + to`.
    pub(crate) mail: Vec<Notify>,
}

impl Boards {
    pub(crate) fn publish(&self, shard: ShardId, outputs: Vec<Output>) {
        let shard_count = self.effects.len();
        for output in outputs {
            match output {
                Output::View { machine, key, value } => {
                    self.publish_view(shard, machine, key, value);
                }
                Output::Effect(_) => self.effects[usize::from(shard.0)].notify_one(),
                Output::Mail(to) => {
                    self.mail[usize::from(shard.0) * shard_count + usize::from(to.0)].notify_one();
                }
                Output::Usage { tenant, usage } => self.usage.publish(shard, tenant, usage),
            }
        }
    }

    fn publish_view(&self, shard: ShardId, machine: MachineId, key: Bytes, value: Option<Bytes>) {
        let shown = (machine == queue::MACHINE).then(|| (key.clone(), value.clone()));
        let wakes = (machine == streams::MACHINE && streams::wakes(&key)).then(|| key.clone());
        self.views[usize::from(shard.0)].publish(key, value);
        if machine == tenants::MACHINE {
            self.credentials.fetch_add(1, Ordering::Release);
        }
        // After the view can be read: who joins the line looks at it once more.
        if let Some((key, value)) = shown
            && self.waiters.are_there()
        {
            // Who waits for a queue that is gone finds out by trying.
            let ready = value.map_or(u64::MAX, |value| queue::ready(&key, &value));
            self.waiters.call(&line_key(shard, &key), ready);
        }
        // Records are there for everybody: all look again.
        if let Some(key) = wakes
            && self.waiters.are_there()
        {
            self.waiters.call_all(&line_key(shard, &key));
        }
    }
}

/// The wall clock, in Unix milliseconds. Tests travel with another one.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How long the thread sleeps at most, so that a clock that is set back and forth, or a disk that
/// has room again, is noticed.
const NAP_MAX: Duration = Duration::from_millis(500);
/// Gauges are refreshed this often.
const GAUGES_EVERY: Duration = Duration::from_millis(500);
/// After a checkpoint found the disk full.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(2);

pub(crate) struct Runner {
    pub(crate) shard: NodeShard,
    pub(crate) inbox: Arc<NodeInbox>,
    pub(crate) boards: Arc<Boards>,
    pub(crate) clock: Clock,
    /// Rows in memory at which nothing more is taken.
    pub(crate) overlay_bytes_max: usize,
    pub(crate) checkpoint_bytes: usize,
    pub(crate) checkpoint_log_bytes: u64,
    pub(crate) meters: Meters,
    pub(crate) state: RunState,
}

/// What the loop remembers between two rounds.
pub(crate) struct RunState {
    /// The log has no room; requests wait until it says so.
    waits_for_room: bool,
    /// The last append found the disk full.
    disk_full: bool,
    /// When each entry in flight was appended.
    appended: VecDeque<(kernel::Index, Instant)>,
    checkpointing: bool,
    retry_checkpoint: Option<(CheckpointJob, Instant)>,
    gauges_at: Instant,
    more_to_load: bool,
    /// Nothing is taken before this, because memory fills up.
    rests_until: Instant,
    /// The checkpoint under way is waited for.
    hurry: Arc<AtomicBool>,
    courtesy: Courtesy,
}

impl RunState {
    /// At the start, with the checkpoint that opening could not finish.
    pub(crate) fn new(unfinished: Option<CheckpointJob>) -> RunState {
        RunState {
            waits_for_room: false,
            disk_full: false,
            appended: VecDeque::new(),
            checkpointing: false,
            retry_checkpoint: unfinished.map(|job| (job, Instant::now())),
            gauges_at: Instant::now(),
            more_to_load: true,
            rests_until: Instant::now(),
            hurry: Arc::default(),
            courtesy: Courtesy::new(),
        }
    }
}

impl Runner {
    /// Runs until the inbox is closed and empty and everything in flight is applied.
    pub(crate) fn run(mut self) {
        self.show_state();
        loop {
            let wants = self.wants_requests();
            let nap = self.nap();
            let notes = self.inbox.wait(wants, nap);
            if notes.is_empty() {
                // Word of room may be lost with whoever was to bring it; asking again is cheap.
                self.state.waits_for_room = false;
            }
            for note in notes {
                match note {
                    Note::Log(event) => self.log_event(&event),
                    Note::Node(NodeNote::Checkpointed(job, result)) => {
                        self.checkpointed(job, result);
                    }
                }
            }
            if self.shard.stopped().is_some() {
                self.refuse_everything();
            } else {
                self.load_timers();
                self.checkpoint();
                self.state.courtesy.yield_now();
                self.append();
                self.shard.commit();
            }
            self.gauges();
            if self.inbox.is_closed_and_empty() && self.shard.is_idle() {
                break;
            }
        }
        self.last_checkpoint();
    }

    fn wants_requests(&self) -> bool {
        // With the overlay full and the disk too, requests are taken to be refused.
        let blocked = self.overlay_full() && self.state.retry_checkpoint.is_none();
        self.shard.stopped().is_some()
            || (self.shard.can_append()
                && !self.state.waits_for_room
                && !blocked
                && self.rest() == Duration::ZERO)
    }

    fn overlay_full(&self) -> bool {
        self.shard.active_bytes() > self.overlay_bytes_max
    }

    /// How long nothing is to be taken.
    fn rest(&self) -> Duration {
        self.state.rests_until.saturating_duration_since(Instant::now())
    }

    fn nap(&self) -> Duration {
        let rest = self.rest();
        if rest > Duration::ZERO {
            return rest;
        }
        let cannot_append =
            self.shard.stopped().is_some() || self.state.disk_full || !self.wants_requests();
        if cannot_append {
            return NAP_MAX;
        }
        if self.state.more_to_load && self.shard.is_idle() {
            return Duration::ZERO;
        }
        let now_ms = (self.clock)();
        let until_ms = self.shard.wake_ms().saturating_sub(now_ms);
        // An entry in flight may fire what is due: its durability is a note, which wakes us.
        let due = if self.shard.is_idle() { Duration::from_millis(until_ms) } else { NAP_MAX };
        due.min(NAP_MAX)
    }

    fn log_event(&mut self, event: &Event) {
        if let Event::Durable(through) = event {
            while self.state.appended.front().is_some_and(|(index, _)| index <= through) {
                let (_, at) = self.state.appended.pop_front().expect("it was looked at");
                self.meters.append_seconds.record(at.elapsed());
            }
        }
        if *event == Event::Room {
            self.state.waits_for_room = false;
            self.state.disk_full = false;
            self.show_state();
        }
        let started = Instant::now();
        let Runner { shard, boards, meters, .. } = self;
        let place = shard.place().shard;
        let mut publishing = Duration::ZERO;
        shard.on_event_telling(event, &mut |published| {
            let began = Instant::now();
            let applied = published.entries > 0;
            tell(boards, place, published);
            publishing += began.elapsed();
            if applied {
                meters.publish_seconds.record(std::mem::take(&mut publishing));
            }
        });
        meters.apply_seconds.record(started.elapsed());
        self.show_state();
    }

    /// Tells the edge how the shard is doing.
    fn show_state(&self) {
        let state = match self.shard.stopped() {
            Some(why) => ShardState::Stopped { why: why.to_owned() },
            None if self.state.disk_full || self.overlay_and_disk_full() => ShardState::DiskFull,
            None => ShardState::Serving,
        };
        self.boards.status.set(self.shard.place().shard, state);
    }

    fn publish(&mut self, published: Published<Ticket>) {
        tell(&self.boards, self.shard.place().shard, published);
    }

    /// *Stamp* and *append*, as long as there is something to append and the log takes it.
    fn append(&mut self) {
        while self.wants_requests() {
            let now_ms = (self.clock)();
            let pace = Pace::of(self.shard.active_bytes(), self.overlay_bytes_max);
            let requests = self.inbox.take(pace.bytes_at_once());
            if requests.is_empty() && !self.shard.wants_pulse(now_ms) {
                break;
            }
            if self.overlay_and_disk_full() {
                refuse(requests, &Refused::DiskFull);
                break;
            }
            let mut seed = [0; 16];
            getrandom::fill(&mut seed).expect("the system has randomness");
            let count = requests.len() as u64;
            let weight = requests.iter().map(|request| request.weight).sum();
            match self.shard.submit(now_ms, seed, requests) {
                Ok(index) => {
                    self.state.appended.push_back((index, Instant::now()));
                    self.meters.entries.increment(1);
                    self.meters.commands.increment(count);
                    self.state.disk_full = false;
                    self.state.rests_until = Instant::now() + pace.rest(weight);
                    self.show_state();
                }
                Err((error, requests)) => {
                    self.not_appended(error, requests);
                    break;
                }
            }
        }
    }

    fn not_appended(&mut self, error: SubmitError, requests: Vec<Request<Ticket>>) {
        match error {
            SubmitError::Busy => self.inbox.put_back(requests),
            SubmitError::NoRoom => {
                self.state.waits_for_room = true;
                self.inbox.put_back(requests);
            }
            SubmitError::DiskFull => {
                self.state.disk_full = true;
                self.boards.status.set(self.shard.place().shard, ShardState::DiskFull);
                refuse(requests, &Refused::DiskFull);
            }
            SubmitError::Stopped(why) => {
                let mut published = Published::default();
                self.shard.stop(why.clone(), &mut published);
                self.publish(published);
                self.boards
                    .status
                    .set(self.shard.place().shard, ShardState::Stopped { why: why.clone() });
                refuse(requests, &Refused::Stopped(why));
            }
        }
    }

    fn overlay_and_disk_full(&self) -> bool {
        self.state.retry_checkpoint.is_some() && self.overlay_full()
    }

    fn stop(&mut self, why: String) {
        let mut published = Published::default();
        self.shard.stop(why, &mut published);
        self.show_state();
        self.publish(published);
    }

    fn refuse_everything(&mut self) {
        let why = self.shard.stopped().expect("asked by the caller").to_owned();
        let refused = Refused::Stopped(why);
        loop {
            let requests = self.inbox.take(usize::MAX);
            if requests.is_empty() {
                break;
            }
            refuse(requests, &refused);
        }
    }

    fn load_timers(&mut self) {
        self.state.more_to_load = self.shard.preload_timers((self.clock)());
    }

    fn checkpoint(&mut self) {
        let hurry = self.shard.active_bytes() > slow_from(self.overlay_bytes_max);
        self.state.hurry.store(hurry, Ordering::Relaxed);
        if let Some((_, at)) = &self.state.retry_checkpoint
            && at.elapsed() >= CHECKPOINT_RETRY
        {
            let (job, _) = self.state.retry_checkpoint.take().expect("it was looked at");
            self.start_checkpoint(job);
        }
        // Rows that are written over and over do not grow, but the log does; and a full disk has
        // room again once the log is trimmed.
        let due = self.shard.active_bytes() >= self.checkpoint_bytes
            || self.shard.uncovered_bytes() >= self.checkpoint_log_bytes
            || self.state.disk_full;
        if due
            && !self.state.checkpointing
            && self.state.retry_checkpoint.is_none()
            && let Some(job) = self.shard.begin_checkpoint()
        {
            self.start_checkpoint(job);
        }
    }

    fn start_checkpoint(&mut self, job: CheckpointJob) {
        self.state.checkpointing = true;
        let histogram = self.meters.checkpoint_seconds.clone();
        let hurry = Arc::clone(&self.state.hurry);
        checkpointer::start(
            self.shard.place().shard,
            job,
            Arc::clone(&self.inbox),
            hurry,
            histogram,
        );
    }

    fn checkpointed(&mut self, job: CheckpointJob, result: Result<(), BaseError>) {
        self.state.checkpointing = false;
        match result {
            Ok(()) => {
                match self.shard.finish_checkpoint(job) {
                    Ok(layer) => checkpointer::free(layer),
                    Err(error) => tracing::warn!(%error, "the log could not be trimmed"),
                }
                self.show_state();
            }
            Err(error @ BaseError::Full { .. }) => {
                tracing::warn!(%error, "checkpoint put off");
                self.meters.checkpoint_failures.increment(1);
                self.state.retry_checkpoint = Some((job, Instant::now()));
                self.show_state();
            }
            Err(error) => {
                // The log still has everything; a restart opens the store anew and replays.
                self.meters.checkpoint_failures.increment(1);
                self.stop(error.to_string());
            }
        }
    }

    /// On the way out, so that the next start has nothing to replay.
    fn last_checkpoint(&mut self) {
        while self.state.checkpointing {
            for note in self.inbox.wait(false, NAP_MAX) {
                if let Note::Node(NodeNote::Checkpointed(job, result)) = note {
                    self.checkpointed(job, result);
                }
            }
        }
        if self.shard.stopped().is_some() || self.state.retry_checkpoint.is_some() {
            return;
        }
        if let Some(job) = self.shard.begin_checkpoint() {
            match job.run(&|| {}) {
                Ok(()) => drop(self.shard.finish_checkpoint(job)),
                Err(error) => tracing::warn!(%error, "no checkpoint at the end"),
            }
        }
    }

    fn gauges(&mut self) {
        if self.state.gauges_at.elapsed() < GAUGES_EVERY {
            return;
        }
        self.state.gauges_at = Instant::now();
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        {
            self.meters.inbox.set(self.inbox.len() as f64);
            self.meters.overlay_bytes.set(self.shard.active_bytes() as f64);
            self.meters.log_bytes.set(self.shard.log_bytes() as f64);
            self.meters.timers_in_memory.set(self.shard.timers_in_memory() as f64);
        }
    }
}

/// Views before answers: whoever is answered can read what they wrote. And before refusals the
/// state of the shard: whoever is refused finds out why.
fn tell(boards: &Boards, shard: ShardId, published: Published<Ticket>) {
    if let Some((_, Answer::Refused(Refused::Stopped(why)))) = published.answers.last() {
        boards.status.set(shard, ShardState::Stopped { why: why.clone() });
    }
    boards.publish(shard, published.outputs);
    boards.porter.hand_over(published.answers);
}

fn refuse(requests: Vec<Request<Ticket>>, refused: &Refused) {
    for request in requests {
        let _gone = request.ticket.send(Answer::Refused(refused.clone()));
    }
}
