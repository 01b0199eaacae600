//! What each command does, and what it must answer.

use queue::parcel::ArchivedBody;
use queue::{
    Command, Create, MessageId, Mode, NewMessage, RESERVED_MS, Receipt, Receive, Refusal, Release,
    Reply, ReserveBody, SendRefusal, Sent, Settled, Update,
};

use super::ledger::Name;
use super::letters::Post;
use super::plain::{Class, Known, Message, New, PRIORITIES, Queue, Rank, State, counted};
use super::{Lease, QueueModel, Reservation};
use crate::naive::Scene;
use crate::subject::{Difference, same};

/// No lease lasts longer.
const LEASE_MS_MAX: u64 = 12 * 60 * 60 * 1000;

impl QueueModel {
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
        queue.away.clear();
        queue.last_turns = [None; PRIORITIES];
        self.purges += 1;
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

    fn reserve(
        &mut self,
        at: usize,
        asked: &ReserveBody,
        shard: u16,
        actual: &Reply,
    ) -> Result<Reply, Difference> {
        let Reply::BodyReserved(body) = *actual else {
            return Err(format!("not reserved: {actual:?}"));
        };
        let queue = &self.queues[at];
        self.ledger.borrow_mut().reserve(&queue.name, body)?;
        let until_ms = self.now_ms + RESERVED_MS;
        let reservation = Reservation { body: (queue.name.0, body), queue: queue.uid, until_ms };
        self.reservations.push(reservation);
        let (sha256, bytes) = (asked.sha256, asked.bytes);
        Ok(Reply::BodyReserved(ArchivedBody { shard, number: body.number, sha256, bytes }))
    }

    /// Reservations that nobody has used in time.
    pub(super) fn end_reservations(&mut self) -> Result<(), Difference> {
        let now_ms = self.now_ms;
        for ended in self.reservations.extract_if(.., |reserved| reserved.until_ms <= now_ms) {
            self.ledger.borrow_mut().end_body(ended.body)?;
        }
        Ok(())
    }

    fn send_one(
        &mut self,
        at: usize,
        shard: u16,
        new: &NewMessage,
        actual: &Result<Sent, SendRefusal>,
        rank: Rank,
    ) -> Result<Result<Sent, SendRefusal>, Difference> {
        let Some(body) = ArchivedBody::of(&new.parcel) else {
            return self.take_new(at, shard, new, actual, rank);
        };
        let queue = &self.queues[at];
        let body = (queue.name.0, body);
        let mine = |reserved: &Reservation| (reserved.body, reserved.queue) == (body, queue.uid);
        let Some(place) = self.reservations.iter().position(mine) else {
            return Ok(Err(SendRefusal::NotReserved));
        };
        self.reservations.remove(place);
        let sent = self.take_new(at, shard, new, actual, rank)?;
        match sent {
            Ok(Sent { id, duplicate: false, .. }) => {
                self.ledger.borrow_mut().sent_with(id, body);
            }
            _ => self.ledger.borrow_mut().end_body(body)?,
        }
        Ok(sent)
    }

