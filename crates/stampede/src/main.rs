//! The command line. `stampede --help` says what there is.

mod check;
mod config;
mod dump;
mod lines;
mod listen;
mod mistakes;
mod output;
mod queues;
mod remote;
mod serve;
mod show;
mod simulate;
mod streams;
mod topics;
mod values;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// The backend for the moment everyone arrives at once.
#[derive(Parser)]
#[command(version, max_term_width = 100, after_help = remote::EXIT_CODES)]
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
        #[arg(long, value_parser = values::number::<u16>(0..=u16::MAX.into()))]
        shard: Option<u16>,
        /// Only entries from this index on.
        #[arg(long, default_value_t = 0, value_parser = values::number::<u64>(0..=u64::MAX))]
        from: u64,
    },
    /// Run the simulator: one process, one seed, every fault.
    Sim(simulate::SimFlags),
    /// Queues of a server: list, create, show, update, delete, send, receive, peek, redrive, purge,
    /// tail.
    Queue(queues::QueueFlags),
    /// Streams of a server: list, create, append, read, groups, seek, delete.
    Stream(streams::StreamFlags),
    /// Topics of a server: list, create, subscribe, publish, delete.
    Topic(topics::TopicFlags),
    #[command(verbatim_doc_comment)]
    Work(work::WorkFlags),
}

fn main() -> ExitCode {
    let cli = match parsed() {
        Ok(cli) => cli,
        Err(error) => return mistakes::not_understood(&error, &Cli::command()),
    };
    let result = match cli.command {
        Command::Serve(flags) => {
            memory::keep_freed();
            serve::run(*flags)
        }
        Command::Check { data_dir } => check::run(&data_dir),
        Command::Dump { data_dir, shard, from } => dump::run(&data_dir, shard, from),
        Command::Sim(flags) => simulate::run(&flags),
        Command::Queue(flags) => queues::run(flags),
        Command::Stream(flags) => streams::run(flags),
        Command::Topic(flags) => topics::run(flags),
        Command::Work(flags) => work::run(flags),
    };
    match result {
        Ok(code) => code,
        // Whoever reads has had enough: `stampede queue tail jobs | head`.
        Err(error) if dump::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let (line, code) = told(&error);
            output::tell(line);
            code
        }
    }
}

/// What is said of an error that ends it, and the exit code.
fn told(error: &anyhow::Error) -> (String, ExitCode) {
    let code = if error.is::<remote::Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE };
    (format!("stampede: {}", in_one_line(error)), code)
}

fn parsed() -> Result<Cli, clap::Error> {
    let matches = mistakes::prepared(Cli::command()).try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

/// The error and its causes; a cause that is part of what was said already is not said again.
fn in_one_line(error: &anyhow::Error) -> String {
    if let Some(refused) = error.downcast_ref::<client::Error>() {
        let (place, told) = (error.to_string(), remote::told(refused));
        return if place == refused.to_string() { told } else { format!("{place}: {told}") };
    }
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
