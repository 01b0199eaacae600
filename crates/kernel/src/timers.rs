//! Deadlines.
//!
//! ```text
//!   rows     │ 10:00–10:05 │ 10:05–10:10 │ 10:10–10:15 │ …   every pending timer, by deadline
//!   memory   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│
//!            now                      loaded
//! ```
//!
//! Time is the partition key: a timer is a row under its deadline, so a 5-minute bucket is a
//! range of rows that is read in one sweep. The *wheel* holds exactly the pending timers before
//! `loaded`, which is kept a bucket or two ahead of now. A timer set before `loaded` goes straight
//! to the wheel as well as to its row; a later one only to its row. So memory depends on what
//! fires soon, never on what is pending.
//!
//! The wheel is a cache. What fires in an entry depends on rows alone: the first `timers_max` of
//! them, in (deadline, number) order, that are due at the entry's stamp.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::Reader;
use crate::id::{MachineId, TenantId};
use crate::limits::{BUCKET_MS, WHEEL_LOAD_MAX, WHEEL_TIMERS_MAX};
use crate::machine::kernel_key;
use crate::rows::{Rows, Scan};

/// Names a pending timer: enough to cancel it without looking for it.
///
/// Deadline before number: two timers may end in one millisecond, and every replay must fire
/// them in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    /// Unix milliseconds.
    pub deadline_ms: u64,
    /// Unique in the shard, growing in the order of setting.
    pub number: u64,
}

impl TimerId {
    /// The first timer there could be.
    const FIRST: TimerId = TimerId { deadline_ms: 0, number: 0 };

    /// Sixteen bytes that sort as the id does.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.deadline_ms) << 64 | u128::from(self.number)).to_be_bytes()
    }

    /// Reads [`TimerId::to_bytes`] back.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> TimerId {
        let both = u128::from_be_bytes(bytes);
        let low = both & u128::from(u64::MAX);
        TimerId {
            deadline_ms: u64::try_from(both >> 64).expect("the upper half"),
            number: u64::try_from(low).expect("the lower half"),
        }
    }

    fn key(self) -> Vec<u8> {
        let mut key = kernel_key(b't');
        key.put_slice(&self.to_bytes());
        key
    }

    fn of_key(key: &[u8]) -> TimerId {
        let id = key.last_chunk::<16>().expect("timer keys end in an id");
        TimerId::from_bytes(*id)
    }
}

/// A timer that has come due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub id: TimerId,
    /// Whose it is.
    pub machine: MachineId,
    /// On whose behalf it was set.
    pub tenant: TenantId,
    /// What the machine wanted to be told.
    pub payload: Bytes,
}

/// The timers of a shard.
#[derive(Debug)]
pub struct Timers {
    wheel: BTreeMap<TimerId, Due>,
    /// Every pending timer before this is in the wheel, and none at or after it.
    loaded: TimerId,
    /// Cancelled since the last [`Timers::take_due`], and not in the wheel: perhaps taken by it.
    cancelled: BTreeSet<TimerId>,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers { wheel: BTreeMap::new(), loaded: TimerId::FIRST, cancelled: BTreeSet::new() }
    }
}

impl Timers {
    /// Sets a timer; it fires in the first entry stamped at or after its deadline.
    pub fn set(&mut self, rows: &mut Rows, due: Due) {
        assert!(due.machine != MachineId(0), "machine numbers start at one");
        let mut value = BytesMut::with_capacity(6 + due.payload.len());
        value.put_u16(due.machine.0);
        value.put_u32(due.tenant.0);
        value.put_slice(&due.payload);
        rows.put_new(due.id.key(), value.freeze());
        if due.id < self.loaded {
            self.wheel.insert(due.id, due);
            self.shed();
        }
    }

    /// Forgets a timer, wherever it is. One that has fired or never was makes no difference.
    pub fn cancel(&mut self, rows: &mut Rows, id: TimerId) {
        let in_wheel = self.wheel.remove(&id).is_some();
        // A timer before `loaded` that is not in the wheel has fired: its row is gone already,
        // and a tombstone for it would only weigh on the store.
        if in_wheel || id >= self.loaded {
            rows.delete(&id.key());
        }
        if !in_wheel {
            self.cancelled.insert(id);
        }
    }