    fn take_new(
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
        if let Some(refusal) = refusal(queue, counted(&new.parcel), now_ms, *actual) {
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
        queue.receive(deliveries, limit, (self.now_ms, until_ms), self.step)?;
        for delivery in deliveries {
            let sequence = delivery.sequence;
            let mut messages = queue.messages.iter();
            let leased = messages.find(|message| message.sequence == sequence);
            let number = leased.expect("it was just leased").leases;
            let lease = Lease { queue: queue.uid, sequence, number };
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
        let held = leased
            .any(|message| (message.sequence, message.leases) == (lease.sequence, lease.number));
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
                Post::Dead(letter).send(scene);
            }
            Ok(())
        })
    }

    fn release(&mut self, at: usize, asked: &Release) -> Result<Reply, Difference> {
        self.settle(at, &asked.receipts, |model, sequence, rank| {
            let when = (model.now_ms, rank);
            let ledger = &mut model.ledger.borrow_mut();
            model.queues[at].release(sequence, when, asked.delay_ms, ledger)
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

    pub(super) fn command(
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
            Command::Release(release) => name(&release.queue),
            Command::Extend(extend) => name(&extend.queue),
            Command::ReserveBody(reserve) => name(&reserve.queue),
            Command::StartRedrive(start) => name(&start.queue),
            Command::CancelRedrive { queue, .. } => name(queue),
            Command::BodyDeleted { .. } => return Ok(Reply::BodyGone),
            _ => return self.topic_command(scene, command, actual),
        };
        let Some(at) = self.find(&name) else { return Ok(Reply::Refused(Refusal::NoQueue)) };
        let reply = match command {
            Command::Update(update) => self.update(at, update),
            Command::Delete { .. } => {
                self.empty(at, "deleted")?;
                let queue = self.queues.remove(at);
                self.orphans.extend(queue.running().map(|job| job.due_ms));
                self.ledger.borrow_mut().queues.remove(&name);
                return Ok(Reply::Deleted);
            }
            Command::Purge { .. } => {
                self.empty(at, "purged")?;
                Reply::Purged
            }
            Command::Send(send) => self.send(at, scene.place().shard.0, &send.messages, actual)?,
            Command::ReserveBody(asked) => {
                self.reserve(at, &asked, scene.place().shard.0, actual)?
            }
            Command::Receive(receive) => self.lease(at, &receive, actual)?,
            Command::Ack(ack) => self.ack(at, &ack.receipts)?,
            Command::Nack(nack) => {
                let reason = nack.reason.as_ref();
                self.give_back(scene, at, &nack.receipts, nack.delay_ms, reason)?
            }
            Command::Release(release) => self.release(at, &release)?,
            Command::Extend(extend) => {
                self.extend(scene, at, &extend.receipts, extend.visibility_ms)?
            }
            Command::StartRedrive(start) => self.start_redrive(at, start, actual)?,
            Command::CancelRedrive { job, .. } => self.cancel_redrive(at, job),
            _ => unreachable!("answered above"),
        };
        self.queues[at].note_ready(self.now_ms, self.step);
        Ok(reply)
    }
}

/// Why a message is not taken. What is too old may count or not, so the answer may depend on it.
fn refusal(
    queue: &Queue,
    bytes: u64,
    now_ms: u64,
    actual: Result<Sent, SendRefusal>,
) -> Option<SendRefusal> {
    let sum = |sizes: &dyn Fn(&Message) -> u64| {
        let all: u64 = queue.messages.iter().map(sizes).sum();
        let gone = queue.messages.iter().filter(|message| message.perhaps_gone);
        (all - gone.map(sizes).sum::<u64>(), all)
    };
    let checks = [
        (SendRefusal::Messages, sum(&|_| 1), 1, queue.settings.max_messages),
        (SendRefusal::Bytes, sum(&Message::bytes), bytes, queue.settings.max_bytes),
    ];
    let full = checks.into_iter().find_map(|(refusal, (least, most), more, max)| {
        let max = max?;
        let refused = least + more > max || most + more > max && actual == Err(refusal);
        refused.then_some(refusal)
    });
    full.or_else(|| {
        let refused = is_behind(queue, now_ms, actual == Err(SendRefusal::Age));
        refused.then_some(SendRefusal::Age)
    })
}

/// Whether the oldest message that can be received is too old. It may be one of several; where some are
/// too old and some are not, the machine says.
fn is_behind(queue: &Queue, now_ms: u64, refused: bool) -> bool {
    let Some(max_ms) = queue.settings.max_age_ms else { return false };
    let is_old = |message: &&Message| now_ms.saturating_sub(message.visible_ms) > max_ms;
    let may_be_seen = |message: &&Message| {
        message.free().is_some_and(|free| !free.delayed || free.from_ms <= now_ms)
    };
    let is_seen = |message: &&Message| {
        !message.perhaps_gone && message.free().is_some_and(|free| !free.delayed)
    };
    let first = queue.first_listed(is_seen);
    // Of a queue without order it is the first of some lane.
    let last = first.filter(|_| queue.is_fifo()).unwrap_or(u64::MAX);
    let from = |message: &Message| message.listed.map_or(0, |(from, _)| from);
    let seen = queue.messages.iter().filter(may_be_seen).filter(|m| from(m) <= last);
    let seen: Vec<&Message> = seen.collect();
    first.is_some() && seen.iter().all(is_old) || refused && seen.iter().any(is_old)
}
