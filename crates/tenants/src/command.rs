//! What the machine can be told, and what it answers.
//!
//! A command is `[tag][version][postcard body]`. To change a body, give it the next version, keep
//! decoding the old one, and add its bytes to the golden test: logs hold commands for ever.

use bytes::Bytes;
use kernel::codec::{pack, read_versioned, split_command, unpack, versioned_as};
use kernel::{TenantId, Unreadable};
use serde::{Deserialize, Serialize};

use crate::old;
use crate::record::{KeyHash, KeyId, KeyRecord, Quotas, Scopes, ShopperKeys, TenantRecord};

/// Something to be done to tenants and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Makes tenant `default` and its first admin key, both or neither, unless `default` is there.
    Bootstrap(NewKey),
    /// Makes a tenant.
    CreateTenant(CreateTenant),
    /// Deletes a tenant and revokes its keys.
    DeleteTenant(DeleteTenant),
    /// Replaces a tenant's quotas.
    SetQuotas(SetQuotas),
    /// Replaces, or takes away, what a tenant's shoppers' tokens are verified with.
    SetShopperKeys(SetShopperKeys),
    /// Makes a key.
    CreateKey(CreateKey),
    /// Revokes a key.
    RevokeKey(RevokeKey),
}

/// A key to be made. The machine never sees the secret, only its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKey {
    /// Drawn at the edge.
    pub id: KeyId,
    /// SHA-256 of the secret.
    pub hash: KeyHash,
    /// For people.
    pub name: String,
    /// What it opens.
    pub scopes: Scopes,
    /// From when on it opens nothing.
    pub expires_at_ms: Option<u64>,
}

/// See [`Command::CreateTenant`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTenant {
    /// See [`crate::is_tenant_name`].
    pub name: String,
}

/// See [`Command::DeleteTenant`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTenant {
    /// Which.
    pub tenant: TenantId,
}

/// See [`Command::SetQuotas`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetQuotas {
    /// Whose.
    pub tenant: TenantId,
    /// All of them.
    pub quotas: Quotas,
}

/// See [`Command::SetShopperKeys`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetShopperKeys {
    /// Whose.
    pub tenant: TenantId,
    /// `None` takes them away.
    pub keys: Option<ShopperKeys>,
}

/// See [`Command::CreateKey`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateKey {
    /// Whose.
    pub tenant: TenantId,
    /// The key.
    pub key: NewKey,
}

/// See [`Command::RevokeKey`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeKey {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub id: KeyId,
}

const BOOTSTRAP: u8 = 1;
const CREATE_TENANT: u8 = 2;
const DELETE_TENANT: u8 = 3;
const SET_QUOTAS: u8 = 4;
const SET_SHOPPER_KEYS: u8 = 5;
const CREATE_KEY: u8 = 6;
const REVOKE_KEY: u8 = 7;

impl Command {
    /// The bytes for an [`Envelope`](kernel::Envelope).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Command::Bootstrap(body) => pack(BOOTSTRAP, 1, body),
            Command::CreateTenant(body) => pack(CREATE_TENANT, 1, body),
            Command::DeleteTenant(body) => pack(DELETE_TENANT, 1, body),
            Command::SetQuotas(body) => pack(SET_QUOTAS, 2, body),
            Command::SetShopperKeys(body) => pack(SET_SHOPPER_KEYS, 1, body),
            Command::CreateKey(body) => pack(CREATE_KEY, 1, body),
            Command::RevokeKey(body) => pack(REVOKE_KEY, 1, body),
        }
    }

    /// Reads [`Command::encode`] back, in every version there ever was.
    ///
    /// # Errors
    /// [`Unreadable`] when it is of a newer binary, or nonsense.
    pub fn decode(bytes: &[u8]) -> Result<Command, Unreadable> {
        let (tag, version, body) = split_command(bytes)?;
        Ok(match (tag, version) {
            (BOOTSTRAP, 1) => Command::Bootstrap(unpack(crate::NAME, body)?),
            (CREATE_TENANT, 1) => Command::CreateTenant(unpack(crate::NAME, body)?),
            (DELETE_TENANT, 1) => Command::DeleteTenant(unpack(crate::NAME, body)?),
            (SET_QUOTAS, 1) => {
                Command::SetQuotas(unpack(crate::NAME, body).map(old::SetQuotas::into_new)?)
            }
            (SET_QUOTAS, 2) => Command::SetQuotas(unpack(crate::NAME, body)?),
            (SET_SHOPPER_KEYS, 1) => Command::SetShopperKeys(unpack(crate::NAME, body)?),
            (CREATE_KEY, 1) => Command::CreateKey(unpack(crate::NAME, body)?),
            (REVOKE_KEY, 1) => Command::RevokeKey(unpack(crate::NAME, body)?),
            _ => return Err(Unreadable::Command { machine: crate::NAME, tag, version }),
        })
    }
}

/// The machine's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// `default` and its key are there now, and were not before.
    Bootstrapped(KeyRecord),
    /// The tenant as it now is: after its creation, or after its quotas or shopper keys were set.
    Tenant(TenantRecord),
    /// The tenant is gone.
    TenantDeleted {
        /// Keys that were revoked with it.
        keys_revoked: u32,
    },
    /// The key is there now. Under an idempotency key this names the key of the first time.
    KeyCreated(KeyRecord),
    /// The key opens nothing any more.
    KeyRevoked,
    /// Nothing was changed.
    Refused(Refusal),
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// `default` is there already.
    #[error("tenant default is there already")]
    Bootstrapped,
    /// Another tenant has the name.
    #[error("another tenant has this name")]
    NameTaken,
    /// It is not a name.
    #[error("a tenant's name is 1 to 64 of a-z, 0-9 and -, and not only digits")]
    BadName,
    /// No tenant has the number, or none any more.
    #[error("there is no such tenant")]
    NoSuchTenant,
    /// The tenant has no such key, or has it no more.
    #[error("there is no such key")]
    NoSuchKey,
    /// `default` is the operator's and stays.
    #[error("tenant default cannot be deleted")]
    DefaultStays,
    /// Without it nobody could administer the server.
    #[error("this is the last admin key of tenant default that does not expire")]
    LastAdminKey,
    /// The tenant has as many keys as it may.
    #[error("the tenant has {max} keys, and cannot have more")]
    TooManyKeys {
        /// How many it may have.
        max: u32,
    },
    /// The id or the hash is another key's: the edge drew badly, and may draw again.
    #[error("another key has this id or this secret")]
    KeyTaken,
    /// A text is longer than the machine keeps.
    #[error("a field is longer than is kept")]
    TooLong,
    /// Four billion tenants have been made.
    #[error("there are no more tenant numbers")]
    NoNumbersLeft,
}

impl Reply {
    /// The bytes of the answer.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        versioned_as(2, self).into()
    }

    /// Reads [`Reply::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when it is not a reply of this machine, or of a newer binary.
    pub fn decode(bytes: &[u8]) -> Result<Reply, Unreadable> {
        const WHAT: &str = "a reply of tenants";
        match bytes {
            [2, body @ ..] => unpack(WHAT, body),
            _ => read_versioned(WHAT, bytes).map(old::Reply::into_new),
        }
    }
}
