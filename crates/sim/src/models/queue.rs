//! Queues, plainly: a list of queues, each with a list of messages.
//!
//! The machine has some freedom, and the model allows it exactly:
//! - what jitter draws, within its bounds;
//! - the order of what comes back, and of what arrives, when one entry begins;
//! - when a message that is too old is dropped, as long as nobody receives it;
//! - whether a job that moves messages finds what comes back, or is dropped, in the same moment;
//! - the numbers of queues and the receipts, as long as none comes twice.
//!
//! For that it looks at the answer and at the rows after the entry. So it learns what was drawn,
//! and is certain again when the next entry begins.

mod asks;
mod clients;
mod commands;
mod filter;
mod ledger;
mod letters;
mod look;
mod plain;
mod receive;
mod redrive;
mod topics;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use kernel::codec::{split_command, unpack};
use kernel::machine::Place;
use kernel::{TenantId, Unreadable};
use queue::{
    Command, DeadLetter, JobState, MACHINE, Mode, Refusal, Reply, SendRefusal, Settings, Totals,
};

pub use clients::QueueSubject;
use ledger::{BodyOf, Ledger, Name};
use letters::{Arrived, Moved, Parting, Post};
use plain::{Free, Message, New, PRIORITIES, Queue, Rank, State};
use topics::Topic;

use crate::naive::Scene;
use crate::subject::{Difference, Model, Sight, same};

/// One for what is hidden, one for what is old.
const QUEUE_TIMERS_MAX: usize = 2;

/// A lease that was given: the queue, the message and which lease of it this was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    queue: u64,
    sequence: u64,
    number: u32,
}

/// A place for a body that has not been sent.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    body: BodyOf,
    /// The queue that may have it.
    queue: u64,
    until_ms: u64,
}

/// See the module.
#[derive(Debug)]
pub struct QueueModel {
    ledger: Rc<RefCell<Ledger>>,
    queues: Vec<Queue>,
    topics: Vec<Topic>,
    uids: u64,
    /// Every number that a queue, a topic or a job ever had here.
    numbers: BTreeSet<u64>,
    /// Every receipt that was ever given out here.
    leases: BTreeMap<Vec<u8>, Lease>,
    reservations: Vec<Reservation>,
    /// In this entry: each may have bodies deleted in the next.
    purges: usize,
    /// Timers of jobs whose queues were deleted: they find nothing then.
    orphans: Vec<u64>,
    place: Option<Place>,
    now_ms: u64,
    step: u64,
    /// The step in which time passed, in this entry.
    tick_step: u64,
    /// To be looked at.
    touched: BTreeSet<Name>,
}

impl QueueModel {
    fn new(ledger: Rc<RefCell<Ledger>>) -> QueueModel {
        QueueModel {
            ledger,
            queues: Vec::new(),
            topics: Vec::new(),
            uids: 0,
            numbers: BTreeSet::new(),
            leases: BTreeMap::new(),
            reservations: Vec::new(),
            purges: 0,
            orphans: Vec::new(),
            place: None,
            now_ms: 0,
            step: 0,
            tick_step: 0,
            touched: BTreeSet::new(),
        }
    }

    fn find(&mut self, name: &Name) -> Option<usize> {
        self.touched.insert(name.clone());
        self.queues.iter().position(|queue| queue.name == *name)
    }

    /// The number of a queue is the one that was seen first, and no other queue's.
    fn adopt_number(&mut self, at: usize, number: u64) -> Result<(), Difference> {
        match self.queues[at].number {
            Some(known) => same("number of a queue", &known, &number),
            None if self.numbers.insert(number) => {
                self.queues[at].number = Some(number);
                Ok(())
            }
            None => Err(format!("a queue has number {number}, which is not new")),
        }
    }

