//! Dependencies point one way: `kernel → machines → shard → node → {http, web} → stampede`.

use super::Report;
use super::tree::Tree;
use crate::metadata::{Dependency, Package};

/// The state machines. They know the kernel and nothing else, least of all each other: what one
/// asks of another is a letter.
const MACHINES: &[&str] =
    &["feed", "queue", "recents", "sale", "schedule", "search", "streams", "tenants", "views"];

/// Crates of the workspace that a crate may use.
enum May {
    Only(&'static [&'static str]),
    /// These, and the machines.
    MachinesAnd(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// Every crate that is not a machine. Dev-dependencies are free, except between machines.
const CRATES: &[(&str, May)] = &[
    ("kernel", May::Only(&[])),
    ("memory", May::Only(&[])),
    ("journal", May::Only(&["kernel"])),
    ("store", May::Only(&["kernel"])),
    ("shard", May::Only(&["kernel", "journal"])),
    ("node", May::MachinesAnd(&["kernel", "journal", "store", "shard"])),
    ("sqs", May::Only(&[])),
    ("http-edge", May::MachinesAnd(&["kernel", "node", "sqs"])),
    ("web", May::MachinesAnd(&["kernel", "node", "http-edge"])),
    ("client", May::Only(&[])),
    ("sim", May::MachinesAnd(&["kernel", "journal", "store", "shard"])),
    ("bench", May::AllBut(&[])),
    ("stampede", May::AllBut(&["bench"])),
    ("xtask", May::Only(&[])),
];

/// What the kernel and the machines may not link: I/O, JSON, and randomness of their own.
const IMPURE: &[&str] = &["axum", "getrandom", "hyper", "rand", "serde_json", "tokio"];

/// The lints that keep a crate pure; every machine has a copy, because clippy reads one
/// `clippy.toml` a crate and merges nothing.
const PURE_LINTS: &str = "crates/kernel/clippy.toml";

pub(super) fn check(packages: &[Package], tree: &Tree, report: &mut Report) {
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some(may) = rule(&package.name) else {
            let what = format!("crate `{}` is in no table of {}", package.name, file!());
            report.add(&manifest, 0, format!("{what}: add it there, with what it may use"));
            continue;
        };
        for dependency in &package.dependencies {
            let is_ours = packages.iter().any(|other| other.name == dependency.name);
            if let Some(what) = objection(package, dependency, may, is_ours) {
                report.add(&manifest, line_of(tree, &manifest, &dependency.name), what);
            }
        }
        if is_pure(&package.name) {
            check_lints(package, tree, report);
        }
    }
}

fn rule(name: &str) -> Option<&'static May> {
    if MACHINES.contains(&name) {
        return Some(&May::Only(&["kernel"]));
    }
    CRATES.iter().find(|(other, _)| *other == name).map(|(_, may)| may)
}

fn is_pure(name: &str) -> bool {
    name == "kernel" || MACHINES.contains(&name)
}

fn objection(from: &Package, to: &Dependency, may: &May, is_ours: bool) -> Option<String> {
    let (from, name) = (from.name.as_str(), to.name.as_str());
    if to.dev {
        let both_machines = MACHINES.contains(&from) && MACHINES.contains(&name) && from != name;
        return both_machines.then(|| format!("machine `{from}` may not even test with `{name}`"));
    }
    if !is_ours {
        let impure = is_pure(from) && IMPURE.contains(&name);
        return impure.then(|| format!("`{from}` must stay pure: no `{name}`"));
    }
    let allowed = match may {
        May::Only(names) => names.contains(&name),
        May::MachinesAnd(names) => names.contains(&name) || MACHINES.contains(&name),
        May::AllBut(names) => !names.contains(&name),
    };
    (!allowed).then(|| format!("`{from}` may not depend on `{name}`: it points the wrong way"))
}

