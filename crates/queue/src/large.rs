//! Bodies that lie in the archive: what a queue holds of them, and when they are deleted there.
//!
//! ```text
//!   reserve ──▶ reserved ──── send, which is taken ──▶ held by a message ──┐
//!                  │                                    │      ▲           │ ack, age,
//!                  │ an hour, or a send                 └──────┘           │ purge, delete
//!                  │ that is not taken                  dead letter,       │
//!                  ▼                                    redrive            ▼
//!               asked to be deleted ◀──────────────────────────────────────┘
//! ```
//!
//! The object is written between the reservation and the send, so that none is ever there that no
//! row knows of. A message carries the pointer in its parcel, wherever it moves; a row of its queue
//! says that the queue holds it, so that a purge need not look through messages.

use bytes::{BufMut, Bytes};
use kernel::machine::machine_key;
use kernel::rows::Scan;
use kernel::{TenantId, TimerId, Turn, Unreadable};
use serde::{Deserialize, Serialize};

use crate::apply::Desk;
use crate::command::{Reply, ReserveBody};
use crate::parcel::ArchivedBody;
use crate::state::{Message, Queue, key, read, row, timer};

/// How long whoever has reserved has to write the object and send. *(frozen)*
pub const RESERVED_MS: u64 = 60 * 60 * 1000;
/// Of what the timer of a reservation carries: its number.
pub(crate) const RESERVATION_TIMER: u8 = 2;
/// Of what the timer of a purge carries: who held the bodies, and two sequences.
pub(crate) const PURGE_TIMER: u8 = 3;
/// Bodies that one step of a purge asks to be deleted.
const PURGE_MAX: usize = 256;

/// What queues ask of the outside world. Being asked twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueEffect {
    /// No message has this body any more, and none will.
    DeleteBody(ArchivedBody),
}

impl QueueEffect {
    /// As it waits in a row.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        kernel::codec::versioned(self).into()
    }

    /// Reads [`QueueEffect::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when it is something else.
    pub fn decode(payload: &[u8]) -> Result<QueueEffect, Unreadable> {
        kernel::codec::read_versioned("an effect of a queue", payload)
    }
}

/// A place for a body that has not been sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reservation {
    /// Only this queue may have it.
    queue: u64,
    body: ArchivedBody,
    timer: (u64, u64),
}

fn reservation_key(tenant: TenantId, number: u64) -> Vec<u8> {
    let mut key = machine_key(crate::MACHINE, b'b', tenant);
    key.put_u64(number);
    key
}

pub(crate) fn held_key(tenant: TenantId, holder: u64, sequence: u64) -> Vec<u8> {
    let mut key = key(tenant, b'o', holder);
    key.put_u64(sequence);
    key
}

fn ask_to_delete(turn: &mut Turn<'_>, body: ArchivedBody) {
    turn.ask(QueueEffect::DeleteBody(body).encode());
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("the edge bounds bodies")
}

/// Keeps a place for a body, for an hour. It counts as stored from now on.
pub(crate) fn reserve(turn: &mut Turn<'_>, queue: &Queue, asked: &ReserveBody) -> Reply {
    let number = turn.unique();
    let mut payload = Vec::with_capacity(9);
    payload.put_u8(RESERVATION_TIMER);
    payload.put_u64(number);
    let TimerId { deadline_ms, number: timer } =
        turn.set_timer(turn.now_ms() + RESERVED_MS, payload);
    let ReserveBody { sha256, bytes, .. } = *asked;
    let body = ArchivedBody { shard: turn.shard().0, number, sha256, bytes };
    let reservation = Reservation { queue: queue.number, body, timer: (deadline_ms, timer) };
    turn.put_new(reservation_key(turn.tenant(), number), row(&reservation));
    turn.count(signed(bytes), 0);
    Reply::BodyReserved(body)
}

/// Takes a reservation away, whatever becomes of its body.
fn take_reservation(turn: &mut Turn<'_>, number: u64) -> Option<Reservation> {
    let key = reservation_key(turn.tenant(), number);
    let reservation: Reservation = read(&turn.rows().get(&key)?);
    turn.delete(&key);
    turn.count(-signed(reservation.body.bytes), 0);
    Some(reservation)
}

