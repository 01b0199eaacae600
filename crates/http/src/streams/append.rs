//! Putting records into partitions.
//!
//! The records of a request are split by their partitions, and what goes to one partition is one
//! command: all of it or nothing. With an idempotency key each command has a key of its own, made of
//! the request's and the partition, so that the request again finds every part that was done.

use std::collections::BTreeMap;

use kernel::id::digest;
use kernel::idempotency::{bodies_of, body_of};
use kernel::{IdempotencyKey, TenantId};
use node::{Node, Refusal};
use streams::{Append, Appended, Command, Definition, NewRecord, Reply, StreamId};
use tokio::task::JoinSet;

use super::{anywhere, first_of, submit_at};
use crate::app::EdgeState;
use crate::auth::Caller;
use crate::problem::Problem;

/// Partitions that the records without a key of one request go to, at most: each costs a command.
const SPREAD_MAX: u16 = 8;

/// With more partitions in a shard, a look at all keys of a request in it costs less than one at each.
const KEYS_BY_ONE: usize = 16;

/// Where a record is.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) partition: u16,
    pub(crate) offset: u64,
    pub(crate) at_ms: u64,
}

/// What came of a part of a request: the partition refused it, or could not be reached.
pub(crate) type Outcome = Result<Placed, Missed>;

/// Why a record is not in its partition.
#[derive(Clone, Debug)]
pub(crate) enum Missed {
    /// It said no.
    Refused(streams::Refusal),
    /// It was not asked, or did not answer.
    Unanswered(Refusal),
}

/// The records of a request that go to one partition.
#[derive(Default)]
struct Part {
    /// In the request.
    places: Vec<usize>,
    records: Vec<NewRecord>,
}

/// Records by partition: those with a key to the partition of the key, the others spread from
/// `start` on. The same records are split the same, as long as there are so many partitions.
fn split(records: Vec<(usize, NewRecord)>, partitions: u16, start: u64) -> BTreeMap<u16, Part> {
    let width = u64::from(SPREAD_MAX.min(partitions));
    let mut without_key = 0;
    let mut parts: BTreeMap<u16, Part> = BTreeMap::new();
    for (place, record) in records {
        let partition = match &record.key {
            Some(key) => streams::partition_of(key, partitions),
            None => {
                let from_start = without_key % width;
                without_key += 1;
                let number = (start % u64::from(partitions) + from_start) % u64::from(partitions);
                u16::try_from(number).expect("less than there are partitions")
            }
        };
        let part = parts.entry(partition).or_default();
        part.places.push(place);
        part.records.push(record);
    }
    parts
}

/// What the keys of all parts of a request begin with, and no others'.
fn part_keys(whole: IdempotencyKey, id: StreamId) -> [u8; 14] {
    let of_request = digest(&[&whole.key, &id.shard.to_be_bytes(), &id.number.to_be_bytes()]);
    *of_request.first_chunk().expect("a digest is longer")
}

/// How a request was split is part of its body: with more partitions than before it would be split in
/// another way.
fn part_body(whole: IdempotencyKey, partitions: u16) -> [u8; 16] {
    digest(&[&whole.body, &partitions.to_be_bytes()])
}

/// The key of what a request puts into a partition.
fn part_key(
    whole: IdempotencyKey,
    id: StreamId,
    partition: u16,
    partitions: u16,
) -> IdempotencyKey {
    let mut key = [0; 16];
    key[..14].copy_from_slice(&part_keys(whole, id));
    key[14..].copy_from_slice(&partition.to_be_bytes());
    IdempotencyKey { key, body: part_body(whole, partitions) }
}

/// What is known of a request with a key.
#[derive(Debug, PartialEq, Eq)]
enum Before {
    /// Nothing.
    New,
    /// Something of it was done, when there were so many partitions.
    Done { partitions: u16 },
    /// The key was used with another body.
    Conflict,
}

