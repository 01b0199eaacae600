//! Streams from Rust, as a program has them.

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Fetch, NewRecord, NewStream, SeekTo, StreamUpdate};

use crate::harness::{Cut, Proxy, Server};

fn numbers(count: u32) -> Vec<NewRecord> {
    let record = |n: u32| NewRecord::new(&n).expect("JSON").key(n.to_string());
    (0..count).map(record).collect()
}

#[tokio::test]
async fn streams_are_made_appended_to_and_read_in_groups() {
    let server = Server::start().await;
    let client = server.client();
    let new = NewStream::new("clicks").partitions(4).retention(Duration::from_secs(3600));
    let made = client.streams().create(&new).await.expect("made");
    let there = client.streams().create(&new).await.expect("there");
    assert_eq!((&there.stream_id, made.created, there.created), (&made.stream_id, true, false));
    let stream = client.stream("clicks");
    let results = stream.append(&numbers(2500)).await.expect("three requests");
    let placed: Vec<_> = results.into_iter().map(|result| result.expect("appended")).collect();
    assert_eq!(placed.len(), 2500);
    let bad = [NewRecord::new("x").expect("JSON").key(""), NewRecord::new("y").expect("JSON")];
    let results = stream.append(&bad).await.expect("each by itself");
    assert!(results[0].as_ref().is_err_and(|error| error.is("invalid-body")));
    assert!(results[1].is_ok());
    let info = client.streams().get("clicks").await.expect("there");
    assert_eq!((info.partitions, info.records), (4, Some(2501)));
    assert_eq!(client.streams().list_all("c").await.expect("all").len(), 1);

    // Reading on before anything is committed.
    let mut ask = Fetch::new("w").up_to(1000).wait(Duration::from_secs(20));
    let mut seen = 0;
    let mut last = None;
    while seen < 2501 {
        let got = stream.fetch("g", &ask).await.expect("fetched");
        assert_eq!(got.partitions, [0, 1, 2, 3]);
        seen += got.records.len();
        ask = ask.after(&got);
        last = Some(got);
    }
    let last = last.expect("there was something");
    assert_eq!(stream.groups().await.expect("all")[0].lag, 2501);
    let sought = stream.seek("g", &SeekTo::Latest).await.expect("sought");
    let stale = stream.commit("g", "w", &last).await.expect_err("it was sought since");
    assert!(stale.is("stale-member"), "{stale}");
    let unknown = stream.commit_offsets("g", None, &sought.offsets).await;
    assert!(unknown.expect_err("perhaps it is from before").is("stale-member"));
    stream.fetch("g", &Fetch::new("w")).await.expect("from there");
    stream.commit_offsets("g", None, &sought.offsets).await.expect("nobody is asked");
    let group = stream.groups().await.expect("all").remove(0);
    assert_eq!((group.lag, group.members), (0, 1));
    let first = &placed[0];
    let back = SeekTo::Offsets(BTreeMap::from([(first.partition, first.offset)]));
    stream.seek("g", &back).await.expect("sought");
    let got = stream.fetch("g", &Fetch::new("w").up_to(1)).await.expect("fetched");
    let record = &got.records[0];
    assert_eq!((record.offset, record.value::<u32>().expect("a number")), (first.offset, 0));
    assert_eq!((record.key.as_deref(), &record.timestamp), (Some("0"), &first.timestamp));
    stream.commit("g", "w", &got).await.expect("committed");
    // Partitions keep time by themselves.
    let earliest =
        placed.iter().map(|placed| placed.timestamp.clone()).min().expect("there are some");
    stream.seek("g", &SeekTo::Time(earliest)).await.expect("sought");
    assert_eq!(stream.groups().await.expect("all")[0].lag, 2501);
    stream.leave("g", "w").await.expect("left");

    let page = stream.read(first.partition, first.offset, 1).await.expect("read");
    assert_eq!((page.records.len(), page.next_offset), (1, first.offset + 1));
    client.streams().delete("clicks").await.expect("deleted");
    assert!(stream.groups().await.expect_err("it is gone").is("not-found"));
    server.stop().await;
}

