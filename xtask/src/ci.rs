//! `cargo xtask ci`: exactly what CI runs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{shell, tidy};

/// Short runs of the built programs, after the tests: a name and the arguments of cargo.
const SMOKE: &[(&str, &[&str])] = &[
    ("2000 seeds of the simulator", &["run", "--", "sim", "--runs", "2000"]),
    ("kernel bench", &["run", "-p", "bench", "--", "kernel", "--smoke"]),
    ("queue bench", &["run", "-p", "bench", "--", "queue", "--smoke"]),
    ("queue promises", &["run", "-p", "bench", "--", "queue-promises", "--smoke"]),
    ("kill -9", &["run", "-p", "bench", "--", "kill9", "--smoke"]),
];

type Step = (String, Box<dyn FnOnce() -> Result<()>>);

pub(crate) fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("ci takes no arguments: it is always the same");
    }
    let mut done: Vec<(String, Duration)> = Vec::new();
    for (name, step) in steps() {
        println!("\n==> {name}");
        let started = Instant::now();
        let outcome = step();
        let took = started.elapsed();
        if let Err(error) = outcome {
            println!("\n==> {name} FAILED after {}", seconds(took));
            print!("{}", table(&done, Some((&name, took))));
            return Err(error.context(format!("step {name}")));
        }
        println!("==> {name} took {}", seconds(took));
        done.push((name, took));
    }
    print!("{}", table(&done, None));
    Ok(())
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = vec![
        cargo("fmt", &["fmt", "--all", "--check"]),
        cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        ("tidy".to_owned(), Box::new(|| tidy::run(&[]))),
        ("test".to_owned(), Box::new(readme_tests)),
        ("docs".to_owned(), Box::new(docs)),
    ];
    for (name, args) in SMOKE {
        steps.push(cargo(&format!("smoke: {name}"), args));
    }
    steps
}

fn cargo(name: &str, args: &'static [&'static str]) -> Step {
    (name.to_owned(), Box::new(move || shell::run(shell::cargo().args(args))))
}

fn docs() -> Result<()> {
    let mut command = shell::cargo();
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    shell::run(&mut command)
}

/// Runs what the README tells a newcomer to run, so that the two cannot differ.
fn readme_tests() -> Result<()> {
    let readme = shell::root().join("README.md");
    let text = std::fs::read_to_string(&readme).context("cannot read README.md")?;
    let Some(line) = test_command(&text) else {
        bail!("README.md names no test command: it must hold one as code, `cargo … test …`");
    };
    shell::run(shell::command("sh").args(["-c", &line]))
}

/// The first code of a Markdown text, fenced or inline, that is a cargo command with the word
/// `test` in it.
fn test_command(markdown: &str) -> Option<String> {
    let mut fenced = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let found = if fenced {
            as_test_command(line)
        } else {
            line.split('`').skip(1).step_by(2).find_map(as_test_command)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn as_test_command(code: &str) -> Option<String> {
    let code = code.trim().trim_start_matches("$ ");
    let code = code.split(" #").next().unwrap_or(code).trim();
    let mut words = code.split_whitespace();
    let is_cargo = words.next() == Some("cargo");
    (is_cargo && words.any(|word| word == "test")).then(|| code.to_owned())
}

fn table(done: &[(String, Duration)], failed: Option<(&str, Duration)>) -> String {
    let mut rows: Vec<(&str, Duration, &str)> =
        done.iter().map(|(name, took)| (name.as_str(), *took, "ok")).collect();
    rows.extend(failed.map(|(name, took)| (name, took, "FAILED")));
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max("total".len());
    let mut text = String::from("\n");
    for (name, took, outcome) in &rows {
        text.push_str(&format!("{name:width$}  {:>9}  {outcome}\n", seconds(*took)));
    }
    let total: Duration = rows.iter().map(|(_, took, _)| *took).sum();
    text.push_str(&format!("{:width$}  {:>9}\n", "total", seconds(total)));
    text
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::{Duration, table, test_command};

    #[test]
    fn the_readme_may_name_its_test_command_in_a_fence_or_inline() {
        let fenced = "Run `cargo build`.\n```sh\n$ cargo xtask test  # all of it\n```\n";
        assert_eq!(test_command(fenced).as_deref(), Some("cargo xtask test"));
        let inline = "To test, run `cargo xtask test` here.";
        assert_eq!(test_command(inline).as_deref(), Some("cargo xtask test"));
    }

    #[test]
    fn prose_about_tests_is_not_a_command() {
        assert_eq!(test_command("cargo xtask test\n`cargo build`\n`make test`"), None);
    }

    #[test]
    fn the_closing_table_adds_up_and_names_the_failure() {
        let done = [("fmt".to_owned(), Duration::from_millis(500))];
        let text = table(&done, Some(("clippy", Duration::from_millis(1500))));
        let expected = "\nfmt         0.5 s  ok\nclippy      1.5 s  FAILED\ntotal       2.0 s\n";
        assert_eq!(text, expected);
    }
}
