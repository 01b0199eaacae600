//! Receipts: what a consumer shows to ack, extend or give back.

use kernel::id::mac;
use serde::{Deserialize, Serialize};

/// Names one lease of one message. Nobody can make one up: its tag takes the queue's secret, which
/// never leaves the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The queue's number.
    pub(crate) queue: u64,
    /// Until when the lease lasted when it was given.
    pub(crate) until_ms: u64,
    /// The message's place in the queue.
    pub(crate) sequence: u64,
    /// Which lease of the message this was.
    pub(crate) lease: u32,
    tag: u64,
}

/// Bytes of a receipt.
const BYTES: usize = 8 + 8 + 8 + 4 + 8;

impl Receipt {
    pub(crate) fn new(
        secret: &[u8; 16],
        queue: u64,
        until_ms: u64,
        sequence: u64,
        lease: u32,
    ) -> Receipt {
        let receipt = Receipt { queue, until_ms, sequence, lease, tag: 0 };
        Receipt { tag: receipt.tag_under(secret), ..receipt }
    }

    fn tag_under(&self, secret: &[u8; 16]) -> u64 {
        mac(secret, &self.to_bytes()[..BYTES - 8])
    }

    pub(crate) fn is_of(&self, queue: u64, secret: &[u8; 16]) -> bool {
        self.queue == queue && self.tag == self.tag_under(secret)
    }

    /// As it is given to the consumer, before it becomes text.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..8].copy_from_slice(&self.queue.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.until_ms.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.lease.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.tag.to_be_bytes());
        bytes
    }

    /// Reads [`Receipt::to_bytes`] back; `None` when it has not the form of one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Receipt> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_be_bytes(*bytes[at..].first_chunk().expect("in range"));
        Some(Receipt {
            queue: number(0),
            until_ms: number(8),
            sequence: number(16),
            lease: u32::from_be_bytes(*bytes[24..].first_chunk().expect("in range")),
            tag: number(28),
        })
    }
}
