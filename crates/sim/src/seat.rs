//! A shard in the simulated world: its disk and its base, which survive, the shard itself, which
//! does not, and the truth it is compared with.

mod open;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use journal::{Event, Kind, Record, SimDisk, SimHandle};
use kernel::base::MemoryBase;
use kernel::machine::{KERNEL, Output, Place, Usage};
use kernel::rows::RowsReader;
use kernel::{Base, BaseError, Entry, Epoch, Index, TenantId};
use parking_lot::Mutex;
use shard::{Answer, CheckpointJob, Outcome, Published, Request, Shard, SubmitError};

use crate::base::{Ingest, SimBase};
use crate::common::{Common, Ticket, Word, Words};
use crate::naive::{Expected, Models, Naive, Seen};
use crate::subject::{Difference, Sight, Views, same, short};
use crate::tap::{PaperLog, Taken};

/// Requests that wait at a shard, at most.
const INBOX_MAX: usize = 64;

/// See the module.
pub(crate) struct Seat {
    pub(crate) place: Place,
    pub(crate) disk: SimDisk,
    base: SimBase,
    log_options: journal::Options,
    pub(crate) live: Option<Live>,
    pub(crate) inbox: VecDeque<Request<Ticket>>,
    /// Every record that is known to be in the log, whether trimmed or not. The first has index 1.
    history: Vec<Record>,
    /// What the last owner's log took beyond `history`, by index.
    taken: BTreeMap<Index, Bytes>,
    /// What the log has said is durable.
    durable: Index,
    pub(crate) naive: Naive,
    models: Models,
    views: Views,
    usage: BTreeMap<TenantId, Usage>,
    /// The disk was told to fail.
    pub(crate) disk_faulty: bool,
    pub(crate) disk_full: bool,
}

/// What a crash takes away.
pub(crate) struct Live {
    pub(crate) shard: Shard<Ticket>,
    pub(crate) handle: SimHandle,
    epoch: Epoch,
    events: Arc<Mutex<VecDeque<Event>>>,
    taken: Taken,
    in_flight: VecDeque<(Index, Vec<Ticket>)>,
    checkpoint: Option<Checkpoint>,
    /// The log is lost: only opening anew helps.
    pub(crate) lost: bool,
}

enum Checkpoint {
    Begun(CheckpointJob),
    Ran(CheckpointJob),
}

/// What is left of a shard after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process was killed: the disk has everything that was written.
    Kill,
    /// The power went: what was not synced is lost, kept or torn.
    Power,
    /// Neither: the shard stopped and is opened again.
    Stop,
}

impl Seat {
    pub(crate) fn new(place: Place, common: &mut Common) -> Seat {
        let random = &mut common.random;
        let log_options = journal::Options {
            segment_bytes: random.pick(&[8192, 12_288, 16_384, 65_536]),
            queued_bytes_max: random.pick(&[1500, 8000, 1 << 20]),
            reserve_bytes: random.pick(&[0, 4096]),
            ..journal::Options::default()
        };
        Seat {
            place,
            disk: SimDisk::new(random.next()),
            base: SimBase::default(),
            log_options,
            live: None,
            inbox: VecDeque::new(),
            history: Vec::new(),
            taken: BTreeMap::new(),
            durable: Index(0),
            naive: Naive::new(place),
            models: common.models(),
            views: Views::new(),
            usage: BTreeMap::new(),
            disk_faulty: false,
            disk_full: false,
        }
    }

    /// A request arrives. It comes back when there is no place for it.
    pub(crate) fn take_in(&mut self, request: Request<Ticket>) -> Option<Request<Ticket>> {
        if self.live.is_none() || self.inbox.len() >= INBOX_MAX {
            return Some(request);
        }
        self.inbox.push_back(request);
        None
    }

    /// Rows, for those who read them from outside.
    pub(crate) fn reader(&self) -> Option<RowsReader> {
        self.live.as_ref().map(|live| live.shard.reader())
    }

    fn next_batch(&mut self, common: &mut Common) -> Vec<Request<Ticket>> {
        let max = 1 + common.random.place(8);
        // What fits into the smallest segment.
        let mut room = 2500;
        let mut batch = Vec::new();
        while batch.len() < max
            && let Some(first) = self.inbox.front()
            && (first.envelope.encoded_len() <= room || batch.is_empty())
        {
            room = room.saturating_sub(first.envelope.encoded_len());
            batch.push(self.inbox.pop_front().expect("it was looked at"));
        }
        batch
    }

