//! Queues, plainly: a list of queues, each with a list of messages.
//!
//! The machine has some freedom, and the model allows it exactly:
//! - what jitter draws, within its bounds;
//! - the order of what comes back, and of what arrives, when one entry begins;
//! - when a message that is too old is dropped, as long as nobody receives it;
//! - the numbers of queues and the receipts, as long as none comes twice.
//!
//! For that it looks at the answer and at the rows after the entry. So it learns what was drawn,
//! and is certain again when the next entry begins.

mod clients;
mod ledger;
mod look;
mod plain;
mod receive;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use kernel::codec::{pack, split_command, unpack};
use kernel::machine::Place;
use kernel::mail;
use queue::{
    Command, Create, DeadLetter, MACHINE, MessageId, Mode, NewMessage, Receipt, Receive, Refusal,
    Reply, SendRefusal, Sent, Settings, Settled, Totals, Update,
};

pub use clients::QueueSubject;
use ledger::{Ledger, Name};
use plain::{Class, Known, MESSAGE_BYTES, New, Queue, Rank, State};

use crate::naive::Scene;
use crate::subject::{Difference, Model, Sight, same};

/// No lease lasts longer.
const LEASE_MS_MAX: u64 = 12 * 60 * 60 * 1000;

/// One for what is hidden, one for what is old.
const QUEUE_TIMERS_MAX: usize = 2;

/// A lease that was given: the queue, the message and which receive it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    queue: u64,
    sequence: u64,
    receives: u32,
}

