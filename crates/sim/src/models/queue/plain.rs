//! A queue as a list of messages, searched from end to end.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use queue::parcel::ArchivedBody;
use queue::{DeadLetter, MessageId, Mode, Settings, Story, Totals};

use super::ledger::{Ledger, Name};
use super::redrive::Job;
use crate::subject::Difference;

/// What a message counts besides its parcel.
const MESSAGE_BYTES: u64 = 100;
/// What a message with this parcel counts, with what of it lies in the archive.
pub(super) fn counted(parcel: &Bytes) -> u64 {
    let archived = ArchivedBody::of(parcel).map_or(0, |body| body.bytes);
    parcel.len() as u64 + MESSAGE_BYTES + archived
}

pub(super) const PRIORITIES: usize = 10;
/// Hidden messages that come back in one entry.
const COME_BACK_MAX: usize = 256;

/// Since when a message can be received. Of two in one lane, the one that came first goes first,
/// as far as anybody can say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    /// Grows with every command, and once when an entry begins.
    pub(super) step: u64,
    /// The order within a step, among those of one class.
    pub(super) order: Option<(Class, u64, u64)>,
}

/// Which machine's decision the order of two messages of one step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Came by one command.
    Command,
    /// Came back when its time had come.
    Time,
    /// As rows have it.
    Row,
}

impl Rank {
    /// Whether this is certainly before the other.
    pub(super) fn is_before(&self, other: &Rank) -> bool {
        let ordered = match (self.order, other.order) {
            (Some(mine), Some(others)) => mine.0 == others.0 && mine < others,
            _ => false,
        };
        self.step < other.step || self.step == other.step && ordered
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Free(Free),
    Leased { until_ms: u64 },
}

/// Of a message that nobody works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    /// It can be received from some time between these on. They differ by what jitter draws.
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    /// It counts as delayed.
    pub(super) delayed: bool,
    pub(super) came_back: bool,
    pub(super) rank: Rank,
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) id: MessageId,
    pub(super) sequence: u64,
    pub(super) sent_ms: u64,
    pub(super) visible_ms: u64,
    pub(super) priority: u8,
    pub(super) group: Option<String>,
    /// The steps from and to which it may have become visible for the first time, if it has.
    pub(super) listed: Option<(u64, u64)>,
    /// From some time between these on it could be received again when it failed last.
    pub(super) failed_until: Option<(u64, u64)>,
    /// Those that nobody has seen included, which do not count as received.
    pub(super) leases: u32,
    pub(super) receives: u32,
    pub(super) first_received_ms: u64,
    pub(super) first_failed_ms: Option<u64>,
    pub(super) last_failed_ms: u64,
    pub(super) reason: Option<String>,
    pub(super) story: Option<Story>,
    pub(super) parcel: Bytes,
    pub(super) state: State,
    /// Perhaps it was on its way to where it could not be taken: until it is leased, nobody can say in
    /// which lane it is.
    pub(super) returned: bool,
    /// It was too old when the queue was last looked at: when such a one is dropped, the machine
    /// decides.
    pub(super) perhaps_gone: bool,
}

impl Message {
    pub(super) fn bytes(&self) -> u64 {
        counted(&self.parcel)
    }

    pub(super) fn free(&self) -> Option<&Free> {
        match &self.state {
            State::Free(free) => Some(free),
            State::Leased { .. } => None,
        }
    }

    pub(super) fn is_leased(&self) -> bool {
        self.free().is_none()
    }
}

/// Something that was sent under a deduplication key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) digest: [u8; 16],
    pub(super) id: MessageId,
    pub(super) sequence: u64,
    pub(super) until_ms: u64,
}

/// A message to be put into a queue.
pub(super) struct New {
    pub(super) id: MessageId,
    pub(super) sent_ms: u64,
    pub(super) due_ms: u64,
    pub(super) priority: u8,
    pub(super) group: Option<String>,
    pub(super) story: Option<Story>,
    pub(super) parcel: Bytes,
}

