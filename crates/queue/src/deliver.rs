//! What is done to messages: sending, receiving, and the three ends of a lease.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::MACHINE;
use crate::apply::Desk;
use crate::command::{
    Delivery, Extend, Mode, Nack, NewMessage, PARCEL_BYTES_MAX, Receive, Refusal, Release, Reply,
    SendRefusal, Sent, Settled, Story,
};
use crate::parcel::ArchivedBody;
use crate::post::{DeadLetter, Post};
use crate::query::{oldest_visible_ms, place};
use crate::receipt::Receipt;
use crate::state::{
    Head, Hidden, Known, Lane, Message, MessageId, dedup_key, extended_key, forget_key, hidden_key,
    message_bytes, read, row,
};

/// Priorities are 0 to 9.
pub(crate) const PRIORITY_MAX: u8 = 9;
/// Who waits so long, from when it could first be received, goes before the next higher priority:
/// nothing starves.
const AGEING_MS: u64 = 60_000;
/// Lanes or groups that one receive takes from.
const TAKES_MAX: usize = 1000;
/// Messages of a lane that are read at a time: the turn may change.
const LANE_AT_ONCE: usize = 16;
/// Messages that one receive drops because of their age; a timer sees to the rest of them.
const DROPS_MAX: usize = 1000;
/// Bytes of the messages of one receive, unless its first alone has more.
const RECEIVE_BYTES_MAX: u64 = 4 << 20;
/// No lease and no extension lasts longer.
pub(crate) const LEASE_MS_MAX: u64 = 12 * 60 * 60 * 1000;

/// The lane of a priority: for messages that came back, or for new ones.
pub(crate) fn lane_number(priority: u8, came_back: bool) -> u8 {
    priority.min(PRIORITY_MAX) * 2 + u8::from(came_back)
}

/// Whether a lane is for messages that came back.
pub(crate) fn came_back(lane: u8) -> bool {
    lane % 2 == 1
}

/// The greater goes first: what a message's priority has become, and what it was.
type Rank = (u64, u8);

/// Of each lane that was looked at, that of its first message, for the length of a receive.
type Ranks = BTreeMap<u8, Rank>;

/// The lane whose turn it is.
struct Turn {
    lane: Lane,
    /// The other lane of its priority has the next turn.
    shared: bool,
    /// The highest rank of other priorities.
    others: Option<Rank>,
}

/// What a receive may still take.
pub(crate) struct Room {
    pub(crate) messages: usize,
    bytes: u64,
    drops: usize,
    drop_bytes: u64,
}

impl Room {
    fn new(messages: usize) -> Room {
        let bytes = RECEIVE_BYTES_MAX;
        Room { messages, bytes, drops: DROPS_MAX, drop_bytes: RECEIVE_BYTES_MAX }
    }

    /// Bytes of rows that are worth reading at a time.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// A message was met that is too old. After many the room is closed.
    pub(crate) fn drop(&mut self, message: &Message) {
        self.drops -= 1;
        self.drop_bytes = self.drop_bytes.saturating_sub(message.bytes());
        if self.drops == 0 || self.drop_bytes == 0 {
            self.messages = 0;
        }
    }

    /// Whether a message fits. What does not, closes the room: it stays the first in its place.
    pub(crate) fn has(&mut self, message: &Message) -> bool {
        let fits = message.bytes() <= self.bytes || self.bytes == RECEIVE_BYTES_MAX;
        if !fits {
            self.messages = 0;
        }
        fits
    }

    pub(crate) fn fill(&mut self, message: &Message) {
        self.messages -= 1;
        self.bytes = self.bytes.saturating_sub(message.bytes());
    }
}

impl Desk<'_, '_> {
    pub(crate) fn send(&mut self, messages: &[NewMessage]) -> Reply {
        // One look for all of them: what is sent now makes nothing older.
        let behind = self.is_behind();
        Reply::Sent(messages.iter().map(|message| self.send_one(message, behind)).collect())
    }

    /// Whether consumers are further behind than the queue lets them be.
    fn is_behind(&self) -> bool {
        let Some(max_ms) = self.settings().max_age_ms else { return false };
        let too_old = |since_ms| self.turn.now_ms().saturating_sub(since_ms) > max_ms;
        self.oldest_visible_ms().is_some_and(too_old)
    }

