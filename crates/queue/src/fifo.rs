//! Groups of a queue with order.
//!
//! ```text
//!             waiting, due              receive
//!   idle ──────────────────▶ listed ──────────────▶ leased ──┐
//!    ▲                         ▲                      │      │ last lease ends
//!    │ nothing waits           │ due                  │      ▼
//!    └─────────────────────────┴───── wakes later ◀───┴── look again
//! ```
//!
//! The lane holds groups, not messages: a receive looks at groups that are ready and at no others,
//! however many messages wait behind one that is leased.

use bytes::Bytes;
use kernel::TenantId;
use kernel::rows::{ReadRows, Scan, value_bytes};

use crate::apply::Desk;
use crate::deliver::Room;
use crate::state::{
    Counts, Group, Head, Hidden, Message, MessageId, age_key, group_key, read, row, waiting_key,
};

/// The lane of groups that are ready.
pub(crate) const READY: u8 = 255;
/// Messages that may have gone before the oldest is looked for again.
const AGES_GONE_MAX: u64 = 256;
/// Places that are looked through at a time.
const AGES_AT_ONCE: u64 = 32_768;

impl Desk<'_, '_> {
    fn group(&self, name: &str) -> Group {
        let key = group_key(self.tenant(), b'g', self.number(), name);
        self.turn.rows().get(&key).map_or_else(Group::default, |row| Group::decode(&row))
    }

    pub(crate) fn change_group(&mut self, name: &str, change: impl FnOnce(&mut Group)) {
        let mut group = self.group(name);
        change(&mut group);
        let key = group_key(self.tenant(), b'g', self.number(), name);
        let is_over = Group { first: 0, ..group.clone() } == Group::default();
        if is_over {
            self.turn.delete(&key);
        } else {
            self.turn.put(key, group.encode());
        }
    }

    /// A message joins its group, at its place in the order; `new` when nothing was ever there.
    pub(crate) fn wait_in_group(&mut self, mut message: Message, new: bool) {
        let name = message.head.group.clone().expect("a queue with order has groups");
        message.head.hidden =
            if message.head.due_ms > self.turn.now_ms() { Hidden::Delayed } else { Hidden::No };
        self.count_waiting(&message.head, 1);
        let sequence = message.head.sequence;
        if message.head.hidden == Hidden::Delayed {
            self.hide(&wake_of(&name, sequence), message.head.due_ms);
        } else {
            self.list_age(&mut message);
        }
        let key = waiting_key(self.tenant(), self.number(), &name, sequence);
        self.put_message(key, &message, new);
        let mut waits_behind = false;
        self.change_group(&name, |group| {
            waits_behind = new && group.waiting > 0 && group.wake_ms.is_some();
            group.first = if group.waiting == 0 { sequence } else { group.first.min(sequence) };
            group.waiting += 1;
        });
        // It changes nothing for the first, which is large perhaps: that is not read for each behind it.
        if !waits_behind {
            self.look_at_group(&name);
        }
        self.watch_age(&message);
    }

    /// Groups are not in the order of their age, and one that is blocked is in no lane. So that the
    /// oldest message of all is found at once, each that counts as visible has a row under its place,
    /// which it is given when it first is visible, and keeps.
    fn list_age(&mut self, message: &mut Message) {
        let (tenant, queue) = (self.tenant(), self.number());
        let visible_ms = Bytes::from(row(&message.head.visible_ms));
        if message.head.listed == 0 {
            self.give_place(message);
            self.turn.put_new(age_key(tenant, queue, message.head.listed), visible_ms);
        } else {
            self.counts.ages_from = self.counts.ages_from.min(message.head.listed);
            self.turn.put(age_key(tenant, queue, message.head.listed), visible_ms);
        }
    }

    fn give_place(&mut self, message: &mut Message) {
        self.counts.ages_last += 1;
        message.head.listed = self.counts.ages_last;
    }

