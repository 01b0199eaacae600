//! What a run tells: a trace while it runs, figures when it ends well, a failure when not.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Lines of trace that a failure shows.
const TRACE_LINES: usize = 60;

/// What happened, line by line; only the last lines are kept, but all of them are digested.
#[derive(Debug)]
pub(crate) struct Trace {
    lines: VecDeque<String>,
    digest: u64,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        Trace { lines: VecDeque::new(), digest: 0xcbf2_9ce4_8422_2325 }
    }

    pub(crate) fn note(&mut self, line: String) {
        // FNV-1a: equal traces have equal digests, on every machine.
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.lines.len() == TRACE_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn last(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// The figures of one run, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Steps taken.
    pub steps: u64,
    /// Commands applied, those of mail and executors included.
    pub commands: u64,
    /// Entries applied.
    pub entries: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Entries that a shard did not take, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Crashes of a shard.
    pub crashes: u64,
    /// Openings of a shard that succeeded.
    pub opens: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Timers fired, those of the kernel included.
    pub timers_fired: u64,
    /// Letters received.
    pub letters: u64,
    /// Effects carried out, each attempt.
    pub effects: u64,
    /// Objects in the archive at the end.
    pub archive_objects: u64,
    /// Comparisons with a replay from zero or from a checkpoint.
    pub replays: u64,
    /// Of the trace; of many runs, of their digests.
    pub digest: u64,
}

impl Report {
    /// Counts a fault.
    pub(crate) fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// All faults.
    #[must_use]
    pub fn faults_count(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Adds the figures of another run.
    pub fn add(&mut self, other: &Report) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.commands += other.commands;
        self.entries += other.entries;
        self.crashes += other.crashes;
        self.opens += other.opens;
        self.checkpoints += other.checkpoints;
        self.timers_fired += other.timers_fired;
        self.letters += other.letters;
        self.effects += other.effects;
        self.archive_objects += other.archive_objects;
        self.replays += other.replays;
        // A sum does not depend on the order in which threads finish.
        self.digest = self.digest.wrapping_add(other.digest);
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (kind, count) in &other.refusals {
            *self.refusals.entry(kind).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} runs, {} steps, {} commands in {} entries",
            self.runs, self.steps, self.commands, self.entries
        )?;
        writeln!(
            f,
            "{} crashes, {} opens, {} checkpoints, {} timers fired, {} letters, {} effects, \
             {} archive objects, {} replays compared",
            self.crashes,
            self.opens,
            self.checkpoints,
            self.timers_fired,
            self.letters,
            self.effects,
            self.archive_objects,
            self.replays
        )?;
        write!(f, "entries refused:")?;
        for (kind, count) in &self.refusals {
            write!(f, " {kind} {count},")?;
        }
        write!(f, "\n{} faults:", self.faults_count())?;
        for (kind, count) in &self.faults {
            write!(f, " {kind} {count},")?;
        }
        write!(f, " trace {:016x}", self.digest)
    }
}

/// Something that must not be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Shows it again.
    pub seed: u64,
    /// When.
    pub step: u64,
    /// What differs: expected and actual.
    pub what: String,
    /// What led to it, the last lines.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(f, "seed {} failed at step {}: {}", self.seed, self.step, self.what)
    }
}

impl std::error::Error for Failure {}
