//! Bytes that outlive the binary.

use expect_test::{Expect, expect};
use kernel::Unreadable;

use super::*;
use crate::command::{NewSettings, Post};
use crate::state::{Alarm, Chunk, GroupRow, Seen, Stream, row};

const ID: StreamId = StreamId { shard: 2, number: 300 };
const KEPT: Retention = Retention { age_ms: Some(1000), bytes: None };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check(bytes: &[u8], expected: Expect) {
    expected.assert_eq(&hex(bytes));
}

fn command(command: Command, expected: Expect) {
    let bytes = command.encode();
    check(&bytes, expected);
    assert_eq!(Command::decode(&bytes), Ok(command));
}

fn reply(reply: Reply, expected: Expect) {
    let bytes = reply.encode();
    check(&bytes, expected);
    assert_eq!(Reply::decode(&bytes), Ok(reply));
}

#[test]
fn commands_have_their_bytes() {
    let (stream, group, member) = (|| "s".to_owned(), || "g".to_owned(), || "m".to_owned());
    let settings = Settings { partitions: 300, retention: KEPT };
    let offsets = BTreeMap::from([(1, 2), (300, 4)]);
    command(
        Command::Create(Create { stream: stream(), settings }),
        expect!["01010173ac0201e80700"],
    );
    let update = Update { stream: stream(), version: 3, settings };
    command(Command::Update(update), expect!["0201017303ac0201e80700"]);
    command(Command::Delete { stream: stream() }, expect!["03010173"]);
    let keyed = NewRecord { key: Some(Bytes::from_static(b"k")), value: Bytes::from_static(b"v") };
    let append = Append {
        id: ID,
        partition: 5,
        version: 3,
        retention: KEPT,
        records: vec![keyed, record("w")],
    };
    command(Command::Append(append), expect!["040102ac02050301e807000201016b0176000177"]);
    let join = Join {
        stream: stream(),
        group: group(),
        member: member(),
        session_ms: 300,
        start: offsets.clone(),
        id: Some(ID),
    };
    command(Command::Join(join), expect!["050201730167016dac02020102ac02040102ac02"]);
    let leave = Command::Leave { stream: stream(), group: group(), member: member() };
    command(leave, expect!["060101730167016d"]);
    let commit = Commit {
        stream: stream(),
        group: group(),
        member: Some(member()),
        epoch: None,
        offsets: offsets.clone(),
        id: Some(ID),
    };
    command(Command::Commit(commit), expect!["07020173016701016d00020102ac02040102ac02"]);
    let seek = Seek { stream: stream(), group: group(), offsets, id: None };
    command(Command::Seek(seek), expect!["080201730167020102ac020400"]);
    command(Command::DeleteGroup { stream: stream(), group: group() }, expect!["090101730167"]);
}

#[test]
fn first_versions_say_nothing_of_which_stream_was_looked_up() {
    let (stream, group, member) = (|| "s".to_owned(), || "g".to_owned(), || "m".to_owned());
    let offsets = || BTreeMap::from([(1, 2)]);
    let (session_ms, epoch, id) = (3, Some(4), None);
    let start = offsets();
    let join = Join { stream: stream(), group: group(), member: member(), session_ms, start, id };
    let first = [5, 1, 1, b's', 1, b'g', 1, b'm', 3, 1, 1, 2];
    assert_eq!(Command::decode(&first), Ok(Command::Join(join)));
    let member = Some(member());
    let offsets_of = offsets();
    let commit =
        Commit { stream: stream(), group: group(), member, epoch, offsets: offsets_of, id };
    let first = [7, 1, 1, b's', 1, b'g', 1, 1, b'm', 1, 4, 1, 1, 2];
    assert_eq!(Command::decode(&first), Ok(Command::Commit(commit)));
    let seek = Seek { stream: stream(), group: group(), offsets: offsets(), id };
    let first = [8, 1, 1, b's', 1, b'g', 1, 1, 2];
    assert_eq!(Command::decode(&first), Ok(Command::Seek(seek)));
}

