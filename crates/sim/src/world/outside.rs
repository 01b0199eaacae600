//! The post between shards, and the executors of effects.

use bytes::Bytes;
use kernel::codec::Reader;
use kernel::machine::{Effect, KERNEL, pending_effects};
use kernel::mail::{self, MailCommand};
use kernel::{Envelope, IdempotencyKey, ShardId, TenantId};
use shard::Request;

use super::World;
use crate::common::{Ticket, Word};

/// Parcels under way, at most.
const PARCELS_MAX: usize = 60;

/// Something on its way from one shard to another.
#[derive(Debug)]
pub(super) struct Parcel {
    to: usize,
    command: MailCommand,
    ticket: Ticket,
}

/// An effect being carried out.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) seat: usize,
    subject: usize,
    effect: Effect,
    /// The report, once there is something to report.
    report: Option<Bytes>,
    /// The report is on its way.
    reporting: bool,
}

fn shard_id(seat: usize) -> ShardId {
    ShardId(u16::try_from(seat).expect("three at most"))
}

impl World {
    /// Collects letters of a shard, in any order, some twice, some not.
    pub(super) fn post(&mut self, from: usize) {
        let Some(rows) = self.seats[from].reader() else { return };
        for to in 0..self.seats.len() {
            for (number, letter) in mail::uncollected(&rows, shard_id(to), 5) {
                let copies = match () {
                    () if self.common.mishap(self.weather.lost_letter) => {
                        self.common.report.fault("letter lost");
                        0
                    }
                    () if self.common.mishap(self.weather.duplicate) => {
                        self.common.report.fault("letter twice");
                        2
                    }
                    () => 1,
                };
                let acknowledged = self.acknowledged.get(&(from, to)).copied().unwrap_or(0);
                let number = (self.common.options.parts.letter_number)(number, acknowledged);
                for _ in 0..copies {
                    self.parcels.push(Parcel {
                        to,
                        command: MailCommand::Deliver {
                            from: shard_id(from),
                            number,
                            letter: letter.clone(),
                        },
                        ticket: Ticket::Letter { from, to },
                    });
                }
            }
        }
        while self.parcels.len() > PARCELS_MAX {
            let lost = self.common.random.place(self.parcels.len());
            self.parcels.remove(lost);
        }
    }

    /// Brings any of the parcels.
    pub(super) fn deliver(&mut self) {
        if self.parcels.is_empty() {
            return;
        }
        let at = self.common.random.place(self.parcels.len());
        self.bring(at);
    }

    /// Brings all of them, in order.
    pub(super) fn deliver_all(&mut self) {
        while !self.parcels.is_empty() {
            self.bring(0);
        }
    }

    fn bring(&mut self, at: usize) {
        let Parcel { to, command, ticket } = self.parcels.remove(at);
        let envelope = Envelope {
            machine: KERNEL,
            tenant: TenantId::SYSTEM,
            idempotency: None,
            command: command.encode(),
        };
        // One that finds no place is lost: it will be sent again.
        self.seats[to].take_in(Request::new(envelope, ticket));
    }

    /// The receiver has said how far it has come.
    pub(super) fn tell_post(&mut self, from: usize, to: usize, word: &Word) {
        let Some(reply) = word.reply() else { return };
        let through = Reader::new(reply.clone()).u64().expect("mail answers with a number");
        let last = self.acknowledged.entry((from, to)).or_default();
        *last = through.max(*last);
        if self.common.mishap(self.weather.lost_letter) {
            self.common.report.fault("letter lost");
            return;
        }
        self.parcels.push(Parcel {
            to: from,
            command: MailCommand::Collected { to: shard_id(to), through },
            ticket: Ticket::Collected,
        });
    }

