//! Whether rows hold what the model holds.

use std::collections::{BTreeMap, BTreeSet};

use kernel::machine::{Effect, Place, machine_key, pending_effects};
use kernel::rows::{RowsReader, Scan};
use kernel::{TenantId, Unreadable};
use queue::parcel::ArchivedBody;
use queue::{Counts, Described, MACHINE, PeekState, Peeked, QueueEffect};

use super::QueueModel;
use super::clients::TENANTS;
use super::ledger::{BodyOf, Ledger, Name};
use super::plain::{Class, Message, Queue, Rank, State};
use crate::subject::{Difference, Sight, same, short};

/// Kinds of rows of which nothing is left when no message is.
const KINDS_OF_MESSAGES: [u8; 10] = *b"lhxwgakebo";

impl QueueModel {
    pub(super) fn look(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        let mut names = std::mem::take(&mut self.touched);
        if sight.full {
            names.extend(self.queues.iter().map(|queue| queue.name.clone()));
            self.check_all(sight)?;
        }
        for name in names {
            let described = queue::queue(sight.rows, name.0, &name.1);
            let Some(at) = self.queues.iter().position(|queue| queue.name == name) else {
                same("a queue that is gone", &None, &described)?;
                continue;
            };
            let described = described.ok_or_else(|| format!("there is no queue {name:?}"))?;
            self.adopt_number(at, described.definition.number)?;
            let queue = &mut self.queues[at];
            let look = Look { rows: sight.rows, now_ms: self.now_ms, step: self.tick_step };
            look.at(queue, &described, &mut self.ledger.borrow_mut())
                .map_err(|difference| format!("queue {}: {difference}", name.1))?;
            queue.note_ready(self.now_ms, self.step);
        }
        Ok(())
    }

    fn check_all(&self, sight: &Sight<'_>) -> Result<(), Difference> {
        for tenant in TENANTS {
            let mine = || self.queues.iter().filter(|queue| queue.name.0 == tenant);
            let rows = sight.rows.scan(&Scan::prefix(&machine_key(MACHINE, b'q', tenant)));
            same("queues", &mine().count(), &rows.len())?;
            let used = sight.usage.get(&tenant).copied().unwrap_or_default();
            let (queues, topics) = (mine().count() as u64, self.topic_count(tenant));
            same("usage: entities", &(queues + topics), &used.entities.unsigned_abs())?;
            same("usage: queues", &queues, &used.queues.unsigned_abs())?;
            self.check_topics(sight, tenant)?;
        }
        let views = sight.views.iter().filter(|((machine, _), _)| *machine == MACHINE);
        for ((_, key), view) in views {
            same("view", &sight.rows.get(key), view)?;
        }
        Ok(())
    }

    /// That what tenants use is what was found in their queues.
    pub(super) fn check_usage(&self, sight: &Sight<'_>) -> Result<(), Difference> {
        for tenant in TENANTS {
            let mine = || self.queues.iter().filter(|queue| queue.name.0 == tenant);
            let bytes: u64 = mine().flat_map(|queue| &queue.messages).map(Message::bytes).sum();
            let reserved = self.reservations.iter().filter(|reserved| reserved.body.0 == tenant);
            let bytes = bytes + reserved.map(|reserved| reserved.body.1.bytes).sum::<u64>();
            let used = sight.usage.get(&tenant).copied().unwrap_or_default();
            same("usage: bytes", &i64::try_from(bytes).expect("small"), &used.bytes)?;
            let leased: u64 = mine().map(|queue| queue.leased()).sum();
            same("usage: leased", &i64::try_from(leased).expect("small"), &used.leased)?;
        }
        Ok(())
    }

    /// That what is to be deleted is nobody's any more, and what is somebody's is there.
    pub(super) fn check_bodies(&self, sight: &Sight<'_>) -> Result<(), Difference> {
        let pending = pending_effects(sight.rows, 0, usize::MAX).into_iter();
        let mine = pending.filter(|effect| effect.machine == MACHINE);
        let asked: Result<Vec<BodyOf>, _> = mine.map(|effect| body_of(&effect)).collect();
        let asked = asked.map_err(|error| error.to_string())?;
        let held = self.queues.iter().flat_map(|queue| {
            let bodies = queue.messages.iter().filter_map(|m| ArchivedBody::of(&m.parcel));
            bodies.map(|body| (queue.name.0, body))
        });
        let reserved = self.reservations.iter().map(|reserved| reserved.body);
        self.ledger.borrow().check_bodies(&asked, held.chain(reserved))
    }