    /// The same that a look at the queue shows, unless it is far behind what is gone: for a while then
    /// nobody is refused.
    fn oldest_visible_ms(&self) -> Option<u64> {
        const LOOKS_MAX: usize = 2;
        let (name, mode) = ((self.tenant(), self.number()), self.settings().mode);
        oldest_visible_ms(self.turn.rows(), name, mode, self.counts, LOOKS_MAX)
    }

    fn send_one(&mut self, new: &NewMessage, behind: bool) -> Result<Sent, SendRefusal> {
        let Some(body) = ArchivedBody::of(&new.parcel) else { return self.take_new(new, behind) };
        if !self.redeem(&body) {
            return Err(SendRefusal::NotReserved);
        }
        let sent = self.take_new(new, behind);
        if sent.is_ok_and(|sent| !sent.duplicate) {
            return sent;
        }
        self.give_up_body(body);
        sent
    }

    fn take_new(&mut self, new: &NewMessage, behind: bool) -> Result<Sent, SendRefusal> {
        if new.parcel.len() > PARCEL_BYTES_MAX {
            return Err(SendRefusal::TooLarge);
        }
        let fifo = self.settings().mode == Mode::Fifo;
        match (fifo, &new.group) {
            (true, None) => return Err(SendRefusal::GroupMissing),
            (false, Some(_)) => return Err(SendRefusal::GroupUnexpected),
            _ => {}
        }
        if let Some(known) = new.dedup.and_then(|digest| self.known(&digest)) {
            return Ok(Sent { id: known.id, sequence: known.sequence, duplicate: true });
        }
        let (counts, settings) = (&*self.counts, self.settings());
        let held = counts.visible + counts.delayed + counts.leased;
        if settings.max_messages.is_some_and(|max| held >= max) {
            return Err(SendRefusal::Messages);
        }
        let bytes = counts.bytes + message_bytes(&new.parcel);
        if settings.max_bytes.is_some_and(|max| bytes > max) {
            return Err(SendRefusal::Bytes);
        }
        if behind {
            return Err(SendRefusal::Age);
        }
        let (now_ms, delay_ms) = (self.turn.now_ms(), new.delay_ms.unwrap_or(settings.delay_ms));
        let due_ms = now_ms.saturating_add(delay_ms);
        let mut message = self.new_message(now_ms, new.priority, new.group.clone(), &new.parcel);
        message.head.visible_ms = due_ms;
        let (id, sequence) = (message.head.id, message.head.sequence);
        if let Some(digest) = &new.dedup {
            self.remember(digest, id, sequence);
        }
        self.counts.totals.sent += 1;
        self.put_in(message, due_ms);
        Ok(Sent { id, sequence, duplicate: false })
    }

    pub(crate) fn new_message(
        &mut self,
        sent_ms: u64,
        priority: u8,
        group: Option<String>,
        parcel: &Bytes,
    ) -> Message {
        self.counts.last_sequence += 1;
        let sequence = self.counts.last_sequence;
        let id = MessageId { shard: self.turn.shard().0, queue: self.number(), sequence };
        let head = Head::new(id, sequence, sent_ms, group);
        let head = Head { priority: priority.min(PRIORITY_MAX), ..head };
        let message = Message { head, unseen: 0, parcel: parcel.clone() };
        self.hold_body(&message);
        message
    }

    /// A message that is new to this queue finds its place.
    pub(crate) fn put_in(&mut self, mut message: Message, due_ms: u64) {
        self.counts.bytes += message.bytes();
        if self.settings().mode == Mode::Fifo {
            message.head.due_ms = due_ms;
            self.wait_in_group(message, true);
        } else if due_ms > self.turn.now_ms() {
            message.head.hidden = Hidden::Delayed;
            self.counts.delayed += 1;
            self.hide(&message, due_ms);
        } else {
            self.show_in_lane(message, false);
        }
    }

    /// A dead letter arrives, whatever the queue's bounds say: it must not be lost.
    pub(crate) fn take_in(&mut self, letter: DeadLetter) {
        let DeadLetter { story, sent_ms, priority, parcel, .. } = letter;
        let (id, group) = (story.id, story.group.clone());
        self.take_as_new((id, sent_ms, priority), group, Some(story), &parcel);
    }

