//! Machines and commands that there are only here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut, Bytes};
use kernel::codec::Reader;
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{Envelope, Machine, MachineId, TenantId, TimerId, Turn, Unreadable};

/// Far from the numbers of the registry.
const COUNTER: MachineId = MachineId(60_001);
const ALARM: MachineId = MachineId(60_002);

/// On whose behalf everything here is done.
pub(crate) const TENANT: TenantId = TenantId(1);

/// The least that a machine can do: it counts its commands, in a row.
pub(crate) struct Counter;

impl Machine for Counter {
    fn id(&self) -> MachineId {
        COUNTER
    }

    fn name(&self) -> &'static str {
        "counter"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, _command: &Bytes) -> Result<Bytes, Unreadable> {
        let key = turn.key(b'c');
        let count = turn.rows().get(&key).map_or(Ok(0), |value| Reader::new(value).u64())? + 1;
        turn.put(key, Bytes::copy_from_slice(&count.to_be_bytes()));
        Ok(Bytes::new())
    }

    fn fire(&mut self, _turn: &mut Turn<'_>, _timer: &Due) {}

    fn receive(&mut self, _turn: &mut Turn<'_>, _letter: &Letter) -> Result<(), Unreadable> {
        Ok(())
    }
}

fn envelope(machine: MachineId, command: Bytes) -> Envelope {
    Envelope { machine, tenant: TENANT, idempotency: None, command }
}

/// A command of so many bytes for [`Counter`].
pub(crate) fn count(bytes: usize, number: u64) -> Envelope {
    let mut command = vec![b'.'; bytes.max(10)];
    command[..2].copy_from_slice(&[1, 1]);
    command[2..10].copy_from_slice(&number.to_be_bytes());
    envelope(COUNTER, command.into())
}

/// A search of one of `users`, so long that the command has about so many bytes.
pub(crate) fn search(bytes: usize, users: u64, number: u64) -> Envelope {
    // Neighbours in the log are different users, as they are under load.
    let user = format!("user-{:08}", number.wrapping_mul(0x9e37_79b9) % users.max(1));
    let mut query = format!("query {number:012} ");
    while query.len() + user.len() + 14 < bytes {
        query.push_str("search for something ");
    }
    query.truncate(bytes.saturating_sub(user.len() + 14).max(19));
    // Any number does: here nobody searches for the same thing twice.
    let add = recents::Add { user, folded: number, query };
    envelope(recents::MACHINE, recents::Command::Add(add).encode())
}

/// Sets timers, and keeps book of those that fire.
///
/// ```text
///   'f' number of the timer     when it fired: one row each, so that none is counted twice
///   's'                         Book
/// ```
pub(crate) struct Alarm {
    /// How many have fired, for whoever watches. No part of the state.
    pub(crate) fired: Arc<AtomicU64>,
}

/// What [`Alarm`] knows of the timers that have fired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Book {
    /// How often a timer fired.
    pub(crate) fired: u64,
    /// Of them, how many came before one with an earlier deadline or number.
    pub(crate) out_of_order: u64,
    /// Of them, how many came before their time.
    pub(crate) early: u64,
    last: TimerId,
}

impl Book {
    const KEY_KIND: u8 = b's';

    pub(crate) fn decode(row: Option<Bytes>) -> Result<Book, Unreadable> {
        let last = TimerId { deadline_ms: 0, number: 0 };
        let Some(row) = row else {
            return Ok(Book { fired: 0, out_of_order: 0, early: 0, last });
        };
        let mut reader = Reader::new(row);
        Ok(Book {
            fired: reader.u64()?,
            out_of_order: reader.u64()?,
            early: reader.u64()?,
            last: TimerId::from_bytes(reader.array16()?),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(40);
        row.put_u64(self.fired);
        row.put_u64(self.out_of_order);
        row.put_u64(self.early);
        row.put_slice(&self.last.to_bytes());
        row
    }

    /// The row's key.
    pub(crate) fn key() -> Vec<u8> {
        kernel::machine::machine_key(ALARM, Book::KEY_KIND, TENANT)
    }
}

/// The beginning of the keys of the timers that have fired.
pub(crate) fn fired_prefix() -> Vec<u8> {
    kernel::machine::machine_key(ALARM, b'f', TENANT)
}

impl Machine for Alarm {
    fn id(&self) -> MachineId {
        ALARM
    }

    fn name(&self) -> &'static str {
        "alarm"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let mut reader = Reader::new(command.slice(2..));
        let deadline_ms = reader.u64()?;
        turn.set_timer(deadline_ms, reader.rest());
        Ok(Bytes::new())
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let key = turn.key(Book::KEY_KIND);
        let mut book = Book::decode(turn.rows().get(&key)).expect("written by this machine");
        book.fired += 1;
        book.out_of_order += u64::from(timer.id <= book.last);
        book.early += u64::from(timer.id.deadline_ms > turn.now_ms());
        book.last = timer.id;
        turn.put(key, book.encode());
        let mut fired = turn.key(b'f');
        fired.put_slice(&timer.payload[..8]);
        let now_ms = turn.now_ms();
        turn.put(fired, Bytes::copy_from_slice(&now_ms.to_be_bytes()));
        self.fired.store(book.fired, Ordering::Release);
    }

    fn receive(&mut self, _turn: &mut Turn<'_>, _letter: &Letter) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// Sets timer `number`, whose payload has so many bytes.
pub(crate) fn set_timer(deadline_ms: u64, number: u64, payload_bytes: usize) -> Envelope {
    let mut command = Vec::with_capacity(10 + payload_bytes);
    command.put_slice(&[1, 1]);
    command.put_u64(deadline_ms);
    command.put_u64(number);
    command.resize(10 + payload_bytes.max(8), b'.');
    envelope(ALARM, command.into())
}

#[cfg(test)]
mod tests {
    use super::{count, search};

    #[test]
    fn commands_have_about_the_size_asked_for() {
        assert_eq!(count(100, 7).command.len(), 100);
        for bytes in [100, 1024] {
            let len = search(bytes, 1000, 123_456_789).command.len();
            assert!(len.abs_diff(bytes) < 12, "{len} for {bytes}");
        }
    }
}