/// Looks for parts of a request in every partition: which of them it went to depends on its body, and
/// any of its parts may be the only one that was done. Blocks.
fn before(node: &Node, tenant: TenantId, stream: &Definition, whole: IdempotencyKey) -> Before {
    let (id, now) = (stream.id, stream.settings.partitions);
    let mut bodies: Vec<[u8; 16]> =
        if usize::from(now) <= KEYS_BY_ONE * usize::from(node.shard_count()) {
            let rows = |partition| node.rows(streams::partition_place(tenant, id, partition));
            let key = |partition| part_key(whole, id, partition, now).key;
            (0..now).filter_map(|partition| body_of(&rows(partition), &key(partition))).collect()
        } else {
            let keys = part_keys(whole, id);
            node.all_rows().iter().flat_map(|rows| bodies_of(rows, &keys)).collect()
        };
    bodies.sort_unstable();
    bodies.dedup();
    if bodies.is_empty() {
        return Before::New;
    }
    // Perhaps it was split when the stream had fewer.
    let then = (1..=now).rev().find(|then| bodies.contains(&part_body(whole, *then)));
    then.map_or(Before::Conflict, |partitions| Before::Done { partitions })
}

/// Appends records, each with its place in the request, and says of each place what came of it.
pub(crate) async fn append(
    edge: &EdgeState,
    caller: &Caller,
    stream: &Definition,
    idempotency: Option<IdempotencyKey>,
    records: Vec<(usize, NewRecord)>,
) -> Result<Vec<(usize, Outcome)>, Problem> {
    let tenant = caller.tenant;
    let mut partitions = stream.settings.partitions;
    let mut done = false;
    if let Some(whole) = idempotency {
        let (node, stream) = (edge.node.clone(), stream.clone());
        match edge.node.read(move || before(&node, tenant, &stream, whole)).await? {
            Before::New => {}
            Before::Done { partitions: then } => (partitions, done) = (then, true),
            Before::Conflict => return Err(Refusal::IdempotencyConflict.into()),
        }
    }
    // An answer that was given is given again, however full it is.
    if !done {
        caller.check_room(false)?;
        caller.charge_messages(records.len())?;
    }
    let start = idempotency.map_or_else(|| anywhere(edge), |whole| first_of(whole.key));
    let mut running = JoinSet::new();
    for (partition, Part { places, records }) in split(records, partitions, start) {
        let key = idempotency.map(|whole| part_key(whole, stream.id, partition, partitions));
        let append = Append {
            id: stream.id,
            partition,
            version: stream.version,
            retention: stream.settings.retention,
            records,
        };
        let edge = EdgeState::clone(edge);
        running.spawn(async move {
            let at = streams::partition_place(tenant, append.id, partition);
            let reply = submit_at(&edge, at, tenant, key, &Command::Append(append)).await;
            (partition, places, reply)
        });
    }
    let mut outcomes = Vec::new();
    for (partition, places, reply) in running.join_all().await {
        let appended: Result<Appended, Missed> = match reply {
            Ok(Reply::Appended(appended)) => Ok(appended),
            Ok(Reply::Refused(refusal)) => Err(Missed::Refused(refusal)),
            Ok(other) => unreachable!("an Append is answered with {other:?}"),
            Err(refusal) => Err(Missed::Unanswered(refusal)),
        };
        for (offset, place) in (0..).zip(places) {
            let placed =
                |Appended { first, at_ms, .. }| Placed { partition, offset: first + offset, at_ms };
            outcomes.push((place, appended.clone().map(placed)));
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use kernel::Envelope;
    use node::NodeConfig;
    use streams::{Retention, Settings};

    use super::*;

    fn records(keys: &[Option<&str>]) -> Vec<(usize, NewRecord)> {
        let record = |key: &Option<&str>| NewRecord {
            key: key.map(|key| key.as_bytes().to_vec().into()),
            value: "1".into(),
        };
        keys.iter().map(record).enumerate().collect()
    }

    fn places(parts: &BTreeMap<u16, Part>) -> Vec<(u16, Vec<usize>)> {
        parts.iter().map(|(partition, part)| (*partition, part.places.clone())).collect()
    }

    #[test]
    fn a_key_has_one_partition_and_its_order() {
        let keys = [Some("a"), Some("b"), None, Some("a"), Some("b"), Some("a")];
        let parts = split(records(&keys), 1024, 7);
        let a = &parts[&streams::partition_of(b"a", 1024)];
        assert_eq!(a.places, [0, 3, 5]);
        assert_eq!(places(&split(records(&keys), 1, 7)), [(0, vec![0, 1, 2, 3, 4, 5])]);
    }

    #[test]
    fn what_has_no_key_is_spread_over_a_few() {
        let parts = split(records(&[None; 10]), 3, u64::MAX);
        // The greatest start is divisible by three.
        assert_eq!(places(&parts), [(0, vec![0, 3, 6, 9]), (1, vec![1, 4, 7]), (2, vec![2, 5, 8])]);
        assert_eq!(split(records(&[None; 100]), 100, 5).len(), usize::from(SPREAD_MAX));
    }

    #[test]
    fn a_part_has_a_key_of_its_own() {
        let whole = IdempotencyKey { key: [1; 16], body: [2; 16] };
        let id = StreamId { shard: 1, number: 2 };
        let part = part_key(whole, id, 0, 4);
        let others = [
            part_key(whole, id, 1, 4),
            part_key(whole, StreamId { shard: 1, number: 3 }, 0, 4),
            part_key(IdempotencyKey { key: [3; 16], ..whole }, id, 0, 4),
        ];
        assert!(others.iter().all(|other| other.key != part.key), "{others:?}");
        assert_eq!(part_key(whole, id, 0, 5).key, part.key);
        assert_ne!(part_key(whole, id, 0, 5).body, part.body, "it was split in another way");
    }

    /// Of a stream that has so many partitions now.
    fn definition(partitions: u16) -> Definition {
        let settings = Settings { partitions, retention: Retention::default() };
        let id = StreamId { shard: 1, number: 2 };
        Definition { id, version: 1, created_ms: 0, updated_ms: 0, settings, groups: 0 }
    }

    #[tokio::test]
    async fn a_request_is_known_by_any_of_its_parts_however_many_partitions_there_are_now() {
        let folder = tempfile::tempdir().expect("a folder");
        let data_dir = folder.path().join("data");
        let config = NodeConfig { data_dir, shards: Some(2), ..NodeConfig::default() };
        let node = Node::start(config).expect("a node");
        let tenant = TenantId(7);
        // Few, which are looked at one by one, and many; the last part of the first request in each.
        let many = 3 * u16::try_from(KEYS_BY_ONE).expect("few");
        for (number, partition) in (0..).zip([0, 1, 2, 3, many / 2, many - 2]) {
            let whole = IdempotencyKey { key: [number; 16], body: [2; 16] };
            let other = IdempotencyKey { body: [3; 16], ..whole };
            let then = definition(partition + 1);
            let done = part_key(whole, then.id, partition, partition + 1);
            let append = Append {
                id: then.id,
                partition,
                version: 1,
                retention: Retention::default(),
                records: vec![NewRecord { key: None, value: "1".into() }],
            };
            let envelope = Envelope {
                machine: streams::MACHINE,
                tenant,
                idempotency: Some(done),
                command: Command::Append(append).encode(),
            };
            let known = |now: u16, whole| before(&node, tenant, &definition(now), whole);
            assert_eq!(known(many, whole), Before::New);
            let at = streams::partition_place(tenant, then.id, partition);
            node.submit(at, envelope).await.expect("appended");
            for now in [partition + 1, partition + 2, many - 1, many] {
                let partitions = partition + 1;
                assert_eq!(known(now, whole), Before::Done { partitions }, "{partition} {now}");
                assert_eq!(known(now, other), Before::Conflict, "{partition} {now}");
            }
            let stranger = IdempotencyKey { key: [99; 16], ..whole };
            assert_eq!(known(many, stranger), Before::New);
        }
        node.shutdown().await;
    }
}