    /// A message comes from another queue, under the name it had; `group` is what it has where there is
    /// order.
    pub(crate) fn take_as_new(
        &mut self,
        (id, sent_ms, priority): (MessageId, u64, u8),
        group: Option<String>,
        story: Option<Story>,
        parcel: &Bytes,
    ) {
        let group = match self.settings().mode {
            Mode::Fifo => Some(group.unwrap_or_default()),
            Mode::Standard => None,
        };
        let now_ms = self.turn.now_ms();
        // It says when it was first sent. But its age counts from its arrival, or a message that
        // failed for long would not stay long enough to be looked at.
        let mut message = self.new_message(sent_ms, priority, group, parcel);
        message.head.visible_ms = now_ms;
        message.head.id = id;
        message.head.story = story;
        self.counts.totals.sent += 1;
        self.put_in(message, now_ms);
    }

    pub(crate) fn is_known(&self, digest: &[u8; 16]) -> bool {
        self.known(digest).is_some()
    }

    fn known(&self, digest: &[u8; 16]) -> Option<Known> {
        let row = self.turn.rows().get(&dedup_key(self.tenant(), self.number(), digest))?;
        let known: Known = read(&row);
        (known.until_ms > self.turn.now_ms()).then_some(known)
    }

    pub(crate) fn remember(&mut self, digest: &[u8; 16], id: MessageId, sequence: u64) {
        let until_ms = self.turn.now_ms().saturating_add(self.settings().dedup_ms.max(1));
        let (tenant, number) = (self.tenant(), self.number());
        let known = Known { id, sequence, until_ms };
        self.turn.put(dedup_key(tenant, number, digest), row(&known));
        self.turn.put(forget_key(tenant, number, until_ms, digest), Bytes::new());
        self.arm(until_ms);
    }

    /// Puts a message at the end of its lane. One that came back does not go to its place by age: its
    /// row would not be new, and what was taken since would be looked through to find the next.
    pub(crate) fn show_in_lane(&mut self, mut message: Message, came_back: bool) {
        message.head.hidden = Hidden::No;
        self.counts.visible += 1;
        let lane = lane_number(message.head.priority, came_back);
        self.push(lane, message.encode());
        self.watch_age(&message);
    }

    /// Hides a message whose head says why.
    pub(crate) fn hide(&mut self, message: &Message, until_ms: u64) {
        let key = hidden_key(self.tenant(), self.number(), until_ms, message.head.sequence);
        let head = &message.head;
        // The first of these of a message has a key that was never used, since a delay ends before a
        // lease begins: without a trace of it a queue that keeps up costs only the log.
        let first =
            matches!((head.hidden, head.leases), (Hidden::Delayed, 0) | (Hidden::Leased, 1));
        self.put_message(key, message, first);
        self.arm(until_ms);
    }

    /// Writes a message's row; `first` only where nothing was ever under this key.
    pub(crate) fn put_message(&mut self, key: Vec<u8>, message: &Message, first: bool) {
        if first {
            self.turn.put_new(key, message.encode());
        } else {
            self.turn.put(key, message.encode());
        }
    }

    pub(crate) fn receive(&mut self, receive: &Receive) -> Reply {
        if self.counts.leased >= self.settings().max_inflight {
            return Reply::Refused(Refusal::Inflight);
        }
        let room = self.settings().max_inflight - self.counts.leased;
        let max = usize::from(receive.max).min(usize::try_from(room).unwrap_or(usize::MAX));
        let visibility_ms = receive.visibility_ms.unwrap_or(self.settings().visibility_ms);
        let until_ms = self.turn.now_ms() + visibility_ms.clamp(1, LEASE_MS_MAX);
        let mut deliveries = Vec::new();
        let (mut room, mut ranks) = (Room::new(max), Ranks::new());
        for _ in 0..TAKES_MAX {
            // What is behind those that are taken is read as well: it may be much more.
            if room.messages == 0 || self.has_read_enough() {
                break;
            }
            let taken = match self.settings().mode {
                Mode::Standard => self.take_from_lane(&mut room, &mut ranks),
                Mode::Fifo => self.take_from_group(&mut room),
            };
            let Some(taken) = taken else { break };
            for message in taken {
                deliveries.push(self.lease(message, until_ms));
            }
        }
        // Where there is order a search goes from end to end: it has its own time, and what a receive
        // comes to is dropped without it.
        if room.drops < DROPS_MAX && self.settings().mode == Mode::Standard {
            self.look_for_old();
        }
        Reply::Received(deliveries)
    }

