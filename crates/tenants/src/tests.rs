//! The machine from outside: commands in, replies, rows and views out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use expect_test::{Expect, expect};
use kernel::base::MemoryBase;
use kernel::machine::{Ground, Place};
use kernel::{Index, Machine, Output, Rows, ShardId, Stamp, TenantId, Unreadable};

use crate::*;

/// A shard with this machine alone, and the views that its readers see.
struct World {
    rows: Rows,
    ground: Ground,
    index: u64,
    now_ms: u64,
    views: BTreeMap<Bytes, Bytes>,
}

impl World {
    fn new() -> World {
        let rows = Rows::new(Arc::new(MemoryBase::new()));
        let place = Place { shard: ShardId(0), shard_count: 1 };
        let ground = Ground::new(place, &rows);
        World { rows, ground, index: 0, now_ms: 1_000, views: BTreeMap::new() }
    }

    fn bootstrapped() -> World {
        let mut world = World::new();
        let reply = world.apply(&Command::Bootstrap(new_key(1, &[Scope::Admin])));
        assert!(matches!(reply, Reply::Bootstrapped(_)), "{reply:?}");
        world
    }

    /// One entry: due timers first, then the command.
    fn entry(&mut self, command: Option<&Bytes>) -> Option<Result<Bytes, Unreadable>> {
        self.index += 1;
        let stamp = Stamp { index: Index(self.index), at_ms: self.now_ms, seed: [7; 16] };
        self.ground.begin_entry();
        for due in self.ground.timers.take_due(&mut self.rows, self.now_ms, 100) {
            let mut turn = self.ground.turn(&mut self.rows, stamp, due.machine, due.tenant);
            Tenants.fire(&mut turn, &due);
        }
        let reply = command.map(|command| {
            let mut turn = self.ground.turn(&mut self.rows, stamp, MACHINE, DEFAULT_TENANT);
            Tenants.apply(&mut turn, command)
        });
        self.ground.end_entry(&mut self.rows);
        for output in std::mem::take(&mut self.ground.outputs) {
            let Output::View { machine: MACHINE, key, value } = output else {
                panic!("{output:?}")
            };
            match value {
                Some(value) => self.views.insert(key, value),
                None => self.views.remove(&key),
            };
        }
        reply
    }

    fn apply(&mut self, command: &Command) -> Reply {
        let reply = self.entry(Some(&command.encode())).expect("a command was given");
        Reply::decode(&reply.expect("commands of this binary are readable")).expect("a reply")
    }

    fn tenant(&mut self, name: &str) -> TenantId {
        match self.apply(&Command::CreateTenant(CreateTenant { name: name.into() })) {
            Reply::Tenant(record) => record.id,
            reply => panic!("{reply:?}"),
        }
    }

    fn key(&mut self, tenant: TenantId, number: u8, scopes: &[Scope]) -> Reply {
        self.apply(&Command::CreateKey(CreateKey { tenant, key: new_key(number, scopes) }))
    }

    fn revoke(&mut self, tenant: TenantId, number: u8) -> Reply {
        self.apply(&Command::RevokeKey(RevokeKey { tenant, id: KeyId([number; 12]) }))
    }

    fn delete(&mut self, tenant: TenantId) -> Reply {
        self.apply(&Command::DeleteTenant(DeleteTenant { tenant }))
    }

    /// What the edge sees under a secret's hash.
    fn seen(&self, number: u8) -> Option<KeyRow> {
        let view = self.views.get(&key_view(&KeyHash([number; 32]))[..])?;
        Some(KeyRow::decode(view).expect("a view of a key"))
    }

    /// Views are what their rows are, always.
    fn assert_views_are_rows(&self) {
        for (key, value) in &self.views {
            assert_eq!(self.rows.get(key).as_ref(), Some(value), "{key:?}");
        }
    }
}

fn new_key(number: u8, scopes: &[Scope]) -> NewKey {
    NewKey {
        id: KeyId([number; 12]),
        hash: KeyHash([number; 32]),
        name: format!("key {number}"),
        scopes: scopes.iter().copied().collect(),
        expires_at_ms: None,
    }
}

