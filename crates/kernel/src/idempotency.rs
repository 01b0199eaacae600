//! An answer given once is given again.
//!
//! The answer is a row written in the entry that produced it, so it survives whatever the answer
//! survives. A timer takes it away after [`IDEMPOTENCY_MS`](crate::limits::IDEMPOTENCY_MS), or sooner
//! if the machine says so.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::Reader;
use crate::entry::IdempotencyKey;
use crate::machine::kernel_key;
use crate::rows::{ReadRows, Rows, Scan};

/// What is known of a request that carries a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Never seen, or long ago.
    New,
    /// Answered before, with this.
    Answered(Bytes),
    /// The key was used for another body.
    Conflict,
}

fn row_key(key: &[u8]) -> Vec<u8> {
    let mut row = kernel_key(b'k');
    row.put_slice(key);
    row
}

/// Body and answer.
fn read(value: Bytes) -> ([u8; 16], Bytes) {
    let mut reader = Reader::new(value);
    (reader.array16().expect("written by remember"), reader.rest())
}

/// Looks a request up.
#[must_use]
pub fn look_up(rows: &impl ReadRows, key: &IdempotencyKey) -> Known {
    match rows.get(&row_key(&key.key)).map(read) {
        None => Known::New,
        Some((body, answer)) if body == key.body => Known::Answered(answer),
        Some(_) => Known::Conflict,
    }
}

/// The body that a key was used with.
#[must_use]
pub fn body_of(rows: &impl ReadRows, key: &[u8; 16]) -> Option<[u8; 16]> {
    rows.get(&row_key(key)).map(|value| read(value).0)
}

/// The bodies that keys were used with which begin with this: one look at a range, which costs as much
/// as some ten at keys.
#[must_use]
pub fn bodies_of(rows: &impl ReadRows, beginning: &[u8]) -> Vec<[u8; 16]> {
    let found = rows.scan(&Scan::prefix(&row_key(beginning)));
    found.into_iter().map(|(_, value)| read(value).0).collect()
}

/// Keeps an answer.
pub fn remember(rows: &mut Rows, key: &IdempotencyKey, answer: &[u8]) {
    let mut value = BytesMut::with_capacity(16 + answer.len());
    value.put_slice(&key.body);
    value.put_slice(answer);
    rows.put(row_key(&key.key), value.freeze());
}

/// Drops an answer whose time is over; `key` is [`IdempotencyKey::key`].
pub fn forget(rows: &mut Rows, key: &[u8]) {
    rows.delete(&row_key(key));
}
