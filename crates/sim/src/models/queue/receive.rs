//! Which messages a receive may hand out, and must.

use std::collections::BTreeSet;

use queue::Delivery;

use super::plain::{Free, Message, PRIORITIES, Queue, State};
use crate::subject::{Difference, same, short};

/// A minute of waiting counts as one priority.
const AGEING_MS: u64 = 60_000;

fn lane(message: &Message, free: &Free) -> (u8, bool) {
    (message.priority, free.came_back)
}

/// A receive being compared.
struct Round<'a> {
    queue: &'a Queue,
    now_ms: u64,
    taken: BTreeSet<u64>,
    last_turns: [Option<bool>; PRIORITIES],
}

impl Queue {
    /// Checks deliveries, at most `limit` of them, and leases what was delivered.
    pub(super) fn receive(
        &mut self,
        deliveries: &[Delivery],
        limit: usize,
        (now_ms, until_ms): (u64, u64),
        step: u64,
    ) -> Result<(), Difference> {
        if deliveries.len() > limit {
            return Err(format!("{} messages received, at most {limit}", deliveries.len()));
        }
        let last_turns = self.last_turns;
        let mut round = Round { queue: self, now_ms, taken: BTreeSet::new(), last_turns };
        let mut last = None;
        for delivery in deliveries {
            let message = round.find(delivery)?;
            if self.is_fifo() {
                round.check_group(message, last)?;
            } else {
                round.check_lane(message)?;
                round.check_turn(message)?;
            }
            round.taken.insert(message.sequence);
            last = Some(message);
        }
        if deliveries.len() < limit
            && let Some(left) = round.must_be_received()
        {
            return Err(format!("not received, though nothing keeps it: {}", short(left)));
        }
        self.last_turns = round.turns_after();
        for delivery in deliveries {
            let message = self.lease(delivery, now_ms, until_ms)?;
            message.listed.get_or_insert((step, step));
        }
        Ok(())
    }

    fn lease(
        &mut self,
        delivery: &Delivery,
        now_ms: u64,
        until_ms: u64,
    ) -> Result<&mut Message, Difference> {
        self.totals.received += 1;
        let found = self.messages.iter_mut().find(|m| m.sequence == delivery.sequence);
        let message = found.expect("found before");
        message.leases += 1;
        message.receives += 1;
        if message.receives == 1 {
            message.first_received_ms = now_ms;
        }
        message.state = State::Leased { until_ms };
        (message.perhaps_gone, message.returned) = (false, false);
        let expected = Delivery {
            id: message.id,
            sequence: message.sequence,
            receipt: delivery.receipt,
            receives: message.receives,
            sent_ms: message.sent_ms,
            first_received_ms: message.first_received_ms,
            group: message.group.clone(),
            parcel: message.parcel.clone(),
            story: message.story.clone(),
        };
        same("delivery", &expected, delivery)?;
        Ok(message)
    }
}

