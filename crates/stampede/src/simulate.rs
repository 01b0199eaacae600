//! `stampede sim`.

use std::process::ExitCode;

use clap::Args;
use sim::{Arguments, Choice};

use crate::values::number;

#[derive(Args)]
pub(crate) struct SimFlags {
    /// The seed to run; with --runs, the first of them
    #[arg(long, value_parser = number::<u64>(0..=u64::MAX))]
    seed: Option<u64>,
    /// The machine under test: recents, probe, tenants, queue, streams, or all in turn
    #[arg(long, default_value = "all")]
    machine: Choice,
    /// How many seeds to run [default: 1 with --seed, 1000 without]
    #[arg(long, value_parser = number::<u64>(1..=u64::MAX))]
    runs: Option<u64>,
    /// Steps with faults in each run
    #[arg(long, default_value_t = Arguments::default().steps,
          value_parser = number::<u64>(0..=u64::MAX))]
    steps: u64,
}

pub(crate) fn run(flags: &SimFlags) -> anyhow::Result<ExitCode> {
    let &SimFlags { seed, machine, runs, steps } = flags;
    let defaults = Arguments::default();
    let arguments = Arguments {
        seed: if runs.is_none() { seed } else { None },
        first_seed: seed.unwrap_or(defaults.first_seed),
        runs: runs.unwrap_or(defaults.runs),
        machine,
        steps,
    };
    let code = sim::cli(&arguments, &mut std::io::stdout())?;
    Ok(if code == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
