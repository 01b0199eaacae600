//! Lists in bodies whose elements are taken or refused one by one.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::body::parse;
use crate::problem::Problem;

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

/// An element that cannot be read.
pub(crate) struct Unread {
    /// As it came.
    pub(crate) element: Box<RawValue>,
    /// Why.
    pub(crate) problem: Problem,
}

/// Reads a body with a list, of which each element is good or bad by itself: as a whole, and where that
/// fails as a list of whatever it is, element by element. Only who sends something wrong pays for reading
/// it twice.
///
/// # Errors
/// What is wrong with all of it: it has no such list, or one of too many or none.
pub(crate) fn read_batch<T: DeserializeOwned, Whole: DeserializeOwned, Loose: DeserializeOwned>(
    raw: &[u8],
    of_whole: fn(Whole) -> Vec<T>,
    of_loose: fn(Loose) -> Vec<Box<RawValue>>,
) -> Result<Vec<Result<T, Unread>>, Problem> {
    if let Ok(whole) = parse(raw) {
        return Ok(of_whole(whole).into_iter().map(Ok).collect());
    }
    let one = |element: Box<RawValue>| {
        parse(element.get().as_bytes()).map_err(|problem| Unread { element, problem })
    };
    Ok(of_loose(parse(raw)?).into_iter().map(one).collect())
}

fn wrong_count<E: serde::de::Error>() -> E {
    E::custom(format_args!("there must be from 1 to {BATCH_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Number {
        n: u64,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Numbers<T: DeserializeOwned> {
        #[serde(deserialize_with = "deserialize_batch")]
        numbers: Vec<T>,
    }

    fn read(raw: &str) -> Result<Vec<Result<Number, Unread>>, Problem> {
        let of_whole = |whole: Numbers<Number>| whole.numbers;
        let of_loose = |loose: Numbers<Box<RawValue>>| loose.numbers;
        read_batch(raw.as_bytes(), of_whole, of_loose)
    }

    #[test]
    fn an_element_that_cannot_be_read_keeps_no_other_out() {
        let good = read(r#"{"numbers": [{"n": 1}, {"n": 2}]}"#).expect("a list");
        assert_eq!(good.iter().flatten().map(|number| number.n).collect::<Vec<_>>(), [1, 2]);
        let mixed = read(r#"{"numbers": [{"n": 1}, {"m": 2}, [3], {"n": 4}]}"#).expect("a list");
        let shown = mixed.iter().map(|read| match read {
            Ok(number) => number.n.to_string(),
            Err(Unread { element, problem }) => format!("{element}: {}", problem.kind.slug()),
        });
        let expect = ["1", r#"{"m": 2}: invalid-body"#, "[3]: invalid-body", "4"];
        assert_eq!(shown.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn what_is_wrong_with_all_of_it_is_the_answer() {
        let many = format!(r#"{{"numbers": [{}0]}}"#, "0,".repeat(BATCH_MAX));
        for (raw, said) in [
            (r#"{"numbers": []}"#, "at numbers: there must be from 1 to 1000"),
            (&many, "at numbers: there must be from 1 to 1000"),
            (r#"{"numbers": 1}"#, "at numbers"),
            (r#"{"number": [{"m": 1}]}"#, "`number`"),
            (r#"{"numbers": [{"n": 1}], "more": 1}"#, "`more`"),
            (r#"{"numbers": [{"n": 1}"#, "ends too soon"),
        ] {
            let problem = read(raw).err().expect("it is refused");
            assert!(problem.detail.contains(said), "{}", problem.detail);
        }
    }
}
