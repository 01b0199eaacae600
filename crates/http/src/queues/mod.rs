//! Queues as every dialect uses them: JSON, curl and SQS differ in words, not in what happens.
//!
//! `parcel` is what the edge puts into a message, `service` how it talks to the machine.

pub(crate) mod parcel;
pub(crate) mod service;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use queue::{MessageId, Receipt};

/// Bytes of a queue's name.
pub(crate) const NAME_BYTES_MAX: usize = 80;

/// Whether a queue can have this name: 1 to 80 of `A-Z a-z 0-9 - _ .`
pub(crate) fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(known)
}

/// A message's name as text.
pub(crate) fn message_id(id: MessageId) -> String {
    format!("{:04x}-{:016x}-{:x}", id.shard, id.queue, id.sequence)
}

/// A receipt as text that stands in a path as it is.
pub(crate) fn receipt_handle(receipt: &Receipt) -> String {
    URL_SAFE_NO_PAD.encode(receipt.to_bytes())
}

/// Reads [`receipt_handle`] back; `None` when it is none.
pub(crate) fn receipt(handle: &str) -> Option<Receipt> {
    Receipt::from_bytes(&URL_SAFE_NO_PAD.decode(handle).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "email-send", "orders.fifo", "A_9", &"x".repeat(80)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "a/b", "a:b", "ü", &"x".repeat(81)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_handle_reads_back_and_nothing_else_does() {
        let receipt = Receipt::from_bytes(&[7; 36]).expect("as long as one");
        assert_eq!(super::receipt(&receipt_handle(&receipt)), Some(receipt));
        for bad in ["", "AAAA", "not base64!", &"A".repeat(49)] {
            assert_eq!(super::receipt(bad), None, "{bad}");
        }
    }
}