#[tokio::test]
async fn groups_are_looked_at_and_deleted() {
    let server = Server::start().await;
    let client = server.client();
    client.streams().create(&NewStream::new("s").partitions(2)).await.expect("made");
    let stream = client.stream("s");
    assert!(stream.append(&numbers(20)).await.expect("appended").iter().all(Result::is_ok));
    assert!(stream.group("g").await.expect_err("nobody has fetched").is("not-found"));
    let got = stream.fetch("g", &Fetch::new("w").up_to(1)).await.expect("fetched");
    stream.commit("g", "w", &got).await.expect("committed");

    let group = stream.group("g").await.expect("there");
    assert_eq!((group.group.as_str(), group.lag, group.epoch), ("g", 19, got.epoch));
    let [member] = &group.members[..] else { panic!("one member: {group:?}") };
    assert_eq!((member.member.as_str(), &member.partitions[..]), ("w", &[0, 1][..]));
    assert_eq!(member.session_seconds, 30);
    let of = |partition: u16| &group.partitions[usize::from(partition)];
    let read = of(got.records[0].partition);
    assert_eq!((read.member.as_deref(), read.start), (Some("w"), 0));
    assert_eq!((read.committed, read.lag), (Some(1), read.end - 1));
    assert_eq!(of(0).end + of(1).end, 20);
    assert_eq!(of(0).lag + of(1).lag, 19);

    let busy = stream.delete_group("g").await.expect_err("it has a member");
    assert!(busy.is("conflict"), "{busy}");
    stream.leave("g", "w").await.expect("left");
    stream.delete_group("g").await.expect("deleted");
    assert!(stream.group("g").await.expect_err("it is gone").is("not-found"));
    assert!(stream.groups().await.expect("all").is_empty());
    server.stop().await;
}

#[tokio::test]
async fn streams_are_changed() {
    let server = Server::start().await;
    let streams = server.client().streams();
    let new = NewStream::new("s").partitions(2).retention_bytes(1 << 20);
    streams.create(&new).await.expect("made");
    let change = StreamUpdate::new().partitions(3).retention(Duration::from_secs(60));
    let changed = streams.update("s", &change).await.expect("changed");
    assert_eq!((changed.partitions, changed.retention_seconds), (3, Some(60)));
    assert_eq!(changed.retention_bytes, Some(1 << 20), "what is left out stays");
    assert_eq!(changed, streams.get("s").await.expect("there"));
    let holds: Vec<_> = changed.per_partition.iter().map(|of| (of.partition, of.end)).collect();
    assert_eq!(holds, [(0, 0), (1, 0), (2, 0)]);

    let change = StreamUpdate::new().keep_for_ever().keep_all_bytes();
    let changed = streams.update("s", &change).await.expect("changed");
    assert_eq!((changed.retention_seconds, changed.retention_bytes), (None, None));
    let fewer = streams.update("s", &StreamUpdate::new().partitions(1)).await;
    assert!(fewer.expect_err("records are there").is("unprocessable"));
    let none = streams.update("none", &StreamUpdate::new()).await;
    assert!(none.expect_err("no such stream").is("not-found"));
    server.stop().await;
}

#[tokio::test]
async fn an_append_that_is_cut_is_done_once() {
    let server = Server::start().await;
    let client = server.client();
    client.streams().create(&NewStream::new("s").partitions(4)).await.expect("made");
    let plan = [Cut::BeforeTheAnswer, Cut::AtOnce, Cut::BeforeTheAnswer];
    let proxy = Proxy::start(server.addr, &plan).await;
    let results = proxy.client().stream("s").append(&numbers(20)).await.expect("in the end");
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(client.streams().get("s").await.expect("there").records, Some(20));
    server.stop().await;
}
