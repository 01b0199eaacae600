//! What the documentation points to is there.

use super::Report;
use super::tree::{File, Tree};

/// A path in backticks is one of ours if it starts so.
const OURS: &[&str] = &["crates/", "docs/", "xtask/", "fuzz/", "scripts/", ".ci/"];

pub(super) fn check(tree: &Tree, report: &mut Report) {
    for file in tree.files().iter().filter(|file| file.path.ends_with(".md")) {
        let mut fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                continue;
            }
            if !fenced {
                check_line(tree, file, index + 1, line, report);
            }
        }
    }
}

fn check_line(tree: &Tree, file: &File, number: usize, line: &str, report: &mut Report) {
    // Text and code take turns: a, `b`, c.
    let mut prose = String::new();
    for (turn, part) in line.split('`').enumerate() {
        if turn % 2 == 0 {
            prose.push_str(part);
            continue;
        }
        for path in part.split_whitespace().filter_map(repo_path) {
            if !tree.exists(path) {
                report.add(&file.path, number, format!("`{path}` is not there"));
            }
        }
    }
    for target in links(&prose) {
        let missing = resolve(&file.path, target).is_none_or(|path| !tree.exists(&path));
        if missing {
            report.add(&file.path, number, format!("the link to {target} leads nowhere"));
        }
    }
}

/// The path of ours in a piece of code, up to the first wildcard or anchor.
fn repo_path(word: &str) -> Option<&str> {
    let word = word.trim_matches(['"', '\'', ',', ';', '(', ')']).trim_end_matches(['.', ':']);
    if !OURS.iter().any(|start| word.starts_with(start)) {
        return None;
    }
    let word = word.split([':', '#']).next().unwrap_or(word);
    match word.find(['*', '{', '<', '…', '$', '[']) {
        Some(wildcard) => word[..wildcard].rfind('/').map(|slash| &word[..slash]),
        None => Some(word),
    }
}

/// The targets of inline links and of link definitions that are files.
fn links(prose: &str) -> Vec<&str> {
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = (prose.trim_start().starts_with('['))
        .then(|| prose.split_once("]: "))
        .flatten()
        .and_then(|(_, rest)| rest.split_whitespace().next());
    inline.chain(definition).filter(|target| is_relative(target)).collect()
}

fn is_relative(target: &str) -> bool {
    let target = target.trim_matches(['<', '>']);
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    !target.is_empty() && !target.starts_with('#') && !is_elsewhere
}

/// The path from the root that a link in a file means; `None` when it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let target = target.trim_matches(['<', '>']).split('#').next().unwrap_or(target);
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::places;

    fn check_text(text: &str, lines: &[usize]) {
        let others = [("crates/kernel/src/lib.rs", ""), ("README.md", ""), ("docs/queue.md", "")];
        let mut files = others.to_vec();
        files.push(("docs/page.md", text));
        let expected: Vec<String> = lines.iter().map(|l| format!("docs/page.md:{l}")).collect();
        assert_eq!(places(check, &files), expected, "{text}");
    }

    #[test]
    fn a_path_in_backticks_must_be_there() {
        check_text("See `crates/kernel`, `crates/kernel/src/lib.rs:12` and `docs/*.md`.", &[]);
        check_text("Once there was\n`crates/gone/src/lib.rs`.", &[2]);
        check_text("And `scripts/gone/*.sh`.", &[1]);
    }

    #[test]
    fn other_code_is_no_path() {
        check_text("`a/b`, crates/prose, `std::fs`\n```\n`crates/gone`\n```\n", &[]);
    }

    #[test]
    fn a_relative_link_must_lead_somewhere() {
        check_text("[q](queue.md#life) [r](../README.md) [w](https://a.b/c) [h](#here)", &[]);
        check_text("[q](gone.md)", &[1]);
        check_text("[q](../../outside.md)", &[1]);
        check_text("[q]: gone.md\n\n[r]: ../README.md", &[1]);
        check_text("code is no link: `[q](gone.md)`", &[]);
    }
}
