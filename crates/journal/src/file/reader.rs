//! Reads entries from a segment, in large pieces.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kernel::{Epoch, Index};

use super::format::{self, ALIGN, ENTRY_HEADER_BYTES, EntryHeader};
use crate::disk::{DiskFile, read_full};
use crate::log::Kind;

/// Read at once. Payloads are slices of it, so a reader that keeps one keeps this much.
const CHUNK_BYTES: usize = 256 * 1024;

/// What stands at a place in a segment.
pub(crate) enum Found {
    /// A whole entry.
    Entry { header: EntryHeader, payload: Bytes },
    /// No entry; what is wrong.
    Bad(&'static str),
    /// No room for another entry before the end of the segment.
    Full,
}

/// Reads the entries of one segment.
pub(crate) struct Reader {
    file: Arc<dyn DiskFile>,
    seed: u32,
    end: u64,
    chunk: Bytes,
    chunk_at: u64,
}

impl Reader {
    /// Reads entries that lie before `end`.
    pub(crate) fn new(file: Arc<dyn DiskFile>, seed: u32, end: u64) -> Reader {
        Reader { file, seed, end, chunk: Bytes::new(), chunk_at: 0 }
    }

    /// What stands at `offset`.
    pub(crate) fn at(&mut self, offset: u64) -> io::Result<Found> {
        if offset + ENTRY_HEADER_BYTES as u64 > self.end {
            return Ok(Found::Full);
        }
        let Some(from) = self.have(offset, ENTRY_HEADER_BYTES)? else {
            return Ok(Found::Bad("the file ends early"));
        };
        let Some(header) = EntryHeader::decode(&self.chunk[from..], self.seed) else {
            return Ok(Found::Bad("the entry header does not match its checksum"));
        };
        if offset + header.entry_bytes() as u64 > self.end {
            return Ok(Found::Bad("the entry reaches past the end of its segment"));
        }
        let Some(from) = self.have(offset, header.entry_bytes())? else {
            return Ok(Found::Bad("the file ends early"));
        };
        let body = from + ENTRY_HEADER_BYTES;
        let payload = body..body + header.payload_bytes as usize;
        if !format::payload_is_whole(&self.chunk[from..body], &self.chunk[payload.clone()]) {
            return Ok(Found::Bad("the payload does not match its checksum"));
        }
        // `slice` counts a reference; an empty payload needs none.
        let payload = if payload.is_empty() { Bytes::new() } else { self.chunk.slice(payload) };
        Ok(Found::Entry { header, payload })
    }

    /// The whole header at the first place from `offset` on that has one, whatever its payload.
    /// Headers are salted, so nobody can plant one in a payload.
    pub(crate) fn find_header(&mut self, offset: u64) -> io::Result<Option<(u64, EntryHeader)>> {
        let mut at = offset;
        while at + ENTRY_HEADER_BYTES as u64 <= self.end {
            let Some(from) = self.have(at, ENTRY_HEADER_BYTES)? else { return Ok(None) };
            let within = self.chunk.len() - ENTRY_HEADER_BYTES;
            for place in (from..=within).step_by(ALIGN) {
                if let Some(header) = EntryHeader::decode(&self.chunk[place..], self.seed) {
                    return Ok(Some((self.chunk_at + place as u64, header)));
                }
            }
            at += ((within - from) / ALIGN * ALIGN + ALIGN) as u64;
        }
        Ok(None)
    }

    /// Sees to it that the chunk holds `need` bytes from `offset` on, and says where in it.
    /// `None` when the file is too short.
    fn have(&mut self, offset: u64, need: usize) -> io::Result<Option<usize>> {
        if let Some(from) = offset.checked_sub(self.chunk_at)
            && let Ok(from) = usize::try_from(from)
            && from + need <= self.chunk.len()
        {
            return Ok(Some(from));
        }
        let left = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
        let want = need.max(CHUNK_BYTES).min(left);
        // Nobody kept a payload of the last chunk: its memory serves again.
        let mut buffer = match std::mem::take(&mut self.chunk).try_into_mut() {
            Ok(buffer) => buffer,
            Err(_) => BytesMut::new(),
        };
        buffer.resize(want, 0);
        let got = read_full(&*self.file, offset, &mut buffer)?;
        buffer.truncate(got);
        self.chunk = buffer.freeze();
        self.chunk_at = offset;
        Ok((got >= need).then_some(0))
    }
}

/// Follows the chain of entries: the next index, under an epoch that never goes back.
pub(crate) struct Chain {
    /// The index that the next entry must have.
    pub(crate) next: Index,
    /// The epoch in force.
    pub(crate) epoch: Epoch,
}

impl Chain {
    /// Takes an entry if it is the next one; else says what is wrong with it.
    ///
    /// An owner writes its barrier over the place where it cut the log, so what an older owner
    /// left behind that place has an older epoch than the barrier, and ends the log here.
    pub(crate) fn take(&mut self, header: &EntryHeader) -> Result<(), &'static str> {
        if header.index != self.next {
            return Err("the entry has another index");
        }
        if header.epoch < self.epoch {
            return Err("the entry is left over from an older epoch");
        }
        if header.epoch > self.epoch && header.kind != Kind::Barrier {
            return Err("the entry is of an epoch without a barrier");
        }
        self.epoch = header.epoch;
        self.next = header.index.next();
        Ok(())
    }
}
