//! Looks at a log without opening it: for `stampede check` and `stampede dump`.
//!
//! Writes nothing and needs no lock. On a log that is in use the end is moving, so what is said
//! about the tail is then a guess.

use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use kernel::{Epoch, Index};

use crate::disk::{Access, Disk, RealDisk};
use crate::file::format::ENTRY_HEADER_BYTES;
use crate::file::recovery::{Seen, Survey, survey};
use crate::file::segment::LOCK_NAME;
use crate::log::{Kind, OpenError};

/// What a folder holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Somebody has the log open.
    pub in_use: bool,
    /// The segments with entries, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Files without entries: prepared, or kept to be used again.
    pub idle_files: usize,
    /// Entries that count, barriers included.
    pub entry_count: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// The first entry's index; 0 if there is none.
    pub first: Index,
    /// The last entry's index; 0 if there is none.
    pub last: Index,
    /// The last entry's epoch.
    pub epoch: Epoch,
    /// Whether opening it would do.
    pub verdict: Verdict,
}

/// One file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its name.
    pub file: String,
    /// Entries in it.
    pub entry_count: u64,
    /// Index of the first of them.
    pub first: Index,
    /// Index of the last of them.
    pub last: Index,
    /// Where the last of them ends.
    pub end_offset: u64,
}

/// What opening the log would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Open it.
    Sound,
    /// Open it after cutting off traces of entries that were in flight at a crash. None of them
    /// was acknowledged.
    TornTail {
        /// The file.
        file: String,
        /// Where it is cut.
        offset: u64,
        /// How many bytes are cut off.
        bytes: u64,
    },
    /// Refuse: entries that were acknowledged are damaged.
    Corrupt {
        /// The file, with its folder.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Refuse: a file is not of this log.
    Foreign {
        /// The file, with its folder.
        file: String,
        /// How that shows.
        what: String,
    },
}

/// An entry and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryReport {
    /// Its file.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// Its index.
    pub index: Index,
    /// Its owner's epoch.
    pub epoch: Epoch,
    /// The highest index known durable when it was appended.
    pub durable: Index,
    /// When it was appended, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it is for.
    pub kind: Kind,
    /// Bytes of its payload.
    pub payload_bytes: u32,
}

/// Looks at the log in the folder `dir`.
///
/// # Errors
/// Only [`OpenError::Io`]: damage is a verdict.
pub fn inspect(dir: &Path) -> Result<Report, OpenError> {
    inspect_on(&RealDisk, dir)
}

/// Shows every entry that counts, in order, and returns the same report as [`inspect`].
///
/// # Errors
/// Only [`OpenError::Io`]: damage is a verdict, and ends the entries.
pub fn entries(dir: &Path, visit: &mut dyn FnMut(&EntryReport)) -> Result<Report, OpenError> {
    entries_on(&RealDisk, dir, visit)
}

/// What an entry carries, read from the file it stands in.
///
/// # Errors
/// What the operating system says.
pub fn payload(dir: &Path, entry: &EntryReport) -> std::io::Result<Bytes> {
    let file = std::fs::File::open(dir.join(&entry.file))?;
    let mut bytes = vec![0; entry.payload_bytes as usize];
    file.read_exact_at(&mut bytes, entry.offset + ENTRY_HEADER_BYTES as u64)?;
    Ok(bytes.into())
}

/// [`inspect`] on any disk.
///
/// # Errors
/// Only [`OpenError::Io`].
pub fn inspect_on(disk: &dyn Disk, dir: &Path) -> Result<Report, OpenError> {
    entries_on(disk, dir, &mut |_| {})
}

/// [`entries`] on any disk.
///
/// # Errors
/// Only [`OpenError::Io`].
pub fn entries_on(
    disk: &dyn Disk,
    dir: &Path,
    visit: &mut dyn FnMut(&EntryReport),
) -> Result<Report, OpenError> {
    let lock = dir.join(LOCK_NAME);
    let in_use = disk
        .is_locked(&lock)
        .map_err(|source| OpenError::Io { doing: format!("look at {}", lock.display()), source })?;
    let mut report = Report {
        in_use,
        segments: Vec::new(),
        idle_files: 0,
        entry_count: 0,
        payload_bytes: 0,
        first: Index(0),
        last: Index(0),
        epoch: Epoch(0),
        verdict: Verdict::Sound,
    };
    let found = survey(disk, dir, Access::Read, &mut |seen| {
        report.count(seen);
        visit(&describe(seen));
    });
    report.verdict = match found {
        Ok(survey) => {
            report.idle_files = survey.unused.len() + survey.scraps.len() + survey.unfinished.len();
            judge(&survey)
        }
        Err(OpenError::Corrupt { file, offset, what }) => Verdict::Corrupt { file, offset, what },
        Err(OpenError::Foreign { file, what }) => Verdict::Foreign { file, what },
        Err(e) => return Err(e),
    };
    Ok(report)
}

fn judge(survey: &Survey) -> Verdict {
    match survey.used.last() {
        Some(last) if survey.tail.torn_bytes > 0 => Verdict::TornTail {
            file: last.name.clone(),
            offset: survey.tail.offset,
            bytes: survey.tail.torn_bytes,
        },
        _ => Verdict::Sound,
    }
}

fn describe(seen: &Seen<'_>) -> EntryReport {
    EntryReport {
        file: seen.name.to_owned(),
        offset: seen.offset,
        index: seen.header.index,
        epoch: seen.header.epoch,
        durable: seen.header.durable,
        at_ms: seen.header.at_ms,
        kind: seen.header.kind,
        payload_bytes: seen.header.payload_bytes,
    }
}

impl Report {
    fn count(&mut self, seen: &Seen<'_>) {
        let header = seen.header;
        if self.segments.last().is_none_or(|segment| segment.file != seen.name) {
            self.segments.push(SegmentReport {
                file: seen.name.to_owned(),
                entry_count: 0,
                first: header.index,
                last: header.index,
                end_offset: seen.offset,
            });
        }
        let segment = self.segments.last_mut().expect("pushed above");
        segment.entry_count += 1;
        segment.last = header.index;
        segment.end_offset = seen.offset + header.entry_bytes() as u64;
        if self.entry_count == 0 {
            self.first = header.index;
        }
        self.entry_count += 1;
        self.payload_bytes += u64::from(header.payload_bytes);
        self.last = header.index;
        self.epoch = header.epoch;
    }
}
