//! Numbers with names, so that a tenant is never passed where a shard is meant.

use std::fmt;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24x128};
use std::hash::Hasher;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Position of an entry in a shard's log. The first entry has index 1; 0 means "none yet".
    Index(u64)
);
number!(
    /// Ownership of a log. Each opening takes a greater epoch than any before it.
    Epoch(u64)
);
number!(
    /// A shard of this node: one thread, one log, one set of rows.
    ShardId(u16)
);
number!(
    /// A machine's number in the registry. Never reused, because logs hold it for ever.
    MachineId(u16)
);
number!(
    /// A tenant's number. 0 is the system itself.
    TenantId(u32)
);
number!(
    /// A slot of the placement ring; see [`VirtualShard::of`].
    VirtualShard(u16)
);

impl Index {
    /// The index after this one.
    #[must_use]
    pub fn next(self) -> Index {
        Index(self.0 + 1)
    }
}

impl TenantId {
    /// The system's own commands: mail, effects, configuration.
    pub const SYSTEM: TenantId = TenantId(0);
}

/// Slots in the placement ring. Fixed for ever: ids and log entries hold slot numbers.
pub const VIRTUAL_SHARDS: u16 = 4096;

impl VirtualShard {
    /// Where the thing `id` of `kind` of `tenant` lives. Stable across versions and machines.
    #[must_use]
    pub fn of(tenant: TenantId, kind: MachineId, id: &[u8]) -> VirtualShard {
        let mut hasher = SipHasher24::new_with_keys(PLACEMENT_KEY.0, PLACEMENT_KEY.1);
        hasher.write_u32(tenant.0);
        hasher.write_u16(kind.0);
        hasher.write(id);
        let slot = hasher.finish() % u64::from(VIRTUAL_SHARDS);
        VirtualShard(u16::try_from(slot).expect("a remainder of 4096 fits"))
    }

    /// The shard that serves this slot when there are `shard_count` of them.
    ///
    /// Contiguous ranges of slots, so that a later split moves whole ranges.
    #[must_use]
    pub fn shard(self, shard_count: u16) -> ShardId {
        assert!(shard_count > 0 && self.0 < VIRTUAL_SHARDS);
        let shard = u32::from(self.0) * u32::from(shard_count) / u32::from(VIRTUAL_SHARDS);
        ShardId(u16::try_from(shard).expect("less than shard_count"))
    }
}

/// Arbitrary, and frozen: changing it moves every entity.
const PLACEMENT_KEY: (u64, u64) = (0x5374_616d_7065_6465, 0x506c_6163_656d_656e);

/// A number that nobody can tell who does not know `key`: SipHash is a pseudo-random function
/// under its key.
#[must_use]
pub fn mac(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(bytes);
    hasher.finish()
}

/// A 128-bit digest that is the same on every machine. Not for secrets.
#[must_use]
pub fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = SipHasher24x128::new_with_keys(PLACEMENT_KEY.1, PLACEMENT_KEY.0);
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}
