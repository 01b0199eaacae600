//! The shard itself: requests in, answers out, one log between them.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::Arc;

use journal::{AppendError, Event, Log};
use kernel::limits::{
    ENTRIES_IN_FLIGHT_MAX, ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, TIMERS_PER_ENTRY_MAX,
};
use kernel::machine::{Ground, Output, Place};
use kernel::rows::{RowsReader, Scan};
use kernel::{Entry, Envelope, Index, Rows, Unreadable};
use parking_lot::RwLock;

use crate::apply::{Apply, Outcome, stamp_of};
use crate::machines::Machines;

/// Answers that are told together: each telling may wake a thread.
const ANSWERS_AT_ONCE: usize = 16;

/// A command and whom to tell.
#[derive(Debug)]
pub struct Request<T> {
    /// What is to be done.
    pub envelope: Envelope,
    /// Comes back with the answer; the shard does not look inside.
    pub ticket: T,
    /// Bytes of rows that it makes when it is applied, about; not less than its own.
    pub weight: usize,
}

impl<T> Request<T> {
    /// One that makes about as many bytes of rows as it has itself.
    #[must_use]
    pub fn new(envelope: Envelope, ticket: T) -> Request<T> {
        let weight = envelope.encoded_len();
        Request { envelope, ticket, weight }
    }

    /// This one makes so many.
    #[must_use]
    pub fn weighing(self, bytes: usize) -> Request<T> {
        Request { weight: self.weight.max(bytes), ..self }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is durable and applied, and this came of it.
    Done(Outcome),
    /// It was not applied here.
    Refused(Refused),
}

/// Why a request was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The disk is full; nothing was written.
    #[error("the disk is full")]
    DiskFull,
    /// The shard has stopped. Whether the command is in the log is not known until it reopens.
    #[error("the shard has stopped: {0}")]
    Stopped(String),
}

/// Why requests were not taken. They come back untouched.
#[derive(Debug)]
pub enum SubmitError {
    /// As many entries are in flight as may be.
    Busy,
    /// The log has no room yet; try again after [`Event::Room`].
    NoRoom,
    /// The disk is full.
    DiskFull,
    /// The shard has stopped.
    Stopped(String),
}

/// What came of an event: to be sent out now, since it is durable.
#[derive(Debug)]
pub struct Published<T> {
    /// Answers, in log order.
    pub answers: Vec<(T, Answer)>,
    /// Views, effects, mail and usage, in log order.
    pub outputs: Vec<Output>,
    /// Entries applied.
    pub entries: usize,
}

impl<T> Default for Published<T> {
    fn default() -> Published<T> {
        Published { answers: Vec::new(), outputs: Vec::new(), entries: 0 }
    }
}

struct InFlight<T> {
    index: Index,
    entry: Entry,
    tickets: Vec<T>,
}

/// See the crate's page.
pub struct Shard<T> {
    place: Place,
    pub(crate) log: Box<dyn Log>,
    pub(crate) rows: Arc<RwLock<Rows>>,
    machines: Machines,
    ground: Ground,
    pub(crate) applied: Index,
    /// Bytes of log that no checkpoint has begun to cover.
    pub(crate) uncovered_bytes: u64,
    /// The time of the last entry stamped.
    at_ms: u64,
    in_flight: VecDeque<InFlight<T>>,
    stopped: Option<String>,
}

impl<T> Shard<T> {
    pub(crate) fn new(
        place: Place,
        log: Box<dyn Log>,
        rows: Arc<RwLock<Rows>>,
        machines: Machines,
        ground: Ground,
    ) -> Shard<T> {
        Shard {
            place,
            log,
            rows,
            machines,
            ground,
            applied: Index(0),
            uncovered_bytes: 0,
            at_ms: 0,
            in_flight: VecDeque::with_capacity(ENTRIES_IN_FLIGHT_MAX),
            stopped: None,
        }
    }

    /// As replay left it.
    pub(crate) fn at(mut self, applied: Index, uncovered_bytes: u64, at_ms: u64) -> Shard<T> {
        (self.applied, self.uncovered_bytes, self.at_ms) = (applied, uncovered_bytes, at_ms);
        self
    }

    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The rows, for readers on other threads.
    #[must_use]
    pub fn reader(&self) -> RowsReader {
        RowsReader::new(Arc::clone(&self.rows))
    }

