//! What dead letters tell.

use super::*;

#[test]
fn what_a_consumer_said_of_a_message_outlives_a_lease_that_ends() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.max_receive_count = Some(2);
    settings.dead_letter_queue = Some("dead".into());
    let mut bench = bench(settings);
    bench.send_all(vec![new("refused"), new("forgotten")]);
    let refused = bench.receive(1).remove(0);
    bench.nack(refused.receipt, Some(0));
    for _ in 0..2 {
        bench.receive(10);
        bench.advance(30_000);
    }
    let reasons = bench
        .receive_from("dead", 10)
        .into_iter()
        .map(|dead| (text(&dead), dead.story.expect("it died").reason.expect("it had one")));
    let reasons: std::collections::BTreeMap<_, _> = reasons.collect();
    assert_eq!((&*reasons["refused"], &*reasons["forgotten"]), ("boom", "the lease ended"));
}

#[test]
fn dead_letter_keeps_its_priority_and_tells_its_group_where_there_are_none() {
    let dying = |mode| {
        let mut settings = Settings::usual(mode);
        settings.max_receive_count = Some(1);
        settings.dead_letter_queue = Some("dead".into());
        let mut bench = bench(settings);
        bench.create("dead", Settings::usual(Mode::Standard));
        bench
    };
    let mut ranked = dying(Mode::Standard);
    ranked.send_all(vec![new("low"), NewMessage { priority: 9, ..new("high") }]);
    ranked.receive(10);
    ranked.advance(30_000);
    assert_eq!(texts(&ranked.receive_from("dead", 10)), ["high", "low"]);

    let mut ordered = dying(Mode::Fifo);
    ordered.send_all(vec![grouped("g", "1"), grouped("g", "2")]);
    ordered.receive(10);
    ordered.advance(30_000);
    ordered.advance(1);
    let dead = ordered.receive_from("dead", 1).remove(0);
    let told = dead.story.and_then(|story| story.group);
    assert_eq!((dead.group, told.as_deref()), (None, Some("g")));
}

#[test]
fn what_dies_again_tells_where_it_died_first_and_what_was_said_last() {
    let mut settings = Settings::usual(Mode::Standard);
    settings.max_receive_count = Some(1);
    settings.dead_letter_queue = Some("dead".into());
    let mut bench = bench(settings.clone());
    settings.dead_letter_queue = Some("deader".into());
    bench.create("dead", settings);
    bench.send_all(vec![new("a")]);
    let first = bench.receive(1).remove(0);
    bench.nack(first.receipt, None);
    bench.advance(5000);
    let again = bench.receive_from("dead", 1).remove(0);
    let nack = Nack {
        queue: "dead".into(),
        receipts: vec![again.receipt],
        delay_ms: None,
        reason: Some("worse".into()),
    };
    assert_eq!(bench.settled(&Command::Nack(nack)), [Settled::Done]);
    let story = bench.receive_from("deader", 1).remove(0).story.expect("it died twice");
    assert_eq!((&*story.queue, story.id, story.receives), (JOBS, first.id, 1));
    assert_eq!(story.reason.as_deref(), Some("worse"));
    let times = (story.first_failed_ms, story.last_failed_ms, story.moved_ms);
    assert_eq!(times, (START_MS, START_MS + 5000, START_MS + 5000));
}