    /// The first messages of the lane whose turn it is, while it is; none when all are empty.
    fn take_from_lane(&mut self, room: &mut Room, ranks: &mut Ranks) -> Option<Vec<Message>> {
        let turn = self.turn_of_lanes(ranks)?;
        let lane = turn.lane;
        let at_once = if turn.shared { 1 } else { LANE_AT_ONCE };
        let found = self.front(lane, room.messages.min(at_once), room.bytes());
        assert!(!found.is_empty(), "a lane's length is the number of its rows");
        let mut taken = Vec::with_capacity(found.len());
        for (position, row) in found {
            let message = Message::decode(&row);
            let is_next = Some(self.rank_of(lane.number, &message)) > turn.others;
            if !is_next || room.messages == 0 || !room.has(&message) {
                break;
            }
            self.pop(lane.number, position);
            ranks.remove(&lane.number);
            self.counts.had_turn(lane.number);
            self.counts.visible -= 1;
            if self.expires(&message) {
                room.drop(&message);
            } else {
                room.fill(&message);
                taken.push(message);
            }
        }
        Some(taken)
    }

    /// The priority that goes first is that of the highest rank. If both of its lanes go before all other
    /// priorities each has its turn, or what fails again and again would keep all that is new waiting.
    /// A lane that does not waits: what is old in the other must not lift what is young here.
    fn turn_of_lanes(&self, ranks: &mut Ranks) -> Option<Turn> {
        let filled = || self.counts.lanes.iter().filter(|lane| lane.len > 0).copied();
        let first = filled().next()?;
        if filled().nth(1).is_none() {
            return Some(Turn { lane: first, shared: false, others: None });
        }
        let mut rank =
            |lane: Lane| *ranks.entry(lane.number).or_insert_with(|| self.rank_of_lane(lane));
        let ranked: Vec<(Rank, Lane)> = filled().map(|lane| (rank(lane), lane)).collect();
        let (_, priority) = ranked.iter().map(|(rank, _)| *rank).max()?;
        let (mine, others): (Vec<_>, Vec<_>) =
            ranked.into_iter().partition(|(rank, _)| rank.1 == priority);
        let others = others.into_iter().map(|(rank, _)| rank).max();
        let next = || mine.iter().filter(|(rank, _)| Some(*rank) > others).map(|(_, lane)| *lane);
        let has_turn = next().find(|lane| self.counts.is_turn_of(lane.number));
        let lane = has_turn.or_else(|| next().next())?;
        Some(Turn { lane, shared: next().nth(1).is_some(), others })
    }

    fn rank_of_lane(&self, lane: Lane) -> Rank {
        let (_, row) = self.front(lane, 1, 1).pop().expect("it is not empty");
        self.rank_of(lane.number, &Message::decode(&row))
    }

    /// Strictly by priority, but a minute of waiting counts as one priority. What failed has waited since
    /// it came back: it had its turn.
    fn rank_of(&self, lane: u8, message: &Message) -> Rank {
        let head = &message.head;
        let since_ms =
            if came_back(lane) { head.visible_ms.max(head.due_ms) } else { head.visible_ms };
        let waited_ms = self.turn.now_ms().saturating_sub(since_ms);
        (u64::from(lane / 2) + waited_ms / AGEING_MS, lane / 2)
    }

    /// Leases a message that was taken out of its place.
    fn lease(&mut self, mut message: Message, until_ms: u64) -> Delivery {
        let now_ms = self.turn.now_ms();
        message.head.hidden = Hidden::Leased;
        message.head.leases += 1;
        let receives = message.receives();
        if receives == 1 {
            message.head.first_received_ms = now_ms;
        }
        self.counts.leased += 1;
        self.counts.totals.received += 1;
        if let Some(group) = message.head.group.clone() {
            self.change_group(&group, |group| group.leased += 1);
        }
        self.hide(&message, until_ms);
        let Message { head, parcel, .. } = message;
        let secret = &self.queue.secret;
        let receipt = Receipt::new(secret, self.number(), until_ms, head.sequence, head.leases);
        Delivery {
            id: head.id,
            sequence: head.sequence,
            receipt,
            receives,
            sent_ms: head.sent_ms,
            first_received_ms: head.first_received_ms,
            group: head.group,
            parcel,
            story: head.story,
        }
    }

