//! Messages that move from queue to queue.

use std::collections::BTreeMap;

use super::*;
use crate::filter::{Filter, Rule};
use crate::parcel::{Attribute, Body, Parcel};

const DEAD: &str = "dead";

fn ask() -> StartRedrive {
    StartRedrive {
        queue: DEAD.into(),
        target: None,
        per_second: None,
        limit: None,
        filter: None,
        dry_run: false,
    }
}

fn parcel(text: &str, kind: &str) -> NewMessage {
    let mut parcel = Parcel::new(Body::Text(text.into()));
    parcel.attributes.insert("kind".into(), Attribute::text("String", kind));
    NewMessage { parcel: parcel.encode(), ..new("") }
}

/// A queue and its dead letters: so many, of two kinds in turn.
fn with_dead(mode: Mode, count: usize) -> Bench {
    let mut settings = Settings::usual(mode);
    settings.max_receive_count = Some(1);
    settings.dead_letter_queue = Some(DEAD.into());
    let mut bench = bench(settings);
    bench.create(DEAD, Settings::usual(mode));
    bench.create("elsewhere", Settings::usual(mode));
    for n in 0..count {
        let kind = if n % 2 == 0 { "even" } else { "odd" };
        let group = (mode == Mode::Fifo).then(|| format!("g{}", n % 3));
        bench.send_all(vec![NewMessage { group, ..parcel(&n.to_string(), kind) }]);
    }
    bench.let_all_die(JOBS);
    assert_eq!(bench.of(DEAD).counts.visible, count as u64);
    bench
}

/// The dead letters of a queue that is gone, which lie before those of the other: so many of each.
fn with_dead_of_nobody(mode: Mode, of_nobody: usize, count: usize) -> Bench {
    let mut bench = with_dead(mode, 0);
    bench.create("gone", bench.described().definition.settings);
    for (queue, count) in [("gone", of_nobody), (JOBS, count)] {
        for n in 0..count {
            let group = (mode == Mode::Fifo).then(|| format!("{queue}{n:03}"));
            let messages = vec![NewMessage { group, ..parcel(&n.to_string(), queue) }];
            bench.apply(&Command::Send(Send { queue: queue.into(), messages }));
        }
        bench.let_all_die(queue);
    }
    bench.apply(&Command::Delete { queue: "gone".into() });
    assert_eq!(bench.of(DEAD).counts.visible, (of_nobody + count) as u64);
    bench
}

impl Bench {
    pub(super) fn of(&self, name: &str) -> crate::Described {
        queue(&self.rig.rows, TENANT, name).expect("it is there")
    }

    pub(super) fn start(&mut self, asked: StartRedrive) -> u64 {
        match self.apply(&Command::StartRedrive(asked)) {
            Reply::Redriving { job } => job,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn job_of(&self, name: &str, number: u64) -> Job {
        job(&self.rig.rows, TENANT, self.of(name).definition.number, number).expect("remembered")
    }

    fn let_all_die(&mut self, queue: &str) {
        loop {
            let got = self.receive_from(queue, 10);
            if got.is_empty() {
                break;
            }
            let receipts = got.iter().map(|delivery| delivery.receipt).collect();
            let nack = Nack { queue: queue.into(), receipts, delay_ms: Some(0), reason: None };
            self.apply(&Command::Nack(nack));
        }
    }

    fn send_dead(&mut self, messages: Vec<NewMessage>) {
        let sent = self.apply(&Command::Send(Send { queue: DEAD.into(), messages }));
        assert!(matches!(sent, Reply::Sent(sent) if sent.iter().all(Result::is_ok)));
    }

    /// A message of a group dies, and its dead letter is in the queue `plain`.
    fn let_one_die_in_plain(&mut self) {
        let described = self.described().definition;
        let settings = Settings { dead_letter_queue: Some("plain".into()), ..described.settings };
        let update = Update { queue: JOBS.into(), version: described.version, settings };
        assert_eq!(self.apply(&Command::Update(update)), Reply::Updated);
        self.send_all(vec![NewMessage { group: Some("g".into()), ..parcel("1", "odd") }]);
        let receipt = self.receive(1).remove(0).receipt;
        self.nack(receipt, Some(0));
    }

    fn job(&self, number: u64) -> Job {
        self.job_of(DEAD, number)
    }

    fn bodies(&mut self, name: &str) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            let got = self.receive_from(name, 10);
            if got.is_empty() {
                return bodies;
            }
            let body = |delivery: &Delivery| {
                String::from_utf8(Parcel::decode(&delivery.parcel).body.bytes().to_vec())
            };
            bodies.extend(got.iter().map(|delivery| body(delivery).expect("text")));
            let receipts = got.iter().map(|delivery| delivery.receipt).collect();
            self.apply(&Command::Ack(Ack { queue: name.into(), receipts }));
        }
    }
}

