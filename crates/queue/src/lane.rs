//! Lanes: rows that are put in at one end and taken out at the other.
//!
//! The head of a long lane lies in the store, where every look costs much more than the rows it finds.
//! So rows are read *ahead*: some more than are wanted now, kept at hand until their turn comes. Rows
//! stay the truth: a row of a lane is never changed, its place is never used again, and whoever takes it
//! out says so here.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use kernel::rows::Scan;

use crate::apply::Desk;
use crate::state::{Lane, lane_key};

/// Rows that are read at a time: few at first, and twice as many each time that all were used.
const ROWS_AT_FIRST: usize = 16;
const ROWS_AT_MOST: usize = 256;
/// Bytes that are read at a time; one row may have more.
const BYTES_AT_ONCE: usize = 256 << 10;
/// Bytes held ahead for all lanes of a shard; beyond it all are read from rows again.
const HELD_BYTES_MAX: usize = 8 << 20;
/// What a lane costs here besides its rows, and a row besides its bytes.
const OVERHEAD_BYTES: usize = 128;

/// Rows at hand before they are asked for, of every lane that was read from the store.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// By the queue's number and the lane's.
    lanes: BTreeMap<(u64, u8), Stretch>,
    bytes: usize,
}

/// All rows that a lane has from one position to another.
#[derive(Debug, Default)]
struct Stretch {
    from: u64,
    to: u64,
    rows: VecDeque<(u64, Bytes)>,
    /// How many the last look was for.
    looked_for: usize,
}

/// What is known of a lane from a position on.
enum Next {
    Row(u64, Bytes),
    /// Nothing before that position.
    Nothing(u64),
    Unknown,
}

impl Ahead {
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn next(&self, lane: (u64, u8), position: u64) -> Next {
        let Some(stretch) = self.lanes.get(&lane) else { return Next::Unknown };
        if !(stretch.from..stretch.to).contains(&position) {
            return Next::Unknown;
        }
        let at = stretch.rows.partition_point(|(known, _)| *known < position);
        match stretch.rows.get(at) {
            Some((position, row)) => Next::Row(*position, row.clone()),
            None => Next::Nothing(stretch.to),
        }
    }

    /// How many rows to look for from a position on: more than the last time when that was the end
    /// of what was known.
    fn to_look_for(&self, lane: (u64, u8), position: u64) -> usize {
        match self.lanes.get(&lane) {
            Some(stretch) if stretch.to == position => (stretch.looked_for * 2).min(ROWS_AT_MOST),
            _ => ROWS_AT_FIRST,
        }
    }

    fn keep(&mut self, lane: (u64, u8), stretch: Stretch) {
        if self.bytes >= HELD_BYTES_MAX {
            *self = Ahead::default();
        }
        self.bytes += stretch.bytes();
        let before = self.lanes.insert(lane, stretch);
        self.bytes -= before.map_or(0, |stretch| stretch.bytes());
    }

    /// A row was taken out of its lane.
    fn taken(&mut self, lane: (u64, u8), position: u64) {
        let Some(stretch) = self.lanes.get_mut(&lane) else { return };
        if let Ok(at) = stretch.rows.binary_search_by_key(&position, |(known, _)| *known) {
            let (_, row) = stretch.rows.remove(at).expect("it was found there");
            self.bytes -= row.len() + OVERHEAD_BYTES;
            if stretch.rows.is_empty() {
                // Of many lanes that are all used up, the room for rows would be most of what is held.
                stretch.rows = VecDeque::new();
            }
        }
    }
}

impl Stretch {
    fn bytes(&self) -> usize {
        let rows = self.rows.iter().map(|(_, row)| row.len() + OVERHEAD_BYTES);
        OVERHEAD_BYTES + rows.sum::<usize>()
    }
}

