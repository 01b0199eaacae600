//! What cargo knows about the workspace's own crates.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder, from the root: `crates/kernel`.
    pub(crate) folder: String,
    pub(crate) has_lib: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
}

/// The crates of the workspace, in cargo's order.
pub(crate) fn workspace() -> Result<Vec<Package>> {
    let json =
        shell::read(shell::cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    parse(&json)
}

/// Reads the answer of `cargo metadata --no-deps`.
pub(crate) fn parse(json: &str) -> Result<Vec<Package>> {
    let value: Value = serde_json::from_str(json).context("cargo metadata is not JSON")?;
    let root = text(&value, "workspace_root")?;
    list(&value, "packages")?.iter().map(|package| parse_package(package, root)).collect()
}

fn parse_package(package: &Value, root: &str) -> Result<Package> {
    let manifest = text(package, "manifest_path")?;
    let folder = manifest.trim_end_matches("Cargo.toml").trim_end_matches('/');
    let folder = folder.strip_prefix(root).unwrap_or(folder).trim_start_matches('/');
    let has_lib = list(package, "targets")?.iter().any(|target| {
        let kinds = target["kind"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib"))
    });
    let mut dependencies = Vec::new();
    for dependency in list(package, "dependencies")? {
        let name = text(dependency, "name")?.to_owned();
        dependencies.push(Dependency { name, dev: dependency["kind"] == "dev" });
    }
    let name = text(package, "name")?.to_owned();
    Ok(Package { name, folder: folder.to_owned(), has_lib, dependencies })
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata without `{key}`"))
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value]> {
    let items = value[key].as_array();
    items.map(Vec::as_slice).with_context(|| format!("cargo metadata without `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_package_is_read_with_its_folder_and_its_dependencies() {
        let json = r#"{"workspace_root": "/r", "packages": [{
            "name": "queue", "manifest_path": "/r/crates/queue/Cargo.toml",
            "targets": [{"kind": ["lib"]}],
            "dependencies": [
                {"name": "kernel", "kind": null}, {"name": "tempfile", "kind": "dev"}
            ]
        }]}"#;
        let packages = parse(json).expect("well-formed");
        let [queue] = &packages[..] else { panic!("one package, not {packages:?}") };
        assert_eq!((queue.name.as_str(), queue.folder.as_str()), ("queue", "crates/queue"));
        assert!(queue.has_lib);
        assert_eq!(queue.dependencies.iter().map(|d| d.dev).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error() {
        assert!(parse(r#"{"packages": 3}"#).is_err());
    }
}