#[test]
fn dead_letters_go_back_to_where_they_died_as_if_new() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = with_dead(mode, 5);
        let job = bench.start(ask());
        bench.advance(1);
        let ended = bench.job(job);
        assert_eq!((ended.state, ended.moved, ended.waiting), (JobState::Done, 5, 5), "{mode:?}");
        assert_eq!((bench.of(DEAD).counts.visible, bench.of(DEAD).counts.bytes), (0, 0));
        assert_eq!(bench.described().counts.visible, 5);
        let first = bench.receive(1).remove(0);
        assert_eq!((first.receives, first.story), (1, None));
        assert_eq!(bench.receive(10).len(), if mode == Mode::Fifo { 3 } else { 4 });
    }
}

#[test]
fn a_filter_moves_some_and_leaves_the_others_where_they_are() {
    let mut bench = with_dead(Mode::Standard, 6);
    let rules = BTreeMap::from([("kind".to_owned(), vec![Rule::Is("odd".into())])]);
    let filter = Some(Filter { attributes: rules });
    let counted = bench.start(StartRedrive { filter: filter.clone(), dry_run: true, ..ask() });
    bench.advance(1);
    let job = bench.job(counted);
    assert_eq!((job.matched, job.moved, job.skipped), (3, 0, 3), "a dry run moves nothing");
    assert_eq!(bench.of(DEAD).counts.visible, 6);
    let target = Some("elsewhere".to_owned());
    let moved = bench.start(StartRedrive { filter, target, limit: Some(2), ..ask() });
    bench.advance(1);
    assert_eq!(bench.job(moved).moved, 2);
    assert_eq!(bench.bodies("elsewhere"), ["1", "3"]);
    assert_eq!(bench.bodies(DEAD), ["0", "2", "4", "5"]);
}

#[test]
fn a_rate_is_kept_and_a_job_can_be_ended() {
    let mut bench = with_dead(Mode::Standard, 40);
    let job = bench.start(StartRedrive { per_second: Some(20), ..ask() });
    assert_eq!(bench.apply(&Command::StartRedrive(ask())), Reply::Refused(Refusal::Redriving));
    for _ in 0..10 {
        bench.advance(100);
    }
    let moved = bench.job(job).moved;
    assert!((18..=22).contains(&moved), "{moved} in a second");
    let cancel = Command::CancelRedrive { queue: DEAD.into(), job };
    assert_eq!(bench.apply(&cancel), Reply::RedriveEnded);
    bench.advance(10_000);
    let ended = bench.job(job);
    assert_eq!((ended.state, ended.moved), (JobState::Cancelled, moved));
    assert_eq!(bench.of(DEAD).counts.visible, 40 - moved);
    let none = Command::CancelRedrive { queue: DEAD.into(), job: job + 1 };
    assert_eq!(bench.apply(&none), Reply::Refused(Refusal::NoJob));
}

#[test]
fn what_comes_after_the_beginning_is_left_alone_and_so_is_what_is_leased() {
    let mut bench = with_dead(Mode::Standard, 3);
    let leased = bench.receive_from(DEAD, 1);
    let job = bench.start(StartRedrive { target: Some("elsewhere".into()), ..ask() });
    let late = Send { queue: DEAD.into(), messages: vec![parcel("late", "odd")] };
    bench.apply(&Command::Send(late));
    bench.advance(1);
    assert_eq!(bench.job(job).moved, 2);
    assert_eq!(bench.bodies(DEAD), ["late"]);
    let receipts = vec![leased[0].receipt];
    let done = bench.apply(&Command::Ack(Ack { queue: DEAD.into(), receipts }));
    assert_eq!(done, Reply::Settled(vec![Settled::Done]));
}