    /// Moves on to the oldest that is left, now and then and a bounded way: who looks for it would pass
    /// what is gone each time.
    fn note_age_gone(&mut self) {
        self.counts.ages_gone += 1;
        if self.counts.ages_gone < AGES_GONE_MAX {
            return;
        }
        let (tenant, queue, end) = (self.tenant(), self.number(), self.counts.ages_last + 1);
        let found = if self.counts.visible == 0 {
            Err(end)
        } else {
            oldest_within(self.turn.rows(), tenant, queue, self.counts.ages_from)
        };
        self.counts.ages_from = found.map_or_else(|next| next.min(end), |(listed, _)| listed);
        if found.is_ok() || self.counts.ages_from == end {
            self.counts.ages_gone = 0;
        }
    }

    /// A message counts as delayed until its time comes, wherever in its group it is.
    fn count_waiting(&mut self, head: &Head, by: i64) {
        let count = match head.hidden {
            Hidden::Delayed => &mut self.counts.delayed,
            _ => &mut self.counts.visible,
        };
        *count = count.checked_add_signed(by).expect("what is taken out was put in");
    }

    /// The group's first messages, at most `limit`, and no more when they have so many bytes.
    fn waiting(&self, name: &str, limit: usize, bytes_max: usize) -> Vec<Message> {
        let (tenant, queue, first) = (self.tenant(), self.number(), self.group(name).first);
        let from = waiting_key(tenant, queue, name, first);
        let to = waiting_key(tenant, queue, name, u64::MAX);
        let scan = Scan::between(&from, &to).limit(limit).bytes(bytes_max);
        let found = self.turn.rows().scan(&scan);
        self.note_read(value_bytes(&found));
        found.iter().map(|(_, row)| Message::decode(row)).collect()
    }

    fn first_waiting(&self, name: &str) -> Option<Message> {
        self.waiting(name, 1, 1).pop()
    }

    /// Whether its first message could be received now, if none is on its way elsewhere.
    pub(crate) fn is_group_free(&self, name: &str) -> bool {
        let due = |first: Message| first.head.due_ms <= self.turn.now_ms();
        self.group(name).leased == 0 && self.first_waiting(name).is_some_and(due)
    }

    /// Takes a message out of its group: the first of it, or one from the middle.
    pub(crate) fn take_waiting(&mut self, name: &str, message: &Message, is_first: bool) {
        let key = waiting_key(self.tenant(), self.number(), name, message.head.sequence);
        self.turn.delete(&key);
        self.count_waiting(&message.head, -1);
        if message.head.hidden == Hidden::No {
            self.turn.delete(&age_key(self.tenant(), self.number(), message.head.listed));
            self.note_age_gone();
        }
        let after = message.head.sequence + 1;
        self.change_group(name, |group| {
            group.waiting -= 1;
            if is_first {
                group.first = after;
            }
        });
    }

    /// A message was taken out from anywhere in a group: it may be ready now, or not any more.
    pub(crate) fn look_again_at_group(&mut self, name: &str) {
        // Or whoever takes one after the other would look through all that is gone each time.
        if let Some(first) = self.first_waiting(name) {
            self.change_group(name, |group| group.first = first.head.sequence);
        }
        let group = self.group(name);
        if let Some(place) = group.place
            && (group.away > 0 || !self.is_group_free(name))
        {
            // Or receives would come to it, one after the other, and find nothing.
            self.take_from_middle(READY, place);
            self.change_group(name, |group| (group.listed, group.place) = (false, None));
        }
        self.look_at_group(name);
    }

    /// Lists a group that is ready, or sees to it that it is looked at when it is.
    pub(crate) fn look_at_group(&mut self, name: &str) {
        let group = self.group(name);
        if group.leased + group.away > 0 || group.listed || group.waiting == 0 {
            return;
        }
        let first = self.first_waiting(name).expect("something waits");
        let due_ms = first.head.due_ms;
        if due_ms <= self.turn.now_ms() {
            let place = self.push(READY, Bytes::copy_from_slice(name.as_bytes()));
            self.change_group(name, |group| (group.listed, group.place) = (true, Some(place)));
        } else if group.wake_ms.is_none_or(|wake_ms| wake_ms > due_ms) {
            self.change_group(name, |group| group.wake_ms = Some(due_ms));
            self.hide(&wake_of(name, first.head.sequence), due_ms);
        }
    }

