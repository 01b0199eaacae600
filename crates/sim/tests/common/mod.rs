//! What tests of broken machines share.

use kernel::Machine;
use sim::{Choice, Options, Parts, run};

/// Seeds within which a broken machine must be found.
const SEEDS: u64 = 60;

/// Some seed must fail, and say so in one of these words. Others may see it by what follows from it.
pub(crate) fn check_found(
    choice: Choice,
    machine: fn(Box<dyn Machine>) -> Box<dyn Machine>,
    words: &[&str],
) {
    check_found_within(SEEDS, choice, machine, words);
}

/// The same for what seldom comes about.
pub(crate) fn check_found_within(
    seeds: u64,
    choice: Choice,
    machine: fn(Box<dyn Machine>) -> Box<dyn Machine>,
    words: &[&str],
) {
    let parts = Parts { machine, ..Parts::default() };
    let options = Options { choice, steps: 600, parts };
    let mut other = None;
    for failure in (1..=seeds).filter_map(|seed| run(seed, &options).err()) {
        if words.iter().any(|word| failure.what.contains(word)) {
            return;
        }
        other = Some(failure);
    }
    panic!("found for another reason: {}", other.expect("no seed has found it"));
}
