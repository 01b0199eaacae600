//! That the simulator can fail: each test puts in one part that is broken, and wants it found.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use journal::{AppendError, Event, EventSink, Log, LogError, Record};
use kernel::base::{BaseIter, MemoryBase};
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{
    Base, BaseError, Entry, Epoch, Index, Layer, Machine, MachineId, Rows, Turn, Unreadable,
};
use sim::base::SimBase;
use sim::{Choice, Options, Parts, run};

/// Seeds within which a broken part must be found.
const SEEDS: u64 = 60;

/// Some seed must fail, and say so in one of these words.
fn check_found(choice: Choice, parts: Parts, words: &[&str]) {
    let options = Options { choice, steps: 600, parts };
    let failure = (1..=SEEDS).find_map(|seed| run(seed, &options).err());
    let failure = failure.expect("no seed has found it");
    let found = words.iter().any(|word| failure.what.contains(word));
    assert!(found, "found for another reason: {failure}");
}

/// A log with something wrong.
struct BrokenLog {
    log: Box<dyn Log>,
    sink: EventSink,
    fault: LogFault,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LogFault {
    AcksBeforeSync,
    TrimsTooFar,
    LosesACommand,
    HidesTheLast,
}

impl Log for BrokenLog {
    fn epoch(&self) -> Epoch {
        self.log.epoch()
    }

    fn next_index(&self) -> Index {
        self.log.next_index()
    }

    fn first_index(&self) -> Index {
        self.log.first_index()
    }

    fn append(&mut self, payload: Bytes) -> Result<Index, AppendError> {
        let mut payload = payload;
        if self.fault == LogFault::LosesACommand {
            let mut entry = Entry::decode(payload).expect("an entry");
            if entry.commands.len() > 3 {
                entry.commands.pop();
            }
            payload = entry.encode();
        }
        let index = self.log.append(payload)?;
        if self.fault == LogFault::AcksBeforeSync {
            (self.sink)(Event::Durable(index));
        }
        Ok(index)
    }

    fn commit(&mut self) {
        self.log.commit();
    }

    fn replay(&self, from: Index, visit: &mut dyn FnMut(Record) -> bool) -> Result<(), LogError> {
        let end = Index(self.log.next_index().0 - 1);
        let hides = self.fault == LogFault::HidesTheLast && end.0 > 20;
        self.log.replay(from, &mut |record| {
            if hides && record.index.0 + 1 == end.0 { true } else { visit(record) }
        })
    }

    fn trim(&mut self, before: Index) -> Result<(), LogError> {
        let more = if self.fault == LogFault::TrimsTooFar { 1000 } else { 0 };
        self.log.trim(Index(before.0 + more))
    }

    fn disk_bytes(&self) -> u64 {
        self.log.disk_bytes()
    }
}

#[test]
fn a_log_that_acknowledges_before_the_sync_is_found() {
    let log = |log, sink| -> Box<dyn Log> {
        Box::new(BrokenLog { log, sink, fault: LogFault::AcksBeforeSync })
    };
    let parts = Parts { log, ..Parts::default() };
    check_found(Choice::Recents, parts, &["said to be durable", "record that is known"]);
}

#[test]
fn a_log_that_trims_what_no_checkpoint_has_is_found() {
    let log = |log, sink| -> Box<dyn Log> {
        Box::new(BrokenLog { log, sink, fault: LogFault::TrimsTooFar })
    };
    let parts = Parts { log, ..Parts::default() };
    check_found(Choice::Probe, parts, &["the log begins at", "index"]);
}

#[test]
fn a_log_that_loses_a_command_is_found() {
    let log = |log, sink| -> Box<dyn Log> {
        Box::new(BrokenLog { log, sink, fault: LogFault::LosesACommand })
    };
    let parts = Parts { log, ..Parts::default() };
    check_found(Choice::Tenants, parts, &["expected"]);
}

#[test]
fn a_log_that_hides_an_entry_from_replay_is_found() {
    let log = |log, sink| -> Box<dyn Log> {
        Box::new(BrokenLog { log, sink, fault: LogFault::HidesTheLast })
    };
    let parts = Parts { log, ..Parts::default() };
    check_found(Choice::All, parts, &["expected"]);
}

/// A base that writes half of a checkpoint before it takes it.
struct HalfBase(SimBase);

impl Base for HalfBase {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        self.0.get(key)
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        self.0.range(from, to, reverse)
    }