    /// The last entry applied.
    #[must_use]
    pub fn applied(&self) -> Index {
        self.applied
    }

    /// Why the shard has stopped, if it has.
    #[must_use]
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Whether another entry may be appended now.
    #[must_use]
    pub fn can_append(&self) -> bool {
        self.stopped.is_none() && self.in_flight.len() < ENTRIES_IN_FLIGHT_MAX
    }

    /// Whether every entry appended has been applied.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// When an entry must be appended even without commands: a timer's deadline, or time to load
    /// more of them.
    #[must_use]
    pub fn wake_ms(&self) -> u64 {
        self.ground.timers.wake_ms()
    }

    /// Whether a timer is due that no entry in flight will fire.
    #[must_use]
    pub fn wants_pulse(&self, now_ms: u64) -> bool {
        let at_ms = now_ms.max(self.at_ms);
        if self.in_flight.is_empty() {
            return self.ground.timers.wake_ms() <= at_ms;
        }
        // Entries in flight fire as many as they may, and are applied before long.
        let taken = self.in_flight.len() * TIMERS_PER_ENTRY_MAX as usize;
        self.can_append() && self.ground.timers.are_due(at_ms, taken)
    }

    /// Loads timers ahead of time, a bounded step. True when there is more to load.
    pub fn preload_timers(&mut self, now_ms: u64) -> bool {
        let now_ms = now_ms.max(self.at_ms);
        if !self.ground.timers.wants_preload(now_ms) {
            return false;
        }
        self.ground.timers.preload(&self.rows.read(), now_ms)
    }

    /// Timers held in memory.
    #[must_use]
    pub fn timers_in_memory(&self) -> usize {
        self.ground.timers.in_memory()
    }

    /// *Stamp* and *append*: makes one entry of the requests and hands it to the log. With no
    /// requests it is a pulse, which only lets due timers fire.
    ///
    /// `now_ms` and `seed` are the only time and randomness that the entry will ever see.
    ///
    /// # Errors
    /// [`SubmitError`], with the requests, none of which was written.
    pub fn submit(
        &mut self,
        now_ms: u64,
        seed: [u8; 16],
        requests: Vec<Request<T>>,
    ) -> Result<Index, (SubmitError, Vec<Request<T>>)> {
        assert!(requests.len() <= ENTRY_COMMANDS_MAX, "the caller fills no entry further");
        if let Some(why) = &self.stopped {
            return Err((SubmitError::Stopped(why.clone()), requests));
        }
        if self.in_flight.len() >= ENTRIES_IN_FLIGHT_MAX {
            return Err((SubmitError::Busy, requests));
        }
        let at_ms = now_ms.max(self.at_ms);
        let taken = requests.into_iter().map(|r| (r.envelope, (r.ticket, r.weight)));
        let (commands, told): (Vec<Envelope>, Vec<(T, usize)>) = taken.unzip();
        let entry = Entry { at_ms, seed, timers_max: TIMERS_PER_ENTRY_MAX, commands };
        let payload = entry.encode();
        let payload_bytes = payload.len();
        assert!(payload_bytes <= ENTRY_BYTES_MAX, "the caller fills no entry further");
        match self.log.append(payload) {
            Ok(index) => {
                self.at_ms = at_ms;
                self.uncovered_bytes += payload_bytes as u64;
                let tickets = told.into_iter().map(|(ticket, _)| ticket).collect();
                self.in_flight.push_back(InFlight { index, entry, tickets });
                Ok(index)
            }
            Err(error) => {
                let commands = entry.commands.into_iter().zip(told);
                let request = |(envelope, (ticket, weight))| Request { envelope, ticket, weight };
                Err((self.append_failed(error), commands.map(request).collect()))
            }
        }
    }

    /// Has the log make durable what was submitted; its events say when it is.
    pub fn commit(&mut self) {
        self.log.commit();
    }

    fn append_failed(&mut self, error: AppendError) -> SubmitError {
        match error {
            AppendError::NoRoom => SubmitError::NoRoom,
            AppendError::DiskFull => SubmitError::DiskFull,
            AppendError::Lost(cause) => SubmitError::Stopped(cause.to_string()),
            AppendError::TooLarge { .. } => unreachable!("asserted by submit: {error}"),
        }
    }

