//! Reads a folder and decides what the log in it is. Writes nothing.
//!
//! Several entries may be in flight at once, and the sectors of unsynced writes persist in any
//! order. So a bad entry with good ones after it is not by itself damage. It is damage if
//! something *proves* that the bad entry was durable: a later header whose `durable` reaches it,
//! or a later segment, which is only ever written to after a sync of the one before.
//!
//! | # | what is found | what it is | what is done |
//! |---|---|---|---|
//! | R1 | no segment | a new log, or a crash while it was first made | make segment 1 |
//! | R2 | `*.new` | a crash while a segment was made | remove |
//! | R2 | `*.old` | a retired segment, or a crash while it was used again | its bytes count for nothing, the file is used again |
//! | R3 | identity without our magic, of another version, log or number | a foreign file | refuse: `Foreign` |
//! | R4 | identity with a bad checksum, or a file shorter than it says | damage: both were synced before the file got its name | refuse: `Corrupt` |
//! | R5 | a number is missing between two segments | damage: names are synced, the oldest goes first | refuse: `Corrupt` |
//! | R6 | a segment without start and first entry, none used after it | prepared, not used yet; its name may or may not have been synced | scrap, if R10 finds no proof |
//! | R7 | the same, but a later one is used, or it is the first of several | damage | refuse: `Corrupt` |
//! | R8 | a bad entry, and a later segment is used | damage: the later one proves it | refuse: `Corrupt` |
//! | R9 | the next segment starts with another index than expected | damage | refuse: `Corrupt` |
//! | R10 | a bad entry, and a later header has `durable` at or above its index | damage: that header proves it | refuse: `Corrupt` |
//! | R11 | a bad entry (torn, zeroed, stale epoch), and no proof | writes in flight at a crash | cut here: the barrier of the new epoch goes over it |
//! | R12 | after a barrier, an entry of an older epoch | left over behind an earlier cut (R11) | same as a bad entry; it proves nothing |
//! | R13 | good entries that nothing proves durable | in flight at a crash, or at a failed sync | kept, and written again before they count |

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use kernel::{Epoch, Index};

use super::format::{
    ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, Identity, IdentityFault, START_OFFSET, Start,
};
use super::reader::{Chain, Found, Reader};
use super::segment::{is_scrap, is_unfinished, segment_name, segment_number};
use crate::disk::{Access, Disk, DiskFile, read_full};
use crate::log::OpenError;

/// What is in the folder of a log.
pub(crate) struct Survey {
    /// Segments with entries, oldest first. Empty for a new log.
    pub(crate) used: Vec<Piece>,
    /// Numbers of the segments after them, which were prepared and never used.
    pub(crate) unused: Vec<u64>,
    /// Names of retired segments.
    pub(crate) scraps: Vec<String>,
    /// Names of files that were never finished.
    pub(crate) unfinished: Vec<String>,
    pub(crate) tail: Tail,
}

/// A segment as it was found.
pub(crate) struct Piece {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) identity: Identity,
    /// From the start record, or else from the first entry.
    pub(crate) begins: Option<(Index, Epoch)>,
}

/// Where the log ends.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// In the last used segment.
    pub(crate) offset: u64,
    pub(crate) next: Index,
    pub(crate) epoch: Epoch,
    /// Everything before this offset, in the last used segment, is proven durable.
    pub(crate) unproven_offset: u64,
    /// Bytes from `offset` to the end of the last trace of a lost entry; 0 if there is none.
    pub(crate) torn_bytes: u64,
}

/// An entry, shown to those who look.
pub(crate) struct Seen<'a> {
    pub(crate) name: &'a str,
    pub(crate) offset: u64,
    pub(crate) header: &'a EntryHeader,
}

