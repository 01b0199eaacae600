//! Tenants, their keys and their quotas, as a machine.
//!
//! ```text
//!   tenant   ── CreateTenant ──▶ live ── SetQuotas, SetShopperKeys ──▶ live
//!                                 │
//!                                 └── DeleteTenant ──▶ deleted (the number is never used again,
//!                                       │               the name may be)
//!                                       ▼
//!   key      ── CreateKey ─────▶ live ── RevokeKey ──▶ revoked ── a day later ──▶ forgotten
//!                                 │
//!                                 └── its expiry, seen by the edge's clock: refused, still listed
//! ```
//!
//! All of it lives at one place, [`place`], because names are unique among all tenants; and it is
//! read from views, without entering the shard, because every request asks who is calling.
//!
//! Invariants:
//!
//! - A secret is never here: a key is kept, and found, by the SHA-256 of its secret.
//! - A row and its view hold the same bytes, written by the same command. What is deleted or
//!   revoked is *replaced* by a tombstone, so that a view that was loaded from the row a moment
//!   ago is replaced as well.
//! - A tenant has at most [`KEYS_MAX`] keys, so deleting it is one command of bounded work.
//! - Tenant `default` has number 1 from [`Command::Bootstrap`] on, is never deleted, and never
//!   loses its last admin key that does not expire.
//! - Tenants and keys are not counted against quotas: they are bounded by the limits here.
//!
//! Deliberately absent: the clock of expiry, the rate of requests and the count of connections.
//! Those are the edge's, which knows the time and the connections. Deleting a tenant does not
//! touch its rows in other machines; with its keys gone nobody can reach them, and its
//! [`TenantRow::Deleted`] stays, for the sweep that will remove them.

mod apply;
mod command;
mod old;
mod record;
mod state;
#[cfg(test)]
mod tests;

use kernel::{MachineId, TenantId, VirtualShard};

pub use apply::Tenants;
pub use command::{
    Command, CreateKey, CreateTenant, DeleteTenant, NewKey, Refusal, Reply, RevokeKey, SetQuotas,
    SetShopperKeys,
};
pub use record::{
    KeyHash, KeyId, KeyRecord, KeyRow, NameRow, Quotas, Record, Scope, Scopes, ShopperKeys,
    TenantRecord, TenantRow, VerifyingKeys,
};
pub use state::{key, key_row, keys, name_row, tenant, tenant_named, tenant_row, tenants};

/// The machine's number.
pub const MACHINE: MachineId = MachineId(2);

/// The machine's name.
pub const NAME: &str = "tenants";

/// The operator's tenant: there from the first start, never deleted.
pub const DEFAULT_TENANT: TenantId = TenantId(1);

/// The name of [`DEFAULT_TENANT`].
pub const DEFAULT_NAME: &str = "default";

/// Live keys of one tenant. *(frozen)*
pub const KEYS_MAX: u32 = 1000;

/// Bytes of a key's name. *(frozen)*
pub const KEY_NAME_BYTES_MAX: usize = 256;

/// Bytes of a tenant's shopper keys: a JWKS document with some dozens of keys. *(frozen)*
pub const SHOPPER_KEYS_BYTES_MAX: usize = 64 << 10;

/// Characters of a tenant's name. *(frozen)*
pub const TENANT_NAME_MAX: usize = 64;

/// How long a revoked key or a freed name stays as a tombstone: far longer than any reader is on
/// the way to its row. *(frozen)*
pub const TOMBSTONE_MS: u64 = 24 * 60 * 60 * 1000;

/// Where every row of this machine lives.
#[must_use]
pub const fn place() -> VirtualShard {
    VirtualShard(0)
}

/// The key of a key's view: that of its row.
#[must_use]
pub fn key_view(hash: &KeyHash) -> Vec<u8> {
    key_row(hash)
}

/// The key of a tenant's view: that of its row.
#[must_use]
pub fn tenant_view(tenant: TenantId) -> Vec<u8> {
    tenant_row(tenant)
}

/// The key of a name's view: that of its row.
#[must_use]
pub fn name_view(name: &str) -> Vec<u8> {
    name_row(name)
}

/// Whether a tenant can have this name: 1 to 64 of `a-z`, `0-9` and `-`, and not only digits,
/// so that a path can name a tenant by its number as well.
#[must_use]
pub fn is_tenant_name(name: &str) -> bool {
    (1..=TENANT_NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !name.bytes().all(|b| b.is_ascii_digit())
}