#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) name: Name,
    /// Of this model's own.
    pub(super) uid: u64,
    /// As the machine drew it; known once it has been seen.
    pub(super) number: Option<u64>,
    pub(super) version: u64,
    pub(super) created_ms: u64,
    pub(super) settings: Settings,
    pub(super) last_sequence: u64,
    pub(super) totals: Totals,
    /// Messages that were purged, and had perhaps been dropped for their age before.
    pub(super) perhaps_expired: u64,
    pub(super) messages: Vec<Message>,
    pub(super) known: Vec<Known>,
    /// Groups that can be received from, and since which step, if that is certain.
    pub(super) ready: BTreeMap<String, Option<u64>>,
    /// Groups that have lost their last message, and in which step.
    pub(super) emptied: BTreeMap<String, u64>,
    /// Of groups, how many messages are on their way elsewhere and may come back.
    pub(super) away: BTreeMap<String, u64>,
    /// The last ones, the latest last.
    pub(super) jobs: Vec<Job>,
    /// Of each priority, whether what was received last had come back, if that is certain.
    pub(super) last_turns: [Option<bool>; PRIORITIES],
}

impl Queue {
    pub(super) fn is_fifo(&self) -> bool {
        self.settings.mode == Mode::Fifo
    }

    pub(super) fn leased(&self) -> u64 {
        self.messages.iter().filter(|message| message.is_leased()).count() as u64
    }

    pub(super) fn is_old(&self, message: &Message, now_ms: u64) -> bool {
        now_ms.saturating_sub(message.visible_ms) >= self.settings.retention_ms
    }

    pub(super) fn put(&mut self, new: New, now_ms: u64, rank: Rank) {
        self.last_sequence += 1;
        self.totals.sent += 1;
        let New { id, sent_ms, due_ms, priority, group, story, parcel } = new;
        let delayed = due_ms > now_ms;
        let (from_ms, to_ms) = (due_ms, due_ms);
        self.messages.push(Message {
            id,
            sequence: self.last_sequence,
            sent_ms,
            visible_ms: due_ms,
            priority: priority.min(9),
            group,
            listed: (!delayed).then_some((rank.step, rank.step)),
            failed_until: None,
            leases: 0,
            receives: 0,
            first_received_ms: 0,
            first_failed_ms: None,
            last_failed_ms: 0,
            reason: None,
            story,
            parcel,
            state: State::Free(Free { from_ms, to_ms, delayed, came_back: false, rank }),
            returned: false,
            perhaps_gone: false,
        });
    }

    /// The step up to which the first of some messages has become visible, at the latest.
    pub(super) fn first_listed(&self, some: impl Fn(&&Message) -> bool) -> Option<u64> {
        let listed = |message: &Message| message.listed.expect("what is visible has become so").1;
        self.messages.iter().filter(some).map(listed).min()
    }

    /// A message of a group is back, or has arrived elsewhere.
    pub(super) fn is_no_longer_away(&mut self, group: Option<&String>) {
        let Some(group) = group else { return };
        let left = self.away.remove(group).map_or(0, |away| away - 1);
        if left > 0 {
            self.away.insert(group.clone(), left);
        }
    }

    /// Some of these may have gone, and come back.
    pub(super) fn perhaps_returned(&mut self, unsure: &BTreeSet<u64>, step: u64) {
        for message in self.messages.iter_mut().filter(|m| unsure.contains(&m.sequence)) {
            message.returned = true;
            message.listed = Some((message.listed.map_or(step, |(from, _)| from), step));
            if let Some(group) = message.group.clone() {
                self.ready.insert(group, None);
            }
        }
    }

    /// Takes a message out. It must be there.
    pub(super) fn take(&mut self, sequence: u64) -> Message {
        let at = self.messages.iter().position(|message| message.sequence == sequence);
        self.messages.remove(at.expect("the caller has found it"))
    }

