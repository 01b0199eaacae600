//! Letters from machine to machine.
//!
//! Inside a shard a letter is delivered in the entry that sent it. Across shards:
//!
//! ```text
//!   sender's shard                                receiver's shard
//!   outbox row (to, number)  ──── Deliver ────▶   number = last + 1 ?  apply, last := number
//!        │                                        number ≤ last     ?  seen before, ignore
//!        │                                        otherwise            a gap: refuse
//!   delete rows ≤ last       ◀─── Collected ───   answers with `last`
//! ```
//!
//! The outbox row and the state it belongs to are one entry; `last` and what the letter did are
//! one entry. So a letter is applied once, in the order of sending, whatever crashes: what is not
//! collected is sent again.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Reader, put_bytes};
use crate::id::{MachineId, ShardId, TenantId};
use crate::machine::{Unreadable, kernel_key};
use crate::rows::{ReadRows, Rows, Scan};

/// What one machine says to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Who receives it.
    pub machine: MachineId,
    /// On whose behalf.
    pub tenant: TenantId,
    /// For the receiver to read: `[tag][version][body]`.
    pub body: Bytes,
}

impl Letter {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(10 + self.body.len());
        out.put_u16(self.machine.0);
        out.put_u32(self.tenant.0);
        put_bytes(&mut out, &self.body);
        out.freeze()
    }

    fn decode(bytes: Bytes) -> Result<Letter, Unreadable> {
        let mut reader = Reader::new(bytes);
        let machine = MachineId(reader.u16()?);
        let tenant = TenantId(reader.u32()?);
        let body = reader.bytes()?;
        reader.end()?;
        Ok(Letter { machine, tenant, body })
    }
}

/// The kernel's own commands: the two halves of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailCommand {
    /// To the receiver.
    Deliver {
        /// The sender's shard.
        from: ShardId,
        /// The letter's place in the sequence from there to here.
        number: u64,
        /// What it says.
        letter: Letter,
    },
    /// To the sender: everything up to `through` has been applied.
    Collected {
        /// The receiver's shard.
        to: ShardId,
        /// The last number that was applied there.
        through: u64,
    },
}

const TAG_DELIVER: u8 = 1;
const TAG_COLLECTED: u8 = 2;

impl MailCommand {
    /// `[tag][version][body]`, as every command.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            MailCommand::Deliver { from, number, letter } => {
                out.put_slice(&[TAG_DELIVER, 1]);
                out.put_u16(from.0);
                out.put_u64(*number);
                out.put_slice(&letter.encode());
            }
            MailCommand::Collected { to, through } => {
                out.put_slice(&[TAG_COLLECTED, 1]);
                out.put_u16(to.0);
                out.put_u64(*through);
            }
        }
        out.freeze()
    }

    /// Reads [`MailCommand::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when it is something else.
    pub fn decode(command: Bytes) -> Result<MailCommand, Unreadable> {
        let mut reader = Reader::new(command);
        let (tag, version) = (reader.u8()?, reader.u8()?);
        let (shard, number) = (ShardId(reader.u16()?), reader.u64()?);
        match (tag, version) {
            (TAG_DELIVER, 1) => {
                let letter = Letter::decode(reader.rest())?;
                Ok(MailCommand::Deliver { from: shard, number, letter })
            }
            (TAG_COLLECTED, 1) => {
                reader.end()?;
                Ok(MailCommand::Collected { to: shard, through: number })
            }
            _ => Err(Unreadable::Command { machine: "mail", tag, version }),
        }
    }
}

/// What the receiver makes of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is the next: apply it.
    Next,
    /// It was applied before.
    Seen,
    /// One before it is missing.
    Gap,
}

fn outbox_key(to: ShardId, number: u64) -> Vec<u8> {
    let mut key = kernel_key(b'o');
    key.put_u16(to.0);
    key.put_u64(number);
    key
}

fn counter_key(kind: u8, shard: ShardId) -> Vec<u8> {
    let mut key = kernel_key(kind);
    key.put_u16(shard.0);
    key
}

fn counter(value: Option<Bytes>) -> u64 {
    value.map_or(0, |value| Reader::new(value).u64().expect("counters are eight bytes"))
}

fn put_counter(rows: &mut Rows, key: Vec<u8>, value: u64) {
    rows.put(key, Bytes::copy_from_slice(&value.to_be_bytes()));
}

/// Puts a letter into the outbox.
pub fn post(rows: &mut Rows, to: ShardId, letter: &Letter) {
    let sent = counter_key(b's', to);
    let number = counter(rows.get(&sent)) + 1;
    put_counter(rows, sent, number);
    rows.put_new(outbox_key(to, number), letter.encode());
}

/// Decides about a delivery and, when it is the next, remembers it. The caller applies it in the
/// same entry.
pub fn accept(rows: &mut Rows, from: ShardId, number: u64) -> (Delivery, u64) {
    let key = counter_key(b'r', from);
    let last = counter(rows.get(&key));
    if number <= last {
        (Delivery::Seen, last)
    } else if number == last + 1 {
        put_counter(rows, key, number);
        (Delivery::Next, number)
    } else {
        (Delivery::Gap, last)
    }
}

/// Removes what the receiver has applied.
pub fn collect(rows: &mut Rows, to: ShardId, through: u64) {
    let key = counter_key(b'c', to);
    let collected = counter(rows.get(&key));
    let sent = counter(rows.get(&counter_key(b's', to)));
    let through = through.min(sent);
    for number in collected + 1..=through {
        rows.delete(&outbox_key(to, number));
    }
    if through > collected {
        put_counter(rows, key, through);
    }
}

/// Letters to `to` that are not collected, oldest first, with their numbers.
#[must_use]
pub fn uncollected(rows: &impl ReadRows, to: ShardId, limit: usize) -> Vec<(u64, Letter)> {
    let first = counter(rows.get(&counter_key(b'c', to))) + 1;
    let scan = Scan::between(&outbox_key(to, first), &outbox_key(to, u64::MAX)).limit(limit);
    rows.scan(&scan)
        .into_iter()
        .map(|(key, value)| {
            let number = key.last_chunk::<8>().expect("outbox keys end in a number");
            (u64::from_be_bytes(*number), Letter::decode(value).expect("written by post"))
        })
        .collect()
}
