//! The checksums that clients compare with their own.
//!
//! Attributes are hashed in the order of their names, each as
//!
//! ```text
//!   length:4 name | length:4 type | 1 for text, 2 for bytes | length:4 value     (big endian)
//! ```
//!
//! On receiving, the checksum is over the attributes that are given, not over all there are.

use std::borrow::Borrow;

use md5::{Digest, Md5};
use sha2::Sha256;

use crate::value::MessageAttributeValue;

const TEXT: u8 = 1;
const BYTES: u8 = 2;

/// `MD5OfMessageBody`, also called `MD5OfBody`.
#[must_use]
pub fn body(text: &str) -> String {
    hex(&Md5::digest(text.as_bytes()))
}

/// `MessageDeduplicationId` of a message whose body stands for it.
#[must_use]
pub fn deduplication_id(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

/// `MD5OfMessageAttributes` and `MD5OfMessageSystemAttributes`; `None` when there are none.
#[must_use]
pub fn attributes<N, V>(attributes: impl IntoIterator<Item = (N, V)>) -> Option<String>
where
    N: AsRef<str>,
    V: Borrow<MessageAttributeValue>,
{
    let mut sorted: Vec<_> = attributes.into_iter().collect();
    if sorted.is_empty() {
        return None;
    }
    sorted.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
    let mut hash = Md5::new();
    for (name, value) in &sorted {
        let value: &MessageAttributeValue = value.borrow();
        update(&mut hash, name.as_ref().as_bytes());
        update(&mut hash, value.data_type.as_bytes());
        if value.is_binary() {
            hash.update([BYTES]);
            update(&mut hash, value.binary_value.as_ref().map_or(&[], |blob| &blob.0));
        } else {
            hash.update([TEXT]);
            update(&mut hash, value.string_value.as_deref().unwrap_or_default().as_bytes());
        }
    }
    Some(hex(&hash.finalize()))
}

fn update(hash: &mut Md5, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("a part is shorter than its message");
    hash.update(length.to_be_bytes());
    hash.update(part);
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes all");
    }
    text
}