/// See the module.
#[derive(Debug)]
pub struct QueueModel {
    ledger: Rc<RefCell<Ledger>>,
    queues: Vec<Queue>,
    uids: u64,
    /// Every number that a queue ever had here.
    numbers: BTreeSet<u64>,
    /// Every receipt that was ever given out here.
    leases: BTreeMap<Vec<u8>, Lease>,
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
            uids: 0,
            numbers: BTreeSet::new(),
            leases: BTreeMap::new(),
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
        });
        self.queues.len() - 1
    }

    fn create(&mut self, name: Name, create: Create, actual: &Reply) -> Result<Reply, Difference> {
        let found = self.find(&name);
        if let Some(at) = found
            && self.queues[at].settings != create.settings
        {
            return Ok(Reply::Refused(Refusal::Exists));
        }
        let Reply::Created { number, .. } = *actual else {
            return Err(format!("a queue was not made: {actual:?}"));
        };
        let at = found.unwrap_or_else(|| self.make(name, create.settings));
        self.adopt_number(at, number)?;
        Ok(Reply::Created { number, new: found.is_none() })
    }

    fn update(&mut self, at: usize, update: Update) -> Reply {
        let queue = &mut self.queues[at];
        if queue.version != update.version {
            return Reply::Refused(Refusal::Version);
        }
        if queue.settings.mode != update.settings.mode {
            return Reply::Refused(Refusal::Mode);
        }
        queue.version += 1;
        queue.settings = update.settings;
        queue.notice_age(self.now_ms);
        let known = (queue.settings.mode, queue.version);
        self.ledger.borrow_mut().queues.insert(queue.name.clone(), known);
        Reply::Updated
    }

    fn empty(&mut self, at: usize, why: &'static str) -> Result<(), Difference> {
        let queue = &mut self.queues[at];
        queue.known.clear();
        queue.ready.clear();
        for message in std::mem::take(&mut queue.messages) {
            queue.perhaps_expired += u64::from(message.perhaps_gone);
            self.ledger.borrow_mut().gone(message.id, &queue.name, why)?;
        }
        Ok(())
    }

    fn send(
        &mut self,
        at: usize,
        shard: u16,
        messages: &[NewMessage],
        actual: &Reply,
    ) -> Result<Reply, Difference> {
        let Reply::Sent(actual) = actual else { return Err(format!("not sent: {actual:?}")) };
        same("messages answered", &messages.len(), &actual.len())?;
        let mut sent = Vec::new();
        for (number, (new, actual)) in messages.iter().zip(actual).enumerate() {
            if let Ok(Sent { id, duplicate: false, .. }) = actual {
                self.adopt_number(at, id.queue)?;
            }
            let rank = Rank { step: self.step, order: Some((Class::Command, number as u64, 0)) };
            sent.push(self.send_one(at, shard, new, actual, rank)?);
        }
        Ok(Reply::Sent(sent))
    }

    fn send_one(
        &mut self,
        at: usize,
        shard: u16,
        new: &NewMessage,
        actual: &Result<Sent, SendRefusal>,
        rank: Rank,
    ) -> Result<Result<Sent, SendRefusal>, Difference> {
        let now_ms = self.now_ms;
        let queue = &mut self.queues[at];
        match (queue.settings.mode, &new.group) {
            (Mode::Fifo, None) => return Ok(Err(SendRefusal::GroupMissing)),
            (Mode::Standard, Some(_)) => return Ok(Err(SendRefusal::GroupUnexpected)),
            _ => {}
        }
        let known = queue.known.iter().find(|known| Some(known.digest) == new.dedup);
        if let Some(Known { id, sequence, .. }) = known.copied() {
            return Ok(Ok(Sent { id, sequence, duplicate: true }));
        }
        if let Some(refusal) = refusal(queue, new.parcel.len() as u64, *actual) {
            return Ok(Err(refusal));
        }
        let sequence = queue.last_sequence + 1;
        let number = queue.number.ok_or("a message without a number of its queue")?;
        let id = MessageId { shard, queue: number, sequence };
        let due_ms = now_ms + new.delay_ms.unwrap_or(queue.settings.delay_ms);
        if let Some(digest) = new.dedup {
            let until_ms = now_ms + queue.settings.dedup_ms.max(1);
            queue.known.push(Known { digest, id, sequence, until_ms });
        }
        let (priority, group, parcel) = (new.priority, new.group.clone(), new.parcel.clone());
        let new = New { id, sent_ms: now_ms, due_ms, priority, group, story: None, parcel };
        queue.put(new, now_ms, rank);
        self.ledger.borrow_mut().sent(id, &queue.name)?;
        Ok(Ok(Sent { id, sequence, duplicate: false }))
    }

    fn lease(&mut self, at: usize, receive: &Receive, actual: &Reply) -> Result<Reply, Difference> {
        let queue = &mut self.queues[at];
        let leased = queue.leased();
        if leased >= queue.settings.max_inflight {
            return Ok(Reply::Refused(Refusal::Inflight));
        }
        let Reply::Received(deliveries) = actual else {
            return Err(format!("not received: {actual:?}"));
        };
        let limit = u64::from(receive.max).min(queue.settings.max_inflight - leased);
        let limit = usize::try_from(limit).expect("small");
        let asked_ms = receive.visibility_ms.unwrap_or(queue.settings.visibility_ms);
        let until_ms = self.now_ms + asked_ms.clamp(1, LEASE_MS_MAX);
        let mut ledger = self.ledger.borrow_mut();
        for delivery in deliveries {
            // Nobody must ever see again what is gone: that is asked before anything else.
            ledger.delivered(delivery.id, &queue.name)?;
        }
        queue.receive(deliveries, limit, (self.now_ms, until_ms))?;
        for delivery in deliveries {
            let (sequence, receives) = (delivery.sequence, delivery.receives);
            let lease = Lease { queue: queue.uid, sequence, receives };
            let receipt = delivery.receipt.to_bytes().to_vec();
            if let Some(before) = self.leases.insert(receipt, lease) {
                return Err(format!("a receipt of {before:?} was given out again"));
            }
            ledger.receipts.push((queue.name.clone(), delivery.receipt));
        }
        Ok(actual.clone())
    }

    /// What a receipt says, and the message if its lease is in force.
    fn settled(&self, at: usize, receipt: &Receipt) -> Result<u64, Settled> {
        let queue = &self.queues[at];
        let lease = self.leases.get(&receipt.to_bytes()[..]).ok_or(Settled::Forged)?;
        if lease.queue != queue.uid {
            return Err(Settled::Forged);
        }
        let mut leased = queue.messages.iter().filter(|message| message.is_leased());
        let held = leased.any(|message| {
            (message.sequence, message.receives) == (lease.sequence, lease.receives)
        });
        if held { Ok(lease.sequence) } else { Err(Settled::Stale) }
    }

    fn settle(
        &mut self,
        at: usize,
        receipts: &[Receipt],
        mut work: impl FnMut(&mut QueueModel, u64, Rank) -> Result<(), Difference>,
    ) -> Result<Reply, Difference> {
        let mut settled = Vec::new();
        for (number, receipt) in receipts.iter().enumerate() {
            let rank = Rank { step: self.step, order: Some((Class::Command, number as u64, 0)) };
            settled.push(match self.settled(at, receipt) {
                Ok(sequence) => {
                    work(self, sequence, rank)?;
                    Settled::Done
                }
                Err(why) => why,
            });
        }
        Ok(Reply::Settled(settled))
    }

    fn ack(&mut self, at: usize, receipts: &[Receipt]) -> Result<Reply, Difference> {
        self.settle(at, receipts, |model, sequence, _| {
            let queue = &mut model.queues[at];
            let message = queue.take(sequence);
            queue.totals.acked += 1;
            model.ledger.borrow_mut().gone(message.id, &queue.name, "acked")
        })
    }

    fn give_back(
        &mut self,
        scene: &mut Scene<'_>,
        at: usize,
        receipts: &[Receipt],
        delay_ms: Option<u64>,
        reason: Option<&String>,
    ) -> Result<Reply, Difference> {
        self.settle(at, receipts, |model, sequence, rank| {
            let mut ledger = model.ledger.borrow_mut();
            let when = (model.now_ms, rank);
            let queue = &mut model.queues[at];
            let letter = queue.fail(sequence, when, delay_ms, reason.cloned(), &mut ledger)?;
            if let Some(letter) = letter {
                post(scene, &letter);
            }
            Ok(())
        })
    }

    fn extend(
        &mut self,
        scene: &mut Scene<'_>,
        at: usize,
        receipts: &[Receipt],
        visibility_ms: u64,
    ) -> Result<Reply, Difference> {
        if visibility_ms == 0 {
            return self.give_back(scene, at, receipts, Some(0), None);
        }
        let until_ms = self.now_ms + visibility_ms.min(LEASE_MS_MAX);
        self.settle(at, receipts, |model, sequence, _| {
            let mut messages = model.queues[at].messages.iter_mut();
            let message = messages.find(|message| message.sequence == sequence);
            message.expect("its lease is in force").state = State::Leased { until_ms };
            Ok(())
        })
    }

    fn command(
        &mut self,
        scene: &mut Scene<'_>,
        command: Command,
        actual: &Reply,
    ) -> Result<Reply, Difference> {
        let name = |queue: &str| (scene.tenant(), queue.to_owned());
        let name = match &command {
            Command::Create(create) => {
                return self.create(name(&create.queue), create.clone(), actual);
            }
            Command::Update(Update { queue, .. })
            | Command::Delete { queue }
            | Command::Purge { queue } => name(queue),
            Command::Send(send) => name(&send.queue),
            Command::Receive(receive) => name(&receive.queue),
            Command::Ack(ack) => name(&ack.queue),
            Command::Nack(nack) => name(&nack.queue),
            Command::Extend(extend) => name(&extend.queue),
        };
        let Some(at) = self.find(&name) else { return Ok(Reply::Refused(Refusal::NoQueue)) };
        let reply = match command {
            Command::Create(_) => unreachable!("answered above"),
            Command::Update(update) => self.update(at, update),
            Command::Delete { .. } => {
                self.empty(at, "deleted")?;
                self.queues.remove(at);
                self.ledger.borrow_mut().queues.remove(&name);
                return Ok(Reply::Deleted);
            }
            Command::Purge { .. } => {
                self.empty(at, "purged")?;
                Reply::Purged
            }
            Command::Send(send) => self.send(at, scene.place().shard.0, &send.messages, actual)?,
            Command::Receive(receive) => self.lease(at, &receive, actual)?,
            Command::Ack(ack) => self.ack(at, &ack.receipts)?,
            Command::Nack(nack) => {
                let reason = nack.reason.as_ref();
                self.give_back(scene, at, &nack.receipts, nack.delay_ms, reason)?
            }
            Command::Extend(extend) => {
                self.extend(scene, at, &extend.receipts, extend.visibility_ms)?
            }
        };
        self.queues[at].note_ready(self.now_ms, self.step);
        Ok(reply)
    }
}

