//! What must hold, one sentence a test.

use bytes::Bytes;
use kernel::TenantId;
use kernel::rig::Rig;

use crate::command::*;
use crate::query::{PeekState, peek_all, queue};
use crate::receipt::Receipt;
use crate::*;

const TENANT: TenantId = TenantId(7);
const START_MS: u64 = 1_000_000_000;
mod age;
mod dead;
mod lane;
mod large;
mod mail;
mod order;
mod redrive;
mod release;
mod sweep;
mod topic;

const JOBS: &str = "jobs";

struct Bench {
    rig: Rig<Queues>,
}

fn bench(settings: Settings) -> Bench {
    let mut bench = Bench { rig: Rig::new(Queues::default(), START_MS) };
    assert!(matches!(bench.create(JOBS, settings), Reply::Created { new: true, .. }));
    bench
}

fn standard() -> Bench {
    bench(Settings::usual(Mode::Standard))
}

fn fifo() -> Bench {
    bench(Settings::usual(Mode::Fifo))
}

fn new(text: &str) -> NewMessage {
    let parcel = Bytes::copy_from_slice(text.as_bytes());
    NewMessage { delay_ms: None, priority: 0, group: None, dedup: None, parcel }
}

fn grouped(group: &str, text: &str) -> NewMessage {
    NewMessage { group: Some(group.to_owned()), ..new(text) }
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.parcel.to_vec()).expect("sent as text")
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

impl Bench {
    fn apply(&mut self, command: &Command) -> Reply {
        let reply = self.rig.apply(TENANT, &command.encode()).expect("readable");
        self.check();
        Reply::decode(&reply).expect("a reply")
    }

    /// What all queues count is what their rows hold, and nothing is in two places.
    fn check(&self) {
        let mut leased = 0;
        let names = names(&self.rig.rows, TENANT, "", "", usize::MAX, |_| true);
        for name in &names {
            let described = queue(&self.rig.rows, TENANT, name).expect("it has a name");
            leased += described.counts.leased;
            self.check_queue(&described);
        }
        let usage = self.rig.ground.usage().get(&TENANT).copied().unwrap_or_default();
        assert!(usage.entities >= usage.queues && usage.bytes >= 0, "{usage:?}");
        assert_eq!((usage.queues, usage.leased), (names.len() as i64, leased.cast_signed()));
    }

    fn check_queue(&self, described: &Described) {
        let mut seen = std::collections::BTreeSet::new();
        let (mut bytes, mut archived) = (0, 0);
        let mut count = |state| {
            let found = peek_all(&self.rig.rows, TENANT, described.definition.number, state);
            for message in &found {
                assert!(seen.insert(message.sequence), "{} is in two places", message.sequence);
                bytes += crate::state::message_bytes(&message.parcel);
                archived += u64::from(parcel::ArchivedBody::of(&message.parcel).is_some());
            }
            found.len() as u64
        };
        let counts = &described.counts;
        assert_eq!(count(PeekState::Visible), counts.visible, "visible");
        assert_eq!(count(PeekState::Delayed), counts.delayed, "delayed");
        assert_eq!(count(PeekState::Leased), counts.leased, "leased");
        assert_eq!((bytes, archived), (counts.bytes, counts.archived), "bytes and bodies");
        let ages = crate::state::key(TENANT, b'a', described.definition.number);
        let ages = self.rig.rows.scan(&kernel::rows::Scan::prefix(&ages)).len() as u64;
        let fifo = described.definition.settings.mode == Mode::Fifo;
        assert_eq!(ages, if fifo { counts.visible } else { 0 }, "listed by age");
        assert_eq!(described.oldest_visible_ms.is_some(), counts.visible > 0, "the oldest");
    }

    /// A letter comes from another shard.
    fn deliver(&mut self, letter: kernel::mail::Letter) {
        self.rig.deliver(letter);
        self.check();
    }

    fn create(&mut self, name: &str, settings: Settings) -> Reply {
        self.apply(&Command::Create(Create { queue: name.into(), settings }))
    }

