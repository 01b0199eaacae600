//! Work that no append waits for: making the next segment, retiring trimmed ones.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::segment::Segment;
use super::shared::Shared;
use crate::disk::is_full;
use crate::log::Event;

/// Files kept to be used again. Enough for the segments filled while one checkpoint is made.
pub(crate) const SCRAPS_MAX: usize = 4;

enum Job {
    Retire(Arc<Segment>, bool),
    MakeSpare(u64, Option<String>),
}

/// Sees to it that upkeep runs, on a thread that ends when there is nothing left to do.
pub(crate) fn kick(shared: &Arc<Shared>) {
    if !shared.threaded || shared.closing.load(Ordering::Acquire) {
        return;
    }
    let mut rooms = shared.rooms.lock();
    if rooms.upkeep_runs {
        return;
    }
    let theirs = shared.clone();
    let thread = std::thread::Builder::new().name("log-upkeep".into());
    match thread.spawn(move || run(&theirs)) {
        Ok(handle) => {
            rooms.upkeep_runs = true;
            rooms.upkeep = Some(handle);
        }
        // Nothing is lost: the next append that needs room tries again.
        Err(_) => rooms.upkeep_runs = false,
    }
}

/// Does everything there is to do.
pub(crate) fn run(shared: &Shared) {
    while let Some(job) = next_job(shared) {
        let done = match job {
            Job::Retire(segment, keep) => retire(shared, &segment, keep),
            Job::MakeSpare(number, scrap) => make_spare(shared, number, scrap),
        };
        if let Err(error) = done {
            if error.kind() != io::ErrorKind::Interrupted {
                shared.poison("keep the log's segments", &error);
            }
            shared.rooms.lock().upkeep_runs = false;
            return;
        }
    }
}

fn next_job(shared: &Shared) -> Option<Job> {
    let mut rooms = shared.rooms.lock();
    if shared.closing.load(Ordering::Acquire) || shared.queue.lock().lost.is_some() {
        rooms.upkeep_runs = false;
        return None;
    }
    // First what makes room.
    if let Some(segment) = rooms.retiring.pop_front() {
        let same_size = segment.identity.segment_bytes == shared.yard.segment_bytes;
        return Some(Job::Retire(segment, same_size && rooms.scraps.len() < SCRAPS_MAX));
    }
    if rooms.spare.is_none() && rooms.spare_wanted {
        rooms.spare_wanted = false;
        let last = rooms.segments.back().expect("a log has a segment");
        let number = last.identity.number + 1;
        let scrap = rooms.scraps.pop();
        return Some(Job::MakeSpare(number, scrap));
    }
    rooms.upkeep_runs = false;
    None
}

fn retire(shared: &Shared, segment: &Segment, keep: bool) -> io::Result<()> {
    let scrap = shared.yard.retire(segment.identity.number, keep)?;
    shared.rooms.lock().scraps.extend(scrap);
    Ok(())
}

fn make_spare(shared: &Shared, number: u64, scrap: Option<String>) -> io::Result<()> {
    let made = shared.yard.make(number, scrap.as_deref(), &shared.closing);
    let tell = {
        let mut rooms = shared.rooms.lock();
        let waiting = std::mem::take(&mut rooms.waiting);
        match made {
            Ok(blank) => {
                rooms.spare = Some(blank);
                rooms.full = false;
                std::mem::take(&mut rooms.hoping) || waiting
            }
            // An owner who waits tries again, and is then told that the disk is full.
            Err(error) if is_full(&error) => {
                rooms.full = true;
                waiting
            }
            Err(error) => return Err(error),
        }
    };
    if tell {
        shared.tell(Event::Room);
    }
    Ok(())
}
