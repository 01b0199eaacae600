//! `cargo xtask test`: from a fresh Debian machine with cargo to every test run.

use anyhow::{Result, bail};

use crate::needs::{self, Need};
use crate::{clients, metadata, shell};

/// What the tests start that cargo does not bring. A compiler and linker are not here: without
/// them this program could not have been built.
const NEEDS: &[Need] = &[
    Need {
        binary: "curl",
        must_run: &[],
        package: "curl",
        why: "the README's tour is run as it is written; refusals over HTTP/2",
    },
    Need {
        binary: "python3",
        must_run: &[],
        package: "python3",
        why: "clients from outside, standard library only: kill -9 runs, malformed requests",
    },
];

#[derive(Debug, PartialEq)]
struct Options {
    /// One crate instead of the workspace.
    only: Option<String>,
    /// For the test runner: names to match, `--ignored`, `--exact`.
    passed_on: Vec<String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    let packages = metadata::workspace()?;
    let mut scope = vec!["--workspace".to_owned()];
    let mut has_docs = true;
    if let Some(only) = &options.only {
        let Some(package) = packages.iter().find(|package| package.name == *only) else {
            let names: Vec<_> = packages.iter().map(|package| package.name.as_str()).collect();
            bail!("no crate {only:?}; there are: {}", names.join(", "));
        };
        scope = vec!["--package".to_owned(), only.clone()];
        has_docs = package.has_lib;
    }
    needs::ensure(NEEDS)?;
    // Steps of their own, which names of tests after `--` do not choose from.
    let whole = |name: &str| {
        options.passed_on.is_empty() && options.only.as_deref().is_none_or(|only| only == name)
    };
    let clients = if whole("stampede") { Some(install_clients()) } else { None };

    // All runs happen even if the first fails: one look shows all that is broken.
    let tests = run_tests(&scope, &options.passed_on);
    let docs = if has_docs { run_docs(&scope, &options.passed_on) } else { Ok(()) };
    let full_disk = if whole("store") { run_full_disk(&scope) } else { Ok(()) };
    let clients = clients.map_or(Ok(()), |installed| installed.and_then(|()| run_clients(&scope)));
    tests.and(docs).and(full_disk).and(clients)
}

fn install_clients() -> Result<()> {
    needs::ensure(clients::NEEDS)?;
    clients::ensure()
}

/// The server's tests with clients of AWS SQS as people have them.
///
/// In the scope of the tests before: one crate alone has other features of its dependencies, and
/// would have them compiled once more.
fn run_clients(scope: &[String]) -> Result<()> {
    let mut command = shell::cargo();
    command.arg("test").args(scope).args(["--test", "sqs_clients", "--", "--ignored"]);
    shell::run(&mut command)
}

/// The store's tests that fill up a file system: a small one, which only they see. In the scope of
/// the tests before, as the clients.
fn run_full_disk(scope: &[String]) -> Result<()> {
    const IN_SMALL_DISK: &str =
        "mount -t tmpfs -o size=400m none \"$STORE_SMALL_DISK\" && exec \"$@\"";
    let disk = shell::root().join("target/small-disk");
    std::fs::create_dir_all(&disk)?;
    // Root may mount in a namespace of its own; others, where the system lets them, as root of
    // one. Containers often allow neither.
    let spaces: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let in_small_disk = |space: &[&str]| {
        let mut unshare = shell::command("unshare");
        unshare.args(space).args(["sh", "-c", IN_SMALL_DISK, "sh"]);
        unshare.env("STORE_SMALL_DISK", &disk);
        unshare
    };
    let can_mount = |space: &&&[&str]| shell::read(in_small_disk(space).arg("true")).is_ok();
    let Some(space) = spaces.iter().find(can_mount) else {
        println!("NOT RUN: store's full-disk tests, because nothing can be mounted here");
        return Ok(());
    };
    let cargo = shell::cargo();
    let mut command = in_small_disk(space);
    command.arg(cargo.get_program()).arg("test").args(scope);
    command.args(["--test", "full_disk", "--", "--ignored", "--test-threads", "1"]);
    shell::run(&mut command)
}

fn run_tests(scope: &[String], passed_on: &[String]) -> Result<()> {
    let mut command = shell::cargo();
    if shell::read(shell::cargo().args(["nextest", "--version"])).is_ok() {
        command.args(["nextest", "run", "--no-fail-fast"]);
    } else {
        command.args(["test", "--tests", "--no-fail-fast"]);
    }
    shell::run(command.args(scope).arg("--").args(passed_on))
}

/// Neither runner above looks at the examples in documentation.
fn run_docs(scope: &[String], passed_on: &[String]) -> Result<()> {
    let mut command = shell::cargo();
    command.args(["test", "--doc", "--no-fail-fast"]).args(scope);
    shell::run(command.arg("--").args(passed_on))
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { only: None, passed_on: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => match args.next() {
                Some(name) => options.only = Some(name.clone()),
                None => bail!("--only needs the name of a crate"),
            },
            "--" => options.passed_on = args.by_ref().cloned().collect(),
            other => bail!("unknown argument {other:?}; test names go after `--`"),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::{Options, parse};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_follows_two_dashes_is_passed_on() {
        let options = parse(&words("--only kernel -- rows --exact")).expect("well-formed");
        let expected = Options { only: Some("kernel".into()), passed_on: words("rows --exact") };
        assert_eq!(options, expected);
    }

    #[test]
    fn a_stray_name_is_refused() {
        assert!(parse(&words("kernel")).is_err());
        assert!(parse(&words("--only")).is_err());
    }
}
