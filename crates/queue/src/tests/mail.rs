//! Messages that move to a queue on another shard, and come back.

use kernel::ShardId;
use kernel::machine::Place;
use kernel::mail::Letter;

use super::large::with_body;
use super::*;
use crate::parcel::ArchivedBody;
use crate::post::{Arrived, Fanned, Moved, MovedFrom, Post};

/// A queue on the first of two shards, and the other shard.
struct Pair {
    home: Bench,
    away: Bench,
    /// On the first, and on the other.
    from: String,
    to: String,
}

fn pair(mode: Mode) -> Pair {
    let at = |shard| {
        let place = Place { shard: ShardId(shard), shard_count: 2 };
        Bench { rig: Rig::at(place, Queues::default(), START_MS) }
    };
    let name_on = |shard| {
        let mut names = (0..).map(|n| format!("q{n}"));
        names.find(|name| place(TENANT, name).shard(2) == ShardId(shard)).expect("half of them are")
    };
    let mut pair = Pair { home: at(0), away: at(1), from: name_on(0), to: name_on(1) };
    pair.home.create(&pair.from, Settings::usual(mode));
    pair
}

impl Pair {
    fn send(&mut self, messages: Vec<NewMessage>) {
        let sent = self.home.apply(&Command::Send(Send { queue: self.from.clone(), messages }));
        assert!(matches!(sent, Reply::Sent(sent) if sent.iter().all(Result::is_ok)));
    }

    /// Moves all there is; the letters are on their way.
    fn move_all(&mut self) -> (u64, Vec<Letter>) {
        self.move_some(None)
    }

    fn move_some(&mut self, limit: Option<u64>) -> (u64, Vec<Letter>) {
        let job = self.home.start(StartRedrive {
            queue: self.from.clone(),
            target: Some(self.to.clone()),
            per_second: None,
            limit,
            filter: None,
            dry_run: false,
        });
        self.home.advance(1);
        (job, self.home.rig.collect(ShardId(1)))
    }

    fn receive(&mut self) -> Vec<String> {
        let from = self.from.clone();
        texts(&self.home.receive_from(&from, 10))
    }

    /// What the other shard answers to these.
    fn answers(&mut self, letters: impl IntoIterator<Item = Letter>) -> Vec<Letter> {
        letters.into_iter().for_each(|letter| self.away.deliver(letter));
        self.away.rig.collect(ShardId(0))
    }

    fn hear(&mut self, answers: Vec<Letter>) {
        answers.into_iter().for_each(|answer| self.home.deliver(answer));
    }

    fn job(&self, job: u64) -> Job {
        self.home.job_of(&self.from, job)
    }

    fn delete(&mut self) {
        let queue = self.from.clone();
        assert_eq!(self.home.apply(&Command::Delete { queue }), Reply::Deleted);
    }

    fn all(&self) -> Vec<Peeked> {
        let number = self.home.of(&self.from).definition.number;
        peek_all(&self.home.rig.rows, TENANT, number, PeekState::Visible)
    }
}

fn some(mode: Mode) -> Vec<NewMessage> {
    let group = |n: u8| (mode == Mode::Fifo).then(|| format!("g{}", n % 2));
    let one = |n: u8| NewMessage { group: group(n), priority: n, ..new(&n.to_string()) };
    (0..3).map(one).collect()
}

#[test]
fn a_job_is_done_when_the_last_message_has_arrived_and_not_before() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut pair = pair(mode);
        pair.away.create(&pair.to.clone(), Settings::usual(mode));
        pair.send(some(mode));
        let (job, mut letters) = pair.move_all();
        assert_eq!((pair.job(job).state, pair.job(job).moved), (JobState::Running, 3), "{mode:?}");
        let last = letters.pop();
        let answers = pair.answers(letters);
        pair.hear(answers);
        pair.home.advance(60_000);
        assert_eq!((pair.job(job).state, pair.job(job).arrived), (JobState::Running, 2));
        let answers = pair.answers(last);
        assert_eq!(pair.away.of(&pair.to).counts.visible, 3);
        assert_eq!(pair.job(job).state, JobState::Running, "nobody has heard of the last");
        pair.hear(answers);
        let ended = pair.job(job);
        assert_eq!((ended.state, ended.arrived, ended.returned), (JobState::Done, 3, 0));
        assert_eq!(ended.ended_ms, Some(START_MS + 60_001));
        assert_eq!(pair.home.of(&pair.from).counts.redrive, None, "another can be begun");
    }
}

