//! When a shard lets others go first.
//!
//! A yield before an append lets whoever is about to ask do so, and one sync serves more of them. With
//! a processor to spare it comes back at once. With none, Linux may give somebody else a whole slice,
//! which is milliseconds: then it is left alone for a while.

use std::time::{Duration, Instant};

/// A yield that took longer has cost more than it can have gained: about two syncs.
const WORTH_MAX: Duration = Duration::from_micros(200);
/// It is left alone for so many times as long as it took: a hundredth of all time would be p99.
const RESTS: u32 = 1000;
/// But not for longer than ten seconds: a process that was stopped meanwhile has taken long, too.
const TOOK_MAX: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Courtesy {
    resumes: Instant,
}

impl Courtesy {
    pub(crate) fn new() -> Courtesy {
        Courtesy { resumes: Instant::now() }
    }

    /// Lets others go first, if that has not lately been dear.
    pub(crate) fn yield_now(&mut self) {
        let began = Instant::now();
        if self.yields_at(began) {
            std::thread::yield_now();
            self.took(began, began.elapsed());
        }
    }

    fn yields_at(&self, now: Instant) -> bool {
        now >= self.resumes
    }

    fn took(&mut self, began: Instant, took: Duration) {
        if took > WORTH_MAX {
            self.resumes = began + took.min(TOOK_MAX) * RESTS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_yield_is_not_repeated_for_a_while_and_a_cheap_one_is() {
        let mut courtesy = Courtesy::new();
        let began = courtesy.resumes;
        courtesy.took(began, WORTH_MAX);
        assert!(courtesy.yields_at(began));
        let dear = Duration::from_millis(4);
        courtesy.took(began, dear);
        assert!(!courtesy.yields_at(began + dear * (RESTS - 1)));
        assert!(courtesy.yields_at(began + dear * RESTS));
        courtesy.took(began, Duration::from_secs(600));
        assert!(courtesy.yields_at(began + Duration::from_secs(10)), "however long it took");
    }
}