    fn send(&mut self, messages: Vec<NewMessage>) -> Vec<Result<Sent, SendRefusal>> {
        match self.apply(&Command::Send(Send { queue: JOBS.into(), messages })) {
            Reply::Sent(sent) => sent,
            other => panic!("{other:?}"),
        }
    }

    fn send_all(&mut self, messages: Vec<NewMessage>) {
        assert!(self.send(messages).iter().all(Result::is_ok));
    }

    fn receive_from(&mut self, name: &str, max: u16) -> Vec<Delivery> {
        let receive = Receive { queue: name.into(), max, visibility_ms: None };
        match self.apply(&Command::Receive(receive)) {
            Reply::Received(deliveries) => deliveries,
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self, max: u16) -> Vec<Delivery> {
        self.receive_from(JOBS, max)
    }

    fn settled(&mut self, command: &Command) -> Vec<Settled> {
        match self.apply(command) {
            Reply::Settled(settled) => settled,
            other => panic!("{other:?}"),
        }
    }

    fn ack(&mut self, receipts: &[Receipt]) -> Vec<Settled> {
        let ack = Ack { queue: JOBS.into(), receipts: receipts.to_vec() };
        self.settled(&Command::Ack(ack))
    }

    fn nack(&mut self, receipt: Receipt, delay_ms: Option<u64>) -> Vec<Settled> {
        let (queue, reason) = (JOBS.to_owned(), Some("boom".to_owned()));
        self.settled(&Command::Nack(Nack { queue, receipts: vec![receipt], delay_ms, reason }))
    }

    fn extend(&mut self, receipt: Receipt, visibility_ms: u64) -> Vec<Settled> {
        let queue = JOBS.to_owned();
        self.settled(&Command::Extend(Extend { queue, receipts: vec![receipt], visibility_ms }))
    }

    fn advance(&mut self, ms: u64) {
        self.rig.advance(ms);
        self.check();
    }

    fn described(&self) -> Described {
        queue(&self.rig.rows, TENANT, JOBS).expect("it is there")
    }
}

#[test]
fn messages_come_in_the_order_of_sending_and_acked_ones_are_gone() {
    let mut bench = standard();
    bench.send_all(vec![new("a"), new("b"), new("c")]);
    let first = bench.receive(2);
    assert_eq!(texts(&first), ["a", "b"]);
    assert_eq!(texts(&bench.receive(10)), ["c"]);
    assert!(bench.receive(10).is_empty());
    let receipts: Vec<_> = first.iter().map(|delivery| delivery.receipt).collect();
    assert_eq!(bench.ack(&receipts), [Settled::Done, Settled::Done]);
    assert_eq!(bench.ack(&receipts), [Settled::Stale, Settled::Stale]);
    bench.advance(60_000);
    assert_eq!(texts(&bench.receive(10)), ["c"]);
    let counts = bench.described().counts;
    assert_eq!((counts.totals.acked, counts.totals.failed, counts.leased), (2, 1, 1));
}

#[test]
fn lease_that_ends_brings_the_message_back_and_voids_its_receipt() {
    let mut bench = standard();
    bench.send_all(vec![new("a"), new("b")]);
    let first = bench.receive(1).remove(0);
    bench.advance(29_999);
    assert_eq!(texts(&bench.receive(1)), ["b"]);
    bench.advance(1);
    let again = bench.receive(1).remove(0);
    assert_eq!((text(&again), again.receives), ("a".to_owned(), 2));
    assert_eq!(bench.ack(&[first.receipt]), [Settled::Stale]);
    assert_eq!(bench.nack(first.receipt, None), [Settled::Stale]);
    assert_eq!(bench.extend(first.receipt, 1000), [Settled::Stale]);
    assert_eq!(bench.ack(&[again.receipt]), [Settled::Done]);
}

#[test]
fn receipt_that_was_made_up_is_forged_and_one_of_another_queue_too() {
    let mut bench = standard();
    bench.create("other", Settings::usual(Mode::Standard));
    bench.send_all(vec![new("a")]);
    let receipt = bench.receive(1).remove(0).receipt;
    for at in 0..36 {
        let mut bytes = receipt.to_bytes();
        bytes[at] ^= 1;
        let forged = Receipt::from_bytes(&bytes).expect("the form of one");
        assert_eq!(bench.ack(&[forged]), [Settled::Forged], "byte {at}");
    }
    let ack = Ack { queue: "other".into(), receipts: vec![receipt] };
    assert_eq!(bench.settled(&Command::Ack(ack)), [Settled::Forged]);
    assert_eq!(Receipt::from_bytes(&receipt.to_bytes()), Some(receipt));
    assert_eq!(Receipt::from_bytes(b"short"), None);
    assert_eq!(bench.ack(&[receipt]), [Settled::Done]);
}

#[test]
fn extended_lease_lasts_and_its_receipt_stays_good() {
    let mut bench = standard();
    bench.send_all(vec![new("a")]);
    let receipt = bench.receive(1).remove(0).receipt;
    for _ in 0..5 {
        bench.advance(25_000);
        assert_eq!(bench.extend(receipt, 30_000), [Settled::Done]);
    }
    assert!(bench.receive(1).is_empty());
    bench.advance(29_999);
    assert_eq!(bench.ack(&[receipt]), [Settled::Done]);
    bench.advance(100_000);
    assert!(bench.receive(1).is_empty());
}

#[test]
fn lease_extended_to_nothing_ends_at_once() {
    let mut bench = standard();
    bench.send_all(vec![new("a")]);
    let receipt = bench.receive(1).remove(0).receipt;
    assert_eq!(bench.extend(receipt, 0), [Settled::Done]);
    assert_eq!(bench.receive(1).remove(0).receives, 2);
}

#[test]
fn message_given_back_waits_as_told_or_as_the_backoff_says() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.backoff = Backoff { base_ms: 1000, max_ms: 3000, jitter: false };
    let mut bench = bench(settings);
    bench.send_all(vec![new("a")]);
    let mut receipt = bench.receive(1).remove(0).receipt;
    assert_eq!(bench.nack(receipt, Some(500)), [Settled::Done]);
    bench.advance(499);
    assert!(bench.receive(1).is_empty());
    bench.advance(1);
    for wait_ms in [2000, 3000, 3000] {
        receipt = bench.receive(1).remove(0).receipt;
        assert_eq!(bench.nack(receipt, None), [Settled::Done]);
        bench.advance(wait_ms - 1);
        assert!(bench.receive(1).is_empty(), "{wait_ms}");
        bench.advance(1);
    }
    assert_eq!(bench.receive(1).remove(0).receives, 5);
}

