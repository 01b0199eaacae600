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
