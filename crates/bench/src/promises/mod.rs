//! What queues promise under load, each measured on the real server.
//!
//! | module | what it holds |
//! |---|---|
//! | `backlog` | ten million messages that wait: throughput and memory |
//! | `waiters` | ten thousand long polls that wait: what they cost, how fast they are woken |
//! | `neighbour` | one tenant publishes as fast as it can: what another feels of it |
//! | `soak` | half an hour at half of what is possible: everything stays as it was |
//! | `flow` | publishing and consuming side by side, as fast as it goes or at a rate |
//! | `due` | messages that are published when they are due |

mod backlog;
mod due;
mod flow;
mod neighbour;
mod soak;
mod waiters;

use anyhow::{Result, ensure};
use clap::Args;

use crate::Part;

const PARTS: &[Part] = &[
    ("waiters", waiters::run),
    ("neighbour", neighbour::run),
    ("backlog", backlog::run),
    ("soak", soak::run),
];

/// What the command line says.
#[derive(Args)]
pub(crate) struct PromisesArgs {
    #[command(flatten)]
    common: crate::Common,
    /// Only these parts, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Connections that publish, and as many that receive.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

pub(crate) fn run(args: &PromisesArgs) -> Result<()> {
    ensure!(args.connections > 0, "one connection at least");
    let setup = args.common.setup(args.connections, 0);
    crate::run_parts("queue-promises", &setup, PARTS, &args.only)
}