#[test]
fn a_queue_is_not_moved_to_itself_and_what_never_died_has_nowhere_to_go() {
    let mut bench = with_dead(Mode::Standard, 0);
    let itself = StartRedrive { target: Some(DEAD.into()), ..ask() };
    assert_eq!(bench.apply(&Command::StartRedrive(itself)), Reply::Refused(Refusal::SameQueue));
    let sent = Send { queue: DEAD.into(), messages: vec![parcel("alive", "odd")] };
    bench.apply(&Command::Send(sent));
    let job = bench.start(ask());
    bench.advance(1);
    let job = bench.job(job);
    assert_eq!((job.state, job.moved, job.skipped), (JobState::Done, 0, 1));
    assert_eq!(bench.bodies(DEAD), ["alive"]);
}

#[test]
fn a_queue_remembers_its_last_ten_jobs_and_none_once_it_is_gone() {
    let mut bench = with_dead(Mode::Standard, 0);
    let started: Vec<u64> = (0..13)
        .map(|_| {
            let job = bench.start(ask());
            bench.advance(1);
            job
        })
        .collect();
    let number = bench.of(DEAD).definition.number;
    let known: Vec<u64> = jobs(&bench.rig.rows, TENANT, number).iter().map(|j| j.number).collect();
    assert_eq!(known, started[3..]);
    bench.apply(&Command::Delete { queue: DEAD.into() });
    assert!(jobs(&bench.rig.rows, TENANT, number).is_empty());
}

#[test]
fn a_group_that_somebody_works_on_is_left_in_its_order() {
    let mut bench = with_dead(Mode::Fifo, 6);
    let leased = bench.receive_from(DEAD, 1).remove(0);
    let group = leased.group.clone().expect("it has one");
    let job = bench.start(StartRedrive { target: Some("elsewhere".into()), ..ask() });
    bench.advance(1);
    assert_eq!(bench.job(job).moved, 4, "two of three groups");
    let receipts = vec![leased.receipt];
    let nack = Nack { queue: DEAD.into(), receipts, delay_ms: Some(0), reason: None };
    bench.apply(&Command::Nack(nack));
    let rest = bench.receive_from(DEAD, 10);
    let order: Vec<_> = rest.iter().map(|delivery| delivery.sequence).collect();
    assert_eq!(rest.len(), 2);
    assert!(order.is_sorted() && rest.iter().all(|d| d.group.as_ref() == Some(&group)));
}

#[test]
fn a_high_rate_is_kept_too() {
    let mut bench = with_dead(Mode::Standard, 1500);
    let job = bench.start(StartRedrive { per_second: Some(10_000), ..ask() });
    for _ in 0..100 {
        bench.advance(1);
    }
    let moved = bench.job(job).moved;
    assert!((800..=1300).contains(&moved), "{moved} in a tenth of a second");
    bench.advance(1000);
    assert_eq!((bench.job(job).moved, bench.of(DEAD).counts.visible), (1500, 0));
    let sent = Send { queue: DEAD.into(), messages: vec![parcel("new", "odd")] };
    bench.apply(&Command::Send(sent));
    assert_eq!(bench.bodies(DEAD), ["new"], "the lane goes on where it was");
}

#[test]
fn a_low_rate_is_not_exceeded_either() {
    for rate in [3, 6, 7, 9] {
        let mut bench = with_dead(Mode::Standard, 40);
        let job = bench.start(StartRedrive { per_second: Some(rate), ..ask() });
        for ms in 1..4000 {
            bench.advance(1);
            let (moved, most) = (bench.job(job).moved, 1 + u64::from(rate) * ms / 1000);
            assert!(moved <= most, "{moved} in {ms} ms at {rate} a second");
        }
    }
}

#[test]
fn a_group_that_was_passed_because_somebody_works_on_it_is_not_moved_from_its_middle() {
    let mut bench = with_dead(Mode::Fifo, 9);
    let leased = bench.receive_from(DEAD, 1).remove(0);
    let target = Some("elsewhere".to_owned());
    let job = bench.start(StartRedrive { target, per_second: Some(1), ..ask() });
    bench.advance(1);
    let receipts = vec![leased.receipt];
    let nack = Nack { queue: DEAD.into(), receipts, delay_ms: Some(0), reason: None };
    bench.apply(&Command::Nack(nack));
    for _ in 0..20 {
        bench.advance(1000);
    }
    assert_eq!((bench.job(job).state, bench.job(job).moved), (JobState::Done, 6));
    let rest = bench.receive_from(DEAD, 10);
    assert!(rest.iter().all(|delivery| delivery.group == leased.group), "{rest:?}");
    assert_eq!(bench.bodies("elsewhere").len(), 6);
}

