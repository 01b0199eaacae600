//! Many timers that are due in one second: all of them, in order, none early, none twice, also
//! when the process is killed in the middle.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use journal::RealDisk;
use kernel::limits::CHECKPOINT_BYTES;
use kernel::rows::Scan;
use serde::{Deserialize, Serialize};
use shard::Machines;

use crate::engine::{Engine, EngineOptions};
use crate::machines::{Alarm, Book, fired_prefix, set_timer};
use crate::proc::{Child, Setup, child_args, say, wall_ms};
use crate::stats::Scramble;
use crate::table::{Figure, Line, Target};

const TARGET: Target = Target::AtMost(3.0);
const PAYLOAD_BYTES: usize = 64;
const BATCH: u64 = 512;

#[derive(Serialize, Deserialize)]
struct FireArgs {
    dir: PathBuf,
    count: u64,
    /// When the second begins; 0 when all timers have been set before.
    due_ms: u64,
}

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// All timers are set; this long before the second begins.
    Set { spare_ms: u64 },
    /// So many have fired.
    Fired(u64),
    /// All have fired.
    Done(Audit),
}

/// What the rows say in the end.
#[derive(Debug, Serialize, Deserialize)]
struct Audit {
    /// When the last one fired.
    done_ms: u64,
    fired: u64,
    distinct: u64,
    out_of_order: u64,
    early: u64,
}

impl Audit {
    fn check(&self, count: u64) -> Result<()> {
        ensure!(
            self.fired == count && self.distinct == count,
            "of {count} timers {} fired, {} different ones",
            self.fired,
            self.distinct
        );
        ensure!(self.out_of_order == 0, "{} timers fired out of order", self.out_of_order);
        ensure!(self.early == 0, "{} timers fired early", self.early);
        Ok(())
    }
}

/// Reads the rows: which timers fired, and how often.
fn audit(engine: &Engine, done_ms: u64) -> Result<Audit> {
    let book = Book::decode(engine.reader().get(&Book::key()))?;
    let mut distinct = 0;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let mut scan = Scan::prefix(&fired_prefix()).limit(20_000);
        if let Some(after) = &after {
            scan = scan.after(after);
        }
        let page = engine.reader().scan(&scan);
        let Some((last, _)) = page.last() else { break };
        after = Some(last.to_vec());
        distinct += page.len() as u64;
    }
    let Book { fired, out_of_order, early, .. } = book;
    Ok(Audit { done_ms, fired, distinct, out_of_order, early })
}

fn set_all(engine: &Engine, args: &FireArgs) -> Result<()> {
    let mut random = Scramble(11);
    let mut number = 0;
    while number < args.count {
        let end = (number + BATCH).min(args.count);
        let batch = (number..end)
            .map(|n| set_timer(args.due_ms + random.below(1000), n, PAYLOAD_BYTES))
            .collect();
        engine.feed(batch)?;
        number = end;
    }
    Ok(())
}

/// Sets timers and lets them fire, or opens a folder where some are left to fire.
pub(crate) fn child(args: &str) -> Result<()> {
    let args: FireArgs = child_args(args)?;
    let fired = Arc::new(AtomicU64::new(0));
    let options = EngineOptions {
        machines: Machines::default().with(Box::new(Alarm { fired: Arc::clone(&fired) })),
        disk: Arc::new(RealDisk),
        checkpoint_bytes: CHECKPOINT_BYTES,
    };
    let engine = Engine::start(&args.dir, options)?;
    if args.due_ms > 0 {
        set_all(&engine, &args)?;
        say(&Said::Set { spare_ms: args.due_ms.saturating_sub(wall_ms()) })?;
    }
    let mut told = Book::decode(engine.reader().get(&Book::key()))?.fired;
    fired.fetch_max(told, Ordering::AcqRel);
    while fired.load(Ordering::Acquire) < args.count {
        std::thread::sleep(Duration::from_millis(2));
        let now = fired.load(Ordering::Acquire);
        if now >= told + args.count / 50 {
            told = now;
            say(&Said::Fired(now))?;
        }
    }
    let done_ms = wall_ms();
    say(&Said::Done(audit(&engine, done_ms)?))?;
    std::process::exit(0);
}

/// Lets a child run to its end.
fn to_the_end(mut child: Child, count: u64) -> Result<(Audit, u64)> {
    let mut spare = 0;
    loop {
        match child.next()? {
            Said::Set { spare_ms } => {
                ensure!(spare_ms > 0, "setting the timers took longer than it was given");
                spare = spare_ms;
            }
            Said::Fired(_) => {}
            Said::Done(audit) => {
                child.finish()?;
                audit.check(count)?;
                return Ok((audit, spare));
            }
        }
    }
}

/// Kills a child in the middle of firing, and has another one go on.
fn killed(args: &FireArgs) -> Result<(Audit, u64)> {
    let mut child = Child::start("fire", args)?;
    let at_kill = loop {
        match child.next()? {
            Said::Fired(fired) if fired >= args.count * 2 / 5 => break fired,
            Said::Done(_) => anyhow::bail!("all timers had fired before it could be killed"),
            _ => {}
        }
    };
    child.kill()?;
    let args = FireArgs { dir: args.dir.clone(), count: args.count, due_ms: 0 };
    let (audit, _) = to_the_end(Child::start("fire", &args)?, args.count)?;
    Ok((audit, at_kill))
}

pub(crate) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let count: u64 = setup.size(1_000_000, 20_000);
    let lead_ms = setup.size(30_000, 2_000);
    let start = |name: &str| -> Result<_> {
        let scratch = setup.scratch(name)?;
        let dir = scratch.path().to_owned();
        Ok((scratch, FireArgs { dir, count, due_ms: wall_ms() + lead_ms }))
    };
    let late_s =
        |audit: &Audit, due_ms: u64| audit.done_ms.saturating_sub(due_ms + 1000) as f64 / 1000.0;
    let (_scratch, args) = start("fire")?;
    let (audit, spare_ms) = to_the_end(Child::start("fire", &args)?, count)?;
    let whole = late_s(&audit, args.due_ms);
    let (_scratch, args) = start("fire-killed")?;
    let (audit, at_kill) = killed(&args)?;
    let cut = late_s(&audit, args.due_ms);
    let allowed = Figure::new(3.0, " s");
    Ok(vec![
        Line::figure(
            "fire",
            TARGET,
            Figure::new(whole, " s"),
            allowed.clone(),
            "seconds from the end of the second in which all timers are due until the last one \
             has fired, against the 3 s allowed",
        )
        .note(format!("{count} timers, each fired once, in order, none early"))
        .note(format!("they were all set {spare_ms} ms before the second began")),
        Line::figure(
            "fire-killed",
            TARGET,
            Figure::new(cut, " s"),
            allowed,
            "the same with kill -9 in the middle, and the time to open again",
        )
        .note(format!("killed when {at_kill} of {count} had fired; each fired once, in order")),
    ])
}
