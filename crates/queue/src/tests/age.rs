//! Queues that take nothing while their consumers are too far behind.

use super::*;
use crate::state::Queue;

const MAX_MS: u64 = 60_000;

fn bounded(mode: Mode) -> Bench {
    bench(Settings { max_age_ms: Some(MAX_MS), ..Settings::usual(mode) })
}

fn one(mode: Mode, text: &str) -> NewMessage {
    if mode == Mode::Fifo { grouped("g", text) } else { new(text) }
}

#[test]
fn nothing_is_taken_while_the_oldest_message_has_waited_for_too_long() {
    for mode in [Mode::Standard, Mode::Fifo] {
        let mut bench = bounded(mode);
        bench.send_all(vec![one(mode, "a")]);
        bench.advance(MAX_MS);
        bench.send_all(vec![one(mode, "b")]);
        bench.advance(1);
        let refused = bench.send(vec![one(mode, "c"), one(mode, "d")]);
        assert_eq!(refused, [Err(SendRefusal::Age), Err(SendRefusal::Age)]);
        let oldest = bench.receive(1).remove(0);
        assert_eq!(text(&oldest), "a");
        bench.ack(&[oldest.receipt]);
        bench.send_all(vec![one(mode, "e")]);
    }
}

#[test]
fn what_cannot_be_received_is_not_what_consumers_are_behind_with() {
    let mut bench = bounded(Mode::Standard);
    bench.send_all(vec![NewMessage { delay_ms: Some(10 * MAX_MS), ..new("later") }, new("now")]);
    let settings = bench.described().definition.settings;
    assert_eq!(settings.max_age_ms, Some(MAX_MS));
    let held = bench.receive(1).remove(0);
    assert_eq!(bench.extend(held.receipt, 10 * MAX_MS), [Settled::Done]);
    bench.advance(2 * MAX_MS);
    bench.send_all(vec![new("more")]);
}

#[test]
fn a_message_that_was_sent_before_is_a_duplicate_however_far_behind_consumers_are() {
    let mut bench = bounded(Mode::Standard);
    let keyed = NewMessage { dedup: Some([1; 16]), ..new("a") };
    bench.send_all(vec![keyed.clone()]);
    bench.advance(2 * MAX_MS);
    assert_eq!(bench.send(vec![new("b")]), [Err(SendRefusal::Age)]);
    assert!(bench.send(vec![keyed])[0].is_ok_and(|sent| sent.duplicate));
}

/// The usual settings, as they were before there were bounds of publishing.
const USUAL_1: &str = "0080e0e5a401b0ea01000000000000e0a7120000c0a9070080801000000000";

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(pair).collect()
}

fn row_of(settings: Settings) -> Queue {
    let (number, version, secret) = (5, 2, [7; 16]);
    Queue { number, version, secret, created_ms: 300, updated_ms: 1, settings }
}

#[test]
fn settings_have_their_bytes_and_those_of_version_1_are_read() {
    let usual = Settings::usual(Mode::Standard);
    let (max_publish_per_second, max_age_ms) = (Some(300), Some(1000));
    let bounded = Settings { max_publish_per_second, max_age_ms, ..usual.clone() };
    let create = |settings| Command::Create(Create { queue: "q".into(), settings });
    let update = |settings| Command::Update(Update { queue: "q".into(), version: 2, settings });
    let row = |version: &str, rest: &str| {
        bytes(&format!("{version}0502{}ac0201{USUAL_1}{rest}", "07".repeat(16)))
    };
    for (settings, rest) in [(usual.clone(), "0000"), (bounded, "01ac0201e807")] {
        let commands =
            [("01020171", create(settings.clone())), ("0202017102", update(settings.clone()))];
        for (begin, command) in commands {
            let golden = bytes(&format!("{begin}{USUAL_1}{rest}"));
            assert_eq!(command.encode(), golden);
            assert_eq!(Command::decode(&golden), Ok(command));
        }
        assert_eq!(row_of(settings.clone()).encode(), row("02", rest));
        assert_eq!(Queue::decode(&row("02", rest)), row_of(settings));
    }
    let old = |begin: &str| Command::decode(&bytes(&format!("{begin}{USUAL_1}")));
    assert_eq!(old("01010171"), Ok(create(usual.clone())));
    assert_eq!(old("0201017102"), Ok(update(usual.clone())));
    assert_eq!(Queue::decode(&row("01", "")), row_of(usual));
}
