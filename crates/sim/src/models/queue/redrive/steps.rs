//! What a job does in a step: as is known of it, or as is seen of it.

use std::collections::BTreeSet;

use queue::{Job as JobRow, PeekState};

use super::super::QueueModel;
use super::super::ledger::Ledger;
use super::super::letters::{Arrivals, Moved, MovedFrom, Parting, Post, shard_of};
use super::super::plain::{Free, Message, Queue};
use super::{Job, STEP_ROWS_MAX, lane, place};
use crate::naive::Scene;
use crate::subject::{Difference, same, short};

/// Messages that go, and where.
type Going = Vec<(Message, String)>;

/// Whether a message is where it was when a job began, where there is no order.
fn lies_since(job: &Job, free: &Free) -> bool {
    !free.delayed && free.rank.step < job.since
}

impl Queue {
    /// Messages that lie where a job looks, in the order of rows, from where it is on. A lane is looked
    /// at as far as it reached when the job began.
    fn ahead(&self, job: &Job) -> Vec<&Message> {
        let fifo = self.is_fifo();
        let lies = |free: &Free| fifo || lies_since(job, free);
        let ahead = self.messages.iter().filter(|m| m.free().is_some_and(lies));
        let mut ahead: Vec<&Message> = ahead.filter(|m| !job.looked.is_past(fifo, m)).collect();
        if fifo {
            ahead.sort_by_key(|message| place(message));
        } else {
            ahead.sort_by_key(|message| {
                let rank = message.free().expect("looked at above").rank;
                (lane(message), rank.step, rank.order)
            });
        }
        ahead
    }

    /// Whether a message that lies there could be received: where there is order, in its turn.
    fn can_be_received(&self, message: &Message, now_ms: u64) -> bool {
        let is_due = |message: &Message| message.free().is_some_and(|free| free.to_ms <= now_ms);
        let group = || self.messages.iter().filter(|other| other.group == message.group);
        let first = group().min_by_key(|other| (other.free().is_some(), other.sequence));
        !self.is_fifo() || is_due(message) && first.is_some_and(is_due)
    }

    /// Whether nobody can say what a step finds: `came` so many messages come at the same time.
    fn is_step_vague(&self, job: &Job, (now_ms, step): (u64, u64), came: usize) -> bool {
        let (budget, _) = job.pace(now_ms);
        let ahead = self.ahead(job);
        let goes = |m: &&Message| m.sequence <= job.last_sequence && job.target(self, m).is_some();
        let free = self.messages.iter().filter(|message| message.free().is_some()).count();
        let crowded = free + came >= STEP_ROWS_MAX;
        if !self.is_fifo() {
            let all_go = ahead.len() == free
                && ahead.len() >= budget
                && ahead[..budget].iter().all(|m| goes(m) && !self.is_old(m, now_ms));
            let unknown = |m: &&Message| m.returned || m.perhaps_gone && !self.is_old(m, now_ms);
            return crowded && !all_go || ahead.iter().any(unknown);
        }
        // Whether something is left behind what it takes says whether it is at its end.
        let tight = crowded || ahead.iter().filter(|m| goes(m)).count() >= budget;
        let is_vague = |message: &&Message| {
            let Some(free) = message.free() else { return false };
            let came_just_now = now_ms < free.to_ms || free.rank.step == step;
            free.from_ms <= now_ms && came_just_now
                || message.perhaps_gone && (tight || now_ms < free.to_ms)
        };
        let mut vague = self.messages.iter().filter(is_vague);
        let matters = |message: &Message| tight || message.sequence <= job.last_sequence;
        crowded || vague.any(|m| matters(m) && !job.looked.is_past(true, m))
    }

