//! What the owner's thread and the upkeep have in common.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use kernel::Index;
use parking_lot::Mutex;

use super::format::first_entry_bytes;
use super::segment::{Blank, Segment, Yard};
use crate::disk::{Lock, write_all};
use crate::log::{Event, EventSink, LostCause};

/// Buffers that are kept for the next batch are at most this large.
const BUFFER_KEPT_BYTES: usize = 16 << 20;

pub(crate) struct Shared {
    pub(crate) yard: Yard,
    /// Held for as long as anyone may still write.
    pub(crate) _lock: Box<dyn Lock>,
    pub(crate) queue: Mutex<Queue>,
    /// Bytes in the queue.
    pub(crate) queued_bytes: AtomicUsize,
    /// An append was refused because the queue was full.
    pub(crate) refused: AtomicBool,
    /// The ownership has ended; the queue holds the cause.
    pub(crate) lost: AtomicBool,
    pub(crate) rooms: Mutex<Rooms>,
    /// The last durable index.
    pub(crate) durable: AtomicU64,
    /// The owner is going; unfinished upkeep is dropped.
    pub(crate) closing: AtomicBool,
    events: Mutex<Events>,
    /// Upkeep has a thread of its own; else someone calls it.
    pub(crate) threaded: bool,
}

/// What has been appended and not yet been taken by a commit.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) runs: Vec<Run>,
    pub(crate) lost: Option<LostCause>,
    pub(crate) buffers: Vec<Vec<u8>>,
}

/// Entries that lie next to each other in a segment.
pub(crate) struct Run {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    /// How many of the bytes stand before the first entry: the start record, or none.
    pub(crate) prefix_bytes: usize,
    pub(crate) last: Index,
}

/// Segments: those in use, the next one, the used-up ones.
pub(crate) struct Rooms {
    /// Oldest first; the last one is being written.
    pub(crate) segments: VecDeque<Arc<Segment>>,
    pub(crate) spare: Option<Blank>,
    /// No further attempt is made until somebody appends.
    pub(crate) spare_wanted: bool,
    /// The last attempt to make a spare found the disk full.
    pub(crate) full: bool,
    /// The owner waits for [`Event::Room`], and gets it however the attempt ends.
    pub(crate) waiting: bool,
    /// The owner was told that the disk is full, and hears when it no longer is.
    pub(crate) hoping: bool,
    /// Trimmed, still to be retired, oldest first.
    pub(crate) retiring: VecDeque<Arc<Segment>>,
    /// Names of files that can be used again.
    pub(crate) scraps: Vec<String>,
    pub(crate) upkeep_runs: bool,
    pub(crate) upkeep: Option<JoinHandle<()>>,
}

struct Events {
    sink: EventSink,
    ended: bool,
}

impl Shared {
    pub(crate) fn new(
        yard: Yard,
        lock: Box<dyn Lock>,
        rooms: Rooms,
        durable: Index,
        sink: EventSink,
        threaded: bool,
    ) -> Shared {
        Shared {
            yard,
            _lock: lock,
            queue: Mutex::new(Queue::default()),
            queued_bytes: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            rooms: Mutex::new(rooms),
            durable: AtomicU64::new(durable.0),
            closing: AtomicBool::new(false),
            events: Mutex::new(Events { sink, ended: false }),
            threaded,
        }
    }

    pub(crate) fn durable(&self) -> Index {
        Index(self.durable.load(Ordering::Acquire))
    }

    /// Tells the owner. Nothing is told after [`Event::Lost`], whichever thread tells it.
    pub(crate) fn tell(&self, event: Event) {
        let mut events = self.events.lock();
        if events.ended {
            return;
        }
        events.ended = matches!(event, Event::Lost(_));
        (events.sink)(event);
    }

