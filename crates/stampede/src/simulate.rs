//! `stampede sim`.

use std::process::ExitCode;

use clap::Args;

#[derive(Args)]
pub(crate) struct SimFlags {
    /// The seed to run, or the first of several [default: 1]
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which machine to put under test: recents, tenants, probe or all
    #[arg(long, default_value = "all")]
    machine: String,
    /// How many seeds to run
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Steps of each run
    #[arg(long)]
    steps: Option<u64>,
}

pub(crate) fn run(flags: &SimFlags) -> anyhow::Result<ExitCode> {
    let _ = (flags.seed, &flags.machine, flags.runs, flags.steps);
    anyhow::bail!("the simulator is not built in yet")
}
