//! The files of the repository: tracked ones and new ones, but not what git ignores.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::scan;
use crate::shell;

/// A text file.
#[derive(Debug)]
pub(super) struct File {
    /// From the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// For Rust: the text with comments and literals blanked, byte for byte in place.
    pub(super) code: String,
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    paths: BTreeSet<String>,
    files: Vec<File>,
}

impl Tree {
    pub(super) fn read() -> Result<Self> {
        let root = shell::root();
        let mut tree = Self::default();
        for path in list(&root)? {
            let full = root.join(&path);
            if !full.is_file() {
                continue; // Deleted, and git does not know it yet.
            }
            let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            tree.add(&path, String::from_utf8(bytes).ok());
        }
        Ok(tree)
    }

    #[cfg(test)]
    pub(super) fn sample(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(path, Some((*text).to_owned()));
        }
        tree
    }

    fn add(&mut self, path: &str, text: Option<String>) {
        self.paths.insert(path.to_owned());
        if let Some(text) = text {
            let code = if path.ends_with(".rs") { scan::blank(&text) } else { String::new() };
            self.files.push(File { path: path.to_owned(), text, code });
        }
    }

    /// The text files.
    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or a folder of this path is part of the repository.
    pub(super) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|p| p.starts_with(&folder))
    }
}

impl File {
    /// Whether all of the file is test code.
    pub(super) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }
}

fn list(root: &Path) -> Result<Vec<String>> {
    let mut git = shell::command("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    if let Ok(output) = shell::read(&mut git) {
        return Ok(output.split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect());
    }
    // Without git, as in an unpacked archive: all that is not built.
    let mut paths = Vec::new();
    walk(root, "", &mut paths)?;
    Ok(paths)
}

fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_file() {
            paths.push(path);
        } else if kind.is_dir() && !matches!(name.as_str(), "target" | ".git") {
            walk(&entry.path(), &format!("{path}/"), paths)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn folders_exist_through_their_files() {
        let tree = Tree::sample(&[("docs/queue.md", ""), ("docs-old.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/") && tree.exists("docs/queue.md"));
        assert!(!tree.exists("doc") && !tree.exists("docs/sale.md"));
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        let tree = Tree::sample(&[
            ("crates/a/src/tests.rs", ""),
            ("crates/a/tests/x.rs", ""),
            ("crates/a/src/contests.rs", ""),
        ]);
        let kinds: Vec<bool> = tree.rust().map(super::File::is_test).collect();
        assert_eq!(kinds, [true, true, false]);
    }
}