impl Desk<'_, '_> {
    /// Puts a row at the end of a lane. Where that is.
    pub(crate) fn push(&mut self, lane: u8, value: impl Into<Bytes>) -> u64 {
        let lanes = &mut self.counts.lanes;
        let at = lanes.iter().position(|known| known.number == lane).unwrap_or_else(|| {
            lanes.push(Lane { number: lane, ..Lane::default() });
            lanes.len() - 1
        });
        let lane = &mut lanes[at];
        let position = lane.next;
        lane.next += 1;
        lane.len += 1;
        let number = lane.number;
        self.turn.put_new(lane_key(self.tenant(), self.number(), number, position), value.into());
        position
    }

    /// The first rows of a lane, at most `limit`, and no more when they have so many bytes: their
    /// positions and values.
    pub(crate) fn front(&self, lane: Lane, limit: usize, bytes_max: usize) -> Vec<(u64, Bytes)> {
        let mut found = Vec::with_capacity(limit.min(usize::try_from(lane.len).unwrap_or(limit)));
        let (mut next, mut bytes) = (lane.head, 0);
        while next < lane.next && found.len() < limit && (bytes < bytes_max || found.is_empty()) {
            let (position, row) = match self.next_in(lane, next) {
                Next::Row(position, row) => (position, row),
                Next::Nothing(to) => {
                    next = to;
                    continue;
                }
                Next::Unknown => {
                    self.read_ahead(lane, next);
                    continue;
                }
            };
            bytes += row.len();
            found.push((position, row));
            next = position + 1;
        }
        self.note_read(bytes);
        found
    }

    fn next_in(&self, lane: Lane, position: u64) -> Next {
        let (rows, number) = (self.turn.rows(), self.number());
        let key_at = |position| lane_key(self.tenant(), number, lane.number, position);
        let known = self.ahead.borrow().next((number, lane.number), position);
        match &known {
            Next::Row(at, row) => debug_assert_eq!(rows.get(&key_at(*at)).as_ref(), Some(row)),
            Next::Nothing(_) => {}
            // What is young is in memory, one row after the other: no need to open the store for it.
            Next::Unknown => {
                if let Some(Some(row)) = rows.in_memory(&key_at(position)) {
                    return Next::Row(position, row);
                }
            }
        }
        known
    }

    /// Reads rows of a lane from a position on, which is before its end.
    fn read_ahead(&self, lane: Lane, from: u64) {
        let mut ahead = self.ahead.borrow_mut();
        let name = (self.number(), lane.number);
        let key_at = |position| lane_key(self.tenant(), self.number(), lane.number, position);
        let looked_for = ahead.to_look_for(name, from);
        let scan = Scan::between(&key_at(from), &key_at(lane.next));
        let scan = scan.limit(looked_for).bytes(BYTES_AT_ONCE);
        let found = self.turn.rows().scan(&scan);
        let is_cut = scan.is_cut(&found);
        let position = |key: &Bytes| *key.last_chunk::<8>().expect("the end is the position");
        let rows = found.into_iter().map(|(key, row)| (u64::from_be_bytes(position(&key)), row));
        let rows: VecDeque<(u64, Bytes)> = rows.collect();
        let to = match rows.back() {
            Some((last, _)) if is_cut => last + 1,
            _ => lane.next,
        };
        ahead.keep(name, Stretch { from, to, rows, looked_for });
    }

    /// Takes the first row out of a lane, which is at `position`.
    pub(crate) fn pop(&mut self, lane: u8, position: u64) {
        let known = self.delete_row(lane, position);
        known.head = position + 1;
    }

    /// Takes a row out of a lane, wherever in it.
    pub(crate) fn take_from_middle(&mut self, lane: u8, position: u64) {
        let known = self.delete_row(lane, position);
        // Or the next receive would look through all that is gone.
        if known.len == 0 {
            known.head = known.next;
        } else if position == known.head {
            known.head = position + 1;
        }
    }

    fn delete_row(&mut self, lane: u8, position: u64) -> &mut Lane {
        self.turn.delete(&lane_key(self.tenant(), self.number(), lane, position));
        self.ahead.borrow_mut().taken((self.number(), lane), position);
        let known = self.counts.lanes.iter_mut().find(|known| known.number == lane);
        let known = known.expect("a row was found in it");
        known.len -= 1;
        known
    }
}
