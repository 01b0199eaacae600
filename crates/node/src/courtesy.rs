//! When a shard lets others go first.
//!
//! A yield before an append lets whoever is about to ask do so, and one sync serves more of them. With
//! a processor to spare it comes back at once. With none, Linux may give somebody else a whole slice,
//! which is milliseconds: then it is left alone for a while.

use std::time::{Duration, Instant};

/// A yield that took longer has cost more than it can have gained: about two syncs.
const WORTH_MAX: Duration = Duration::from_micros(200);
/// It is left alone for so many times as long as it took, so that it costs a hundredth at most.
const RESTS: u32 = 100;

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
        if began < self.resumes {
            return;
        }
        std::thread::yield_now();
        self.took(began, began.elapsed());
    }

    fn took(&mut self, began: Instant, took: Duration) {
        if took > WORTH_MAX {
            self.resumes = began + took * RESTS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_yield_is_not_repeated_before_it_has_cost_a_hundredth() {
        let mut courtesy = Courtesy::new();
        let began = courtesy.resumes;
        courtesy.took(began, WORTH_MAX);
        assert_eq!(courtesy.resumes, began, "a cheap one may be repeated at once");
        courtesy.took(began, Duration::from_millis(4));
        assert_eq!(courtesy.resumes, began + Duration::from_millis(400));
    }
}
