//! Messages that were leased, and that nobody has seen.

use super::*;
use crate::state::{Head, Message};

impl Bench {
    fn release(&mut self, receipt: Receipt, delay_ms: u64) -> Vec<Settled> {
        let (queue, receipts) = (JOBS.to_owned(), vec![receipt]);
        self.settled(&Command::Release(Release { queue, receipts, delay_ms }))
    }
}

fn dying_at_once(mode: Mode) -> Bench {
    let mut settings = Settings::usual(mode);
    settings.max_receive_count = Some(1);
    settings.dead_letter_queue = Some("dead".into());
    bench(settings)
}

#[test]
fn what_nobody_has_seen_was_not_received() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = dying_at_once(mode);
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        bench.send_all(vec![NewMessage { group, ..new("a") }]);
        for round in 0..5 {
            let got = bench.receive(1).remove(0);
            assert_eq!((got.receives, got.first_received_ms), (1, START_MS + round * 1000));
            assert_eq!(bench.release(got.receipt, 1000), [Settled::Done]);
            assert_eq!(bench.release(got.receipt, 1000), [Settled::Stale]);
            assert_eq!(bench.described().counts.delayed, 1, "it rests");
            bench.advance(999);
            assert!(bench.receive(1).is_empty(), "{mode:?}");
            bench.advance(1);
        }
        assert_eq!(bench.described().counts.totals.dead, 0, "{mode:?}");
        let got = bench.receive(1).remove(0);
        assert_eq!((got.receives, got.first_received_ms), (1, START_MS + 5000));
        bench.nack(got.receipt, None);
        let story = bench.receive_from("dead", 1).remove(0).story.expect("it died");
        assert_eq!((story.receives, story.first_failed_ms), (1, START_MS + 5000), "{mode:?}");
    }
}

#[test]
fn what_was_received_before_stays_received() {
    let mut bench = standard();
    bench.send_all(vec![new("a")]);
    let first = bench.receive(1).remove(0);
    bench.advance(10);
    bench.nack(first.receipt, Some(0));
    let unseen = bench.receive(1).remove(0);
    bench.release(unseen.receipt, 0);
    let again = bench.receive(1).remove(0);
    assert_eq!((again.receives, again.first_received_ms), (2, START_MS));
    let peeked = peek_all(&bench.rig.rows, TENANT, again.id.queue, PeekState::Leased).remove(0);
    assert_eq!((peeked.receives, peeked.reason.as_deref()), (2, Some("boom")));
}

#[test]
fn what_nobody_has_seen_keeps_its_place_and_its_age() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(mode) });
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        let message = |text: &str| NewMessage { group: group.clone(), ..new(text) };
        bench.send_all(vec![message("a"), message("b")]);
        let receipt = bench.receive(1).remove(0).receipt;
        bench.release(receipt, 0);
        let got = bench.receive(10);
        assert_eq!(texts(&got), ["a", "b"], "{mode:?}");
        bench.advance(29_999);
        bench.release(got[0].receipt, 0);
        bench.extend(got[1].receipt, 60_000);
        bench.advance(30_001);
        assert_eq!(bench.described().counts.totals.expired, 1, "{mode:?}");
        bench.release(got[1].receipt, 0);
        let counts = bench.described().counts;
        assert_eq!((counts.totals.expired, counts.bytes), (2, 0), "{mode:?}");
    }
}

#[test]
fn what_nobody_has_seen_has_waited_for_as_long_as_it_did() {
    let mut bench = standard();
    bench.send_all(vec![new("low")]);
    bench.advance(3 * 60_000);
    let unseen = bench.receive(1).remove(0).receipt;
    bench.release(unseen, 1000);
    bench.advance(1000);
    bench.send_all(vec![NewMessage { priority: 2, ..new("high") }]);
    assert_eq!(texts(&bench.receive(2)), ["low", "high"]);
}

#[test]
fn receipt_of_a_lease_that_was_given_back_is_good_for_no_later_one() {
    let mut bench = standard();
    bench.send_all(vec![new("a")]);
    let unseen = bench.receive(1).remove(0).receipt;
    bench.release(unseen, 0);
    // In the same moment, and for as long: only the number of the lease tells them apart.
    let held = bench.receive(1).remove(0).receipt;
    for extended in [false, true] {
        if extended {
            assert_eq!(bench.extend(held, 60_000), [Settled::Done]);
        }
        assert_eq!(bench.ack(&[unseen]), [Settled::Stale]);
        assert_eq!(bench.release(unseen, 0), [Settled::Stale]);
    }
    assert_eq!(bench.ack(&[held]), [Settled::Done]);
}

#[test]
fn golden_bytes() {
    let receipt = Receipt::from_bytes(&[1; 36]).expect("as long as one");
    let release = Release { queue: "q".into(), receipts: vec![receipt], delay_ms: 1000 };
    let command = Command::Release(release);
    let eight = [0x81, 0x82, 0x84, 0x88, 0x90, 0xa0, 0xc0, 0x80, 1];
    let four = [0x81, 0x82, 0x84, 8];
    let golden = [&[19, 1, 1, b'q', 1], &eight[..], &eight, &eight, &four, &eight, &[0xe8, 7]];
    let golden = golden.concat();
    assert_eq!(command.encode(), golden);
    assert_eq!(Command::decode(&golden), Ok(command));

    let id = MessageId { shard: 3, queue: 5, sequence: 300 };
    let head = Head { leases: 4, ..Head::new(id, 300, 1, None) };
    let parcel = Bytes::from_static(b"p");
    let seen = Message { head, unseen: 0, parcel };
    let head = [3, 5, 0xac, 2, 0xac, 2, 1, 1, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0];
    let unseen = Message { unseen: 2, ..seen.clone() };
    for (message, begin, receives) in [(seen, &[3][..], 4), (unseen, &[4, 2], 2)] {
        let golden = Bytes::from([begin, &head, &[0], b"p"].concat());
        assert_eq!(message.encode(), golden);
        assert_eq!(Message::decode(&golden), message);
        assert_eq!(message.receives(), receives);
        // As it was before heads and stories told more.
        let old = [&[begin[0] - 2], &begin[1..], &head, b"p"].concat();
        assert_eq!(Message::decode(&Bytes::from(old)), message);
    }
}

#[test]
fn a_story_has_its_bytes_and_those_of_before_are_read() {
    let id = MessageId { shard: 0, queue: 1, sequence: 2 };
    let story = Story {
        queue: "q".into(),
        id,
        receives: 3,
        first_failed_ms: 4,
        last_failed_ms: 5,
        reason: Some("r".into()),
        moved_ms: 6,
        group: Some("g".into()),
    };
    let head = Head { story: Some(story.clone()), listed: 7, ..Head::new(id, 2, 1, None) };
    let message = Message { head, unseen: 0, parcel: Bytes::from_static(b"p") };
    let head = [0, 1, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let told = [1, b'q', 0, 1, 2, 3, 4, 5, 1, 1, b'r'];
    let golden = [&[3][..], &head, &told, &[6, 1, 1, b'g'], &[7], b"p"].concat();
    assert_eq!(message.encode(), golden);
    assert_eq!(Message::decode(&golden.into()), message);
    let old = Message::decode(&[&[1][..], &head, &told, b"p"].concat().into());
    let less = Story { moved_ms: 5, group: None, ..story };
    assert_eq!((old.head.story, &old.parcel[..]), (Some(less), &b"p"[..]));
}
