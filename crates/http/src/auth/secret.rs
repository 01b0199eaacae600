//! The secrets of keys, and the names of keys.
//!
//! ```text
//!   sk_0f3a…  "sk_" and 48 hexadecimal digits: 192 random bits, seen only in the answer that
//!             made the key. What is stored is SHA-256 of the whole text.
//!   key_7_0198f2…  "key_", the tenant's number, "_" and 24 digits: time and chance. Not a secret.
//! ```
//!
//! Only letters, digits and `_`, so that a double click takes all of it and it can be an access
//! key of the SQS dialect.

use hmac::{Hmac, KeyInit, Mac};
use kernel::TenantId;
use sha2::{Digest, Sha256};
use tenants::{KeyHash, KeyId};

/// What every key begins with.
const PREFIX: &str = "sk_";
const SECRET_BYTES: usize = 24;
const SECRET_LEN: usize = PREFIX.len() + 2 * SECRET_BYTES;

/// A key's secret, on its one way to the client.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySecret(String);

impl KeySecret {
    /// One that nobody has.
    pub(crate) fn random() -> KeySecret {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the operating system has randomness");
        KeySecret::of(&bytes)
    }

    /// The one that this key id stands for under an idempotency key: the same request, asked
    /// again, can be answered with the same secret though only its hash was stored.
    ///
    /// The id is drawn afresh for each request and remembered with the first answer, so the same
    /// request after a day makes a key with another secret, never a revoked one again.
    pub(crate) fn derived(
        node_secret: &[u8; 32],
        id: KeyId,
        idempotency_key: &[u8],
        body: &[u8],
    ) -> KeySecret {
        let mut mac = Hmac::<Sha256>::new_from_slice(node_secret).expect("any length will do");
        mac.update(b"stampede key secret 1");
        mac.update(&id.0);
        mac.update(&(idempotency_key.len() as u64).to_be_bytes());
        mac.update(idempotency_key);
        mac.update(body);
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        let bytes = digest.first_chunk().expect("24 of 32");
        KeySecret::of(bytes)
    }

    fn of(bytes: &[u8; SECRET_BYTES]) -> KeySecret {
        KeySecret(format!("{PREFIX}{}", hex(bytes)))
    }

    /// What it is stored and found by.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        hash(self.0.as_bytes())
    }

    /// The text, for the client.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Whether this has the form of a key: what has not is refused without looking it up.
pub(crate) fn is_key(token: &str) -> bool {
    token.len() == SECRET_LEN
        && token.starts_with(PREFIX)
        && token.bytes().skip(PREFIX.len()).all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether this is meant to be a key, though it may be cut off or mistyped.
pub(crate) fn begins_as_key(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// SHA-256.
pub(crate) fn hash(bytes: &[u8]) -> KeyHash {
    KeyHash(Sha256::digest(bytes).into())
}

/// A key id that nobody has, later than those of earlier milliseconds.
pub(crate) fn new_key_id(now_ms: u64) -> KeyId {
    let mut id = [0; 12];
    getrandom::fill(&mut id[6..]).expect("the operating system has randomness");
    id[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
    KeyId(id)
}

/// A key's id as the API spells it: with its tenant, so that it can be found by it alone.
pub(crate) fn key_id_text(tenant: TenantId, id: KeyId) -> String {
    format!("key_{tenant}_{}", hex(&id.0))
}

/// Reads [`key_id_text`] back.
pub(crate) fn parse_key_id(text: &str) -> Option<(TenantId, KeyId)> {
    let (tenant, digits) = text.strip_prefix("key_")?.split_once('_')?;
    let id = KeyId(unhex(digits)?);
    let tenant = TenantId(tenant.parse().ok()?);
    // One spelling each: no sign, no leading zero, no capital.
    (key_id_text(tenant, id) == text).then_some((tenant, id))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_secret_has_the_form_of_a_key_and_is_another_each_time() {
        let (one, two) = (KeySecret::random(), KeySecret::random());
        assert!(is_key(&one.0) && is_key(&two.0) && one != two);
        assert_ne!(one.hash(), two.hash());
        for not in ["", "sk_", &one.0[1..], &one.0.to_uppercase(), &format!("{}0", one.0)] {
            assert!(!is_key(not), "{not}");
        }
    }

    #[test]
    fn a_derived_secret_depends_on_everything_and_on_nothing_else() {
        let derive = |node: u8, id: u8, key: &str, body: &[u8]| {
            KeySecret::derived(&[node; 32], KeyId([id; 12]), key.as_bytes(), body).into_text()
        };
        let first = derive(1, 1, "a", b"body");
        assert!(is_key(&first));
        assert_eq!(first, derive(1, 1, "a", b"body"));
        let others = [
            derive(2, 1, "a", b"body"),
            derive(1, 2, "a", b"body"),
            derive(1, 1, "b", b"body"),
            derive(1, 1, "a", b"other"),
            derive(1, 1, "ab", b"ody"),
        ];
        for other in others {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn key_ids_sort_by_time_and_are_read_back() {
        let (early, late) = (new_key_id(1_000), new_key_id(2_000));
        assert!(early < late);
        let text = key_id_text(TenantId(7), early);
        assert_eq!(parse_key_id(&text), Some((TenantId(7), early)));
        for not in ["", "key_", "key_7", "key_7_", "key_+7_00", &text.to_uppercase(), &text[1..]] {
            assert_eq!(parse_key_id(not), None, "{not}");
        }
        assert_eq!(parse_key_id(&text.replace("key_7", "key_07")), None);
        assert_eq!(parse_key_id("key_7_ääääääääääää"), None);
    }
}
