//! Which message is next.

use super::*;

const MINUTE_MS: u64 = 60_000;

fn with(priority: u8, text: &str) -> NewMessage {
    NewMessage { priority, ..new(text) }
}

#[test]
fn young_messages_do_not_ride_along_with_one_that_has_aged() {
    let mut bench = standard();
    bench.send_all(vec![with(0, "aged")]);
    bench.advance(3 * MINUTE_MS);
    bench.send_all(vec![with(0, "low 1"), with(2, "high 1"), with(0, "low 2"), with(2, "high 2")]);
    let order = ["aged", "high 1", "high 2", "low 1", "low 2"];
    assert_eq!(texts(&bench.receive(10)), order);
}

#[test]
fn what_fails_again_and_again_does_not_keep_others_waiting() {
    let mut bench = standard();
    bench.send_all(["poison", "1", "2", "3"].map(|text| with(5, text)).to_vec());
    bench.send_all(vec![with(0, "low")]);
    let mut handed_out = Vec::new();
    for _ in 0..7 {
        let got = bench.receive(1).remove(0);
        handed_out.push(text(&got));
        match text(&got).as_str() {
            "poison" => bench.nack(got.receipt, None),
            _ => bench.ack(&[got.receipt]),
        };
    }
    assert_eq!(handed_out, ["poison", "poison", "1", "poison", "2", "poison", "3"]);
}

#[test]
fn what_fails_again_and_again_does_not_rise_above_higher_priorities() {
    let mut bench = standard();
    bench.send_all(vec![with(0, "poison")]);
    for _ in 0..20 {
        let got = bench.receive(1).remove(0);
        bench.nack(got.receipt, None);
        bench.advance(MINUTE_MS / 2);
    }
    bench.send_all(vec![with(1, "high")]);
    assert_eq!(texts(&bench.receive(2)), ["high", "poison"]);
}

#[test]
fn what_came_back_long_ago_lifts_nothing_new_above_higher_priorities() {
    let mut bench = standard();
    bench.send_all(vec![with(0, "a"), with(0, "b")]);
    let receipts: Vec<Receipt> = bench.receive(2).iter().map(|got| got.receipt).collect();
    receipts.into_iter().for_each(|receipt| drop(bench.nack(receipt, Some(0))));
    bench.advance(20 * MINUTE_MS);
    bench.send_all(vec![with(0, "fresh"), with(9, "urgent")]);
    assert_eq!(texts(&bench.receive(4)), ["a", "b", "urgent", "fresh"]);
}

#[test]
fn what_is_new_and_has_waited_for_long_lifts_nothing_that_came_back() {
    let mut bench = standard();
    bench.send_all(vec![with(0, "poison")]);
    let poison = bench.receive(1).remove(0).receipt;
    bench.extend(poison, 60 * MINUTE_MS);
    bench.send_all(vec![with(0, "a"), with(0, "b")]);
    bench.advance(20 * MINUTE_MS);
    bench.nack(poison, Some(0));
    bench.send_all(vec![with(9, "urgent")]);
    assert_eq!(texts(&bench.receive(4)), ["a", "b", "urgent", "poison"]);
}

#[test]
fn what_came_back_long_ago_has_aged_since_then() {
    let mut bench = standard();
    bench.send_all(vec![with(0, "low")]);
    let got = bench.receive(1).remove(0);
    bench.nack(got.receipt, Some(MINUTE_MS));
    bench.advance(3 * MINUTE_MS);
    bench.send_all(vec![with(1, "medium"), with(3, "high")]);
    assert_eq!(texts(&bench.receive(3)), ["high", "low", "medium"]);
}

#[test]
fn a_batch_is_as_many_receives_of_one() {
    let fill = || {
        let mut bench = standard();
        for n in 0..60_u32 {
            let priority = |k: u32| u8::try_from((n * 7 + k * 3) % 10).expect("a digit");
            let batch = (0..3).map(|k| with(priority(k), &format!("{n} {k}")));
            bench.send_all(batch.collect());
            // Some come back, and have their first moment still.
            if n % 10 == 9 {
                let receipt = bench.receive(1).remove(0).receipt;
                bench.nack(receipt, None);
            }
            bench.advance(MINUTE_MS / 4);
        }
        bench
    };
    let (mut one_by_one, mut at_once) = (fill(), fill());
    let all: Vec<String> = (0..180).map(|_| texts(&one_by_one.receive(1)).remove(0)).collect();
    let batches = [at_once.receive(7), at_once.receive(100), at_once.receive(100)];
    assert_eq!(batches.iter().flat_map(|batch| texts(batch)).collect::<Vec<_>>(), all);
}