    pub(super) fn look_healed(&self, rows: &RowsReader) -> Result<(), Difference> {
        for queue in &self.queues {
            same("messages after years", &None, &queue.messages.first().map(short))?;
            same("a job after years", &None, &queue.running().map(short))?;
        }
        for (tenant, kind) in TENANTS.into_iter().flat_map(|t| KINDS_OF_MESSAGES.map(|k| (t, k))) {
            let left = rows.scan(&Scan::prefix(&machine_key(MACHINE, kind, tenant)).limit(1));
            same("rows of messages after years", &None, &left.first())?;
        }
        let is_here = |name: &Name, place: Place| {
            queue::place(name.0, &name.1).shard(place.shard_count) == place.shard
        };
        // A shard without an entry has no message.
        let here = |name: &Name| self.place.is_some_and(|place| is_here(name, place));
        self.ledger.borrow().check_healed(here)
    }
}

/// The body that an effect is about.
pub(super) fn body_of(effect: &Effect) -> Result<BodyOf, Unreadable> {
    let QueueEffect::DeleteBody(body) = QueueEffect::decode(&effect.payload)?;
    Ok((effect.tenant, body))
}

struct Look<'a> {
    rows: &'a RowsReader,
    now_ms: u64,
    step: u64,
}

impl Look<'_> {
    fn at(
        &self,
        queue: &mut Queue,
        described: &Described,
        ledger: &mut Ledger,
    ) -> Result<(), Difference> {
        same("version", &queue.version, &described.definition.version)?;
        same("created", &queue.created_ms, &described.definition.created_ms)?;
        same("settings", &queue.settings, &described.definition.settings)?;
        let mut seen = BTreeSet::new();
        let mut visible = Vec::new();
        let counts = &described.counts;
        for (state, count) in [
            (PeekState::Visible, counts.visible),
            (PeekState::Delayed, counts.delayed),
            (PeekState::Leased, counts.leased),
        ] {
            let found =
                queue::peek_all(self.rows, queue.name.0, described.definition.number, state);
            same(&format!("{state:?}"), &(found.len() as u64), &count)?;
            for peeked in found {
                if !seen.insert(peeked.sequence) {
                    return Err(format!("in two places: {}", short(&peeked)));
                }
                self.at_message(queue, &peeked, state)?;
                if state == PeekState::Visible {
                    visible.push(peeked.sequence);
                }
            }
        }
        self.adopt_dropped(queue, &seen, ledger)?;
        if !queue.is_fifo() {
            adopt_order(queue, &visible)?;
        }
        let more = counts.totals.expired.saturating_sub(queue.totals.expired);
        if more <= std::mem::take(&mut queue.perhaps_expired) {
            queue.totals.expired += more;
        }
        same("totals", &queue.totals, &counts.totals)?;
        let bytes: u64 = queue.messages.iter().map(Message::bytes).sum();
        same("bytes", &bytes, &counts.bytes)?;
        let archived = queue.messages.iter().filter(|m| ArchivedBody::of(&m.parcel).is_some());
        same("bodies in the archive", &(archived.count() as u64), &counts.archived)?;
        let full = queue.leased() >= queue.settings.max_inflight;
        same("as many leased as may be", &full, &counts.full)?;
        check_ready(queue, counts, self.now_ms)?;
        self.at_jobs(queue, described.definition.number)?;
        check_oldest(queue, described)
    }

    fn at_jobs(&self, queue: &mut Queue, number: u64) -> Result<(), Difference> {
        let rows = queue::jobs(self.rows, queue.name.0, number);
        same("jobs", &queue.jobs.len(), &rows.len())?;
        queue.jobs.iter_mut().zip(&rows).try_for_each(|(job, row)| job.look(row))
    }

    fn at_message(
        &self,
        queue: &mut Queue,
        peeked: &Peeked,
        state: PeekState,
    ) -> Result<(), Difference> {
        let found = queue.messages.iter_mut().find(|m| m.sequence == peeked.sequence);
        let Some(message) = found else {
            return Err(format!("should not be there: {}", short(peeked)));
        };
        message.perhaps_gone = false;
        let expected = match &mut message.state {
            State::Leased { .. } => PeekState::Leased,
            State::Free(free) => {
                let jittered = free.from_ms < free.to_ms;
                if free.delayed && jittered && free.from_ms <= self.now_ms {
                    free.delayed = state != PeekState::Visible;
                    free.rank = Rank { step: self.step, order: None };
                }
                if free.delayed { PeekState::Delayed } else { PeekState::Visible }
            }
        };
        same(&format!("state of {}", peeked.sequence), &expected, &state)?;
        let expected = Peeked {
            id: message.id,
            sequence: message.sequence,
            sent_ms: message.sent_ms,
            receives: message.receives,
            reason: message.reason.clone(),
            group: message.group.clone(),
            story: message.story.clone(),
            parcel: message.parcel.clone(),
        };
        same("message", &expected, peeked)
    }

    /// Messages that are in no row any more. Only age is a reason that this model does not know.
    fn adopt_dropped(
        &self,
        queue: &mut Queue,
        seen: &BTreeSet<u64>,
        ledger: &mut Ledger,
    ) -> Result<(), Difference> {
        let (here, missing): (Vec<Message>, Vec<Message>) = std::mem::take(&mut queue.messages)
            .into_iter()
            .partition(|m| seen.contains(&m.sequence));
        queue.messages = here;
        for message in missing {
            if !message.perhaps_gone {
                return Err(format!("lost, at {}: {}", self.now_ms, short(&message)));
            }
            queue.totals.expired += 1;
            ledger.gone(message.id, &queue.name, "expired")?;
        }
        Ok(())
    }
}