    /// Stamp and append: some of what waits, or a pulse when nothing does and a timer is due.
    pub(crate) fn submit(&mut self, common: &mut Common) -> Words {
        common.clock_max_ms = common.clock_max_ms.max(common.clock_ms);
        let now_ms = (common.options.parts.clock)(common.clock_ms);
        let Some(live) = &self.live else { return Words::new() };
        let pulse = self.inbox.is_empty();
        if live.lost || pulse && !live.shard.wants_pulse(now_ms) {
            return Words::new();
        }
        let batch = self.next_batch(common);
        let tickets: Vec<Ticket> = batch.iter().map(|request| request.ticket).collect();
        let seed = common.random.bytes16();
        let live = self.live.as_mut().expect("looked at above");
        match live.shard.submit(now_ms, seed, batch) {
            Ok(index) => {
                let what = if pulse { "pulse" } else { "entry" };
                let count = tickets.len();
                live.in_flight.push_back((index, tickets));
                common.note(format!("{} submits {what} {index} of {count}", self.place.shard));
                Words::new()
            }
            Err((error, requests)) => {
                common.note(format!("{} refuses: {error:?}", self.place.shard));
                let kind = match error {
                    SubmitError::Busy => "busy",
                    SubmitError::NoRoom => "no room",
                    SubmitError::DiskFull => "disk full",
                    SubmitError::Stopped(_) => "stopped",
                };
                *common.report.refusals.entry(kind).or_default() += 1;
                live.lost |= kind == "stopped";
                self.not_taken(requests, common)
            }
        }
    }

    /// Some wait on, in their order; some clients are sent away.
    fn not_taken(&mut self, requests: Vec<Request<Ticket>>, common: &mut Common) -> Words {
        if common.random.chance(500) {
            return requests.into_iter().map(|r| (r.ticket, Word::NotWritten)).collect();
        }
        for request in requests.into_iter().rev() {
            self.inbox.push_front(request);
        }
        Words::new()
    }

    /// Takes one event of the log's, if there is one.
    pub(crate) fn hear(&mut self, common: &mut Common) -> Result<Option<Words>, Difference> {
        let Some(live) = &mut self.live else { return Ok(None) };
        let Some(event) = live.events.lock().pop_front() else { return Ok(None) };
        common.note(format!("{} hears {event:?}", self.place.shard));
        let mut words = Words::new();
        if let Event::Durable(through) = event {
            while let Some((index, _)) = live_mut(&mut self.live).in_flight.front().cloned()
                && index <= through
            {
                // One entry at a time, so that the state is compared after each.
                let published = live_mut(&mut self.live).shard.on_event(&Event::Durable(index));
                words.extend(self.applied(index, published, common)?);
            }
            return Ok(Some(words));
        }
        let published = live.shard.on_event(&event);
        let told: Vec<Ticket> = published.answers.iter().map(|(ticket, _)| *ticket).collect();
        if matches!(event, Event::Lost(_)) {
            live.lost = true;
            let waiting = live.in_flight.drain(..).flat_map(|(_, tickets)| tickets);
            same("tickets refused", &waiting.collect(), &told)?;
        }
        for (ticket, answer) in published.answers {
            match answer {
                Answer::Refused(_) => words.push((ticket, Word::Unknown)),
                Answer::Done(outcome) => {
                    return Err(format!("{event:?} answered with {outcome:?}"));
                }
            }
        }
        Ok(Some(words))
    }

    /// Compares what an entry did with what it should have done.
    fn applied(
        &mut self,
        index: Index,
        published: Published<Ticket>,
        common: &mut Common,
    ) -> Result<Words, Difference> {
        let live = live_mut(&mut self.live);
        let (_, tickets) = live.in_flight.pop_front().expect("it was looked at");
        same("entries applied", &1, &published.entries)?;
        let taken = live.taken.lock().iter().find(|(at, _)| *at == index).cloned();
        let payload = taken.expect("the shard appended it").1;
        let epoch = live.epoch;
        let rows = live.shard.reader();
        let record = Record { index, epoch, kind: Kind::Data, payload };
        let (told, outcomes) = outcomes_of(published.answers)?;
        same("tickets answered", &tickets, &told)?;
        self.learn(record, Seen { rows: &rows, outcomes: &outcomes }, common)?;
        let words = told.into_iter().zip(outcomes.into_iter().map(Word::Done)).collect();
        self.publish(published.outputs);
        let full = index.0.is_multiple_of(16);
        self.check(full, common)?;
        Ok(words)
    }