    /// A lease ends without an ack. A message that is dead comes back as a letter.
    pub(super) fn fail(
        &mut self,
        sequence: u64,
        (now_ms, rank): (u64, Rank),
        delay_ms: Option<u64>,
        reason: Option<String>,
        ledger: &mut Ledger,
    ) -> Result<Option<DeadLetter>, Difference> {
        let mut message = self.take(sequence);
        self.totals.failed += 1;
        message.first_failed_ms.get_or_insert(now_ms);
        message.last_failed_ms = now_ms;
        message.reason = reason.or(message.reason);
        if self.is_old(&message, now_ms) {
            self.totals.expired += 1;
            ledger.gone(message.id, &self.name, "expired")?;
            return Ok(None);
        }
        let is_dead = self.settings.max_receive_count.is_some_and(|max| message.receives >= max);
        if let (true, Some(to)) = (is_dead, &self.settings.dead_letter_queue) {
            self.totals.dead += 1;
            ledger.posted(message.id, &self.name, &(self.name.0, to.clone()))?;
            return Ok(Some(self.dead_letter(message, to.clone(), now_ms)));
        }
        let (least_ms, most_ms) = match delay_ms {
            Some(delay_ms) => (delay_ms, delay_ms),
            None => self.backoff_ms(message.receives),
        };
        let (from_ms, to_ms) = (now_ms + least_ms, now_ms + most_ms);
        let delayed = most_ms > 0;
        message.failed_until = Some((from_ms, to_ms));
        message.state = State::Free(Free { from_ms, to_ms, delayed, came_back: true, rank });
        self.messages.push(message);
        Ok(None)
    }

    /// A lease ends of which nobody has seen the message: but for its place it is as before.
    pub(super) fn release(
        &mut self,
        sequence: u64,
        (now_ms, rank): (u64, Rank),
        delay_ms: u64,
        ledger: &mut Ledger,
    ) -> Result<(), Difference> {
        let mut message = self.take(sequence);
        self.totals.failed += 1;
        message.receives -= 1;
        if message.receives == 0 {
            message.first_received_ms = 0;
        }
        if self.is_old(&message, now_ms) {
            self.totals.expired += 1;
            return ledger.gone(message.id, &self.name, "expired");
        }
        let (from_ms, to_ms, delayed) = (now_ms + delay_ms, now_ms + delay_ms, delay_ms > 0);
        message.state = State::Free(Free { from_ms, to_ms, delayed, came_back: true, rank });
        self.messages.push(message);
        Ok(())
    }

    fn dead_letter(&self, message: Message, queue: String, now_ms: u64) -> DeadLetter {
        let story = message.story.unwrap_or_else(|| Story {
            queue: self.name.1.clone(),
            id: message.id,
            receives: message.receives,
            first_failed_ms: message.first_failed_ms.expect("it has just failed"),
            last_failed_ms: now_ms,
            reason: None,
            moved_ms: now_ms,
            group: message.group,
        });
        let reason = message.reason.or(story.reason);
        let story = Story { last_failed_ms: now_ms, reason, moved_ms: now_ms, ..story };
        let (mode, sent_ms, priority) = (self.settings.mode, message.sent_ms, message.priority);
        DeadLetter { queue, mode, story, sent_ms, priority, parcel: message.parcel }
    }

    /// At least and at most.
    fn backoff_ms(&self, receives: u32) -> (u64, u64) {
        let backoff = self.settings.backoff;
        let mut whole = backoff.base_ms;
        for _ in 1..receives {
            whole = whole.saturating_mul(2).min(backoff.max_ms);
        }
        let whole = whole.min(backoff.max_ms);
        if backoff.jitter && whole > 1 { (whole / 2, whole) } else { (whole, whole) }
    }