/// The hour of a reservation is over, and nobody has sent.
pub(crate) fn reservation_ends(turn: &mut Turn<'_>, payload: &[u8]) {
    let number = payload.first_chunk().expect("set by this machine");
    if let Some(reservation) = take_reservation(turn, u64::from_be_bytes(*number)) {
        ask_to_delete(turn, reservation.body);
    }
}

/// Asks for the deletion of what a purged queue held, in steps: the queue may be gone by now.
pub(crate) fn purge_on(turn: &mut Turn<'_>, payload: &[u8]) {
    let field = |at: usize| {
        let bytes = payload[at * 8..].first_chunk().expect("set by this machine");
        u64::from_be_bytes(*bytes)
    };
    let (tenant, holder, after, through) = (turn.tenant(), field(0), field(1), field(2));
    let (from, to) = (held_key(tenant, holder, after), held_key(tenant, holder, through + 1));
    let found = turn.rows().scan(&Scan::between(&from, &to).limit(PURGE_MAX));
    for (key, row) in &found {
        turn.delete(key);
        ask_to_delete(turn, read(row));
    }
    if let Some((last, _)) = found.last().filter(|_| found.len() == PURGE_MAX) {
        let sequence = last.last_chunk().expect("as held_key puts it");
        let now_ms = turn.now_ms();
        set_purge_timer(turn, now_ms, holder, u64::from_be_bytes(*sequence) + 1, through);
    }
}

fn set_purge_timer(turn: &mut Turn<'_>, at_ms: u64, holder: u64, from: u64, through: u64) {
    let mut payload = Vec::with_capacity(25);
    payload.put_u8(PURGE_TIMER);
    for field in [holder, from, through] {
        payload.put_u64(field);
    }
    turn.set_timer(at_ms, payload);
}

impl Desk<'_, '_> {
    /// Whether a body that a sender names is reserved for this queue; it is not any more then.
    pub(crate) fn redeem(&mut self, body: &ArchivedBody) -> bool {
        let key = reservation_key(self.tenant(), body.number);
        let known = self.turn.rows().get(&key).map(|row| read::<Reservation>(&row));
        let is_ours = |known: &Reservation| (known.queue, known.body) == (self.number(), *body);
        let Some(known) = known.filter(is_ours) else { return false };
        self.turn.cancel_timer(timer(known.timer));
        take_reservation(self.turn, body.number).is_some()
    }

    fn holder(&self) -> u64 {
        self.counts.holder_of(self.number())
    }

    /// The queue holds the body of a message that has come to it, if it lies in the archive.
    pub(crate) fn hold_body(&mut self, message: &Message) {
        if let Some(body) = ArchivedBody::of(&message.parcel) {
            let key = held_key(self.tenant(), self.holder(), message.head.sequence);
            self.turn.put_new(key, row(&body));
            self.counts.archived += 1;
        }
    }

    /// The same for one that has come back.
    pub(crate) fn hold_body_again(&mut self, message: &Message) {
        if let Some(body) = ArchivedBody::of(&message.parcel) {
            let key = held_key(self.tenant(), self.holder(), message.head.sequence);
            self.turn.put(key, row(&body));
            self.counts.archived += 1;
        }
    }

    /// A message goes to another queue, and its body with it.
    pub(crate) fn pass_body_on(&mut self, message: &Message) -> Option<ArchivedBody> {
        let body = ArchivedBody::of(&message.parcel)?;
        self.turn.delete(&held_key(self.tenant(), self.holder(), message.head.sequence));
        self.counts.archived -= 1;
        Some(body)
    }

    /// A message has come to its end.
    pub(crate) fn end_body(&mut self, message: &Message) {
        if let Some(body) = self.pass_body_on(message) {
            ask_to_delete(self.turn, body);
        }
    }

    /// A body was sent with a message that is not taken.
    pub(crate) fn give_up_body(&mut self, body: ArchivedBody) {
        ask_to_delete(self.turn, body);
    }

    /// All messages of the queue are gone; what they held goes little by little.
    pub(crate) fn end_all_bodies(&mut self) {
        let holder = self.holder();
        let held = Scan::prefix(&key(self.tenant(), b'o', holder)).limit(1);
        if !self.turn.rows().scan(&held).is_empty() {
            set_purge_timer(self.turn, self.turn.now_ms(), holder, 0, self.counts.last_sequence);
            self.counts.holder = self.turn.unique();
        }
    }
}
