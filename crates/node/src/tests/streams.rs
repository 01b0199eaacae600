//! Streams on a real node: their partitions are on other shards than their home.

use bytes::Bytes;
use kernel::Envelope;
use streams::{Append, Command, Create, NewRecord, Reply, Retention, Settings, StreamId};

use super::{TENANT, World};

const PARTITIONS: u16 = 8;
const KEPT: Retention = Retention { age_ms: None, bytes: None };

impl World {
    fn stream_command(&self, at: kernel::VirtualShard, command: &Command) -> Reply {
        let (machine, command) = (streams::MACHINE, command.encode());
        let envelope = Envelope { machine, tenant: TENANT, idempotency: None, command };
        let reply = self.runtime.block_on(self.node.submit(at, envelope)).expect("taken");
        Reply::decode(&reply).expect("a reply")
    }

    fn make_stream(&self) -> StreamId {
        let settings = Settings { partitions: PARTITIONS, retention: KEPT };
        let create = Command::Create(Create { stream: "clicks".into(), settings });
        match self.stream_command(streams::place(TENANT, "clicks"), &create) {
            Reply::Created { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    fn append(&self, id: StreamId, partition: u16, value: &'static str) {
        let records = vec![NewRecord { key: None, value: Bytes::from_static(value.as_bytes()) }];
        let append = Append { id, partition, version: 1, retention: KEPT, records };
        let at = streams::partition_place(TENANT, id, partition);
        let reply = self.stream_command(at, &Command::Append(append));
        assert!(matches!(reply, Reply::Appended(_)), "{reply:?}");
    }

    fn records(&self, id: StreamId, partition: u16) -> Vec<Bytes> {
        let rows = self.node.rows(streams::partition_place(TENANT, id, partition));
        let many = (usize::MAX, usize::MAX);
        let fetched = streams::fetch(&rows, TENANT, id, partition, 0, many);
        fetched.records.into_iter().map(|record| record.value).collect()
    }
}

#[test]
fn partitions_are_on_all_shards_and_outlive_a_restart_but_not_their_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    let id = world.make_stream();
    let shard = |partition| streams::partition_place(TENANT, id, partition).shard(2);
    assert!((1..PARTITIONS).any(|partition| shard(partition) != shard(0)));
    for partition in 0..PARTITIONS {
        world.append(id, partition, "a");
        world.append(id, partition, "b");
    }
    world.node.shutdown_blocking();
    drop(world);
    let world = World::open(folder.path());
    for partition in 0..PARTITIONS {
        assert_eq!(world.records(id, partition), ["a", "b"]);
    }
    let delete = Command::Delete { stream: "clicks".into() };
    assert_eq!(world.stream_command(streams::place(TENANT, "clicks"), &delete), Reply::Deleted);
    world.until("every partition has heard of it", |world| {
        (0..PARTITIONS).all(|partition| world.records(id, partition).is_empty())
    });
}

#[test]
fn all_who_wait_for_a_partition_are_called_when_a_record_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    let id = world.make_stream();
    let keys = |partitions: std::ops::Range<u16>| -> Vec<Bytes> {
        partitions.map(|partition| streams::partition_row(TENANT, id, partition).into()).collect()
    };
    let everything = world.node.wait_for_any(keys(0..PARTITIONS));
    let some = world.node.wait_for_any(keys(3..5));
    let others = world.node.wait_for_any(keys(0..3));
    world.append(id, 3, "a");
    world.runtime.block_on(async {
        everything.called().await;
        some.called().await;
        let mut called = std::pin::pin!(others.called());
        let called = std::future::poll_fn(|context| {
            std::task::Poll::Ready(called.as_mut().poll(context).is_ready())
        });
        assert!(!called.await, "nothing has come where they wait");
    });
}