    /// *Apply* and *publish*: takes what the log says and returns what may now be told.
    pub fn on_event(&mut self, event: &Event) -> Published<T> {
        let mut all = Published::default();
        self.on_event_telling(event, &mut |mut part| {
            all.answers.append(&mut part.answers);
            all.outputs.append(&mut part.outputs);
            all.entries += part.entries;
        });
        all
    }

    /// As [`Shard::on_event`], but what may be told is told while the rest is still being applied:
    /// whoever waits for an answer need not wait for all that lie in the same entry.
    pub fn on_event_telling(&mut self, event: &Event, tell: &mut dyn FnMut(Published<T>)) {
        if self.stopped.is_some() {
            return;
        }
        match event {
            Event::Durable(through) => self.apply_through(*through, tell),
            Event::Lost(cause) => {
                let mut published = Published::default();
                self.stop(cause.to_string(), &mut published);
                tell(published);
            }
            Event::Room => {}
        }
    }

    fn apply_through(&mut self, through: Index, tell: &mut dyn FnMut(Published<T>)) {
        while self.in_flight.front().is_some_and(|first| first.index <= through) {
            let InFlight { index, entry, tickets } =
                self.in_flight.pop_front().expect("it was looked at");
            assert!(index > self.applied, "entries are applied once, in order");
            let mut tickets = tickets.into_iter();
            let mut part = Published::default();
            let applied = self.apply(index, &entry, |outcome, outputs| {
                let ticket = tickets.next().expect("a ticket for each command");
                part.answers.push((ticket, Answer::Done(outcome)));
                part.outputs.append(outputs);
                if part.answers.len() == ANSWERS_AT_ONCE {
                    tell(std::mem::take(&mut part));
                }
            });
            match applied {
                Ok(()) => {
                    part.outputs.append(&mut self.ground.outputs);
                    part.entries = 1;
                    tell(part);
                }
                Err(unreadable) => {
                    // The edge encodes only what this binary decodes, so this is a bug; a stopped
                    // shard is better than one that disagrees with its log.
                    let refused = Refused::Stopped(unreadable.to_string());
                    part.answers.extend(tickets.map(|t| (t, Answer::Refused(refused.clone()))));
                    self.stop(unreadable.to_string(), &mut part);
                    tell(part);
                    return;
                }
            }
        }
    }

    fn apply(
        &mut self,
        index: Index,
        entry: &Entry,
        tell: impl FnMut(Outcome, &mut Vec<Output>),
    ) -> Result<(), Unreadable> {
        let mut rows = self.rows.write();
        Apply {
            rows: &mut rows,
            ground: &mut self.ground,
            machines: &mut self.machines,
            stamp: stamp_of(entry, index),
        }
        .entry(entry, tell)?;
        self.applied = index;
        Ok(())
    }

    /// Ends service: nothing in flight is answered but with a refusal.
    pub fn stop(&mut self, why: String, published: &mut Published<T>) {
        let refused = Refused::Stopped(why.clone());
        for InFlight { tickets, .. } in self.in_flight.drain(..) {
            let answers = tickets.into_iter().map(|t| (t, Answer::Refused(refused.clone())));
            published.answers.extend(answers);
        }
        self.stopped = Some(why);
    }

    /// Bytes of rows in memory that no checkpoint has begun to move.
    #[must_use]
    pub fn active_bytes(&self) -> usize {
        self.rows.read().active_bytes()
    }

    /// Bytes of log that no checkpoint has begun to cover, about.
    #[must_use]
    pub fn uncovered_bytes(&self) -> u64 {
        self.uncovered_bytes
    }

    /// Bytes of log on disk.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.log.disk_bytes()
    }

    /// A digest of every row: equal states have equal digests. Reads everything; for the
    /// simulator and for audits.
    #[must_use]
    pub fn state_digest(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        for (key, value) in self.rows.read().scan(&Scan::all()) {
            hasher.write_usize(key.len());
            hasher.write(&key);
            hasher.write_usize(value.len());
            hasher.write(&value);
        }
        hasher.finish()
    }
}