    /// An entry is in the log: the truth moves on, and is what was seen of it.
    fn learn(
        &mut self,
        record: Record,
        seen: Seen<'_>,
        common: &mut Common,
    ) -> Result<(), Difference> {
        let index = record.index;
        same("index", &Index(self.history.len() as u64 + 1), &index)?;
        let entry = Entry::decode(record.payload.clone()).map_err(|e| e.to_string())?;
        if entry.at_ms > common.clock_max_ms {
            let clock_ms = common.clock_max_ms;
            return Err(format!("an entry of {} when it was {clock_ms}", entry.at_ms));
        }
        let letters = &mut common.letters;
        let expected = self.naive.entry(index, &entry, seen, &mut self.models, letters)?;
        for (expected, actual) in expected.iter().zip(seen.outcomes) {
            self.same_outcome(expected, actual)?;
        }
        common.report.commands += entry.commands.len() as u64;
        common.report.entries += 1;
        self.history.push(record);
        Ok(())
    }

    /// Whether something is left that should have been done by now.
    pub(crate) fn unfinished(&self, common: &Common) -> Option<String> {
        self.naive.unfinished(common.clock_ms, &self.models, &common.letters)
    }

    fn same_outcome(&mut self, expected: &Expected, actual: &Outcome) -> Result<(), Difference> {
        match (expected, actual) {
            (Expected::Conflict, Outcome::IdempotencyConflict) => Ok(()),
            (Expected::Again(before), Outcome::Reply(now)) => same("reply again", before, now),
            (Expected::Reply { machine, reply, key }, Outcome::Reply(actual)) => {
                // The same request twice in one entry.
                if let Some(before) = key.and_then(|key| self.naive.answer(key)) {
                    return same("reply again", &before, actual);
                }
                match self.models.get_mut(machine) {
                    Some(model) => model.same_reply(reply, actual)?,
                    None if *machine == KERNEL => same("mail's reply", reply, actual)?,
                    None => return Err(format!("no model of machine {machine}")),
                }
                if let Some(key) = key {
                    self.naive.answered(*key, actual);
                }
                Ok(())
            }
            _ => Err(format!("expected {}, actual {}", short(expected), short(actual))),
        }
    }