    fn make(&mut self, name: Name, settings: Settings) -> usize {
        self.uids += 1;
        self.ledger.borrow_mut().queues.insert(name.clone(), (settings.mode, 1));
        self.queues.push(Queue {
            name,
            uid: self.uids,
            number: None,
            version: 1,
            created_ms: self.now_ms,
            settings,
            last_sequence: 0,
            totals: Totals::default(),
            perhaps_expired: 0,
            messages: Vec::new(),
            known: Vec::new(),
            ready: BTreeMap::new(),
            emptied: BTreeMap::new(),
            away: BTreeMap::new(),
            jobs: Vec::new(),
            last_turns: [None; PRIORITIES],
        });
        self.queues.len() - 1
    }

    /// A message comes from another queue, which is made if it is not there.
    fn take_in(&mut self, name: &Name, mode: Mode, new: New) -> Result<(), Difference> {
        let found = self.find(name);
        let at = found.unwrap_or_else(|| self.make(name.clone(), Settings::usual(mode)));
        self.ledger.borrow_mut().arrived(new.id, name)?;
        let queue = &mut self.queues[at];
        let group = queue.is_fifo().then(|| new.group.unwrap_or_default());
        // Where it comes among what came back in the same moment, the machine decides.
        let rank = Rank { step: self.step, order: None };
        queue.put(New { group, ..new }, self.now_ms, rank);
        queue.note_ready(self.now_ms, self.step);
        Ok(())
    }

    fn take_dead(&mut self, tenant: TenantId, letter: DeadLetter) -> Result<(), Difference> {
        let DeadLetter { queue, mode, story, sent_ms, priority, parcel } = letter;
        let (id, due_ms, group) = (story.id, self.now_ms, story.group.clone());
        let new = New { id, sent_ms, due_ms, priority, group, story: Some(story), parcel };
        self.take_in(&(tenant, queue), mode, new)
    }

    /// Why a message cannot be moved to where it is on its way to.
    fn why_unfit(&self, tenant: TenantId, moved: &Moved) -> Option<JobState> {
        let mut queues = self.queues.iter();
        let target = queues.find(|queue| (queue.name.0, &queue.name.1) == (tenant, &moved.queue));
        match target {
            None => Some(JobState::NoQueue),
            Some(target) if target.is_fifo() && moved.any_group().is_some() => None,
            Some(target) if !target.is_fifo() && moved.group.is_none() => None,
            Some(_) => Some(JobState::OtherMode),
        }
    }

    /// As if new, under the name it had; or it is sent back.
    fn take_moved(&mut self, scene: &mut Scene<'_>, moved: Moved) -> Result<(), Difference> {
        let tenant = scene.tenant();
        if let Some(why) = self.why_unfit(tenant, &moved) {
            let home = (tenant, moved.from.queue.clone());
            let mut ledger = self.ledger.borrow_mut();
            ledger.sent_back(moved.id, &(tenant, moved.queue.clone()), &home)?;
            scene.send(queue::place(tenant, &home.1), MACHINE, moved.return_letter(why));
            return Ok(());
        }
        let home = queue::place(tenant, &moved.from.queue);
        let arrival = moved.arrival_letter();
        let group = moved.any_group().map(str::to_owned);
        let Moved { queue, id, priority, parcel, .. } = moved;
        let (sent_ms, due_ms) = (self.now_ms, self.now_ms);
        let mode = if group.is_some() { Mode::Fifo } else { Mode::Standard };
        let new = New { id, sent_ms, due_ms, priority, group, story: None, parcel };
        self.take_in(&(tenant, queue), mode, new)?;
        scene.send(home, MACHINE, arrival);
        Ok(())
    }

    fn has_arrived(&mut self, tenant: TenantId, arrived: &Arrived) {
        let name = (tenant, arrived.queue.clone());
        let at = self.find(&name).filter(|at| self.queues[*at].number == Some(arrived.number));
        let Some(at) = at else { return };
        let (now_ms, queue) = (self.now_ms, &mut self.queues[at]);
        if let Some(job) = queue.jobs.iter_mut().find(|job| job.number == arrived.job) {
            job.has_arrived(now_ms);
        }
        queue.is_no_longer_away(arrived.group.as_ref());
        queue.note_ready(now_ms, self.step);
    }