fn refused(reply: &Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => *refusal,
        reply => panic!("not refused: {reply:?}"),
    }
}

/// Applies commands one after another and compares the replies.
fn check(commands: &[Command], replies: &Expect) {
    let mut world = World::bootstrapped();
    let mut told = String::new();
    for command in commands {
        world.now_ms += 1;
        let reply = world.apply(command);
        writeln!(told, "{reply:?}").expect("strings take everything");
        world.assert_views_are_rows();
    }
    replies.assert_eq(&told);
}

fn create(name: &str) -> Command {
    Command::CreateTenant(CreateTenant { name: name.into() })
}

#[test]
fn bootstrap_makes_default_and_its_key_in_one_command_and_only_once() {
    let mut world = World::new();
    let Reply::Bootstrapped(key) = world.apply(&Command::Bootstrap(new_key(1, &[Scope::Admin])))
    else {
        panic!("an empty world is bootstrapped")
    };
    assert_eq!((key.tenant, key.scopes.opens(Scope::Consume)), (DEFAULT_TENANT, true));
    assert_eq!(state::tenant_named(&world.rows, "default"), Some(DEFAULT_TENANT));
    let again = world.apply(&Command::Bootstrap(new_key(2, &[Scope::Admin])));
    assert_eq!(refused(&again), Refusal::Bootstrapped);
    assert_eq!(world.seen(2), None);
}

