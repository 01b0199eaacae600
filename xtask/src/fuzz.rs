//! `cargo xtask fuzz`: every target under `fuzz/fuzz_targets`, for some minutes each.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::needs::{self, Need};
use crate::shell;

const MINUTES_DEFAULT: u64 = 10;

const NEEDS: &[Need] =
    &[Need { binary: "c++", must_run: &[], package: "g++", why: "libfuzzer is compiled from C++" }];

#[derive(Debug, PartialEq)]
struct Options {
    minutes: u64,
    target: Option<String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    let mut targets = targets(&shell::root().join("fuzz/fuzz_targets"))?;
    if let Some(wanted) = options.target {
        if !targets.contains(&wanted) {
            bail!("no fuzz target {wanted:?}; there are: {}", targets.join(", "));
        }
        targets = vec![wanted];
    }
    needs::ensure(NEEDS)?;
    if shell::read(shell::cargo().args(["fuzz", "--version"])).is_err() {
        shell::run(shell::cargo().args(["install", "--locked", "cargo-fuzz"]))?;
    }
    for target in targets {
        let mut command = shell::cargo();
        // What is found goes to the first folder; seeds of the second are only read.
        let found = format!("target/fuzz-found/{target}");
        std::fs::create_dir_all(shell::root().join(&found))?;
        command.args(["fuzz", "run", &target, &found, &format!("fuzz/corpus/{target}"), "--"]);
        command.arg(format!("-max_total_time={}", options.minutes * 60));
        // The sanitizer flags are unstable; this lets the stable compiler take them.
        command.env("RUSTC_BOOTSTRAP", "1");
        shell::run(&mut command).with_context(|| format!("fuzz target {target}"))?;
    }
    Ok(())
}

fn targets(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).context("there is no fuzz/fuzz_targets")?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    if names.is_empty() {
        bail!("fuzz/fuzz_targets is empty");
    }
    names.sort();
    Ok(names)
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { minutes: MINUTES_DEFAULT, target: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => {
                let minutes = args.next().context("--minutes needs a number")?;
                options.minutes = minutes.parse().context("--minutes needs a whole number")?;
            }
            flag if flag.starts_with('-') => bail!("unknown argument {flag:?}"),
            target if options.target.is_none() => options.target = Some(target.to_owned()),
            more => bail!("one target or all, not also {more:?}"),
        }
    }
    if options.minutes == 0 {
        // Zero means "without end" to libfuzzer.
        bail!("--minutes must be at least 1");
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
    fn minutes_and_target_are_both_optional() {
        assert_eq!(parse(&[]).expect("empty"), Options { minutes: 10, target: None });
        let expected = Options { minutes: 3, target: Some("entry".into()) };
        assert_eq!(parse(&words("--minutes 3 entry")).expect("both"), expected);
    }

    #[test]
    fn zero_minutes_or_two_targets_are_refused() {
        for line in ["--minutes 0", "--minutes", "--minutes x", "a b", "--fast"] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }
}
