//! Version 1 of what has quotas in it: rows, commands and replies of binaries before those of queues.
//!
//! It is only read. A quota that version 1 did not know is no limit, as it was then.

use kernel::TenantId;
use serde::Deserialize;

use crate::command;
use crate::record::{self, KeyRecord, ShopperKeys};

#[derive(Deserialize)]
pub(crate) struct Quotas {
    requests_per_second: Option<u32>,
    burst: Option<u32>,
    bytes_stored: Option<u64>,
    entities: Option<u64>,
    connections: Option<u32>,
}

impl Quotas {
    fn into_new(self) -> record::Quotas {
        let Quotas { requests_per_second, burst, bytes_stored, entities, connections } = self;
        record::Quotas {
            requests_per_second,
            burst,
            bytes_stored,
            entities,
            connections,
            ..record::Quotas::UNLIMITED
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct TenantRecord {
    id: TenantId,
    name: String,
    created_at_ms: u64,
    quotas: Quotas,
    shopper_keys: Option<ShopperKeys>,
}

impl TenantRecord {
    fn into_new(self) -> record::TenantRecord {
        let TenantRecord { id, name, created_at_ms, quotas, shopper_keys } = self;
        let quotas = quotas.into_new();
        record::TenantRecord { id, name, created_at_ms, quotas, shopper_keys }
    }
}

#[derive(Deserialize)]
pub(crate) enum TenantRow {
    Live(TenantRecord),
    Deleted { name: String, at_ms: u64 },
}

impl TenantRow {
    pub(crate) fn into_new(self) -> record::TenantRow {
        match self {
            TenantRow::Live(record) => record::TenantRow::Live(record.into_new()),
            TenantRow::Deleted { name, at_ms } => record::TenantRow::Deleted { name, at_ms },
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct SetQuotas {
    tenant: TenantId,
    quotas: Quotas,
}

impl SetQuotas {
    pub(crate) fn into_new(self) -> command::SetQuotas {
        command::SetQuotas { tenant: self.tenant, quotas: self.quotas.into_new() }
    }
}

#[derive(Deserialize)]
pub(crate) enum Reply {
    Bootstrapped(KeyRecord),
    Tenant(TenantRecord),
    TenantDeleted { keys_revoked: u32 },
    KeyCreated(KeyRecord),
    KeyRevoked,
    Refused(command::Refusal),
}

impl Reply {
    pub(crate) fn into_new(self) -> command::Reply {
        match self {
            Reply::Bootstrapped(key) => command::Reply::Bootstrapped(key),
            Reply::Tenant(record) => command::Reply::Tenant(record.into_new()),
            Reply::TenantDeleted { keys_revoked } => command::Reply::TenantDeleted { keys_revoked },
            Reply::KeyCreated(key) => command::Reply::KeyCreated(key),
            Reply::KeyRevoked => command::Reply::KeyRevoked,
            Reply::Refused(refusal) => command::Reply::Refused(refusal),
        }
    }
}
