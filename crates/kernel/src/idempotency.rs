//! An answer given once is given again.
//!
//! The answer is a row written in the entry that produced it, so it survives whatever the answer
//! survives. A timer takes it away after [`IDEMPOTENCY_MS`](crate::limits::IDEMPOTENCY_MS), or sooner
//! if the machine says so.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::Reader;
use crate::entry::IdempotencyKey;
use crate::machine::kernel_key;
use crate::rows::{ReadRows, Rows};

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

/// Looks a request up.
#[must_use]
pub fn look_up(rows: &impl ReadRows, key: &IdempotencyKey) -> Known {
    let Some(value) = rows.get(&row_key(&key.key)) else { return Known::New };
    let mut reader = Reader::new(value);
    if reader.array16().expect("written by remember") == key.body {
        Known::Answered(reader.rest())
    } else {
        Known::Conflict
    }
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
