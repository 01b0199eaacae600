//! One function a command.

use bytes::Bytes;
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{Machine, MachineId, TenantId, Turn, Unreadable};

use crate::command::{
    Command, CreateKey, CreateTenant, DeleteTenant, NewKey, Refusal, Reply, RevokeKey, SetQuotas,
    SetShopperKeys,
};
use crate::record::{
    KeyHash, KeyRecord, KeyRow, NameRow, Quotas, Record, Scope, ShopperKeys, TenantRecord,
    TenantRow, VerifyingKeys,
};
use crate::{
    DEFAULT_TENANT, KEY_NAME_BYTES_MAX, KEYS_MAX, MACHINE, NAME, SHOPPER_KEYS_BYTES_MAX,
    TOMBSTONE_MS, is_tenant_name, state,
};

/// The machine. All it knows is in rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenants;

impl Machine for Tenants {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let done = match Command::decode(command)? {
            Command::Bootstrap(key) => bootstrap(turn, key),
            Command::CreateTenant(command) => create_tenant(turn, command),
            Command::DeleteTenant(command) => delete_tenant(turn, &command),
            Command::SetQuotas(command) => set_quotas(turn, &command),
            Command::SetShopperKeys(command) => set_shopper_keys(turn, command),
            Command::CreateKey(command) => create_key(turn, command),
            Command::RevokeKey(command) => revoke_key(turn, &command),
        };
        Ok(done.unwrap_or_else(Reply::Refused).encode())
    }

    /// The time of a tombstone is over.
    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let row = &timer.payload;
        // A name may have been taken again meanwhile; a revoked key never comes back.
        if is_key_row(row) || turn.rows().get(row) == Some(NameRow::Free.encode()) {
            turn.delete(row);
            turn.publish(row.clone(), None);
        }
    }

    /// Nobody writes to this machine.
    fn receive(&mut self, _: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        let (tag, version, _) = kernel::codec::split_command(&letter.body)?;
        Err(Unreadable::Command { machine: NAME, tag, version })
    }
}

fn is_key_row(row: &[u8]) -> bool {
    row.starts_with(&state::key_row(&KeyHash([0; 32]))[..3])
}

/// Writes a row and shows it to the edge: the two never differ.
fn put(turn: &mut Turn<'_>, row: Vec<u8>, value: &impl Record) {
    let value = value.encode();
    turn.put(row.clone(), value.clone());
    turn.publish(row, Some(value));
}

/// As [`put`], for a value that says that nothing is there; it goes when nobody can be on the way
/// to the row any more.
fn put_tombstone(turn: &mut Turn<'_>, row: Vec<u8>, value: &impl Record) {
    let until_ms = turn.now_ms().saturating_add(TOMBSTONE_MS);
    turn.set_timer(until_ms, row.clone());
    put(turn, row, value);
}

fn existing(turn: &Turn<'_>, tenant: TenantId) -> Result<TenantRecord, Refusal> {
    state::tenant(turn.rows(), tenant).ok_or(Refusal::NoSuchTenant)
}

fn bootstrap(turn: &mut Turn<'_>, key: NewKey) -> Result<Reply, Refusal> {
    if state::tenant(turn.rows(), DEFAULT_TENANT).is_some() {
        return Err(Refusal::Bootstrapped);
    }
    check_new_key(turn, DEFAULT_TENANT, &key)?;
    put_new_tenant(turn, DEFAULT_TENANT, crate::DEFAULT_NAME.to_owned());
    Ok(Reply::Bootstrapped(put_new_key(turn, DEFAULT_TENANT, key)))
}

fn create_tenant(turn: &mut Turn<'_>, command: CreateTenant) -> Result<Reply, Refusal> {
    let CreateTenant { name } = command;
    if !is_tenant_name(&name) {
        return Err(Refusal::BadName);
    }
    if name == crate::DEFAULT_NAME || state::tenant_named(turn.rows(), &name).is_some() {
        return Err(Refusal::NameTaken);
    }
    let next = turn.rows().get(&state::next_tenant_row()).map_or(DEFAULT_TENANT.0 + 1, |value| {
        u32::from_be_bytes(value[..].try_into().expect("four bytes were written"))
    });
    let after = next.checked_add(1).ok_or(Refusal::NoNumbersLeft)?;
    turn.put(state::next_tenant_row(), Bytes::copy_from_slice(&after.to_be_bytes()));
    Ok(Reply::Tenant(put_new_tenant(turn, TenantId(next), name)))
}

fn put_new_tenant(turn: &mut Turn<'_>, id: TenantId, name: String) -> TenantRecord {
    assert!(id != TenantId::SYSTEM && turn.rows().get(&state::tenant_row(id)).is_none());
    let record = TenantRecord {
        id,
        name,
        created_at_ms: turn.now_ms(),
        quotas: Quotas::initial(id),
        shopper_keys: None,
    };
    put(turn, state::name_row(&record.name), &NameRow::Taken(id));
    put(turn, state::tenant_row(id), &TenantRow::Live(record.clone()));
    record
}

