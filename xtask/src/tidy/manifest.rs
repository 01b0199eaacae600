//! Every dependency has its reason, in the one place where versions are.

use super::Report;
use super::tree::Tree;

const MANIFEST: &str = "Cargo.toml";

pub(super) fn check(tree: &Tree, report: &mut Report) {
    let Some(file) = tree.get(MANIFEST) else {
        report.add(MANIFEST, 0, "is not there");
        return;
    };
    let mut in_section = false;
    let mut has_reason = false;
    for (index, line) in file.text.lines().enumerate() {
        if let Some(header) = line.strip_prefix('[') {
            in_section = header.starts_with("workspace.dependencies]");
            has_reason = false;
        } else if line.trim().is_empty() {
            has_reason = false;
        } else if line.starts_with('#') {
            has_reason = true;
        } else if let Some(name) = dependency(line)
            && in_section
            && !has_reason
            && !is_ours(line)
        {
            let what = format!("`{name}` without a reason: a `#` line above it, or its group");
            report.add(MANIFEST, index + 1, what);
        }
    }
}

/// The name that a line gives a version to; `None` for the inside of a longer entry.
fn dependency(line: &str) -> Option<&str> {
    let (name, _) = line.split_once('=')?;
    let name = name.trim_end();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

fn is_ours(line: &str) -> bool {
    line.contains("path = ")
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::places;

    fn check_text(text: &str, lines: &[usize]) {
        let expected: Vec<String> = lines.iter().map(|line| format!("Cargo.toml:{line}")).collect();
        assert_eq!(places(check, &[("Cargo.toml", text)]), expected, "{text}");
    }

    #[test]
    fn a_reason_holds_for_its_group() {
        check_text("[workspace.dependencies]\n# Why.\na = \"1\"\nb = \"2\"\n", &[]);
        check_text("[workspace.dependencies]\n# Why.\na = \"1\"\n\nb = \"2\"\n", &[5]);
        check_text("[workspace.dependencies]\na = \"1\"\n# Too late.\n", &[2]);
    }

    #[test]
    fn our_own_crates_and_other_sections_need_none() {
        check_text("[workspace.dependencies]\na = { path = \"crates/a\" }\n", &[]);
        check_text("[workspace.package]\nversion = \"1\"\n", &[]);
    }
}