#[test]
fn what_came_back_goes_before_what_is_new() {
    let mut bench = standard();
    bench.send_all(vec![new("a"), new("b"), new("c")]);
    let receipt = bench.receive(1).remove(0).receipt;
    bench.nack(receipt, Some(0));
    assert_eq!(texts(&bench.receive(3)), ["a", "b", "c"]);
}

#[test]
fn delayed_message_shows_when_its_time_has_come_and_not_before() {
    let mut bench = standard();
    let year_ms = 365 * 24 * 60 * 60 * 1000;
    let later = |delay_ms| NewMessage { delay_ms: Some(delay_ms), ..new("later") };
    bench.send_all(vec![later(year_ms), later(1000), new("now")]);
    assert_eq!(texts(&bench.receive(10)).len(), 1);
    assert_eq!(bench.described().counts.delayed, 2);
    bench.advance(999);
    assert!(bench.receive(10).is_empty());
    bench.advance(1);
    assert_eq!(bench.receive(10).len(), 1);
    // Longer than the retention: its age counts from when it could be received.
    bench.advance(year_ms - 1001);
    bench.rig.checkpoint();
    assert!(bench.receive(10).iter().all(|delivery| text(delivery) == "now"));
    bench.advance(1);
    assert!(texts(&bench.receive(10)).contains(&"later".to_owned()));
}