    /// Begins an effect, or gets on with one.
    pub(super) fn execute(&mut self, at: usize) {
        let Some(rows) = self.seats[at].reader() else { return };
        let pending = pending_effects(&rows, 0, 12);
        if !pending.is_empty() && (self.tasks.is_empty() || self.common.random.chance(500)) {
            let effect = pending[self.common.random.place(pending.len())].clone();
            self.begin(at, effect);
            return;
        }
        let mine: Vec<u64> = self.tasks_of(at);
        if !mine.is_empty() {
            let task = self.common.random.pick(&mine);
            self.get_on(task);
        }
    }

    fn tasks_of(&self, at: usize) -> Vec<u64> {
        self.tasks.iter().filter(|(_, task)| task.seat == at).map(|(number, _)| *number).collect()
    }

    /// All that can be done of the effects of a shard.
    pub(super) fn execute_all(&mut self, at: usize) {
        let Some(rows) = self.seats[at].reader() else { return };
        for effect in pending_effects(&rows, 0, 200) {
            self.begin(at, effect);
        }
        for task in self.tasks_of(at) {
            self.get_on(task);
            self.get_on(task);
        }
    }

    fn begin(&mut self, at: usize, effect: Effect) {
        let subject = self.common.subjects.iter().position(|s| s.id() == effect.machine);
        let subject = subject.expect("a machine under test asked for it");
        let mine = self.tasks.values().filter(|task| task.seat == at);
        let mut again = false;
        for task in mine.filter(|task| task.subject == subject) {
            again |= task.effect.number == effect.number;
            let other = task.effect.number != effect.number;
            if other && self.common.subjects[subject].waits(&task.effect, &effect) {
                return;
            }
        }
        if again {
            if !self.common.mishap(self.weather.duplicate / 4) {
                return;
            }
            self.common.report.fault("effect twice");
        }
        self.task_next += 1;
        self.common.note(format!("{at} begins effect {}", effect.number));
        let task = Task { seat: at, subject, effect, report: None, reporting: false };
        self.tasks.insert(self.task_next, task);
    }

    /// Carries the effect out, or sends the report.
    fn get_on(&mut self, number: u64) {
        let Some(task) = self.tasks.get_mut(&number) else { return };
        let seat = &mut self.seats[task.seat];
        let Some(rows) = seat.reader() else { return };
        let common = &mut self.common;
        let Some(report) = task.report.clone() else {
            let subject = &mut common.subjects[task.subject];
            let random = &mut common.random;
            let report = subject.perform(&task.effect, &rows, &mut common.archive, random);
            common.report.effects += 1;
            common.note(format!("{} carried out effect {}", task.seat, task.effect.number));
            task.report = Some(report);
            return;
        };
        if task.reporting {
            return;
        }
        let mut key = common.random.bytes16();
        key[0] = 0xee;
        let keyed = common.random.chance(300);
        let envelope = Envelope {
            machine: task.effect.machine,
            tenant: task.effect.tenant,
            idempotency: keyed.then_some(IdempotencyKey { key, body: key }),
            command: report,
        };
        let request = Request::new(envelope, Ticket::Report(number));
        task.reporting = seat.take_in(request).is_none();
    }

    pub(super) fn tell_executor(&mut self, at: usize, number: u64, word: &Word) {
        let Some(task) = self.tasks.get_mut(&number) else { return };
        task.reporting = false;
        // Without an answer the report is sent again.
        let Some(reply) = word.reply() else { return };
        let task = self.tasks.remove(&number).expect("looked at above");
        let Some(rows) = self.seats[at].reader() else { return };
        let report = task.report.as_ref().expect("it was sent");
        let subject = &mut self.common.subjects[task.subject];
        subject.settle(&task.effect, report, reply, &rows, &mut self.common.archive);
    }

    /// What is still under way.
    pub(super) fn busy_outside(&self) -> Option<String> {
        if let Some(task) = self.tasks.values().next() {
            return Some(format!("effect {} is being carried out", task.effect.number));
        }
        self.parcels.first().map(|parcel| format!("a parcel to {}", parcel.to))
    }
}
