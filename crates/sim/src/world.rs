//! The simulated world, step by step: first with faults, then healing.

mod clients;
mod heal;
mod outside;

use std::collections::BTreeMap;

use journal::disk::Faults;
use kernel::ShardId;
use kernel::machine::Place;

use crate::common::{Common, Ticket, Word, Words};
use crate::options::Options;
use crate::random::Random;
use crate::report::{Failure, Report, Trace};
use crate::seat::{Crash, Seat};
use crate::subject::Difference;
use clients::Call;
use outside::{Parcel, Task};

/// Some Tuesday in 2023.
const START_MS: u64 = 1_700_000_000_000;
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// How often what happens in a run: each run has its own weather.
#[derive(Clone, Copy, Debug)]
struct Weather {
    crash: u64,
    disk_fault: u64,
    disk_full: u64,
    clock_jump: u64,
    checkpoint: u64,
    /// How often the log gets on.
    log: u64,
    lost_letter: u64,
    duplicate: u64,
}

impl Weather {
    fn new(random: &mut Random) -> Weather {
        Weather {
            crash: random.pick(&[0, 2, 8, 25]),
            disk_fault: random.pick(&[0, 3, 10, 25]),
            disk_full: random.pick(&[0, 0, 5, 15]),
            clock_jump: random.pick(&[0, 5, 20]),
            checkpoint: random.pick(&[5, 40, 150]),
            log: random.pick(&[60, 200, 400]),
            lost_letter: random.pick(&[0, 100, 400]),
            duplicate: random.pick(&[0, 50, 200]),
        }
    }
}

