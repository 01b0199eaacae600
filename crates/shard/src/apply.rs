//! Apply: what an entry does to the state. The same on the leader, in replay and in the simulator.

use bytes::Bytes;
use kernel::idempotency::{self, Known};
use kernel::limits::{IDEMPOTENCY_MS, LETTERS_PER_COMMAND_MAX};
use kernel::machine::{Ground, KERNEL, Output, kernel_key};
use kernel::mail::{self, Delivery, MailCommand};
use kernel::timers::Due;
use kernel::{Entry, Envelope, Index, Rows, Stamp, TenantId, Unreadable};

use crate::machines::Machines;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The machine's answer, a refusal included.
    Reply(Bytes),
    /// The idempotency key was used before, with another body. The machine was not asked.
    IdempotencyConflict,
}

/// The row that holds the time of the last entry, so that time never goes back, not even over a
/// restart with an empty log.
pub(crate) fn clock_key() -> Vec<u8> {
    kernel_key(b'@')
}

/// One entry being applied.
pub(crate) struct Apply<'a> {
    pub(crate) rows: &'a mut Rows,
    pub(crate) ground: &'a mut Ground,
    pub(crate) machines: &'a mut Machines,
    pub(crate) stamp: Stamp,
}

impl Apply<'_> {
    /// Fires what is due and applies every command. `tell` hears the outcome of each, in order,
    /// with what has been put out up to then.
    pub(crate) fn entry(
        &mut self,
        entry: &Entry,
        mut tell: impl FnMut(Outcome, &mut Vec<Output>),
    ) -> Result<(), Unreadable> {
        self.ground.begin_entry();
        let due = self.ground.timers.take_due(self.rows, entry.at_ms, entry.timers_max);
        for timer in due {
            if self.ground.timers.still_due(timer.id) {
                self.fire(&timer)?;
                self.deliver_local_letters()?;
            }
        }
        for envelope in &entry.commands {
            let outcome = self.command(envelope)?;
            self.deliver_local_letters()?;
            tell(outcome, &mut self.ground.outputs);
        }
        self.rows.put(clock_key(), Bytes::copy_from_slice(&entry.at_ms.to_be_bytes()));
        self.ground.end_entry(self.rows);
        Ok(())
    }

    fn fire(&mut self, timer: &Due) -> Result<(), Unreadable> {
        assert!(timer.id.deadline_ms <= self.stamp.at_ms, "no timer fires early");
        if timer.machine == KERNEL {
            idempotency::forget(self.rows, &timer.payload);
            return Ok(());
        }
        let machine = self.machines.get(timer.machine)?;
        let mut turn = self.ground.turn(self.rows, self.stamp, timer.machine, timer.tenant);
        machine.fire(&mut turn, timer);
        Ok(())
    }

    fn command(&mut self, envelope: &Envelope) -> Result<Outcome, Unreadable> {
        if let Some(key) = &envelope.idempotency {
            match idempotency::look_up(self.rows, key) {
                Known::New => {}
                Known::Answered(answer) => return Ok(Outcome::Reply(answer)),
                Known::Conflict => return Ok(Outcome::IdempotencyConflict),
            }
        }
        let (reply, kept_ms) = if envelope.machine == KERNEL {
            (self.mail(&envelope.command)?, IDEMPOTENCY_MS)
        } else {
            let machine = self.machines.get(envelope.machine)?;
            let mut turn =
                self.ground.turn(self.rows, self.stamp, envelope.machine, envelope.tenant);
            let reply = machine.apply(&mut turn, &envelope.command)?;
            (reply, turn.answer_ms())
        };
        if let Some(key) = envelope.idempotency.as_ref().filter(|_| kept_ms > 0) {
            idempotency::remember(self.rows, key, &reply);
            let mut turn = self.ground.turn(self.rows, self.stamp, KERNEL, TenantId::SYSTEM);
            let until_ms = turn.now_ms() + kept_ms;
            turn.set_timer(until_ms, Bytes::copy_from_slice(&key.key));
        }
        Ok(Outcome::Reply(reply))
    }

    /// A delivery from another shard, or word that one of ours arrived. Answers with the last
    /// number that was applied here.
    fn mail(&mut self, command: &Bytes) -> Result<Bytes, Unreadable> {
        let last = match MailCommand::decode(command.clone())? {
            MailCommand::Deliver { from, number, letter } => {
                let (delivery, last) = mail::accept(self.rows, from, number);
                if delivery == Delivery::Next {
                    self.ground.local_letters.push(letter);
                }
                last
            }
            MailCommand::Collected { to, through } => {
                mail::collect(self.rows, to, through);
                through
            }
        };
        Ok(Bytes::copy_from_slice(&last.to_be_bytes()))
    }

    /// Letters to machines of this shard, and letters that those send in turn, in order.
    fn deliver_local_letters(&mut self) -> Result<(), Unreadable> {
        let mut delivered = 0;
        while !self.ground.local_letters.is_empty() {
            for letter in std::mem::take(&mut self.ground.local_letters) {
                delivered += 1;
                assert!(delivered <= LETTERS_PER_COMMAND_MAX, "letters go round in a circle");
                let machine = self.machines.get(letter.machine)?;
                let mut turn =
                    self.ground.turn(self.rows, self.stamp, letter.machine, letter.tenant);
                machine.receive(&mut turn, &letter)?;
            }
        }
        Ok(())
    }
}

/// The stamp of `entry` at `index`.
pub(crate) fn stamp_of(entry: &Entry, index: Index) -> Stamp {
    Stamp { index, at_ms: entry.at_ms, seed: entry.seed }
}
