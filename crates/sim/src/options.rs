//! What to simulate, and with which parts.

use std::str::FromStr;
use std::sync::Arc;

use journal::{EventSink, Log};
use kernel::{Base, Machine};

use crate::base::SimBase;
use crate::models::probe::ProbeSubject;
use crate::models::queue::QueueSubject;
use crate::models::recents::RecentsSubject;
use crate::models::streams::StreamsSubject;
use crate::models::tenants::TenantsSubject;
use crate::subject::Subject;

/// Which machines are under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Recent searches.
    Recents,
    /// The simulator's own machine; see [`crate::probe`].
    Probe,
    /// Tenants and keys.
    Tenants,
    /// Queues.
    Queue,
    /// Streams.
    Streams,
    /// By the seed: one of them, or several in the same shards.
    #[default]
    All,
}

/// A machine's name that the simulator does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMachine(pub String);

impl std::fmt::Display for UnknownMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no machine is called {}: recents, probe, tenants, queue, streams or all", self.0)
    }
}

impl std::error::Error for UnknownMachine {}

impl FromStr for Choice {
    type Err = UnknownMachine;

    fn from_str(name: &str) -> Result<Choice, UnknownMachine> {
        match name {
            "recents" => Ok(Choice::Recents),
            "probe" => Ok(Choice::Probe),
            "tenants" => Ok(Choice::Tenants),
            "queue" => Ok(Choice::Queue),
            "streams" => Ok(Choice::Streams),
            "all" => Ok(Choice::All),
            other => Err(UnknownMachine(other.to_owned())),
        }
    }
}

impl Choice {
    /// The machines of a run.
    pub(crate) fn subjects(self, seed: u64) -> Vec<Box<dyn Subject>> {
        let recents = || -> Box<dyn Subject> { Box::new(RecentsSubject::default()) };
        let probe = || -> Box<dyn Subject> { Box::new(ProbeSubject::default()) };
        let tenants = || -> Box<dyn Subject> { Box::new(TenantsSubject::default()) };
        let queue = || -> Box<dyn Subject> { Box::new(QueueSubject::default()) };
        let streams = || -> Box<dyn Subject> { Box::new(StreamsSubject::default()) };
        match (self, seed % 7) {
            (Choice::Recents, _) | (Choice::All, 0) => vec![recents()],
            (Choice::Probe, _) | (Choice::All, 1) => vec![probe()],
            (Choice::Tenants, _) | (Choice::All, 2) => vec![tenants()],
            (Choice::Queue, _) | (Choice::All, 3) => vec![queue()],
            (Choice::Streams, _) | (Choice::All, 4) => vec![streams()],
            (Choice::All, 5) => vec![recents(), probe(), tenants()],
            // Without the probe, which may set so many timers that those of others come late: a
            // model that keeps time does not know that.
            (Choice::All, _) => vec![recents(), tenants(), queue(), streams()],
        }
    }
}

/// How long, and what.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which machines.
    pub choice: Choice,
    /// Steps with faults, before everything heals.
    pub steps: u64,
    /// The parts, to be replaced by broken ones in tests of the simulator itself.
    pub parts: Parts,
}

impl Default for Options {
    fn default() -> Options {
        Options { choice: Choice::All, steps: 1500, parts: Parts::default() }
    }
}

/// What stands between the shard and the simulated world. The default changes nothing; a test
/// that the simulator can fail puts a broken part in its place.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Between the shard and its log, at each opening. Events go to the sink.
    pub log: fn(Box<dyn Log>, EventSink) -> Box<dyn Log>,
    /// Between the shard and its base, at each opening.
    pub base: fn(SimBase) -> Arc<dyn Base>,
    /// Around each machine.
    pub machine: fn(Box<dyn Machine>) -> Box<dyn Machine>,
    /// The number under which a letter is delivered, given its own and the last acknowledged.
    pub letter_number: fn(u64, u64) -> u64,
    /// The time that a shard is told, given the clock's.
    pub clock: fn(u64) -> u64,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts {
            log: |log, _| log,
            base: |base| Arc::new(base),
            machine: |machine| machine,
            letter_number: |number, _| number,
            clock: |now_ms| now_ms,
        }
    }
}
