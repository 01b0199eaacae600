//! A run of records: one row.
//!
//! ```text
//!   ┌─────────┬───────────────────────────────────────────────────────┬───────────────┐
//!   │ version │ head: first offset, count, first and last time,       │ records       │
//!   │ u8 = 1  │ bytes of the records when they are not packed, packed │ packed or not │
//!   └─────────┴───────────────────────────────────────────────────────┴───────────────┘
//!   record
//!   ┌──────────────────────┬───────────────────────┬─────┬────────┬───────┐
//!   │ ms since the last    │ 0, or length of key+1 │ key │ length │ value │
//!   └──────────────────────┴───────────────────────┴─────┴────────┴───────┘
//! ```
//!
//! Numbers are as postcard writes them: seven bits a byte, the lowest first.

use bytes::{BufMut, Bytes};
use serde::{Deserialize, Serialize};

/// A record of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the partition.
    pub offset: u64,
    /// When it was appended.
    pub at_ms: u64,
    /// What it is about.
    pub key: Option<Bytes>,
    /// What it says.
    pub value: Bytes,
}

/// What is known of a run without looking at its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
    pub(crate) raw_bytes: u32,
    pub(crate) packed: bool,
}

impl Head {
    /// The offset after the last.
    pub(crate) fn next(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

const VERSION: u8 = 1;

/// A run that is being made.
pub(crate) struct Builder {
    head: Head,
    raw: Vec<u8>,
}

impl Builder {
    pub(crate) fn new(first: u64) -> Builder {
        let head = Head { first, count: 0, first_ms: 0, last_ms: 0, raw_bytes: 0, packed: false };
        Builder { head, raw: Vec::new() }
    }

    pub(crate) fn push(&mut self, at_ms: u64, key: Option<&[u8]>, value: &[u8]) {
        if self.head.count == 0 {
            (self.head.first_ms, self.head.last_ms) = (at_ms, at_ms);
        }
        put_number(&mut self.raw, at_ms - self.head.last_ms);
        put_number(&mut self.raw, key.map_or(0, |key| key.len() as u64 + 1));
        self.raw.put_slice(key.unwrap_or_default());
        put_number(&mut self.raw, value.len() as u64);
        self.raw.put_slice(value);
        self.head.count += 1;
        self.head.last_ms = at_ms;
    }

    pub(crate) fn raw_bytes(&self) -> usize {
        self.raw.len()
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// The row, as it is.
    pub(crate) fn loose(self) -> Bytes {
        let raw_bytes = len_of(&self.raw);
        row(&Head { raw_bytes, ..self.head }, &self.raw)
    }

    /// The row, compressed.
    pub(crate) fn chunk(self) -> Bytes {
        let raw_bytes = len_of(&self.raw);
        let packed = lz4_flex::block::compress(&self.raw);
        row(&Head { raw_bytes, packed: true, ..self.head }, &packed)
    }
}

fn len_of(raw: &[u8]) -> u32 {
    u32::try_from(raw.len()).expect("commands are far smaller, and chunks are cut")
}

fn row(head: &Head, body: &[u8]) -> Bytes {
    let mut row = Vec::with_capacity(body.len() + 32);
    row.push(VERSION);
    let mut row = postcard::to_extend(head, row).expect("plain data serialises");
    row.put_slice(body);
    row.into()
}

/// A run as it was read.
pub(crate) struct Run {
    pub(crate) head: Head,
    body: Bytes,
}

impl Run {
    /// Reads a row of this machine's, sharing its bytes.
    pub(crate) fn decode(row: &Bytes) -> Run {
        assert_eq!(row[0], VERSION, "a run of a version that this binary is too old for");
        let (head, body): (Head, &[u8]) =
            postcard::take_from_bytes(&row[1..]).expect("rows are this machine's alone");
        Run { head, body: row.slice_ref(body) }
    }

    /// Its records, in order; they share its bytes.
    pub(crate) fn records(&self) -> Records {
        let raw = if self.head.packed {
            let raw_bytes = self.head.raw_bytes as usize;
            let raw = lz4_flex::block::decompress(&self.body, raw_bytes);
            raw.expect("rows are this machine's alone").into()
        } else {
            self.body.clone()
        };
        let Head { first, count, first_ms, .. } = self.head;
        Records { raw, next: first, left: count, at_ms: first_ms }
    }
}

/// The records of a run.
pub(crate) struct Records {
    raw: Bytes,
    next: u64,
    left: u32,
    at_ms: u64,
}

impl Records {
    fn number(&mut self) -> u64 {
        let (number, rest): (u64, &[u8]) =
            postcard::take_from_bytes(&self.raw).expect("rows are this machine's alone");
        self.raw = self.raw.slice_ref(rest);
        number
    }

    fn bytes(&mut self, len: u64) -> Bytes {
        self.raw.split_to(usize::try_from(len).expect("rows are this machine's alone"))
    }
}

impl Iterator for Records {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        self.left = self.left.checked_sub(1)?;
        self.at_ms += self.number();
        let key = match self.number() {
            0 => None,
            len => Some(self.bytes(len - 1)),
        };
        let len = self.number();
        let value = self.bytes(len);
        let offset = self.next;
        self.next += 1;
        Some(Record { offset, at_ms: self.at_ms, key, value })
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}
