//! What time does: hidden messages come back, old ones are dropped, keys are forgotten.

use bytes::{BufMut, Bytes};
use kernel::rows::{Scan, value_bytes};

use crate::apply::Desk;
use crate::command::Mode;
use crate::state::{
    Hidden, Known, Message, dedup_key, forget_key, hidden_key, key, read, timer, waiting_key,
};

/// Of what a queue's timers carry: the queue's number and its name.
pub(crate) const TIMER_VERSION: u8 = 1;
/// Rows of a kind that one timer looks at; for more it is set again.
const SWEEP_MAX: usize = 256;
/// Bytes of rows after which it looks at no more.
const SWEEP_BYTES_MAX: usize = 4 << 20;
/// Rows of a lane that are read at a time.
const LANE_AT_ONCE: usize = 32;
/// A queue is not searched for old messages more often.
const AGE_EVERY_MS: u64 = 1000;
/// Nor is one with order, which is searched from end to end.
const GROUPS_AGE_EVERY_MS: u64 = 60_000;

/// What one timer has dropped, of all lanes together.
#[derive(Default)]
struct Dropped {
    rows: usize,
    bytes: usize,
}

impl Dropped {
    /// Rows that it may still drop, and their bytes.
    fn left(&self) -> (usize, usize) {
        (SWEEP_MAX - self.rows, SWEEP_BYTES_MAX.saturating_sub(self.bytes))
    }
}

impl Desk<'_, '_> {
    pub(crate) fn set(&mut self, at_ms: u64) -> (u64, u64) {
        let mut payload = Vec::with_capacity(9 + self.name.len());
        payload.put_u8(TIMER_VERSION);
        payload.put_u64(self.number());
        payload.put_slice(self.name.as_bytes());
        let id = self.turn.set_timer(at_ms, payload);
        (id.deadline_ms, id.number)
    }

    /// Sees to it that hidden rows are looked at by then.
    pub(crate) fn arm(&mut self, at_ms: u64) {
        match self.counts.sweep {
            Some((armed_ms, _)) if armed_ms <= at_ms => return,
            Some(later) => self.turn.cancel_timer(timer(later)),
            None => {}
        }
        self.counts.sweep = Some(self.set(at_ms));
    }

    /// Sees to it that old messages are looked for when this one is too old.
    pub(crate) fn watch_age(&mut self, message: &Message) {
        let retention_ms = self.settings().retention_ms;
        // One that comes back may have little time left: the bound of how often holds all the same.
        let soonest_ms = self.turn.now_ms() + self.look_for_old_every_ms().min(retention_ms);
        let at_ms = message.head.visible_ms.saturating_add(retention_ms).max(soonest_ms);
        match self.counts.retention {
            Some((armed_ms, _)) if armed_ms <= at_ms => return,
            Some(later) => self.turn.cancel_timer(timer(later)),
            None => {}
        }
        self.counts.retention = Some(self.set(at_ms));
    }

    fn look_for_old_every_ms(&self) -> u64 {
        match self.settings().mode {
            Mode::Standard => AGE_EVERY_MS,
            Mode::Fifo => GROUPS_AGE_EVERY_MS.max(self.settings().retention_ms / 8),
        }
    }

    /// Has old messages looked for at once.
    pub(crate) fn look_for_old(&mut self) {
        if let Some(armed) = self.counts.retention.take() {
            self.turn.cancel_timer(timer(armed));
            self.counts.retention = Some(self.set(self.turn.now_ms()));
        }
    }

    pub(crate) fn disarm(&mut self) {
        let armed = [self.counts.sweep.take(), self.counts.retention.take()];
        // A job goes on: it ends by itself when it finds nothing.
        for armed in armed.into_iter().flatten() {
            self.turn.cancel_timer(timer(armed));
        }
    }

    /// One of the queue's timers has fired.
    pub(crate) fn time_has_come(&mut self, fired: (u64, u64)) {
        if self.counts.sweep == Some(fired) {
            self.counts.sweep = None;
            self.sweep();
        } else if self.counts.retention == Some(fired) {
            self.counts.retention = None;
            match self.settings().mode {
                Mode::Standard => self.drop_old_of_lanes(),
                Mode::Fifo => self.drop_old_of_groups(),
            }
        } else if let Some((job, timer)) = self.counts.redrive
            && timer == fired
        {
            self.redrive_on(job);
        }
    }

