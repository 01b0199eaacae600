//! Half an hour of publishing and consuming at half of what is possible: throughput, memory and
//! disk of the last sixth against the first.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::flow::{self, Pace};
use crate::proc::{Setup, disk_bytes, status_kib_of};
use crate::queue::stampede::Stampede;
use crate::server::binary;
use crate::stats::short;
use crate::table::{Figure, Line, Target};

const QUEUE: &str = "q";
/// Where the most is found out: what is left over there is not acknowledged in the half hour.
const TRIED: &str = "tried";

/// What was seen in a second.
struct Second {
    acked: f64,
    resident_mib: f64,
    disk_mib: f64,
}

fn mean(seconds: &[Second], of: fn(&Second) -> f64) -> f64 {
    seconds.iter().map(of).sum::<f64>() / seconds.len().max(1) as f64
}

pub(super) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let scratch = setup.scratch("soak")?;
    let ours = Stampede::start(&binary(setup)?, scratch.path())?;
    flow::create(&ours, TRIED)?;
    flow::create(&ours, QUEUE)?;
    let connections = setup.connections;
    let warm_up = setup.size(Duration::from_secs(20), Duration::from_secs(1));
    let most = flow::run(&ours, TRIED, connections, Pace::AsFastAsItGoes, warm_up, |_| Ok(()))?;

    let lasts = setup.size(Duration::from_secs(30 * 60), Duration::from_secs(6));
    let mut seconds: Vec<Second> = Vec::new();
    let mut acked_before = 0;
    let process = ours.server.process();
    flow::run(&ours, QUEUE, connections, Pace::PerSecond(most / 2.0), lasts, |moved| {
        let acked = moved.acked.get();
        seconds.push(Second {
            acked: (acked - acked_before) as f64,
            resident_mib: status_kib_of(process, "VmRSS")? as f64 / 1024.0,
            disk_mib: disk_bytes(scratch.path()) as f64 / f64::from(1 << 20),
        });
        acked_before = acked;
        Ok(())
    })?;
    ensure!(seconds.len() > 1, "it was over after {} seconds", seconds.len());
    // A small run on a busy machine is looked at less than six times.
    let sixth = (seconds.len() / 6).max(1);
    let (first, last) = (&seconds[..sixth], &seconds[seconds.len() - sixth..]);
    let line = |name, target, unit, of: fn(&Second) -> f64, what| {
        let (before, after) = (mean(first, of), mean(last, of));
        let (ours, against) = (Figure::new(after, unit), Figure::new(before, unit));
        // What grows without end is told from what has grown once.
        let sixths: Vec<String> =
            seconds.chunks_exact(sixth).map(|sixth| short(mean(sixth, of))).collect();
        Line::ratio(name, target, after / before, ours, against, what).note(format!(
            "at {} messages a second, half of the most, for {} s; by sixths {}",
            short(most / 2.0),
            seconds.len(),
            sixths.join(", ")
        ))
    };
    Ok(vec![
        line(
            "soak-throughput",
            Target::AtLeast(0.95),
            "/s",
            |second| second.acked,
            "messages acknowledged a second in the last sixth of the time, against the first",
        ),
        line(
            "soak-memory",
            Target::AtMost(1.05),
            " MiB",
            |second| second.resident_mib,
            "resident memory in the last sixth of the time, against the first",
        ),
        line(
            "soak-disk",
            Target::AtMost(1.05),
            " MiB",
            |second| second.disk_mib,
            "bytes on the disk in the last sixth of the time, against the first",
        ),
    ])
}
