//! Where things are: the keys of rows and views, and the questions that can be asked of them.
//!
//! ```text
//!   key                                  value                 view
//!   't' tenant                           TenantRow             yes, under the same key
//!   'k' 0 sha256(secret)                 KeyRow                yes, under the same key
//!   'n' 0 name                           NameRow               yes, under the same key
//!   'i' tenant key id                    sha256(secret)        no: lists and revocation
//!   'c' 0                                next tenant, u32      no
//! ```
//!
//! Every key begins with the machine's number and the kind; see
//! [`machine_key`](kernel::machine::machine_key). Rows that belong to no tenant have tenant 0.

use bytes::Bytes;
use kernel::TenantId;
use kernel::machine::machine_key;
use kernel::rows::{ReadRows, Scan};

use crate::record::{KeyHash, KeyId, KeyRecord, KeyRow, NameRow, Record, TenantRecord, TenantRow};
use crate::{KEYS_MAX, MACHINE};

/// The row of a tenant, and the key of its view.
#[must_use]
pub fn tenant_row(tenant: TenantId) -> Vec<u8> {
    machine_key(MACHINE, b't', tenant)
}

/// The row of a key, and the key of its view.
#[must_use]
pub fn key_row(hash: &KeyHash) -> Vec<u8> {
    let mut key = machine_key(MACHINE, b'k', TenantId::SYSTEM);
    key.extend_from_slice(&hash.0);
    key
}

/// The row of a tenant's name, and the key of its view.
#[must_use]
pub fn name_row(name: &str) -> Vec<u8> {
    let mut key = machine_key(MACHINE, b'n', TenantId::SYSTEM);
    key.extend_from_slice(name.as_bytes());
    key
}

/// The beginning of the rows that list a tenant's keys.
pub(crate) fn key_list(tenant: TenantId) -> Vec<u8> {
    machine_key(MACHINE, b'i', tenant)
}

/// The row that leads from a key's id to its hash.
pub(crate) fn key_id_row(tenant: TenantId, id: KeyId) -> Vec<u8> {
    let mut key = key_list(tenant);
    key.extend_from_slice(&id.0);
    key
}

/// The row that holds the number of the next tenant.
pub(crate) fn next_tenant_row() -> Vec<u8> {
    machine_key(MACHINE, b'c', TenantId::SYSTEM)
}

fn read<R: Record>(rows: &impl ReadRows, key: &[u8]) -> Option<R> {
    rows.get(key).map(|value| R::decode(&value).expect("written by this machine"))
}

/// A tenant, unless it never was or is no more.
#[must_use]
pub fn tenant(rows: &impl ReadRows, tenant: TenantId) -> Option<TenantRecord> {
    match read(rows, &tenant_row(tenant)) {
        Some(TenantRow::Live(record)) => Some(record),
        Some(TenantRow::Deleted { .. }) | None => None,
    }
}

/// The tenant that has a name.
#[must_use]
pub fn tenant_named(rows: &impl ReadRows, name: &str) -> Option<TenantId> {
    match read(rows, &name_row(name)) {
        Some(NameRow::Taken(tenant)) => Some(tenant),
        Some(NameRow::Free) | None => None,
    }
}

/// A key by its id, with the hash it is found by.
#[must_use]
pub fn key(rows: &impl ReadRows, tenant: TenantId, id: KeyId) -> Option<(KeyHash, KeyRecord)> {
    let hash = hash_of(&rows.get(&key_id_row(tenant, id))?);
    // From outside the machine's thread a key may be revoked between the two reads.
    match read(rows, &key_row(&hash)) {
        Some(KeyRow::Live(record)) => Some((hash, record)),
        Some(KeyRow::Revoked { .. }) | None => None,
    }
}

fn hash_of(value: &[u8]) -> KeyHash {
    KeyHash(value.try_into().expect("the list of keys holds hashes"))
}

/// The tenants after `after`, in the order of their making; at most `limit`.
#[must_use]
pub fn tenants(rows: &impl ReadRows, after: TenantId, limit: usize) -> Vec<TenantRecord> {
    let kind = &tenant_row(TenantId::SYSTEM)[..3];
    let mut found = Vec::new();
    let mut from = tenant_row(after);
    // Deleted tenants stay as rows, so a page may take more than one scan.
    while found.len() < limit {
        let page = rows.scan(&Scan::prefix(kind).after(&from).limit(limit));
        let Some((last, _)) = page.last() else { break };
        from = last.to_vec();
        for (_, value) in page {
            match TenantRow::decode(&value).expect("written by this machine") {
                TenantRow::Live(record) if found.len() < limit => found.push(record),
                TenantRow::Live(_) | TenantRow::Deleted { .. } => {}
            }
        }
    }
    found
}

/// A tenant's keys after `after` (`None`: from the first), in the order of their making; at most
/// `limit`.
#[must_use]
pub fn keys(
    rows: &impl ReadRows,
    tenant: TenantId,
    after: Option<KeyId>,
    limit: usize,
) -> Vec<KeyRecord> {
    let mut scan = Scan::prefix(&key_list(tenant)).limit(limit);
    if let Some(after) = after {
        scan = scan.after(&key_id_row(tenant, after));
    }
    let found = rows.scan(&scan);
    // As in `key`: what was revoked between the reads is left out.
    let record = |(_, value): &(Bytes, Bytes)| match read(rows, &key_row(&hash_of(value))) {
        Some(KeyRow::Live(record)) => Some(record),
        Some(KeyRow::Revoked { .. }) | None => None,
    };
    found.iter().filter_map(record).collect()
}

/// The ids and hashes of all keys of a tenant: never more than [`KEYS_MAX`].
pub(crate) fn key_hashes(rows: &impl ReadRows, tenant: TenantId) -> Vec<(Bytes, KeyHash)> {
    let found = rows.scan(&Scan::prefix(&key_list(tenant)).limit(KEYS_MAX as usize));
    found.into_iter().map(|(key, value)| (key, hash_of(&value))).collect()
}
