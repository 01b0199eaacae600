//! Tenants, plainly: a list of tenants and a list of keys.

use bytes::Bytes;
use kernel::machine::Effect;
use kernel::rows::RowsReader;
use kernel::{Machine, MachineId, TenantId};
use tenants::{
    Command, CreateKey, CreateTenant, DEFAULT_NAME, DEFAULT_TENANT, DeleteTenant, KeyHash, KeyId,
    KeyRecord, KeyRow, MACHINE, NameRow, NewKey, Quotas, Record, Refusal, Reply, RevokeKey, Scope,
    Scopes, SetQuotas, SetShopperKeys, ShopperKeys, TOMBSTONE_MS, TenantRecord, TenantRow, Tenants,
    VerifyingKeys,
};

use crate::naive::Scene;
use crate::random::Random;
use crate::subject::{Archive, Difference, Draft, Model, Sight, Subject, same};

const NAMES: [&str; 6] = ["shop", "tickets", "shop-2", "default", "12", "Not A Name"];

/// Tenants under test.
#[derive(Debug, Default)]
pub struct TenantsSubject {
    /// Keys that were made up so far, so that some are used again.
    keys: Vec<(KeyId, KeyHash)>,
}

impl TenantsSubject {
    fn tenant(random: &mut Random) -> TenantId {
        TenantId(u32::try_from(1 + random.below(6)).expect("small"))
    }

    fn new_key(&mut self, random: &mut Random) -> NewKey {
        let (id, hash) = if !self.keys.is_empty() && random.chance(150) {
            random.pick(&self.keys)
        } else {
            let mut hash = [0; 32];
            hash[..16].copy_from_slice(&random.bytes16());
            let mut id = [0; 12];
            id.copy_from_slice(&random.bytes16()[..12]);
            (KeyId(id), KeyHash(hash))
        };
        self.keys.push((id, hash));
        let long = random.chance(30);
        NewKey {
            id,
            hash,
            name: if long { "k".repeat(300) } else { format!("key {}", random.below(9)) },
            scopes: random.pick(&[
                Scopes::NONE.with(Scope::Admin),
                Scopes::ALL,
                Scopes::NONE.with(Scope::Read),
            ]),
            expires_at_ms: random.chance(300).then(|| random.below(1 << 42)),
        }
    }
}

impl Subject for TenantsSubject {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn machine(&self) -> Box<dyn Machine> {
        Box::new(Tenants)
    }

    fn model(&self) -> Box<dyn Model> {
        Box::new(TenantsModel::default())
    }

    fn draft(&mut self, random: &mut Random, _now_ms: u64) -> Draft {
        let tenant = TenantsSubject::tenant(random);
        let command = match random.below(100) {
            0..5 => Command::Bootstrap(self.new_key(random)),
            5..25 => Command::CreateTenant(CreateTenant { name: random.pick(&NAMES).to_owned() }),
            25..37 => Command::DeleteTenant(DeleteTenant { tenant }),
            37..47 => {
                let quotas = Quotas { entities: Some(random.below(99)), ..Quotas::GENEROUS };
                Command::SetQuotas(SetQuotas { tenant, quotas })
            }
            47..55 => {
                let issuer = random.chance(500).then(|| "shop".to_owned());
                let keys = VerifyingKeys::Hs256(random.bytes16().to_vec());
                let keys =
                    random.chance(600).then_some(ShopperKeys { keys, issuer, audience: None });
                Command::SetShopperKeys(SetShopperKeys { tenant, keys })
            }
            55..80 => Command::CreateKey(CreateKey { tenant, key: self.new_key(random) }),
            _ if self.keys.is_empty() => {
                Command::RevokeKey(RevokeKey { tenant, id: KeyId([0; 12]) })
            }
            _ => Command::RevokeKey(RevokeKey { tenant, id: random.pick(&self.keys).0 }),
        };
        Draft { to: tenants::place(), tenant: TenantId::SYSTEM, command: command.encode() }
    }

    fn perform(&mut self, _: &Effect, _: &RowsReader, _: &mut Archive, _: &mut Random) -> Bytes {
        unreachable!("tenants ask for nothing")
    }
}

#[derive(Clone, Debug)]
struct Key {
    hash: KeyHash,
    record: KeyRecord,
    /// Since when it opens nothing.
    revoked_ms: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct TenantsModel {
    /// In the order of their making; with the time of deletion.
    tenants: Vec<(TenantRecord, Option<u64>)>,
    keys: Vec<Key>,
    made: u32,
}

impl TenantsModel {
    fn tenant(&mut self, id: TenantId) -> Result<&mut TenantRecord, Refusal> {
        let live = self.tenants.iter_mut().filter(|(_, deleted)| deleted.is_none());
        let mut found = live.filter(|(record, _)| record.id == id);
        found.next().map(|(record, _)| record).ok_or(Refusal::NoSuchTenant)
    }

