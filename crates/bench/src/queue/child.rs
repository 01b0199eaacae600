//! A server of others, started in a folder of its own, and surely ended.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a server may take to listen.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long it may take to end when it is asked to.
const END_MAX: Duration = Duration::from_secs(10);

/// Where servers lie that a user's `PATH` does not lead to.
const MORE_FOLDERS: &[&str] = &["/usr/sbin", "/usr/local/sbin"];

/// A program on the `PATH`, or where servers lie.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = MORE_FOLDERS.iter().map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(more);
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
}

/// What a program says about its version, on one line.
pub(crate) fn version(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or("unknown version").to_owned()
}

/// A user whose rights a server takes on, because it refuses to run as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) group: u32,
}

impl User {
    pub(crate) fn named(name: &str) -> Result<Option<User>> {
        let users = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.into_iter().find(|fields| fields.first() == Some(&name));
        let number = |fields: &[&str], at: usize| fields.get(at).and_then(|n| n.parse().ok());
        Ok(found.and_then(|f| Some(User { id: number(&f, 2)?, group: number(&f, 3)? })))
    }
}

/// A program that gets a signal when the bench ends, however that ends.
pub(crate) fn command(program: &Path, user: Option<User>, end: Signal) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(User { id, group }) = user {
        command.arg(format!("--reuid={id}")).arg(format!("--regid={group}"));
        command.arg("--clear-groups");
    }
    let end = if end == Signal::QUIT { "QUIT" } else { "KILL" };
    command.args(["--pdeathsig", end, "--"]).arg(program);
    command.stdin(Stdio::null());
    command
}

/// A running server.
pub(crate) struct Child {
    process: std::process::Child,
    end: Signal,
    log: PathBuf,
}

impl Child {
    /// Starts a program as `command` made it; what it says goes to a file in `folder`.
    pub(crate) fn start(
        program: &Path,
        user: Option<User>,
        end: Signal,
        folder: &Path,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<Child> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let log = folder.join(format!("{name}.out"));
        let file = std::fs::File::create(&log).context("a server's log")?;
        let mut command = command(program, user, end);
        arguments(&mut command);
        // A group of its own, so that all of it can be ended.
        let command = command.process_group(0).current_dir(folder);
        let process = command.stdout(file.try_clone()?).stderr(file).spawn();
        let process = process.with_context(|| format!("cannot start {name} with setpriv"))?;
        Ok(Child { process, end, log })
    }

    /// Waits until somebody listens there.
    pub(crate) fn wait_until_listening(&mut self, addr: SocketAddr) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(addr).is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("it ended with {status}, and said:\n{}", self.said());
            }
            ensure!(started.elapsed() < READY_MAX, "it does not listen; it said:\n{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The last lines of what it said.
    pub(crate) fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Asks it to end if it can be asked, and then makes it.
    fn end(&mut self) -> Result<()> {
        let pid = Pid::from_child(&self.process);
        if self.end != Signal::KILL {
            let _gone = kill_process(pid, self.end);
            let started = Instant::now();
            while self.process.try_wait()?.is_none() && started.elapsed() < END_MAX {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let _gone = kill_process_group(pid, Signal::KILL);
        self.process.wait()?;
        Ok(())
    }
}

/// None outlives the bench.
impl Drop for Child {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("bench: process {} is left behind: {error}", self.process.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Stdio;

    use rustix::process::{Pid, Signal, test_kill_process};

    use super::{Child, find};

    #[test]
    fn a_server_ends_with_its_handle() {
        let folder = std::env::temp_dir();
        let child = Child::start(Path::new("sleep"), None, Signal::KILL, &folder, |command| {
            command.arg("1000").stdin(Stdio::null());
        });
        let child = child.unwrap();
        let pid = Pid::from_child(&child.process);
        assert!(test_kill_process(pid).is_ok());
        drop(child);
        assert!(test_kill_process(pid).is_err());
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert!(find("sh").is_some());
        assert!(find("a-server-that-nobody-wrote").is_none());
    }
}