#[test]
fn messages_come_back_in_the_order_in_which_their_leases_end() {
    let mut bench = standard();
    bench.send_all(["a", "b", "c", "d"].map(new).to_vec());
    let together = bench.receive(2);
    let rest = bench.receive(2);
    bench.nack(rest[1].receipt, Some(0));
    bench.nack(rest[0].receipt, Some(0));
    bench.advance(30_000);
    assert_eq!(texts(&together), ["a", "b"]);
    assert_eq!(texts(&bench.receive(10)), ["d", "c", "a", "b"]);
}

#[test]
fn what_is_too_old_behind_a_younger_one_that_came_back_is_not_handed_out() {
    let settings = Settings { retention_ms: 2 * MINUTE_MS, ..Settings::usual(Mode::Standard) };
    let mut bench = bench(settings);
    bench.send_all(vec![new("old")]);
    let old = bench.receive(1).remove(0);
    bench.extend(old.receipt, MINUTE_MS + 1);
    bench.advance(MINUTE_MS);
    bench.send_all(vec![new("young")]);
    let young = bench.receive(1).remove(0);
    bench.nack(young.receipt, Some(0));
    bench.advance(MINUTE_MS);
    assert_eq!(texts(&bench.receive(10)), ["young"]);
    assert_eq!(bench.described().counts.totals.expired, 1);
}

#[test]
fn a_delayed_message_counts_as_visible_when_its_time_has_come_wherever_in_its_group_it_is() {
    let mut bench = fifo();
    let later = |delay_ms, text| NewMessage { delay_ms: Some(delay_ms), ..grouped("a", text) };
    bench.send_all(vec![grouped("a", "1"), later(1000, "2"), later(3000, "3"), later(2000, "4")]);
    let shown = |bench: &Bench| {
        let counts = bench.described().counts;
        (counts.visible, counts.delayed, counts.leased)
    };
    assert_eq!(shown(&bench), (1, 3, 0));
    let first = bench.receive(10);
    assert_eq!(texts(&first), ["1"]);
    bench.advance(1000);
    assert_eq!(shown(&bench), (1, 2, 1));
    bench.advance(1000);
    assert_eq!(shown(&bench), (2, 1, 1), "4 waits for 3, and not for its time");
    bench.ack(&[first[0].receipt]);
    let second = bench.receive(10);
    assert_eq!(texts(&second), ["2"]);
    // It waits anew, for longer than before.
    bench.nack(second[0].receipt, Some(5000));
    assert_eq!(shown(&bench), (1, 2, 0));
    bench.advance(1000);
    assert_eq!(shown(&bench), (2, 1, 0));
    assert!(bench.receive(10).is_empty(), "2 is before them");
    bench.advance(4000);
    assert_eq!(shown(&bench), (3, 0, 0));
    assert_eq!(texts(&bench.receive(10)), ["2", "3", "4"]);
}

fn short_lived() -> Bench {
    bench(Settings { retention_ms: MINUTE_MS, ..Settings::usual(Mode::Fifo) })
}

#[test]
fn a_group_that_has_nothing_left_for_its_age_is_not_ready() {
    let mut bench = short_lived();
    for n in 0..1100 {
        bench.send_all(vec![grouped(&format!("old {n}"), "old")]);
    }
    bench.advance(MINUTE_MS - 1);
    bench.send_all(vec![grouped("young", "young")]);
    bench.advance(1);
    let counts = bench.described().counts;
    assert_eq!((counts.totals.expired, counts.visible, counts.ready()), (1100, 1, 1));
    assert_eq!(texts(&bench.receive(1)), ["young"]);
}

#[test]
fn a_group_whose_next_message_is_not_due_is_not_ready_when_the_first_is_gone() {
    let mut bench = short_lived();
    let later = NewMessage { delay_ms: Some(2 * MINUTE_MS), ..grouped("a", "2") };
    bench.send_all(vec![grouped("a", "1"), later]);
    assert_eq!(bench.described().counts.ready(), 1);
    bench.advance(MINUTE_MS);
    let counts = bench.described().counts;
    assert_eq!((counts.totals.expired, counts.ready()), (1, 0));
    bench.advance(MINUTE_MS);
    assert_eq!(texts(&bench.receive(10)), ["2"]);
}