    /// The message whose lease a receipt names, and until when it is hidden.
    fn leased(&self, receipt: &Receipt) -> Result<(u64, Message), Settled> {
        if !receipt.is_of(self.number(), &self.queue.secret) {
            return Err(Settled::Forged);
        }
        let (tenant, number, sequence) = (self.tenant(), self.number(), receipt.sequence);
        let rows = self.turn.rows();
        let held_until = |until_ms| {
            let message =
                Message::decode(&rows.get(&hidden_key(tenant, number, until_ms, sequence))?);
            let holds = message.head.hidden.is_leased() && message.head.leases == receipt.lease;
            holds.then_some((until_ms, message))
        };
        // Most leases are never extended: only for one that was does it take a second look.
        let extended = || rows.get(&extended_key(tenant, number, sequence)).map(|row| read(&row));
        let held = held_until(receipt.until_ms).or_else(|| held_until(extended()?));
        held.ok_or(Settled::Stale)
    }

    /// Ends a lease: the message is nowhere until it is put somewhere.
    pub(crate) fn end_lease(&mut self, until_ms: u64, message: &Message) {
        let (tenant, number, sequence) = (self.tenant(), self.number(), message.head.sequence);
        self.turn.delete(&hidden_key(tenant, number, until_ms, sequence));
        if message.head.hidden == Hidden::Extended {
            self.turn.delete(&extended_key(tenant, number, sequence));
        }
        self.counts.leased -= 1;
        if let Some(group) = &message.head.group {
            self.change_group(group, |group| group.leased -= 1);
        }
    }

