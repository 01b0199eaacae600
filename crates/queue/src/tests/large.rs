//! Bodies in the archive: none is left that nobody has, and none goes while somebody has it.

use super::*;
use crate::parcel::{ArchivedBody, Body, Parcel};

const DEAD: &str = "dead";
const LARGE: u64 = 300 << 10;

impl Bench {
    pub(super) fn reserve_in(&mut self, queue: &str, bytes: u64) -> ArchivedBody {
        let reserve = ReserveBody { queue: queue.into(), sha256: [9; 32], bytes };
        match self.apply(&Command::ReserveBody(reserve)) {
            Reply::BodyReserved(body) => body,
            other => panic!("{other:?}"),
        }
    }

    fn reserve(&mut self) -> ArchivedBody {
        self.reserve_in(JOBS, LARGE)
    }

    /// Reserves and sends.
    fn send_large(&mut self, message: NewMessage) -> ArchivedBody {
        let body = self.reserve();
        self.send_all(vec![with_body(message, &body)]);
        body
    }

    /// What is to be deleted, in the order of asking.
    pub(super) fn asked(&self) -> Vec<ArchivedBody> {
        let body = |effect: kernel::machine::Effect| match QueueEffect::decode(&effect.payload) {
            Ok(QueueEffect::DeleteBody(body)) => body,
            Err(error) => panic!("{error}"),
        };
        self.rig.effects().into_iter().map(body).collect()
    }

    fn used_bytes(&self) -> i64 {
        self.rig.ground.usage()[&TENANT].bytes
    }
}

pub(super) fn with_body(message: NewMessage, body: &ArchivedBody) -> NewMessage {
    let parcel = Parcel::new(Body::Text(String::new())).encode_archived(body);
    NewMessage { parcel, ..message }
}

fn body_of(delivery: &Delivery) -> ArchivedBody {
    ArchivedBody::of(&delivery.parcel).expect("its body lies in the archive")
}

#[test]
fn reserved_body_is_sent_received_and_deleted_when_it_is_acked() {
    let mut bench = standard();
    let body = bench.reserve();
    assert_eq!(bench.used_bytes(), LARGE.cast_signed(), "it counts from the reservation on");
    bench.send_all(vec![with_body(new(""), &body)]);
    let held = bench.described().counts.bytes;
    assert!(held > LARGE, "{held}");
    assert_eq!(bench.used_bytes(), held.cast_signed(), "and once");
    let delivery = bench.receive(1).remove(0);
    assert_eq!(body_of(&delivery), body);
    bench.nack(delivery.receipt, Some(0));
    assert_eq!(bench.asked(), [], "it is still to be received");
    let delivery = bench.receive(1).remove(0);
    bench.ack(&[delivery.receipt]);
    assert_eq!(bench.asked(), [body]);
    assert_eq!(bench.used_bytes(), 0);
    let effect = bench.rig.effects()[0].number;
    for _ in 0..2 {
        assert_eq!(bench.apply(&Command::BodyDeleted { effect }), Reply::BodyGone);
        assert_eq!(bench.asked(), []);
    }
    bench.advance(2 * RESERVED_MS);
    assert_eq!(bench.asked(), [], "the reservation was used up");
}

#[test]
fn reservation_that_nobody_uses_ends_after_an_hour() {
    let mut bench = standard();
    let body = bench.reserve();
    bench.advance(RESERVED_MS - 1);
    assert_eq!(bench.asked(), []);
    bench.advance(1);
    assert_eq!(bench.asked(), [body]);
    assert_eq!(bench.used_bytes(), 0);
    let late = bench.send(vec![with_body(new(""), &body)]);
    assert_eq!(late[0], Err(SendRefusal::NotReserved));
    assert_eq!(bench.asked(), [body], "once");
}