#[test]
fn tenants_get_growing_numbers_and_unique_names() {
    check(
        &[create("shop"), create("shop"), create("default"), create("other")],
        &expect![[r#"
            Tenant(TenantRecord { id: TenantId(2), name: "shop", created_at_ms: 1001, quotas: Quotas { requests_per_second: Some(100000), burst: Some(200000), bytes_stored: Some(1099511627776), entities: Some(1000000000), connections: Some(100000), publish_per_second: Some(200000), queues: Some(100000), retention_seconds_max: None, inflight: Some(10000000), waiters: Some(50000) }, shopper_keys: None })
            Refused(NameTaken)
            Refused(NameTaken)
            Tenant(TenantRecord { id: TenantId(3), name: "other", created_at_ms: 1004, quotas: Quotas { requests_per_second: Some(100000), burst: Some(200000), bytes_stored: Some(1099511627776), entities: Some(1000000000), connections: Some(100000), publish_per_second: Some(200000), queues: Some(100000), retention_seconds_max: None, inflight: Some(10000000), waiters: Some(50000) }, shopper_keys: None })
        "#]],
    );
}

#[test]
fn names_are_lower_case_letters_digits_and_hyphens_and_not_a_number() {
    for good in ["a", "default", "shop-2", "-", "2-3", &"x".repeat(64)] {
        assert!(is_tenant_name(good), "{good}");
    }
    for bad in ["", "Shop", "a b", "a_b", "ä", "42", "a/b", "a\0", &"x".repeat(65)] {
        assert!(!is_tenant_name(bad), "{bad}");
        let mut world = World::bootstrapped();
        assert_eq!(refused(&world.apply(&create(bad))), Refusal::BadName, "{bad}");
    }
}

#[test]
fn a_deleted_tenants_name_can_be_taken_again_but_not_its_number() {
    let mut world = World::bootstrapped();
    let first = world.tenant("shop");
    assert_eq!(world.delete(first), Reply::TenantDeleted { keys_revoked: 0 });
    assert_eq!(refused(&world.delete(first)), Refusal::NoSuchTenant);
    let second = world.tenant("shop");
    assert!(second > first);
    // The tombstone of the name is due now, and must not take the name from its new owner.
    world.now_ms += TOMBSTONE_MS + 1;
    world.entry(None);
    assert_eq!(state::tenant_named(&world.rows, "shop"), Some(second));
    world.assert_views_are_rows();
}

#[test]
fn deleting_a_tenant_revokes_all_its_keys_and_no_other() {
    let mut world = World::bootstrapped();
    let (shop, other) = (world.tenant("shop"), world.tenant("other"));
    world.key(shop, 10, &[Scope::Produce]);
    world.key(shop, 11, &[Scope::Admin]);
    world.key(other, 12, &[Scope::Produce]);
    assert_eq!(world.delete(shop), Reply::TenantDeleted { keys_revoked: 2 });
    let revoked = Some(KeyRow::Revoked { at_ms: world.now_ms });
    assert_eq!((world.seen(10), world.seen(11)), (revoked.clone(), revoked));
    assert!(matches!(world.seen(12), Some(KeyRow::Live(_))));
    assert_eq!(state::keys(&world.rows, shop, None, 100), []);
    assert_eq!(refused(&world.key(shop, 13, &[])), Refusal::NoSuchTenant);
    world.assert_views_are_rows();
}

#[test]
fn default_cannot_be_deleted() {
    let mut world = World::bootstrapped();
    assert_eq!(refused(&world.delete(DEFAULT_TENANT)), Refusal::DefaultStays);
    assert_eq!(refused(&world.delete(TenantId::SYSTEM)), Refusal::NoSuchTenant);
}

#[test]
fn a_revoked_key_is_a_tombstone_for_a_day_and_then_nothing() {
    let mut world = World::bootstrapped();
    let shop = world.tenant("shop");
    world.key(shop, 10, &[Scope::Read]);
    assert_eq!(world.revoke(shop, 10), Reply::KeyRevoked);
    assert_eq!(world.seen(10), Some(KeyRow::Revoked { at_ms: world.now_ms }));
    assert_eq!(refused(&world.revoke(shop, 10)), Refusal::NoSuchKey);
    assert_eq!(refused(&world.key(shop, 10, &[Scope::Read])), Refusal::KeyTaken);
    world.now_ms += TOMBSTONE_MS;
    world.entry(None);
    assert_eq!(world.seen(10), None);
    assert_eq!(world.rows.get(&key_row(&KeyHash([10; 32]))), None);
}

#[test]
fn a_key_is_revoked_only_under_its_own_tenant() {
    let mut world = World::bootstrapped();
    let (shop, other) = (world.tenant("shop"), world.tenant("other"));
    world.key(shop, 10, &[Scope::Read]);
    assert_eq!(refused(&world.revoke(other, 10)), Refusal::NoSuchKey);
    assert!(matches!(world.seen(10), Some(KeyRow::Live(_))));
}

#[test]
fn the_last_lasting_admin_key_of_default_stays() {
    let mut world = World::bootstrapped();
    let expiring = NewKey { expires_at_ms: Some(u64::MAX), ..new_key(2, &[Scope::Admin]) };
    world.apply(&Command::CreateKey(CreateKey { tenant: DEFAULT_TENANT, key: expiring }));
    world.key(DEFAULT_TENANT, 3, &[Scope::Read]);
    assert_eq!(refused(&world.revoke(DEFAULT_TENANT, 1)), Refusal::LastAdminKey);
    world.key(DEFAULT_TENANT, 4, &[Scope::Admin]);
    assert_eq!(world.revoke(DEFAULT_TENANT, 1), Reply::KeyRevoked);
    assert_eq!(refused(&world.revoke(DEFAULT_TENANT, 4)), Refusal::LastAdminKey);
    // Another tenant may lock itself out: the operator can let it in again.
    let shop = world.tenant("shop");
    world.key(shop, 10, &[Scope::Admin]);
    assert_eq!(world.revoke(shop, 10), Reply::KeyRevoked);
}

#[test]
fn a_tenant_has_a_bounded_number_of_keys() {
    let mut world = World::bootstrapped();
    let shop = world.tenant("shop");
    for number in 0..KEYS_MAX {
        let mut key = new_key(0, &[Scope::Read]);
        key.id.0[..4].copy_from_slice(&(number + 1).to_be_bytes());
        key.hash.0[..4].copy_from_slice(&(number + 1).to_be_bytes());
        let reply = world.apply(&Command::CreateKey(CreateKey { tenant: shop, key }));
        assert!(matches!(reply, Reply::KeyCreated(_)), "{reply:?}");
    }
    let over = world.key(shop, 200, &[Scope::Read]);
    assert_eq!(refused(&over), Refusal::TooManyKeys { max: KEYS_MAX });
    assert_eq!(world.delete(shop), Reply::TenantDeleted { keys_revoked: KEYS_MAX });
}

#[test]
fn two_keys_never_share_an_id_or_a_secret() {
    let mut world = World::bootstrapped();
    let (shop, other) = (world.tenant("shop"), world.tenant("other"));
    world.key(shop, 10, &[Scope::Read]);
    let same_secret = NewKey { id: KeyId([11; 12]), ..new_key(10, &[Scope::Admin]) };
    let reply = world.apply(&Command::CreateKey(CreateKey { tenant: other, key: same_secret }));
    assert_eq!(refused(&reply), Refusal::KeyTaken);
    let same_id = NewKey { hash: KeyHash([11; 32]), ..new_key(10, &[Scope::Admin]) };
    let reply = world.apply(&Command::CreateKey(CreateKey { tenant: shop, key: same_id }));
    assert_eq!(refused(&reply), Refusal::KeyTaken);
}

#[test]
fn quotas_and_shopper_keys_show_in_the_view_at_once() {
    let mut world = World::bootstrapped();
    let shop = world.tenant("shop");
    let quotas = Quotas { requests_per_second: Some(5), ..Quotas::UNLIMITED };
    let keys = ShopperKeys {
        keys: VerifyingKeys::Hs256(vec![1; 32]),
        issuer: None,
        audience: Some("shop".into()),
    };
    world.apply(&Command::SetQuotas(SetQuotas { tenant: shop, quotas }));
    let set = SetShopperKeys { tenant: shop, keys: Some(keys.clone()) };
    world.apply(&Command::SetShopperKeys(set));
    let TenantRow::Live(seen) = TenantRow::decode(&world.views[&tenant_view(shop)[..]]).unwrap()
    else {
        panic!("the tenant is live")
    };
    assert_eq!((seen.quotas, seen.shopper_keys), (quotas, Some(keys)));
    world.apply(&Command::SetShopperKeys(SetShopperKeys { tenant: shop, keys: None }));
    assert_eq!(state::tenant(&world.rows, shop).unwrap().shopper_keys, None);
    let nobody = SetQuotas { tenant: TenantId(99), quotas };
    assert_eq!(refused(&world.apply(&Command::SetQuotas(nobody))), Refusal::NoSuchTenant);
}

#[test]
fn texts_that_are_too_long_are_refused() {
    let mut world = World::bootstrapped();
    let name = "x".repeat(KEY_NAME_BYTES_MAX + 1);
    let key = NewKey { name, ..new_key(9, &[Scope::Read]) };
    let reply = world.apply(&Command::CreateKey(CreateKey { tenant: DEFAULT_TENANT, key }));
    assert_eq!(refused(&reply), Refusal::TooLong);
    let keys = VerifyingKeys::Jwks("x".repeat(SHOPPER_KEYS_BYTES_MAX + 1));
    let keys = Some(ShopperKeys { keys, issuer: None, audience: None });
    let set = SetShopperKeys { tenant: DEFAULT_TENANT, keys };
    assert_eq!(refused(&world.apply(&Command::SetShopperKeys(set))), Refusal::TooLong);
}

#[test]
fn lists_go_on_after_a_cursor_and_leave_out_what_is_gone() {
    let mut world = World::bootstrapped();
    let made: Vec<TenantId> = (0..6).map(|n| world.tenant(&format!("t{n}"))).collect();
    for gone in &made[1..4] {
        world.delete(*gone);
    }
    let names = |after, limit| -> Vec<String> {
        state::tenants(&world.rows, after, limit).into_iter().map(|t| t.name).collect()
    };
    assert_eq!(names(TenantId::SYSTEM, 2), ["default", "t0"]);
    assert_eq!(names(made[0], 2), ["t4", "t5"]);
    assert_eq!(names(made[5], 2), [""; 0]);
    for number in [12, 10, 11] {
        world.key(made[0], number, &[Scope::Read]);
    }
    let ids = |after, limit| -> Vec<u8> {
        state::keys(&world.rows, made[0], after, limit).into_iter().map(|k| k.id.0[0]).collect()
    };
    assert_eq!(ids(None, 2), [10, 11]);
    assert_eq!(ids(Some(KeyId([11; 12])), 2), [12]);
}

#[test]
fn a_world_restored_from_its_checkpoint_answers_alike() {
    let base = Arc::new(MemoryBase::new());
    let mut world = World::bootstrapped();
    let shop = world.tenant("shop");
    world.key(shop, 10, &[Scope::Read]);
    world.revoke(shop, 10);
    let layer = world.rows.freeze();
    kernel::Base::ingest(&*base, &layer, Index(world.index), &|| {}).expect("memory takes it");
    let rows = Rows::new(base);
    let ground = Ground::new(Place { shard: ShardId(0), shard_count: 1 }, &rows);
    let mut restored =
        World { rows, ground, index: world.index, now_ms: world.now_ms, views: BTreeMap::new() };
    assert_eq!(restored.tenant("next"), TenantId(shop.0 + 1));
    assert_eq!(refused(&restored.key(shop, 10, &[Scope::Read])), Refusal::KeyTaken);
    restored.now_ms += TOMBSTONE_MS;
    restored.entry(None);
    assert_eq!(restored.rows.get(&key_row(&KeyHash([10; 32]))), None);
}

/// The bytes of every command of every version. Logs hold them for ever: a line here may be
/// added, never changed.
#[test]
fn the_bytes_of_commands_are_golden() {
    let id = KeyId(*b"twelve bytes");
    let key = NewKey {
        id,
        hash: KeyHash([0xab; 32]),
        name: "ci".into(),
        scopes: [Scope::Produce, Scope::Read].into_iter().collect(),
        expires_at_ms: Some(300),
    };
    let quotas = Quotas { bytes_stored: None, burst: Some(1), ..Quotas::GENEROUS };
    let shopper = |keys| {
        let keys = ShopperKeys { keys, issuer: Some("i".into()), audience: None };
        Command::SetShopperKeys(SetShopperKeys { tenant: TenantId(300), keys: Some(keys) })
    };
    let tenant = TenantId(300);
    let commands = [
        Command::Bootstrap(key.clone()),
        Command::CreateTenant(CreateTenant { name: "shop".into() }),
        Command::DeleteTenant(DeleteTenant { tenant }),
        Command::SetQuotas(SetQuotas { tenant, quotas }),
        shopper(VerifyingKeys::Hs256(vec![1, 2, 3])),
        shopper(VerifyingKeys::Es256("pem".into())),
        shopper(VerifyingKeys::Jwks("{}".into())),
        Command::SetShopperKeys(SetShopperKeys { tenant, keys: None }),
        Command::CreateKey(CreateKey { tenant, key }),
        Command::RevokeKey(RevokeKey { tenant, id }),
    ];
    let mut golden = String::new();
    for command in commands {
        let bytes = command.encode();
        assert_eq!(Command::decode(&bytes), Ok(command));
        writeln!(golden, "{}", hex(&bytes)).expect("strings take everything");
    }
    expect![[r#"
        01017477656c7665206279746573abababababababababababababababababababababababababababababababab0263692201ac02
        02010473686f70
        0301ac02
        0402ac0201a08d06010100018094ebdc0301a08d0601c09a0c01a08d06000180ade20401d08603
        0501ac0201000301020301016900
        0501ac0201010370656d01016900
        0501ac020102027b7d01016900
        0501ac0200
        0601ac027477656c7665206279746573abababababababababababababababababababababababababababababababab0263692201ac02
        0701ac027477656c7665206279746573
    "#]]
    .assert_eq(&golden);
}

/// As for commands: rows outlive the binary that wrote them.
#[test]
fn the_bytes_of_rows_are_golden() {
    let record = KeyRecord {
        tenant: TenantId(2),
        id: KeyId(*b"twelve bytes"),
        name: "ci".into(),
        scopes: Scopes::ALL,
        created_at_ms: 300,
        expires_at_ms: None,
    };
    let tenant = TenantRecord {
        id: TenantId(2),
        name: "shop".into(),
        created_at_ms: 300,
        quotas: Quotas::UNLIMITED,
        shopper_keys: None,
    };
    let golden = [
        KeyRow::Live(record).encode(),
        KeyRow::Revoked { at_ms: 300 }.encode(),
        TenantRow::Live(tenant).encode(),
        TenantRow::Deleted { name: "shop".into(), at_ms: 300 }.encode(),
        NameRow::Taken(TenantId(2)).encode(),
        NameRow::Free.encode(),
    ];
    let golden: String = golden.iter().map(|bytes| hex(bytes) + "\n").collect();
    expect![[r#"
        0100027477656c76652062797465730263693fac0200
        0101ac02
        0200020473686f70ac020000000000000000000000
        02010473686f70ac02
        010002
        0101
    "#]]
    .assert_eq(&golden);
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digits).collect()
}

/// What was written before there were quotas of queues: a line here is never changed.
#[test]
fn version_1_is_still_read_and_had_no_limits_on_queues() {
    let quotas = Quotas {
        requests_per_second: Some(100_000),
        burst: Some(1),
        bytes_stored: None,
        entities: Some(1_000_000_000),
        connections: Some(100_000),
        ..Quotas::UNLIMITED
    };
    let set = unhex("0401ac0201a08d06010100018094ebdc0301a08d06");
    let expected = SetQuotas { tenant: TenantId(300), quotas };
    assert_eq!(Command::decode(&set), Ok(Command::SetQuotas(expected)));
    let tenant = TenantRecord {
        id: TenantId(2),
        name: "shop".into(),
        created_at_ms: 300,
        quotas: Quotas::UNLIMITED,
        shopper_keys: None,
    };
    let row = unhex("0100020473686f70ac02000000000000");
    assert_eq!(TenantRow::decode(&row), Ok(TenantRow::Live(tenant.clone())));
    let row = unhex("01010473686f70ac02");
    let deleted = TenantRow::Deleted { name: "shop".into(), at_ms: 300 };
    assert_eq!(TenantRow::decode(&row), Ok(deleted));
    let replies = [
        ("0101020473686f70ac02000000000000", Reply::Tenant(tenant)),
        ("010203", Reply::TenantDeleted { keys_revoked: 3 }),
        ("0104", Reply::KeyRevoked),
        ("010501", Reply::Refused(Refusal::NameTaken)),
    ];
    for (bytes, reply) in replies {
        assert_eq!(Reply::decode(&unhex(bytes)), Ok(reply), "{bytes}");
    }
}

#[test]
fn commands_that_mean_nothing_change_nothing() {
    let mut world = World::bootstrapped();
    let good = create("shop").encode();
    let mut long = good.to_vec();
    long.push(0);
    let bad: [&[u8]; 6] = [&[], &[2], &[2, 2, 0], &[99, 1], &good[..4], &long];
    for bytes in bad {
        let before = world.rows.active_bytes();
        let answer = world.entry(Some(&Bytes::copy_from_slice(bytes)));
        assert!(answer.expect("a command was given").is_err(), "{bytes:?}");
        assert_eq!(world.rows.active_bytes(), before);
    }
    assert!(KeyRow::decode(&[]).is_err() && KeyRow::decode(&[2, 0]).is_err());
    assert!(TenantRow::decode(&[]).is_err() && TenantRow::decode(&[3, 0]).is_err());
    assert!(Reply::decode(&[]).is_err() && Reply::decode(&[3, 0]).is_err());
    assert!(KeyRow::decode(&[1, 9]).is_err());
}

#[test]
fn debug_shows_no_secret() {
    let text = format!("{:?}", VerifyingKeys::Hs256(b"hunter2".to_vec()));
    assert_eq!(text, "Hs256(7 bytes)");
    assert_eq!(format!("{:?}", KeyHash([0xab; 32])), "KeyHash(abababab…)");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings take everything");
        text
    })
}
