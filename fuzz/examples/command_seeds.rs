//! Writes the seeds of `command_decoder`: a sound encoding of every command, reply and effect, and
//! entries that hold the commands. From `fuzz/`: `cargo run --example command_seeds`.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use kernel::machine::KERNEL;
use kernel::mail::{Letter, MailCommand};
use kernel::{Entry, Envelope, IdempotencyKey, MachineId, ShardId, TenantId};
use recents::{
    Add, ArchiveEffect, Archived, Clear, PurgeEffect, RecentsEffect, Remove, Settings, fold,
};
use tenants::{
    CreateKey, CreateTenant, DeleteTenant, KeyHash, KeyId, KeyRecord, NewKey, Quotas, Refusal,
    RevokeKey, Scopes, SetQuotas, SetShopperKeys, ShopperKeys, TenantRecord, VerifyingKeys,
};

const TENANT: TenantId = TenantId(300);
const KEY: KeyId = KeyId(*b"twelve bytes");

type Seed = (&'static str, Bytes);

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/command_decoder");
    std::fs::create_dir_all(&folder)?;
    let commands = [
        (recents::MACHINE, recents_commands()),
        (tenants::MACHINE, tenants_commands()),
        (KERNEL, mail_commands()),
        (streams::MACHINE, streams_commands()),
        (queue::MACHINE, queue_commands()),
    ];
    let mut seeds = vec![
        ("entry-empty", entry(Vec::new())),
        ("entry-recents", entry(envelopes(&commands[..1]))),
        ("entry-tenants", entry(envelopes(&commands[1..2]))),
        ("entry-mail", entry(envelopes(&commands[2..3]))),
        ("entry-streams", entry(envelopes(&commands[3..4]))),
        ("entry-queue", entry(envelopes(&commands[4..]))),
        ("entry-all", entry(envelopes(&commands))),
    ];
    seeds.extend(commands.into_iter().flat_map(|(_, commands)| commands));
    seeds.extend(answers());
    seeds.extend(streams_answers());
    for (name, bytes) in seeds {
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

/// Every other one with an idempotency key.
fn envelopes(commands: &[(MachineId, Vec<Seed>)]) -> Vec<Envelope> {
    let each =
        commands.iter().flat_map(|(machine, seeds)| seeds.iter().map(|seed| (*machine, seed)));
    each.enumerate()
        .map(|(place, (machine, (_, command)))| Envelope {
            machine,
            tenant: TENANT,
            idempotency: (place % 2 == 1)
                .then_some(IdempotencyKey { key: [0xaa; 16], body: [0xbb; 16] }),
            command: command.clone(),
        })
        .collect()
}

fn entry(commands: Vec<Envelope>) -> Bytes {
    Entry { at_ms: 1_700_000_000_000, seed: [0xcc; 16], timers_max: 4096, commands }.encode()
}

fn recents_commands() -> Vec<Seed> {
    use recents::Command;
    let user = || "shopper".to_owned();
    let archived = Archived {
        user: user(),
        effect: 5,
        object: "o/1".into(),
        numbers: vec![1, 300, u64::MAX],
        row_bytes: 900,
    };
    let add = Add { user: user(), query: "Straße".into(), folded: fold("Straße") };
    vec![
        ("recents-add", Command::Add(add).encode()),
        ("recents-remove", Command::Remove(Remove { user: user(), folded: 300 }).encode()),
        ("recents-clear", Command::Clear(Clear { user: user() }).encode()),
        ("recents-archived", Command::Archived(archived).encode()),
        ("recents-configure", Command::Configure(Settings::default()).encode()),
        ("recents-purged", Command::Purged { effect: u64::MAX }.encode()),
    ]
}

fn tenants_commands() -> Vec<Seed> {
    use tenants::Command;
    let key = NewKey {
        id: KEY,
        hash: KeyHash([0xab; 32]),
        name: "ci".into(),
        scopes: Scopes::ALL,
        expires_at_ms: Some(300),
    };
    let shopper = |keys| {
        Command::SetShopperKeys(SetShopperKeys { tenant: TENANT, keys: Some(shopper_keys(keys)) })
            .encode()
    };
    let no_keys = SetShopperKeys { tenant: TENANT, keys: None };
    let quotas = SetQuotas { tenant: TENANT, quotas: Quotas::GENEROUS };
    vec![
        ("tenants-bootstrap", Command::Bootstrap(key.clone()).encode()),
        ("tenants-create", Command::CreateTenant(CreateTenant { name: "shop".into() }).encode()),
        ("tenants-delete", Command::DeleteTenant(DeleteTenant { tenant: TENANT }).encode()),
        ("tenants-quotas", Command::SetQuotas(quotas).encode()),
        ("tenants-hs256", shopper(VerifyingKeys::Hs256(vec![1, 2, 3]))),
        ("tenants-es256", shopper(VerifyingKeys::Es256("pem".into()))),
        ("tenants-jwks", shopper(VerifyingKeys::Jwks("{}".into()))),
        ("tenants-no-shopper-keys", Command::SetShopperKeys(no_keys).encode()),
        ("tenants-create-key", Command::CreateKey(CreateKey { tenant: TENANT, key }).encode()),
        ("tenants-revoke-key", Command::RevokeKey(RevokeKey { tenant: TENANT, id: KEY }).encode()),
    ]
}

fn shopper_keys(keys: VerifyingKeys) -> ShopperKeys {
    ShopperKeys { keys, issuer: Some("i".into()), audience: None }
}

fn mail_commands() -> Vec<Seed> {
    let body = recents::Command::Clear(Clear { user: "shopper".into() }).encode();
    let letter = Letter { machine: recents::MACHINE, tenant: TENANT, body };
    let deliver = MailCommand::Deliver { from: ShardId(2), number: 7, letter };
    let collected = MailCommand::Collected { to: ShardId(2), through: 7 };
    vec![("mail-deliver", deliver.encode()), ("mail-collected", collected.encode())]
}

fn streams_commands() -> Vec<Seed> {
    use streams::{
        Append, Command, Commit, Create, Join, NewRecord, Retention, Seek, Settings, StreamId,
        Update,
    };
    let (stream, group, member) = (|| "s".to_owned(), || "g".to_owned(), || "m".to_owned());
    let retention = Retention { age_ms: Some(300), bytes: None };
    let settings = Settings { partitions: 300, retention };
    let offsets = BTreeMap::from([(1, 300), (300, 0)]);
    let (key, value) = (Some(Bytes::from_static(b"k")), Bytes::from_static(b"{}"));
    let records = vec![NewRecord { key, value: value.clone() }, NewRecord { key: None, value }];
    let id = StreamId { shard: 1, number: 300 };
    let append = Append { id, partition: 2, version: 3, retention, records };
    let start = offsets.clone();
    let looked_up = Some(id);
    let join = Join {
        stream: stream(),
        group: group(),
        member: member(),
        session_ms: 300,
        start,
        id: looked_up,
    };
    let commit = Commit {
        stream: stream(),
        group: group(),
        member: Some(member()),
        epoch: Some(300),
        offsets: offsets.clone(),
        id: looked_up,
    };
    let update = Update { stream: stream(), version: 300, settings };
    let leave = Command::Leave { stream: stream(), group: group(), member: member() };
    let delete_group = Command::DeleteGroup { stream: stream(), group: group() };
    let seek = Seek { stream: stream(), group: group(), offsets, id: looked_up };
    vec![
        ("streams-create", Command::Create(Create { stream: stream(), settings }).encode()),
        ("streams-update", Command::Update(update).encode()),
        ("streams-delete", Command::Delete { stream: stream() }.encode()),
        ("streams-append", Command::Append(append).encode()),
        ("streams-join-v2", Command::Join(join).encode()),
        ("streams-leave", leave.encode()),
        ("streams-commit-v2", Command::Commit(commit).encode()),
        ("streams-seek-v2", Command::Seek(seek).encode()),
        ("streams-delete-group", delete_group.encode()),
    ]
}

fn queue_commands() -> Vec<Seed> {
    use queue::{Ack, Command, Extend, Nack, NewMessage, Receipt, Receive, Release, Send};
    let queue = || "q".to_owned();
    let receipts = || vec![Receipt::from_bytes(&[1; 36]).expect("as long as one")];
    let message = NewMessage {
        delay_ms: Some(300),
        priority: 9,
        group: Some("g".into()),
        dedup: Some([7; 16]),
        parcel: Bytes::from_static(b"p"),
    };
    let send = Send { queue: queue(), messages: vec![message] };
    let receive = Receive { queue: queue(), max: 10, visibility_ms: Some(300) };
    let nack = Nack {
        queue: queue(),
        receipts: receipts(),
        delay_ms: Some(300),
        reason: Some("no".into()),
    };
    let extend = Extend { queue: queue(), receipts: receipts(), visibility_ms: 300 };
    let release = Release { queue: queue(), receipts: receipts(), delay_ms: 300 };
    vec![
        ("queue-send", Command::Send(send).encode()),
        ("queue-receive", Command::Receive(receive).encode()),
        ("queue-ack", Command::Ack(Ack { queue: queue(), receipts: receipts() }).encode()),
        ("queue-nack", Command::Nack(nack).encode()),
        ("queue-extend", Command::Extend(extend).encode()),
        ("queue-release", Command::Release(release).encode()),
    ]
}

fn streams_answers() -> Vec<Seed> {
    use streams::{Appended, Owned, Refusal, Reply, Standing, StreamId};
    let id = StreamId { shard: 1, number: 300 };
    let owned = vec![Owned { partition: 1, since: 2, committed: Some(300) }];
    let committed = BTreeMap::from([(1, 300)]);
    let appended = Appended { first: 300, count: 2, at_ms: 300 };
    vec![
        ("streams-created-reply", Reply::Created { id, new: true }.encode()),
        ("streams-appended-reply", Reply::Appended(appended).encode()),
        ("streams-joined-reply", Reply::Joined(Standing { epoch: 300, owned }).encode()),
        ("streams-committed-reply", Reply::Committed(committed).encode()),
        ("streams-refusal", Reply::Refused(Refusal::StaleMember { epoch: 300 }).encode()),
    ]
}

fn answers() -> Vec<Seed> {
    use tenants::Reply;
    let key = KeyRecord {
        tenant: TENANT,
        id: KEY,
        name: "ci".into(),
        scopes: Scopes::ALL,
        created_at_ms: 300,
        expires_at_ms: None,
    };
    let tenant = TenantRecord {
        id: TENANT,
        name: "shop".into(),
        created_at_ms: 300,
        quotas: Quotas::GENEROUS,
        shopper_keys: Some(shopper_keys(VerifyingKeys::Jwks("{}".into()))),
    };
    let archive = ArchiveEffect { user: "shopper".into(), before_ms: 300 };
    let purge = PurgeEffect { user: "shopper".into(), through: 300 };
    vec![
        ("recents-reply", recents::Reply::Added { at_ms: 300 }.encode()),
        ("recents-archive-effect", RecentsEffect::Archive(archive).encode()),
        ("recents-purge-effect", RecentsEffect::Purge(purge).encode()),
        ("tenants-key-reply", Reply::KeyCreated(key).encode()),
        ("tenants-tenant-reply", Reply::Tenant(tenant).encode()),
        ("tenants-deleted-reply", Reply::TenantDeleted { keys_revoked: 3 }.encode()),
        ("tenants-refusal", Reply::Refused(Refusal::TooManyKeys { max: 1000 }).encode()),
    ]
}
