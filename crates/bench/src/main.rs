//! Side-by-side measurements: every figure is taken in the same run as the floor or the peer
//! that it is compared to.
//!
//! | module | what it holds |
//! |---|---|
//! | `append` | durable commands against bare writes and syncs of the same bytes |
//! | `replay`, `open` | reopening: commands a second, and seconds for a 1 GiB log after kill -9 |
//! | `checkpoint` | latency while rows move to the store, against latency without |
//! | `timers`, `fire` | memory of pending timers; a million that fire in one second |
//! | `http` | requests a second, against `/healthz` of the same server |
//! | `queue` | durable queues: ours, and the servers that people use for this |
//! | `promises` | what queues promise under load: backlog, waiters, neighbours, half an hour |
//! | `kill9` | the real server, killed again and again |
//! | `engine`, `machines`, `disk`, `filler` | a shard run as the node runs it, but watched |
//! | `load`, `http1`, `server` | the load generator, a small client, the server under test |
//! | `table`, `svg`, `stats`, `proc` | what is shown, and processes |
//!
//! What each line means is written in `docs/benchmarks.md`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people to read")]

mod append;
mod checkpoint;
mod disk;
mod engine;
mod filler;
mod fire;
mod history;
mod http;
mod http1;
mod kill9;
mod load;
mod machines;
mod open;
mod proc;
mod promises;
mod queue;
mod replay;
mod server;
mod stats;
mod svg;
mod table;
mod timers;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::proc::Setup;
use crate::table::Line;

#[derive(Parser)]
#[command(name = "bench", about = "Side-by-side measurements")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the kernel's promises and writes a table, JSON and a chart.
    Kernel(KernelArgs),
    /// Measures durable queues, ours and others', and writes a table, JSON and a chart.
    Queue(queue::QueueArgs),
    /// Measures what queues promise under load, and writes a table, JSON and a chart.
    QueuePromises(promises::PromisesArgs),
    /// Kills the real server again and again, and looks for what was lost.
    Kill9(Kill9Args),
    /// A part that must run in a process of its own. Not for people.
    #[command(hide = true)]
    Child {
        /// Which.
        role: String,
        /// What it needs to know, as JSON.
        args: String,
    },
}

#[derive(Args)]
struct Common {
    /// Small sizes: shows that everything runs, measures nothing.
    #[arg(long)]
    smoke: bool,
    /// Where results go; data of the runs lies in a folder of it meanwhile.
    #[arg(long, default_value = "bench-out")]
    out: PathBuf,
    /// The server to be tested; built with cargo if not given.
    #[arg(long)]
    server: Option<PathBuf>,
}

#[derive(Args)]
struct KernelArgs {
    #[command(flatten)]
    common: Common,
    /// Only these parts, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Connections of the load generator.
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// Client tasks of the append part.
    #[arg(long, default_value_t = 1024)]
    clients: usize,
}

#[derive(Args)]
struct Kill9Args {
    #[command(flatten)]
    common: Common,
    /// How often it is killed.
    #[arg(long)]
    rounds: Option<u32>,
    /// Connections that write.
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

impl Common {
    fn setup(&self, connections: usize, clients: usize) -> Setup {
        let Common { smoke, out, server } = self;
        Setup { smoke: *smoke, out: out.clone(), server: server.clone(), connections, clients }
    }
}

pub(crate) type Part = (&'static str, fn(&Setup) -> Result<Vec<Line>>);

const PARTS: &[Part] = &[
    ("append", append::run),
    ("replay", replay::run),
    ("open", open::run),
    ("checkpoint", checkpoint::run),
    ("timers", timers::run),
    ("fire", fire::run),
    ("http", http::run),
];

/// Runs all parts, or only some, and shows what came out under a name.
fn run_parts(name: &str, setup: &Setup, parts: &[Part], only: &[String]) -> Result<()> {
    for wanted in only {
        if !parts.iter().any(|(part, _)| part == wanted) {
            let names: Vec<&str> = parts.iter().map(|(part, _)| *part).collect();
            bail!("there is no part {wanted}; there are {}", names.join(", "));
        }
    }
    std::fs::create_dir_all(&setup.out)
        .with_context(|| format!("cannot make {}", setup.out.display()))?;
    let load_before = proc::load_average()?;
    let mut lines = Vec::new();
    for (part, run) in parts {
        if only.is_empty() || only.iter().any(|only| only == part) {
            eprintln!("{part} …");
            lines.extend(run(setup).with_context(|| format!("in part {part}"))?);
        }
    }
    table::conclude(setup, name, &lines, load_before)
}

fn child(role: &str, args: &str) -> Result<()> {
    match role {
        "fill" => filler::child(args),
        "open" => open::child(args),
        "served" => open::served_child(args),
        "checkpoint" => checkpoint::child(args),
        "timers" => timers::child(args),
        "fire" => fire::child(args),
        _ => bail!("there is no child {role}"),
    }
}

fn main() -> ExitCode {
    // As the server does.
    memory::keep_freed();
    let done = match Cli::parse().command {
        Command::Kernel(args) => {
            let setup = args.common.setup(args.connections, args.clients);
            run_parts("kernel", &setup, PARTS, &args.only)
        }
        Command::Queue(args) => queue::run(&args),
        Command::QueuePromises(args) => promises::run(&args),
        Command::Kill9(args) => kill9::run(&args.common.setup(args.connections, 0), args.rounds),
        Command::Child { role, args } => child(&role, &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