    /// A message comes back, and is what it was.
    fn take_back(
        &mut self,
        tenant: TenantId,
        (moved, why): (Moved, JobState),
    ) -> Result<(), Difference> {
        let Moved { queue: to, id, priority, group, parcel, from } = moved;
        let name = (tenant, from.queue);
        let at = self.find(&name).filter(|at| self.queues[*at].number == Some(from.number));
        let Some(at) = at else {
            let mode = if group.is_some() { Mode::Fifo } else { Mode::Standard };
            let lost = from.story.as_ref().and_then(|story| story.group.clone());
            let (sent_ms, due_ms, group) = (from.sent_ms, self.now_ms, group.or(lost));
            let new = New { id, sent_ms, due_ms, priority, group, story: from.story, parcel };
            return self.take_in(&name, mode, new);
        };
        self.ledger.borrow_mut().arrived(id, &name)?;
        let (now_ms, rank) = (self.now_ms, Rank { step: self.step, order: None });
        let (from_ms, to_ms) = (now_ms, now_ms);
        let message = Message {
            id,
            sequence: from.sequence,
            sent_ms: from.sent_ms,
            visible_ms: from.visible_ms,
            priority,
            group,
            // By age it is the last, whatever place it had.
            listed: Some((self.step, self.step)),
            failed_until: None,
            leases: from.leases,
            receives: from.leases - from.unseen,
            first_received_ms: from.first_received_ms,
            first_failed_ms: (from.first_failed_ms > 0).then_some(from.first_failed_ms),
            last_failed_ms: from.last_failed_ms,
            reason: from.reason,
            story: from.story,
            parcel,
            state: State::Free(Free { from_ms, to_ms, delayed: false, came_back: true, rank }),
            returned: false,
            perhaps_gone: false,
        };
        let queue = &mut self.queues[at];
        if let Some(job) = queue.jobs.iter_mut().find(|job| job.number == from.job) {
            job.came_back((to, why), now_ms);
        }
        queue.jobs.iter_mut().for_each(|job| job.finds_again(message.sequence));
        queue.is_no_longer_away(message.group.as_ref());
        if queue.is_old(&message, now_ms) {
            queue.totals.expired += 1;
            queue.note_ready(now_ms, self.step);
            return self.ledger.borrow_mut().gone(id, &name, "expired");
        }
        if let Some(group) = message.group.clone() {
            queue.ready.insert(group, None);
        }
        queue.messages.push(message);
        queue.note_ready(now_ms, self.step);
        Ok(())
    }
}