    /// Says that the log is durable up to `last`, or says nothing if the ownership has ended: what
    /// the owner was not told is not replayed to it either.
    fn tell_durable(&self, last: Index) {
        let events = self.events.lock();
        if events.ended {
            return;
        }
        assert!(last > self.durable(), "durable never goes back");
        self.durable.store(last.0, Ordering::Release);
        (events.sink)(Event::Durable(last));
    }

    /// Ends the ownership. What is still queued is dropped, and never written.
    pub(crate) fn poison(&self, doing: &str, error: &io::Error) {
        let cause = LostCause::Poisoned(format!("cannot {doing}: {error}"));
        {
            let mut queue = self.queue.lock();
            if queue.lost.is_some() {
                return;
            }
            queue.lost = Some(cause.clone());
            queue.runs.clear();
            self.lost.store(true, Ordering::Release);
        }
        self.tell(Event::Lost(cause));
    }

    /// Takes the oldest `count` entries out of the queue, or all if there are fewer; writes them,
    /// makes them durable and says so.
    ///
    /// A segment is synced before the next one is written to: so anything in a later segment
    /// proves that all of the earlier one was durable, which recovery relies on.
    pub(crate) fn commit(&self, count: usize) {
        let runs = self.take(&mut self.queue.lock(), count);
        let Some(last) = runs.last() else { return };
        if let Err((doing, error)) = write_runs(&runs) {
            self.poison(doing, &error);
            return;
        }
        self.tell_durable(last.last);
        if self.refused.swap(false, Ordering::AcqRel) {
            self.tell(Event::Room);
        }
        self.queue.lock().give_back(runs);
    }

    fn take(&self, queue: &mut Queue, count: usize) -> Vec<Run> {
        let taken = if count == usize::MAX {
            std::mem::take(&mut queue.runs)
        } else {
            queue.take_some(count)
        };
        let bytes = taken.iter().map(|run| run.bytes.len()).sum();
        self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
        taken
    }
}

fn write_runs(runs: &[Run]) -> Result<(), (&'static str, io::Error)> {
    for (position, run) in runs.iter().enumerate() {
        let file = &run.segment.file;
        write_all(&**file, run.offset, &run.bytes).map_err(|e| ("write to the log", e))?;
        let follower = runs.get(position + 1);
        if follower.is_none_or(|next| !Arc::ptr_eq(&next.segment, &run.segment)) {
            file.sync().map_err(|e| ("sync the log", e))?;
        }
    }
    Ok(())
}

impl Queue {
    fn take_some(&mut self, count: usize) -> Vec<Run> {
        let mut taken = Vec::new();
        let mut left = count;
        while left > 0 && !self.runs.is_empty() {
            let run = &mut self.runs[0];
            let mut cut = run.prefix_bytes;
            let mut entries = 0;
            while cut < run.bytes.len() && entries < left {
                cut += first_entry_bytes(&run.bytes[cut..]);
                entries += 1;
            }
            left -= entries;
            if cut == run.bytes.len() {
                taken.push(self.runs.remove(0));
                continue;
            }
            let rest = run.bytes.split_off(cut);
            let rest_count = count_entries(&rest);
            let head = Run {
                segment: run.segment.clone(),
                offset: run.offset,
                bytes: std::mem::replace(&mut run.bytes, rest),
                prefix_bytes: run.prefix_bytes,
                last: Index(run.last.0 - rest_count),
            };
            run.offset += head.bytes.len() as u64;
            run.prefix_bytes = 0;
            taken.push(head);
        }
        taken
    }

    /// Gives buffers back for the next appends.
    fn give_back(&mut self, runs: Vec<Run>) {
        for run in runs {
            if self.buffers.len() < 2 && run.bytes.capacity() <= BUFFER_KEPT_BYTES {
                let mut bytes = run.bytes;
                bytes.clear();
                self.buffers.push(bytes);
            }
        }
    }
}

fn count_entries(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while !bytes.is_empty() {
        bytes = &bytes[first_entry_bytes(bytes)..];
        count += 1;
    }
    count
}
