//! One seed, or many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::options::Options;
use crate::report::{Failure, Report};
use crate::world::World;

/// Failures after which exploring ends.
const FAILURES_MAX: usize = 5;
const THREADS: u64 = 2;

/// Simulates one seed.
///
/// # Errors
/// [`Failure`], which the same seed and options show again.
pub fn run(seed: u64, options: &Options) -> Result<Report, Failure> {
    let mut world = World::new(seed, options);
    // An assertion that fails in a machine is a find like any other.
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    match ended {
        Ok(Ok(())) => Ok(world.common.report.clone()),
        Ok(Err(what)) => Err(world.failure(seed, what)),
        Err(panic) => {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            let what = format!("panicked: {}", what.unwrap_or_default());
            Err(world.failure(seed, what))
        }
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The figures of the runs that ended well.
    pub report: Report,
    /// The runs that did not, by seed.
    pub failures: Vec<Failure>,
}

/// Simulates `runs` seeds from `first_seed` on, on two threads. `progress` hears of each run how
/// many are done.
pub fn explore(
    runs: u64,
    first_seed: u64,
    options: &Options,
    progress: &(dyn Fn(u64) + Sync),
) -> Summary {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let enough = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs || enough.load(Ordering::Relaxed) {
                        break;
                    }
                    let ended = run(first_seed.wrapping_add(number), options);
                    let mut summary = summary.lock();
                    match ended {
                        Ok(report) => summary.report.add(&report),
                        Err(failure) => summary.failures.push(failure),
                    }
                    enough.store(summary.failures.len() >= FAILURES_MAX, Ordering::Relaxed);
                    drop(summary);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let mut summary = summary.into_inner();
    summary.failures.sort_by_key(|failure| failure.seed);
    summary
}