#[test]
fn body_is_sent_once_to_its_own_queue_and_as_it_was_reserved() {
    let mut bench = standard();
    bench.create("other", Settings::usual(Mode::Standard));
    let elsewhere = bench.reserve_in("other", LARGE);
    let body = bench.reserve();
    let longer = ArchivedBody { bytes: LARGE + 1, ..body };
    let another = ArchivedBody { sha256: [8; 32], ..body };
    let unknown = ArchivedBody { number: body.number + 1000, ..body };
    let wrong = [elsewhere, longer, another, unknown].map(|body| with_body(new(""), &body));
    let refused = Err(SendRefusal::NotReserved);
    assert_eq!(bench.send(wrong.to_vec()), [refused; 4]);
    assert!(bench.send(vec![with_body(new(""), &body)])[0].is_ok());
    assert_eq!(bench.send(vec![with_body(new(""), &body)]), [refused]);
    assert_eq!(bench.asked(), []);
    let gone = ReserveBody { queue: "none".into(), sha256: [9; 32], bytes: 1 };
    let refused = bench.apply(&Command::ReserveBody(gone));
    assert_eq!(refused, Reply::Refused(Refusal::NoQueue));
}

#[test]
fn body_of_a_message_that_is_not_taken_is_given_up() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.max_bytes = Some(LARGE * 3 / 2);
    let mut bench = bench(settings);
    let keyed = NewMessage { dedup: Some([1; 16]), ..new("") };
    let kept = bench.send_large(keyed.clone());
    let mut given_up = Vec::new();
    for (message, outcome) in
        [(keyed, "duplicate"), (new(""), "no room"), (grouped("g", ""), "a group")]
    {
        let body = bench.reserve();
        let sent = bench.send(vec![with_body(message, &body)])[0];
        assert!(sent.is_err() || sent.is_ok_and(|sent| sent.duplicate), "{outcome}: {sent:?}");
        given_up.push(body);
        assert_eq!(bench.asked(), given_up, "{outcome}");
    }
    let counts = bench.described().counts;
    assert_eq!((counts.visible, bench.used_bytes()), (1, counts.bytes.cast_signed()));
    assert_eq!(body_of(&bench.receive(1)[0]), kept);
    bench.advance(2 * RESERVED_MS);
    assert_eq!(bench.asked(), given_up);
}

#[test]
fn dead_letter_keeps_its_body_and_so_does_its_redrive() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut settings = Settings::usual(mode);
        settings.max_receive_count = Some(1);
        settings.dead_letter_queue = Some(DEAD.into());
        let mut bench = bench(settings);
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        let body = bench.send_large(NewMessage { group, ..new("") });
        let first = bench.receive(1).remove(0);
        bench.nack(first.receipt, Some(0));
        assert_eq!(bench.described().counts.bytes, 0);
        let peeked = peek_all(
            &bench.rig.rows,
            TENANT,
            queue(&bench.rig.rows, TENANT, DEAD).expect("made").definition.number,
            PeekState::Visible,
        );
        assert_eq!(ArchivedBody::of(&peeked[0].parcel), Some(body));
        // What it left behind does not take the body with it.
        bench.apply(&Command::Purge { queue: JOBS.into() });
        bench.advance(1);
        let asked = StartRedrive {
            queue: DEAD.into(),
            target: None,
            per_second: None,
            limit: None,
            filter: None,
            dry_run: false,
        };
        assert!(matches!(bench.apply(&Command::StartRedrive(asked)), Reply::Redriving { .. }));
        bench.advance(1);
        bench.apply(&Command::Delete { queue: DEAD.into() });
        bench.advance(1);
        assert_eq!(bench.asked(), [], "{mode:?}");
        let again = bench.receive(1).remove(0);
        assert_eq!(body_of(&again), body);
        bench.ack(&[again.receipt]);
        assert_eq!(bench.asked(), [body], "{mode:?}");
        assert_eq!(bench.used_bytes(), 0);
    }
}

