//! The command line. `stampede --help` says what there is.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

mod check;
mod config;
mod dump;
mod listen;
mod queues;
mod remote;
mod serve;
mod show;
mod simulate;
mod streams;
mod topics;
mod work;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

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
        #[arg(long)]
        shard: Option<u16>,
        /// Only entries from this index on.
        #[arg(long, default_value_t = 0)]
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
        Err(error) => return not_understood(&error),
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
            eprintln!("stampede: {}", in_one_line(&error));
            if error.is::<remote::Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn parsed() -> Result<Cli, clap::Error> {
    let matches = without_empty_variables(Cli::command()).try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

/// Where what is usual would do harm in silence: data in a folder that is thrown away, no TLS.
const NEVER_EMPTY: [&str; 4] =
    ["STAMPEDE_DATA", "STAMPEDE_CONFIG", "STAMPEDE_TLS_CERT", "STAMPEDE_TLS_KEY"];

/// A variable that is empty counts as not set: that is what `STAMPEDE_KEY= stampede …` means, and a
/// compose file whose `${STAMPEDE_KEY}` is nothing. Some must not be.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let may_be = |name: &OsStr| !NEVER_EMPTY.iter().any(|never| name == *never);
    let is_empty = |arg: &Arg| {
        let name = arg.get_env().filter(|name| may_be(name));
        name.and_then(std::env::var_os).is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(without_empty_variables)
}

/// Help and the version as they are; a mistake in one line.
fn not_understood(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nobody reads it, perhaps.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what).to_owned();
    let what = empty_variable(error)
        .map_or(what, |variable| format!("{variable} is empty: give it a value, or do not set it"));
    let words: Vec<_> = what.split_whitespace().collect();
    let near = near(error).map_or(";".to_owned(), |near| format!(": did you mean {near}?"));
    eprintln!("stampede: {}{near} see --help", words.join(" "));
    ExitCode::from(2)
}

/// The variable that must not be empty and is, if that is what is wrong: the error names its flag, which
/// nobody has written.
fn empty_variable(error: &clap::Error) -> Option<&'static str> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let flag = text(ContextKind::InvalidArg)?.split(' ').next()?;
    let is_written = std::env::args_os()
        .any(|arg| arg.to_str().is_some_and(|arg| arg.split('=').next() == Some(flag)));
    if is_written || text(ContextKind::InvalidValue) != Some("") {
        return None;
    }
    let variable = flag.replace("--", "STAMPEDE_").replace('-', "_").to_uppercase();
    NEVER_EMPTY.into_iter().find(|name| *name == variable)
}

/// What there is and looks like what was written, most alike first.
fn near(error: &clap::Error) -> Option<String> {
    // Of values all are told anyway.
    let names = match error.get(ContextKind::SuggestedSubcommand) {
        None => error.get(ContextKind::SuggestedArg),
        subcommands => subcommands,
    };
    match names? {
        ContextValue::String(name) => Some(name.clone()),
        // The most alike comes last.
        ContextValue::Strings(names) if !names.is_empty() => {
            Some(names.iter().rev().map(String::as_str).collect::<Vec<_>>().join(" or "))
        }
        _ => None,
    }
}

/// The error and its causes; a cause that is part of what was said already is not said again.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    if let Some(refused) = error.downcast_ref::<client::Error>() {
        return remote::told(refused);
    }
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}
