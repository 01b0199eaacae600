//! What is kept of tenants and keys: the values of rows, which are also the values of the views.
//!
//! ```text
//!   ┌─────────┬───────────────┐
//!   │ version │ postcard body │   the version is one for the whole row; a changed record gets the
//!   │ u8      │               │   next one, and `decode` keeps reading the old (`old.rs`)
//!   └─────────┴───────────────┘
//! ```
//!
//! Tenants are of version 2, which has the quotas of queues; keys and names of version 1.

use std::fmt;

use bytes::Bytes;
use kernel::codec::{read_versioned, unpack, versioned, versioned_as};
use kernel::{TenantId, Unreadable};
use serde::{Deserialize, Serialize};

use crate::old;

/// SHA-256 of a key's secret: what a key is found by, so that no comparison of secrets takes
/// place whose duration could tell something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyHash(pub [u8; 32]);

/// Four bytes are enough to tell hashes apart in a log, and too few to look for.
impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "KeyHash({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// Names a key within its tenant. Not a secret.
///
/// Six bytes of time and six of chance, so that keys are listed in the order of their making.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub [u8; 12]);

/// One thing that a key may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Scope {
    /// Everything of its tenant, keys and quotas included.
    Admin = 1,
    /// Writing to queues, topics and streams; making tasks.
    Produce = 1 << 1,
    /// Taking from queues and streams.
    Consume = 1 << 2,
    /// Events, documents and feed entries in bulk.
    Ingest = 1 << 3,
    /// What a shopper does, on behalf of any user.
    Storefront = 1 << 4,
    /// Looking at everything, changing nothing.
    Read = 1 << 5,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 6] = [
        Scope::Admin,
        Scope::Produce,
        Scope::Consume,
        Scope::Ingest,
        Scope::Storefront,
        Scope::Read,
    ];

    /// As the API spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Admin => "admin",
            Scope::Produce => "produce",
            Scope::Consume => "consume",
            Scope::Ingest => "ingest",
            Scope::Storefront => "storefront",
            Scope::Read => "read",
        }
    }

    /// Reads [`Scope::name`] back.
    #[must_use]
    pub fn named(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// A set of scopes, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scopes(u8);

impl Scopes {
    /// None.
    pub const NONE: Scopes = Scopes(0);
    /// All of them.
    pub const ALL: Scopes = Scopes(0b11_1111);

    /// These and one more.
    #[must_use]
    pub const fn with(self, scope: Scope) -> Scopes {
        Scopes(self.0 | scope as u8)
    }

    /// Whether `scope` is named in the set.
    #[must_use]
    pub const fn names(self, scope: Scope) -> bool {
        self.0 & scope as u8 != 0
    }

    /// Whether the set opens what needs `scope`: `admin` opens everything of its tenant.
    #[must_use]
    pub const fn opens(self, scope: Scope) -> bool {
        self.names(scope) || self.names(Scope::Admin)
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in it.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.names(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        scopes.into_iter().fold(Scopes::NONE, Scopes::with)
    }
}

/// How much a tenant may use. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Authenticated requests a second, on one node.
    pub requests_per_second: Option<u32>,
    /// Requests at once after a quiet time. `None` is one second's worth.
    pub burst: Option<u32>,
    /// Bytes of what its machines keep.
    pub bytes_stored: Option<u64>,
    /// Users, queues, sales, tasks: the things it may make.
    pub entities: Option<u64>,
    /// Open connections that have shown one of its keys or tokens, on one node.
    pub connections: Option<u32>,
    /// Messages sent and published a second, on one node.
    pub publish_per_second: Option<u32>,
    /// Queues, those of subscriptions included.
    pub queues: Option<u64>,
    /// How long its queues may keep a message.
    pub retention_seconds_max: Option<u64>,
    /// Messages leased, over all its queues.
    pub inflight: Option<u64>,
    /// Receives that wait for a message, on one node.
    pub waiters: Option<u32>,
}

impl Quotas {
    /// No limits: what `default`, the operator's own tenant, begins with.
    pub const UNLIMITED: Quotas = Quotas {
        requests_per_second: None,
        burst: None,
        bytes_stored: None,
        entities: None,
        connections: None,
        publish_per_second: None,
        queues: None,
        retention_seconds_max: None,
        inflight: None,
        waiters: None,
    };

    /// What every other tenant begins with: more than an honest one meets in a bad week, and less
    /// than a machine, so that one tenant alone does not fill it.
    pub const GENEROUS: Quotas = Quotas {
        requests_per_second: Some(100_000),
        burst: Some(200_000),
        bytes_stored: Some(1 << 40),
        entities: Some(1_000_000_000),
        connections: Some(100_000),
        publish_per_second: Some(200_000),
        queues: Some(100_000),
        retention_seconds_max: None,
        inflight: Some(10_000_000),
        waiters: Some(50_000),
    };

    /// What a tenant begins with.
    #[must_use]
    pub const fn initial(tenant: TenantId) -> Quotas {
        if tenant.0 == crate::DEFAULT_TENANT.0 { Quotas::UNLIMITED } else { Quotas::GENEROUS }
    }
}

/// What the tokens of a tenant's shoppers are verified with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShopperKeys {
    /// The key or keys.
    pub keys: VerifyingKeys,
    /// What `iss` must be, if anything.
    pub issuer: Option<String>,
    /// What `aud` must be or hold, if anything.
    pub audience: Option<String>,
}