    /// Whether a timer that was just taken still fires: one that fired before it, in the same
    /// entry, may have cancelled it.
    #[must_use]
    pub fn still_due(&self, id: TimerId) -> bool {
        !self.cancelled.contains(&id)
    }

    /// Takes the first timers that are due at `at_ms`, at most `max`, in order. Each fires only if
    /// it is [`Timers::still_due`] when its turn comes.
    pub fn take_due(&mut self, rows: &mut Rows, at_ms: u64, max: u32) -> Vec<Due> {
        self.cancelled.clear();
        let mut due = Vec::new();
        while due.len() < max as usize {
            match self.wheel.first_key_value() {
                Some((id, _)) if id.deadline_ms <= at_ms => {
                    let (id, timer) = self.wheel.pop_first().expect("it was looked at");
                    rows.delete(&id.key());
                    due.push(timer);
                }
                Some(_) => break,
                None if self.loaded.deadline_ms > at_ms => break,
                None => self.load(rows, at_ms),
            }
        }
        due
    }

    /// Loads ahead of `now_ms`, a bounded step at a time. True when there is more to do.
    pub fn preload(&mut self, rows: &Rows, now_ms: u64) -> bool {
        if !self.wants_preload(now_ms) {
            return false;
        }
        self.load(rows, now_ms);
        self.wants_preload(now_ms)
    }

    /// Whether [`Timers::preload`] would do anything.
    #[must_use]
    pub fn wants_preload(&self, now_ms: u64) -> bool {
        // Half a bucket of lead, so that loading is spread out and done before it is needed.
        let lead_ms = now_ms.saturating_add(BUCKET_MS / 2);
        self.loaded.deadline_ms <= lead_ms && self.wheel.len() < WHEEL_TIMERS_MAX / 2
    }

    /// When the shard should next look: a deadline, or the time to load more.
    #[must_use]
    pub fn wake_ms(&self) -> u64 {
        match self.wheel.first_key_value() {
            Some((id, _)) => id.deadline_ms,
            None => self.loaded.deadline_ms.saturating_sub(BUCKET_MS / 2),
        }
    }

    /// Whether more than `count` timers are due at `at_ms`, of those in memory.
    #[must_use]
    pub fn are_due(&self, at_ms: u64, count: usize) -> bool {
        self.wheel.keys().nth(count).is_some_and(|id| id.deadline_ms <= at_ms)
    }

    /// Timers in memory.
    #[must_use]
    pub fn in_memory(&self) -> usize {
        self.wheel.len()
    }

    /// Brings the next timers from rows: up to the end of the bucket after the current one.
    fn load(&mut self, rows: &Rows, now_ms: u64) {
        let end_ms = (now_ms / BUCKET_MS + 2).saturating_mul(BUCKET_MS);
        let end = TimerId { deadline_ms: end_ms, number: 0 };
        let scan = Scan::between(&self.loaded.key(), &end.key()).limit(WHEEL_LOAD_MAX);
        let found = rows.scan(&scan);
        self.loaded = match found.last() {
            Some((key, _)) if found.len() == WHEEL_LOAD_MAX => {
                let last = TimerId::of_key(key);
                TimerId { number: last.number + 1, ..last }
            }
            _ => end.max(self.loaded),
        };
        for (key, value) in found {
            let id = TimerId::of_key(&key);
            let mut reader = Reader::new(value);
            let machine = MachineId(reader.u16().expect("written by set"));
            let tenant = TenantId(reader.u32().expect("written by set"));
            self.wheel.insert(id, Due { id, machine, tenant, payload: reader.rest() });
        }
        self.shed();
    }

    /// Leaves the latest timers to their rows when the wheel grows past its bound.
    fn shed(&mut self) {
        while self.wheel.len() > WHEEL_TIMERS_MAX {
            let (id, _) = self.wheel.pop_last().expect("it is over its bound");
            self.loaded = id;
        }
    }
}
