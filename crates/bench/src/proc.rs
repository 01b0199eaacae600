//! Processes: how a run is set up, parts in processes of their own, memory and time used.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How a run is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Small sizes.
    pub(crate) smoke: bool,
    /// Where results and data go.
    pub(crate) out: PathBuf,
    /// The server to be tested, if it is not to be built.
    pub(crate) server: Option<PathBuf>,
    /// Of the load generator.
    pub(crate) connections: usize,
    /// Tasks that submit commands in process.
    pub(crate) clients: usize,
}

impl Setup {
    /// One of two sizes.
    pub(crate) fn size<T>(&self, full: T, smoke: T) -> T {
        if self.smoke { smoke } else { full }
    }

    /// An empty folder on the disk that results go to.
    pub(crate) fn scratch(&self, name: &str) -> Result<Scratch> {
        let name = format!("data-{name}-{}", std::process::id());
        let path = std::path::absolute(self.out.join(name)).context("the current folder")?;
        if path.exists() {
            std::fs::remove_dir_all(&path)
                .with_context(|| format!("cannot empty {}", path.display()))?;
        }
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }
}

/// A folder that is removed with its contents.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("bench: {} is left behind: {error}", self.0.display());
        }
    }
}

/// A part that runs in a process of its own, and says what it has to say a line at a time.
pub(crate) struct Child {
    process: std::process::Child,
    lines: BufReader<ChildStdout>,
}

impl Child {
    /// Starts this program in another role.
    pub(crate) fn start(role: &str, args: &impl Serialize) -> Result<Child> {
        let program = std::env::current_exe().context("this program's own path")?;
        let mut process = Command::new(program)
            .args(["child", role, &serde_json::to_string(args).context("arguments")?])
            // Its end, when this process is gone, is the child's end.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start child {role}"))?;
        let lines = BufReader::new(process.stdout.take().context("asked for")?);
        Ok(Child { process, lines })
    }

    /// What it says next.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let count = self.lines.read_line(&mut line).context("cannot read from a child")?;
        if count == 0 {
            bail!("a child ended without an answer: {}", self.process.wait()?);
        }
        serde_json::from_str(&line).with_context(|| format!("a child said {line}"))
    }

    /// SIGKILL: it gets no chance to tidy up.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill().context("cannot kill a child")?;
        self.process.wait().context("cannot wait for a child")?;
        Ok(())
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn finish(mut self) -> Result<()> {
        let stdin = self.process.stdin.take();
        let status = self.process.wait().context("cannot wait for a child")?;
        drop(stdin);
        if !status.success() {
            bail!("a child ended with {status}");
        }
        Ok(())
    }
}

/// None outlives the bench.
impl Drop for Child {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

/// Says something to the parent.
pub(crate) fn say(message: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(message).context("a message")?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("the parent is gone")
}

/// The arguments of a child, which from now on ends with its parent.
pub(crate) fn child_args<T: DeserializeOwned>(text: &str) -> Result<T> {
    std::thread::spawn(|| {
        let _end = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    serde_json::from_str(text).context("the arguments of a child")
}

/// A field of `/proc/self/status`, in KiB.
pub(crate) fn status_kib(field: &str) -> Result<u64> {
    status_kib_of(std::process::id(), field)
}

/// A field of a process's `/proc/PID/status`, in KiB.
pub(crate) fn status_kib_of(process: u32, field: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).context(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|n| n.parse().ok()).with_context(|| format!("no {field} in the status"))
}

/// Processor time that a process has used so far, in hundredths of a second.
pub(crate) fn cpu_ticks(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).context(path)?;
    // The name may hold anything, and ends with the last parenthesis.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
    Ok(field(11).context("utime")? + field(12).context("stime")?)
}

/// Bytes on the disk of all files below a folder. What vanishes meanwhile counts for nothing.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(of).sum()
}

/// Waits until this process does nothing, so that what is left over of one round does not weigh
/// on the next.
pub(crate) fn wait_until_quiet(at_most: Duration) -> Result<()> {
    let started = Instant::now();
    let own = std::process::id();
    while started.elapsed() < at_most {
        let before = cpu_ticks(own)?;
        std::thread::sleep(Duration::from_millis(500));
        if cpu_ticks(own)? <= before + 3 {
            return Ok(());
        }
    }
    Ok(())
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The machine's load average over the last minute.
pub(crate) fn load_average() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    let first = text.split_whitespace().next().and_then(|first| first.parse().ok());
    first.context("/proc/loadavg holds no number")
}