#[test]
fn higher_priority_goes_first_and_nothing_starves() {
    let mut bench = standard();
    let urgent = |text: &str| NewMessage { priority: 9, ..new(text) };
    bench.send_all(vec![new("low"), urgent("high")]);
    assert_eq!(texts(&bench.receive(1)), ["high"]);
    bench.advance(10 * 60_000);
    bench.send_all(vec![urgent("high again")]);
    let order: Vec<_> = texts(&bench.receive(3));
    let low = order.iter().position(|text| text == "low").expect("it is there");
    let again = order.iter().position(|text| text == "high again").expect("it is there");
    assert!(low < again, "{order:?}");
}

#[test]
fn time_that_a_message_was_hidden_at_first_is_no_waiting() {
    let mut bench = standard();
    let later = NewMessage { delay_ms: Some(60 * 60_000), ..new("low") };
    bench.send_all(vec![later]);
    bench.advance(60 * 60_000);
    bench.send_all(vec![NewMessage { priority: 9, ..new("high") }]);
    assert_eq!(texts(&bench.receive(1)), ["high"]);
}

#[test]
fn message_that_fails_too_often_goes_to_the_dead_letter_queue_with_its_story() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.max_receive_count = Some(2);
    settings.dead_letter_queue = Some("dead".into());
    let mut bench = bench(settings);
    bench.send_all(vec![new("poison")]);
    let first = bench.receive(1).remove(0);
    bench.advance(30_000);
    let second = bench.receive(1).remove(0);
    bench.advance(500);
    bench.nack(second.receipt, None);
    assert!(bench.receive(1).is_empty());
    assert_eq!(bench.described().counts.totals.dead, 1);
    let story = Story {
        queue: JOBS.into(),
        id: first.id,
        receives: 2,
        first_failed_ms: START_MS + 30_000,
        last_failed_ms: START_MS + 30_500,
        reason: Some("boom".into()),
        moved_ms: START_MS + 30_500,
        group: None,
    };
    // Nobody has made that queue: a dead message is not lost for want of it.
    let dead = bench.receive_from("dead", 1).remove(0);
    assert_eq!((text(&dead), dead.story, dead.id), ("poison".into(), Some(story), first.id));
}

#[test]
fn dead_letter_says_when_it_was_first_sent_and_its_age_begins_anew() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut settings = Settings::usual(mode);
        settings.max_receive_count = Some(1);
        settings.dead_letter_queue = Some("dead".into());
        settings.retention_ms = 100_000;
        let mut bench = bench(settings);
        bench.create("dead", Settings { retention_ms: 100_000, ..Settings::usual(mode) });
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        bench.send_all(vec![NewMessage { group, ..new("poison") }]);
        bench.advance(60_000);
        bench.receive(1);
        bench.advance(30_000);
        assert_eq!(bench.described().counts.totals.dead, 1);
        // Older than the retention by its sending, but not by its arrival.
        bench.advance(99_999);
        let dead = bench.receive_from("dead", 1).remove(0);
        assert_eq!(dead.sent_ms, START_MS, "{mode:?}");
    }
}

#[test]
fn same_deduplication_key_within_the_window_is_one_message() {
    let mut bench = standard();
    let keyed = |text: &str| NewMessage { dedup: Some([1; 16]), ..new(text) };
    let first = bench.send(vec![keyed("a"), keyed("b")]);
    let (one, two) = (first[0].expect("taken"), first[1].expect("taken"));
    assert_eq!((one.sequence, one.duplicate), (two.sequence, false));
    assert!(two.duplicate);
    let receipt = bench.receive(10).remove(0).receipt;
    bench.ack(&[receipt]);
    bench.advance(5 * 60_000 - 1);
    assert!(bench.send(vec![keyed("c")])[0].expect("taken").duplicate);
    bench.advance(1);
    assert!(!bench.send(vec![keyed("d")])[0].expect("taken").duplicate);
    bench.advance(5 * 60_000);
    assert!(!bench.send(vec![keyed("e")])[0].expect("taken").duplicate);
}