    /// Does what is due: leases end, delays are over. Whether anything was, and the letters of the
    /// dead, in order.
    pub(super) fn pass_time(
        &mut self,
        now_ms: u64,
        step: u64,
        ledger: &mut Ledger,
    ) -> Result<(bool, Vec<DeadLetter>), Difference> {
        self.known.retain(|known| known.until_ms > now_ms);
        let due_ms = |message: &Message| match message.state {
            State::Leased { until_ms } => Some(until_ms),
            State::Free(free) => free.delayed.then_some(free.to_ms),
        };
        let due = self.messages.iter().filter_map(|m| Some((due_ms(m)?, m.sequence)));
        let mut due: Vec<(u64, u64)> = due.filter(|(due_ms, _)| *due_ms <= now_ms).collect();
        due.sort_unstable();
        due.truncate(COME_BACK_MAX);
        let any = !due.is_empty();
        let mut dead = Vec::new();
        for (due_ms, sequence) in due {
            let mut rank = Rank { step, order: Some((Class::Time, due_ms, sequence)) };
            let message = self.messages.iter_mut().find(|m| m.sequence == sequence);
            let message = message.expect("found above");
            let said = message.reason.clone();
            match &mut message.state {
                State::Free(free) => {
                    if free.from_ms != free.to_ms {
                        rank.order = None;
                    }
                    (free.delayed, free.rank) = (false, rank);
                    message.listed.get_or_insert((step, step));
                }
                State::Leased { .. } => {
                    let reason = said.or(Some("the lease ended".to_owned()));
                    dead.extend(self.fail(sequence, (now_ms, rank), None, reason, ledger)?);
                }
            }
        }
        for message in &mut self.messages {
            // Jitter may have brought it back now, or later.
            if let State::Free(free) = &mut message.state
                && free.delayed
                && free.from_ms < free.to_ms
            {
                free.rank = Rank { step, order: None };
            }
        }
        self.notice_age(now_ms);
        Ok((any, dead))
    }

    /// What is too old may be gone from now on.
    pub(super) fn notice_age(&mut self, now_ms: u64) {
        let (fifo, retention_ms) = (self.is_fifo(), self.settings.retention_ms);
        for message in &mut self.messages {
            let old = now_ms.saturating_sub(message.visible_ms) >= retention_ms;
            // One that is hidden is not looked at, unless it waits in its group.
            let hidden = |free: &Free| free.delayed && !fifo && free.from_ms > now_ms;
            message.perhaps_gone |= old && message.free().is_some_and(|free| !hidden(free));
        }
    }

    /// Notes which groups have become ready, or have ceased to be.
    pub(super) fn note_ready(&mut self, now_ms: u64, step: u64) {
        if !self.is_fifo() {
            return;
        }
        let mut groups: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
        for message in &self.messages {
            groups.entry(message.group.as_deref().unwrap_or_default()).or_default().push(message);
        }
        self.emptied.retain(|_, emptied| *emptied == step);
        self.ready.retain(|name, _| {
            let stays = groups.contains_key(name.as_str());
            if !stays {
                self.emptied.insert(name.clone(), step);
            }
            stays
        });
        let mut job = self.jobs.last_mut();
        for (name, messages) in groups {
            let is_due = |message: &&Message| message.free().is_some_and(|f| f.to_ms <= now_ms);
            let aged = messages.iter().any(|message| message.perhaps_gone);
            if let Some(job) = job.as_mut()
                && (aged || !messages.iter().all(is_due))
            {
                job.may_leave_group(name);
            }
            if messages.iter().any(|message| message.is_leased()) || self.away.contains_key(name) {
                self.ready.remove(name);
                continue;
            }
            let first = messages.iter().min_by_key(|message| message.sequence);
            let first = first.and_then(|message| message.free()).expect("nothing is leased");
            if first.to_ms <= now_ms && !aged {
                // What came in the step in which a job took the last one came before or after it:
                // the group has kept its place, or has not.
                let since = (!self.emptied.contains_key(name)).then_some(step);
                self.ready.entry(name.to_owned()).or_insert(since);
            } else if first.from_ms <= now_ms || aged || self.ready.contains_key(name) {
                self.ready.insert(name.to_owned(), None);
            }
        }
    }
}
