//! Programs from outside cargo, installed on Debian when they are missing.

use std::io::IsTerminal;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A program that something here starts.
#[derive(Debug)]
pub(crate) struct Need {
    /// What is looked for on the `PATH`.
    pub(crate) binary: &'static str,
    /// A command line that must succeed too, where the program alone is not enough.
    pub(crate) must_run: &'static [&'static str],
    /// The Debian package that brings it.
    pub(crate) package: &'static str,
    /// Who uses it.
    pub(crate) why: &'static str,
}

/// Installs what is missing, and only that; asks the network for nothing when all is there.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    ensure_where(needs, is_there)
}

/// The same for programs that do not lie on the `PATH`; `found` says whether one is there.
pub(crate) fn ensure_where(needs: &[Need], found: impl Fn(&Need) -> bool) -> Result<()> {
    let missing = missing(needs, &found);
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        println!("missing: {} ({})", need.package, need.why);
    }
    let by_hand = by_hand(&missing);
    if !shell::on_path("apt-get") {
        bail!("there is no apt-get here. {by_hand}");
    }
    shell::run(apt_get(&by_hand)?.arg("update")).context(by_hand.clone())?;
    let mut install = apt_get(&by_hand)?;
    install.args(["install", "-y", "--no-install-recommends"]);
    install.args(missing.iter().map(|need| need.package));
    shell::run(&mut install).context(by_hand.clone())?;

    let still = self::missing(needs, &found);
    if !still.is_empty() {
        let names: Vec<_> = still.iter().map(|need| need.package).collect();
        bail!("installed, but not found or not running: {}", names.join(", "));
    }
    Ok(())
}

pub(crate) fn missing(needs: &[Need], found: impl Fn(&Need) -> bool) -> Vec<&Need> {
    needs.iter().filter(|need| !found(need)).collect()
}

fn is_there(need: &Need) -> bool {
    let runs = || match need.must_run {
        [] => true,
        [program, args @ ..] => shell::read(shell::command(*program).args(args)).is_ok(),
    };
    shell::on_path(need.binary) && runs()
}

fn by_hand(missing: &[&Need]) -> String {
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    format!("Install by hand, then run this again: {}", packages.join(" "))
}

fn apt_get(by_hand: &str) -> Result<Command> {
    let mut command = as_root(by_hand)?;
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    Ok(command)
}

/// A command that waits for its variables, program and arguments, and runs them as root.
/// `otherwise` is said where nobody can become root.
pub(crate) fn as_root(otherwise: &str) -> Result<Command> {
    let is_root = shell::read(shell::command("id").arg("-u"))?.trim() == "0";
    Ok(if is_root {
        shell::command("env")
    } else if shell::on_path("sudo") {
        let mut sudo = shell::command("sudo");
        // Nobody is there to type a password: fail at once rather than wait for one.
        if std::env::var_os("CI").is_some() || !std::io::stdin().is_terminal() {
            sudo.arg("-n");
        }
        // After sudo, because sudo clears the environment.
        sudo.arg("env");
        sudo
    } else {
        bail!("this needs root, and there is no sudo here. {otherwise}");
    })
}

#[cfg(test)]
mod tests {
    use super::{Need, by_hand, is_there, missing};

    const NEEDS: &[Need] = &[
        Need { binary: "curl", must_run: &[], package: "curl", why: "the tour" },
        Need { binary: "c++", must_run: &[], package: "g++", why: "libfuzzer" },
    ];

    #[test]
    fn nothing_is_missing_when_all_is_found() {
        assert!(missing(NEEDS, |_| true).is_empty());
    }

    #[test]
    fn program_that_does_not_run_as_it_must_is_missing() {
        let sh = |must_run| Need { binary: "sh", must_run, package: "dash", why: "this test" };
        assert!(is_there(&sh(&[])) && is_there(&sh(&["sh", "-c", "exit 0"])));
        assert!(!is_there(&sh(&["sh", "-c", "exit 1"])));
    }

    #[test]
    fn a_missing_program_is_asked_for_by_its_package() {
        let missing = missing(NEEDS, |need| need.binary == "curl");
        assert_eq!(by_hand(&missing), "Install by hand, then run this again: g++");
    }
}
