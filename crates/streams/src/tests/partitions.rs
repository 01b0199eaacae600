//! Appends, chunks, reading, and the end of what is old.

use super::*;
use crate::partition::{LOOSE_ROWS_MAX, SWEEP_MAX, SWEEP_STEP_MS};
use crate::state::run_key;

fn number(number: u64) -> NewRecord {
    record(number.to_string())
}

#[test]
fn records_have_dense_offsets_and_are_read_from_any_of_them() {
    let mut bench = bench(1);
    let first = bench.append(vec![number(0), number(1)]);
    assert_eq!(first, Appended { first: 0, count: 2, at_ms: START_MS });
    bench.advance(5);
    let keyed = NewRecord { key: Some(Bytes::from_static(b"k")), value: Bytes::new() };
    let second = bench.append(vec![keyed, number(3)]);
    assert_eq!((second.first, second.last(), second.at_ms), (2, Some(3), START_MS + 5));
    for from in 0..6 {
        let offsets: Vec<u64> = bench.fetch(from).iter().map(|r| r.offset).collect();
        assert_eq!(offsets, (from..4).collect::<Vec<_>>());
    }
    let key = Some(Bytes::from_static(b"k"));
    let empty = Record { offset: 2, at_ms: START_MS + 5, key, value: Bytes::new() };
    assert_eq!(bench.fetch(2)[0], empty);
}

#[test]
fn an_append_of_nothing_says_where_it_would_be_and_one_of_too_much_is_refused() {
    let mut bench = bench(1);
    bench.append(vec![number(0)]);
    let nothing = bench.append(Vec::new());
    assert_eq!((nothing.first, nothing.last()), (1, None));
    let many = vec![number(1); APPEND_RECORDS_MAX + 1];
    let id = bench.definition().id;
    assert_eq!(bench.append_to(id, 0, many), Reply::Refused(Refusal::TooMany));
    assert_eq!(bench.ends(), (0, 1));
}

#[test]
fn a_fetch_stops_at_its_bounds_but_gives_at_least_one() {
    let mut bench = bench(1);
    bench.append((0..20).map(|_| record(vec![b'x'; 100])).collect());
    let id = bench.definition().id;
    let count = |bounds| fetch(&bench.rig.rows, TENANT, id, 0, 3, bounds).records.len();
    assert_eq!((count((5, usize::MAX)), count((100, 250)), count((100, 1))), (5, 3, 1));
    assert_eq!(count((0, usize::MAX)), 0);
}

#[test]
fn many_small_appends_become_a_chunk_and_read_the_same() {
    let mut bench = bench(1);
    let mut read_before = Vec::new();
    for n in 0..700 {
        if n == 255 {
            assert_eq!(bench.runs(), (0, 255));
            read_before = bench.fetch(0);
        }
        bench.append(vec![number(n)]);
        bench.advance(1);
    }
    assert_eq!(bench.runs(), (2, 700 - 512));
    assert_eq!(bench.fetch(0)[..255], read_before);
    let expected: Vec<String> = (0..700).map(|n: u64| n.to_string()).collect();
    for from in [0, 1, 254, 255, 256, 257, 511, 512, 600, 699] {
        assert_eq!(values(&bench.fetch(from as u64)), expected[from..]);
    }
    bench.rig.checkpoint();
    assert_eq!(values(&bench.fetch(0)), expected);
}

#[test]
fn a_large_append_becomes_chunks_of_a_size_at_once() {
    let mut bench = bench(1);
    bench.append(vec![number(0)]);
    let large = |n: u8| record(vec![n; 1000]);
    bench.append((0..250).map(large).collect());
    assert_eq!(bench.runs(), (3, 0));
    bench.append(vec![record(vec![1; 300_000]), number(9)]);
    let fetched = bench.fetch(0);
    assert_eq!((fetched.len(), fetched[251].value.len()), (253, 300_000));
    assert_eq!(fetched[100].value[0], 99);
}