#[test]
fn replies_have_their_bytes() {
    reply(Reply::Created { id: ID, new: true }, expect!["010002ac0201"]);
    reply(Reply::Updated { version: 2 }, expect!["010102"]);
    reply(Reply::Deleted, expect!["0102"]);
    reply(Reply::Appended(Appended { first: 300, count: 2, at_ms: 9 }), expect!["0103ac020209"]);
    let owned = vec![Owned { partition: 1, since: 2, committed: Some(3) }];
    reply(Reply::Joined(Standing { epoch: 7, owned }), expect!["0104070101020103"]);
    reply(Reply::Left, expect!["0105"]);
    reply(Reply::Committed(BTreeMap::from([(1, 2)])), expect!["0106010102"]);
    reply(Reply::Sought { epoch: 7 }, expect!["010707"]);
    reply(Reply::GroupDeleted, expect!["0108"]);
    let refusals = [
        Refusal::NoStream,
        Refusal::Exists,
        Refusal::Version,
        Refusal::FewerPartitions,
        Refusal::Gone,
        Refusal::TooMany,
        Refusal::NoPartition,
        Refusal::NoGroup,
        Refusal::Groups,
        Refusal::Members,
        Refusal::GroupInUse,
    ];
    for (number, refusal) in (0..).zip(refusals) {
        assert_eq!(Reply::Refused(refusal).encode()[..], [1, 9, number]);
    }
    reply(Reply::Refused(Refusal::StaleMember { epoch: 300 }), expect!["01090bac02"]);
    reply(Reply::Refused(Refusal::Partitions), expect!["01090c"]);
}

#[test]
fn letters_and_timers_have_their_bytes() {
    let settings = NewSettings { id: ID, partition: 5, version: 3, retention: KEPT };
    for (post, expected) in [
        (Post::Settings(settings), expect!["010102ac02050301e80700"]),
        (Post::Close { id: ID, partition: 5 }, expect!["020102ac0205"]),
    ] {
        check(&post.encode(), expected);
        assert_eq!(Post::decode(&post.encode()), Ok(post));
    }
    check(&row(&Alarm::Sweep { id: ID, partition: 5 }), expect!["010002ac0205"]);
    check(&row(&Alarm::Forget { id: ID, partition: 5 }), expect!["010102ac0205"]);
    let watch = Alarm::Watch { stream: "s".into(), id: ID, group: "g".into() };
    check(&row(&watch), expect!["0102017302ac020167"]);
}

#[test]
fn rows_have_their_bytes() {
    let settings = Settings { partitions: 300, retention: KEPT };
    let stream = Stream {
        id: ID,
        version: 2,
        created_ms: 3,
        updated_ms: 4,
        settings,
        groups: 5,
        last_epoch: 6,
    };
    check(&row(&stream), expect!["0102ac02020304ac0201e807000506"]);
    let partition = Partition {
        version: 1,
        retention: KEPT,
        start: 2,
        next: 3,
        bytes: 4,
        chunk_bytes: 11,
        loose_first: 5,
        loose_rows: 6,
        loose_bytes: 7,
        last_ms: 8,
        sweep: Some((9, 10)),
    };
    check(&row(&partition), expect!["010101e807000203040b0506070801090a"]);
    check(&row(&Chunk { next: 300, last_ms: 2, bytes: 3 }), expect!["01ac020203"]);
    let group = GroupRow {
        epoch: 1,
        sought: 8,
        created_ms: 2,
        partitions: 3,
        owners: BTreeMap::from([("m".to_owned(), vec![(4, 5)])]),
        watch: Some((6, 7)),
        told: 9,
    };
    check(&group.encode(), expect!["020108020301016d01040501060709"]);
    assert_eq!(GroupRow::decode(&group.encode()), group);
    let seen = Seen { session_ms: 1, seen_ms: 300, told: 9 };
    check(&seen.encode(), expect!["0201ac0209"]);
    assert_eq!(Seen::decode(&seen.encode()), seen);
    // The first versions, in which nobody was told anything.
    let first = [1, 1, 8, 2, 3, 1, 1, b'm', 1, 4, 5, 1, 6, 7];
    assert_eq!(GroupRow::decode(&first), GroupRow { told: 0, ..group });
    assert_eq!(Seen::decode(&[1, 1, 0xac, 2]), Seen { told: 0, ..seen });
    check(&row(&300_u64), expect!["01ac02"]);
}

