//! The owner's side: gives out indexes and places, queues bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kernel::{Epoch, Index};

use super::format::{
    BARRIER_ROOM_BYTES, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, START_BYTES, START_OFFSET,
    Start, entry_bytes, put_entry,
};
use super::reader::{Chain, Found, Reader};
use super::segment::{Segment, segment_name};
use super::shared::{Run, Shared};
use super::upkeep;
use crate::log::{AppendError, Kind, LogError, Record};

pub(crate) struct Front {
    pub(crate) shared: Arc<Shared>,
    pub(crate) epoch: Epoch,
    pub(crate) next: Index,
    /// Where the next entry goes.
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) entry_bytes_max: usize,
    pub(crate) queued_bytes_max: usize,
}

impl Front {
    /// The largest payload that an entry may have.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        let room = self.shared.yard.segment_bytes - HEADER_BYTES - BARRIER_ROOM_BYTES;
        let room = usize::try_from(room).unwrap_or(usize::MAX) - ENTRY_HEADER_BYTES;
        room.min(self.entry_bytes_max).min(u32::MAX as usize)
    }

    pub(crate) fn append(&mut self, payload: &Bytes) -> Result<Index, AppendError> {
        let limit_bytes = self.payload_bytes_max();
        if payload.len() > limit_bytes {
            return Err(AppendError::TooLarge { bytes: payload.len(), limit_bytes });
        }
        self.check_queue()?;
        let need = entry_bytes(payload.len()) as u64;
        let end = self.segment.identity.segment_bytes - BARRIER_ROOM_BYTES;
        let start = if self.offset + need > end { Some(self.next_segment()?) } else { None };
        let index = self.next;
        let header = EntryHeader {
            payload_bytes: u32::try_from(payload.len()).expect("checked against the limit"),
            index,
            epoch: self.epoch,
            durable: self.shared.durable(),
            at_ms: self.shared.yard.disk.wall_ms(),
            kind: Kind::Data,
        };
        self.enqueue(&header, payload, start);
        self.offset += need;
        self.next = index.next();
        Ok(index)
    }

    fn check_queue(&self) -> Result<(), AppendError> {
        let shared = &self.shared;
        if shared.lost.load(Ordering::Acquire) {
            let cause = shared.queue.lock().lost.clone();
            return Err(AppendError::Lost(cause.expect("set before the flag")));
        }
        if shared.queued_bytes.load(Ordering::Acquire) < self.queued_bytes_max {
            return Ok(());
        }
        shared.refused.store(true, Ordering::Release);
        Err(AppendError::NoRoom)
    }

    /// Goes on to the spare segment, and returns its start record. Nothing has changed on error.
    fn next_segment(&mut self) -> Result<Start, AppendError> {
        let outcome = {
            let mut rooms = self.shared.rooms.lock();
            // Also for the segment after this one.
            rooms.spare_wanted = true;
            match rooms.spare.take() {
                Some(blank) => {
                    let segment = blank.start(self.next);
                    rooms.segments.push_back(segment.clone());
                    Ok(segment)
                }
                None if rooms.full => {
                    rooms.hoping = true;
                    Err(AppendError::DiskFull)
                }
                None => {
                    rooms.waiting = true;
                    Err(AppendError::NoRoom)
                }
            }
        };
        upkeep::kick(&self.shared);
        self.segment = outcome?;
        self.offset = HEADER_BYTES;
        let at_ms = self.shared.yard.disk.wall_ms();
        Ok(Start { first: self.next, epoch: self.epoch, at_ms })
    }

    fn enqueue(&self, header: &EntryHeader, payload: &[u8], start: Option<Start>) {
        let seed = self.segment.identity.seed();
        let sealed = header.seal(seed, payload);
        let mut queue = self.shared.queue.lock();
        if queue.lost.is_some() {
            // It happened just now: the entry counts as one that was in flight.
            return;
        }
        let mut added_bytes = 0;
        if queue.runs.is_empty() || start.is_some() {
            let mut bytes = queue.buffers.pop().unwrap_or_default();
            bytes.extend(start.iter().flat_map(|start| start.encode(seed)));
            added_bytes += bytes.len();
            queue.runs.push(Run {
                segment: self.segment.clone(),
                offset: if start.is_some() { START_OFFSET } else { self.offset },
                prefix_bytes: if start.is_some() { START_BYTES } else { 0 },
                bytes,
                last: header.index,
            });
        }
        let run = queue.runs.last_mut().expect("pushed above");
        let before = run.bytes.len();
        put_entry(&sealed, payload, &mut run.bytes);
        run.last = header.index;
        added_bytes += run.bytes.len() - before;
        self.shared.queued_bytes.fetch_add(added_bytes, Ordering::AcqRel);
    }

    pub(crate) fn first_index(&self) -> Index {
        let rooms = self.shared.rooms.lock();
        rooms.segments.front().expect("a log has a segment").first
    }

    pub(crate) fn replay(
        &self,
        from: Index,
        visit: &mut dyn FnMut(Record) -> bool,
    ) -> Result<(), LogError> {
        let durable = self.shared.durable();
        let segments: Vec<_> = self.shared.rooms.lock().segments.iter().cloned().collect();
        let first = segments.first().expect("a log has a segment").first;
        if from < first {
            return Err(LogError::Trimmed { first });
        }
        for (position, segment) in segments.iter().enumerate() {
            let last = segments.get(position + 1).map_or(durable, |next| Index(next.first.0 - 1));
            let last = last.min(durable);
            if last < from {
                continue;
            }
            if segment.first > durable || !self.replay_segment(segment, from, last, visit)? {
                break;
            }
        }
        Ok(())
    }

    /// Passes on the entries of a segment up to `last`; false when told to stop.
    fn replay_segment(
        &self,
        segment: &Segment,
        from: Index,
        last: Index,
        visit: &mut dyn FnMut(Record) -> bool,
    ) -> Result<bool, LogError> {
        let path = self.shared.yard.path(&segment_name(segment.identity.number));
        let end = segment.identity.segment_bytes;
        let mut reader = Reader::new(segment.file.clone(), segment.identity.seed(), end);
        let mut chain = Chain { next: segment.first, epoch: Epoch(0) };
        let mut offset = HEADER_BYTES;
        while chain.next <= last {
            let found = reader.at(offset).map_err(|source| LogError::Io {
                doing: format!("read {}", path.display()),
                source,
            })?;
            let corrupt = |what: &str| LogError::Corrupt {
                file: path.display().to_string(),
                offset,
                what: what.to_owned(),
            };
            let (header, payload) = match found {
                Found::Entry { header, payload } => (header, payload),
                Found::Bad(what) => return Err(corrupt(what)),
                Found::Full => return Err(corrupt("entries are missing at its end")),
            };
            if offset == HEADER_BYTES {
                // The barrier of this epoch may be in an earlier segment.
                chain.epoch = header.epoch;
            }
            chain.take(&header).map_err(corrupt)?;
            offset += header.entry_bytes() as u64;
            let EntryHeader { index, epoch, kind, .. } = header;
            if index >= from && !visit(Record { index, epoch, kind, payload }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets go of the segments before the one that holds `before`.
    pub(crate) fn trim(&self, before: Index) {
        let durable = self.shared.durable();
        {
            let mut rooms = self.shared.rooms.lock();
            // The segment that becomes the oldest must have a durable entry: without one a crash
            // would leave nothing that tells where the log had been.
            while let Some(second) = rooms.segments.get(1)
                && second.first <= before.min(durable)
            {
                let oldest = rooms.segments.pop_front().expect("there is a second");
                rooms.retiring.push_back(oldest);
            }
        }
        upkeep::kick(&self.shared);
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        let rooms = self.shared.rooms.lock();
        let held = rooms.segments.iter().chain(&rooms.retiring);
        let held: u64 = held.map(|segment| segment.identity.segment_bytes).sum();
        let ready = rooms.scraps.len() as u64 + u64::from(rooms.spare.is_some());
        held + ready * self.shared.yard.segment_bytes
    }
}
