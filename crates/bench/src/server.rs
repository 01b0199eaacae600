//! The server under test: the real binary, in a process of its own.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;

use crate::http1::Client;
use crate::proc::Setup;

/// How long a server may take to be ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// The server's binary: the one given, or else built the way this program was.
pub(crate) fn binary(setup: &Setup) -> Result<PathBuf> {
    if let Some(path) = &setup.server {
        ensure!(path.is_file(), "there is no {}", path.display());
        return Ok(path.clone());
    }
    let own = std::env::current_exe().context("this program's own path")?;
    let folder = own.parent().context("a program lies in a folder")?;
    let target = folder.parent().context("and that in the target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "stampede", "--target-dir"]).arg(target);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().context("cargo")?;
    ensure!(status.success(), "the server does not build");
    let path = folder.join("stampede");
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(path)
}

/// A running server.
pub(crate) struct Server {
    process: Child,
    /// Where it listens.
    pub(crate) addr: SocketAddr,
    admin_key: Arc<Mutex<Option<String>>>,
}

/// An address that nobody listens on.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

impl Server {
    /// Starts it on `data`, without waiting.
    pub(crate) fn spawn(
        binary: &Path,
        data: &Path,
        addr: SocketAddr,
        options: &[&str],
    ) -> Result<Server> {
        let mut process = Command::new(binary)
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args(["--listen", &addr.to_string(), "--log", "warn"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let admin_key = Arc::new(Mutex::new(None));
        let found = Arc::clone(&admin_key);
        let lines = BufReader::new(process.stdout.take().context("asked for")?);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let key = line.split_whitespace().find(|word| word.starts_with("sk_"));
                if let Some(key) = key {
                    *found.lock() = Some(key.to_owned());
                }
            }
        });
        Ok(Server { process, addr, admin_key })
    }

    /// Starts it, and waits until it is ready.
    pub(crate) fn start(binary: &Path, data: &Path, options: &[&str]) -> Result<Server> {
        let mut server = Server::spawn(binary, data, free_address()?, options)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Waits until `/readyz` says so.
    pub(crate) fn wait_until_ready(&mut self) -> Result<Duration> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("the server ended with {status}");
            }
            let answer =
                Client::connect(self.addr, "").and_then(|mut c| c.ask("GET", "/readyz", ""));
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(started.elapsed());
            }
            ensure!(started.elapsed() < READY_MAX, "the server is not ready after {READY_MAX:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The key that it showed when it first started.
    pub(crate) fn admin_key(&self) -> Result<String> {
        self.admin_key.lock().clone().context("the server showed no admin key")
    }

    /// Its number.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill().context("cannot kill the server")?;
        self.process.wait().context("cannot wait for the server")?;
        Ok(())
    }
}

/// None outlives the bench.
impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}