#[test]
fn runs_have_their_bytes() {
    let build = || {
        let mut run = crate::run::Builder::new(300);
        run.push(1000, Some(b"key"), b"value");
        run.push(1200, None, b"value");
        run
    };
    let (loose, chunk) = (build().loose(), build().chunk());
    check(&loose, expect!["01ac0202e807b009140000046b65790576616c7565c801000576616c7565"]);
    check(&chunk, expect!["01ac0202e807b0091401f00500046b65790576616c7565c801000576616c7565"]);
    let read = |row: &Bytes| Run::decode(row).records().collect::<Vec<_>>();
    assert_eq!(read(&loose), read(&chunk));
    assert_eq!((read(&loose).len(), read(&loose)[1].at_ms, read(&loose)[1].offset), (2, 1200, 301));
}

/// State is rows and what the log adds to them, and nobody compares the bytes of a chunk. But how
/// many there are decides what retention by bytes drops: another compressor is to be noticed.
#[test]
fn the_compressor_makes_the_same_bytes_as_ever() {
    let mut run = crate::run::Builder::new(0);
    for n in 0_u64..700 {
        let value =
            format!(r#"{{"event":"page_view","user":{},"page":{}}}"#, n * 7919 % 1009, n % 7);
        run.push(1000 + n, None, value.as_bytes());
    }
    let (raw, chunk) = (run.raw_bytes(), run.chunk());
    let found = format!("{raw} {} {}", chunk.len(), hex(&kernel::id::digest(&[&chunk])));
    expect!["30730 5733 de06e09de391f07149768e5851956e87"].assert_eq(&found);
}

#[test]
fn keys_have_their_bytes() {
    check(&definition_row(TENANT, "s"), expect!["0005640000000773"]);
    check(&partition_row(TENANT, ID, 5), expect!["000570000000070002000000000000012c0005"]);
    check(&group_row(TENANT, ID, "g"), expect!["000567000000070002000000000000012c67"]);
    check(
        &crate::state::run_key(TENANT, ID, 5, 6),
        expect!["000572000000070002000000000000012c00050000000000000006"],
    );
    check(
        &crate::state::chunk_key(TENANT, ID, 5, 6),
        expect!["000568000000070002000000000000012c00050000000000000006"],
    );
    check(
        &crate::state::index_key(TENANT, ID, 5, 7, 6),
        expect!["000569000000070002000000000000012c000500000000000000070000000000000006"],
    );
    check(
        &crate::state::member_key(TENANT, ID, "g", "m"),
        expect!["00056d000000070002000000000000012c0001676d"],
    );
    check(
        &crate::state::offset_key(TENANT, ID, "g", 5),
        expect!["00056f000000070002000000000000012c0001670005"],
    );
    check(&crate::state::past_epoch_key(TENANT), expect!["00056500000007"]);
    // Placement is for ever: records would not be found elsewhere.
    assert_eq!((place(TENANT, "s").0, partition_place(TENANT, ID, 5).0), (3882, 1819));
}

#[test]
fn what_is_from_the_future_is_not_guessed_at() {
    let unknown = Unreadable::Command { machine: "streams", tag: 10, version: 1 };
    assert_eq!(Command::decode(&[10, 1]), Err(unknown));
    let newer = Unreadable::Command { machine: "streams", tag: 1, version: 2 };
    assert_eq!(Command::decode(&[1, 2]), Err(newer));
    assert_eq!(Command::decode(&[1]), Err(Unreadable::Short));
    let more = [&Command::Delete { stream: "s".into() }.encode()[..], &[0]].concat();
    assert_eq!(Command::decode(&more), Err(Unreadable::Long));
    assert!(matches!(Reply::decode(&[2, 0]), Err(Unreadable::Version { version: 2, .. })));
}
