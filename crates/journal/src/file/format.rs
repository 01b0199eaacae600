//! The bytes of a segment. Drawn in `docs/journal-format.md`; golden files hold it still.
//!
//! ```text
//!   0        64             3584       4096
//!   ├────────┼──── zeros ────┼─ start ──┼─ entry ─┬─ entry ─┬─ ... ─┬── old bytes or zeros ──┤
//!   │identity│               │          │                           ▲ the tail
//! ```
//!
//! The *identity* is written and synced before the file gets its name, and never again: a bad one
//! is damage, never a crash. The *start* says which index comes first; it is written together
//! with the first entries. Both checksums and those of the entries are seeded with the salt of
//! the segment, so that what an earlier use of the file left behind never counts.
//!
//! To change the format: raise [`VERSION`], keep reading the older ones, add golden files.

use bytes::Buf;
use kernel::{Epoch, Index};

use crate::log::Kind;

pub(crate) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"STAMPLOG";
const START_MAGIC: u32 = u32::from_le_bytes(*b"STRT");

/// Where entries begin.
pub(crate) const HEADER_BYTES: u64 = 4096;
/// Where the start record is: the sector before the first entry, so that one write takes both.
pub(crate) const START_OFFSET: u64 = HEADER_BYTES - 512;
/// The start record with its zeros, up to the first entry.
pub(crate) const START_BYTES: usize = 512;
const START_USED_BYTES: usize = 32;
const IDENTITY_BYTES: usize = 64;
/// Before each payload.
pub(crate) const ENTRY_HEADER_BYTES: usize = 48;
/// Entries begin at multiples of this.
pub(crate) const ALIGN: usize = 8;
/// Kept free by appends at the end of a segment, so that a log on a full disk can still be
/// opened, which takes a barrier each time.
pub(crate) const BARRIER_ROOM_BYTES: u64 = 10 * ENTRY_HEADER_BYTES as u64;

/// Who a segment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) log_id: [u8; 16],
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) segment_bytes: u64,
}

/// Why an identity could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IdentityFault {
    Magic,
    Version(u32),
    Checksum,
}

impl Identity {
    pub(crate) fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut out = [0; IDENTITY_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.log_id);
        out[32..40].copy_from_slice(&self.number.to_le_bytes());
        out[40..48].copy_from_slice(&self.salt.to_le_bytes());
        out[48..56].copy_from_slice(&self.segment_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Identity, IdentityFault> {
        if bytes.len() < IDENTITY_BYTES || bytes[0..8] != MAGIC {
            return Err(IdentityFault::Magic);
        }
        let mut plain = [0; IDENTITY_BYTES];
        plain.copy_from_slice(&bytes[..IDENTITY_BYTES]);
        plain[12..16].fill(0);
        if crc32c::crc32c(&plain) != u32_at(bytes, 12) {
            return Err(IdentityFault::Checksum);
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            other => return Err(IdentityFault::Version(other)),
        }
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&bytes[16..32]);
        Ok(Identity {
            log_id,
            number: u64_at(bytes, 32),
            salt: u64_at(bytes, 40),
            segment_bytes: u64_at(bytes, 48),
        })
    }

    /// What the checksums in this segment begin with.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.salt.to_le_bytes())
    }
}

/// Where a segment starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) first: Index,
    pub(crate) epoch: Epoch,
    pub(crate) at_ms: u64,
}

