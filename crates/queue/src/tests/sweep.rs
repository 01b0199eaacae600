//! What one timer does, however much there is to do.

use super::*;

const MANY: u64 = 100;
/// 256 KiB each: what one timer looks at may have a few megabytes, whatever their number.
const AT_ONCE: std::ops::RangeInclusive<u64> = 1..=32;

fn heavy(mode: Mode) -> Vec<NewMessage> {
    let group = (mode == Mode::Fifo).then(|| "g".to_owned());
    let message = NewMessage { group, ..new(&"x".repeat(256 << 10)) };
    vec![message; 3]
}

/// One entry, later, in which nothing is asked for.
fn later(bench: &mut Bench, ms: u64) {
    bench.rig.now_ms += ms;
    bench.ack(&[]);
}

#[test]
fn messages_that_come_back_come_some_megabytes_at_a_time() {
    let mut bench = standard();
    for _ in 0..MANY {
        let heavy = heavy(Mode::Standard).into_iter().take(1);
        bench.send_all(heavy.map(|m| NewMessage { delay_ms: Some(1000), ..m }).collect());
    }
    later(&mut bench, 1000);
    let visible = bench.described().counts.visible;
    assert!(AT_ONCE.contains(&visible), "{visible}");
    bench.advance(0);
    assert_eq!(bench.described().counts.visible, MANY);
}

#[test]
fn messages_are_dropped_for_their_age_some_megabytes_at_a_time() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(mode) });
        for _ in 0..MANY / 2 {
            bench.send_all(heavy(mode).into_iter().take(2).collect());
        }
        later(&mut bench, 60_000);
        let expired = bench.described().counts.totals.expired;
        assert!(AT_ONCE.contains(&expired), "{mode:?} {expired}");
        bench.advance(0);
        assert_eq!(bench.described().counts.totals.expired, MANY, "{mode:?}");
    }
}

#[test]
fn what_becomes_too_old_while_it_waits_for_another_try_does_not_come_back() {
    let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(Mode::Standard) });
    bench.send_all(vec![new("a")]);
    let receipt = bench.receive(1).remove(0).receipt;
    bench.nack(receipt, Some(600_000));
    bench.advance(599_999);
    let counts = bench.described().counts;
    assert_eq!((counts.delayed, counts.totals.expired), (1, 0));
    bench.advance(1);
    let counts = bench.described().counts;
    assert_eq!((counts.visible, counts.delayed, counts.bytes), (0, 0, 0));
    assert_eq!(counts.totals.expired, 1);
}

#[test]
fn what_comes_back_when_nothing_else_is_watched_is_dropped_when_it_is_too_old() {
    let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(Mode::Standard) });
    bench.send_all(vec![new("first")]);
    bench.advance(30_000);
    bench.send_all(vec![new("second")]);
    let leased = bench.receive(2);
    bench.ack(&[leased[0].receipt]);
    // The timer of the first finds nothing that could be received, and sets no other.
    bench.extend(leased[1].receipt, 40_000);
    bench.advance(40_000);
    assert_eq!(bench.described().counts.visible, 1);
    bench.advance(19_999);
    assert_eq!(bench.described().counts.totals.expired, 0);
    bench.advance(1);
    let counts = bench.described().counts;
    assert_eq!((counts.visible, counts.totals.expired), (0, 1));
}

#[test]
fn many_old_messages_are_dropped_at_once_whatever_lies_in_another_lane() {
    let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(Mode::Standard) });
    bench.send_all((0..900).map(|n| new(&n.to_string())).collect());
    bench.advance(59_000);
    bench.send_all(vec![NewMessage { priority: 5, ..new("young") }]);
    bench.advance(1000);
    assert_eq!(bench.described().counts.totals.expired, 900);
}

#[test]
fn delays_of_groups_end_some_megabytes_at_a_time() {
    let mut bench = fifo();
    for _ in 0..MANY {
        let heavy = heavy(Mode::Fifo).into_iter().take(1);
        bench.send_all(heavy.map(|m| NewMessage { delay_ms: Some(1000), ..m }).collect());
    }
    later(&mut bench, 1000);
    let visible = bench.described().counts.visible;
    assert!((1..=64).contains(&visible), "{visible}");
    bench.advance(0);
    assert_eq!(bench.described().counts.visible, MANY);
}