#[test]
fn a_message_of_a_group_whose_time_has_not_come_stays_with_all_behind_it() {
    let mut bench = with_dead(Mode::Fifo, 0);
    let grouped = |text: &str, kind: &str, delay_ms| NewMessage {
        group: Some("g".into()),
        delay_ms,
        ..parcel(text, kind)
    };
    let messages = vec![
        grouped("a", "even", None),
        grouped("b", "odd", Some(60_000)),
        grouped("c", "odd", None),
    ];
    bench.apply(&Command::Send(Send { queue: DEAD.into(), messages }));
    let rules = BTreeMap::from([("kind".to_owned(), vec![Rule::Is("odd".into())])]);
    let filter = Some(Filter { attributes: rules });
    let job = bench.start(StartRedrive { target: Some("elsewhere".into()), filter, ..ask() });
    bench.advance(1);
    assert_eq!((bench.job(job).moved, bench.job(job).skipped), (0, 1));
    assert_eq!(bench.of(DEAD).counts.visible + bench.of(DEAD).counts.delayed, 3);
}

#[test]
fn what_is_too_old_is_not_given_a_new_life() {
    let mut bench = with_dead(Mode::Fifo, 3);
    bench.advance(1000);
    let described = bench.of(DEAD);
    // Groups are searched for old messages only now and then.
    let settings = Settings { retention_ms: 2000, ..described.definition.settings };
    let version = described.definition.version;
    bench.apply(&Command::Update(Update { queue: DEAD.into(), version, settings }));
    bench.advance(1);
    bench.advance(1500);
    let job = bench.start(StartRedrive { target: Some("elsewhere".into()), ..ask() });
    bench.advance(1);
    assert_eq!((bench.job(job).state, bench.job(job).moved), (JobState::Done, 0));
    assert_eq!(bench.of("elsewhere").counts.totals.sent, 0);
}

#[test]
fn a_step_reads_some_megabytes_whatever_it_passes() {
    let mut bench = fifo();
    bench.create("others", Settings::usual(Mode::Fifo));
    let heavy = "x".repeat(256 << 10);
    // Nothing of the group is to be moved, because its first message is not due.
    for n in 0..100 {
        let delay_ms = (n == 0).then_some(60_000);
        bench.send_all(vec![NewMessage { delay_ms, ..grouped("late", &heavy) }]);
    }
    bench.send_all(vec![grouped("zzzzz", "1"), grouped("zzzzz", "2")]);
    let target = Some("others".to_owned());
    let job = bench.start(StartRedrive { queue: JOBS.into(), target, ..ask() });
    bench.ack(&[]);
    assert_eq!(bench.job_of(JOBS, job).state, JobState::Running, "it has seen some of them");
    bench.advance(1);
    let done = bench.job_of(JOBS, job);
    assert_eq!((done.state, done.moved), (JobState::Done, 2));
    assert_eq!(texts(&bench.receive_from("others", 10)), ["1", "2"]);
}

#[test]
fn a_queue_that_was_deleted_stays_so_and_what_was_on_its_way_comes_back() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = with_dead(mode, 5);
        let before =
            peek_all(&bench.rig.rows, TENANT, bench.of(DEAD).definition.number, PeekState::Visible);
        bench.apply(&Command::Delete { queue: JOBS.into() });
        let job = bench.start(ask());
        bench.advance(1);
        let ended = bench.job(job);
        assert_eq!(
            (ended.state, ended.moved, ended.returned),
            (JobState::NoQueue, 5, 5),
            "{mode:?}"
        );
        assert!(queue(&bench.rig.rows, TENANT, JOBS).is_none(), "it came back to life");
        let counts = bench.of(DEAD).counts;
        assert_eq!((counts.visible, counts.redrive), (5, None));
        let number = bench.of(DEAD).definition.number;
        let after = peek_all(&bench.rig.rows, TENANT, number, PeekState::Visible);
        let told = |peeked: &[Peeked]| {
            let told =
                peeked.iter().map(|p| (p.id.sequence, p.sent_ms, p.group.clone(), p.story.clone()));
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(&after), told(&before), "it is what it was");
        // And once there is a queue again, they go there.
        bench.create(JOBS, Settings::usual(mode));
        let again = bench.start(ask());
        bench.advance(1);
        assert_eq!((bench.job(again).state, bench.job(again).moved), (JobState::Done, 5));
    }
}

