//! A scan over all layers and the base.

use std::iter::Peekable;
use std::ops::Bound;

use bytes::Bytes;

use super::{Layer, LayerIter, RowsLost, Scan, is_empty_range, prefix_end};
use crate::base::{Base, BaseIter, Row};

/// Rows that a newer layer hides are passed one by one, up to so many; then the source is opened anew
/// behind their prefix. A purge hides millions, which nobody may walk through, and a thousand purges
/// may hide a row each, for which nobody should open a thousand iterators.
const HIDDEN_MAX: usize = 16;

type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// One of the sources of a merge: its next key is compared with those of the others.
struct Source<'a> {
    origin: Origin<'a>,
    rows: Peekable<SourceIter<'a>>,
    /// Rows that were hidden since it was opened, or since the last that was not.
    hidden: usize,
}

#[derive(Clone, Copy)]
enum Origin<'a> {
    Layer(&'a Layer),
    Base(&'a dyn Base),
}

enum SourceIter<'a> {
    Layer(LayerIter<'a>),
    Base(BaseIter<'a>),
}

impl Iterator for SourceIter<'_> {
    type Item = (Bytes, Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            SourceIter::Layer(rows) => {
                rows.next().map(|(key, slot)| (Bytes::copy_from_slice(key), slot.value().cloned()))
            }
            SourceIter::Base(rows) => rows.next().map(|row| match row {
                Ok((key, value)) => (key, Some(value)),
                Err(error) => std::panic::panic_any(RowsLost(error)),
            }),
        }
    }
}

impl<'a> Source<'a> {
    fn open(origin: Origin<'a>, (start, end): Range<'_>, reverse: bool) -> Source<'a> {
        let rows = match origin {
            // Not every base takes a range that ends before it begins.
            Origin::Base(_) if is_empty_range(start, end) => {
                SourceIter::Base(Box::new(std::iter::empty()))
            }
            Origin::Layer(layer) => SourceIter::Layer(layer.range(start, end, reverse)),
            Origin::Base(base) => SourceIter::Base(base.range(start, end, reverse)),
        };
        Source { origin, rows: rows.peekable(), hidden: 0 }
    }

    /// The prefix by which it hides a key of the sources behind it.
    fn hides(&self, key: &[u8]) -> Option<&'a Bytes> {
        match self.origin {
            Origin::Layer(layer) => layer.dropped_over(key),
            Origin::Base(_) => None,
        }
    }

    /// Its last row was hidden by this prefix.
    fn pass(&mut self, prefix: &[u8], scan: &Scan) {
        self.hidden += 1;
        if self.hidden < HIDDEN_MAX {
            return;
        }
        let behind = prefix_end(prefix);
        let range = match (&behind, scan.reverse) {
            (_, true) => (scan.from(), Bound::Excluded(prefix)),
            (Some(behind), false) => (Bound::Included(behind.as_slice()), scan.to()),
            (None, false) => return,
        };
        *self = Source::open(self.origin, range, scan.reverse);
    }
}

/// Newest first among the sources: of equal keys the first source's wins, and a key that a newer
/// layer drops is passed over.
pub(super) fn merge(
    active: &Layer,
    frozen: Option<&Layer>,
    base: &dyn Base,
    scan: &Scan,
) -> Vec<Row> {
    let mut found = Vec::new();
    if scan.limit == 0 || is_empty_range(scan.from(), scan.to()) {
        return found;
    }
    let layers = [Some(active), frozen].into_iter().flatten().map(Origin::Layer);
    let mut sources: Vec<Source<'_>> = layers
        .chain([Origin::Base(base)])
        .map(|origin| Source::open(origin, (scan.from(), scan.to()), scan.reverse))
        .collect();
    let mut bytes = 0;
    while found.len() < scan.limit && (bytes < scan.bytes || found.is_empty()) {
        let Some(first) = next_source(&mut sources, scan.reverse) else { break };
        let (newer, rest) = sources.split_at_mut(first);
        let (source, older) = rest.split_first_mut().expect("it was found");
        let (key, value) = source.rows.next().expect("it was peeked");
        for older in older {
            if older.rows.peek().is_some_and(|(other, _)| *other == key) {
                older.rows.next();
            }
        }
        if let Some(prefix) = newer.iter().find_map(|source| source.hides(&key)) {
            source.pass(prefix, scan);
            continue;
        }
        source.hidden = 0;
        if let Some(value) = value {
            bytes += value.len();
            found.push((key, value));
        }
    }
    found
}

/// The source whose next key comes first; of equals the newest.
fn next_source(sources: &mut [Source<'_>], reverse: bool) -> Option<usize> {
    let mut best: Option<(usize, Bytes)> = None;
    for (number, source) in sources.iter_mut().enumerate() {
        let Some((key, _)) = source.rows.peek() else { continue };
        let wins = match &best {
            None => true,
            Some((_, other)) => {
                if reverse {
                    key > other
                } else {
                    key < other
                }
            }
        };
        if wins {
            best = Some((number, key.clone()));
        }
    }
    best.map(|(number, _)| number)
}
