//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! | module | rule |
//! |---|---|
//! | [`direction`] | dependencies point one way; machines and kernel stay pure |
//! | [`length`] | a file is read in one sitting, a function on one screen |
//! | [`docs`] | what the documentation points to is there |
//! | [`source`] | no `unsafe`, no unexplained `#[ignore]` or sleep, nothing left unfinished |
//! | [`words`] | no trace of the machine it was written on |
//! | [`lock`] | one version of each dependency, all from crates.io |
//! | [`licences`] | only licences we may ship |
//! | [`manifest`] | every dependency has its reason |
//!
//! Every check adds to one [`Report`]; all findings are shown, not only the first.

mod direction;
mod docs;
mod length;
mod licences;
mod lock;
mod manifest;
mod scan;
mod source;
mod tree;
mod words;

use anyhow::{Result, bail};

use crate::metadata;
use tree::Tree;

/// What the checks have found so far.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<Finding>,
    /// Worth knowing, but no reason to fail.
    notes: Vec<String>,
}

/// A broken rule, and where. Line 0 means the file as a whole.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Report {
    fn add(&mut self, path: &str, line: usize, what: impl Into<String>) {
        self.findings.push(Finding { path: path.to_owned(), line, what: what.into() });
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("tidy takes no arguments");
    }
    let tree = Tree::read()?;
    let mut report = Report::default();
    direction::check(&metadata::workspace()?, &tree, &mut report);
    length::check(&tree, &mut report);
    docs::check(&tree, &mut report);
    source::check(&tree, &mut report);
    words::check(&tree, &mut report);
    lock::check(&tree, &mut report);
    licences::check(&licences::resolved()?, &mut report);
    manifest::check(&tree, &mut report);
    conclude(report, tree.files().len())
}

fn conclude(mut report: Report, file_count: usize) -> Result<()> {
    report.findings.sort();
    report.findings.dedup();
    for note in &report.notes {
        println!("note: {note}");
    }
    for Finding { path, line, what } in &report.findings {
        match line {
            0 => println!("{path}: {what}"),
            _ => println!("{path}:{line}: {what}"),
        }
    }
    if report.findings.is_empty() {
        println!("tidy: {file_count} files, nothing found");
        return Ok(());
    }
    bail!("tidy: {} findings in {file_count} files", report.findings.len());
}

/// Runs a check over sample files and returns `path:line` of each finding.
#[cfg(test)]
fn places(check: impl Fn(&Tree, &mut Report), files: &[(&str, &str)]) -> Vec<String> {
    let mut report = Report::default();
    check(&Tree::sample(files), &mut report);
    report.findings.sort();
    report.findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Report, conclude};

    #[test]
    fn any_finding_fails_and_a_note_does_not() {
        let mut report = Report::default();
        report.note("two long files");
        assert!(conclude(report, 1).is_ok());

        let mut report = Report::default();
        report.add("crates/queue/src/lib.rs", 7, "too long");
        assert!(conclude(report, 1).is_err());
    }
}
