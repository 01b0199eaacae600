//! How fast the log commits, how much of that is its own overhead, and how fast it is read back.
//!
//! `cargo run --release -p journal --example commit_rate -- <folder> [seconds]`
//!
//! Printed as "in calls" is the share of the run that commits spend in write and sync: what is missing
//! to 1 is the log's own overhead. It does not show whether those calls are slower than they would be
//! in a bare loop, for instance because the next segment is filled with zeros meanwhile. The log is
//! trimmed as it goes, so that segments are used again.

#![allow(clippy::print_stdout, reason = "it reports to a person")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::disk::{Access, Lock};
use journal::{AppendError, Disk, DiskFile, Event, FileLog, Log, Options, RealDisk};
use kernel::Index;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("the folder to write in");
    let seconds = arguments.next().map_or(3, |text| text.parse().expect("a number of seconds"));
    let folder = Path::new(&folder);
    for (payload_bytes, in_flight) in [(200, 1), (200, 64), (200, 4096), (16384, 1), (16384, 64)] {
        let dir = folder.join("written");
        run_log(&dir, payload_bytes, in_flight, Duration::from_secs(seconds));
        std::fs::remove_dir_all(&dir).expect("the log can be removed");
    }
    for payload_bytes in [50, 200, 16384] {
        let dir = folder.join("read");
        fill(&dir, payload_bytes);
        read_back(&dir, payload_bytes);
        std::fs::remove_dir_all(&dir).expect("the log can be removed");
    }
}

fn open(dir: &Path, disk: Arc<dyn Disk>) -> (FileLog, Receiver<Event>) {
    let (sender, receiver) = channel();
    let sink = Arc::new(move |event| {
        // The receiver is gone only at the end.
        let _ = sender.send(event);
    });
    let log = FileLog::open(disk, dir, &Options::default(), sink);
    (log.expect("the log opens"), receiver)
}

/// Keeps `in_flight` entries in flight for so long.
fn run_log(dir: &Path, payload_bytes: usize, in_flight: u64, time: Duration) {
    let spent = Arc::new(AtomicU64::new(0));
    let (mut log, events) = open(dir, Arc::new(Timed(spent.clone())));
    let payload = Bytes::from(vec![0x5a; payload_bytes]);
    let first = log.next_index();
    let mut durable = Index(first.0 - 1);
    let mut syncs = 0u64;
    // Opening has written the first segment.
    spent.store(0, Ordering::Relaxed);
    let began = Instant::now();
    loop {
        let running = began.elapsed() < time;
        let mut no_room = false;
        while running && !no_room && log.next_index().0 - 1 - durable.0 < in_flight {
            match log.append(payload.clone()) {
                Ok(_) => {}
                Err(AppendError::NoRoom) => no_room = true,
                Err(e) => panic!("{e}"),
            }
        }
        if !running && durable.next() == log.next_index() {
            break;
        }
        log.commit();
        match events.recv().expect("the log is open") {
            Event::Durable(last) => {
                durable = last;
                syncs += 1;
                if syncs.is_multiple_of(64) {
                    log.trim(durable).expect("the log can be trimmed");
                }
            }
            Event::Room => {}
            Event::Lost(cause) => panic!("{cause}"),
        }
    }
    let took = began.elapsed().as_secs_f64();
    let entries = (log.next_index().0 - first.0) as f64;
    println!(
        "{payload_bytes:>6} B, {in_flight:>4} in flight: {:>8.0} entries/s, {:>5.0} syncs/s, \
         {:>6.1} MB/s, {:.3} in calls",
        entries / took,
        syncs as f64 / took,
        entries * payload_bytes as f64 / took / 1e6,
        spent.load(Ordering::Relaxed) as f64 / 1e9 / took
    );
}

/// A quarter of a gigabyte of entries.
fn fill(dir: &Path, payload_bytes: usize) {
    let (mut log, events) = open(dir, Arc::new(RealDisk));
    let payload = Bytes::from(vec![0x5a; payload_bytes]);
    let mut left = (256 << 20) / (payload_bytes + 48);
    while left > 0 {
        match log.append(payload.clone()) {
            Ok(_) => left -= 1,
            Err(AppendError::NoRoom) => {
                log.commit();
                while events.recv().expect("the log is open") != Event::Room {}
            }
            Err(e) => panic!("{e}"),
        }
    }
}

fn read_back(dir: &Path, payload_bytes: usize) {
    let began = Instant::now();
    let (log, _events) = open(dir, Arc::new(RealDisk));
    let opened = began.elapsed();
    let mut count = 0u64;
    let mut bytes = 0u64;
    let began = Instant::now();
    log.replay(log.first_index(), &mut |record| {
        count += 1;
        bytes += 48 + record.payload.len() as u64;
        true
    })
    .expect("the log can be read");
    let took = began.elapsed().as_secs_f64();
    println!(
        "{payload_bytes:>6} B: replay {:.2} million entries/s, {:.2} GB/s ({count} entries); \
         opened in {opened:?}",
        count as f64 / took / 1e6,
        bytes as f64 / took / 1e9
    );
}

/// The real disk, with a count of the nanoseconds that the owner's thread spends in it.
struct Timed(Arc<AtomicU64>);

struct TimedFile(Arc<dyn DiskFile>, Arc<AtomicU64>);

impl TimedFile {
    fn timed<T>(&self, call: impl FnOnce(&dyn DiskFile) -> T) -> T {
        let began = Instant::now();
        let outcome = call(&*self.0);
        if std::thread::current().name() == Some("main") {
            let nanos = u64::try_from(began.elapsed().as_nanos()).expect("a short time");
            self.1.fetch_add(nanos, Ordering::Relaxed);
        }
        outcome
    }
}

impl DiskFile for TimedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.timed(|file| file.write_at(offset, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.timed(|file| file.sync())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, into)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

impl Disk for Timed {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(TimedFile(RealDisk.create(path)?, self.0.clone())))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(TimedFile(RealDisk.open(path, access)?, self.0.clone())))
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        RealDisk.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        RealDisk.is_locked(path)
    }

    fn random(&self) -> io::Result<u64> {
        RealDisk.random()
    }

    fn wall_ms(&self) -> u64 {
        RealDisk.wall_ms()
    }
}
