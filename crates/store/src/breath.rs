//! Background work that leaves the processor every moment.
//!
//! A thread that computes without a pause may keep its processor until the system's next tick, however
//! low its priority: up to 4 ms with a tick of 250 Hz. Commits wait behind it, because the kernel's own
//! thread that takes a flush to the disk is bound to a processor, and a woken thread to the one it slept
//! on. So checkpoints, merges and whoever frees their memory sleep for a moment after each fraction of a
//! millisecond. `docs/decisions/006` has the figures.
//!
//! Merges are the store's own loop, which shows the rows that it keeps to a filter; ours keeps them all, and
//! breathes. What a merge drops (deletions, and rows under them) it does not show: there it has no breath.

use std::time::{Duration, Instant};

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};

/// Work between two breaths.
const WORK: Duration = Duration::from_micros(200);
/// How long one is where nothing else is said. The system's timers add about as much again.
pub const BREATH: Duration = Duration::from_micros(50);

/// Of one thread. See the module.
#[derive(Debug)]
pub struct Breath {
    worked_since: Instant,
}

impl Default for Breath {
    fn default() -> Breath {
        Breath { worked_since: Instant::now() }
    }
}

impl Breath {
    /// To be called after each small piece of work.
    pub fn breathe(&mut self) {
        self.breathe_for(|_worked| BREATH);
    }

    /// The same, with a rest that depends on how long was worked.
    pub fn breathe_for(&mut self, rest: impl FnOnce(Duration) -> Duration) {
        if let Some(worked) = self.worked_at(Instant::now()) {
            std::thread::sleep(rest(worked));
            #[cfg(test)]
            tests::BREATHS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.worked_since = Instant::now();
        }
    }

    /// How long was worked, if that is enough.
    fn worked_at(&self, now: Instant) -> Option<Duration> {
        let worked = now.saturating_duration_since(self.worked_since);
        (worked >= WORK).then_some(worked)
    }
}

/// Has merges breathe. See the module.
#[derive(Debug)]
pub(crate) struct Breathing;

impl Factory for Breathing {
    fn name(&self) -> &'static str {
        "breath"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Breath::default())
    }
}

impl CompactionFilter for Breath {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        self.breathe();
        Ok(Verdict::Keep)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kernel::rows::Scan;
    use kernel::{Base, Index, Rows};

    use super::*;
    use crate::options::LEVEL0_MERGED_AT;
    use crate::{FjallBase, StoreOptions};

    /// How often a breath was taken.
    pub(super) static BREATHS: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn a_breath_is_due_after_its_work_and_not_before() {
        let mut breath = Breath::default();
        let began = breath.worked_since;
        assert_eq!(breath.worked_at(began + WORK - Duration::from_nanos(1)), None);
        assert_eq!(breath.worked_at(began + WORK), Some(WORK));
        breath.worked_since = began + WORK;
        assert_eq!(breath.worked_at(began + WORK), None, "it begins anew");
    }

    #[test]
    fn a_breath_rests_as_long_as_is_said_and_then_works_again() {
        let long_ago = Instant::now().checked_sub(WORK).expect("the machine has run for longer");
        let mut breath = Breath { worked_since: long_ago };
        let rest = Duration::from_millis(3);
        breath.breathe_for(|worked| {
            assert!(worked >= WORK);
            rest
        });
        assert!(breath.worked_since >= long_ago + WORK + rest);
        breath.worked_since = Instant::now() + WORK;
        breath.breathe_for(|_| unreachable!("there was no work"));
    }

    #[test]
    fn a_merge_breathes_and_keeps_every_row() {
        // The first runs may only be moved down.
        const RUNS: usize = 3 * LEVEL0_MERGED_AT as usize;
        const OWN: usize = 3000;
        let folder = tempfile::tempdir().expect("a folder");
        let base = Arc::new(FjallBase::open(folder.path(), StoreOptions::default()).expect("open"));
        let mut rows = Rows::new(Arc::clone(&base) as Arc<dyn Base>);
        let key = |run: usize, number: usize| {
            [&[0, 9][..], format!("{number}/{run}").as_bytes()].concat()
        };
        for run in 1..=RUNS {
            // One that every run writes anew, and those of each run among those of the others.
            rows.put(key(0, 0), vec![7; run]);
            for number in 0..OWN {
                rows.put(key(run, number), vec![7; 100]);
            }
            base.ingest(&rows.freeze(), Index(run as u64), &|| {}).expect("taken");
            rows.thaw();
        }
        while base.level0_runs() >= usize::from(LEVEL0_MERGED_AT) {
            std::thread::yield_now();
        }
        assert!(BREATHS.load(Ordering::Relaxed) > 0, "a merge takes longer than it may work");
        assert_eq!(rows.scan(&Scan::all()).len(), 1 + RUNS * OWN);
        assert_eq!(rows.get(&key(0, 0)).map(|value| value.len()), Some(RUNS));
    }
}
