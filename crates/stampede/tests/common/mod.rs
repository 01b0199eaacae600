//! The binary, started as a user starts it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

pub(crate) fn stampede() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stampede"));
    command.env("STAMPEDE_LOG", "warn");
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A server; killed with SIGKILL when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// Of the first start on a folder.
    pub(crate) admin_key: Option<String>,
}

impl Server {
    /// On a port of its own.
    pub(crate) fn start(data: &Path, options: &[&str]) -> Server {
        Server::start_with(data, options, &[])
    }

    pub(crate) fn start_with(data: &Path, options: &[&str], variables: &[(&str, &str)]) -> Server {
        Server::start_at("127.0.0.1:0", data, options, variables)
    }

    pub(crate) fn start_at(
        listen: &str,
        data: &Path,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> Server {
        let mut command = stampede();
        command.envs(variables.iter().copied());
        command.args(["serve", "--listen", listen, "--data"]).arg(data).args(options);
        Server::wait_for(&mut command)
    }

    /// Until it is ready.
    pub(crate) fn wait_for(command: &mut Command) -> Server {
        let child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut server = Server { child, address: String::new(), admin_key: None };
        let stdout = server.child.stdout.take().expect("piped");
        for line in BufReader::new(stdout).lines() {
            let line = line.expect("text");
            if let Some(key) = line.strip_prefix("admin key, shown this once: ") {
                server.admin_key = Some(key.to_owned());
            }
            if let Some(address) = line.strip_prefix("stampede is ready on http://") {
                server.address = address.to_owned();
                return server;
            }
        }
        panic!("it ended without a word of being ready");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended, perhaps.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