fn delete_tenant(turn: &mut Turn<'_>, command: &DeleteTenant) -> Result<Reply, Refusal> {
    let record = existing(turn, command.tenant)?;
    if record.id == DEFAULT_TENANT {
        return Err(Refusal::DefaultStays);
    }
    let keys = state::key_hashes(turn.rows(), record.id);
    let keys_revoked = u32::try_from(keys.len()).expect("no more than KEYS_MAX");
    for (list_row, hash) in keys {
        put_revoked(turn, &list_row, &hash);
    }
    put_tombstone(turn, state::name_row(&record.name), &NameRow::Free);
    let deleted = TenantRow::Deleted { name: record.name, at_ms: turn.now_ms() };
    put(turn, state::tenant_row(record.id), &deleted);
    Ok(Reply::TenantDeleted { keys_revoked })
}

fn set_quotas(turn: &mut Turn<'_>, command: &SetQuotas) -> Result<Reply, Refusal> {
    let record = TenantRecord { quotas: command.quotas, ..existing(turn, command.tenant)? };
    put(turn, state::tenant_row(record.id), &TenantRow::Live(record.clone()));
    Ok(Reply::Tenant(record))
}

fn set_shopper_keys(turn: &mut Turn<'_>, command: SetShopperKeys) -> Result<Reply, Refusal> {
    let record = existing(turn, command.tenant)?;
    if command.keys.as_ref().is_some_and(|keys| bytes_of(keys) > SHOPPER_KEYS_BYTES_MAX) {
        return Err(Refusal::TooLong);
    }
    let record = TenantRecord { shopper_keys: command.keys, ..record };
    put(turn, state::tenant_row(record.id), &TenantRow::Live(record.clone()));
    Ok(Reply::Tenant(record))
}

fn bytes_of(keys: &ShopperKeys) -> usize {
    let key = match &keys.keys {
        VerifyingKeys::Hs256(secret) => secret.len(),
        VerifyingKeys::Es256(text) | VerifyingKeys::Jwks(text) => text.len(),
    };
    let claim = |claim: &Option<String>| claim.as_ref().map_or(0, String::len);
    key + claim(&keys.issuer) + claim(&keys.audience)
}

fn create_key(turn: &mut Turn<'_>, command: CreateKey) -> Result<Reply, Refusal> {
    let CreateKey { tenant, key } = command;
    existing(turn, tenant)?;
    check_new_key(turn, tenant, &key)?;
    Ok(Reply::KeyCreated(put_new_key(turn, tenant, key)))
}

fn check_new_key(turn: &Turn<'_>, tenant: TenantId, key: &NewKey) -> Result<(), Refusal> {
    if key.name.len() > KEY_NAME_BYTES_MAX {
        return Err(Refusal::TooLong);
    }
    // A revoked key's hash is refused as well: its secret may be why it was revoked.
    if turn.rows().get(&state::key_row(&key.hash)).is_some()
        || turn.rows().get(&state::key_id_row(tenant, key.id)).is_some()
    {
        return Err(Refusal::KeyTaken);
    }
    // Counted, not remembered: making a key is rare, and a count that is not kept cannot drift.
    if state::key_hashes(turn.rows(), tenant).len() >= KEYS_MAX as usize {
        return Err(Refusal::TooManyKeys { max: KEYS_MAX });
    }
    Ok(())
}

fn put_new_key(turn: &mut Turn<'_>, tenant: TenantId, key: NewKey) -> KeyRecord {
    let NewKey { id, hash, name, scopes, expires_at_ms } = key;
    let created_at_ms = turn.now_ms();
    let record = KeyRecord { tenant, id, name, scopes, created_at_ms, expires_at_ms };
    turn.put(state::key_id_row(tenant, id), Bytes::copy_from_slice(&hash.0));
    put(turn, state::key_row(&hash), &KeyRow::Live(record.clone()));
    record
}

fn revoke_key(turn: &mut Turn<'_>, command: &RevokeKey) -> Result<Reply, Refusal> {
    let RevokeKey { tenant, id } = *command;
    let (hash, record) = state::key(turn.rows(), tenant, id).ok_or(Refusal::NoSuchKey)?;
    if tenant == DEFAULT_TENANT && opens_for_ever(&record) {
        let all = state::keys(turn.rows(), tenant, None, KEYS_MAX as usize);
        if all.iter().filter(|key| opens_for_ever(key)).count() == 1 {
            return Err(Refusal::LastAdminKey);
        }
    }
    put_revoked(turn, &state::key_id_row(tenant, id), &hash);
    Ok(Reply::KeyRevoked)
}

fn opens_for_ever(key: &KeyRecord) -> bool {
    key.scopes.names(Scope::Admin) && key.expires_at_ms.is_none()
}

fn put_revoked(turn: &mut Turn<'_>, list_row: &[u8], hash: &KeyHash) {
    let at_ms = turn.now_ms();
    put_tombstone(turn, state::key_row(hash), &KeyRow::Revoked { at_ms });
    turn.delete(list_row);
}