    /// The live keys of a tenant, in the order of their ids.
    fn keys_of(&self, tenant: TenantId) -> Vec<KeyRecord> {
        let mine = self.keys.iter().filter(|key| key.record.tenant == tenant);
        let live = mine.filter(|key| key.revoked_ms.is_none());
        let mut keys: Vec<KeyRecord> = live.map(|key| key.record.clone()).collect();
        keys.sort_by_key(|key| key.id);
        keys
    }

    fn check_key(&self, tenant: TenantId, key: &NewKey) -> Result<(), Refusal> {
        if key.name.len() > 256 {
            return Err(Refusal::TooLong);
        }
        let same_id = self.keys_of(tenant).iter().any(|other| other.id == key.id);
        if same_id || self.keys.iter().any(|other| other.hash == key.hash) {
            return Err(Refusal::KeyTaken);
        }
        Ok(())
    }

    fn put_key(&mut self, scene: &Scene<'_>, tenant: TenantId, key: NewKey) -> KeyRecord {
        let NewKey { id, hash, name, scopes, expires_at_ms } = key;
        let created_at_ms = scene.now_ms();
        let record = KeyRecord { tenant, id, name, scopes, created_at_ms, expires_at_ms };
        self.keys.push(Key { hash, record: record.clone(), revoked_ms: None });
        record
    }

    fn put_tenant(&mut self, scene: &Scene<'_>, id: TenantId, name: String) -> TenantRecord {
        let record = TenantRecord {
            id,
            name,
            created_at_ms: scene.now_ms(),
            quotas: if id == DEFAULT_TENANT { Quotas::UNLIMITED } else { Quotas::GENEROUS },
            shopper_keys: None,
        };
        self.tenants.push((record.clone(), None));
        record
    }

    fn revoke(&mut self, scene: &mut Scene<'_>, tenant: TenantId, id: KeyId) {
        let live = self.keys.iter_mut().filter(|key| key.revoked_ms.is_none());
        let mut found = live.filter(|key| key.record.tenant == tenant && key.record.id == id);
        let key = found.next().expect("the caller has looked");
        key.revoked_ms = Some(scene.now_ms());
        let row = tenants::key_row(&key.hash);
        scene.set_timer(scene.now_ms() + TOMBSTONE_MS, row.into());
    }

    fn create_tenant(&mut self, scene: &Scene<'_>, name: String) -> Result<Reply, Refusal> {
        if !tenants::is_tenant_name(&name) {
            return Err(Refusal::BadName);
        }
        let mut live = self.tenants.iter().filter(|(_, deleted)| deleted.is_none());
        if name == DEFAULT_NAME || live.any(|(record, _)| record.name == name) {
            return Err(Refusal::NameTaken);
        }
        self.made += 1;
        let id = TenantId(DEFAULT_TENANT.0 + self.made);
        Ok(Reply::Tenant(self.put_tenant(scene, id, name)))
    }

    fn delete_tenant(&mut self, scene: &mut Scene<'_>, id: TenantId) -> Result<Reply, Refusal> {
        let name = self.tenant(id)?.name.clone();
        if id == DEFAULT_TENANT {
            return Err(Refusal::DefaultStays);
        }
        let keys = self.keys_of(id);
        for key in &keys {
            self.revoke(scene, id, key.id);
        }
        scene.set_timer(scene.now_ms() + TOMBSTONE_MS, tenants::name_row(&name).into());
        let found = self.tenants.iter_mut().find(|(record, _)| record.id == id);
        found.expect("found above").1 = Some(scene.now_ms());
        let keys_revoked = u32::try_from(keys.len()).expect("a thousand at most");
        Ok(Reply::TenantDeleted { keys_revoked })
    }

    fn revoke_key(&mut self, scene: &mut Scene<'_>, what: &RevokeKey) -> Result<Reply, Refusal> {
        let keys = self.keys_of(what.tenant);
        let for_ever =
            |key: &KeyRecord| key.scopes.names(Scope::Admin) && key.expires_at_ms.is_none();
        let key = keys.iter().find(|key| key.id == what.id).ok_or(Refusal::NoSuchKey)?;
        let others = keys.iter().filter(|other| other.id != what.id);
        let others = others.filter(|other| for_ever(other)).count();
        if what.tenant == DEFAULT_TENANT && for_ever(key) && others == 0 {
            return Err(Refusal::LastAdminKey);
        }
        self.revoke(scene, what.tenant, what.id);
        Ok(Reply::KeyRevoked)
    }