    fn settle(
        &mut self,
        receipts: &[Receipt],
        mut work: impl FnMut(&mut Self, u64, Message),
    ) -> Reply {
        let mut settled = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            settled.push(match self.leased(receipt) {
                Ok((until_ms, message)) => {
                    work(self, until_ms, message);
                    Settled::Done
                }
                Err(why) => why,
            });
        }
        Reply::Settled(settled)
    }

    pub(crate) fn ack(&mut self, receipts: &[Receipt]) -> Reply {
        self.settle(receipts, |desk, until_ms, message| {
            desk.end_lease(until_ms, &message);
            desk.counts.totals.acked += 1;
            desk.end_body(&message);
            desk.leave(&message);
        })
    }

    pub(crate) fn nack(&mut self, nack: &Nack) -> Reply {
        self.settle(&nack.receipts, |desk, until_ms, message| {
            desk.end_lease(until_ms, &message);
            desk.failed(message, nack.delay_ms, nack.reason.clone());
        })
    }

    /// Gives back what nobody has seen. Among the totals, which only grow, it was received and failed; the
    /// message itself knows of neither.
    pub(crate) fn release(&mut self, release: &Release) -> Reply {
        self.settle(&release.receipts, |desk, until_ms, mut message| {
            desk.end_lease(until_ms, &message);
            desk.counts.totals.failed += 1;
            message.unseen += 1;
            if message.receives() == 0 {
                message.head.first_received_ms = 0;
            }
            if !desk.is_over(&message) {
                desk.try_again(message, release.delay_ms);
            }
        })
    }

    pub(crate) fn extend(&mut self, extend: &Extend) -> Reply {
        let longer_ms = extend.visibility_ms.min(LEASE_MS_MAX);
        let new_until_ms = self.turn.now_ms() + longer_ms;
        self.settle(&extend.receipts, |desk, until_ms, mut message| {
            if longer_ms == 0 {
                desk.end_lease(until_ms, &message);
                desk.failed(message, Some(0), None);
                return;
            }
            let (tenant, number, sequence) = (desk.tenant(), desk.number(), message.head.sequence);
            desk.turn.delete(&hidden_key(tenant, number, until_ms, sequence));
            desk.turn.put(extended_key(tenant, number, sequence), row(&new_until_ms));
            message.head.hidden = Hidden::Extended;
            desk.hide(&message, new_until_ms);
        })
    }

    /// A message is gone from the queue, and was nowhere already.
    pub(crate) fn leave(&mut self, message: &Message) {
        self.counts.bytes -= message.bytes();
        if let Some(group) = &message.head.group {
            self.look_at_group(group);
        }
    }

    /// The time of a lease is over. What a consumer has said of the message says more.
    pub(crate) fn timed_out(&mut self, message: Message) {
        let reason = message.head.reason.is_none().then(|| "the lease ended".to_owned());
        self.failed(message, None, reason);
    }

    /// A lease has ended without an ack: the message is tried again, or is dead.
    pub(crate) fn failed(
        &mut self,
        mut message: Message,
        delay_ms: Option<u64>,
        reason: Option<String>,
    ) {
        let now_ms = self.turn.now_ms();
        self.counts.totals.failed += 1;
        let head = &mut message.head;
        if head.first_failed_ms == 0 {
            head.first_failed_ms = now_ms;
        }
        head.last_failed_ms = now_ms;
        head.reason = reason.or(head.reason.take());
        if self.is_over(&message) {
            return;
        }
        let settings = self.settings();
        let dead = settings.max_receive_count.is_some_and(|max| message.receives() >= max);
        if let (true, Some(queue)) = (dead, settings.dead_letter_queue.clone()) {
            self.bury(message, queue);
            return;
        }
        let delay_ms = delay_ms.unwrap_or_else(|| self.backoff_ms(message.receives()));
        message.head.due_ms = now_ms.saturating_add(delay_ms);
        self.try_again(message, delay_ms);
    }

    /// Whether a message whose lease has ended is too old to be tried again; it is gone then.
    fn is_over(&mut self, message: &Message) -> bool {
        let over = self.expires(message);
        if over && let Some(group) = &message.head.group {
            self.look_at_group(group);
        }
        over
    }

    /// A message whose lease has ended can be received again, after this time.
    fn try_again(&mut self, mut message: Message, delay_ms: u64) {
        let due_ms = self.turn.now_ms().saturating_add(delay_ms);
        if message.head.group.is_some() {
            message.head.due_ms = due_ms;
            self.wait_in_group(message, false);
        } else if delay_ms > 0 {
            message.head.hidden = Hidden::Retry;
            self.counts.delayed += 1;
            self.hide(&message, due_ms);
        } else {
            self.show_in_lane(message, true);
        }
    }

    fn backoff_ms(&mut self, receives: u32) -> u64 {
        let backoff = self.settings().backoff;
        let doublings = receives.saturating_sub(1).min(40);
        let whole = backoff.base_ms.saturating_mul(1 << doublings).min(backoff.max_ms);
        if !backoff.jitter || whole < 2 {
            return whole;
        }
        let draw = self.turn.secret();
        let draw = u64::from_be_bytes(*draw.first_chunk().expect("sixteen bytes"));
        whole / 2 + draw % (whole - whole / 2 + 1)
    }

    /// Sends a message to the dead-letter queue, in this very entry.
    fn bury(&mut self, message: Message, queue: String) {
        self.counts.totals.dead += 1;
        self.pass_body_on(&message);
        self.leave(&message);
        let receives = message.receives();
        let Message { head, parcel, .. } = message;
        let moved_ms = self.turn.now_ms();
        let story = match head.story {
            None => Story {
                queue: self.name.to_owned(),
                id: head.id,
                receives,
                first_failed_ms: head.first_failed_ms,
                last_failed_ms: head.last_failed_ms,
                reason: head.reason,
                moved_ms,
                group: head.group,
            },
            // A letter that dies again keeps where it died first, and how often it was received there.
            Some(story) => Story {
                last_failed_ms: head.last_failed_ms,
                reason: head.reason.or(story.reason),
                moved_ms,
                ..story
            },
        };
        let to = place(self.tenant(), &queue);
        let mode = self.settings().mode;
        let (sent_ms, priority) = (head.sent_ms, head.priority);
        let letter = DeadLetter { queue, mode, story, sent_ms, priority, parcel };
        self.turn.send(to, MACHINE, Post::Dead(letter).encode());
    }
}
