//! Fills a log as a shard does, without applying anything: the same entries, in the same file.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, bail};
use journal::{AppendError, Event, FileLog, Log, Options, RealDisk};
use kernel::limits::{ENTRIES_IN_FLIGHT_MAX, TIMERS_PER_ENTRY_MAX};
use kernel::{Entry, Envelope, Index};
use serde::{Deserialize, Serialize};

use crate::machines;
use crate::proc::{child_args, say, wall_ms};

/// Commands of an entry: what a few hundred clients make of it.
pub(crate) const BATCH: usize = 128;

/// A log being filled.
pub(crate) struct Filler {
    log: FileLog,
    events: Receiver<Event>,
    in_flight: VecDeque<Index>,
    /// Commands appended.
    pub(crate) commands: u64,
    /// Bytes of entries appended.
    pub(crate) bytes: u64,
}

impl Filler {
    pub(crate) fn open(dir: &Path) -> Result<Filler> {
        let (sender, events) = channel();
        let sink: journal::EventSink = Arc::new(move |event| {
            let _gone = sender.send(event);
        });
        let log = FileLog::open(Arc::new(RealDisk), dir, &Options::default(), sink)?;
        Ok(Filler { log, events, in_flight: VecDeque::new(), commands: 0, bytes: 0 })
    }

    /// Appends an entry, with as many in flight as a shard has.
    pub(crate) fn append(&mut self, commands: Vec<Envelope>) -> Result<()> {
        while self.in_flight.len() >= ENTRIES_IN_FLIGHT_MAX {
            self.wait()?;
        }
        self.commands += commands.len() as u64;
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).context("randomness")?;
        let at_ms = wall_ms();
        let entry = Entry { at_ms, seed, timers_max: TIMERS_PER_ENTRY_MAX, commands };
        let payload = entry.encode();
        self.bytes += payload.len() as u64;
        loop {
            match self.log.append(payload.clone()) {
                Ok(index) => {
                    self.in_flight.push_back(index);
                    return Ok(());
                }
                Err(AppendError::NoRoom) => self.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wait(&mut self) -> Result<()> {
        self.log.commit();
        match self.events.recv().context("the log has ended")? {
            Event::Durable(through) => {
                while self.in_flight.front().is_some_and(|index| *index <= through) {
                    self.in_flight.pop_front();
                }
            }
            Event::Room => {}
            Event::Lost(cause) => bail!("the log is lost: {cause}"),
        }
        Ok(())
    }

    /// Waits until everything is durable.
    pub(crate) fn settle(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.wait()?;
        }
        Ok(())
    }
}

/// For the child that fills a log until it is killed.
#[derive(Serialize, Deserialize)]
pub(crate) struct FillArgs {
    /// The log's folder.
    pub(crate) log: PathBuf,
    /// Entries to be written before it says so, in bytes.
    pub(crate) bytes: u64,
    /// Of a command, about.
    pub(crate) command_bytes: usize,
    /// How many users search.
    pub(crate) users: u64,
}

/// What the child says when the log is full.
#[derive(Serialize, Deserialize)]
pub(crate) struct Filled {
    /// How many are durable.
    pub(crate) commands: u64,
    /// Bytes of their entries.
    pub(crate) bytes: u64,
}

/// Fills the log, says so, and goes on until it is killed.
pub(crate) fn child(args: &str) -> Result<()> {
    let args: FillArgs = child_args(args)?;
    let mut filler = Filler::open(&args.log)?;
    let mut number = 0;
    let mut said = false;
    while filler.bytes < args.bytes * 5 / 4 {
        let commands: Vec<Envelope> = (number..)
            .take(BATCH)
            .map(|number| machines::search(args.command_bytes, args.users, number))
            .collect();
        number += BATCH as u64;
        filler.append(commands)?;
        if filler.bytes >= args.bytes && !said {
            said = true;
            filler.settle()?;
            say(&Filled { commands: filler.commands, bytes: filler.bytes })?;
        }
    }
    bail!("nobody has killed this process");
}