    fn snapshot(&self) -> Arc<dyn Base> {
        self.0.snapshot()
    }

    fn applied(&self) -> Index {
        self.0.applied()
    }

    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        let whole = self.0.ingest(layer, through, pace);
        if whole.is_err() && through > self.0.applied() {
            let mut rows = Rows::new(Arc::new(MemoryBase::new()));
            for (key, slot) in layer.iter().take(layer.len() / 2) {
                match slot.value() {
                    Some(value) => rows.put(key, value.clone()),
                    None => rows.delete(key),
                }
            }
            self.0.ingest(&rows.freeze(), self.0.applied(), pace)?;
        }
        whole
    }

    fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes()
    }
}

#[test]
fn a_checkpoint_that_is_half_there_is_found() {
    let base = |base| -> Arc<dyn Base> { Arc::new(HalfBase(base)) };
    let parts = Parts { base, ..Parts::default() };
    check_found(Choice::Probe, parts, &["expected", "panicked"]);
}

/// A machine with something wrong.
struct BrokenMachine {
    machine: Box<dyn Machine>,
    fault: MachineFault,
    /// What a machine must not have: something that is not in rows.
    applied: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MachineFault {
    FiresTwice,
    FoldsNothing,
    RemembersOutsideRows,
}

impl Machine for BrokenMachine {
    fn id(&self) -> MachineId {
        self.machine.id()
    }

    fn name(&self) -> &'static str {
        self.machine.name()
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        self.applied += 1;
        let folds_nothing = self.fault == MachineFault::FoldsNothing;
        if folds_nothing && let recents::Command::Add(mut add) = recents::Command::decode(command)?
        {
            add.folded =
                add.query.bytes().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte));
            return self.machine.apply(turn, &recents::Command::Add(add).encode());
        }
        if self.fault == MachineFault::RemembersOutsideRows && self.applied.is_multiple_of(40) {
            let key = turn.key(b'?');
            turn.put(key, Bytes::copy_from_slice(&self.applied.to_be_bytes()));
        }
        self.machine.apply(turn, command)
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        self.machine.fire(turn, timer);
        if self.fault == MachineFault::FiresTwice && timer.id.deadline_ms.is_multiple_of(7) {
            self.machine.fire(turn, timer);
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        self.machine.receive(turn, letter)
    }
}

#[test]
fn a_timer_that_fires_twice_is_found() {
    let machine = |machine| -> Box<dyn Machine> {
        Box::new(BrokenMachine { machine, fault: MachineFault::FiresTwice, applied: 0 })
    };
    let parts = Parts { machine, ..Parts::default() };
    check_found(Choice::Probe, parts, &["timers fired"]);
}

#[test]
fn a_list_that_holds_a_query_twice_is_found() {
    let machine = |machine| -> Box<dyn Machine> {
        Box::new(BrokenMachine { machine, fault: MachineFault::FoldsNothing, applied: 0 })
    };
    let parts = Parts { machine, ..Parts::default() };
    check_found(Choice::Recents, parts, &["list: expected"]);
}

#[test]
fn a_machine_that_remembers_something_outside_rows_is_found() {
    let machine = |machine| -> Box<dyn Machine> {
        Box::new(BrokenMachine { machine, fault: MachineFault::RemembersOutsideRows, applied: 0 })
    };
    let parts = Parts { machine, ..Parts::default() };
    check_found(Choice::Tenants, parts, &["replay from"]);
}

#[test]
fn a_post_that_numbers_letters_anew_is_found() {
    let letter_number = |_, acknowledged| acknowledged + 1;
    let parts = Parts { letter_number, ..Parts::default() };
    check_found(Choice::Probe, parts, &["the next letter"]);
}

#[test]
fn a_clock_that_runs_ahead_is_found() {
    let clock = |now_ms| now_ms + 1000;
    let parts = Parts { clock, ..Parts::default() };
    check_found(Choice::Recents, parts, &["when it was"]);
}
