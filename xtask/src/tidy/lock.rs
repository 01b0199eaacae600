//! One version of each dependency, all from crates.io.

use std::collections::BTreeMap;

use super::Report;
use super::tree::Tree;

/// Crates that may be there twice, each with its reason.
const DUPLICATES_ALLOWED: &[(&str, &str)] = &[];

/// How many others may be there twice. It may only shrink; `None` only reports them.
const DUPLICATES_MAX: Option<usize> = None;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
const LOCK: &str = "Cargo.lock";

pub(super) fn check(tree: &Tree, report: &mut Report) {
    let Some(file) = tree.get(LOCK) else {
        report.add(LOCK, 0, "is not there: it is part of the source of a program");
        return;
    };
    check_text(&file.text, DUPLICATES_MAX, report);
}

fn check_text(text: &str, duplicates_max: Option<usize>, report: &mut Report) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for (index, line) in text.lines().enumerate() {
        if let Some(value) = value(line, "name") {
            name = value;
        } else if let Some(version) = value(line, "version") {
            versions.entry(name).or_default().push(version);
        } else if let Some(source) = value(line, "source")
            && source != CRATES_IO
        {
            report.add(LOCK, index + 1, format!("{name} comes from {source}, not from crates.io"));
        }
    }
    let is_allowed = |name: &str| DUPLICATES_ALLOWED.iter().any(|(other, _)| *other == name);
    versions.retain(|name, versions| versions.len() > 1 && !is_allowed(name));
    let shown: Vec<String> =
        versions.iter().map(|(name, versions)| format!("{name} {}", versions.join(", "))).collect();
    if !shown.is_empty() {
        report.note(format!("{} crates in several versions: {}", shown.len(), shown.join("; ")));
    }
    match duplicates_max {
        Some(max) if shown.len() > max => {
            report.add(LOCK, 0, format!("{} duplicates; at most {max}", shown.len()));
        }
        Some(max) if shown.len() < max => {
            report.add(LOCK, 0, format!("lower DUPLICATES_MAX in {} to {}", file!(), shown.len()));
        }
        _ => {}
    }
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::{CRATES_IO, Report, check, check_text};
    use crate::tidy::places;

    fn lock(packages: &[(&str, &str, &str)]) -> String {
        let one = |(name, version, source): &(&str, &str, &str)| {
            format!(
                "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{source}\"\n"
            )
        };
        packages.iter().map(one).collect()
    }

    fn findings(text: &str, duplicates_max: Option<usize>) -> usize {
        let mut report = Report::default();
        check_text(text, duplicates_max, &mut report);
        report.findings.len()
    }

    #[test]
    fn duplicates_may_only_become_fewer() {
        let twice = lock(&[("a", "1.0.0", CRATES_IO), ("a", "2.0.0", CRATES_IO)]);
        assert_eq!(findings(&twice, Some(0)), 1, "more than allowed");
        assert_eq!(findings(&twice, Some(1)), 0);
        assert_eq!(findings(&twice, Some(2)), 1, "the number must follow");
        assert_eq!(findings(&twice, None), 0);
    }

    #[test]
    fn another_registry_is_found() {
        let text = lock(&[("a", "1.0.0", "git+https://example.com/a")]);
        assert_eq!(places(check, &[("Cargo.lock", &text)]), ["Cargo.lock:4"]);
        let text = lock(&[("a", "1.0.0", CRATES_IO)]);
        assert!(places(check, &[("Cargo.lock", &text)]).is_empty());
    }

    #[test]
    fn the_lock_must_be_there() {
        assert_eq!(places(check, &[]), ["Cargo.lock:0"]);
    }
}
