//! Clients of other people's making, from PyPI and npm, that tests start: `target/test-clients`.
//!
//! What is installed is pinned in `crates/stampede/tests/clients`, with all that it needs. It is
//! installed again only when the pins have changed, or the Python or Node that it was for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::needs::Need;
use crate::shell;

/// What installs and runs them.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        binary: "python3",
        must_run: &["python3", "-c", "import ensurepip, venv"],
        package: "python3-venv",
        why: "boto3, the AWS CLI and Celery, in folders of their own",
    },
    Need { binary: "node", must_run: &[], package: "nodejs", why: "sqs-consumer" },
    Need { binary: "npm", must_run: &[], package: "npm", why: "installs sqs-consumer" },
];

const PINS: &str = "crates/stampede/tests/clients";
/// Written last, into each folder: what it was installed from.
const STAMP: &str = "installed-from";

/// Installs what is not there as it is pinned; asks the network for nothing when all is.
pub(crate) fn ensure() -> Result<()> {
    ensure_python("venv", "requirements.txt")?;
    ensure_python("venv-old", "requirements-old.txt")?;
    ensure_node("node")
}

fn ensure_python(name: &str, requirements: &str) -> Result<()> {
    let place = Place::new(name, "python3", &[requirements])?;
    if place.is_fresh() {
        return Ok(());
    }
    place.clear()?;
    shell::run(shell::command("python3").args(["-m", "venv"]).arg(&place.folder))?;
    let mut install = shell::command(place.folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]);
    install.args(["--disable-pip-version-check", "--requirement"]);
    shell::run(install.arg(pins().join(requirements)))?;
    place.stamp()
}

fn ensure_node(name: &str) -> Result<()> {
    let files = ["package.json", "package-lock.json"];
    let place = Place::new(name, "node", &files)?;
    if place.is_fresh() {
        return Ok(());
    }
    place.clear()?;
    fs::create_dir_all(&place.folder)?;
    for file in files {
        fs::copy(pins().join(file), place.folder.join(file))?;
    }
    let mut install = shell::command("npm");
    install.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]);
    shell::run(install.current_dir(&place.folder))?;
    place.stamp()
}

fn pins() -> PathBuf {
    shell::root().join(PINS)
}

/// A folder that something is installed into.
struct Place {
    folder: PathBuf,
    /// What it should be installed from: the version of what runs it, and the pins as they are.
    source: String,
}

impl Place {
    fn new(name: &str, runner: &str, files: &[&str]) -> Result<Place> {
        let mut source = shell::read(shell::command(runner).arg("--version"))?;
        for file in files {
            let path = pins().join(file);
            let text = fs::read_to_string(&path);
            source += &text.with_context(|| format!("cannot read {}", path.display()))?;
        }
        Ok(Place { folder: shell::root().join("target/test-clients").join(name), source })
    }

    fn is_fresh(&self) -> bool {
        is_stamped(&self.folder, &self.source)
    }

    fn clear(&self) -> Result<()> {
        println!("installing {}", self.folder.display());
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        Ok(())
    }

    fn stamp(&self) -> Result<()> {
        Ok(fs::write(self.folder.join(STAMP), &self.source)?)
    }
}

fn is_stamped(folder: &Path, source: &str) -> bool {
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == source)
}

#[cfg(test)]
mod tests {
    use super::{Place, pins};

    #[test]
    fn folder_is_fresh_until_its_source_changes() {
        let folder = std::env::temp_dir().join(format!("xtask-clients-{}", std::process::id()));
        let place = |source: &str| Place { folder: folder.clone(), source: source.to_owned() };
        assert!(!place("a==1").is_fresh());
        std::fs::create_dir_all(&folder).expect("made");
        place("a==1").stamp().expect("written");
        assert!(place("a==1").is_fresh() && !place("a==2").is_fresh());
        place("a==2").clear().expect("removed");
        assert!(!folder.exists());
    }

    #[test]
    fn lock_names_no_registry() {
        let lock = std::fs::read_to_string(pins().join("package-lock.json")).expect("it is there");
        assert!(lock.contains("\"integrity\"") && !lock.contains("\"resolved\""));
    }
}