/// Rows say in which order messages are; it is one that the model may have, and from now on has.
fn adopt_order(queue: &mut Queue, visible: &[u64]) -> Result<(), Difference> {
    let mut lanes: BTreeMap<(u8, bool), Vec<(u64, Rank)>> = BTreeMap::new();
    for (position, sequence) in visible.iter().enumerate() {
        let found = queue.messages.iter_mut().find(|m| m.sequence == *sequence);
        let message = found.expect("it was looked at");
        if message.returned {
            continue;
        }
        let priority = message.priority;
        let State::Free(free) = &mut message.state else { continue };
        let lane = lanes.entry((priority, free.came_back)).or_default();
        // Only neighbours of one step can be in doubt, and those are few.
        for (before, rank) in lane.iter().rev().take(40) {
            if free.rank.is_before(rank) {
                return Err(format!("{before} is before {sequence} in its lane"));
            }
        }
        lane.push((*sequence, free.rank));
        free.rank.order = Some((Class::Row, position as u64, 0));
    }
    Ok(())
}

/// Who waits is called when something is ready: each message that can be received, or each group whose
/// first can.
fn check_ready(queue: &Queue, counts: &Counts, now_ms: u64) -> Result<(), Difference> {
    if !queue.is_fifo() {
        return same("ready", &counts.visible, &counts.ready());
    }
    let mut groups: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
    for message in &queue.messages {
        groups.entry(message.group.as_deref().unwrap_or_default()).or_default().push(message);
    }
    groups.retain(|name, messages| {
        !queue.away.contains_key(*name) && messages.iter().all(|message| message.free().is_some())
    });
    let first = |messages: &[&Message]| {
        let first = messages.iter().min_by_key(|message| message.sequence);
        *first.and_then(|message| message.free()).expect("nobody works on any of them")
    };
    let aged = |messages: &[&Message]| messages.iter().any(|message| message.perhaps_gone);
    let certain = groups.values().filter(|m| first(m).to_ms <= now_ms && !aged(m)).count() as u64;
    let possible = groups.values().filter(|m| first(m).from_ms <= now_ms || aged(m)).count() as u64;
    let ready = counts.ready().clamp(certain, possible);
    same("groups that are ready", &ready, &counts.ready())
}

/// The time shown is that of the message that was the first to become visible of those that are, where
/// there is order; else that of one.
fn check_oldest(queue: &Queue, described: &Described) -> Result<(), Difference> {
    let is_visible = |message: &&Message| message.free().is_some_and(|free| !free.delayed);
    let last = queue.first_listed(is_visible);
    // Of two that came in one step, the machine decides.
    let may_be_first = |message: &&Message| {
        !queue.is_fifo() || message.listed.is_some_and(|(from, _)| Some(from) <= last)
    };
    let mut visible = queue.messages.iter().filter(is_visible);
    let known = match described.oldest_visible_ms {
        Some(oldest_ms) => visible.filter(may_be_first).any(|m| m.visible_ms == oldest_ms),
        None => visible.next().is_none(),
    };
    same("the oldest is visible since then", &true, &known)
}

/// What has come to a queue after this one, in order, wherever it is there.
pub(super) fn newer_than(rows: &RowsReader, name: &Name, last: u64) -> Vec<Peeked> {
    let (tenant, name): (TenantId, &str) = (name.0, &name.1);
    let Some(described) = queue::queue(rows, tenant, name) else { return Vec::new() };
    let states = [PeekState::Visible, PeekState::Delayed, PeekState::Leased];
    let found = states
        .into_iter()
        .flat_map(|state| queue::peek_all(rows, tenant, described.definition.number, state));
    let mut newer: Vec<Peeked> = found.filter(|peeked| peeked.sequence > last).collect();
    newer.sort_by_key(|peeked| peeked.sequence);
    newer
}