/// Why a message is not taken. What is too old may count or not, so the answer may depend on it.
fn refusal(
    queue: &Queue,
    parcel_bytes: u64,
    actual: Result<Sent, SendRefusal>,
) -> Option<SendRefusal> {
    let sum = |sizes: &dyn Fn(&plain::Message) -> u64| {
        let all: u64 = queue.messages.iter().map(sizes).sum();
        let gone = queue.messages.iter().filter(|message| message.perhaps_gone);
        (all - gone.map(sizes).sum::<u64>(), all)
    };
    let checks = [
        (SendRefusal::Messages, sum(&|_| 1), 1, queue.settings.max_messages),
        (
            SendRefusal::Bytes,
            sum(&plain::Message::bytes),
            parcel_bytes + MESSAGE_BYTES,
            queue.settings.max_bytes,
        ),
    ];
    checks.into_iter().find_map(|(refusal, (least, most), more, max)| {
        let max = max?;
        let refused = least + more > max || most + more > max && actual == Err(refusal);
        refused.then_some(refusal)
    })
}

fn post(scene: &mut Scene<'_>, letter: &DeadLetter) {
    let to = queue::place(scene.tenant(), &letter.queue);
    scene.send(to, MACHINE, pack(1, 1, letter));
}

impl Model for QueueModel {
    fn apply(&mut self, scene: &mut Scene<'_>, command: &Bytes) -> Result<Bytes, Difference> {
        self.step += 1;
        let command = Command::decode(command).map_err(|error| error.to_string())?;
        let bytes = scene.reply.ok_or("a command without a reply")?;
        let actual = Reply::decode(bytes).map_err(|error| error.to_string())?;
        let expected = self.command(scene, command, &actual)?;
        same("reply", &expected, &actual)?;
        Ok(bytes.clone())
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn tick(&mut self, scene: &mut Scene<'_>) -> Result<(), Difference> {
        (self.place, self.now_ms) = (Some(scene.place()), scene.now_ms());
        self.step += 1;
        self.tick_step = self.step;
        let mut dead = Vec::new();
        for queue in &mut self.queues {
            let mut ledger = self.ledger.borrow_mut();
            let (any, letters) = queue.pass_time(self.now_ms, self.step, &mut ledger)?;
            queue.note_ready(self.now_ms, self.step);
            if any {
                self.touched.insert(queue.name.clone());
            }
            let from = &queue.name;
            dead.extend(letters.into_iter().map(|letter| Dead { from: from.clone(), letter }));
        }
        for dead in in_order(scene, dead)? {
            post(&mut scene.of(dead.from.0), &dead.letter);
        }
        Ok(())
    }

    fn check_timers(&self, count: usize) -> Result<(), Difference> {
        let max = self.queues.len() * QUEUE_TIMERS_MAX;
        same("more timers than queues need", &true, &(count <= max))
    }

    fn unfinished(&self, now_ms: u64) -> Option<String> {
        let hidden = |queue: &Queue, message: &plain::Message| match message.state {
            State::Leased { until_ms } => until_ms <= now_ms,
            State::Free(free) => free.delayed && !queue.is_fifo() && free.to_ms <= now_ms,
        };
        let mut left = self.queues.iter().filter_map(|queue| {
            queue.messages.iter().find(|message| hidden(queue, message)).map(|m| (queue, m))
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
        let unreadable = |error: kernel::Unreadable| error.to_string();
        let (tag, version, body) = split_command(body).map_err(unreadable)?;
        same("kind of letter", &(1, 1), &(tag, version))?;
        let letter: DeadLetter = unpack("queue", body).map_err(unreadable)?;
        let name = (scene.tenant(), letter.queue);
        let found = self.find(&name);
        let at = found.unwrap_or_else(|| self.make(name.clone(), Settings::usual(letter.mode)));
        let id = letter.story.id;
        self.ledger.borrow_mut().arrived(id, &name)?;
        let queue = &mut self.queues[at];
        let group = queue.is_fifo().then(|| letter.group.unwrap_or_default());
        let (sent_ms, due_ms, story) = (letter.sent_ms, self.now_ms, Some(letter.story));
        let new = New { id, sent_ms, due_ms, priority: 0, group, story, parcel: letter.parcel };
        // Where it comes among what came back in the same moment, the machine decides.
        queue.put(new, self.now_ms, Rank { step: self.step, order: None });
        queue.note_ready(self.now_ms, self.step);
        Ok(())
    }

    fn check(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        self.look(sight)?;
        if sight.full { self.check_usage(sight) } else { Ok(()) }
    }

    fn check_healed(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        self.look_healed(sight.rows)
    }
}

/// A message that died because its time was over.
struct Dead {
    from: Name,
    letter: DeadLetter,
}

/// Letters as they were sent. Of one queue they are in order; which queue's time came first, the
/// machine decides.
fn in_order(scene: &Scene<'_>, dead: Vec<Dead>) -> Result<Vec<Dead>, Difference> {
    if dead.windows(2).all(|pair| pair[0].from == pair[1].from) {
        return Ok(dead);
    }
    let mut placed = Vec::new();
    for (number, dead) in dead.into_iter().enumerate() {
        let name = (dead.from.0, dead.letter.queue.clone());
        let to = queue::place(name.0, &name.1).shard(scene.place().shard_count);
        let position = if to == scene.place().shard {
            look::sequence_of(scene.rows, &name, dead.letter.story.id)
        } else {
            let body = pack(1, 1, &dead.letter);
            let outbox = mail::uncollected(scene.rows, to, usize::MAX);
            outbox.into_iter().find(|(_, letter)| letter.body == body).map(|(number, _)| number)
        };
        placed.push((to, position.unwrap_or(u64::MAX), number, dead));
    }
    placed.sort_by_key(|(to, position, number, _)| (*to, *position, *number));
    for (at, (to, _, number, dead)) in placed.iter().enumerate() {
        let mut later = placed[at..].iter();
        if later.any(|(other, _, n, d)| (other, &d.from) == (to, &dead.from) && n < number) {
            return Err(format!("dead letters of {} are out of order", dead.from.1));
        }
    }
    Ok(placed.into_iter().map(|(_, _, _, dead)| dead).collect())
}
