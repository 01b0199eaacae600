//! Every provider passes the suite.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use journal::conformance::{Provider, check_all};
use journal::disk::Faults;
use journal::{
    EventSink, FileLog, Log, MemoryLog, MemoryStore, OpenError, Options, RealDisk, SimDisk,
    SimHandle, SimLog,
};
use kernel::Epoch;
use tempfile::TempDir;

fn small() -> Options {
    Options { segment_bytes: 16384, reserve_bytes: 0, ..Options::default() }
}

struct Memory(MemoryStore);

impl Provider for Memory {
    fn open(&mut self, sink: EventSink) -> Result<Box<dyn Log>, OpenError> {
        Ok(Box::new(MemoryLog::open(&self.0, sink)?))
    }

    fn fences(&self) -> bool {
        true
    }

    fn land_stale(&mut self, epoch: Epoch, payload: Bytes) -> bool {
        self.0.land_stale(epoch, payload);
        true
    }
}

#[test]
fn memory_conforms() {
    check_all(|| Memory(MemoryStore::new()));
}

struct OnRealDisk(TempDir);

impl Provider for OnRealDisk {
    fn open(&mut self, sink: EventSink) -> Result<Box<dyn Log>, OpenError> {
        let dir = self.0.path().join("shard/0");
        Ok(Box::new(FileLog::open(Arc::new(RealDisk), &dir, &small(), sink)?))
    }
}

#[test]
fn file_on_a_real_disk_conforms() {
    check_all(|| OnRealDisk(TempDir::new().expect("a temporary folder")));
}

const DIR: &str = "/log";

/// The file log, upkeep's thread included, on a simulated disk that can fail.
struct Threaded {
    disk: SimDisk,
    crashes: u64,
}

impl Provider for Threaded {
    fn open(&mut self, sink: EventSink) -> Result<Box<dyn Log>, OpenError> {
        let disk = Arc::new(self.disk.clone());
        Ok(Box::new(FileLog::open(disk, Path::new(DIR), &small(), sink)?))
    }

    fn crash(&mut self, log: Box<dyn Log>) {
        // A log that is dropped commits: some of that reaches the disk, unsynced.
        let lost_in = Some(self.crashes % 7);
        self.disk.set_faults(Faults { power_lost_in: lost_in, ..Faults::default() });
        drop(log);
        self.crashes += 1;
        self.disk.crash(self.crashes);
    }

    fn fail_write(&mut self) -> bool {
        self.disk.set_faults(Faults { write_in: Some(0), ..Faults::default() });
        true
    }

    fn fail_sync(&mut self) -> bool {
        self.disk.set_faults(Faults { sync_in: Some(0), ..Faults::default() });
        true
    }

    fn fill_disk(&mut self, full: bool) -> bool {
        self.disk.set_free_bytes(if full { 0 } else { 1 << 30 });
        true
    }
}

#[test]
fn file_on_a_simulated_disk_conforms() {
    check_all(|| Threaded { disk: SimDisk::new(1), crashes: 0 });
}

struct Simulated {
    disk: SimDisk,
    handle: Option<SimHandle>,
    crashes: u64,
}

impl Provider for Simulated {
    fn open(&mut self, sink: EventSink) -> Result<Box<dyn Log>, OpenError> {
        let (log, handle) = SimLog::open(&self.disk, &PathBuf::from(DIR), &small(), sink)?;
        self.handle = Some(handle);
        Ok(Box::new(log))
    }

    fn work(&mut self) {
        if let Some(handle) = &self.handle {
            handle.step();
        }
    }

    fn crash(&mut self, log: Box<dyn Log>) {
        // Some of what is in flight reaches the disk, unsynced.
        let lost_in = Some(self.crashes % 7);
        self.disk.set_faults(Faults { power_lost_in: lost_in, ..Faults::default() });
        self.work();
        drop(log);
        self.crashes += 1;
        self.disk.crash(self.crashes);
    }

    fn fail_write(&mut self) -> bool {
        self.disk.set_faults(Faults { write_in: Some(0), ..Faults::default() });
        true
    }

    fn fail_sync(&mut self) -> bool {
        self.disk.set_faults(Faults { sync_in: Some(0), ..Faults::default() });
        true
    }

    fn fill_disk(&mut self, full: bool) -> bool {
        self.disk.set_free_bytes(if full { 0 } else { 1 << 30 });
        true
    }
}

#[test]
fn simulated_conforms() {
    check_all(|| Simulated { disk: SimDisk::new(2), handle: None, crashes: 0 });
}
