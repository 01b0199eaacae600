//! Healing: nothing goes wrong any more, so everything pending must come to its end.

use super::{DAY_MS, World};
use crate::subject::Difference;

/// Rounds in which everything must be done. The post brings a few letters in each, and many hundreds
/// may have been written at a time.
const ROUNDS_MAX: u64 = 1000;
/// A machine that goes on with something later does so within this time.
const STEP_MS: u64 = 1000;

impl World {
    /// Heals, then lets years pass, so that every deadline comes, and heals again.
    pub(super) fn heal(&mut self) -> Result<(), Difference> {
        self.common.faulty = false;
        self.common.note("healing");
        for at in 0..self.seats.len() {
            let seat = &mut self.seats[at];
            seat.disk.set_free_bytes(1 << 40);
            seat.disk_full = false;
            if seat.disk_faulty {
                self.crash(at, crate::seat::Crash::Power);
            }
        }
        for days in [0, 2, 35, 400, 1200] {
            self.common.clock_ms += days * DAY_MS;
            self.common.note(format!("{days} days pass"));
            self.settle()?;
        }
        self.finish_steps()?;
        for at in 0..self.seats.len() {
            self.seats[at].check_healed(&self.common)?;
            self.seats[at].compare_replays(&mut self.common)?;
        }
        Ok(())
    }

    /// What is much is done in steps, each a moment after the one before: these moments pass, too.
    fn finish_steps(&mut self) -> Result<(), Difference> {
        for _ in 0..ROUNDS_MAX {
            let soon_ms = self.common.clock_ms + STEP_MS;
            let mut live = self.seats.iter().filter_map(|seat| seat.live.as_ref());
            if !live.any(|live| live.shard.wants_pulse(soon_ms)) {
                return Ok(());
            }
            self.common.clock_ms = soon_ms;
            self.settle()?;
        }
        Err(format!("a next step is still to come after {ROUNDS_MAX}"))
    }

    fn settle(&mut self) -> Result<(), Difference> {
        for _ in 0..ROUNDS_MAX {
            self.common.step += 1;
            for at in 0..self.seats.len() {
                self.heal_seat(at)?;
            }
            self.retry_calls();
            self.deliver_all();
            if self.unfinished().is_none() {
                return Ok(());
            }
        }
        let left = self.unfinished().unwrap_or_default();
        Err(format!("not done after {ROUNDS_MAX} rounds without faults: {left}"))
    }

    fn heal_seat(&mut self, at: usize) -> Result<(), Difference> {
        if self.seats[at].live.as_ref().is_none_or(|live| live.lost) {
            return self.reopen(at);
        }
        let now_ms = self.common.clock_ms;
        let live = self.seats[at].live.as_mut().expect("looked at above");
        while live.shard.preload_timers(now_ms) {}
        for _ in 0..4 {
            let words = self.seats[at].submit(&mut self.common);
            self.tell(at, words);
        }
        let live = self.seats[at].live.as_ref().expect("looked at above");
        live.handle.step();
        self.hear(at)?;
        self.execute_all(at);
        self.post(at);
        if self.common.random.chance(50) {
            self.checkpoint(at)?;
        }
        Ok(())
    }

    fn unfinished(&self) -> Option<String> {
        if self.open_calls() > 0 {
            return Some(format!("{} calls", self.open_calls()));
        }
        if let Some(busy) = self.busy_outside() {
            return Some(busy);
        }
        for seat in &self.seats {
            let Some(live) = &seat.live else { return Some("a shard is down".to_owned()) };
            if !seat.inbox.is_empty() || !live.shard.is_idle() {
                return Some(format!("requests at shard {}", seat.place.shard));
            }
            // Also for those who keep time by themselves, and whose timers nobody else knows.
            if live.shard.wants_pulse(self.common.clock_ms) {
                return Some(format!("a timer at shard {}", seat.place.shard));
            }
            let left = seat.unfinished(&self.common);
            if let Some(left) = left {
                return Some(format!("{left}, at shard {}", seat.place.shard));
            }
        }
        None
    }
}