#[test]
fn a_group_that_was_moved_away_is_not_ready() {
    let mut bench = fifo();
    bench.create("others", Settings::usual(Mode::Fifo));
    bench.send_all(vec![grouped("a", "1"), grouped("b", "2"), grouped("a", "3")]);
    let target = Some("others".to_owned());
    bench.apply(&Command::StartRedrive(StartRedrive {
        queue: JOBS.into(),
        target,
        per_second: None,
        filter: None,
        limit: None,
        dry_run: false,
    }));
    bench.advance(1000);
    let counts = bench.described().counts;
    assert_eq!((counts.totals.moved, counts.ready()), (3, 0));
}

fn first_of(bench: &Bench, group: &str) -> u64 {
    let number = bench.described().definition.number;
    let row = bench.rig.rows.get(&crate::state::group_key(TENANT, b'g', number, group));
    crate::state::Group::decode(&row.expect("it has messages")).first
}

#[test]
fn what_has_left_a_group_is_not_looked_through_again() {
    let mut bench = short_lived();
    bench.create("others", Settings::usual(Mode::Fifo));
    bench.send_all((0..5).map(|n| grouped("a", &n.to_string())).collect());
    bench.advance(MINUTE_MS / 2);
    bench.send_all(vec![grouped("a", "young")]);
    bench.advance(MINUTE_MS / 2);
    assert_eq!(bench.described().counts.totals.expired, 5);
    assert_eq!(first_of(&bench, "a"), 6);
    bench.send_all((0..5).map(|n| grouped("a", &n.to_string())).collect());
    bench.apply(&Command::StartRedrive(StartRedrive {
        queue: JOBS.into(),
        target: Some("others".to_owned()),
        per_second: None,
        filter: None,
        limit: Some(4),
        dry_run: false,
    }));
    bench.advance(1000);
    assert_eq!((bench.described().counts.totals.moved, first_of(&bench, "a")), (4, 10));
}

#[test]
fn a_group_whose_message_does_not_fit_any_more_is_the_next_receives_first() {
    let mut bench = fifo();
    let large = "x".repeat(400 << 10);
    let group = |n: u32| grouped(&format!("g{n:02}"), &large);
    bench.send_all((0..11).map(group).collect());
    bench.send_all(vec![grouped("last", "small")]);
    let groups = |got: Vec<Delivery>| {
        got.into_iter().map(|delivery| delivery.group.expect("it has one")).collect::<Vec<_>>()
    };
    assert_eq!(groups(bench.receive(100)).len(), 10);
    assert_eq!(groups(bench.receive(100)), ["g10", "last"]);
}

#[test]
fn groups_have_their_bytes_and_those_of_before_are_read() {
    let group = crate::state::Group {
        waiting: 1,
        leased: 2,
        listed: true,
        wake_ms: Some(300),
        first: 4,
        place: Some(5),
        away: 6,
    };
    let golden = [3, 1, 2, 1, 1, 0xac, 2, 4, 1, 5, 6];
    assert_eq!(group.encode(), golden);
    assert_eq!(crate::state::Group::decode(&golden), group);
    let group = crate::state::Group { away: 0, ..group };
    assert_eq!(crate::state::Group::decode(&[2, 1, 2, 1, 1, 0xac, 2, 4, 1, 5]), group);
    let old = [1, 1, 2, 1, 1, 0xac, 2, 4];
    let place = None;
    assert_eq!(crate::state::Group::decode(&old), crate::state::Group { place, ..group });
}

#[test]
fn the_oldest_is_known_behind_whatever_it_waits() {
    let mut bench = fifo();
    bench.send_all(vec![grouped("a", "a1"), grouped("a", "a2")]);
    bench.advance(5000);
    bench.send_all(vec![grouped("b", "b1")]);
    let first = bench.receive(1).remove(0);
    // Its group is in no lane while somebody has its first message.
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS));
    bench.ack(&[first.receipt]);
    // And behind the other group now.
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS));
    let got = bench.receive(2);
    let receipts: Vec<Receipt> = got.iter().map(|delivery| delivery.receipt).collect();
    bench.ack(&receipts);
    assert_eq!(bench.described().oldest_visible_ms, None);
}

#[test]
fn what_waits_for_another_try_is_not_the_oldest_but_what_is_behind_it_is() {
    let mut bench = fifo();
    bench.send_all(vec![grouped("g", "1")]);
    bench.advance(1000);
    bench.send_all(vec![grouped("g", "2")]);
    let receipt = bench.receive(1).remove(0).receipt;
    bench.nack(receipt, Some(600_000));
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS + 1000));
    bench.advance(600_000);
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS));
}