#[test]
fn body_of_a_message_that_is_too_old_is_deleted_wherever_it_is() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let settings = Settings { retention_ms: 60_000, ..Settings::usual(mode) };
        let mut bench = bench(settings);
        let group = (mode == Mode::Fifo).then(|| "g".to_owned());
        let message = || NewMessage { group: group.clone(), ..new("") };
        let mut bodies = vec![bench.send_large(message()), bench.send_large(message())];
        bench.receive(1);
        bench.advance(29_000);
        bodies.push(bench.send_large(message()));
        bench.advance(1_000_000);
        let mut asked = bench.asked();
        asked.sort();
        assert_eq!(asked, bodies, "{mode:?}");
        assert_eq!((bench.described().counts.totals.expired, bench.used_bytes()), (3, 0));
    }
}

#[test]
fn purge_and_deletion_delete_bodies_step_by_step_and_leave_what_comes_later() {
    for delete in [false, true] {
        let mut bench = standard();
        let bodies: Vec<_> = (0..600).map(|_| bench.send_large(new(""))).collect();
        bench.receive(10);
        let reserved = bench.reserve();
        let (queue, young) = (JOBS.to_owned(), new("young"));
        if delete {
            bench.apply(&Command::Delete { queue });
            assert_eq!(bench.asked(), []);
            bench.create(JOBS, Settings::usual(Mode::Standard));
        } else {
            bench.apply(&Command::Purge { queue });
        }
        let before = bench.asked().len();
        let later = bench.reserve();
        let step = bench.asked().len() - before;
        assert!((1..=256).contains(&step), "{step} in one entry");
        bench.send_all(vec![with_body(young, &later)]);
        bench.advance(1);
        assert_eq!(bench.asked(), bodies);
        let sent = bench.send(vec![with_body(new(""), &reserved)]);
        // A queue of the same name is another queue.
        assert_eq!(sent[0].is_err(), delete);
        bench.advance(RESERVED_MS);
        let ended = if delete { vec![reserved] } else { vec![] };
        assert_eq!(bench.asked()[600..], ended);
        assert_eq!(body_of(&bench.receive(1)[0]), later);
    }
}

#[test]
fn one_receive_has_a_few_large_bodies_and_always_one() {
    let mut bench = standard();
    for mib in [1, 1, 1, 3, 9, 1] {
        let body = bench.reserve_in(JOBS, mib << 20);
        bench.send_all(vec![with_body(new(""), &body)]);
    }
    let counts: Vec<usize> = (0..4).map(|_| bench.receive(10).len()).collect();
    assert_eq!(counts, [3, 1, 1, 1]);
}

#[test]
fn topic_takes_no_body_of_the_archive() {
    let mut bench = standard();
    bench.apply(&Command::CreateTopic { topic: "news".into() });
    let body = bench.reserve();
    let publish = Publish { topic: "news".into(), messages: vec![with_body(new(""), &body)] };
    let refused = bench.apply(&Command::Publish(publish));
    assert_eq!(refused, Reply::Refused(Refusal::FanOut));
}