impl<'a> Round<'a> {
    fn find(&self, delivery: &Delivery) -> Result<&'a Message, Difference> {
        let mut messages = self.queue.messages.iter();
        let found = messages.find(|message| message.sequence == delivery.sequence);
        let message =
            found.ok_or_else(|| format!("received what is not there: {}", short(delivery)))?;
        let Some(free) = message.free() else {
            return Err(format!("received while it is leased: {}", short(message)));
        };
        if self.taken.contains(&message.sequence) {
            return Err(format!("received twice at once: {}", short(message)));
        }
        if self.queue.is_old(message, self.now_ms) {
            return Err(format!("received too old, at {}: {}", self.now_ms, short(message)));
        }
        if !self.may_be_out(free) {
            return Err(format!("received before its time, {}: {}", self.now_ms, short(message)));
        }
        Ok(message)
    }

    fn may_be_out(&self, free: &Free) -> bool {
        free.from_ms <= self.now_ms
    }

    /// Messages that have not been taken, and that nobody works on.
    fn left(&self) -> impl Iterator<Item = (&'a Message, &'a Free)> {
        let free = self.queue.messages.iter().filter_map(|m| Some((m, m.free()?)));
        free.filter(|(message, _)| !self.taken.contains(&message.sequence))
    }

    /// One that is certainly there to be received, now or after those before it.
    fn is_certain(&self, message: &Message, free: &Free) -> bool {
        let out = if self.queue.is_fifo() { free.to_ms <= self.now_ms } else { !free.delayed };
        out && !message.perhaps_gone && !self.queue.is_old(message, self.now_ms)
    }

    fn must_be_received(&self) -> Option<&'a Message> {
        if self.queue.is_fifo() {
            let groups: BTreeSet<_> = self.left().map(|(message, _)| &message.group).collect();
            return groups.into_iter().find_map(|group| self.first_of(group.as_deref()));
        }
        let mut left = self.left();
        left.find(|(message, free)| self.is_certain(message, free)).map(|(message, _)| message)
    }

    /// What the rank of a lane is, at least and at most, if this message is at its head. What failed has
    /// waited since it came back.
    fn rank(&self, message: &Message, free: &Free) -> (u64, u64) {
        let visible_ms = message.visible_ms;
        let failed_until = message.failed_until.filter(|_| free.came_back);
        let (from_ms, to_ms) = failed_until.unwrap_or((visible_ms, visible_ms));
        let rank = |since_ms: u64| {
            let waited_ms = self.now_ms.saturating_sub(since_ms.max(visible_ms));
            u64::from(message.priority) + waited_ms / AGEING_MS
        };
        (rank(to_ms), rank(from_ms))
    }

    fn of_lane(&self, of: (u8, bool)) -> impl Iterator<Item = (&'a Message, &'a Free)> {
        let out = self.left().filter(|(_, free)| self.may_be_out(free));
        out.filter(move |(message, free)| lane(message, free) == of)
    }

    /// Whether nothing is certainly before this message in its lane.
    fn may_be_first(&self, message: &Message, free: &Free) -> bool {
        let mut lane = self.of_lane(lane(message, free)).filter(|(other, _)| !other.returned);
        let first =
            !lane.any(|(m, other)| self.is_certain(m, other) && other.rank.is_before(&free.rank));
        first || message.returned
    }

    fn ranks(&self, of: (u8, bool)) -> Vec<(u64, u64)> {
        let first = self.of_lane(of).filter(|(message, free)| self.may_be_first(message, free));
        first.map(|(message, free)| self.rank(message, free)).collect()
    }

    /// Each message is the first of its lane, and goes before those of all other priorities.
    fn check_lane(&self, message: &Message) -> Result<(), Difference> {
        let free = message.free().expect("looked at before");
        if !self.may_be_first(message, free) {
            return Err(format!("received before its turn: {}", short(message)));
        }
        // Which of some have come back, and so are in another lane, nobody can say.
        if message.returned || self.left().any(|(other, _)| other.returned) {
            return Ok(());
        }
        let (_, most) = self.rank(message, free);
        let others = self.left().filter(|(m, free)| self.is_certain(m, free));
        let others: BTreeSet<_> = others.map(|(m, free)| lane(m, free)).collect();
        for other in others.into_iter().filter(|other| other.0 != message.priority) {
            let least = self.ranks(other).into_iter().map(|(least, _)| least).min();
            if (least.unwrap_or_default(), other.0) > (most, message.priority) {
                return Err(format!("lane {other:?} goes before {}", short(message)));
            }
        }
        Ok(())
    }

    /// What came back and what is new take turns, if both go before all other priorities.
    fn check_turn(&mut self, message: &Message) -> Result<(), Difference> {
        let free = message.free().expect("looked at before");
        let other = (message.priority, !free.came_back);
        let waits = self
            .left()
            .find(|(m, free)| lane(m, free) == other && self.is_certain(m, free) && !m.returned);
        let last = self.last_turns[usize::from(message.priority)];
        if let Some((waits, _)) = waits
            && last == Some(free.came_back)
            && self.turns_are_known(message.priority)
            && self.goes_before_others(other)
        {
            return Err(format!("it is the turn of {}, not of {}", short(waits), short(message)));
        }
        self.last_turns[usize::from(message.priority)] = Some(free.came_back);
        Ok(())
    }

    /// Whether a lane certainly has its turn before those of other priorities.
    fn goes_before_others(&self, mine: (u8, bool)) -> bool {
        let least = self.ranks(mine).into_iter().map(|(least, _)| least).min();
        let others = self.left().filter(|(m, free)| m.priority != mine.0 && self.may_be_out(free));
        let most = others.map(|(m, free)| (self.rank(m, free).1, m.priority)).max();
        least.is_some_and(|least| Some((least, mine.0)) > most)
            && !self.left().any(|(other, _)| other.returned)
    }

    /// Not where something was passed over, or nobody can say where it lies.
    fn turns_are_known(&self, priority: u8) -> bool {
        let mut messages = self.queue.messages.iter().filter(|m| m.priority == priority);
        messages.all(|m| !m.returned && !m.perhaps_gone && !self.queue.is_old(m, self.now_ms))
    }

    fn turns_after(&self) -> [Option<bool>; PRIORITIES] {
        let mut turns = self.last_turns;
        for (priority, turn) in (0..).zip(&mut turns) {
            *turn = turn.filter(|_| self.turns_are_known(priority));
        }
        turns
    }

    /// The first message of a group, if it must be received when the group's turn comes.
    fn first_of(&self, group: Option<&str>) -> Option<&'a Message> {
        let of_group = |message: &&Message| message.group.as_deref() == group;
        let mut leased = self.queue.messages.iter().filter(of_group).filter(|m| m.is_leased());
        let taken = self.queue.messages.iter().filter(of_group);
        let taken = taken.filter(|m| self.taken.contains(&m.sequence)).count();
        let away = self.queue.away.contains_key(group.unwrap_or_default());
        if leased.next().is_some() || taken > 0 || away {
            return None;
        }
        self.next_of(group)
    }

    /// The next message of a group, if it certainly is, and can be received.
    fn next_of(&self, group: Option<&str>) -> Option<&'a Message> {
        let left = self.left().filter(|(message, _)| message.group.as_deref() == group);
        let mut left: Vec<_> = left.collect();
        left.sort_by_key(|(message, _)| message.sequence);
        // Those that are too old are passed over when their time has come.
        let passed = |(message, free): &&(&Message, &Free)| {
            self.queue.is_old(message, self.now_ms) && free.to_ms <= self.now_ms
        };
        let (message, free) = left.iter().find(|found| !passed(found))?;
        self.is_certain(message, free).then_some(*message)
    }

    /// In a group nothing is passed over, nobody else works on it, and the one that is ready for
    /// longest goes first.
    fn check_group(&self, message: &Message, last: Option<&Message>) -> Result<(), Difference> {
        let group = message.group.as_deref();
        let mut same_group = self.queue.messages.iter().filter(|m| m.group.as_deref() == group);
        if let Some(leased) = same_group.find(|m| m.is_leased()) {
            return Err(format!(
                "{} received while {} is leased, of one group",
                short(message),
                short(leased)
            ));
        }
        if self.queue.away.contains_key(group.unwrap_or_default()) {
            return Err(format!("received while one of its group is away: {}", short(message)));
        }
        let mut before = self.left().filter(|(m, _)| {
            m.group.as_deref() == group && m.sequence < message.sequence && !m.perhaps_gone
        });
        if let Some((before, _)) = before.next() {
            return Err(format!("out of order: {} before {}", short(message), short(before)));
        }
        let last = last.map(|last| last.group.as_deref());
        if last == Some(group) {
            return Ok(());
        }
        let again = self.queue.messages.iter().filter(|m| self.taken.contains(&m.sequence));
        if again.into_iter().any(|m| m.group.as_deref() == group) {
            return Err(format!("a group that was left is gone back to: {}", short(message)));
        }
        if let Some(last) = last {
            let aged = self.queue.messages.iter().filter(|m| m.group.as_deref() == last);
            let aged = aged.into_iter().any(|m| m.perhaps_gone);
            if let Some(next) = self.next_of(last)
                && !aged
            {
                return Err(format!("a group was left before its end: {}", short(next)));
            }
        }
        self.check_group_rank(group.unwrap_or_default(), message)
    }

    fn check_group_rank(&self, group: &str, message: &Message) -> Result<(), Difference> {
        let Some(Some(mine)) = self.queue.ready.get(group) else { return Ok(()) };
        let others = self.queue.ready.iter().filter_map(|(name, since)| Some((name, (*since)?)));
        for (other, since) in others {
            if since < *mine && self.first_of(Some(other)).is_some() {
                return Err(format!("group {other} was ready before that of {}", short(message)));
            }
        }
        Ok(())
    }
}