impl Model for QueueModel {
    fn apply(&mut self, scene: &mut Scene<'_>, command: &Bytes) -> Result<Bytes, Difference> {
        self.step += 1;
        let command = Command::decode(command).map_err(|error| error.to_string())?;
        let bytes = scene.reply.ok_or("a command without a reply")?;
        let actual = Reply::decode(bytes).map_err(|error| error.to_string())?;
        if matches!(command, Command::Receive(_)) {
            scene.keep_answer_for(queue::RECEIVED_KEPT_MS);
        }
        let expected = self.command(scene, command, &actual)?;
        same("reply", &expected, &actual)?;
        // Whoever finds no room at all, nothing, or a job in the way may come again with the same key.
        let nothing_done = match &expected {
            Reply::Sent(sent) => sent.iter().all(|sent| sent.is_err_and(may_fit_later)),
            Reply::Received(deliveries) => deliveries.is_empty(),
            reply => matches!(reply, Reply::Refused(Refusal::Inflight | Refusal::Redriving)),
        };
        if nothing_done {
            scene.may_be_asked_again();
        }
        Ok(bytes.clone())
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn tick(&mut self, scene: &mut Scene<'_>) -> Result<(), Difference> {
        (self.place, self.now_ms) = (Some(scene.place()), scene.now_ms());
        self.step += 1;
        self.tick_step = self.step;
        self.purges = 0;
        self.end_reservations()?;
        let now_ms = self.now_ms;
        self.orphans.retain(|due_ms| *due_ms > now_ms);
        let (mut partings, mut ended) = (Vec::new(), BTreeSet::new());
        for queue in &mut self.queues {
            let mut ledger = self.ledger.borrow_mut();
            let (any, letters) = queue.pass_time(self.now_ms, self.step, &mut ledger)?;
            queue.note_ready(self.now_ms, self.step);
            if any {
                self.touched.insert(queue.name.clone());
                ended.insert(queue.uid);
            }
            let dead = |letter| Parting { from: queue.name.clone(), post: Post::Dead(letter) };
            partings.extend(letters.into_iter().map(dead));
        }
        self.redrive(scene, &mut partings, &ended)?;
        for parting in self.in_order(scene, partings)? {
            parting.post.send(&mut scene.of(parting.from.0));
        }
        Ok(())
    }

    fn check_timers(&self, count: usize) -> Result<(), Difference> {
        let jobs = self.queues.iter().filter(|queue| queue.running().is_some()).count();
        let jobs = jobs + self.orphans.len();
        let max =
            self.queues.len() * QUEUE_TIMERS_MAX + self.reservations.len() + self.purges + jobs;
        same("more timers than queues need", &true, &(count <= max))
    }

    fn unfinished(&self, now_ms: u64) -> Option<String> {
        let hidden = |message: &Message| match message.state {
            State::Leased { until_ms } => until_ms <= now_ms,
            State::Free(free) => free.delayed && free.to_ms <= now_ms,
        };
        let due = |queue: &Queue| queue.running().filter(|job| job.due_ms <= now_ms).cloned();
        if let Some(job) = self.queues.iter().find_map(due) {
            return Some(format!("a step of {job:?}"));
        }
        let mut left = self.queues.iter().filter_map(|queue| {
            queue.messages.iter().find(|message| hidden(message)).map(|m| (queue, m))
        });
        left.next().map(|(queue, message)| format!("{} in {}", message.sequence, queue.name.1))
    }

    fn fire(&mut self, _: &mut Scene<'_>, _: &Bytes) -> Result<(), Difference> {
        Err("this model sets no timers".to_owned())
    }

    fn receive(&mut self, scene: &mut Scene<'_>, body: &Bytes) -> Result<(), Difference> {
        // What arrives when the entry begins is in the same step as what comes back then.
        if self.step > self.tick_step {
            self.step += 1;
        }
        let unreadable = |error: Unreadable| error.to_string();
        let tenant = scene.tenant();
        match split_command(body).map_err(unreadable)? {
            (1, 2, body) => self.take_dead(tenant, unpack("queue", body).map_err(unreadable)?),
            (2, 2, body) => self.take_moved(scene, unpack("queue", body).map_err(unreadable)?),
            (3, 1, body) => self.take_fanned(tenant, unpack("queue", body).map_err(unreadable)?),
            (4, 1, body) => self.take_back(tenant, unpack("queue", body).map_err(unreadable)?),
            (5, 2, body) => {
                self.has_arrived(tenant, &unpack("queue", body).map_err(unreadable)?);
                Ok(())
            }
            (tag, version, _) => Err(format!("a letter of kind {tag}, version {version}")),
        }
    }

    fn check(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        self.look(sight)?;
        if !sight.full {
            return Ok(());
        }
        self.check_usage(sight)?;
        self.check_bodies(sight)
    }

    fn check_healed(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        self.look_healed(sight.rows)
    }
}

fn may_fit_later(refusal: SendRefusal) -> bool {
    use SendRefusal::{Age, Bytes, Messages, NotReserved};
    matches!(refusal, Messages | Bytes | NotReserved | Age)
}
