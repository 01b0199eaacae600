//! A rig for testing one machine: no log, no threads, time as the test says.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::MemoryBase;
use crate::id::{Index, ShardId, TenantId};
use crate::limits::TIMERS_PER_ENTRY_MAX;
use crate::machine::{Effect, Ground, Machine, Output, Place, Unreadable, pending_effects};
use crate::mail::{self, Letter};
use crate::rows::Rows;
use crate::stamp::Stamp;

/// A machine, its rows, and the views that its readers see.
pub struct Rig<M> {
    /// Under test.
    pub machine: M,
    /// What it has written.
    pub rows: Rows,
    /// Timers, usage.
    pub ground: Ground,
    /// What readers see.
    pub views: BTreeMap<Bytes, Bytes>,
    /// The time of the next entry.
    pub now_ms: u64,
    index: u64,
}

impl<M: Machine> Rig<M> {
    /// A machine on empty rows, at `now_ms`.
    #[must_use]
    pub fn new(machine: M, now_ms: u64) -> Rig<M> {
        Rig::at(Place { shard: ShardId(0), shard_count: 1 }, machine, now_ms)
    }

    /// The same on one shard of several: what goes to the others waits in the outbox.
    #[must_use]
    pub fn at(place: Place, machine: M, now_ms: u64) -> Rig<M> {
        let rows = Rows::new(Arc::new(MemoryBase::new()));
        let ground = Ground::new(place, &rows);
        Rig { machine, rows, ground, views: BTreeMap::new(), now_ms, index: 0 }
    }

    /// One entry with one command.
    ///
    /// # Errors
    /// [`Unreadable`] as the machine says it.
    pub fn apply(&mut self, tenant: TenantId, command: &Bytes) -> Result<Bytes, Unreadable> {
        let stamp = self.begin();
        let mut turn = self.ground.turn(&mut self.rows, stamp, self.machine.id(), tenant);
        let reply = self.machine.apply(&mut turn, command);
        self.deliver_letters(stamp);
        self.end();
        reply
    }

    /// Letters to another shard, which are not in the outbox any more.
    #[must_use]
    pub fn collect(&mut self, to: ShardId) -> Vec<Letter> {
        let waiting = mail::uncollected(&self.rows, to, usize::MAX);
        if let Some((last, _)) = waiting.last() {
            mail::collect(&mut self.rows, to, *last);
        }
        waiting.into_iter().map(|(_, letter)| letter).collect()
    }

    /// One entry with one letter from another shard.
    pub fn deliver(&mut self, letter: Letter) {
        let stamp = self.begin();
        self.ground.local_letters.push(letter);
        self.deliver_letters(stamp);
        self.end();
    }

    /// Lets time pass, and every timer fire that is due on the way, each at its deadline.
    pub fn advance(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        loop {
            while self.ground.timers.preload(&self.rows, self.now_ms) {}
            let wake_ms = self.ground.timers.wake_ms();
            if wake_ms > until_ms {
                break;
            }
            self.now_ms = self.now_ms.max(wake_ms);
            self.begin();
            self.end();
        }
        self.now_ms = until_ms;
    }

    /// What the machine asks of the world outside and has not been told is done.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        pending_effects(&self.rows, 0, usize::MAX)
    }

    /// Moves everything to the base, as a checkpoint does.
    pub fn checkpoint(&mut self) {
        let layer = self.rows.freeze();
        let base = Arc::clone(self.rows.base());
        base.ingest(&layer, Index(self.index), &|| {}).expect("memory takes everything");
        self.rows.thaw();
    }

    fn begin(&mut self) -> Stamp {
        self.index += 1;
        let stamp = Stamp { index: Index(self.index), at_ms: self.now_ms, seed: [7; 16] };
        self.ground.begin_entry();
        let max = TIMERS_PER_ENTRY_MAX;
        for due in self.ground.timers.take_due(&mut self.rows, self.now_ms, max) {
            if !self.ground.timers.still_due(due.id) {
                continue;
            }
            assert_eq!(due.machine, self.machine.id(), "no other machine is here");
            let mut turn = self.ground.turn(&mut self.rows, stamp, due.machine, due.tenant);
            self.machine.fire(&mut turn, &due);
            self.deliver_letters(stamp);
        }
        stamp
    }

    /// Letters of the machine to itself, as its shard delivers them.
    fn deliver_letters(&mut self, stamp: Stamp) {
        while !self.ground.local_letters.is_empty() {
            for letter in std::mem::take(&mut self.ground.local_letters) {
                assert_eq!(letter.machine, self.machine.id(), "no other machine is here");
                let mut turn =
                    self.ground.turn(&mut self.rows, stamp, letter.machine, letter.tenant);
                self.machine.receive(&mut turn, &letter).expect("it can read its own letters");
            }
        }
    }

    fn end(&mut self) {
        self.ground.end_entry(&mut self.rows);
        for output in std::mem::take(&mut self.ground.outputs) {
            match output {
                Output::View { key, value: Some(value), .. } => {
                    self.views.insert(key, value);
                }
                Output::View { key, value: None, .. } => {
                    self.views.remove(&key);
                }
                Output::Effect(_) | Output::Mail(_) | Output::Usage { .. } => {}
            }
        }
    }
}
