//! What may not stand in Rust code: `unsafe`, silent skips, unexplained sleeps, loose ends.

use std::ops::Range;

use super::Report;
use super::scan::{closing_brace, line_of, words};
use super::tree::{File, Tree};

/// Files that may hold `unsafe`, each with its reason.
const UNSAFE_ALLOWED: &[(&str, &str)] =
    &[("crates/memory/src/lib.rs", "the allocator's settings have no other door")];

const LOOSE_ENDS: &[&str] = &["todo!", "unimplemented!", "dbg!"];
const SLEEPS: &[&str] = &["thread::sleep", "time::sleep"];
const SLEEP_EXCUSE: &str = "// sleeps because ";

pub(super) fn check(tree: &Tree, report: &mut Report) {
    check_files(tree, report);
    for (path, _) in UNSAFE_ALLOWED {
        if !tree.exists(path) {
            report.add(path, 0, "may hold `unsafe`, but is not there: take it off the list");
        }
    }
}

fn check_files(tree: &Tree, report: &mut Report) {
    for file in tree.rust() {
        check_unsafe(file, report);
        check_ignores(file, report);
        check_loose_ends(file, report);
        check_sleeps(file, report);
    }
}

fn check_unsafe(file: &File, report: &mut Report) {
    if UNSAFE_ALLOWED.iter().any(|(path, _)| *path == file.path) {
        return;
    }
    for at in words(&file.code, "unsafe") {
        report.add(
            &file.path,
            line_of(&file.code, at),
            "`unsafe` outside the list of allowed files",
        );
    }
}

fn check_ignores(file: &File, report: &mut Report) {
    for (start, _) in file.code.match_indices("#[") {
        let Some(length) = file.code[start..].find(']') else { continue };
        let attribute = &file.code[start + 2..start + length];
        if !attribute.starts_with("ignore") && !attribute.starts_with("cfg_attr") {
            continue;
        }
        for at in words(attribute, "ignore") {
            if !attribute[at + "ignore".len()..].trim_start().starts_with('=') {
                let line = line_of(&file.code, start);
                report.add(&file.path, line, "#[ignore] without a reason: `#[ignore = \"…\"]`");
            }
        }
    }
}

fn check_loose_ends(file: &File, report: &mut Report) {
    for wanted in LOOSE_ENDS {
        for at in words(&file.code, wanted) {
            report.add(&file.path, line_of(&file.code, at), format!("{wanted} is left over"));
        }
    }
}

fn check_sleeps(file: &File, report: &mut Report) {
    let everything = 0..file.code.len();
    let tests = if file.is_test() { vec![everything] } else { test_modules(&file.code) };
    let lines: Vec<&str> = file.text.lines().collect();
    let mut offset = 0;
    for (index, line) in file.code.split('\n').enumerate() {
        let is_test = tests.iter().any(|range| range.contains(&offset));
        offset += line.len() + 1;
        let above = index.checked_sub(1).map_or("", |above| lines[above]);
        let excused = above.contains(SLEEP_EXCUSE)
            || lines.get(index).is_some_and(|line| line.contains(SLEEP_EXCUSE));
        if is_test && !excused && sleeps(line) {
            let what = format!("a test that sleeps to wait, without `{SLEEP_EXCUSE}…`");
            report.add(&file.path, index + 1, what);
        }
    }
}

fn sleeps(code: &str) -> bool {
    let imported = code.trim_start().starts_with("use ")
        && (code.contains("time::{") || code.contains("thread::{"))
        && words(code, "sleep").next().is_some();
    imported || SLEEPS.iter().any(|sleep| words(code, sleep).next().is_some())
}

/// The bodies of `#[cfg(test)] mod … { … }`.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (start, attribute) in code.match_indices("#[cfg(test)]") {
        let rest = &code[start + attribute.len()..];
        let Some(stop) = rest.find(['{', ';']) else { continue };
        let open = start + attribute.len() + stop;
        if code.as_bytes()[open] == b'{' {
            found.extend(closing_brace(code, open).map(|close| open..close));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::check_files;
    use crate::tidy::places;

    fn check_one(path: &str, text: &str, lines: &[usize]) {
        let expected: Vec<String> = lines.iter().map(|line| format!("{path}:{line}")).collect();
        assert_eq!(places(check_files, &[(path, text)]), expected, "{text}");
    }

    #[test]
    fn unsafe_is_found_in_code_only() {
        check_one("a.rs", "fn f() {\n    unsafe { g() }\n}", &[2]);
        check_one("a.rs", "// unsafe\n#![forbid(unsafe_code)]\nconst S: &str = \"unsafe\";", &[]);
    }

    #[test]
    fn an_ignored_test_says_why() {
        check_one("a.rs", "#[test]\n#[ignore]\nfn t() {}", &[2]);
        check_one("a.rs", "#[cfg_attr(miri, ignore)]\nfn t() {}", &[1]);
        check_one("a.rs", "#[ignore = \"an hour long\"]\nfn t() {}", &[]);
        check_one("a.rs", "#[cfg_attr(miri, ignore = \"slow\")]\n#[skip(ignore)]\nfn t() {}", &[]);
    }

    #[test]
    fn loose_ends_are_found() {
        check_one("a.rs", "fn f() {\n    todo!()\n}\nfn g() {\n    dbg!(1);\n}", &[2, 5]);
        check_one("a.rs", "// todo!\nfn f() { my_dbg!(1) }", &[]);
    }

    #[test]
    fn a_test_sleeps_only_with_an_excuse() {
        let path = "crates/a/src/tests.rs";
        check_one(path, "fn t() {\n    std::thread::sleep(d);\n}", &[2]);
        check_one(path, "use tokio::time::{Duration, sleep};", &[1]);
        check_one(path, "// sleeps because the kernel rounds up\nstd::thread::sleep(d);", &[]);
        check_one(path, "time::sleep(d).await; // sleeps because it is the subject", &[]);
    }

    #[test]
    fn sleeping_outside_tests_is_no_finding() {
        let module =
            "fn f() { thread::sleep(d) }\n#[cfg(test)]\nmod tests {\n thread::sleep(d);\n}";
        check_one("crates/a/src/lib.rs", module, &[4]);
        check_one(
            "crates/a/src/lib.rs",
            "#[cfg(test)]\nmod tests;\nfn f() { thread::sleep(d) }",
            &[],
        );
    }
}
