//! Arguments that cannot be understood, told in one line with what to do about it.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

use crate::output::tell;
use crate::values;

/// Where what is usual would do harm in silence: data in a folder that is thrown away, no TLS.
const NEVER_EMPTY: [&str; 4] =
    ["STAMPEDE_DATA", "STAMPEDE_CONFIG", "STAMPEDE_TLS_CERT", "STAMPEDE_TLS_KEY"];

/// A variable that is empty counts as not set: that is what `STAMPEDE_KEY= stampede …` means, and a
/// compose file whose `${STAMPEDE_KEY}` is nothing. Some must not be. What is below zero is a value.
pub(crate) fn prepared(command: Command) -> Command {
    let may_be = |name: &OsStr| !NEVER_EMPTY.iter().any(|never| name == *never);
    let is_empty = |arg: &Arg| {
        let name = arg.get_env().filter(|name| may_be(name));
        name.and_then(std::env::var_os).is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg })
        .mut_args(values::below_zero_is_a_value)
        .mut_subcommands(prepared)
}

/// Help and the version as they are; a mistake in one line.
pub(crate) fn not_understood(error: &clap::Error, all: &Command) -> ExitCode {
    if !error.use_stderr() {
        // Nobody reads it, perhaps.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what).to_owned();
    let what = of_a_variable(error, &what).unwrap_or(what);
    let words: Vec<_> = what.split_whitespace().collect();
    let hint = elsewhere(error, all)
        .or_else(|| near(error).map(|near| format!("did you mean {near}?")))
        .map_or(";".to_owned(), |hint| format!(": {hint}"));
    tell(format_args!("stampede: {}{hint} see --help", words.join(" ")));
    ExitCode::from(2)
}

fn told(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// What is wrong, in the name of the variable whose value it is: the error names its flag, which
/// nobody has written.
fn of_a_variable(error: &clap::Error, what: &str) -> Option<String> {
    let (arg, value) =
        (told(error, ContextKind::InvalidArg)?, told(error, ContextKind::InvalidValue)?);
    let flag = arg.split(' ').next()?;
    let is_written = std::env::args_os()
        .any(|arg| arg.to_str().is_some_and(|arg| arg.split('=').next() == Some(flag)));
    let variable = flag.replace("--", "STAMPEDE_").replace('-', "_").to_uppercase();
    if is_written || std::env::var(&variable).ok()? != value {
        return None;
    }
    Some(match value {
        "" => format!("{variable} is empty: give it a value, or do not set it"),
        _ => what.replace(&format!("'{arg}'"), &variable),
    })
}

/// Where it goes, if what was written is right and its place is not.
fn elsewhere(error: &clap::Error, all: &Command) -> Option<String> {
    let wrong = told(error, ContextKind::InvalidArg)?;
    let first = std::env::args_os().nth(1)?;
    let first = first.to_str()?;
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    if first == "work" && !wrong.starts_with('-') {
        let example = format!("stampede work --queue QUEUE -- {wrong}");
        return Some(format!("the command goes after --, as in {example};"));
    }
    let flag = wrong.strip_prefix("--").filter(|_| first.split('=').next() == Some(wrong))?;
    let has = |command: &&Command| command.get_arguments().any(|arg| arg.get_long() == Some(flag));
    let name = all.get_subcommands().find(has)?.get_name();
    Some(format!("it goes after the command, as in stampede {name} {wrong};"))
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
