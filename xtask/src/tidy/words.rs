//! No trace of the machine it was written on, and no loose ends in words.

use super::Report;
use super::tree::{File, Tree};

/// This file, which must name what it looks for.
const SELF: &str = "xtask/src/tidy/words.rs";

/// Folders of somebody's machine.
const MACHINE_PATHS: &[&str] = &["/root/", "/home/", "/work/"];

/// Whole words that mean "not finished".
const WORDS: &[&str] = &["FIXME", "HACK", "TODO", "WIP", "XXX"];

/// A machine's own registry, in cargo's configuration.
const MIRRORS: &[&str] = &["[source.", "[registries.", "replace-with"];

pub(super) fn check(tree: &Tree, report: &mut Report) {
    for file in tree.files().iter().filter(|file| file.path != SELF) {
        for (index, line) in file.text.lines().enumerate() {
            check_line(file, index + 1, line, report);
        }
    }
}

fn check_line(file: &File, number: usize, line: &str, report: &mut Report) {
    for path in MACHINE_PATHS {
        // `example.com/home/` and `a/root/b` go on from something; a machine's path starts afresh.
        let continues = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '~');
        let starts = |at: usize| !line[..at].ends_with(continues);
        if line.match_indices(path).any(|(at, _)| starts(at)) {
            report.add(&file.path, number, format!("a path of one machine: {path}"));
        }
    }
    for word in WORDS {
        if super::scan::words(line, word).next().is_some() {
            report.add(&file.path, number, format!("{word}: do it, or write an issue"));
        }
    }
    if file.path.ends_with(".cargo/config.toml") && MIRRORS.iter().any(|m| line.contains(m)) {
        report.add(&file.path, number, "a registry of one machine");
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::places;

    #[test]
    fn a_path_of_a_machine_is_found() {
        assert_eq!(places(check, &[("a.md", "x\nin \"/root/x\"")]), ["a.md:2"]);
        assert_eq!(places(check, &[("a.md", "/home/me")]), ["a.md:1"]);
        assert!(places(check, &[("a.md", "https://a.com/home/ target/root/x")]).is_empty());
    }

    #[test]
    fn an_unfinished_word_is_found_whole() {
        assert_eq!(places(check, &[("a.rs", "// TODO: more")]), ["a.rs:1"]);
        assert!(places(check, &[("a.rs", "const TODOS: u8 = 1; // todo")]).is_empty());
    }

    #[test]
    fn a_mirror_in_cargos_configuration_is_found() {
        let mirror = "[source.crates-io]\nreplace-with = \"near\"";
        let expected = [".cargo/config.toml:1", ".cargo/config.toml:2"];
        assert_eq!(places(check, &[(".cargo/config.toml", mirror)]), expected);
        assert!(places(check, &[(".cargo/config.toml", "[alias]")]).is_empty());
    }
}