    fn sweep(&mut self) {
        let (tenant, number, now_ms) = (self.tenant(), self.number(), self.turn.now_ms());
        let from = hidden_key(tenant, number, self.counts.swept_ms + 1, 0);
        let due = Scan::between(&from, &hidden_key(tenant, number, now_ms + 1, 0));
        let (due, mut all) = self.some_of(due.after(&self.counts.hidden_cursor));
        let mut last = None;
        for (key, row) in due {
            if self.has_read_enough() {
                all = false;
                break;
            }
            let until_ms = key[key.len() - 16..].first_chunk().expect("as hidden_key puts it");
            self.come_back(u64::from_be_bytes(*until_ms), Message::decode(&row));
            last = Some(key);
        }
        if let Some(last) = last {
            self.counts.hidden_cursor = last.to_vec();
        }
        let forgotten = self.forget_keys();
        if all && forgotten {
            self.counts.swept_ms = now_ms;
            self.counts.hidden_cursor.clear();
            self.counts.forget_cursor.clear();
            self.arm_for_next();
        } else {
            self.arm(now_ms);
        }
    }

    /// What a scan finds, as far as one timer looks; and whether that is all.
    fn some_of(&self, scan: Scan) -> (Vec<(Bytes, Bytes)>, bool) {
        let scan = scan.limit(SWEEP_MAX).bytes(SWEEP_BYTES_MAX);
        let found = self.turn.rows().scan(&scan);
        let all = !scan.is_cut(&found);
        self.note_read(value_bytes(&found));
        (found, all)
    }

    fn come_back(&mut self, until_ms: u64, message: Message) {
        match message.head.hidden {
            Hidden::Leased | Hidden::Extended => {
                self.end_lease(until_ms, &message);
                self.timed_out(message);
            }
            Hidden::Delayed | Hidden::Retry => {
                self.unhide(until_ms, &message);
                self.counts.delayed -= 1;
                let came_back = message.head.hidden == Hidden::Retry;
                if !self.expires(&message) {
                    self.show_in_lane(message, came_back);
                }
            }
            Hidden::Group => {
                self.unhide(until_ms, &message);
                let group = message.head.group.expect("it stands for one");
                self.wake_group(&group, message.head.sequence, until_ms);
            }
            Hidden::No => unreachable!("a hidden row says why"),
        }
    }

    fn unhide(&mut self, until_ms: u64, message: &Message) {
        let sequence = message.head.sequence;
        self.turn.delete(&hidden_key(self.tenant(), self.number(), until_ms, sequence));
    }

    /// Forgets deduplication keys whose window is over. False when there are more.
    fn forget_keys(&mut self) -> bool {
        let (tenant, number, now_ms) = (self.tenant(), self.number(), self.turn.now_ms());
        let from = forget_key(tenant, number, self.counts.swept_ms + 1, &[0; 16]);
        let to = forget_key(tenant, number, now_ms + 1, &[0; 16]);
        let due = Scan::between(&from, &to).after(&self.counts.forget_cursor).limit(SWEEP_MAX);
        let due = self.turn.rows().scan(&due);
        if let Some((last, _)) = due.last() {
            self.counts.forget_cursor = last.to_vec();
        }
        for (key, _) in &due {
            let digest = key.last_chunk::<16>().expect("as forget_key puts it");
            self.turn.delete(key);
            let known_key = dedup_key(tenant, number, digest);
            let known = self.turn.rows().get(&known_key).map(|row| read::<Known>(&row));
            // The key may have been used again since.
            if known.is_some_and(|known| known.until_ms <= now_ms) {
                self.turn.delete(&known_key);
            }
        }
        due.len() < SWEEP_MAX
    }

