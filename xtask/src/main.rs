//! The project's own commands: `cargo xtask test | ci | tidy | fuzz | bench-setup`.
//!
//! | command | what it does |
//! |---|---|
//! | `test [--only CRATE] [-- ARGS]` | installs what the tests need, then runs every test |
//! | `ci` | exactly what CI runs, in order, each step timed |
//! | `tidy` | the rules of the house that no compiler checks |
//! | `fuzz [--minutes N] [TARGET]` | every fuzz target for N minutes each |
//! | `bench-setup` | installs the servers that `bench -- queue` measures beside ours |

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks to a person")]

mod bench_setup;
mod ci;
mod clients;
mod fuzz;
mod metadata;
mod needs;
mod shell;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--only CRATE] [-- ARGS]   install what the tests need, then run every test
  ci                              what CI runs, in order
  tidy                            the rules of the house
  fuzz [--minutes N] [TARGET]     every fuzz target, or one, for N minutes (10)
  bench-setup                     install the servers that are measured beside ours";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = match command.as_str() {
        "test" => test::run(rest),
        "ci" => ci::run(rest),
        "tidy" => tidy::run(rest),
        "fuzz" => fuzz::run(rest),
        "bench-setup" => bench_setup::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => Err(anyhow::anyhow!("unknown command {other:?}\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