#[test]
fn many_that_are_gone_are_not_passed_each_time_the_oldest_is_looked_for() {
    let mut bench = fifo();
    bench.send_all(vec![grouped("blocked", "first"), grouped("blocked", "second")]);
    bench.receive(1);
    for _ in 0..60 {
        bench.send_all((0..100).map(|n| grouped("g", &n.to_string())).collect());
        let receipts: Vec<Receipt> = bench.receive(100).iter().map(|d| d.receipt).collect();
        assert_eq!(receipts.len(), 100);
        bench.ack(&receipts);
    }
    let described = bench.described();
    assert_eq!((described.oldest_visible_ms, described.counts.ages_from), (Some(START_MS), 2));
    bench.advance(30_000);
    let blocked: Vec<Receipt> = bench.receive(10).iter().map(|d| d.receipt).collect();
    bench.ack(&blocked);
    assert_eq!(bench.described().oldest_visible_ms, None);
    // One that comes back is found again, however far the others were.
    let late = NewMessage { delay_ms: Some(1000), ..grouped("late", "1") };
    bench.send_all(vec![late]);
    let late_sequence = bench.described().counts.last_sequence;
    for _ in 0..3 {
        bench.send_all((0..100).map(|n| grouped("g", &n.to_string())).collect());
        let receipts: Vec<Receipt> = bench.receive(100).iter().map(|d| d.receipt).collect();
        bench.ack(&receipts);
    }
    assert!(bench.described().counts.ages_from > late_sequence);
    bench.advance(1000);
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS + 31_000));
    let receipt = bench.receive(1).remove(0).receipt;
    bench.ack(&[receipt]);
    bench.send_all((0..300).map(|n| grouped("g", &n.to_string())).collect());
    for _ in 0..3 {
        let receipts: Vec<Receipt> = bench.receive(99).iter().map(|d| d.receipt).collect();
        bench.ack(&receipts);
    }
    let described = bench.described();
    assert_eq!(described.oldest_visible_ms, Some(START_MS + 31_000));
    assert!(described.counts.ages_from > 6000, "{}", described.counts.ages_from);
}

#[test]
fn the_oldest_is_the_one_that_is_visible_for_longest_whatever_was_sent_first() {
    let mut bench = fifo();
    bench.send_all(vec![NewMessage { delay_ms: Some(600_000), ..grouped("late", "1") }]);
    bench.send_all(vec![grouped("g", "2")]);
    bench.advance(599_000);
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS));
    bench.advance(1_001);
    assert_eq!(bench.described().counts.visible, 2);
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS));
}

#[test]
fn what_is_received_before_a_timer_has_ended_its_delay_comes_back_as_old_as_it_is() {
    let mut bench = fifo();
    let late = |n| NewMessage { delay_ms: Some(1000), ..grouped("g", &format!("{n}")) };
    bench.send_all((0..300).map(late).collect());
    // Their time is over while the shard is busy: the first entry after it ends the delay of some.
    bench.rig.now_ms += 5000;
    let mut got = bench.receive(300);
    assert_eq!(got.len(), 300);
    bench.advance(10);
    bench.send_all(vec![grouped("h", "young")]);
    let last = got.pop().expect("there are 300");
    bench.nack(last.receipt, Some(0));
    assert_eq!(bench.described().counts.visible, 2);
    assert_eq!(bench.described().oldest_visible_ms, Some(START_MS + 1000));
}

#[test]
fn jitter_spreads_what_fails_together_over_half_of_the_pause() {
    let backoff = Backoff { base_ms: 10_000, max_ms: 10_000, jitter: true };
    let mut bench = bench(Settings { backoff, ..Settings::usual(Mode::Standard) });
    for _ in 0..4 {
        bench.send_all(vec![new("a"); 10]);
        let receipts: Vec<_> = bench.receive(10).iter().map(|got| got.receipt).collect();
        receipts.into_iter().for_each(|receipt| drop(bench.nack(receipt, None)));
    }
    let visible = |bench: &Bench| bench.described().counts.visible;
    bench.advance(4999);
    assert_eq!(visible(&bench), 0);
    bench.advance(2501);
    let by_half = visible(&bench);
    assert!((1..40).contains(&by_half), "{by_half} of 40 before three quarters of the pause");
    bench.advance(2500);
    assert_eq!(visible(&bench), 40);
}