#[test]
fn a_job_with_a_rate_ends_when_the_first_message_comes_back() {
    let mut bench = with_dead(Mode::Standard, 5);
    let target = Some("elsewhere".to_owned());
    let job = bench.start(StartRedrive { target, per_second: Some(2), ..ask() });
    bench.advance(1);
    assert_eq!(bench.of("elsewhere").counts.visible, 1);
    bench.apply(&Command::Delete { queue: "elsewhere".into() });
    bench.advance(10_000);
    let ended = bench.job(job);
    assert_eq!((ended.state, ended.moved, ended.returned), (JobState::NoQueue, 2, 1));
    assert_eq!((ended.ended_ms.is_some(), bench.of(DEAD).counts.visible), (true, 4));
}

#[test]
fn what_has_order_is_not_moved_where_there_is_none_and_what_lost_its_group_gets_it_again() {
    let mut bench = with_dead(Mode::Fifo, 3);
    bench.create("plain", Settings::usual(Mode::Standard));
    let job = bench.start(StartRedrive { target: Some("plain".into()), ..ask() });
    bench.advance(1);
    assert_eq!(
        (bench.job(job).state, bench.of("plain").counts.totals.sent),
        (JobState::OtherMode, 0)
    );
    assert_eq!(bench.of(DEAD).counts.visible, 3);

    // The dead letters of a queue with order, in a queue without.
    bench.let_one_die_in_plain();
    assert_eq!(bench.of("plain").counts.visible, 1);
    let job = bench.start(StartRedrive { queue: "plain".into(), ..ask() });
    bench.advance(1);
    assert_eq!(bench.job_of("plain", job).state, JobState::Done);
    assert_eq!(bench.receive(1).remove(0).group.as_deref(), Some("g"));
}

#[test]
fn a_letter_that_lost_its_group_goes_to_another_queue_without_order() {
    let mut bench = with_dead(Mode::Fifo, 0);
    bench.create("plain", Settings::usual(Mode::Standard));
    bench.create("archive", Settings::usual(Mode::Standard));
    bench.let_one_die_in_plain();
    let target = Some("archive".into());
    let job = bench.start(StartRedrive { queue: "plain".into(), target, ..ask() });
    bench.advance(1);
    assert_eq!(bench.job_of("plain", job).state, JobState::Done);
}

#[test]
fn what_came_back_has_been_received_as_often_and_gets_as_old_as_it_was() {
    let mut bench = with_dead(Mode::Standard, 1);
    let receipts = vec![bench.receive_from(DEAD, 1).remove(0).receipt];
    let (queue, reason) = (DEAD.to_owned(), Some("boom".to_owned()));
    bench.apply(&Command::Nack(Nack { queue, receipts, delay_ms: Some(0), reason }));
    bench.apply(&Command::Delete { queue: JOBS.into() });
    bench.start(ask());
    bench.advance(1);
    let again = bench.receive_from(DEAD, 1).remove(0);
    assert_eq!(again.receives, 2);
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    for _ in 0..5 {
        bench.start(ask());
        bench.advance(DAY_MS);
    }
    assert_eq!(bench.of(DEAD).counts.visible, 0, "no new life by moving to nowhere");
}

#[test]
fn a_group_that_came_back_is_in_its_order() {
    let mut bench = with_dead(Mode::Fifo, 0);
    for n in 0..3 {
        let message = NewMessage { group: Some("g".into()), ..parcel(&n.to_string(), "odd") };
        bench.apply(&Command::Send(Send { queue: DEAD.into(), messages: vec![message] }));
    }
    let target = Some("elsewhere".to_owned());
    bench.start(StartRedrive { target, per_second: Some(2), ..ask() });
    bench.apply(&Command::Delete { queue: "elsewhere".into() });
    bench.advance(10_000);
    assert_eq!(bench.bodies(DEAD), ["1", "2"], "the first had gone before");
}

#[test]
fn a_job_with_a_rate_ends_though_more_arrives_than_it_may_move() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = with_dead(mode, 10);
        let target = Some("elsewhere".to_owned());
        let job = bench.start(StartRedrive { target, per_second: Some(10), ..ask() });
        for n in 0..30 {
            let group = (mode == Mode::Fifo).then(|| format!("new {n}"));
            bench.send_dead(vec![NewMessage { group, ..parcel("new", "odd") }; 2]);
            bench.advance(100);
        }
        let ended = bench.job(job);
        assert_eq!((ended.state, ended.moved, ended.skipped), (JobState::Done, 10, 0), "{mode:?}");
        assert_eq!(ended.ended_ms, Some(ended.started_ms + 1000));
        assert_eq!(bench.of(DEAD).counts.visible, 60);
    }
}