#[test]
fn old_messages_are_dropped_and_counted() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut settings = Settings::usual(mode);
        settings.retention_ms = 60_000;
        let mut bench = bench(settings);
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        let message = |text: &str| NewMessage { group: group.clone(), ..new(text) };
        for _ in 0..300 {
            bench.send_all(vec![message("old"), message("old")]);
        }
        bench.advance(59_999);
        bench.send_all(vec![message("young")]);
        bench.advance(1);
        assert_eq!(texts(&bench.receive(10)), ["young"], "{mode:?}");
        bench.advance(600_000);
        let counts = bench.described().counts;
        assert_eq!((counts.totals.expired, counts.bytes), (601, 0), "{mode:?}");
    }
}

#[test]
fn queue_takes_no_more_than_it_may_and_leases_no_more() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.max_messages = Some(2);
    settings.max_bytes = Some(250);
    settings.max_inflight = 1;
    let mut bench = bench(settings);
    let sent = bench.send(vec![new("a"), new(&"x".repeat(200)), new("b"), new("c")]);
    assert_eq!(sent[1], Err(SendRefusal::Bytes));
    assert_eq!((sent[0].is_ok(), sent[2].is_ok()), (true, true));
    assert_eq!(sent[3], Err(SendRefusal::Messages));
    let first = bench.receive(10);
    assert_eq!(first.len(), 1);
    assert!(bench.described().counts.full, "whoever waits is not called");
    let receive = Receive { queue: JOBS.into(), max: 1, visibility_ms: None };
    assert_eq!(bench.apply(&Command::Receive(receive)), Reply::Refused(Refusal::Inflight));
    bench.ack(&[first[0].receipt]);
    assert!(!bench.described().counts.full);
    assert_eq!(bench.receive(10).len(), 1);
    let described = bench.described().definition;
    let settings = Settings { max_inflight: 2, ..described.settings };
    bench.apply(&Command::Update(Update {
        queue: JOBS.into(),
        version: described.version,
        settings,
    }));
    assert!(!bench.described().counts.full, "the bound may change too");
}

#[test]
fn bytes_of_a_message_count_whole_when_it_is_asked_whether_it_fits() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.max_bytes = Some(250);
    let mut bench = bench(settings);
    let sent = bench.send(vec![new(&"x".repeat(60)), new(&"x".repeat(60)), new("")]);
    assert_eq!(sent[1], Err(SendRefusal::Bytes));
    assert_eq!(sent[2], Err(SendRefusal::Bytes), "160 are taken, and nothing is below 100");
    assert_eq!(bench.described().counts.bytes, 160);
}

#[test]
fn purged_queue_is_empty_and_goes_on() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = bench(Settings::usual(mode));
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        let message = |text: &str| NewMessage { group: group.clone(), ..new(text) };
        bench.send_all(vec![message("a"), message("b"), message("c")]);
        let receipt = bench.receive(1).remove(0).receipt;
        assert_eq!(bench.apply(&Command::Purge { queue: JOBS.into() }), Reply::Purged);
        assert_eq!(bench.ack(&[receipt]), [Settled::Stale]);
        bench.advance(100_000);
        assert!(bench.receive(10).is_empty());
        bench.send_all(vec![message("d")]);
        assert_eq!(texts(&bench.receive(10)), ["d"]);
    }
}

#[test]
fn queue_of_the_same_name_has_nothing_of_the_deleted_one() {
    let mut bench = standard();
    bench.send_all(vec![new("a"), new("b")]);
    let receipt = bench.receive(1).remove(0).receipt;
    assert_eq!(bench.apply(&Command::Delete { queue: JOBS.into() }), Reply::Deleted);
    let gone = Reply::Refused(Refusal::NoQueue);
    assert_eq!(bench.apply(&Command::Delete { queue: JOBS.into() }), gone);
    assert_eq!(bench.apply(&Command::Purge { queue: JOBS.into() }), gone);
    let usage = bench.rig.ground.usage()[&TENANT];
    assert_eq!(usage, kernel::machine::Usage::default());
    bench.create(JOBS, Settings::usual(Mode::Standard));
    assert_eq!(bench.ack(&[receipt]), [Settled::Forged]);
    bench.advance(100_000);
    assert!(bench.receive(10).is_empty());
}

