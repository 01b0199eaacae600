//! How recents lie in rows.
//!
//! ```text
//!   kind  after machine, kind and tenant       value
//!   'l'   user                                 List: timers, pending effect, items newest first
//!   'h'   user, number                         at_ms, digest of the folded query, query
//!   'x'   user, digest of the folded query     number: searches up to it are removed
//!   'm'   user, last number                    Manifest: an object in the archive
//!   's'   (tenant 0)                           Settings
//! ```
//!
//! A user is its length and its bytes, so that no user's keys are a prefix of another's. A list
//! is read and written on every search, so it is not decoded: a new list is the old bytes with
//! one item put in front and one left out.

use bytes::{BufMut, Bytes};
use kernel::TimerId;
use serde::{Deserialize, Serialize};

/// Appends a user to a key.
pub(crate) fn put_user(key: &mut Vec<u8>, user: &str) {
    key.put_u16(u16::try_from(user.len()).expect("the edge bounds user names"));
    key.put_slice(user.as_bytes());
}

/// A query in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Of the folded query.
    pub folded: u64,
    /// When it was last searched.
    pub at_ms: u64,
    /// The latest spelling.
    pub query: &'a str,
}

/// A user's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Fires when the user may have been idle for long enough; none when not in memory.
    pub(crate) idle_timer: Option<TimerId>,
    /// Fires when the oldest history may be old enough for the archive.
    pub(crate) archive_timer: Option<TimerId>,
    /// The archive effect under way; 0 for none.
    pub(crate) archive_effect: u64,
    /// The last search's time.
    pub(crate) active_ms: u64,
    /// What history rows and notes of removals count against the tenant.
    pub(crate) history_bytes: u64,
    /// Notes of removals.
    pub(crate) removals: u16,
    items: Bytes,
}

/// Version, two timers, the effect, the time, the bytes, the removals.
const HEADER_BYTES: usize = 1 + 16 + 16 + 8 + 8 + 8 + 2;
/// Of the list's row.
const VERSION: u8 = 1;

impl List {
    /// A user who has never searched.
    pub(crate) fn new() -> List {
        List {
            idle_timer: None,
            archive_timer: None,
            archive_effect: 0,
            active_ms: 0,
            history_bytes: 0,
            removals: 0,
            items: Bytes::new(),
        }
    }

    /// Reads a row.
    ///
    /// # Panics
    /// If it is not a list's: rows are this machine's alone.
    #[must_use]
    pub fn decode(row: &Bytes) -> List {
        assert_eq!(row[0], VERSION, "a list of a version that this binary is too old for");
        let field = |at: usize| *row[at..].first_chunk::<8>().expect("rows have a whole header");
        let timer = |at: usize| {
            let id = TimerId::from_bytes(*row[at..].first_chunk().expect("as above"));
            (id.number != 0).then_some(id)
        };
        List {
            idle_timer: timer(1),
            archive_timer: timer(17),
            archive_effect: u64::from_be_bytes(field(33)),
            active_ms: u64::from_be_bytes(field(41)),
            history_bytes: u64::from_be_bytes(field(49)),
            removals: u16::from_be_bytes([row[57], row[58]]),
            items: row.slice(HEADER_BYTES..),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(HEADER_BYTES + self.items.len());
        row.put_u8(VERSION);
        let absent = TimerId { deadline_ms: 0, number: 0 };
        row.put_slice(&self.idle_timer.unwrap_or(absent).to_bytes());
        row.put_slice(&self.archive_timer.unwrap_or(absent).to_bytes());
        row.put_u64(self.archive_effect);
        row.put_u64(self.active_ms);
        row.put_u64(self.history_bytes);
        row.put_u16(self.removals);
        row.put_slice(&self.items);
        row
    }

    /// The queries, newest first.
    #[must_use]
    pub fn items(&self) -> Items<'_> {
        Items { rest: &self.items }
    }

    /// The list with a search in front: another spelling of it is left out, and what is over
    /// `keep`.
    pub(crate) fn with_front(&self, new: Item<'_>, keep: usize) -> List {
        let mut items = Vec::with_capacity(self.items.len() + ITEM_BYTES + new.query.len());
        put_item(&mut items, new);
        for item in self.items().filter(|old| old.folded != new.folded).take(keep.saturating_sub(1))
        {
            put_item(&mut items, item);
        }
        List { active_ms: new.at_ms, items: items.into(), ..self.clone() }
    }

    /// The list without a query.
    pub(crate) fn without(&self, folded: u64) -> List {
        let mut items = Vec::with_capacity(self.items.len());
        for item in self.items().filter(|item| item.folded != folded) {
            put_item(&mut items, item);
        }
        List { items: items.into(), ..self.clone() }
    }
}

/// Digest, time, length.
const ITEM_BYTES: usize = 8 + 8 + 2;

fn put_item(out: &mut Vec<u8>, item: Item<'_>) {
    out.put_u64(item.folded);
    out.put_u64(item.at_ms);
    out.put_u16(u16::try_from(item.query.len()).expect("the edge bounds queries"));
    out.put_slice(item.query.as_bytes());
}

/// The items of a [`List`].
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (head, rest) = self.rest.split_first_chunk::<ITEM_BYTES>()?;
        let number = |at: usize| *head[at..].first_chunk::<8>().expect("the head has two");
        let len = usize::from(u16::from_be_bytes([head[16], head[17]]));
        let (query, rest) = rest.split_at(len);
        self.rest = rest;
        Some(Item {
            folded: u64::from_be_bytes(number(0)),
            at_ms: u64::from_be_bytes(number(8)),
            query: std::str::from_utf8(query).expect("written from a string"),
        })
    }
}

/// A search in the history.
pub(crate) fn history_value(at_ms: u64, folded: u64, query: &str) -> Vec<u8> {
    let mut value = Vec::with_capacity(16 + query.len());
    value.put_u64(at_ms);
    value.put_u64(folded);
    value.put_slice(query.as_bytes());
    value
}

/// An object in the archive that holds some of a user's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its name.
    pub object: String,
    /// The number of the first search in it.
    pub first: u64,
    /// The number of the last search in it.
    pub last: u64,
    /// How many there are.
    pub count: u64,
}
