//! A few seeds of every machine; `stampede sim --runs N` runs many.

use sim::{Choice, Options, explore, run};

fn check(choice: Choice, runs: u64) {
    let options = Options { choice, steps: 600, ..Options::default() };
    let summary = explore(runs, 1, &options, &|_| {});
    if let Some(failure) = summary.failures.first() {
        panic!("{failure}");
    }
    assert_eq!(summary.report.runs, runs);
    assert!(summary.report.faults_count() > runs, "{}", summary.report);
}

#[test]
fn recents_are_as_their_model() {
    check(Choice::Recents, 16);
}

#[test]
fn the_kernel_keeps_its_promises_to_the_probe() {
    check(Choice::Probe, 16);
}

#[test]
fn tenants_are_as_their_model() {
    check(Choice::Tenants, 12);
}

#[test]
fn queues_are_as_their_model() {
    check(Choice::Queue, 16);
}

/// Seeds in which a model has been stricter than its machine has to be.
#[test]
fn queues_are_as_their_model_where_it_was_too_strict() {
    let options = Options { choice: Choice::Queue, ..Options::default() };
    // A job takes the last message of a group in the moment in which others arrive; it comes to a group
    // whose first message is perhaps too old; letters with a group of theirs come to one in order; a
    // dead letter comes in the moment in which delays are over, and before those; a job does not find what
    // is delayed in order; what comes after its step is what says whether a job that is full is done.
    for seed in [5690, 6765, 263, 171, 1241, 50203, 50914] {
        if let Err(failure) = run(seed, &options) {
            panic!("{failure}");
        }
    }
    if let Err(failure) = run(1802, &Options::default()) {
        panic!("{failure}");
    }
}

#[test]
fn streams_are_as_their_model() {
    check(Choice::Streams, 16);
}

#[test]
fn machines_share_a_shard() {
    check(Choice::All, 16);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let options = Options { steps: 400, ..Options::default() };
    for seed in 100..108 {
        let first = run(seed, &options).unwrap();
        let second = run(seed, &options).unwrap();
        assert_eq!(first, second, "seed {seed}");
    }
}