#[test]
fn creating_again_is_fine_with_the_same_settings_only() {
    let mut bench = standard();
    let same = bench.create(JOBS, Settings::usual(Mode::Standard));
    assert!(matches!(same, Reply::Created { new: false, .. }));
    let mut other = Settings::usual(Mode::Standard);
    other.delay_ms = 1;
    assert_eq!(bench.create(JOBS, other.clone()), Reply::Refused(Refusal::Exists));
    let update = |version, settings: &Settings| {
        Command::Update(Update { queue: JOBS.into(), version, settings: settings.clone() })
    };
    assert_eq!(bench.apply(&update(1, &other)), Reply::Updated);
    assert_eq!(bench.apply(&update(1, &other)), Reply::Refused(Refusal::Version));
    let fifo = Settings::usual(Mode::Fifo);
    assert_eq!(bench.apply(&update(2, &fifo)), Reply::Refused(Refusal::Mode));
}

#[test]
fn group_is_handed_out_in_order_and_blocks_only_itself() {
    let mut bench = fifo();
    bench.send_all(vec![grouped("a", "a1"), grouped("a", "a2"), grouped("b", "b1")]);
    bench.send_all(vec![grouped("a", "a3"), grouped("b", "b2")]);
    let first = bench.receive(2);
    assert_eq!(texts(&first), ["a1", "a2"]);
    assert_eq!(texts(&bench.receive(10)), ["b1", "b2"]);
    assert!(bench.receive(10).is_empty(), "a3 waits for its group");
    bench.ack(&[first[0].receipt]);
    assert!(bench.receive(10).is_empty(), "a2 is still leased");
    bench.ack(&[first[1].receipt]);
    assert_eq!(texts(&bench.receive(10)), ["a3"]);
}

#[test]
fn failed_message_of_a_group_comes_again_before_those_behind_it() {
    let mut bench = fifo();
    bench.send_all(vec![grouped("a", "1"), grouped("a", "2"), grouped("b", "3")]);
    let first = bench.receive(1).remove(0);
    bench.nack(first.receipt, Some(5000));
    assert_eq!(texts(&bench.receive(10)), ["3"]);
    bench.advance(4999);
    assert!(bench.receive(10).is_empty());
    bench.advance(1);
    assert_eq!(texts(&bench.receive(10)), ["1", "2"]);
    bench.advance(30_000);
    let mut all = texts(&bench.receive(10));
    all.sort();
    assert_eq!(all, ["1", "2", "3"]);
}

#[test]
fn delay_of_a_queue_with_order_does_not_break_it() {
    let mut bench = fifo();
    let slow = NewMessage { delay_ms: Some(10_000), ..grouped("a", "1") };
    bench.send_all(vec![slow, grouped("a", "2"), grouped("b", "3")]);
    assert_eq!(texts(&bench.receive(10)), ["3"]);
    bench.advance(10_000);
    assert_eq!(texts(&bench.receive(10)), ["1", "2"]);
}

#[test]
fn message_dropped_for_its_age_lets_those_behind_it_go() {
    let mut bench = bench(Settings { retention_ms: 60_000, ..Settings::usual(Mode::Fifo) });
    bench.send_all(vec![grouped("a", "1")]);
    let receipt = bench.receive(1).remove(0).receipt;
    bench.nack(receipt, Some(600_000));
    bench.advance(50_000);
    bench.send_all(vec![grouped("a", "2")]);
    assert!(bench.receive(10).is_empty(), "1 is before it");
    bench.advance(10_000);
    assert_eq!(bench.described().counts.totals.expired, 1);
    assert_eq!(texts(&bench.receive(10)), ["2"]);
}

#[test]
fn groups_are_needed_where_there_is_order_and_nowhere_else() {
    let sent = fifo().send(vec![new("a")]);
    assert_eq!(sent[0], Err(SendRefusal::GroupMissing));
    let sent = standard().send(vec![grouped("g", "a")]);
    assert_eq!(sent[0], Err(SendRefusal::GroupUnexpected));
}

