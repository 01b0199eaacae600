//! The command line of the simulator, without the parsing of arguments.

use std::io::{self, Write};

use parking_lot::Mutex;

use crate::explore::{explore, run};
use crate::options::{Choice, Options};

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// One seed only; else `runs` of them.
    pub seed: Option<u64>,
    /// The first of many.
    pub first_seed: u64,
    /// How many.
    pub runs: u64,
    /// Which machines.
    pub machine: Choice,
    /// Steps with faults in each run.
    pub steps: u64,
}

impl Default for Arguments {
    fn default() -> Arguments {
        let Options { choice, steps, .. } = Options::default();
        Arguments { seed: None, first_seed: 1, runs: 1000, machine: choice, steps }
    }
}

/// Runs what was asked for, writes what came of it, and returns the exit code.
///
/// # Errors
/// When `out` cannot be written to.
pub fn cli(arguments: &Arguments, out: &mut (dyn Write + Send)) -> io::Result<i32> {
    let options =
        Options { choice: arguments.machine, steps: arguments.steps, ..Options::default() };
    if let Some(seed) = arguments.seed {
        return match run(seed, &options) {
            Ok(report) => writeln!(out, "seed {seed}: {report}\nseed {seed} held").map(|()| 0),
            Err(failure) => writeln!(out, "{failure}").map(|()| 1),
        };
    }
    let shared = Mutex::new(&mut *out);
    let every = (arguments.runs / 10).max(1);
    let summary = explore(arguments.runs, arguments.first_seed, &options, &|done| {
        if done.is_multiple_of(every) {
            // Progress that cannot be shown is no reason to stop.
            let _ = writeln!(shared.lock(), "{done} of {} runs", arguments.runs);
        }
    });
    for failure in &summary.failures {
        writeln!(out, "{failure}\n")?;
    }
    writeln!(out, "{}", summary.report)?;
    if summary.failures.is_empty() {
        writeln!(out, "all {} seeds held", arguments.runs)?;
        return Ok(0);
    }
    let seeds: Vec<String> = summary.failures.iter().map(|one| one.seed.to_string()).collect();
    writeln!(out, "NOT all seeds held; these did not: {}", seeds.join(", "))?;
    Ok(1)
}