#[test]
fn no_job_of_a_queue_with_order_begins_while_what_another_moved_may_come_back() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut pair = pair(mode);
        pair.send(some(mode));
        let (_, letters) = pair.move_all();
        let mut answers = pair.answers(letters);
        let rest = answers.split_off(1);
        // One is back, and with it the job has failed; the others are on their way.
        pair.hear(answers);
        let again = Command::StartRedrive(StartRedrive {
            queue: pair.from.clone(),
            target: Some(pair.to.clone()),
            per_second: None,
            limit: None,
            filter: None,
            dry_run: false,
        });
        let keeps_order = mode == Mode::Fifo;
        let early = pair.home.apply(&again);
        assert_eq!(early == Reply::Refused(Refusal::Redriving), keeps_order, "{early:?}");
        pair.hear(rest);
        if keeps_order {
            assert!(matches!(pair.home.apply(&again), Reply::Redriving { .. }));
        }
    }
}

#[test]
fn what_finds_no_queue_on_the_other_shard_is_where_it_was_and_its_job_says_so() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut pair = pair(mode);
        pair.away.create(&pair.to.clone(), Settings::usual(mode));
        pair.send(some(mode));
        let before = pair.all();
        let (job, mut letters) = pair.move_all();
        let last = letters.pop();
        let mut answers = pair.answers(letters);
        let gone = Command::Delete { queue: pair.to.clone() };
        assert_eq!(pair.away.apply(&gone), Reply::Deleted);
        answers.extend(pair.answers(last));
        pair.hear(answers);
        let ended = pair.job(job);
        let told = (ended.state, ended.arrived, ended.returned);
        assert_eq!(told, (JobState::NoQueue, 2, 1), "{mode:?}");
        assert_eq!(pair.all(), before[2..], "it is what it was");
    }
}

#[test]
fn a_job_that_was_cancelled_stays_so_whatever_comes_back() {
    let mut pair = pair(Mode::Standard);
    pair.send(some(Mode::Standard));
    let (job, letters) = pair.move_all();
    let cancel = Command::CancelRedrive { queue: pair.from.clone(), job };
    assert_eq!(pair.home.apply(&cancel), Reply::RedriveEnded);
    let answers = pair.answers(letters);
    pair.hear(answers);
    assert_eq!((pair.job(job).state, pair.job(job).returned), (JobState::Cancelled, 3));
    assert_eq!(pair.all().len(), 3);
}

/// A group of two, of which the first is on its way.
fn with_first_away() -> (Pair, u64, Vec<Letter>) {
    let mut pair = pair(Mode::Fifo);
    pair.send(vec![grouped("g", "1"), grouped("g", "2"), grouped("h", "other")]);
    let (job, letters) = pair.move_some(Some(1));
    assert_eq!((letters.len(), pair.receive()), (1, vec!["other".to_owned()]));
    (pair, job, letters)
}

#[test]
fn nobody_gets_what_is_behind_a_message_that_may_come_back() {
    let (mut pair, _, letters) = with_first_away();
    pair.home.rig.machine = Queues::default();
    pair.home.rig.checkpoint();
    let answers = pair.answers(letters);
    assert_eq!(pair.receive(), [""; 0]);
    pair.hear(answers);
    assert_eq!(pair.receive(), ["1", "2"]);
}

#[test]
fn a_group_goes_on_when_what_was_before_has_arrived_elsewhere() {
    let (mut pair, job, letters) = with_first_away();
    pair.away.create(&pair.to.clone(), Settings::usual(Mode::Fifo));
    let answers = pair.answers(letters);
    // Whatever became of the job.
    let cancel = Command::CancelRedrive { queue: pair.from.clone(), job };
    assert_eq!(pair.home.apply(&cancel), Reply::RedriveEnded);
    assert_eq!(pair.receive(), [""; 0]);
    pair.hear(answers);
    assert_eq!(pair.receive(), ["2"]);
}

#[test]
fn a_group_goes_on_when_what_comes_back_is_too_old() {
    let (mut pair, _, letters) = with_first_away();
    let answers = pair.answers(letters);
    let settings = Settings { retention_ms: 1000, ..Settings::usual(Mode::Fifo) };
    let update = Update { queue: pair.from.clone(), version: 1, settings };
    pair.home.apply(&Command::Update(update));
    pair.home.advance(900);
    pair.send(vec![grouped("g", "3")]);
    pair.home.advance(900);
    pair.hear(answers);
    assert_eq!(pair.receive(), ["3"]);
}

