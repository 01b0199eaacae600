//! How recents are read: from rows, on any thread, without entering the shard.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use kernel::codec::{Reader, read_versioned};
use kernel::machine::machine_key;
use kernel::rows::{ReadRows, Scan};
use kernel::{TenantId, VirtualShard};

use crate::MACHINE;
use crate::command::Settings;
use crate::state::{Manifest, put_user};

/// Where a user lives.
#[must_use]
pub fn place(tenant: TenantId, user: &str) -> VirtualShard {
    VirtualShard::of(tenant, MACHINE, user.as_bytes())
}

/// The beginning of the keys of one kind of a user's rows.
#[must_use]
pub fn user_key(tenant: TenantId, kind: u8, user: &str) -> Vec<u8> {
    let mut key = machine_key(MACHINE, kind, tenant);
    put_user(&mut key, user);
    key
}

/// The row of a user's list. Its view has the same key and the same value.
#[must_use]
pub fn list_row(tenant: TenantId, user: &str) -> Vec<u8> {
    user_key(tenant, b'l', user)
}

/// One search of a user's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the history; growing.
    pub number: u64,
    /// When.
    pub at_ms: u64,
    /// Of the folded query.
    pub folded: u64,
    /// As typed.
    pub query: String,
    /// What its row takes, key and value.
    pub row_bytes: u64,
}

fn entry(key: &Bytes, value: Bytes) -> Entry {
    let number = key.last_chunk::<8>().expect("history keys end in a number");
    let row_bytes = (key.len() + value.len()) as u64;
    let mut reader = Reader::new(value);
    Entry {
        number: u64::from_be_bytes(*number),
        at_ms: reader.u64().expect("written by add"),
        folded: reader.u64().expect("written by add"),
        query: String::from_utf8(reader.rest().to_vec()).expect("written from a string"),
        row_bytes,
    }
}

/// Queries that a user has removed, and up to which search.
#[derive(Clone, Debug, Default)]
pub struct Removals(BTreeMap<u64, u64>);

impl Removals {
    /// Whether a search must not show.
    #[must_use]
    pub fn hide(&self, folded: u64, number: u64) -> bool {
        self.0.get(&folded).is_some_and(|through| number <= *through)
    }
}

/// What a user has removed.
#[must_use]
pub fn removals(rows: &impl ReadRows, tenant: TenantId, user: &str) -> Removals {
    let found = rows.scan(&Scan::prefix(&user_key(tenant, b'x', user)));
    let pairs = found.into_iter().map(|(key, value)| {
        let folded = key.last_chunk::<8>().expect("removal keys end in a digest");
        (u64::from_be_bytes(*folded), Reader::new(value).u64().expect("written by remove"))
    });
    Removals(pairs.collect())
}

/// Part of a user's history, newest first.
#[derive(Clone, Debug, Default)]
pub struct HistoryPage {
    /// The searches, without the removed ones.
    pub entries: Vec<Entry>,
    /// True when rows hold no older ones: what is left is in the archive.
    pub rows_exhausted: bool,
}

/// Searches before `before` that are in rows, newest first, at most `limit`.
#[must_use]
pub fn history(
    rows: &impl ReadRows,
    tenant: TenantId,
    user: &str,
    mut before: u64,
    limit: usize,
    removals: &Removals,
) -> HistoryPage {
    let prefix = user_key(tenant, b'h', user);
    let mut page = HistoryPage::default();
    while page.entries.len() < limit {
        let mut end = prefix.clone();
        end.put_u64(before);
        let scan = Scan::prefix(&prefix).before(&end).reversed().limit(limit);
        let found = rows.scan(&scan);
        page.rows_exhausted = found.len() < limit;
        for (key, value) in found {
            // The page is full before these rows are: what is left of them is on the next page.
            if page.entries.len() == limit {
                page.rows_exhausted = false;
                break;
            }
            let entry = entry(&key, value);
            before = entry.number;
            if !removals.hide(entry.folded, entry.number) {
                page.entries.push(entry);
            }
        }
        if page.rows_exhausted {
            break;
        }
    }
    page
}

/// The oldest searches in rows that were made before `before_ms`, at most `limit`.
#[must_use]
pub fn oldest(
    rows: &impl ReadRows,
    tenant: TenantId,
    user: &str,
    before_ms: u64,
    limit: usize,
) -> Vec<Entry> {
    rows.scan(&Scan::prefix(&user_key(tenant, b'h', user)).limit(limit))
        .into_iter()
        .map(|(key, value)| entry(&key, value))
        .take_while(|entry| entry.at_ms < before_ms)
        .collect()
}

/// The time of the oldest search in rows.
pub(crate) fn oldest_ms(rows: &impl ReadRows, tenant: TenantId, user: &str) -> Option<u64> {
    let found = rows.scan(&Scan::prefix(&user_key(tenant, b'h', user)).limit(1));
    found.into_iter().next().map(|(key, value)| entry(&key, value).at_ms)
}

/// A user's archive objects with searches before `before`, newest first. At most `limit` of all
/// are looked at.
#[must_use]
pub fn manifests(
    rows: &impl ReadRows,
    tenant: TenantId,
    user: &str,
    before: u64,
    limit: usize,
) -> Vec<Manifest> {
    let prefix = user_key(tenant, b'm', user);
    let found = rows.scan(&Scan::prefix(&prefix).reversed().limit(limit));
    let all = found.iter().map(|(_, value)| {
        read_versioned::<Manifest>("a manifest", value).expect("written by archived")
    });
    all.filter(|manifest| manifest.first < before).collect()
}

/// The settings in force in a shard.
#[must_use]
pub fn settings(rows: &impl ReadRows) -> Settings {
    rows.get(&settings_row())
        .map(|row| read_versioned("settings", &row).expect("written by configure"))
        .unwrap_or_default()
}

/// The row of the settings: one a shard, of no tenant.
pub(crate) fn settings_row() -> Vec<u8> {
    machine_key(MACHINE, b's', TenantId::SYSTEM)
}