impl Start {
    pub(crate) fn encode(&self, seed: u32) -> [u8; START_BYTES] {
        let mut out = [0; START_BYTES];
        out[4..8].copy_from_slice(&START_MAGIC.to_le_bytes());
        out[8..16].copy_from_slice(&self.first.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.at_ms.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &out[4..START_USED_BYTES]);
        out[0..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` when it was never written, or torn.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Option<Start> {
        if bytes.len() < START_USED_BYTES || u32_at(bytes, 4) != START_MAGIC {
            return None;
        }
        let crc = crc32c::crc32c_append(seed, &bytes[4..START_USED_BYTES]);
        let start = Start {
            first: Index(u64_at(bytes, 8)),
            epoch: Epoch(u64_at(bytes, 16)),
            at_ms: u64_at(bytes, 24),
        };
        (crc == u32_at(bytes, 0) && start.first.0 > 0).then_some(start)
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub(crate) payload_bytes: u32,
    pub(crate) index: Index,
    pub(crate) epoch: Epoch,
    /// The highest index known durable when this entry was queued. Proof, for recovery, that a
    /// bad entry at or before it is damage and not a torn write.
    pub(crate) durable: Index,
    pub(crate) at_ms: u64,
    pub(crate) kind: Kind,
}

const KIND_BARRIER: u32 = 1;
const KIND_DATA: u32 = 2;

impl EntryHeader {
    /// Bytes from the start of this entry to the start of the next.
    pub(crate) fn entry_bytes(&self) -> usize {
        entry_bytes(self.payload_bytes as usize)
    }

    /// The bytes of the header, with the checksums of itself and of the payload.
    pub(crate) fn seal(&self, seed: u32, payload: &[u8]) -> [u8; ENTRY_HEADER_BYTES] {
        assert_eq!(self.payload_bytes as usize, payload.len());
        let mut header = [0; ENTRY_HEADER_BYTES];
        header[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        header[8..16].copy_from_slice(&self.index.0.to_le_bytes());
        header[16..24].copy_from_slice(&self.epoch.0.to_le_bytes());
        header[24..32].copy_from_slice(&self.durable.0.to_le_bytes());
        header[32..40].copy_from_slice(&self.at_ms.to_le_bytes());
        let kind = match self.kind {
            Kind::Barrier => KIND_BARRIER,
            Kind::Data => KIND_DATA,
        };
        header[40..44].copy_from_slice(&kind.to_le_bytes());
        let header_crc = crc32c::crc32c_append(seed, &header[4..44]);
        header[44..48].copy_from_slice(&header_crc.to_le_bytes());
        // Goes on from the header's checksum, so the header is read once.
        let crc = crc32c::crc32c_append(header_crc, payload);
        header[0..4].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// `None` unless the header, without the payload, is whole.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Option<EntryHeader> {
        let kind = match may_be_header(bytes)? {
            KIND_BARRIER => Kind::Barrier,
            _ => Kind::Data,
        };
        if crc32c::crc32c_append(seed, &bytes[4..44]) != u32_at(bytes, 44) {
            return None;
        }
        Some(EntryHeader {
            payload_bytes: u32_at(bytes, 4),
            index: Index(u64_at(bytes, 8)),
            epoch: Epoch(u64_at(bytes, 16)),
            durable: Index(u64_at(bytes, 24)),
            at_ms: u64_at(bytes, 32),
            kind,
        })
    }
}

/// Puts a sealed header, its payload and the padding at the end of `out`.
pub(crate) fn put_entry(header: &[u8; ENTRY_HEADER_BYTES], payload: &[u8], out: &mut Vec<u8>) {
    let end = out.len() + entry_bytes(payload.len());
    out.reserve(end - out.len());
    out.extend_from_slice(header);
    out.extend_from_slice(payload);
    out.resize(end, 0);
}

/// The kind, if these bytes can be a header at all: the cheap test that a search for headers
/// makes everywhere.
fn may_be_header(bytes: &[u8]) -> Option<u32> {
    let kind = u32_at(bytes.get(..ENTRY_HEADER_BYTES)?, 40);
    (kind == KIND_BARRIER || kind == KIND_DATA).then_some(kind)
}

/// Whether the payload is the one that its whole header was written with.
pub(crate) fn payload_is_whole(header: &[u8], payload: &[u8]) -> bool {
    crc32c::crc32c_append(u32_at(header, 44), payload) == u32_at(header, 0)
}

/// Bytes that an entry with such a payload takes up.
pub(crate) fn entry_bytes(payload_bytes: usize) -> usize {
    (ENTRY_HEADER_BYTES + payload_bytes).next_multiple_of(ALIGN)
}

/// The length of the first entry in `bytes`, which this process encoded.
pub(crate) fn first_entry_bytes(bytes: &[u8]) -> usize {
    entry_bytes(u32_at(bytes, 4) as usize)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    (&bytes[at..at + 4]).get_u32_le()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    (&bytes[at..at + 8]).get_u64_le()
}