#[test]
fn a_rate_bounds_what_goes_and_not_what_is_passed() {
    let mut bench = with_dead(Mode::Standard, 0);
    bench.send_dead(vec![parcel("never died", "odd"); 1000]);
    let job = bench.start(StartRedrive { per_second: Some(1), ..ask() });
    bench.advance(1);
    assert_eq!((bench.job(job).state, bench.job(job).skipped), (JobState::Done, 1000));
}

#[test]
fn what_somebody_had_when_a_job_began_is_left_alone_when_it_comes_back() {
    let mut bench = with_dead(Mode::Standard, 4);
    let receipts = vec![bench.receive_from(DEAD, 1).remove(0).receipt];
    let job = bench.start(StartRedrive { per_second: Some(1), ..ask() });
    let nack = Nack { queue: DEAD.into(), receipts, delay_ms: Some(0), reason: None };
    bench.apply(&Command::Nack(nack));
    bench.advance(10_000);
    assert_eq!((bench.job(job).state, bench.job(job).moved), (JobState::Done, 3));
    assert_eq!(bench.bodies(DEAD), ["0"]);
}

#[test]
fn what_died_in_a_queue_that_is_gone_does_not_keep_the_rest_from_going_back() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = with_dead_of_nobody(mode, 300, 5);
        let job = bench.start(ask());
        bench.advance(1);
        let ended = bench.job(job);
        assert_eq!(ended.state, JobState::NoQueue, "{mode:?}");
        // A step of them went, and those after it did not even try.
        assert_eq!((ended.moved, ended.returned, ended.arrived), (261, 256, 5), "{mode:?}");
        assert_eq!((ended.matched, ended.skipped), (261, 44));
        let counts = bench.of(DEAD).counts;
        assert_eq!((counts.visible, counts.redrive), (300, None));
        assert_eq!(bench.described().counts.visible, 5);
        assert!(queue(&bench.rig.rows, TENANT, "gone").is_none());
    }
}

#[test]
fn a_job_that_has_failed_for_some_runs_until_it_has_moved_the_rest() {
    let mut bench = with_dead_of_nobody(Mode::Standard, 3, 3);
    let job = bench.start(StartRedrive { per_second: Some(1), ..ask() });
    bench.advance(1);
    let now = bench.job(job);
    assert_eq!((now.state, now.returned, now.ended_ms), (JobState::Running, 1, None));
    let other = bench.apply(&Command::StartRedrive(ask()));
    assert_eq!(other, Reply::Refused(Refusal::Redriving));
    bench.advance(10_000);
    let ended = bench.job(job);
    assert_eq!((ended.state, ended.arrived, ended.skipped), (JobState::NoQueue, 3, 2));
    assert_eq!(ended.ended_ms, Some(ended.started_ms + 4000));
}

#[test]
fn jobs_have_their_bytes_and_those_of_before_are_read() {
    let mut bench = with_dead_of_nobody(Mode::Standard, 1, 1);
    let number = bench.start(ask());
    bench.advance(1);
    let job = bench.job(number);
    assert_eq!((&job.unfit[..], job.failure), (&["gone".to_owned()][..], Some(JobState::NoQueue)));
    let mut prefix = crate::state::key(TENANT, b'r', bench.of(DEAD).definition.number);
    prefix.extend(number.to_be_bytes());
    let row = bench.rig.rows.get(&prefix).expect("it is remembered");
    // Where the one lane ended that was filled, and what the job has learned of the other queue.
    let last = [1, 0, 2, 1, 4, b'g', b'o', b'n', b'e', 1, 3];
    let (before, tail) = row.split_at(row.len() - last.len());
    assert_eq!((row[0], tail), (3, &last[..]));
    assert_eq!(Job::decode(&row), job);
    let none = (Vec::new(), None);
    let old = Job::decode(&[&[2], &before[1..]].concat());
    assert_eq!((old.matched, old.is_at_end(), (old.unfit, old.failure)), (2, true, none.clone()));
    // There was no telling yet of what had arrived: it is not waited for.
    let oldest = Job::decode(&[&[1], &before[1..before.len() - 3]].concat());
    assert_eq!((oldest.matched, oldest.arrived, oldest.is_at_end()), (2, oldest.moved, false));
}
