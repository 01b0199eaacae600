//! Opening after kill -9: seconds from the start of a node to readiness, after a log of 1 GiB.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use kernel::{ShardId, VirtualShard};
use node::{Node, NodeConfig, shard_folder};
use serde::{Deserialize, Serialize};

use crate::filler::{FillArgs, Filled};
use crate::machines;
use crate::proc::{Child, Setup, child_args, say, status_kib};
use crate::replay::read_and_sum;
use crate::stats::median;
use crate::table::{Figure, Line, Target};

const TARGET: Target = Target::AtMost(5.0);

/// For the child that opens.
#[derive(Serialize, Deserialize)]
struct OpenArgs {
    data: PathBuf,
}

/// For the child that serves.
#[derive(Serialize, Deserialize)]
struct ServeArgs {
    data: PathBuf,
    /// Of commands, before it says so.
    bytes: u64,
    command_bytes: usize,
    users: u64,
}

#[derive(Serialize, Deserialize)]
struct OpenedIn {
    seconds: f64,
    peak_kib: u64,
}

fn config(data: &Path) -> NodeConfig {
    NodeConfig { data_dir: data.to_owned(), shards: Some(1), ..NodeConfig::default() }
}

/// Opens a node and says how long that took. Ends without tidying up.
pub(crate) fn child(args: &str) -> Result<()> {
    let args: OpenArgs = child_args(args)?;
    let started = Instant::now();
    let node = Node::start(config(&args.data))?;
    let seconds = started.elapsed().as_secs_f64();
    ensure!(node.readiness().is_ready(), "the node is not ready: {:?}", node.readiness());
    say(&OpenedIn { seconds, peak_kib: status_kib("VmHWM")? })?;
    std::process::exit(0);
}

/// A node that serves searches as fast as it can until it is killed; says when their commands
/// have come to so many bytes. Checkpoints happen when the node wants them.
pub(crate) fn served_child(args: &str) -> Result<()> {
    const CLIENTS: usize = 512;
    let ServeArgs { data, bytes, command_bytes, users } = child_args(args)?;
    let node = Node::start(config(&data))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build().context("a runtime")?;
    let goal = bytes / command_bytes as u64;
    let numbers = Arc::new(AtomicU64::new(0));
    let (done, full) = std::sync::mpsc::channel();
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (node, numbers, done) = (node.clone(), Arc::clone(&numbers), done.clone());
            runtime.spawn(async move {
                loop {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let search = machines::search(command_bytes, users, number);
                    if node.submit(VirtualShard(0), search).await.is_err() {
                        break;
                    }
                    if number >= goal && done.send(()).is_err() {
                        break;
                    }
                }
            })
        })
        .collect();
    drop(done);
    full.recv().context("the node takes no more")?;
    say(&Filled { commands: goal, bytes: goal * command_bytes as u64 })?;
    for task in tasks {
        runtime.block_on(task).context("a client panicked")?;
    }
    bail!("nobody has killed this process");
}

struct Subject {
    name: &'static str,
    command_bytes: usize,
    users: u64,
    what: &'static str,
}

/// What a user sees: a node that was killed while it served, with its own checkpoints behind it.
fn measure_served(setup: &Setup) -> Result<Line> {
    let (mut ours, mut commands) = (Vec::new(), 0);
    for _ in 0..setup.size(3, 1) {
        let scratch = setup.scratch("open-served")?;
        let data = scratch.path().to_owned();
        let bytes = setup.size(1 << 30, 4 << 20);
        let serve = ServeArgs { data: data.clone(), bytes, command_bytes: 256, users: 200_000 };
        let mut serving = Child::start("served", &serve)?;
        commands = serving.next::<Filled>()?.commands;
        serving.kill()?;
        let mut opening = Child::start("open", &OpenArgs { data })?;
        ours.push(opening.next::<OpenedIn>()?.seconds);
        opening.finish()?;
    }
    let worst = ours.iter().copied().fold(0.0, f64::max);
    let figure = |seconds| Figure::new(seconds, " s");
    let what = "the worst of three, after a node with its usual settings was killed while it \
                served 1 GiB of searches of 256 bytes, against the median";
    let line = Line::figure("open-served", TARGET, figure(worst), figure(median(&ours)), what);
    Ok(line.note(format!("{commands} commands and more before each kill")))
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "open-1k",
        command_bytes: 1024,
        users: 20_000,
        what: "seconds of Node::start after kill -9, with 1 GiB of searches of 1 KiB in one \
               shard's log and none of them in its rows, against reading and checksumming the \
               log's files",
    },
    Subject {
        name: "open-100",
        command_bytes: 100,
        users: 200_000,
        what: "the same with searches of 100 bytes, ten times as many",
    },
];

fn measure(setup: &Setup, subject: &Subject) -> Result<Line> {
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    let (mut commands, mut peak_kib) = (0, 0);
    for _ in 0..setup.size(3, 1) {
        let scratch = setup.scratch(subject.name)?;
        let data = scratch.path().to_owned();
        // The folder as a node makes it, settings included.
        Node::start(config(&data))?.shutdown_blocking();
        let log = shard_folder(&data, ShardId(0)).join("log");
        let fill = FillArgs {
            log: log.clone(),
            bytes: setup.size(1 << 30, 16 << 20),
            command_bytes: subject.command_bytes,
            users: subject.users,
        };
        let mut filling = Child::start("fill", &fill)?;
        let filled: Filled = filling.next()?;
        commands = filled.commands;
        filling.kill()?;
        floors.push(read_and_sum(&log, filled.bytes)?.as_secs_f64());
        let mut opening = Child::start("open", &OpenArgs { data })?;
        let opened: OpenedIn = opening.next()?;
        opening.finish()?;
        ours.push(opened.seconds);
        peak_kib = peak_kib.max(opened.peak_kib);
    }
    let figure = |values: &[f64]| Figure::new(median(values), " s");
    Ok(Line::figure(subject.name, TARGET, figure(&ours), figure(&floors), subject.what).note(
        format!(
            "{commands} commands, {} a second; at most {} MiB resident; the file cache is warm, \
             as after any kill -9",
            crate::stats::short(commands as f64 / median(&ours).max(1e-9)),
            peak_kib / 1024
        ),
    ))
}

pub(crate) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let mut lines = vec![measure_served(setup)?];
    for subject in SUBJECTS {
        lines.push(measure(setup, subject)?);
    }
    Ok(lines)
}