#[test]
fn the_search_for_what_is_due_goes_on_where_it_stopped() {
    let mut bench = standard();
    for _ in 0..MANY {
        let heavy = heavy(Mode::Standard).into_iter().take(1);
        bench.send_all(heavy.map(|m| NewMessage { delay_ms: Some(1000), ..m }).collect());
    }
    let mut cursors = Vec::new();
    later(&mut bench, 1000);
    while bench.described().counts.visible < MANY {
        cursors.push(bench.described().counts.hidden_cursor);
        later(&mut bench, 0);
    }
    assert!(cursors.len() > 2 && cursors.is_sorted_by(|a, b| a < b), "{cursors:?}");
    bench.advance(0);
    assert!(bench.described().counts.hidden_cursor.is_empty(), "and begins anew when all is done");
    let delayed = NewMessage { delay_ms: Some(1000), ..new("later") };
    bench.send_all(vec![delayed]);
    bench.advance(1000);
    assert_eq!(bench.described().counts.visible, MANY + 1);
}

#[test]
fn keys_are_forgotten_where_it_stopped_too() {
    let mut bench = standard();
    let keyed = |n: u64| NewMessage { dedup: Some(u128::from(n).to_be_bytes()), ..new("x") };
    bench.send_all((0..1000).map(keyed).collect());
    let dedup_ms = bench.described().definition.settings.dedup_ms;
    later(&mut bench, dedup_ms);
    assert!(!bench.described().counts.forget_cursor.is_empty());
    bench.advance(0);
    assert!(bench.described().counts.forget_cursor.is_empty());
    let left = crate::state::key(TENANT, b'k', bench.described().definition.number);
    assert!(bench.rig.rows.scan(&kernel::rows::Scan::prefix(&left)).is_empty());
}

#[test]
fn a_receive_reads_some_megabytes_and_the_next_goes_on() {
    let mut bench = fifo();
    let groups = 100;
    for n in 0..groups {
        // What is not due is read all the same, to see that it is not.
        let mut heavy = heavy(Mode::Fifo).remove(0);
        (heavy.group, heavy.delay_ms) = (Some(format!("{n:03}")), Some(60_000));
        bench.send_all(vec![grouped(&format!("{n:03}"), &n.to_string()), heavy]);
    }
    let first = bench.receive(100);
    assert!((30..=70).contains(&first.len()), "{}", first.len());
    let rest = bench.receive(100);
    let all: Vec<String> = (0..groups).map(|n| n.to_string()).collect();
    assert_eq!([texts(&first), texts(&rest)].concat(), all);
}

#[test]
fn a_receive_drops_no_more_old_messages_than_it_may() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(mode) });
        for _ in 0..MANY / 2 {
            bench.send_all(heavy(mode).into_iter().take(2).collect());
        }
        // Before the timer has come to it.
        bench.rig.now_ms += 59_999;
        bench.ack(&[]);
        let version = bench.described().definition.version;
        let settings = Settings { retention_ms: 1000, ..bench.described().definition.settings };
        let before = bench.described().counts.totals.expired;
        bench.apply(&Command::Update(Update { queue: JOBS.into(), version, settings }));
        assert!(bench.receive(100).is_empty());
        let dropped = bench.described().counts.totals.expired - before;
        // The timer's share, and the receive's.
        assert!((1..=64).contains(&dropped), "{mode:?} {dropped}");
        bench.advance(60_000);
        assert_eq!(bench.described().counts.totals.expired, MANY, "{mode:?}");
    }
}

#[test]
fn what_one_timer_drops_of_many_lanes_is_bounded_for_all_of_them_together() {
    for (batches, bytes, bound) in [(1, 256 << 10, AT_ONCE), (10, 10, 1..=256)] {
        let settings = Settings { retention_ms: 60_000, ..Settings::usual(Mode::Standard) };
        let mut bench = bench(settings);
        for priority in 0..10 {
            let message = NewMessage { priority, ..new(&"x".repeat(bytes)) };
            for _ in 0..batches {
                bench.send_all(vec![message.clone(); 10]);
            }
        }
        later(&mut bench, 60_000);
        let expired = bench.described().counts.totals.expired;
        assert!(bound.contains(&expired), "{expired} of {bytes} bytes");
        bench.advance(0);
        assert_eq!(bench.described().counts.totals.expired, 100 * batches);
    }
}

#[test]
fn a_receive_that_comes_to_an_old_message_begins_no_search_of_all_groups() {
    let retention_ms = 600_000;
    let mut bench = bench(Settings { retention_ms, ..Settings::usual(Mode::Fifo) });
    bench.send_all(vec![grouped("a", "old")]);
    bench.advance(1000);
    bench.send_all(vec![grouped("b", "old too"), grouped("c", "old too")]);
    bench.advance(retention_ms - 1000);
    let counts = bench.described().counts;
    let next = counts.retention.expect("two are left");
    assert_eq!((counts.totals.expired, next.0 > bench.rig.now_ms), (1, true));
    bench.advance(1000);
    // It drops what it meets.
    assert!(bench.receive(1).is_empty());
    let counts = bench.described().counts;
    assert_eq!((counts.totals.expired, counts.retention), (3, Some(next)));
}