#[test]
fn a_purge_forgets_what_was_on_its_way() {
    let (mut pair, _, letters) = with_first_away();
    let answers = pair.answers(letters);
    assert_eq!(pair.home.apply(&Command::Purge { queue: pair.from.clone() }), Reply::Purged);
    pair.send(vec![grouped("g", "3")]);
    assert_eq!(pair.receive(), ["3"]);
    pair.hear(answers);
    assert_eq!(pair.receive(), [""; 0], "3 is being worked on");
    pair.home.advance(30_000);
    assert_eq!(pair.receive(), ["1", "3"]);
}

#[test]
fn all_of_a_group_that_was_on_its_way_is_back_before_any_of_it_is_handed_out() {
    let mut pair = pair(Mode::Fifo);
    pair.send((0..4).map(|n| grouped("g", &n.to_string())).collect());
    let (_, letters) = pair.move_some(Some(3));
    let answers = pair.answers(letters);
    for answer in answers {
        assert_eq!(pair.receive(), [""; 0]);
        pair.hear(vec![answer]);
    }
    assert_eq!(pair.receive(), ["0", "1", "2", "3"]);
}

#[test]
fn what_comes_back_to_a_queue_that_was_deleted_is_kept_in_one_of_its_name() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut pair = pair(mode);
        pair.send(some(mode));
        let before = pair.all();
        let (_, letters) = pair.move_all();
        pair.delete();
        let answers = pair.answers(letters);
        pair.home.advance(5);
        pair.hear(answers);
        let described = pair.home.of(&pair.from);
        assert_eq!(described.definition.settings, Settings::usual(mode));
        let counts = described.counts;
        assert_eq!((counts.visible, counts.totals.sent, counts.redrive), (3, 3, None), "{mode:?}");
        // Its age begins anew, or what waited for long in the old one would be gone at once.
        assert_eq!(described.oldest_visible_ms, Some(START_MS + 6));
        let told = |peeked: &Peeked| (peeked.id, peeked.sent_ms, peeked.group.clone());
        let sorted = |all: &[Peeked]| {
            let mut told: Vec<_> = all.iter().map(told).collect();
            told.sort_by_key(|(id, ..)| id.sequence);
            told
        };
        assert_eq!(sorted(&pair.all()), sorted(&before));
        let first = pair.home.receive_from(&pair.from, 1).remove(0);
        let expected = if mode == Mode::Fifo { "0" } else { "2" };
        assert_eq!(text(&first), expected, "in its order, or by its priority");
    }
}

#[test]
fn what_comes_back_is_taken_by_a_queue_that_was_made_anew_even_of_the_other_mode() {
    for (was, is) in [(Mode::Standard, Mode::Fifo), (Mode::Fifo, Mode::Standard)] {
        let mut pair = pair(was);
        pair.send(some(was));
        let (job, letters) = pair.move_all();
        pair.delete();
        pair.home.create(&pair.from.clone(), Settings::usual(is));
        let answers = pair.answers(letters);
        pair.hear(answers);
        let described = pair.home.of(&pair.from);
        assert_eq!((described.definition.settings.mode, described.counts.visible), (is, 3));
        let number = described.definition.number;
        let remembered = crate::job(&pair.home.rig.rows, TENANT, number, job);
        assert_eq!(remembered, None, "the job was the old one's");
        let groups: Vec<_> = pair.all().into_iter().map(|peeked| peeked.group).collect();
        let expected = (is == Mode::Fifo).then(String::new);
        assert_eq!(groups, vec![expected; 3]);
    }
}

#[test]
fn what_has_arrived_is_nothing_to_a_queue_that_was_made_anew_or_is_gone() {
    for anew in [true, false] {
        let mut pair = pair(Mode::Standard);
        pair.away.create(&pair.to.clone(), Settings::usual(Mode::Standard));
        pair.send(some(Mode::Standard));
        let (_, letters) = pair.move_all();
        pair.delete();
        if anew {
            pair.home.create(&pair.from.clone(), Settings::usual(Mode::Standard));
        }
        let answers = pair.answers(letters);
        assert_eq!(answers.len(), 3);
        pair.hear(answers);
        assert_eq!(queue(&pair.home.rig.rows, TENANT, &pair.from).is_some(), anew);
        assert_eq!(pair.away.of(&pair.to).counts.visible, 3);
    }
}

