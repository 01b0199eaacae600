//! A simulated log and what must be in it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use journal::conformance::Heard;
use journal::disk::Faults;
use journal::{
    AppendError, Event, Kind, Log, OpenError, Options, Record, SimDisk, SimHandle, SimLog,
};
use kernel::{Epoch, Index};

pub(crate) fn dir() -> PathBuf {
    PathBuf::from("/log")
}

pub(crate) fn segment(number: u64) -> PathBuf {
    dir().join(format!("{number:020}.log"))
}

pub(crate) fn small() -> Options {
    Options { segment_bytes: 8192, reserve_bytes: 0, ..Options::default() }
}

pub(crate) fn replay(log: &dyn Log) -> Vec<Record> {
    let mut records = Vec::new();
    let read = log.replay(log.first_index(), &mut |record| {
        records.push(record);
        true
    });
    read.expect("an opened log can be read");
    records
}

/// A log on a simulated disk, and what must be in it.
pub(crate) struct Rig {
    pub(crate) disk: SimDisk,
    pub(crate) open: Option<(SimLog, SimHandle, Heard)>,
    /// Acknowledged, or seen by an owner that opened the log after.
    pub(crate) sure: BTreeMap<Index, Bytes>,
    pub(crate) in_flight: BTreeMap<Index, Bytes>,
    pub(crate) epoch: Epoch,
    pub(crate) trimmed: Index,
}

impl Rig {
    pub(crate) fn new(seed: u64) -> Rig {
        Rig {
            disk: SimDisk::new(seed),
            open: None,
            sure: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            epoch: Epoch(0),
            trimmed: Index(0),
        }
    }

    pub(crate) fn log(&mut self) -> &mut SimLog {
        &mut self.open.as_mut().expect("the log is open").0
    }

    pub(crate) fn handle(&self) -> &SimHandle {
        &self.open.as_ref().expect("the log is open").1
    }

    pub(crate) fn heard(&self) -> &Heard {
        &self.open.as_ref().expect("the log is open").2
    }

    /// Opens the log and checks what is in it.
    pub(crate) fn try_open(&mut self) -> Result<(), OpenError> {
        assert!(self.open.is_none());
        let heard = Heard::new();
        let (log, handle) = SimLog::open(&self.disk, &dir(), &small(), heard.sink())?;
        self.check(&log);
        self.open = Some((log, handle, heard));
        Ok(())
    }

    pub(crate) fn reopen(&mut self) {
        match self.try_open() {
            // Each opening takes a barrier; there is room for some of them on a full disk.
            Err(OpenError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::StorageFull =>
            {
                self.disk.set_free_bytes(1 << 30);
                self.try_open().expect("there is room now");
            }
            other => other.expect("no crash makes a log unreadable"),
        }
    }

    fn check(&mut self, log: &SimLog) {
        assert!(log.epoch() > self.epoch, "epochs grow");
        assert!(log.first_index() <= self.trimmed.max(Index(1)), "trimmed too much");
        let records = replay(log);
        let last = records.last().expect("a barrier");
        assert_eq!((last.kind, last.epoch), (Kind::Barrier, log.epoch()));
        assert_eq!(last.index.next(), log.next_index());
        for (position, record) in records.iter().enumerate() {
            assert_eq!(record.index.0, log.first_index().0 + position as u64, "no gaps");
            assert!(position == 0 || record.epoch >= records[position - 1].epoch);
        }
        let read: BTreeMap<Index, Bytes> = records
            .into_iter()
            .filter(|record| record.kind == Kind::Data)
            .map(|record| (record.index, record.payload))
            .collect();
        for (index, payload) in self.sure.range(log.first_index()..) {
            assert_eq!(read.get(index), Some(payload), "entry {index} was acknowledged");
        }
        let mut missing = false;
        for (index, payload) in &self.in_flight {
            match read.get(index) {
                None => missing = true,
                Some(kept) => assert!(kept == payload && !missing, "entry {index} out of order"),
            }
        }
        let known = |index| self.sure.contains_key(index) || self.in_flight.contains_key(index);
        assert!(read.keys().all(known), "an entry that nobody appended");
        // What was trimmed stays: a crash may bring it back.
        self.sure.extend(read);
        self.in_flight.clear();
        self.epoch = log.epoch();
    }

    /// Appends if there is room, making some first.
    pub(crate) fn append(&mut self, payload: Bytes) {
        for _ in 0..2 {
            match self.log().append(payload.clone()) {
                Ok(index) => {
                    self.in_flight.insert(index, payload);
                    return;
                }
                Err(AppendError::NoRoom | AppendError::DiskFull) => self.handle().upkeep(),
                Err(AppendError::Lost(_)) => return,
                Err(e @ AppendError::TooLarge { .. }) => panic!("{e}"),
            }
        }
    }

    pub(crate) fn complete(&mut self, count: usize) {
        self.handle().complete(count);
        self.note_durable();
    }

    pub(crate) fn note_durable(&mut self) {
        let durable = self.heard().durable();
        let rest = self.in_flight.split_off(&durable.next());
        self.sure.append(&mut self.in_flight);
        self.in_flight = rest;
    }

    pub(crate) fn trim(&mut self, before: Index) {
        self.trimmed = self.trimmed.max(before);
        self.log().trim(before).expect("the log can be trimmed");
    }

    /// Commits under the given faults; true if the log was lost.
    pub(crate) fn step_with(&mut self, faults: Faults) -> bool {
        self.disk.set_faults(faults);
        self.handle().step();
        self.note_durable();
        matches!(self.heard().all().last(), Some(Event::Lost(_)))
    }

    /// The machine loses power.
    pub(crate) fn crash(&mut self, seed: u64) {
        self.open = None;
        self.disk.crash(seed);
    }

    /// The process is killed.
    pub(crate) fn kill(&mut self) {
        self.open = None;
        self.disk.restart();
    }
}

pub(crate) fn bytes_of(disk: &SimDisk, path: &Path) -> Vec<u8> {
    disk.get(path).expect("the file is there")
}