    /// The delay of a message is over: it is ready, or waits for those before it and for nothing else.
    fn end_delay(&mut self, name: &str, sequence: u64) {
        let key = waiting_key(self.tenant(), self.number(), name, sequence);
        let Some(row) = self.turn.rows().get(&key) else { return };
        self.note_read(row.len());
        let mut message = Message::decode(&row);
        // It may have been received meanwhile, and wait again for longer.
        if message.head.hidden != Hidden::Delayed || message.head.due_ms > self.turn.now_ms() {
            return;
        }
        self.count_waiting(&message.head, -1);
        message.head.hidden = Hidden::No;
        self.count_waiting(&message.head, 1);
        self.list_age(&mut message);
        self.turn.put(key, message.encode());
    }

    /// A hidden row of a group is due, which stands for a message of it.
    pub(crate) fn wake_group(&mut self, name: &str, sequence: u64, until_ms: u64) {
        self.end_delay(name, sequence);
        if self.group(name).wake_ms == Some(until_ms) {
            self.change_group(name, |group| group.wake_ms = None);
        }
        self.look_at_group(name);
    }

    /// The first messages of the group that has been ready for longest; none when no group is.
    pub(crate) fn take_from_group(&mut self, room: &mut Room) -> Option<Vec<Message>> {
        let lane = self.counts.lanes.iter().find(|lane| lane.number == READY).copied();
        let lane = lane.filter(|lane| lane.len > 0)?;
        let (position, name) = self.front(lane, 1, 1).pop().expect("it is not empty");
        let name = std::str::from_utf8(&name).expect("pushed from a string").to_owned();
        let now_ms = self.turn.now_ms();
        let waiting = self.waiting(&name, room.messages, room.bytes());
        let first = waiting.first().filter(|first| first.head.due_ms <= now_ms);
        if first.is_some_and(|first| !self.is_too_old(first) && !room.has(first)) {
            // It keeps its place among groups: the next receive begins with it.
            return None;
        }
        self.pop(READY, position);
        self.change_group(&name, |group| (group.listed, group.place) = (false, None));
        let mut taken = Vec::new();
        for mut message in waiting {
            if room.messages == 0 || message.head.due_ms > now_ms || !room.has(&message) {
                break;
            }
            self.take_waiting(&name, &message, true);
            if message.head.listed == 0 {
                // Its delay is over, and no timer has said so yet: when it comes back it is as old.
                self.give_place(&mut message);
            }
            if self.expires(&message) {
                room.drop(&message);
            } else {
                room.fill(&message);
                taken.push(message);
            }
        }
        if taken.is_empty() {
            self.look_at_group(&name);
        }
        Some(taken)
    }
}

/// The first place from one on that a message has which is visible, and since when it is; or, when none
/// of the next few thousand is, where to go on.
fn oldest_within(
    rows: &impl ReadRows,
    tenant: TenantId,
    queue: u64,
    from: u64,
) -> Result<(u64, u64), u64> {
    let next = from + AGES_AT_ONCE;
    let span = Scan::between(&age_key(tenant, queue, from), &age_key(tenant, queue, next));
    let (key, visible_ms) = rows.scan(&span.limit(1)).pop().ok_or(next)?;
    let listed = key.last_chunk().expect("as age_key puts it");
    Ok((u64::from_be_bytes(*listed), read(&visible_ms)))
}

/// Since when the oldest message is visible of a queue with order, if it is found in so many looks.
pub(crate) fn oldest_visible_ms(
    rows: &impl ReadRows,
    (tenant, queue): (TenantId, u64),
    counts: &Counts,
    looks: usize,
) -> Option<u64> {
    let mut from = counts.ages_from;
    for _ in 0..looks {
        if counts.visible == 0 || from > counts.ages_last {
            break;
        }
        match oldest_within(rows, tenant, queue, from) {
            Ok((_, visible_ms)) => return Some(visible_ms),
            Err(next) => from = next,
        }
    }
    None
}

/// A row that is no message: it stands for a look at one, and at its group.
fn wake_of(name: &str, sequence: u64) -> Message {
    let id = MessageId { shard: 0, queue: 0, sequence };
    let head = Head::new(id, sequence, 0, Some(name.to_owned()));
    let head = Head { hidden: Hidden::Group, ..head };
    Message { head, unseen: 0, parcel: Bytes::new() }
}
