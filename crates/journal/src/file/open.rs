//! Opens a log: decides what it is, cuts it, takes a new epoch.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kernel::{Epoch, Index};

use super::Options;
use super::format::{
    ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, START_OFFSET, Start, put_entry,
};
use super::front::Front;
use super::recovery::{self, Piece, Survey, Tail, io_error};
use super::segment::{LOCK_NAME, Segment, Yard, scrap_name};
use super::shared::{Rooms, Shared};
use super::upkeep::SCRAPS_MAX;
use crate::disk::{Access, Disk, Lock, read_full, write_all};
use crate::log::{EventSink, Kind, OpenError};

/// Opens the log in `dir`, which is made if it is not there.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: &Options,
    sink: EventSink,
    threaded: bool,
) -> Result<Front, OpenError> {
    let lock = lock(&*disk, dir)?;
    let survey = recovery::survey(&*disk, dir, Access::ReadWrite, &mut |_| {})?;
    let mut yard = Yard {
        log_id: [0; 16],
        disk,
        dir: dir.to_owned(),
        segment_bytes: options.segment_bytes_checked(),
        reserve_bytes: options.reserve_bytes,
    };
    let at = dir.display();
    let mut scraps = collect_scraps(&yard, &survey).map_err(io_error(format!("tidy {at}")))?;
    yard.log_id = match survey.used.first() {
        Some(piece) => piece.identity.log_id,
        None => new_log_id(&*yard.disk).map_err(io_error("draw a log id".into()))?,
    };
    let Survey { used, tail, .. } = survey;
    let epoch = Epoch(tail.epoch.0 + 1);
    let mut segments = used_segments(used, &tail);
    let offset = write_barrier(&yard, &mut segments, &mut scraps, &tail, epoch)
        .map_err(io_error(format!("write the barrier in {at}")))?;
    let segment = segments.back().expect("the barrier is in it").clone();
    let rooms = Rooms {
        segments,
        spare: None,
        spare_wanted: true,
        full: false,
        waiting: false,
        hoping: false,
        retiring: VecDeque::new(),
        scraps,
        upkeep_runs: false,
        upkeep: None,
    };
    let shared = Shared::new(yard, lock, rooms, tail.next, sink, threaded);
    Ok(Front {
        shared: Arc::new(shared),
        epoch,
        next: tail.next.next(),
        segment,
        offset,
        entry_bytes_max: options.entry_bytes_max,
        queued_bytes_max: options.queued_bytes_max,
    })
}

fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn Lock>, OpenError> {
    disk.make_dir(dir).map_err(io_error(format!("make {}", dir.display())))?;
    let path = dir.join(LOCK_NAME);
    let lock = disk.lock(&path).map_err(io_error(format!("lock {}", path.display())))?;
    lock.ok_or_else(|| OpenError::InUse { path: dir.display().to_string() })
}

fn new_log_id(disk: &dyn Disk) -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&disk.random()?.to_le_bytes());
    id[8..].copy_from_slice(&disk.random()?.to_le_bytes());
    Ok(id)
}

/// Gathers the files that can be used again, and removes the others.
///
/// Prepared segments are among them: a crash may have left unacknowledged entries in one, which a
/// new salt makes void. The last one goes first, so that a crash here leaves no gap.
fn collect_scraps(yard: &Yard, survey: &Survey) -> io::Result<Vec<String>> {
    let mut names = survey.scraps.clone();
    for number in survey.unused.iter().rev() {
        let scrap = scrap_name(*number);
        yard.retire(*number, true)?;
        names.retain(|name| *name != scrap);
        names.push(scrap);
    }
    // The names seen here may be those of an owner whose sync failed. They must last before the
    // bytes behind them are written over.
    yard.disk.sync_dir(&yard.dir)?;
    for name in &survey.unfinished {
        yard.disk.remove(&yard.path(name))?;
    }
    let mut scraps = Vec::new();
    for name in names {
        let path = yard.path(&name);
        let len = yard.disk.open(&path, Access::Read)?.len()?;
        if len == yard.segment_bytes && scraps.len() < SCRAPS_MAX {
            scraps.push(name);
        } else {
            yard.disk.remove(&path)?;
        }
    }
    Ok(scraps)
}

fn used_segments(used: Vec<Piece>, tail: &Tail) -> VecDeque<Arc<Segment>> {
    let started = used.into_iter().map(|piece| {
        let first = piece.begins.map_or(tail.next, |(first, _)| first);
        Arc::new(Segment { file: piece.file, identity: piece.identity, first })
    });
    started.collect()
}

/// Writes the barrier of `epoch` where the log ends, durably, and says where it ends now.
fn write_barrier(
    yard: &Yard,
    segments: &mut VecDeque<Arc<Segment>>,
    scraps: &mut Vec<String>,
    tail: &Tail,
    epoch: Epoch,
) -> io::Result<u64> {
    if let Some(last) = segments.back() {
        rewrite_unproven(last, tail)?;
    }
    let room_needed = tail.offset + ENTRY_HEADER_BYTES as u64;
    let fits = |last: &Arc<Segment>| room_needed <= last.identity.segment_bytes;
    let mut offset = tail.offset;
    if !segments.back().is_some_and(fits) {
        add_segment(yard, segments, scraps, tail.next)?;
        offset = HEADER_BYTES;
    }
    let segment = segments.back().expect("there is one by now");
    let seed = segment.identity.seed();
    let at_ms = yard.disk.wall_ms();
    let mut bytes = Vec::new();
    let mut write_from = offset;
    if offset == HEADER_BYTES {
        write_from = START_OFFSET;
        bytes.extend_from_slice(&Start { first: tail.next, epoch, at_ms }.encode(seed));
    }
    let barrier = EntryHeader {
        payload_bytes: 0,
        index: tail.next,
        epoch,
        durable: Index(tail.next.0 - 1),
        at_ms,
        kind: Kind::Barrier,
    };
    put_entry(&barrier.seal(seed, &[]), &[], &mut bytes);
    write_all(&*segment.file, write_from, &bytes)?;
    segment.file.sync()?;
    Ok(offset + ENTRY_HEADER_BYTES as u64)
}

/// R13. What nothing proves durable is written again. After a sync that failed, the page cache
/// may show what the disk does not have, and a new sync alone would not write it.
///
/// Synced before the barrier is written, because the barrier proves all that is before it.
fn rewrite_unproven(segment: &Segment, tail: &Tail) -> io::Result<()> {
    let count = usize::try_from(tail.offset - tail.unproven_offset).expect("within a segment");
    if count == 0 {
        return Ok(());
    }
    let mut bytes = vec![0; count];
    if read_full(&*segment.file, tail.unproven_offset, &mut bytes)? < count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    write_all(&*segment.file, tail.unproven_offset, &bytes)?;
    segment.file.sync()
}

fn add_segment(
    yard: &Yard,
    segments: &mut VecDeque<Arc<Segment>>,
    scraps: &mut Vec<String>,
    first: Index,
) -> io::Result<()> {
    let number = segments.back().map_or(1, |last| last.identity.number + 1);
    let blank = yard.make(number, scraps.pop().as_deref(), &AtomicBool::new(false))?;
    segments.push_back(blank.start(first));
    Ok(())
}