#[test]
fn golden_bytes() {
    let body = ArchivedBody { shard: 3, number: 0x0102, sha256: [0xab; 32], bytes: 300_000 };
    let parcel = Parcel::new(Body::Json(String::new()));
    let rest = [0; 18].into_iter().chain([1, 0]);
    let mut expected = vec![2, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2];
    expected.extend([0xab; 32]);
    expected.extend([0, 0, 0, 0, 0, 4, 0x93, 0xe0]);
    expected.extend(rest.clone());
    assert_eq!(parcel.encode_archived(&body), expected);
    assert_eq!(ArchivedBody::of(&expected), Some(body));
    assert_eq!(Parcel::decode(&expected), parcel);
    // As it was before there were others.
    let plain: Vec<u8> = [1].into_iter().chain(rest).collect();
    assert_eq!(parcel.encode(), plain);
    assert_eq!((Parcel::decode(&plain), ArchivedBody::of(&plain)), (parcel, None));
    assert_eq!(ArchivedBody::of(&expected[..40]), None);

    let postcard_body = |out: &mut Vec<u8>| {
        out.extend([3, 0x82, 2]);
        out.extend([0xab; 32]);
        out.extend([0xe0, 0xa7, 0x12]);
    };
    let mut effect = vec![1, 0];
    postcard_body(&mut effect);
    assert_eq!(QueueEffect::DeleteBody(body).encode(), effect);
    let mut reply = vec![1, 13];
    postcard_body(&mut reply);
    assert_eq!(Reply::BodyReserved(body).encode(), reply);
    assert_eq!(Reply::BodyGone.encode(), [1, 14][..]);
    let reserve = ReserveBody { queue: "q".into(), sha256: [0xab; 32], bytes: 5 };
    let mut command = vec![17, 1, 1, b'q'];
    command.extend([0xab; 32]);
    command.push(5);
    assert_eq!(Command::ReserveBody(reserve.clone()).encode(), command);
    assert_eq!(Command::decode(&command), Ok(Command::ReserveBody(reserve)));
    assert_eq!(Command::BodyDeleted { effect: 7 }.encode(), [18, 1, 7][..]);
    assert_eq!(Command::decode(&[18, 1, 7]), Ok(Command::BodyDeleted { effect: 7 }));
}

#[test]
fn settings_with_large_bodies_are_as_they_always_lay_in_rows() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.large_bodies = true;
    settings.max_body_bytes = LARGE_BODY_BYTES_MAX;
    let command = Command::Create(Create { queue: "q".into(), settings });
    let version_1 = "010101710080e0e5a401b0ea01000000000000e0a7120000c0a907008080800800010000";
    let hex: String = command.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, version_1.replacen("0101", "0102", 1) + "0000");
}

#[test]
fn counts_have_their_bytes_and_bodies_are_counted() {
    let counts = Counts { visible: 1, archived: 300, ..Counts::default() };
    let counts = Counts { turns_of_new: 3, holder: 7, ..counts };
    let golden = [&[5, 1][..], &[0; 33], &[0xac, 2, 0, 0, 0, 0, 0, 0, 3, 7]].concat();
    assert_eq!(counts.encode(), golden);
    assert_eq!(Counts::decode(&golden), counts);
    let counts = Counts { holder: 0, ..counts };
    let before_holders = [&[4, 1][..], &[0; 33], &[0xac, 2, 0, 0, 0, 0, 0, 0, 3]].concat();
    assert_eq!(Counts::decode(&before_holders), counts);
    let counts = Counts { turns_of_new: 0, ..counts };
    let before_turns = [&[3, 1][..], &[0; 33], &[0xac, 2, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(Counts::decode(&before_turns), counts);
    let before_ages = [&[2, 1][..], &[0; 33], &[0xac, 2, 0, 0]].concat();
    assert_eq!(Counts::decode(&before_ages), counts);

    let mut bench = standard();
    bench.send_large(new(""));
    bench.send_large(new(""));
    bench.send_all(vec![new("small")]);
    let got = bench.receive(3);
    assert_eq!(bench.described().counts.archived, 2);
    bench.ack(&[got[0].receipt, got[2].receipt]);
    assert_eq!(bench.described().counts.archived, 1);
    // Those of a purge that is under way are the queue's no more.
    bench.apply(&Command::Purge { queue: JOBS.into() });
    assert_eq!(bench.described().counts.archived, 0);
    bench.rig.machine = Queues::default();
    bench.send_large(new(""));
    assert_eq!(bench.described().counts.archived, 1);
}

#[test]
#[should_panic = "counts of a version that this binary cannot read"]
fn counts_of_another_version_are_not_guessed_at() {
    Counts::decode(&[&[1, 1][..], &[0; 33]].concat());
}