/// Reads the folder. Entries are shown to `visit` in order, until the first that is not whole.
pub(crate) fn survey(
    disk: &dyn Disk,
    dir: &Path,
    access: Access,
    visit: &mut dyn FnMut(&Seen<'_>),
) -> Result<Survey, OpenError> {
    let names = disk.list(dir).map_err(io_error(format!("list {}", dir.display())))?;
    let scraps = names.iter().filter(|name| is_scrap(name)).cloned().collect();
    let unfinished = names.iter().filter(|name| is_unfinished(name)).cloned().collect();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    let mut pieces = Vec::with_capacity(numbers.len());
    for (position, number) in numbers.iter().enumerate() {
        if position > 0 && *number != numbers[position - 1] + 1 {
            let name = segment_name(numbers[position - 1] + 1);
            return Err(corrupt(dir, &name, 0, "the segment is missing")); // R5
        }
        let log_id = pieces.first().map(|first: &Piece| first.identity.log_id);
        pieces.push(open_piece(disk, dir, *number, log_id, access)?);
    }
    let used_count = count_used(dir, &pieces)?;
    let rest = pieces.split_off(used_count);
    let mut tail = follow(dir, &pieces, visit)?;
    if let Some(last) = pieces.last() {
        tail.torn_bytes = search(dir, last, &tail, tail.offset)?;
    }
    for piece in &rest {
        search(dir, piece, &tail, HEADER_BYTES)?;
    }
    let unused = rest.iter().map(|piece| piece.identity.number).collect();
    Ok(Survey { used: pieces, unused, scraps, unfinished, tail })
}

/// Rows R3 and R4.
fn open_piece(
    disk: &dyn Disk,
    dir: &Path,
    number: u64,
    log_id: Option<[u8; 16]>,
    access: Access,
) -> Result<Piece, OpenError> {
    let name = segment_name(number);
    let path = dir.join(&name);
    let io = |source| OpenError::Io { doing: format!("read {}", path.display()), source };
    let foreign = |what: String| OpenError::Foreign { file: path.display().to_string(), what };
    let file = disk.open(&path, access).map_err(io)?;
    let mut head = vec![0; usize::try_from(HEADER_BYTES).expect("a small constant")];
    let got = read_full(&*file, 0, &mut head).map_err(io)?;
    let identity = match Identity::decode(&head[..got]) {
        Ok(identity) => identity,
        Err(IdentityFault::Magic) => {
            return Err(foreign("it does not begin like a segment".into()));
        }
        Err(IdentityFault::Version(version)) => {
            return Err(foreign(format!("it has format version {version}")));
        }
        Err(IdentityFault::Checksum) => {
            return Err(corrupt(dir, &name, 0, "the identity does not match its checksum"));
        }
    };
    if identity.number != number {
        return Err(foreign(format!("it is segment {}", identity.number)));
    }
    if log_id.is_some_and(|log_id| log_id != identity.log_id) {
        return Err(foreign("it belongs to another log".into()));
    }
    let len = file.len().map_err(io)?;
    if len < identity.segment_bytes || identity.segment_bytes < HEADER_BYTES {
        return Err(corrupt(dir, &name, len, "the file is shorter than its identity says"));
    }
    let start_at = usize::try_from(START_OFFSET).expect("a small constant");
    let start = Start::decode(&head[start_at..], identity.seed());
    let begins = match start {
        Some(start) => Some((start.first, start.epoch)),
        None => match reader(&file, &identity).at(HEADER_BYTES).map_err(io)? {
            Found::Entry { header, .. } if header.index.0 > 0 => Some((header.index, header.epoch)),
            _ => None,
        },
    };
    Ok(Piece { name, file, identity, begins })
}

/// How many segments, from the first on, are in use: rows R1, R6 and R7.
fn count_used(dir: &Path, pieces: &[Piece]) -> Result<usize, OpenError> {
    let used = pieces.iter().take_while(|piece| piece.begins.is_some()).count();
    if pieces[used..].iter().any(|piece| piece.begins.is_some()) {
        let what = "neither start nor first entry is whole, but a later segment is in use";
        return Err(corrupt(dir, &pieces[used].name, START_OFFSET, what));
    }
    match pieces.first() {
        // The log was being made when the power went: its first barrier did not get through.
        Some(first) if used == 0 && first.identity.number == 1 => Ok(1),
        Some(first) if used == 0 => {
            let what = "neither start nor first entry of the oldest segment is whole";
            Err(corrupt(dir, &first.name, START_OFFSET, what))
        }
        _ => Ok(used),
    }
}

/// Follows the entries through the segments to where the log ends: rows R8, R9 and R11 to R13.
fn follow(
    dir: &Path,
    pieces: &[Piece],
    visit: &mut dyn FnMut(&Seen<'_>),
) -> Result<Tail, OpenError> {
    let begins = pieces.first().and_then(|first| first.begins).unwrap_or((Index(1), Epoch(0)));
    let mut chain = Chain { next: begins.0, epoch: begins.1 };
    let mut tail = Tail {
        offset: HEADER_BYTES,
        next: chain.next,
        epoch: chain.epoch,
        unproven_offset: HEADER_BYTES,
        torn_bytes: 0,
    };
    for (position, piece) in pieces.iter().enumerate() {
        if let Some((first, epoch)) = piece.begins {
            if first != chain.next {
                let what = format!("it starts with {first}, and {} was expected", chain.next);
                return Err(corrupt(dir, &piece.name, START_OFFSET, &what)); // R9
            }
            chain.epoch = chain.epoch.max(epoch);
        }
        let fault = follow_piece(dir, piece, &mut chain, &mut tail, visit)?;
        let next_first = pieces.get(position + 1).and_then(|next| next.begins);
        if let Some((first, _)) = next_first
            && first != chain.next
        {
            return Err(corrupt(dir, &piece.name, tail.offset, fault)); // R8
        }
    }
    tail.next = chain.next;
    tail.epoch = chain.epoch;
    Ok(tail)
}

/// Follows the entries of one segment; says why it ends where it ends.
fn follow_piece(
    dir: &Path,
    piece: &Piece,
    chain: &mut Chain,
    tail: &mut Tail,
    visit: &mut dyn FnMut(&Seen<'_>),
) -> Result<&'static str, OpenError> {
    let mut reader = reader(&piece.file, &piece.identity);
    let mut unproven: VecDeque<(Index, u64)> = VecDeque::new();
    let mut offset = HEADER_BYTES;
    let fault = loop {
        let doing = || format!("read {}", dir.join(&piece.name).display());
        match reader.at(offset).map_err(|source| OpenError::Io { doing: doing(), source })? {
            Found::Entry { header, .. } => {
                if let Err(what) = chain.take(&header) {
                    break what;
                }
                unproven.push_back((header.index, offset));
                while unproven.front().is_some_and(|(index, _)| *index <= header.durable) {
                    unproven.pop_front();
                }
                visit(&Seen { name: &piece.name, offset, header: &header });
                offset += header.entry_bytes() as u64;
            }
            Found::Bad(what) => break what,
            Found::Full => break "entries are missing at its end",
        }
    };
    tail.offset = offset;
    tail.unproven_offset = unproven.front().map_or(offset, |(_, at)| *at);
    Ok(fault)
}

/// Searches for headers behind the end of the log. One that proves the entry there durable makes
/// it damage (R10); else they are traces of lost entries, and their extent is returned.
fn search(dir: &Path, piece: &Piece, tail: &Tail, from: u64) -> Result<u64, OpenError> {
    let end = piece.identity.segment_bytes;
    let mut reader = reader(&piece.file, &piece.identity);
    let mut at = from;
    let mut extent = 0;
    let io = |source| OpenError::Io {
        doing: format!("read {}", dir.join(&piece.name).display()),
        source,
    };
    while let Some((offset, header)) = reader.find_header(at).map_err(io)? {
        let current = header.epoch >= tail.epoch && header.index >= tail.next; // R12
        if current && header.durable >= tail.next {
            let what = format!(
                "entry {} is not whole, and entry {} at offset {offset} proves that it was",
                tail.next, header.index
            );
            return Err(corrupt(dir, &piece.name, from, &what));
        }
        if current {
            extent = (offset + header.entry_bytes() as u64).min(end) - from;
        }
        at = offset + ENTRY_HEADER_BYTES as u64;
    }
    Ok(extent)
}

fn reader(file: &Arc<dyn DiskFile>, identity: &Identity) -> Reader {
    Reader::new(file.clone(), identity.seed(), identity.segment_bytes)
}

pub(crate) fn corrupt(dir: &Path, name: &str, offset: u64, what: &str) -> OpenError {
    let file = dir.join(name).display().to_string();
    OpenError::Corrupt { file, offset, what: what.to_owned() }
}

pub(crate) fn io_error(doing: String) -> impl FnOnce(std::io::Error) -> OpenError {
    move |source| OpenError::Io { doing, source }
}
