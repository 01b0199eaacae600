//! Background work that leaves the processor every moment.
//!
//! A thread that computes without a pause may keep its processor until the system's next tick, however
//! low its priority: up to 4 ms with a tick of 250 Hz. Commits wait behind it, because the kernel's own
//! thread that takes a flush to the disk is bound to a processor, and a woken thread to the one it slept
//! on. So checkpoints, merges and whoever frees their memory sleep for a moment after each fraction of a
//! millisecond. `docs/decisions/006` has the figures.

use std::time::{Duration, Instant};

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};

/// Work between two breaths.
const WORK: Duration = Duration::from_micros(200);
/// How long one is at least. The system's timers add about as much again.
const REST: Duration = Duration::from_micros(50);

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
        if self.is_due(Instant::now()) {
            std::thread::sleep(REST);
            self.worked_since = Instant::now();
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.worked_since) >= WORK
    }
}

/// Merges are the store's own loop. It shows every row to a filter; ours keeps them all, and breathes.
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
        #[cfg(test)]
        tests::MERGED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
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

    /// Rows that merges have shown to the filter.
    pub(super) static MERGED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn a_breath_is_due_after_its_work_and_not_before() {
        let mut breath = Breath::default();
        let began = breath.worked_since;
        assert!(!breath.is_due(began + WORK - Duration::from_nanos(1)));
        assert!(breath.is_due(began + WORK));
        breath.worked_since = began + WORK;
        assert!(!breath.is_due(began + WORK), "it begins anew");
    }

    #[test]
    fn a_breath_rests_and_then_works_again() {
        let long_ago = Instant::now().checked_sub(WORK).expect("the machine has run for longer");
        let mut breath = Breath { worked_since: long_ago };
        breath.breathe();
        assert!(breath.worked_since >= long_ago + WORK + REST);
    }

    #[test]
    fn a_merge_breathes_and_keeps_every_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = Arc::new(FjallBase::open(folder.path(), StoreOptions::default()).expect("open"));
        let mut rows = Rows::new(Arc::clone(&base) as Arc<dyn Base>);
        // The first ones may only be moved down.
        const RUNS: usize = 3 * LEVEL0_MERGED_AT;
        for run in 1..=RUNS {
            for number in 0..100_u32 {
                rows.put([&[0, 9][..], &number.to_be_bytes()].concat(), vec![7; run]);
            }
            base.ingest(&rows.freeze(), Index(run as u64), &|| {}).expect("taken");
            rows.thaw();
        }
        while base.level0_runs() >= LEVEL0_MERGED_AT {
            std::thread::yield_now();
        }
        let merged = MERGED.load(Ordering::Relaxed);
        assert!(merged >= 100, "{merged} rows were shown to the filter");
        let found = rows.scan(&Scan::all());
        assert_eq!(found.len(), 100);
        assert!(found.iter().all(|(_, value)| value.len() == RUNS));
    }
}