#[test]
fn a_record_is_found_by_its_time_in_chunks_and_among_what_is_loose() {
    let mut bench = bench(1);
    let id = bench.definition().id;
    let at = |bench: &Bench, ms: u64| offset_at(&bench.rig.rows, TENANT, id, 0, START_MS + ms);
    assert_eq!(at(&bench, 0), 0);
    // Two records every ten milliseconds: two chunks, and some that are loose.
    for n in 0..600 {
        bench.append(vec![number(2 * n), number(2 * n + 1)]);
        bench.advance(10);
    }
    assert_eq!(bench.runs(), (2, 88));
    for n in [0, 1, 2, 254, 255, 256, 257, 511, 512, 513, 598, 599] {
        assert_eq!(at(&bench, 10 * n), 2 * n);
        assert_eq!(at(&bench, 10 * n + 1), 2 * n + 2, "the first after it");
    }
    assert_eq!(offset_at(&bench.rig.rows, TENANT, id, 0, 0), 0);
    assert_eq!(offset_at(&bench.rig.rows, TENANT, id, 0, u64::MAX), 1200);
    assert_eq!(oldest_ms(&bench.rig.rows, TENANT, id, 0), Some(START_MS));
    // When what was before is dropped, the first that is kept.
    bench.advance(HOUR_MS - 3000);
    let (start, _) = bench.ends();
    assert_eq!(start, 512);
    assert_eq!(at(&bench, 0), start);
    assert_eq!(at(&bench, 5500), 1100);
}

#[test]
fn old_records_are_dropped_and_those_of_a_chunk_when_the_youngest_is_too_old() {
    let mut bench = bench(1);
    for n in 0..256 {
        bench.append(vec![number(n)]);
        bench.advance(1000);
    }
    bench.append(vec![number(256)]);
    assert_eq!(bench.runs(), (1, 1));
    // The first is an hour old, but the last of its chunk is not.
    bench.advance(HOUR_MS - 2000);
    assert_eq!(bench.ends(), (0, 257));
    bench.advance(1000);
    assert_eq!((bench.ends(), bench.runs()), ((256, 257), (0, 1)));
    assert_eq!(values(&bench.fetch(0)), ["256"]);
    bench.advance(2000);
    assert_eq!((bench.ends(), bench.runs()), ((257, 257), (0, 0)));
    // Offsets go on.
    assert_eq!(bench.append(vec![number(257)]).first, 257);
}

#[test]
fn a_timer_drops_no_more_than_its_share_and_comes_again_soon() {
    let mut bench = bench(1);
    for n in 0..200 {
        bench.append(vec![number(n)]);
    }
    bench.advance(HOUR_MS);
    for dropped in (SWEEP_MAX as u64..).step_by(SWEEP_MAX).take_while(|dropped| *dropped < 200) {
        assert_eq!(bench.ends(), (dropped, 200));
        bench.advance(SWEEP_STEP_MS - 1);
        assert_eq!(bench.ends(), (dropped, 200));
        bench.advance(1);
    }
    assert_eq!((bench.ends(), bench.runs()), ((200, 200), (0, 0)));
}

#[test]
fn a_chunk_is_dropped_without_being_read() {
    let by_age = Retention { age_ms: Some(HOUR_MS), bytes: None };
    let by_bytes = Retention { age_ms: None, bytes: Some(0) };
    for retention in [by_age, by_bytes] {
        let mut bench = kept(1, retention);
        let id = bench.definition().id;
        for n in 0..LOOSE_ROWS_MAX as u64 {
            bench.append(vec![number(n)]);
        }
        assert_eq!(bench.runs(), (1, 0));
        // Whoever looks at it now does not come back.
        bench.rig.rows.put(run_key(TENANT, id, 0, 0), Bytes::from_static(b"unreadable"));
        for n in 0..LOOSE_ROWS_MAX as u64 {
            let (version, records) = (1, vec![number(n)]);
            let append = Append { id, partition: 0, version, retention, records };
            bench.rig.apply(TENANT, &Command::Append(append).encode()).expect("readable");
        }
        bench.rig.advance(HOUR_MS);
        let kept = if retention == by_age { (512, 512) } else { (256, 512) };
        assert_eq!(bench.ends(), kept);
        bench.check();
    }
}

#[test]
fn the_newest_bytes_are_kept_and_what_is_before_them_is_dropped_chunk_by_chunk() {
    let bytes = 50_000;
    let mut bench = kept(1, Retention { age_ms: None, bytes: Some(bytes) });
    let id = bench.definition().id;
    // Does not compress.
    let noise = |n: u64| -> Bytes {
        let digest = |part: u64| kernel::id::digest(&[&n.to_be_bytes(), &part.to_be_bytes()]);
        (0..64).flat_map(digest).collect::<Vec<u8>>().into()
    };
    let mut most = 0;
    for n in 0..500 {
        bench.append(vec![record(noise(n))]);
        let info = bench.info(id, 0);
        most = most.max(info.bytes);
        let (start, kept) = (info.start, info.bytes);
        assert!(start == 0 || kept >= bytes, "{kept} of {start} at {n}");
    }
    assert!(most < bytes + 2 * 70_000, "{most}");
    assert!(bench.ends().0 > 300);
    assert_eq!(bench.fetch(0).last().map(|r| r.value.clone()), Some(noise(499)));
    // However little is to be kept, the last chunk stays, and what is loose.
    let retention = Retention { age_ms: None, bytes: Some(0) };
    bench.update(Settings { partitions: 1, retention });
    bench.advance(1);
    let (chunks, loose) = bench.runs();
    assert_eq!((chunks, loose), (1, 500 % 64));
}

