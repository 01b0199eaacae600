//! Durable commands, against bare writes and syncs of the same bytes in the same batches.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kernel::Envelope;
use kernel::limits::CHECKPOINT_BYTES;
use node::{Node, NodeConfig};
use recents::Recents;
use shard::Machines;
use tokio::runtime::Runtime;

use crate::disk::{Floor, Op, Tape, TapedDisk, summary};
use crate::engine::{Engine, EngineOptions};
use crate::machines::{self, Counter};
use crate::proc::Setup;
use crate::stats::{median, per_second};
use crate::table::{Figure, Line, Target};

const TARGET: Target = Target::AtLeast(0.7);
const COMMAND_BYTES: usize = 100;
const USERS: u64 = 100_000;

/// What clients submit to.
#[derive(Clone)]
enum Way {
    Engine(Arc<Engine>),
    Node(Node),
}

impl Way {
    async fn submit(&self, envelope: Envelope) -> bool {
        match self {
            Way::Engine(engine) => engine.submit(envelope).await.is_ok(),
            Way::Node(node) => node.submit(kernel::VirtualShard(0), envelope).await.is_ok(),
        }
    }
}

/// Commands acknowledged, and how long that took.
struct Done {
    commands: u64,
    took: Duration,
}

impl Done {
    fn rate(&self) -> f64 {
        per_second(self.commands, self.took)
    }
}

/// Many clients, each with one command on the way.
fn drive(
    runtime: &Runtime,
    way: &Way,
    clients: usize,
    lasts: Duration,
    make: fn(u64) -> Envelope,
) -> Result<Done> {
    let stop = Arc::new(AtomicBool::new(false));
    let numbers = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (way, stop, numbers) = (way.clone(), Arc::clone(&stop), Arc::clone(&numbers));
            runtime.spawn(async move {
                let mut done = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    done += u64::from(way.submit(make(number)).await);
                }
                done
            })
        })
        .collect();
    std::thread::sleep(lasts);
    stop.store(true, Ordering::Relaxed);
    let mut commands = 0;
    for task in tasks {
        commands += runtime.block_on(task).context("a client panicked")?;
    }
    Ok(Done { commands, took: started.elapsed() })
}

/// One way to append, with its rounds so far.
struct Subject {
    name: &'static str,
    what: &'static str,
    way: Way,
    tape: Option<Tape>,
    make: fn(u64) -> Envelope,
    ours: Vec<f64>,
    floor: Vec<f64>,
    ratios: Vec<f64>,
    last_tape: Vec<Op>,
}

impl Subject {
    fn line(&self, clients: usize) -> Line {
        let figure = |rates: &[f64]| Figure::new(median(rates), "/s");
        let (ours, floor) = (figure(&self.ours), figure(&self.floor));
        let (syncs, bytes) = summary(&self.last_tape);
        Line::ratio(self.name, TARGET, median(&self.ratios), ours, floor, self.what)
            .note(format!("{clients} clients; {bytes:.0} bytes a sync in {syncs} syncs a round"))
    }
}

fn engine_subject(
    dir: &Path,
    name: &'static str,
    what: &'static str,
    machine: Machines,
    make: fn(u64) -> Envelope,
) -> Result<Subject> {
    let tape = Tape::default();
    let options = EngineOptions {
        machines: machine,
        disk: Arc::new(TapedDisk::new(tape.clone())),
        checkpoint_bytes: CHECKPOINT_BYTES,
    };
    let way = Way::Engine(Arc::new(Engine::start(&dir.join(name), options)?));
    Ok(subject(name, what, way, Some(tape), make))
}

fn subject(
    name: &'static str,
    what: &'static str,
    way: Way,
    tape: Option<Tape>,
    make: fn(u64) -> Envelope,
) -> Subject {
    let (ours, floor, ratios) = (Vec::new(), Vec::new(), Vec::new());
    Subject { name, what, way, tape, make, ours, floor, ratios, last_tape: Vec::new() }
}

fn subjects(dir: &Path) -> Result<Vec<Subject>> {
    let config =
        NodeConfig { data_dir: dir.join("node"), shards: Some(1), ..NodeConfig::default() };
    let search = |number| machines::search(COMMAND_BYTES, USERS, number);
    Ok(vec![
        engine_subject(
            dir,
            "append",
            "durable commands of 100 bytes through inbox, shard, file log and a machine that \
             counts them, against pwrite and fdatasync of the same bytes in the same batches",
            Machines::default().with(Box::new(Counter)),
            |number| machines::count(COMMAND_BYTES, number),
        )?,
        engine_subject(
            dir,
            "append-recents",
            "the same with searches, which write four rows each and checkpoint",
            Machines::default().with(Box::<Recents>::default()),
            search,
        )?,
        subject(
            "append-node",
            "the same through Node::submit; the batches of the floor are those of append-recents, \
             because the node's own disk keeps no tape",
            Way::Node(Node::start(config)?),
            None,
            search,
        ),
    ])
}

pub(crate) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let scratch = setup.scratch("append")?;
    let mut floor = Floor::new(&scratch.path().join("floor")).context("the floor's file")?;
    let lasts = setup.size(Duration::from_secs(3), Duration::from_millis(300));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut subjects = subjects(scratch.path())?;
    for subject in &subjects {
        drive(&runtime, &subject.way, setup.clients, lasts / 3, subject.make)?;
    }
    for _ in 0..setup.size(5, 1) {
        let mut tape = Vec::new();
        let mut taped_commands = 0;
        for subject in &mut subjects {
            subject.tape.as_ref().map(Tape::take);
            let done = drive(&runtime, &subject.way, setup.clients, lasts, subject.make)?;
            if let Some(recorder) = &subject.tape {
                tape = recorder.take();
                taped_commands = done.commands;
            }
            let took = floor.play(&tape).context("the floor")?;
            let bare = per_second(taped_commands, took);
            subject.ours.push(done.rate());
            subject.floor.push(bare);
            subject.ratios.push(done.rate() / bare);
            subject.last_tape.clone_from(&tape);
        }
    }
    let lines = subjects.iter().map(|subject| subject.line(setup.clients)).collect();
    for subject in subjects {
        if let Way::Node(node) = subject.way {
            node.shutdown_blocking();
        }
    }
    Ok(lines)
}
