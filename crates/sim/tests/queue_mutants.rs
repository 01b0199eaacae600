//! That the simulator finds a broken queue: each test breaks one promise.

mod common;

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use kernel::codec::versioned_as;
use kernel::machine::{machine_key, pending_effects};
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{Machine, MachineId, Turn, Unreadable};
use queue::parcel::ArchivedBody;
use queue::{Command, Counts, Extend, MACHINE, Nack, QueueEffect, Receipt, Reply, Send, Settled};
use sim::Choice;

fn check_found(machine: fn(Box<dyn Machine>) -> Box<dyn Machine>, words: &[&str]) {
    common::check_found(Choice::Queue, machine, words);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    AckKeepsTheMessage,
    AnyReceiptOfAMessageIsGood,
    StaleIsCalledDone,
    GroupIsReadyWhileLeased,
    LaterOvertakes,
    DedupIsForgotten,
    PriorityIsForgotten,
    DelayOfANackIsForgotten,
    ReleaseCountsAsReceived,
    LettersAreDropped,
    LettersComeTwice,
    SomeTimersAreDropped,
    BodyIsDeletedWhileSomebodyHasIt,
    DeletionOfABodyIsForgotten,
    BodiesAreMiscounted,
    FullIsForgotten,
}

struct BrokenQueue {
    queue: Box<dyn Machine>,
    fault: Fault,
    /// The last receipt of each message, by queue and sequence.
    last: BTreeMap<Bytes, Receipt>,
}

/// Changes what readers see that a queue counts.
fn change_counts(turn: &mut Turn<'_>, queue: &str, change: fn(&mut Counts)) {
    let Some(mut known) = queue::queue(turn.rows(), turn.tenant(), queue) else { return };
    change(&mut known.counts);
    let key = queue::counts_row(turn.tenant(), known.definition.number);
    let row = Bytes::from(versioned_as(5, &known.counts));
    turn.put(key.clone(), row.clone());
    turn.publish(key, Some(row));
}

/// Queue and sequence of a receipt.
fn message_of(receipt: &Receipt) -> Bytes {
    let bytes = receipt.to_bytes();
    [&bytes[0..8], &bytes[16..24]].concat().into()
}

impl BrokenQueue {
    fn apply_broken(&mut self, turn: &mut Turn<'_>, command: Command) -> Result<Bytes, Unreadable> {
        let command = match (self.fault, command) {
            (Fault::AckKeepsTheMessage, Command::Ack(ack)) => Command::Extend(Extend {
                queue: ack.queue,
                receipts: ack.receipts,
                visibility_ms: 60_000,
            }),
            (Fault::AnyReceiptOfAMessageIsGood, Command::Ack(mut ack)) => {
                for receipt in &mut ack.receipts {
                    *receipt = self.last.get(&message_of(receipt)).copied().unwrap_or(*receipt);
                }
                Command::Ack(ack)
            }
            (Fault::GroupIsReadyWhileLeased, Command::Send(send)) => {
                return self.send_as_if_nothing_were_leased(turn, send);
            }
            (Fault::LaterOvertakes, Command::Send(mut send)) if send.messages.len() > 1 => {
                let (first, rest) = send.messages.split_at_mut(1);
                if first[0].group == rest[0].group {
                    std::mem::swap(&mut first[0].parcel, &mut rest[0].parcel);
                }
                Command::Send(send)
            }
            (Fault::DedupIsForgotten, Command::Send(mut send)) => {
                send.messages.iter_mut().for_each(|message| message.dedup = None);
                Command::Send(send)
            }
            (Fault::PriorityIsForgotten, Command::Send(mut send)) => {
                send.messages.iter_mut().for_each(|message| message.priority = 0);
                Command::Send(send)
            }
            (Fault::DelayOfANackIsForgotten, Command::Nack(mut nack)) => {
                nack.delay_ms = Some(0);
                Command::Nack(nack)
            }
            (Fault::ReleaseCountsAsReceived, Command::Release(release)) => {
                let (delay_ms, reason) = (Some(release.delay_ms), None);
                Command::Nack(Nack {
                    queue: release.queue,
                    receipts: release.receipts,
                    delay_ms,
                    reason,
                })
            }
            (_, command) => command,
        };
        self.queue.apply(turn, &command.encode())
    }

    /// The leases of a group are hidden from the machine while it looks whether it is ready.
    fn send_as_if_nothing_were_leased(
        &mut self,
        turn: &mut Turn<'_>,
        send: Send,
    ) -> Result<Bytes, Unreadable> {
        let Some(described) = queue::queue(turn.rows(), turn.tenant(), &send.queue) else {
            return self.queue.apply(turn, &Command::Send(send).encode());
        };
        let groups = send.messages.iter().filter_map(|message| message.group.clone());
        let keys: Vec<Vec<u8>> = groups
            .map(|group| {
                let mut key = machine_key(MACHINE, b'g', turn.tenant());
                key.put_u64(described.definition.number);
                key.put_u16(u16::try_from(group.len()).expect("short"));
                key.put_slice(group.as_bytes());
                key
            })
            .collect();
        // Version, waiting, leased: each a byte, as long as they are small.
        const LEASED: usize = 2;
        let mut leased = BTreeMap::new();
        for key in keys {
            if let Some(row) = turn.rows().get(&key) {
                let mut row = row.to_vec();
                leased.entry(key.clone()).or_insert(row[LEASED]);
                row[LEASED] = 0;
                turn.put(key, row);
            }
        }
        let reply = self.queue.apply(turn, &Command::Send(send).encode());
        for (key, leased) in leased {
            let mut row = turn.rows().get(&key).expect("something waits").to_vec();
            row[LEASED] = leased;
            turn.put(key, row);
        }
        reply
    }
}