/// A key that verifies tokens, as it was given. The edge parses it, once for each change.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerifyingKeys {
    /// A shared secret, for HS256.
    Hs256(Vec<u8>),
    /// A P-256 public key in PEM, for ES256.
    Es256(String),
    /// A JWKS document.
    Jwks(String),
}

/// Without the secret: commands are printed by tests and simulators.
impl fmt::Debug for VerifyingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerifyingKeys::Hs256(secret) => write!(f, "Hs256({} bytes)", secret.len()),
            VerifyingKeys::Es256(pem) => f.debug_tuple("Es256").field(pem).finish(),
            VerifyingKeys::Jwks(document) => f.debug_tuple("Jwks").field(document).finish(),
        }
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Its number, never reused.
    pub id: TenantId,
    /// Its name, reusable after its deletion.
    pub name: String,
    /// When it was made.
    pub created_at_ms: u64,
    /// What it may use.
    pub quotas: Quotas,
    /// What its shoppers' tokens are verified with.
    pub shopper_keys: Option<ShopperKeys>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Whose.
    pub tenant: TenantId,
    /// Its name within the tenant.
    pub id: KeyId,
    /// Its name for people.
    pub name: String,
    /// What it opens.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at_ms: u64,
    /// From when on it opens nothing.
    pub expires_at_ms: Option<u64>,
}

/// The row and view of a tenant. A deleted one stays, so that what it left in other machines can
/// be found and swept.
#[expect(clippy::large_enum_variant, reason = "it is read one at a time, and is mostly live")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TenantRow {
    /// It is there.
    Live(TenantRecord),
    /// It was.
    Deleted {
        /// Under which name.
        name: String,
        /// Until when.
        at_ms: u64,
    },
}

/// The row and view of a key, by the hash of its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyRow {
    /// It opens what its record says.
    Live(KeyRecord),
    /// It opens nothing. Kept for a while, so that a reader who was on the way to the row while
    /// it was revoked publishes this and not the key.
    Revoked {
        /// Since when.
        at_ms: u64,
    },
}

/// The row and view of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameRow {
    /// A tenant has it.
    Taken(TenantId),
    /// A tenant had it. Kept for a while, for the reason of [`KeyRow::Revoked`].
    Free,
}

/// A value of a row or view.
pub trait Record: Serialize + for<'a> Deserialize<'a> {
    /// The bytes of the row.
    #[must_use]
    fn encode(&self) -> Bytes {
        versioned(self).into()
    }

    /// Reads [`Record::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when the row is of a newer binary, or not one of this kind.
    fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        read_versioned(TENANT_ROW, bytes)
    }
}

const TENANT_ROW: &str = "tenants' row";

impl Record for TenantRow {
    fn encode(&self) -> Bytes {
        versioned_as(2, self).into()
    }

    fn decode(bytes: &[u8]) -> Result<TenantRow, Unreadable> {
        match bytes {
            [2, body @ ..] => unpack(TENANT_ROW, body),
            _ => read_versioned(TENANT_ROW, bytes).map(old::TenantRow::into_new),
        }
    }
}

impl Record for KeyRow {}
impl Record for NameRow {}
