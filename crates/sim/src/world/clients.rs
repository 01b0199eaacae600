//! Clients: they ask, ask twice, ask again after a refusal or a crash, and sometimes use a key
//! for something else.

use kernel::id::digest;
use kernel::{Envelope, IdempotencyKey};
use shard::Request;

use super::World;
use crate::common::{Ticket, Word};

/// Calls of one run that have not been answered, at most.
const OPEN_CALLS_MAX: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Answered,
    /// Without a key nobody dares to ask again.
    GaveUp,
}

/// One thing that a client wants.
#[derive(Debug)]
pub(super) struct Call {
    seat: usize,
    envelope: Envelope,
    state: State,
    /// Copies on their way.
    copies: u32,
    retry_at: u64,
}

impl World {
    /// New calls, and old ones again.
    pub(super) fn make_calls(&mut self) {
        let open = self.calls.iter().filter(|call| call.state == State::Open).count();
        if open < OPEN_CALLS_MAX && self.common.random.chance(450) {
            self.new_call();
        }
        if !self.calls.is_empty() && self.common.mishap(self.weather.duplicate) {
            let call = self.common.random.place(self.calls.len());
            // The same request once more, perhaps long after it was answered.
            if self.calls[call].envelope.idempotency.is_some() {
                self.common.report.fault("duplicate request");
                self.send_call(call);
            }
        }
        self.retry_calls();
    }

    pub(super) fn retry_calls(&mut self) {
        let step = self.common.step;
        for call in 0..self.calls.len() {
            let Call { state, copies, retry_at, .. } = self.calls[call];
            if state == State::Open && copies == 0 && retry_at <= step {
                self.send_call(call);
            }
        }
    }

    fn new_call(&mut self) {
        let common = &mut self.common;
        let subject = common.random.place(common.subjects.len());
        let subject = &mut common.subjects[subject];
        let draft = subject.draft(&mut common.random, common.clock_ms);
        let machine = subject.id();
        let shard_count = u16::try_from(self.seats.len()).expect("three at most");
        let seat = usize::from(draft.to.shard(shard_count).0);
        let mut idempotency = common.random.chance(600).then(|| IdempotencyKey {
            key: common.random.bytes16(),
            body: digest(&[&draft.command]),
        });
        if let Some(key) = &mut idempotency
            && common.faulty
            && common.random.chance(50)
            && let Some(other) = self.calls.iter().rev().take(20).find(|call| call.seat == seat)
            && let Some(used) = other.envelope.idempotency
        {
            common.report.fault("key used for another request");
            key.key = used.key;
        }
        let (tenant, command) = (draft.tenant, draft.command);
        let envelope = Envelope { machine, tenant, idempotency, command };
        self.calls.push(Call { seat, envelope, state: State::Open, copies: 0, retry_at: 0 });
        let call = self.calls.len() - 1;
        self.send_call(call);
        if self.common.mishap(self.weather.duplicate)
            && self.calls[call].envelope.idempotency.is_some()
        {
            self.common.report.fault("duplicate request");
            self.send_call(call);
        }
    }

    fn send_call(&mut self, number: usize) {
        let call = &mut self.calls[number];
        let request = Request::new(call.envelope.clone(), Ticket::Call(number));
        call.copies += 1;
        if self.seats[call.seat].take_in(request).is_some() {
            self.tell_client(number, Word::NotWritten);
            return;
        }
        // The network does not keep the order.
        let inbox = &mut self.seats[self.calls[number].seat].inbox;
        if inbox.len() > 1 && self.common.random.chance(200) {
            let other = self.common.random.place(inbox.len());
            let last = inbox.len() - 1;
            inbox.swap(other, last);
        }
    }

    pub(super) fn tell_client(&mut self, number: usize, word: Word) {
        let wait = self.common.random.below(40);
        let call = &mut self.calls[number];
        call.copies -= 1;
        call.retry_at = self.common.step + wait;
        if call.state != State::Open {
            return;
        }
        match word {
            Word::Done(_) => call.state = State::Answered,
            Word::Unknown if call.envelope.idempotency.is_none() => call.state = State::GaveUp,
            Word::NotWritten | Word::Unknown => {}
        }
    }

    /// Calls that are still to be answered.
    pub(super) fn open_calls(&self) -> usize {
        self.calls.iter().filter(|call| call.state == State::Open).count()
    }
}