#[test]
fn a_purge_takes_no_body_of_what_comes_back_while_it_goes_on() {
    let mut pair = pair(Mode::Standard);
    let queue = pair.from.clone();
    let mut bodies = Vec::new();
    // More than one step of a purge ends, and the one that is moved among the last.
    for n in 0..300_u32 {
        let body = pair.home.reserve_in(&queue, 300 << 10);
        let priority = u8::from(n != 299);
        pair.send(vec![with_body(NewMessage { priority, ..new("") }, &body)]);
        bodies.push(body);
    }
    let (_, letters) = pair.move_some(Some(1));
    assert_eq!(letters.len(), 1);
    let answers = pair.answers(letters);
    assert_eq!(pair.home.apply(&Command::Purge { queue: queue.clone() }), Reply::Purged);
    pair.hear(answers);
    pair.home.advance(1);
    let moved = bodies.remove(299);
    // Compared by their names: a difference of all would fill the screen.
    let asked: Vec<u64> = pair.home.asked().iter().map(|body| body.number).collect();
    assert_eq!(asked, bodies.iter().map(|body| body.number).collect::<Vec<_>>());
    let back = pair.home.receive_from(&queue, 1).remove(0);
    assert_eq!(ArchivedBody::of(&back.parcel), Some(moved));
    assert!(holds_body(&pair.home.rig.rows, TENANT, back.id.queue, back.sequence));
    let ack = Command::Ack(Ack { queue, receipts: vec![back.receipt] });
    pair.home.apply(&ack);
    assert_eq!(pair.home.asked().last(), Some(&moved));
    assert_eq!(pair.home.asked().len(), 300);
}

fn id() -> MessageId {
    MessageId { shard: 3, queue: 5, sequence: 300 }
}

fn story() -> Story {
    Story {
        queue: "s".into(),
        id: id(),
        receives: 1,
        first_failed_ms: 2,
        last_failed_ms: 3,
        reason: None,
        moved_ms: 4,
        group: Some("g".into()),
    }
}

#[test]
fn letters_have_their_bytes() {
    let parcel = Bytes::from_static(b"p");
    let from = MovedFrom {
        queue: "f".into(),
        number: 6,
        job: 7,
        sequence: 8,
        sent_ms: 9,
        visible_ms: 10,
        leases: 11,
        unseen: 12,
        first_received_ms: 13,
        first_failed_ms: 14,
        last_failed_ms: 15,
        reason: Some("r".into()),
        story: Some(story()),
    };
    let (queue, group) = ("t".to_owned(), Some("h".to_owned()));
    let moved = Moved { queue, id: id(), priority: 2, group, parcel: parcel.clone(), from };
    let dead = DeadLetter {
        queue: "d".into(),
        mode: Mode::Fifo,
        story: story(),
        sent_ms: 300,
        priority: 9,
        parcel,
    };
    let fanned = Fanned { queue: "q".into(), id: id(), message: grouped("g", "p") };
    let arrived = Arrived { queue: "q".into(), number: 300, job: 2, group: Some("g".into()) };
    let arrived_1 = Arrived { group: None, ..arrived.clone() };

    let id = [3, 5, 0xac, 2];
    let story = [&[1, b's'][..], &id, &[1, 2, 3, 0, 4, 1, 1, b'g']].concat();
    let here = [1, b'f', 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1, 1, b'r', 1];
    let here = [&[1, b't'][..], &id, &[2, 1, 1, b'h', 1, b'p'], &here, &story].concat();
    let goldens = [
        (Post::Dead(dead), [&[1, 2, 1, b'd', 1][..], &story, &[0xac, 2, 9, 1, b'p']].concat()),
        (Post::Moved(moved.clone()), [&[2, 2][..], &here].concat()),
        (
            Post::Fanned(fanned),
            [&[3, 1, 1, b'q'][..], &id, &[0, 0, 1, 1, b'g', 0, 1, b'p']].concat(),
        ),
        (Post::Returned(moved, JobState::NoQueue), [&[4, 1][..], &here, &[3]].concat()),
        (Post::Arrived(arrived), vec![5, 2, 1, b'q', 0xac, 2, 2, 1, 1, b'g']),
    ];
    for (post, golden) in goldens {
        assert_eq!(post.encode(), golden, "{post:?}");
        assert_eq!(Post::decode(&golden), Ok(post));
    }
    assert_eq!(Post::decode(&[5, 1, 1, b'q', 0xac, 2, 2]), Ok(Post::Arrived(arrived_1)));
    for unknown in [[1, 1], [1, 3], [2, 1], [4, 2], [5, 3], [6, 1]] {
        assert!(Post::decode(&unknown).is_err(), "{unknown:?}");
    }
}
