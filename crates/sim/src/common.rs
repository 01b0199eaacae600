//! What every part of the simulated world shares.

use bytes::Bytes;
use shard::{Machines, Outcome};

use crate::naive::{Letters, Models};
use crate::options::Options;
use crate::random::Random;
use crate::report::{Report, Trace};
use crate::subject::{Archive, Subject};

/// The world, but for its shards and those who talk to them.
pub(crate) struct Common {
    pub(crate) options: Options,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) report: Report,
    pub(crate) subjects: Vec<Box<dyn Subject>>,
    pub(crate) letters: Letters,
    pub(crate) archive: Archive,
    pub(crate) clock_ms: u64,
    /// The latest that the clock has ever shown.
    pub(crate) clock_max_ms: u64,
    pub(crate) step: u64,
    /// Whether anything may go wrong.
    pub(crate) faulty: bool,
}

impl Common {
    pub(crate) fn note(&mut self, line: impl Into<String>) {
        let line = format!("{:>6} {}", self.step, line.into());
        self.trace.note(line);
    }

    pub(crate) fn machines(&self) -> Machines {
        self.subjects.iter().fold(Machines::default(), |machines, subject| {
            machines.with((self.options.parts.machine)(subject.machine()))
        })
    }

    pub(crate) fn models(&self) -> Models {
        self.subjects.iter().map(|subject| (subject.id(), subject.model())).collect()
    }

    /// True so many times in a thousand, while things may go wrong.
    pub(crate) fn mishap(&mut self, per_mille: u64) -> bool {
        self.faulty && self.random.chance(per_mille)
    }
}

/// Whom an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// A client's call.
    Call(usize),
    /// An executor's report.
    Report(u64),
    /// A letter on its way between two seats.
    Letter { from: usize, to: usize },
    /// Word to a sender that its letters have arrived.
    Collected,
}

/// What the sender of a request hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It was applied.
    Done(Outcome),
    /// It was certainly not written.
    NotWritten,
    /// Nobody can say.
    Unknown,
}

impl Word {
    pub(crate) fn reply(&self) -> Option<&Bytes> {
        match self {
            Word::Done(Outcome::Reply(reply)) => Some(reply),
            _ => None,
        }
    }
}

pub(crate) type Words = Vec<(Ticket, Word)>;