    fn arm_for_next(&mut self) {
        let (tenant, number) = (self.tenant(), self.number());
        for kind in [b'h', b'e'] {
            let mut from = key(tenant, kind, number);
            from.put_u64(self.counts.swept_ms + 1);
            let scan = Scan::prefix(&key(tenant, kind, number)).after(&from).limit(1);
            if let Some((first, _)) = self.turn.rows().scan(&scan).pop() {
                let until_ms = first[from.len() - 8..].first_chunk().expect("after the queue");
                self.arm(u64::from_be_bytes(*until_ms));
            }
        }
    }

    pub(crate) fn is_too_old(&self, message: &Message) -> bool {
        let age_ms = self.turn.now_ms().saturating_sub(message.head.visible_ms);
        age_ms >= self.settings().retention_ms
    }

    /// Drops a message that is too old, and was nowhere already.
    pub(crate) fn expires(&mut self, message: &Message) -> bool {
        let too_old = self.is_too_old(message);
        if too_old {
            self.counts.totals.expired += 1;
            self.counts.bytes -= message.bytes();
            self.end_body(message);
        }
        too_old
    }

    /// The oldest message of a lane is at its head; of those that came back, the one to be received
    /// first, and what is older behind it is dropped when it is gone.
    fn drop_old_of_lanes(&mut self) {
        let now_ms = self.turn.now_ms();
        let lanes: Vec<u8> = self.counts.lanes.iter().map(|lane| lane.number).collect();
        let mut dropped = Dropped::default();
        let next_ms =
            lanes.into_iter().filter_map(|lane| self.drop_old_of_lane(lane, &mut dropped));
        let next_ms = next_ms.min();
        if let Some(next_ms) = next_ms {
            let more = next_ms <= now_ms;
            let at_ms =
                if more { now_ms } else { next_ms.max(now_ms + self.look_for_old_every_ms()) };
            self.counts.retention = Some(self.set(at_ms));
        }
    }

    /// Drops what is too old of a lane. When the first that is left is too old, or perhaps is; none
    /// is left when there is no such time.
    fn drop_old_of_lane(&mut self, number: u8, dropped: &mut Dropped) -> Option<u64> {
        // Mostly the first is young enough, and nothing behind it need be read.
        let mut at_once = 1;
        loop {
            let lane = *self.counts.lanes.iter().find(|lane| lane.number == number)?;
            if lane.len == 0 {
                return None;
            }
            let (rows_left, bytes_left) = dropped.left();
            if rows_left == 0 || bytes_left == 0 || self.has_read_enough() {
                return Some(self.turn.now_ms());
            }
            for (position, row) in self.front(lane, at_once.min(rows_left), bytes_left) {
                let message = Message::decode(&row);
                if !self.expires(&message) {
                    let retention_ms = self.settings().retention_ms;
                    return Some(message.head.visible_ms.saturating_add(retention_ms));
                }
                self.pop(number, position);
                self.counts.visible -= 1;
                dropped.rows += 1;
                dropped.bytes += row.len();
            }
            at_once = LANE_AT_ONCE;
        }
    }

    /// Searches the next part of all groups.
    fn drop_old_of_groups(&mut self) {
        let prefix = key(self.tenant(), b'w', self.number());
        let (found, all) = self.some_of(Scan::prefix(&prefix).after(&self.counts.age_cursor));
        let (mut more, mut last) = (!all, None);
        for (row_key, row) in &found {
            if self.has_read_enough() {
                more = true;
                break;
            }
            last = Some(row_key);
            let message = Message::decode(row);
            if !self.expires(&message) {
                continue;
            }
            let group = message.head.group.clone().expect("a queue with order has groups");
            debug_assert_eq!(*row_key, self.waiting_key_of(&message));
            self.take_waiting(&group, &message, false);
            self.look_again_at_group(&group);
        }
        self.counts.age_cursor = last.filter(|_| more).map_or_else(Vec::new, |last| last.to_vec());
        let now_ms = self.turn.now_ms();
        if more || self.counts.visible + self.counts.delayed > 0 {
            let at_ms = if more { now_ms } else { now_ms + self.look_for_old_every_ms() };
            self.counts.retention = Some(self.set(at_ms));
        }
    }

    fn waiting_key_of(&self, message: &Message) -> Bytes {
        let group = message.head.group.as_deref().unwrap_or_default();
        waiting_key(self.tenant(), self.number(), group, message.head.sequence).into()
    }
}
