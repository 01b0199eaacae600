//! Queues as every dialect uses them: JSON, curl and SQS differ in words, not in what happens.
//!
//! `parcel` and `filter` are messages and filters as JSON, `service` how it talks to the machine,
//! `admission` who may send how much, `large` how bodies go to the archive and come back.

pub(crate) mod admission;
pub(crate) mod filter;
pub(crate) mod large;
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
    // Those are not names in a URL: clients leave them out of the path.
    let is_step = matches!(name, "." | "..");
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(known) && !is_step
}

/// A redrive's name as text: the queue is in it, because it is looked for there.
pub(crate) fn redrive_id(queue: &str, job: u64) -> String {
    format!("rd_{job:x}_{queue}")
}

/// Reads [`redrive_id`] back: the queue and the job.
pub(crate) fn redrive(id: &str) -> Option<(&str, u64)> {
    let (job, queue) = id.strip_prefix("rd_")?.split_once('_')?;
    let job = u64::from_str_radix(job, 16).ok()?;
    is_name(queue).then_some((queue, job))
}

/// A message's name as text.
pub(crate) fn message_id(id: MessageId) -> String {
    let mut text = String::with_capacity(40);
    put_hex(&mut text, id.shard.into(), 4);
    text.push('-');
    put_hex(&mut text, id.queue, 16);
    text.push('-');
    put_hex(&mut text, id.sequence, 1);
    text
}

/// A number in hexadecimal, with so many digits at least. Every message that is sent or received has
/// its name told, and the formatter of the standard library showed in profiles.
fn put_hex(text: &mut String, number: u64, digits_min: u32) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(digits_min);
    for place in (0..digits).rev() {
        let digit = (number >> (place * 4)) & 0xf;
        text.push(char::from(b"0123456789abcdef"[digit as usize]));
    }
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
        for good in ["a", "...", "email-send", "orders.fifo", "A_9", &"x".repeat(80)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "a:b", "ü", &"x".repeat(81)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_messages_name_has_its_shard_its_queue_and_its_place() {
        let name = |shard, queue, sequence| message_id(MessageId { shard, queue, sequence });
        assert_eq!(name(0, 0, 0), "0000-0000000000000000-0");
        assert_eq!(name(0x12, 0xabc, 0x10), "0012-0000000000000abc-10");
        let largest = "ffff-ffffffffffffffff-ffffffffffffffff";
        assert_eq!(name(u16::MAX, u64::MAX, u64::MAX), largest);
    }

    #[test]
    fn a_redrives_name_reads_back_and_nothing_else_does() {
        assert_eq!(redrive(&redrive_id("a_b.fifo", 0xabc)), Some(("a_b.fifo", 0xabc)));
        for bad in ["", "rd_", "rd_1", "rd_x_q", "rd_1_", "rd_1_a b", "1_q"] {
            assert_eq!(redrive(bad), None, "{bad}");
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
