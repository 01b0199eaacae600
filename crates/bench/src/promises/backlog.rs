//! Throughput of a queue in which millions wait, against that of an empty one on a server of its
//! own; and the memory it takes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::flow::{self, Pace};
use crate::proc::{Setup, disk_bytes, status_kib_of};
use crate::queue::stampede::Stampede;
use crate::server::binary;
use crate::stats::{median, short};
use crate::table::{Figure, Line, Target};

const QUEUE: &str = "q";

pub(super) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let program = binary(setup)?;
    let (full_data, empty_data) = (setup.scratch("backlog")?, setup.scratch("empty")?);
    let full = Stampede::start(&program, full_data.path())?;
    let empty = Stampede::start(&program, empty_data.path())?;
    for ours in [&full, &empty] {
        flow::create(ours, QUEUE)?;
    }
    let count = setup.size(10_000_000, 20_000);
    let started = Instant::now();
    flow::fill(&full, QUEUE, setup.connections, count)?;
    let filled = started.elapsed();
    let lasts = setup.size(Duration::from_secs(10), Duration::from_millis(300));
    let measure = |ours: &Stampede| {
        flow::run(ours, QUEUE, setup.connections, Pace::AsFastAsItGoes, lasts, |_| Ok(()))
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..=setup.size(5, 1) {
        let (rate_with, rate_without) = (measure(&full)?, measure(&empty)?);
        // The first one warms up.
        if round > 0 {
            with.push(rate_with);
            without.push(rate_without);
        }
    }
    let left = flow::left(&full, QUEUE)?;
    ensure!(left >= count / 2, "of {count} messages only {left} are left: nothing waited any more");
    let ratios: Vec<f64> =
        with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let memory =
        |field| Ok::<f64, anyhow::Error>(kib_as_gib(status_kib_of(full.server.process(), field)?));
    let throughput = Line::ratio(
        "backlog",
        Target::AtLeast(0.9),
        median(&ratios),
        Figure::new(median(&with), "/s"),
        Figure::new(median(&without), "/s"),
        "messages of 1 KiB a second, publish to acknowledgement, with a backlog against without",
    )
    .note(format!("{} waited at first and {} at the end", short(count as f64), short(left as f64)))
    .note(format!("filled in {:.0} s", filled.as_secs_f64()))
    .note(format!("{} bytes on the disk", short(disk_bytes(full_data.path()) as f64)));
    let peak = Line::figure(
        "backlog-memory",
        Target::AtMost(1.0),
        Figure::new(memory("VmHWM")?, " GiB"),
        Figure::new(kib_as_gib(status_kib_of(empty.server.process(), "VmHWM")?), " GiB"),
        "the most resident memory of the server with the backlog, against the one without",
    )
    .note(format!("{:.2} GiB at the end", memory("VmRSS")?));
    Ok(vec![throughput, peak])
}

fn kib_as_gib(kib: u64) -> f64 {
    kib as f64 / f64::from(1 << 20)
}
