//! Lists in bodies whose elements are taken or refused one by one.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Elements of a batch: messages, records.
pub(crate) const BATCH_MAX: usize = 1000;

/// Reads as many as a batch may have. What comes after them is not looked at: a body has room for
/// millions of elements that are nothing, and each would cost more than it takes to send.
pub(crate) fn deserialize_batch<'a, D: Deserializer<'a>, T: Deserialize<'a>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Elements<T>(PhantomData<T>);

    impl<'a, T: Deserialize<'a>> Visitor<'a> for Elements<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut batch = Vec::new();
            while batch.len() < BATCH_MAX {
                match elements.next_element()? {
                    Some(element) => batch.push(element),
                    None if batch.is_empty() => return Err(wrong_count()),
                    None => return Ok(batch),
                }
            }
            match elements.next_element::<IgnoredAny>()? {
                Some(IgnoredAny) => Err(wrong_count()),
                None => Ok(batch),
            }
        }
    }

    from.deserialize_seq(Elements(PhantomData))
}

fn wrong_count<E: serde::de::Error>() -> E {
    E::custom(format_args!("there must be from 1 to {BATCH_MAX}"))
}