    fn command(&mut self, scene: &mut Scene<'_>, command: Command) -> Result<Reply, Refusal> {
        match command {
            Command::Bootstrap(key) => {
                if self.tenant(DEFAULT_TENANT).is_ok() {
                    return Err(Refusal::Bootstrapped);
                }
                self.check_key(DEFAULT_TENANT, &key)?;
                self.put_tenant(scene, DEFAULT_TENANT, DEFAULT_NAME.to_owned());
                Ok(Reply::Bootstrapped(self.put_key(scene, DEFAULT_TENANT, key)))
            }
            Command::CreateTenant(CreateTenant { name }) => self.create_tenant(scene, name),
            Command::DeleteTenant(DeleteTenant { tenant }) => self.delete_tenant(scene, tenant),
            Command::SetQuotas(SetQuotas { tenant, quotas }) => {
                let record = self.tenant(tenant)?;
                record.quotas = quotas;
                Ok(Reply::Tenant(record.clone()))
            }
            Command::SetShopperKeys(SetShopperKeys { tenant, keys }) => {
                let record = self.tenant(tenant)?;
                record.shopper_keys = keys;
                Ok(Reply::Tenant(record.clone()))
            }
            Command::CreateKey(CreateKey { tenant, key }) => {
                self.tenant(tenant)?;
                self.check_key(tenant, &key)?;
                Ok(Reply::KeyCreated(self.put_key(scene, tenant, key)))
            }
            Command::RevokeKey(what) => self.revoke_key(scene, &what),
        }
    }
}

impl Model for TenantsModel {
    fn apply(&mut self, scene: &mut Scene<'_>, command: &Bytes) -> Result<Bytes, Difference> {
        let command = Command::decode(command).map_err(|error| error.to_string())?;
        Ok(self.command(scene, command).unwrap_or_else(Reply::Refused).encode())
    }

    fn fire(&mut self, _: &mut Scene<'_>, payload: &Bytes) -> Result<(), Difference> {
        self.keys
            .retain(|key| key.revoked_ms.is_none() || tenants::key_row(&key.hash) != payload[..]);
        Ok(())
    }

    fn receive(&mut self, _: &mut Scene<'_>, _: &Bytes) -> Result<(), Difference> {
        Err("nobody writes to tenants".to_owned())
    }

    fn same_reply(&mut self, expected: &Bytes, actual: &Bytes) -> Result<(), Difference> {
        let decode = |bytes| Reply::decode(bytes).map_err(|error| error.to_string());
        same("reply", &decode(expected)?, &decode(actual)?)
    }

    fn check(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        let live = self.tenants.iter().filter(|(_, deleted)| deleted.is_none());
        let mut live: Vec<TenantRecord> = live.map(|(record, _)| record.clone()).collect();
        live.sort_by_key(|record| record.id);
        same("tenants", &live, &paged_tenants(sight))?;
        for (record, deleted) in &self.tenants {
            let id = record.id;
            same("keys", &self.keys_of(id), &paged_keys(sight, id))?;
            let row = match deleted {
                None => TenantRow::Live(record.clone()),
                Some(at_ms) => TenantRow::Deleted { name: record.name.clone(), at_ms: *at_ms },
            };
            row_and_view(sight, tenants::tenant_row(id), Some(row.encode()))?;
        }
        for key in &self.keys {
            let row = match key.revoked_ms {
                None => KeyRow::Live(key.record.clone()),
                Some(at_ms) => KeyRow::Revoked { at_ms },
            };
            row_and_view(sight, tenants::key_row(&key.hash), Some(row.encode()))?;
        }
        for name in NAMES {
            let owner = live.iter().find(|record| record.name == name).map(|record| record.id);
            same("tenant by name", &owner, &tenants::tenant_named(sight.rows, name))?;
            if let Some(owner) = owner {
                let row = NameRow::Taken(owner).encode();
                row_and_view(sight, tenants::name_row(name), Some(row))?;
            }
        }
        Ok(())
    }
}

/// A row is as expected, and what was published of it is the same.
fn row_and_view(
    sight: &Sight<'_>,
    row: Vec<u8>,
    expected: Option<Bytes>,
) -> Result<(), Difference> {
    same("row", &expected, &sight.rows.get(&row))?;
    match sight.views.get(&(MACHINE, row.into())) {
        Some(view) => same("view", &expected, view),
        None => Ok(()),
    }
}

fn paged_tenants(sight: &Sight<'_>) -> Vec<TenantRecord> {
    let mut all = Vec::new();
    let mut after = TenantId::SYSTEM;
    loop {
        let page = tenants::tenants(sight.rows, after, 2);
        let Some(last) = page.last() else { return all };
        after = last.id;
        all.extend(page);
    }
}

fn paged_keys(sight: &Sight<'_>, tenant: TenantId) -> Vec<KeyRecord> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = tenants::keys(sight.rows, tenant, after, 2);
        let Some(last) = page.last() else { return all };
        after = Some(last.id);
        all.extend(page);
    }
}