    /// A step of a job of which everything is known.
    fn step(&mut self, job: &mut Job, now_ms: u64) -> Going {
        let (budget, next_ms) = job.pace(now_ms);
        let ahead: Vec<u64> = self.ahead(job).iter().map(|message| message.sequence).collect();
        let mut going = Vec::new();
        let mut left = budget;
        for sequence in ahead {
            if left == 0 || job.is_at_its_limit() {
                break;
            }
            let found = self.messages.iter().find(|message| message.sequence == sequence);
            let message = found.expect("it was just there");
            if self.is_fifo() && job.looked.is_past(true, message) {
                continue;
            }
            job.looked.at(message);
            if sequence > job.last_sequence || !self.can_be_received(message, now_ms) {
                job.looked.pass_group(message);
                continue;
            }
            if self.is_old(message, now_ms) {
                continue;
            }
            let Some(target) = job.target(self, message) else {
                job.skipped += 1;
                continue;
            };
            (job.matched, left) = (job.matched + 1, left - 1);
            if !job.asked.dry_run {
                job.moved += 1;
                going.push((self.take(sequence), target));
            }
        }
        job.due_ms = if left == budget { now_ms } else { next_ms };
        if left > 0 || job.is_at_its_limit() {
            job.comes_to_its_end(now_ms);
        }
        going
    }

    /// That a job which has come to its end has left nothing that it could have moved at any time since
    /// it began; one that only counts leaves what it has counted.
    fn check_end(&self, job: &Job, now_ms: u64) -> Result<(), Difference> {
        if !job.at_end || job.asked.limit.is_some() {
            return Ok(());
        }
        let mut left = self.messages.iter().filter(|message| {
            let group = message.group.as_ref();
            let could_go = message.free().is_some_and(|free| match group {
                None => lies_since(job, free),
                Some(group) => {
                    message.sequence <= job.last_sequence && !job.may_leave.contains(group)
                }
            });
            let in_doubt = message.perhaps_gone || message.returned;
            let in_doubt = in_doubt || job.again.contains(&message.sequence);
            could_go
                && !in_doubt
                && !self.is_old(message, now_ms)
                && job.target(self, message).is_some()
        });
        if job.asked.dry_run {
            let left = left.count() as u64;
            return same("a job counts what it could move", &true, &(job.matched >= left));
        }
        left.next().map_or(Ok(()), |left| {
            Err(format!("left behind by a job: {}: {}", short(left), short(job)))
        })
    }

    /// Where there is order, nothing that goes along overtakes anything that goes as well.
    fn check_order(&self, job: &Job, going: &[(Message, String)]) -> Result<(), Difference> {
        let is_known = |m: &Message| !m.returned && !job.again.contains(&m.sequence);
        for (number, (message, target)) in going.iter().enumerate().filter(|_| self.is_fifo()) {
            let stays = self.messages.iter().filter(|other| {
                let fits = other.sequence <= job.last_sequence && job.target(self, other).is_some();
                fits && !other.perhaps_gone && is_known(other)
            });
            let later = going[number..].iter().filter(|(_, to)| to == target).map(|(m, _)| m);
            let overtaken = |other: &&Message| {
                let known = is_known(message) && is_known(other);
                known && other.group == message.group && other.sequence < message.sequence
            };
            if let Some(overtaken) = stays.chain(later).find(overtaken) {
                return Err(format!("{} is moved before {}", short(message), short(overtaken)));
            }
        }
        Ok(())
    }

    /// What a step may have moved, if nobody can say what it found.
    fn may_go(&self, job: &Job, now_ms: u64) -> Going {
        let comes = |free: &Free| !free.delayed || free.from_ms <= now_ms;
        let fifo = self.is_fifo();
        let lies = |free: &Free| if fifo { comes(free) } else { lies_since(job, free) };
        let may = self.messages.iter().filter(|message| {
            let left_alone = message.sequence > job.last_sequence || self.is_old(message, now_ms);
            !left_alone && message.free().is_some_and(lies)
        });
        may.filter_map(|m| Some((m.clone(), job.target(self, m)?))).collect()
    }

    fn letter(&self, job: u64, message: &Message, target: &str) -> Parting {
        let moved = Moved {
            queue: target.to_owned(),
            id: message.id,
            priority: message.priority,
            group: message.group.clone(),
            parcel: message.parcel.clone(),
            from: MovedFrom {
                queue: self.name.1.clone(),
                number: self.number.expect("its number was seen when its job began"),
                job,
                sequence: message.sequence,
                sent_ms: message.sent_ms,
                visible_ms: message.visible_ms,
                leases: message.leases,
                unseen: message.leases - message.receives,
                first_received_ms: message.first_received_ms,
                first_failed_ms: message.first_failed_ms.unwrap_or(0),
                last_failed_ms: message.last_failed_ms,
                reason: message.reason.clone(),
                story: message.story.clone(),
            },
        };
        Parting { from: self.name.clone(), post: Post::Moved(moved) }
    }