    fn publish(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::View { machine, key, value } => {
                    self.views.insert((machine, key), value);
                }
                Output::Usage { tenant, usage } => {
                    self.usage.insert(tenant, usage);
                }
                Output::Effect(_) | Output::Mail(_) => {}
            }
        }
    }

    /// Compares the whole state, or what was touched last, with the models.
    pub(crate) fn check(&mut self, full: bool, common: &Common) -> Result<(), Difference> {
        self.compare(full, false, common)
    }

    /// Compares the whole state, and that nothing is left of what was to go.
    pub(crate) fn check_healed(&mut self, common: &Common) -> Result<(), Difference> {
        self.compare(true, true, common)
    }

    fn compare(&mut self, full: bool, healed: bool, common: &Common) -> Result<(), Difference> {
        let Some(live) = &self.live else { return Ok(()) };
        let rows = live.shard.reader();
        let sight = Sight {
            index: live.shard.applied(),
            rows: &rows,
            views: &self.views,
            usage: &self.usage,
            archive: &common.archive,
            full,
        };
        for model in self.models.values_mut() {
            model.check(&sight)?;
            if healed {
                model.check_healed(&sight)?;
            }
        }
        self.naive.check(&sight, &self.models, &common.letters)
    }

    /// Replays everything from zero, and from the last checkpoint: both give this very state.
    pub(crate) fn compare_replays(&self, common: &mut Common) -> Result<(), Difference> {
        let Some(live) = &self.live else { return Ok(()) };
        same("applied", &Index(self.history.len() as u64), &live.shard.applied())?;
        let digest = live.shard.state_digest();
        let bases: [(&str, Arc<dyn Base>); 2] = [
            ("replay from zero", Arc::new(MemoryBase::new())),
            ("replay from the checkpoint", self.base.snapshot()),
        ];
        for (what, base) in bases {
            let log = Box::new(PaperLog(self.history.clone()));
            let machines = common.machines();
            // A few rows at a time go to the store on the way.
            let opened = Shard::<()>::open(self.place, log, base, machines, 5_000, &mut |_| {});
            let opened = opened.map_err(|error| format!("{what}: {error}"))?;
            same(what, &digest, &opened.shard.state_digest())?;
            common.report.replays += 1;
        }
        Ok(())
    }

    /// One step of a checkpoint: begin, run, finish. False when the store failed.
    pub(crate) fn checkpoint(&mut self, common: &mut Common) -> Result<bool, Difference> {
        let Some(live) = &mut self.live else { return Ok(true) };
        let shard = self.place.shard;
        match live.checkpoint.take() {
            None => {
                live.checkpoint = live.shard.begin_checkpoint().map(Checkpoint::Begun);
            }
            Some(Checkpoint::Begun(job)) => {
                let fate = if common.mishap(200) {
                    common.random.pick(&[Ingest::Full, Ingest::FailedBefore, Ingest::FailedAfter])
                } else {
                    Ingest::Done
                };
                self.base.set_next(fate);
                let through = job.through();
                common.note(format!("{shard} runs a checkpoint of {through}: {fate:?}"));
                match job.run(&|| {}) {
                    Ok(()) => live.checkpoint = Some(Checkpoint::Ran(job)),
                    Err(BaseError::Full { .. }) => {
                        common.report.fault("store full");
                        live.checkpoint = Some(Checkpoint::Begun(job));
                    }
                    Err(BaseError::Failed { .. }) => {
                        common.report.fault("store failed");
                        return Ok(false);
                    }
                }
                self.base.set_next(Ingest::Done);
            }
            Some(Checkpoint::Ran(job)) => {
                common.note(format!("{shard} finishes a checkpoint of {}", job.through()));
                let freed = live.shard.finish_checkpoint(job);
                freed.map_err(|error| format!("trimming: {error}"))?;
                common.report.checkpoints += 1;
                self.check(true, common)?;
            }
        }
        Ok(true)
    }

    /// The shard is gone. Those who wait for an answer get none.
    pub(crate) fn crash(&mut self, how: Crash, common: &mut Common) -> Words {
        let shard = self.place.shard;
        common.note(format!("{shard} crashes: {how:?}"));
        common.report.crashes += 1;
        let seed = common.random.next();
        match how {
            Crash::Power => self.disk.crash(seed),
            Crash::Stop if !self.disk_faulty => {}
            Crash::Kill | Crash::Stop => self.disk.restart(),
        }
        self.disk_faulty = false;
        let mut words: Words =
            self.inbox.drain(..).map(|request| (request.ticket, Word::Unknown)).collect();
        if let Some(live) = self.live.take() {
            for (_, tickets) in live.in_flight {
                words.extend(tickets.into_iter().map(|ticket| (ticket, Word::Unknown)));
            }
            for event in live.events.lock().iter() {
                if let Event::Durable(through) = event {
                    self.durable = self.durable.max(*through);
                }
            }
            self.durable = self.durable.max(live.shard.applied());
            let known = Index(self.history.len() as u64);
            let taken = live.taken.lock();
            self.taken = taken.iter().filter(|(index, _)| *index > known).cloned().collect();
        }
        words
    }
}

/// Who was told, and what, of an entry that is durable.
fn outcomes_of(answers: Vec<(Ticket, Answer)>) -> Result<(Vec<Ticket>, Vec<Outcome>), Difference> {
    let mut told = (Vec::new(), Vec::new());
    for (ticket, answer) in answers {
        let Answer::Done(outcome) = answer else {
            return Err(format!("a durable entry was answered with {answer:?}"));
        };
        told.0.push(ticket);
        told.1.push(outcome);
    }
    Ok(told)
}

fn live_mut(live: &mut Option<Live>) -> &mut Live {
    live.as_mut().expect("the caller has looked")
}
