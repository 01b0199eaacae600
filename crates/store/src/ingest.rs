//! A layer, as the sorted changes that the store takes.

use std::iter::Peekable;
use std::ops::Bound;

use bytes::Bytes;
use kernel::rows::prefix_end;
use kernel::{BaseError, Layer};

use crate::views::View;

/// A row to write, or to delete.
pub(crate) type Change = (Bytes, Option<Bytes>);

/// The changes of `layer` in key order: its own rows, and a deletion for each row of the store
/// that lies under a dropped prefix and is not written anew.
///
/// Lazy on both sides: a dropped prefix may cover more rows than fit in memory.
pub(crate) fn changes<'a>(
    layer: &'a Layer,
    view: &'a View,
) -> impl Iterator<Item = Result<Change, BaseError>> + 'a {
    let rows = layer.iter().map(|(key, slot)| (Bytes::copy_from_slice(key), slot.value().cloned()));
    // No dropped prefix contains another, so their keys in turn are in order.
    let doomed = layer.dropped().flat_map(|prefix| {
        let end = prefix_end(prefix);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        view.keys(Bound::Included(prefix), to)
    });
    Changes { rows: rows.peekable(), doomed: doomed.peekable() }
}

struct Changes<R: Iterator, D: Iterator> {
    rows: Peekable<R>,
    doomed: Peekable<D>,
}

impl<R, D> Iterator for Changes<R, D>
where
    R: Iterator<Item = Change>,
    D: Iterator<Item = Result<Bytes, BaseError>>,
{
    type Item = Result<Change, BaseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (row, doomed) = match (self.rows.peek(), self.doomed.peek()) {
            (_, Some(Err(_))) | (None, Some(_)) => return self.next_deletion(),
            (_, None) => return self.rows.next().map(Ok),
            (Some((row, _)), Some(Ok(doomed))) => (row, doomed),
        };
        if doomed < row {
            return self.next_deletion();
        }
        if doomed == row {
            self.doomed.next();
        }
        self.rows.next().map(Ok)
    }
}

impl<R, D> Changes<R, D>
where
    R: Iterator<Item = Change>,
    D: Iterator<Item = Result<Bytes, BaseError>>,
{
    fn next_deletion(&mut self) -> Option<Result<Change, BaseError>> {
        self.doomed.next().map(|key| key.map(|key| (key, None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(rows: &[(&'static str, Option<&'static str>)], doomed: &[&'static str]) -> String {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let rows: Vec<Change> =
            rows.iter().map(|(key, value)| (bytes(key), value.map(bytes))).collect();
        let doomed: Vec<_> = doomed.iter().map(|key| Ok(bytes(key))).collect();
        let changes =
            Changes { rows: rows.into_iter().peekable(), doomed: doomed.into_iter().peekable() };
        changes
            .map(|change| {
                let (key, value) = change.expect("no failures here");
                let key = String::from_utf8_lossy(&key).into_owned();
                value.map_or(format!("-{key} "), |value| {
                    format!("{key}={} ", String::from_utf8_lossy(&value))
                })
            })
            .collect()
    }

    #[test]
    fn deletions_come_in_key_order_between_rows() {
        assert_eq!(merged(&[("b", Some("1")), ("d", None)], &["a", "c", "e"]), "-a b=1 -c -d -e ");
    }

    #[test]
    fn a_row_written_anew_is_not_deleted() {
        assert_eq!(merged(&[("a", Some("1"))], &["a", "b"]), "a=1 -b ");
    }

    #[test]
    fn either_side_may_be_empty() {
        assert_eq!(merged(&[], &["a"]), "-a ");
        assert_eq!(merged(&[("a", None)], &[]), "-a ");
        assert_eq!(merged(&[], &[]), "");
    }
}