    fn let_go(
        &mut self,
        job: u64,
        going: &[(Message, String)],
        ledger: &mut Ledger,
    ) -> Result<Vec<Parting>, Difference> {
        self.totals.moved += going.len() as u64;
        let mut letters = Vec::new();
        for (message, target) in going {
            ledger.posted(message.id, &self.name, &(self.name.0, target.clone()))?;
            letters.push(self.letter(job, message, target));
            if let Some(group) = message.group.clone() {
                *self.away.entry(group).or_default() += 1;
            }
        }
        Ok(letters)
    }
}

impl QueueModel {
    /// The next steps of all jobs whose time has come, when these letters were written.
    pub(in super::super) fn redrive(
        &mut self,
        scene: &mut Scene<'_>,
        partings: &mut Vec<Parting>,
        ended: &BTreeSet<u64>,
    ) -> Result<(), Difference> {
        let now_ms = self.now_ms;
        let is_due = |queue: &Queue| queue.running().is_some_and(|job| job.due_ms <= now_ms);
        let due: Vec<usize> =
            (0..self.queues.len()).filter(|at| is_due(&self.queues[*at])).collect();
        // What jobs move to each other comes to them while they take their steps.
        let others = if due.len() > 1 { STEP_ROWS_MAX } else { 0 };
        for at in due {
            let queue = &mut self.queues[at];
            self.touched.insert(queue.name.clone());
            let mut job = queue.jobs.pop().expect("one is running");
            let came = partings.iter().filter(|parting| parting.to() == queue.name).count();
            let when = (now_ms, self.step);
            let ended = queue.is_fifo() && ended.contains(&queue.uid);
            let vague = ended || queue.is_step_vague(&job, when, came + others);
            let going = if vague || job.vague {
                self.step_as_seen(scene, at, &mut job)?
            } else {
                queue.step(&mut job, now_ms)
            };
            let queue = &mut self.queues[at];
            // Of very many messages a step may pass some, and take none.
            job.steps += usize::from(queue.messages.len() < STEP_ROWS_MAX);
            job.check(now_ms)?;
            queue.check_order(&job, &going)?;
            queue.check_end(&job, now_ms)?;
            let number = job.number;
            queue.jobs.push(job);
            partings.extend(queue.let_go(number, &going, &mut self.ledger.borrow_mut())?);
            queue.note_ready(now_ms, self.step);
        }
        Ok(())
    }

    /// What cannot be taken where it would go is back in this entry, if that is on this shard. Of these it
    /// cannot be said which went; and those that did are as they were.
    fn unsure_of(&self, scene: &Scene<'_>, at: usize, job: &Job, may: Going) -> (Going, Going) {
        let is_back = |(message, target): &(Message, String)| {
            let letter = self.queues[at].letter(job.number, message, target);
            !job.asked.dry_run && letter.comes_back_here(self, scene)
        };
        may.into_iter().partition(is_back)
    }

    /// So many of these came back; rows tell from where, if each was to go to where it died.
    fn come_back_as_seen(
        &self,
        scene: &Scene<'_>,
        job: &mut Job,
        row: &JobRow,
        (back, unsure): (u64, &[(Message, String)]),
    ) -> Result<(), Difference> {
        let (now_ms, tenant) = (self.now_ms, scene.tenant());
        if let Some(target) = job.asked.target.clone() {
            (0..back).for_each(|_| job.came_back((target.clone(), row.state), now_ms));
            return Ok(());
        }
        let is_here =
            |to: &String| shard_of(&(tenant, to.clone()), scene.place()) == scene.place().shard;
        let known = |to: &&String| job.unfit.contains(to) || unsure.iter().any(|(_, at)| at == *to);
        let wrong = row.unfit.iter().find(|to| is_here(to) && !known(to));
        same("a queue that could have taken what died there", &None, &wrong)?;
        job.returned += back;
        (job.unfit, job.failure) = (row.unfit.clone(), row.failure);
        Ok(())
    }