fn check_lints(package: &Package, tree: &Tree, report: &mut Report) {
    let path = format!("{}/clippy.toml", package.folder);
    let text = |path: &str| tree.get(path).map(|file| file.text.as_str());
    match (text(&path), text(PURE_LINTS)) {
        (None, _) => report.add(&path, 0, format!("is not there: copy {PURE_LINTS}")),
        (own, kernel) if own != kernel => {
            report.add(&path, 0, format!("differs from {PURE_LINTS}: copy it"));
        }
        _ => {}
    }
}

/// The line of a manifest that names a dependency; 0 when it is spelled in another way.
fn line_of(tree: &Tree, manifest: &str, name: &str) -> usize {
    let Some(file) = tree.get(manifest) else { return 0 };
    let names_it = |line: &str| {
        let rest = line.trim_start().strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    file.text.lines().position(names_it).map_or(0, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::{Dependency, PURE_LINTS, Package, Report, Tree, check};

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependency = |text: &&str| match text.strip_prefix("dev:") {
            Some(name) => Dependency { name: name.to_owned(), dev: true },
            None => Dependency { name: (*text).to_owned(), dev: false },
        };
        Package {
            name: name.to_owned(),
            folder: format!("crates/{name}"),
            has_lib: true,
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    /// Checks one crate among all others, and expects a finding that holds `what`, or none.
    fn expect(name: &str, dependencies: &[&str], what: Option<&str>) {
        let lints = format!("crates/{name}/clippy.toml");
        let manifest = format!("crates/{name}/Cargo.toml");
        let lines = format!("[dependencies]\n{}.workspace = true\n", dependencies.join("\n"));
        let tree = Tree::sample(&[(PURE_LINTS, "x"), (&lints, "x"), (&manifest, &lines)]);
        let mut packages = vec![package(name, dependencies)];
        for other in ["kernel", "journal", "node", "queue", "sale", "http-edge", "bench"] {
            if other != name {
                packages.push(package(other, &[]));
            }
        }
        let mut report = Report::default();
        check(&packages, &tree, &mut report);
        let own: Vec<_> = report.findings.iter().filter(|f| f.path == manifest).collect();
        match what {
            None => assert!(own.is_empty(), "{own:?}"),
            Some(what) => assert!(own.len() == 1 && own[0].what.contains(what), "{own:?}"),
        }
    }

    #[test]
    fn allowed_directions_pass() {
        expect("shard", &["kernel", "journal", "tokio", "dev:sale"], None);
        expect("node", &["kernel", "queue", "sale"], None);
        expect("queue", &["kernel", "bytes", "dev:rand"], None);
        expect("stampede", &["node", "http-edge"], None);
    }

    #[test]
    fn a_dependency_the_other_way_is_found() {
        expect("kernel", &["journal"], Some("wrong way"));
        expect("sim", &["http-edge"], Some("wrong way"));
        expect("stampede", &["bench"], Some("wrong way"));
        expect("queue", &["sale"], Some("wrong way"));
    }

    #[test]
    fn machines_do_not_know_each_other_even_in_tests() {
        expect("queue", &["dev:sale"], Some("not even test"));
    }

    #[test]
    fn machines_stay_pure() {
        expect("queue", &["tokio"], Some("must stay pure"));
        expect("kernel", &["serde_json"], Some("must stay pure"));
    }

    #[test]
    fn an_unknown_crate_must_be_added() {
        expect("eighth", &[], Some("add it there"));
    }

    #[test]
    fn a_machine_carries_the_lints_of_the_kernel() {
        let found = |files: &[(&str, &str)]| {
            let mut report = Report::default();
            check(&[package("queue", &[])], &Tree::sample(files), &mut report);
            report.findings.len()
        };
        assert_eq!(found(&[(PURE_LINTS, "x")]), 1);
        assert_eq!(found(&[(PURE_LINTS, "x"), ("crates/queue/clippy.toml", "y")]), 1);
        assert_eq!(found(&[(PURE_LINTS, "x"), ("crates/queue/clippy.toml", "x")]), 0);
    }
}
