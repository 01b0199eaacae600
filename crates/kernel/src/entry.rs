//! The bytes of an entry: a stamp and its commands.
//!
//! ```text
//!   ┌─────────┬──────────┬──────────┬──────────────┬──────────┬─────────────┐
//!   │ version │ at_ms    │ seed     │ timers_max   │ count    │ envelope …  │
//!   │ u8 = 1  │ u64      │ 16 bytes │ u32          │ u32      │             │
//!   └─────────┴──────────┴──────────┴──────────────┴──────────┴─────────────┘
//!   envelope
//!   ┌─────────┬────────┬───────┬───────────────────────────┬──────────────────┐
//!   │ machine │ tenant │ flags │ key, body digest (flag 1) │ length, command  │
//!   │ u16     │ u32    │ u8    │ 16 + 16 bytes             │ u32, bytes       │
//!   └─────────┴────────┴───────┴───────────────────────────┴──────────────────┘
//! ```
//!
//! All numbers are big-endian. A change gets a new version byte, and [`Entry::decode`] keeps
//! reading the old ones: a log may be older than the binary.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Reader, put_bytes};
use crate::id::{MachineId, TenantId};
use crate::limits::ENTRY_COMMANDS_MAX;
use crate::machine::Unreadable;

/// The version that [`Entry::encode`] writes.
const VERSION: u8 = 1;
const FLAG_IDEMPOTENT: u8 = 1;
/// Version, time, seed, timers_max and count.
const HEADER_BYTES: usize = 1 + 8 + 16 + 4 + 4;

/// "The same request again" is told by these two digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Of the tenant, the route and the client's key.
    pub key: [u8; 16],
    /// Of the request's body.
    pub body: [u8; 16],
}

/// A command on its way to its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Who is to apply it.
    pub machine: MachineId,
    /// On whose behalf.
    pub tenant: TenantId,
    /// Given by clients who want to be able to ask twice.
    pub idempotency: Option<IdempotencyKey>,
    /// For the machine to read: `[tag][version][body]`.
    pub command: Bytes,
}

impl Envelope {
    /// Bytes it takes in an entry.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        2 + 4 + 1 + if self.idempotency.is_some() { 32 } else { 0 } + 4 + self.command.len()
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u16(self.machine.0);
        out.put_u32(self.tenant.0);
        match self.idempotency {
            Some(IdempotencyKey { key, body }) => {
                out.put_u8(FLAG_IDEMPOTENT);
                out.put_slice(&key);
                out.put_slice(&body);
            }
            None => out.put_u8(0),
        }
        put_bytes(out, &self.command);
    }

    fn decode(reader: &mut Reader) -> Result<Envelope, Unreadable> {
        let machine = MachineId(reader.u16()?);
        let tenant = TenantId(reader.u32()?);
        let idempotency = match reader.u8()? {
            0 => None,
            FLAG_IDEMPOTENT => {
                Some(IdempotencyKey { key: reader.array16()?, body: reader.array16()? })
            }
            flags => return Err(Unreadable::Flags(flags)),
        };
        Ok(Envelope { machine, tenant, idempotency, command: reader.bytes()? })
    }
}

/// What one log entry says. The index is the log's to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// See [`Stamp::at_ms`](crate::Stamp::at_ms).
    pub at_ms: u64,
    /// See [`Stamp::seed`](crate::Stamp::seed).
    pub seed: [u8; 16],
    /// How many due timers this entry fires at most, before its commands.
    pub timers_max: u32,
    /// In the order in which they are applied.
    pub commands: Vec<Envelope>,
}

impl Entry {
    /// The payload for the log.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(self.commands.len() <= ENTRY_COMMANDS_MAX, "the shard fills no entry further");
        let len = self.commands.iter().map(Envelope::encoded_len).sum::<usize>();
        let mut out = BytesMut::with_capacity(HEADER_BYTES + len);
        out.put_u8(VERSION);
        out.put_u64(self.at_ms);
        out.put_slice(&self.seed);
        out.put_u32(self.timers_max);
        out.put_u32(u32::try_from(self.commands.len()).expect("bounded above"));
        for envelope in &self.commands {
            envelope.encode(&mut out);
        }
        out.freeze()
    }

    /// Reads a payload back. Commands share its memory.
    ///
    /// # Errors
    /// [`Unreadable`] when it is not an entry, or one of a version that this binary is too old for.
    pub fn decode(payload: Bytes) -> Result<Entry, Unreadable> {
        let mut reader = Reader::new(payload);
        match reader.u8()? {
            VERSION => {}
            version => return Err(Unreadable::Version { what: "entry", version }),
        }
        let at_ms = reader.u64()?;
        let seed = reader.array16()?;
        let timers_max = reader.u32()?;
        let count = reader.u32()? as usize;
        if count > ENTRY_COMMANDS_MAX {
            return Err(Unreadable::Long);
        }
        let mut commands = Vec::with_capacity(count);
        for _ in 0..count {
            commands.push(Envelope::decode(&mut reader)?);
        }
        reader.end()?;
        Ok(Entry { at_ms, seed, timers_max, commands })
    }
}