impl BrokenQueue {
    fn break_bodies(&self, turn: &mut Turn<'_>, command: &Command) {
        match (self.fault, command) {
            (Fault::BodyIsDeletedWhileSomebodyHasIt, Command::Send(send)) => {
                let bodies = send.messages.iter().filter_map(|m| ArchivedBody::of(&m.parcel));
                for body in bodies {
                    turn.ask(QueueEffect::DeleteBody(body).encode());
                }
            }
            (Fault::DeletionOfABodyIsForgotten, Command::Ack(_)) => {
                for effect in pending_effects(turn.rows(), 0, usize::MAX) {
                    turn.effect_done(effect.number);
                }
            }
            (Fault::BodiesAreMiscounted, Command::Send(send)) => {
                change_counts(turn, &send.queue, |counts| counts.archived = 0);
            }
            (Fault::FullIsForgotten, Command::Receive(receive)) => {
                change_counts(turn, &receive.queue, |counts| counts.full = false);
            }
            _ => {}
        }
    }
}

impl Machine for BrokenQueue {
    fn id(&self) -> MachineId {
        self.queue.id()
    }

    fn name(&self) -> &'static str {
        self.queue.name()
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let decoded = Command::decode(command)?;
        let reply = self.apply_broken(turn, decoded.clone())?;
        self.break_bodies(turn, &decoded);
        Ok(match Reply::decode(&reply)? {
            Reply::Received(deliveries) => {
                for delivery in &deliveries {
                    self.last.insert(message_of(&delivery.receipt), delivery.receipt);
                }
                reply
            }
            Reply::Settled(mut settled) if self.fault == Fault::StaleIsCalledDone => {
                let stale = settled.iter_mut().filter(|settled| **settled == Settled::Stale);
                stale.for_each(|settled| *settled = Settled::Done);
                Reply::Settled(settled).encode()
            }
            _ => reply,
        })
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let dropped = self.fault == Fault::SomeTimersAreDropped;
        if !dropped || !timer.id.deadline_ms.is_multiple_of(7) {
            self.queue.fire(turn, timer);
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        match self.fault {
            Fault::LettersAreDropped => Ok(()),
            Fault::LettersComeTwice => {
                self.queue.receive(turn, letter)?;
                self.queue.receive(turn, letter)
            }
            _ => self.queue.receive(turn, letter),
        }
    }
}

macro_rules! broken {
    ($fault:expr) => {
        |queue| Box::new(BrokenQueue { queue, fault: $fault, last: BTreeMap::new() })
    };
}

#[test]
fn an_ack_that_keeps_the_message_is_found() {
    check_found(broken!(Fault::AckKeepsTheMessage), &["should not be there"]);
}

#[test]
fn a_receipt_of_an_earlier_lease_that_is_good_is_found() {
    check_found(broken!(Fault::AnyReceiptOfAMessageIsGood), &["actual Settled([Done"]);
}

#[test]
fn a_stale_receipt_that_is_called_done_is_found() {
    check_found(broken!(Fault::StaleIsCalledDone), &["reply: expected Settled"]);
}

#[test]
fn a_group_that_is_handed_out_while_one_is_leased_is_found() {
    check_found(broken!(Fault::GroupIsReadyWhileLeased), &["is leased, of one group"]);
}

#[test]
fn a_message_that_overtakes_another_is_found() {
    check_found(broken!(Fault::LaterOvertakes), &["message: expected", "delivery: expected"]);
}

#[test]
fn a_deduplication_key_that_is_forgotten_is_found() {
    check_found(broken!(Fault::DedupIsForgotten), &["reply: expected Sent"]);
}

#[test]
fn a_priority_that_is_forgotten_is_found() {
    check_found(broken!(Fault::PriorityIsForgotten), &["goes before", "before its turn", "lane"]);
}

#[test]
fn a_message_that_comes_back_too_early_is_found() {
    check_found(broken!(Fault::DelayOfANackIsForgotten), &["state of"]);
}

#[test]
fn a_message_that_nobody_has_seen_and_that_counts_as_received_is_found() {
    check_found(
        broken!(Fault::ReleaseCountsAsReceived),
        &["message: expected", "delivery: expected"],
    );
}

#[test]
fn a_dead_letter_that_is_dropped_is_found() {
    check_found(broken!(Fault::LettersAreDropped), &["there is no queue", "lost"]);
}

#[test]
fn a_dead_letter_that_comes_twice_is_found() {
    check_found(broken!(Fault::LettersComeTwice), &["should not be there"]);
}

#[test]
fn a_lease_that_does_not_end_is_found() {
    check_found(broken!(Fault::SomeTimersAreDropped), &["actual Leased"]);
}

#[test]
fn a_body_that_is_deleted_while_somebody_has_it_is_found() {
    check_found(broken!(Fault::BodyIsDeletedWhileSomebodyHasIt), &["expected Some(Ended)"]);
}

#[test]
fn a_body_that_stays_in_the_archive_for_ever_is_found() {
    check_found(broken!(Fault::DeletionOfABodyIsForgotten), &["left in the archive"]);
}

#[test]
fn bodies_in_the_archive_that_are_not_counted_are_found() {
    check_found(broken!(Fault::BodiesAreMiscounted), &["bodies in the archive: expected"]);
}

#[test]
fn a_queue_that_calls_though_as_many_are_leased_as_may_be_is_found() {
    check_found(broken!(Fault::FullIsForgotten), &["as many leased as may be"]);
}