/// See the module.
pub(crate) struct World {
    pub(crate) common: Common,
    weather: Weather,
    seats: Vec<Seat>,
    calls: Vec<Call>,
    tasks: BTreeMap<u64, Task>,
    task_next: u64,
    parcels: Vec<Parcel>,
    /// The last number that a receiver has acknowledged to the post, by sender and receiver.
    acknowledged: BTreeMap<(usize, usize), u64>,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> World {
        let mut random = Random::new(seed);
        let weather = Weather::new(&mut random);
        let shard_count = u16::try_from(random.between(1, 3)).expect("three at most");
        let mut common = Common {
            options: *options,
            random,
            trace: Trace::new(),
            report: Report { runs: 1, ..Report::default() },
            subjects: options.choice.subjects(seed),
            letters: BTreeMap::new(),
            archive: BTreeMap::new(),
            clock_ms: START_MS,
            clock_max_ms: START_MS,
            step: 0,
            faulty: true,
        };
        let places = (0..shard_count).map(|shard| Place { shard: ShardId(shard), shard_count });
        let seats = places.map(|place| Seat::new(place, &mut common)).collect();
        common.note(format!("{shard_count} shards, {weather:?}"));
        World {
            common,
            weather,
            seats,
            calls: Vec::new(),
            tasks: BTreeMap::new(),
            task_next: 0,
            parcels: Vec::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    /// Runs both phases.
    pub(crate) fn run(&mut self) -> Result<(), Difference> {
        for _ in 0..self.common.options.steps {
            self.common.step += 1;
            self.step()?;
        }
        self.heal()?;
        let report = &mut self.common.report;
        report.steps = self.common.step;
        report.archive_objects = self.common.archive.len() as u64;
        report.timers_fired = self.seats.iter().map(|seat| seat.naive.timers_fired).sum();
        report.letters = self.seats.iter().map(|seat| seat.naive.letters_received).sum();
        report.digest = self.common.trace.digest();
        Ok(())
    }

    pub(crate) fn failure(&self, seed: u64, what: String) -> Failure {
        Failure { seed, step: self.common.step, what, trace: self.common.trace.last() }
    }

    fn step(&mut self) -> Result<(), Difference> {
        let weather = self.weather;
        self.common.clock_ms += self.common.random.below(150);
        let at = self.common.random.place(self.seats.len());
        if self.common.random.chance(weather.crash) {
            return self.crash_some(at);
        }
        if self.common.random.chance(weather.disk_fault) {
            self.break_disk(at);
        }
        if self.common.random.chance(weather.disk_full) {
            self.fill_disk(at);
        }
        if self.common.random.chance(weather.clock_jump) {
            self.jump_clock();
        }
        if self.seats[at].live.as_ref().is_none_or(|live| live.lost) {
            return self.reopen(at);
        }
        self.make_calls();
        match self.common.random.below(10) {
            0..3 => {
                let words = self.seats[at].submit(&mut self.common);
                self.tell(at, words);
            }
            3 => self.post(at),
            4 => self.deliver(),
            5..7 => self.execute(at),
            7 if self.common.random.chance(30) => {
                self.seats[at].compare_replays(&mut self.common)?;
            }
            _ => {
                let now_ms = self.common.clock_ms;
                let live = self.seats[at].live.as_mut().expect("looked at above");
                live.shard.preload_timers(now_ms);
            }
        }
        if self.common.random.chance(weather.checkpoint) {
            self.checkpoint(at)?;
        }
        if self.common.random.chance(weather.log) {
            self.work_log(at);
        }
        if self.common.random.chance(500) {
            self.hear(at)?;
        }
        Ok(())
    }

    /// The log does some of its work: part of what is queued, all of it, or its upkeep.
    fn work_log(&mut self, at: usize) {
        let Some(live) = &self.seats[at].live else { return };
        match self.common.random.below(5) {
            0 => live.handle.complete(1),
            1 => live.handle.complete(2),
            2 => live.handle.upkeep(),
            _ => live.handle.step(),
        }
    }

    fn hear(&mut self, at: usize) -> Result<(), Difference> {
        while let Some(words) = self.seats[at].hear(&mut self.common)? {
            self.tell(at, words);
            if self.common.mishap(200) {
                break;
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, at: usize) -> Result<(), Difference> {
        if !self.seats[at].checkpoint(&mut self.common)? {
            let how = self.common.random.pick(&[Crash::Kill, Crash::Power]);
            self.crash(at, how);
        }
        Ok(())
    }

    fn crash_some(&mut self, at: usize) -> Result<(), Difference> {
        let how = self.common.random.pick(&[Crash::Kill, Crash::Power, Crash::Power]);
        self.common.report.fault(if how == Crash::Kill { "kill" } else { "power lost" });
        // Sometimes in the middle of what the log is doing.
        if how == Crash::Power
            && self.common.random.chance(500)
            && let Some(live) = &self.seats[at].live
        {
            let count = self.common.random.below(4);
            self.common.report.fault("power lost in a write or sync");
            self.seats[at]
                .disk
                .set_faults(Faults { power_lost_in: Some(count), ..Faults::default() });
            live.handle.step();
        }
        if self.common.random.chance(200) {
            for at in 0..self.seats.len() {
                self.crash(at, how);
            }
            return Ok(());
        }
        self.crash(at, how);
        Ok(())
    }

    fn crash(&mut self, at: usize, how: Crash) {
        let words = self.seats[at].crash(how, &mut self.common);
        // An executor is part of the process; it lives on only if the shard alone stopped.
        let survive = how == Crash::Stop && self.common.random.chance(500);
        if !survive {
            self.tasks.retain(|_, task| task.seat != at);
        }
        self.tell(at, words);
    }

    fn reopen(&mut self, at: usize) -> Result<(), Difference> {
        if self.seats[at].live.is_some() {
            let how = self.common.random.pick(&[Crash::Stop, Crash::Stop, Crash::Kill]);
            self.crash(at, how);
        }
        if self.common.mishap(700) {
            return Ok(());
        }
        if self.seats[at].open(&mut self.common)? && self.common.mishap(50) {
            self.common.report.fault("crash right after opening");
            let how = self.common.random.pick(&[Crash::Kill, Crash::Power]);
            self.crash(at, how);
        }
        Ok(())
    }

    fn break_disk(&mut self, at: usize) {
        let count = Some(self.common.random.below(6));
        let (kind, faults) = match self.common.random.below(4) {
            0 => ("write fails", Faults { write_in: count, ..Faults::default() }),
            1 => ("sync fails", Faults { sync_in: count, ..Faults::default() }),
            2 => ("power lost in a write or sync", {
                Faults { power_lost_in: count, ..Faults::default() }
            }),
            _ => ("short writes", {
                let bytes = 1 + self.common.random.place(600);
                Faults { short_write_bytes: Some(bytes), ..Faults::default() }
            }),
        };
        let seat = &mut self.seats[at];
        self.common.report.fault(kind);
        self.common.note(format!("{} {kind} in {count:?}", seat.place.shard));
        seat.disk.set_faults(faults);
        seat.disk_faulty = true;
    }

    fn fill_disk(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        seat.disk_full = !seat.disk_full;
        let free = if seat.disk_full { self.common.random.below(9000) } else { 1 << 40 };
        seat.disk.set_free_bytes(free);
        self.common.note(format!("{} has {free} bytes free", seat.place.shard));
        if seat.disk_full {
            self.common.report.fault("disk full");
        }
    }

    fn jump_clock(&mut self) {
        let random = &mut self.common.random;
        let clock_ms = self.common.clock_ms;
        let (kind, to_ms) = match random.below(10) {
            0..3 => ("clock back", clock_ms.saturating_sub(random.below(DAY_MS))),
            3 => ("clock back", clock_ms.saturating_sub(random.below(MINUTE_MS))),
            4..6 => ("clock forward", clock_ms + random.below(10 * MINUTE_MS)),
            6..8 => ("clock forward", clock_ms + random.below(2 * DAY_MS)),
            8 => ("clock forward", clock_ms + random.below(40 * DAY_MS)),
            _ => ("clock forward", clock_ms + random.below(700 * DAY_MS)),
        };
        self.common.clock_ms = to_ms;
        self.common.report.fault(kind);
        self.common.note(format!("{kind} to {to_ms}"));
    }

    /// Passes on what was answered.
    fn tell(&mut self, at: usize, words: Words) {
        for (ticket, word) in words {
            match ticket {
                Ticket::Call(call) => self.tell_client(call, word),
                Ticket::Report(task) => self.tell_executor(at, task, &word),
                Ticket::Letter { from, to } => self.tell_post(from, to, &word),
                Ticket::Collected => {
                    debug_assert!(word != Word::Done(shard::Outcome::IdempotencyConflict));
                }
            }
        }
    }
}