#[test]
fn machine_that_remembers_nothing_answers_alike() {
    let mut bench = fifo();
    for round in 0..50_u32 {
        let group = ["a", "b", "c"][round as usize % 3];
        bench.send_all(vec![grouped(group, &round.to_string())]);
        let taken = bench.receive(2);
        if let Some(delivery) = taken.first() {
            bench.ack(&[delivery.receipt]);
        }
        bench.advance(7000);
        // What is at hand is dropped, and rows move to the base.
        bench.rig.machine = Queues::default();
        bench.rig.checkpoint();
    }
    bench.advance(1_000_000);
    let totals = bench.described().counts.totals;
    let counts = bench.described().counts;
    assert_eq!(totals.sent, totals.acked + counts.visible + counts.leased + totals.expired);
}

#[test]
fn commands_from_the_future_are_unreadable_not_ignored() {
    let mut bench = standard();
    let future = Bytes::from_static(&[200, 1, 0]);
    assert!(bench.rig.apply(TENANT, &future).is_err());
    assert!(bench.rig.apply(TENANT, &Bytes::from_static(&[5, 9])).is_err());
}

#[test]
fn a_parcel_that_no_letter_could_carry_is_not_taken() {
    let mut bench = standard();
    let sent = bench.send(vec![new(&"x".repeat(crate::PARCEL_BYTES_MAX + 1)), new("small")]);
    assert_eq!(sent[0], Err(SendRefusal::TooLarge));
    assert!(sent[1].is_ok());
}

#[test]
fn a_shorter_retention_is_in_force_at_once() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = bench(Settings::usual(mode));
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        bench.send_all(vec![NewMessage { group, ..new("old") }]);
        bench.advance(60_000);
        let settings = Settings { retention_ms: 30_000, ..Settings::usual(mode) };
        let update = Update { queue: JOBS.into(), version: 1, settings };
        assert_eq!(bench.apply(&Command::Update(update)), Reply::Updated);
        bench.advance(1);
        let counts = bench.described().counts;
        assert_eq!((counts.visible, counts.totals.expired), (0, 1), "{mode:?}");
    }
}

#[test]
fn a_group_stays_in_order_whatever_comes_back() {
    let mut bench = fifo();
    bench.send_all((0..6).map(|n| grouped("g", &n.to_string())).collect());
    let taken = bench.receive(3);
    assert_eq!(texts(&taken), ["0", "1", "2"]);
    bench.ack(&[taken[1].receipt]);
    for at in [2, 0] {
        bench.nack(taken[at].receipt, Some(0));
    }
    assert_eq!(texts(&bench.receive(10)), ["0", "2", "3", "4", "5"]);
}

/// Rows that change when so many batches were sent, received and acked.
fn changed_by(mode: Mode, batches: usize) -> usize {
    let mut bench = bench(Settings::usual(mode));
    let group = (mode == Mode::Fifo).then(|| "g".to_owned());
    for _ in 0..batches {
        bench.send_all(vec![NewMessage { group: group.clone(), ..new("a") }; 10]);
        let receipts: Vec<Receipt> = bench.receive(10).iter().map(|got| got.receipt).collect();
        assert_eq!(bench.ack(&receipts), [Settled::Done; 10]);
    }
    bench.rig.rows.freeze().len()
}

#[test]
fn a_queue_that_keeps_up_leaves_no_trace_in_rows() {
    for mode in [Mode::Standard, Mode::Fifo] {
        assert_eq!(changed_by(mode, 50), changed_by(mode, 2), "{mode:?}");
    }
}

#[test]
fn a_message_that_is_hidden_until_the_same_time_again_does_not_come_back_from_the_dead() {
    let mut bench = standard();
    bench.send_all(vec![new("a")]);
    let got = bench.receive(1).remove(0);
    bench.rig.checkpoint();
    // The retry is due at the very time when the lease would have ended: the same key.
    let lease_ms = Settings::usual(Mode::Standard).visibility_ms;
    assert_eq!(bench.nack(got.receipt, Some(lease_ms)), [Settled::Done]);
    bench.advance(lease_ms);
    let got = bench.receive(1).remove(0);
    assert_eq!(bench.ack(&[got.receipt]), [Settled::Done]);
    bench.check();
    bench.advance(2 * lease_ms);
    assert!(bench.receive(1).is_empty(), "it was acked");
}