    /// A step of which only rows tell what it has done.
    fn step_as_seen(
        &mut self,
        scene: &Scene<'_>,
        at: usize,
        job: &mut Job,
    ) -> Result<Going, Difference> {
        job.vague = true;
        let (now_ms, queue) = (self.now_ms, &self.queues[at]);
        let (budget, next_ms) = job.pace(now_ms);
        let described = queue::queue(scene.rows, queue.name.0, &queue.name.1);
        let number = described.map(|described| described.definition.number);
        let number = number.filter(|number| queue.number == Some(*number));
        let row = number.and_then(|queue_number| {
            queue::job(scene.rows, queue.name.0, queue_number, job.number)
        });
        let states = [PeekState::Visible, PeekState::Delayed, PeekState::Leased];
        let left = states.into_iter().flat_map(|state| {
            number.map_or_else(Vec::new, |n| queue::peek_all(scene.rows, queue.name.0, n, state))
        });
        let left: BTreeSet<u64> = left.map(|peeked| peeked.sequence).collect();
        let may = queue.may_go(job, now_ms);
        let (unsure, mut may) = self.unsure_of(scene, at, job, may);
        may.retain(|(message, _)| !job.asked.dry_run && !left.contains(&message.sequence));
        may.sort_by_key(|(message, _)| place(message));
        // Those that can be seen where they went, and as many others as are told.
        let mut arrivals = Arrivals::default();
        let (mut going, mut rest) = (Vec::new(), Vec::new());
        for (message, target) in may {
            let letter = queue.letter(job.number, &message, &target);
            match arrivals.take(self, scene, &letter) {
                Some(place) => going.push((place, (message, target))),
                None => rest.push((u64::MAX, (message, target))),
            }
        }
        let sent =
            row.as_ref().map_or(Some(going.len() as u64), |r| r.moved.checked_sub(job.moved));
        let back = match (&row, sent) {
            (Some(row), Some(sent)) if !unsure.is_empty() => {
                let back = row.returned.saturating_sub(job.returned);
                back.min(sent.saturating_sub(going.len() as u64)).min(unsure.len() as u64)
            }
            _ => 0,
        };
        let told = sent.map_or(usize::MAX, |sent| usize::try_from(sent - back).expect("few"));
        if told < going.len() || told > going.len() + rest.len() || told > budget {
            return Err(format!("{told} moved, seen {}: {}", short(&going), short(job)));
        }
        // Which of the rest went nobody can say, nor so which groups have lost their places.
        for group in rest.iter().filter_map(|(_, (message, _))| message.group.as_ref()) {
            self.queues[at].ready.entry(group.clone()).and_modify(|since| *since = None);
        }
        going.extend(rest.drain(..told - going.len()));
        going.sort_by_key(|(place, _)| *place);
        let before = job.matched;
        job.moved += told as u64 + back;
        if let Some(row) = row.as_ref().filter(|_| back > 0) {
            self.come_back_as_seen(scene, job, row, (back, &unsure))?;
        }
        job.matched = row.as_ref().map_or(job.moved, |row| row.matched);
        job.skipped = row.as_ref().map_or(job.skipped, |row| row.skipped);
        job.due_ms = if job.matched == before { now_ms } else { next_ms };
        same("a step takes no more than it may", &true, &(job.matched <= before + budget as u64))?;
        job.perhaps_ended = row.is_none();
        // Whoever ended it in this entry did so later.
        if row.is_some_and(|row| row.is_at_end()) {
            job.comes_to_its_end(now_ms);
        }
        let going = going.into_iter().map(|(_, going)| going);
        let going: Going = going.collect();
        self.queues[at].totals.moved += back;
        let unsure = unsure.into_iter().map(|(message, _)| message.sequence).collect();
        self.queues[at].perhaps_returned(&unsure, self.step);
        for (message, _) in &going {
            self.queues[at].take(message.sequence);
        }
        Ok(going)
    }
}