#[test]
fn a_shorter_retention_is_in_force_at_once_even_where_nobody_appends() {
    let mut bench = bench(2);
    let id = bench.definition().id;
    bench.append(vec![number(0)]);
    bench.advance(60_000);
    let retention = Retention { age_ms: Some(30_000), bytes: None };
    bench.update(Settings { partitions: 2, retention });
    bench.advance(1);
    assert_eq!(bench.ends(), (1, 1));
    // An append that was made from older settings does not bring them back.
    let (version, retention) = (1, Retention::default());
    let records = vec![number(1)];
    bench.apply(&Command::Append(Append { id, partition: 0, version, retention, records }));
    bench.advance(31_000);
    assert_eq!(bench.ends(), (2, 2));
    // And one that was made from newer ones does bring them, before any letter.
    let (version, retention) = (9, Retention { age_ms: Some(5_000), bytes: None });
    let records = vec![number(2)];
    bench.apply(&Command::Append(Append { id, partition: 0, version, retention, records }));
    bench.advance(6_000);
    assert_eq!((bench.ends(), bench.info(id, 0).version), ((3, 3), 9));
}

#[test]
fn new_settings_hold_where_nothing_was_appended_yet() {
    let mut bench = bench(2);
    let id = bench.definition().id;
    let old = settings(2).retention;
    let short = Retention { age_ms: Some(30_000), bytes: None };
    bench.update(Settings { partitions: 2, retention: short });
    // Whoever looked the stream up before appends now.
    for partition in 0..2 {
        let (version, retention, records) = (1, old, vec![number(0)]);
        bench.apply(&Command::Append(Append { id, partition, version, retention, records }));
        let info = bench.info(id, partition);
        assert_eq!((info.version, info.retention, info.next), (2, short, 1));
    }
    bench.advance(31_000);
    assert_eq!(bench.ends(), (1, 1));
    // A partition that is open and empty goes with its stream.
    bench.update(Settings { partitions: 2, retention: old });
    bench.delete();
    bench.advance(2 * GONE_KEPT_MS);
    assert_eq!(bench.rig.rows.scan(&Scan::prefix(&MACHINE.0.to_be_bytes())), []);
}

#[test]
fn without_a_retention_everything_stays_and_no_timer_waits() {
    let mut bench = kept(1, Retention::default());
    bench.append(vec![number(0)]);
    bench.advance(365 * 24 * HOUR_MS);
    assert_eq!(bench.ends(), (0, 1));
    assert_eq!(bench.rig.ground.timers.in_memory(), 0);
}

#[test]
fn who_waits_for_a_partition_is_called_when_records_come() {
    let mut bench = bench(1);
    bench.append(vec![number(0)]);
    let key = partition_row(TENANT, bench.definition().id, 0);
    assert!(wakes(&key) && !wakes(&definition_row(TENANT, CLICKS)));
    let shown = partition(&bench.rig.views[key.as_slice()]);
    assert_eq!((shown.next, shown.lag(None), shown.lag(Some(1)), shown.lag(Some(9))), (1, 1, 0, 0));
}

#[test]
fn a_small_record_costs_few_bytes_at_rest() {
    let mut bench = kept(1, Retention::default());
    let mut raw = 0;
    let mut count = 0_u32;
    // Single appends: the worst case of those that are usual.
    for n in 0_u64..4096 {
        let (user, page) = (n * 7919 % 10_007, n * 31 % 97);
        let text = format!(
            r#"{{"event":"page_view","userId":"u-{user:05}","page":"/products/shoes/{page}","at":{},"ok":true}}"#,
            1_700_000_000_000 + n * 37
        );
        raw += text.len();
        count += 1;
        let (id, partition, version) = (bench.definition().id, 0, 1);
        let (retention, records) = (Retention::default(), vec![record(text)]);
        let append = Append { id, partition, version, retention, records };
        bench.rig.apply(TENANT, &Command::Append(append).encode()).expect("readable");
    }
    bench.check();
    let id = bench.definition().id;
    let each = bench.info(id, 0).bytes / u64::from(count);
    let raw_each = raw / count as usize;
    assert!((95..105).contains(&raw_each), "{raw_each}");
    assert!(each <= 25, "a record of {raw_each} bytes costs {each}");
}
