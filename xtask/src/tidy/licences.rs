//! Only licences that let us ship under Apache-2.0.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Report;
use crate::{metadata, shell};

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates whose manifest names no licence, read by hand; each with what was found.
const READ_BY_HAND: &[(&str, &str)] = &[];

/// Crate and licence of all that is linked on the platform we run on.
pub(super) fn resolved() -> Result<Vec<(String, String)>> {
    let version = shell::read(shell::command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not name its host")?;
    let mut command = shell::cargo();
    command.args(["metadata", "--format-version", "1", "--filter-platform", host]);
    parse(&shell::read(&mut command)?)
}

fn parse(json: &str) -> Result<Vec<(String, String)>> {
    let value: Value = serde_json::from_str(json).context("cargo metadata is not JSON")?;
    let mut crates = Vec::new();
    for package in metadata::list(&value, "packages")? {
        let licence = package["license"].as_str().unwrap_or_default();
        crates.push((metadata::text(package, "name")?.to_owned(), licence.to_owned()));
    }
    Ok(crates)
}

pub(super) fn check(crates: &[(String, String)], report: &mut Report) {
    for (name, licence) in crates {
        let known = READ_BY_HAND.iter().any(|(other, _)| other == name);
        if !known && !is_allowed(licence) {
            report.add("Cargo.lock", 0, format!("{name} has the licence {licence:?}"));
        }
    }
}

/// Whether an SPDX expression can be met with allowed licences alone.
fn is_allowed(expression: &str) -> bool {
    // Before SPDX, a slash meant OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &tokens[..];
    any_of(&mut rest) && rest.is_empty()
}

fn any_of(rest: &mut &[&str]) -> bool {
    let mut met = all_of(rest);
    while let [first, tail @ ..] = *rest
        && *first == "OR"
    {
        *rest = tail;
        met |= all_of(rest);
    }
    met
}

fn all_of(rest: &mut &[&str]) -> bool {
    let mut met = one(rest);
    while let [first, tail @ ..] = *rest
        && *first == "AND"
    {
        *rest = tail;
        met &= one(rest);
    }
    met
}

fn one(rest: &mut &[&str]) -> bool {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let met = any_of(rest);
            let [")", tail @ ..] = *rest else { return false };
            *rest = tail;
            met
        }
        [name, "WITH", exception, tail @ ..] => {
            *rest = tail;
            ALLOWED.contains(&format!("{name} WITH {exception}").as_str())
        }
        [name, tail @ ..] => {
            *rest = tail;
            ALLOWED.contains(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Report, check, is_allowed, parse};

    #[test]
    fn expressions_are_weighed() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(is_allowed(expression), "{expression}");
        }
        for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT ISC"] {
            assert!(!is_allowed(expression), "{expression}");
        }
    }

    #[test]
    fn a_crate_without_a_good_licence_is_found() {
        let json = r#"{"packages": [
            {"name": "a", "license": "MIT"}, {"name": "b", "license": null}
        ]}"#;
        let mut report = Report::default();
        check(&parse(json).expect("well-formed"), &mut report);
        let found: Vec<_> = report.findings.iter().map(|f| f.what.as_str()).collect();
        assert_eq!(found, ["b has the licence \"\""]);
    }
}
