//! The command line. `stampede --help` says what there is.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

mod check;
mod config;
mod dump;
mod serve;
mod simulate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The backend for the moment everyone arrives at once.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the API from a data folder.
    Serve(Box<config::ServeFlags>),
    /// Read a data folder, logs and rows, and say whether it is sound.
    ///
    /// Logs are only read. Rows are opened as a server opens them, which may remove files that a
    /// crash left half-written; rows of a running server are not looked at.
    Check {
        /// The data folder.
        data_dir: PathBuf,
    },
    /// Print the entries of a data folder's logs as JSON lines. Writes nothing.
    Dump {
        /// The data folder.
        data_dir: PathBuf,
        /// Only this shard.
        #[arg(long)]
        shard: Option<u16>,
        /// Only entries from this index on.
        #[arg(long, default_value_t = 0)]
        from: u64,
    },
    /// Run the simulator: one process, one seed, every fault.
    Sim(simulate::SimFlags),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(flags) => {
            memory::keep_freed();
            serve::run(*flags)
        }
        Command::Check { data_dir } => check::run(&data_dir),
        Command::Dump { data_dir, shard, from } => dump::run(&data_dir, shard, from),
        Command::Sim(flags) => simulate::run(&flags),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("stampede: {}", in_one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes; a cause that is part of what was said already is not said again.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}
