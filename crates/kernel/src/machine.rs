//! The trait that every machine implements, and the turn it gets.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::Reader;
use crate::id::{MachineId, ShardId, TenantId, VirtualShard};
use crate::limits::{IDEMPOTENCY_MS, LETTER_BYTES_MAX, UNIQUE_BITS};
use crate::mail::{self, Letter};
use crate::rows::{ReadRows, Rows, Scan};
use crate::stamp::Stamp;
use crate::timers::{Due, TimerId, Timers};

/// The kernel's own number: timers, mail and answers are rows under it, and mail commands carry
/// it. Row keys that begin with 0 belong to the store.
pub const KERNEL: MachineId = MachineId(1);

/// The beginning of a key of the kernel's own rows.
#[must_use]
pub fn kernel_key(kind: u8) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    key.put_u16(KERNEL.0);
    key.put_u8(kind);
    key
}

/// The beginning of a key of a machine's rows: machine, kind, tenant.
#[must_use]
pub fn machine_key(machine: MachineId, kind: u8, tenant: TenantId) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.put_u16(machine.0);
    key.put_u8(kind);
    key.put_u32(tenant.0);
    key
}

/// Why bytes in the log mean nothing to this binary. The shard refuses to open rather than skip
/// what it cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// They end in the middle of a field.
    #[error("the bytes end in the middle of a field")]
    Short,
    /// Something follows where they should end, or a count is absurd.
    #[error("there are more bytes than the format has")]
    Long,
    /// Flags from the future.
    #[error("unknown flags {0:#04x}")]
    Flags(u8),
    /// A version from the future.
    #[error("{what} version {version} is newer than this binary")]
    Version {
        /// Of what.
        what: &'static str,
        /// Which.
        version: u8,
    },
    /// A command from the future.
    #[error("{machine} has no command {tag} in version {version}")]
    Command {
        /// Whose.
        machine: &'static str,
        /// Which.
        tag: u8,
        /// Of which version.
        version: u8,
    },
    /// A machine from the future.
    #[error("no machine has the number {0}")]
    Machine(MachineId),
    /// The body does not decode.
    #[error("bytes of {whose} do not decode: {why}")]
    Body {
        /// Of which machine, or of what.
        whose: &'static str,
        /// What the decoder said.
        why: String,
    },
}

/// A deterministic state machine.
///
/// Everything it must remember is in rows. What it keeps in its own fields is derived from rows
/// and may be dropped at any time: a machine restored from a checkpoint and one that has lived
/// through the log must answer alike.
pub trait Machine: Send {
    /// Its number in the registry.
    fn id(&self) -> MachineId;

    /// Its name, for logs and metrics.
    fn name(&self) -> &'static str;

    /// Applies a command and answers. A refusal is an answer.
    ///
    /// # Errors
    /// [`Unreadable`] when the command means nothing to this binary; nothing was changed.
    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable>;

    /// Is told that a timer it set has come due.
    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due);

    /// Receives a letter.
    ///
    /// # Errors
    /// [`Unreadable`] when the letter means nothing to this binary; nothing was changed.
    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable>;
}

/// What a turn leaves for the world outside, once its entry is durable and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A read view has a new value, or none any more.
    View {
        /// Whose view.
        machine: MachineId,
        /// Which.
        key: Bytes,
        /// What it shows; `None` drops it from memory.
        value: Option<Bytes>,
    },
    /// The outside world is asked for something. Asked again after a crash until
    /// [`Turn::effect_done`].
    Effect(Effect),
    /// A letter waits in the outbox for this shard.
    Mail(ShardId),
    /// What a tenant uses in this shard.
    Usage {
        /// Who.
        tenant: TenantId,
        /// How much.
        usage: Usage,
    },
}

/// Something asked of the outside world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// To be given back with [`Turn::effect_done`].
    pub number: u64,
    /// Who asks.
    pub machine: MachineId,
    /// On whose behalf.
    pub tenant: TenantId,
    /// What, in the machine's own encoding.
    pub payload: Bytes,
}

fn effect_key(number: u64) -> Vec<u8> {
    let mut key = kernel_key(b'e');
    key.put_u64(number);
    key
}

/// Effects with numbers after `after` that have not been done, oldest first. Asked for again when
/// a shard opens.
#[must_use]
pub fn pending_effects(rows: &impl ReadRows, after: u64, limit: usize) -> Vec<Effect> {
    rows.scan(&Scan::prefix(&kernel_key(b'e')).after(&effect_key(after)).limit(limit))
        .into_iter()
        .map(|(key, value)| {
            let number = key.last_chunk::<8>().expect("effect keys end in a number");
            let mut reader = Reader::new(value);
            Effect {
                number: u64::from_be_bytes(*number),
                machine: MachineId(reader.u16().expect("written by ask")),
                tenant: TenantId(reader.u32().expect("written by ask")),
                payload: reader.rest(),
            }
        })
        .collect()
}

/// What a tenant keeps in a shard, as its machines count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of keys and values that stay until deleted.
    pub bytes: i64,
    /// Users, queues, sales: whatever the tenant's quota counts.
    pub entities: i64,
    /// Of these, the queues.
    pub queues: i64,
    /// Messages that somebody works on.
    pub leased: i64,
}

fn usage_key(tenant: TenantId) -> Vec<u8> {
    let mut key = kernel_key(b'u');
    key.put_u32(tenant.0);
    key
}

/// The usage of every tenant, as rows have it.
#[must_use]
pub fn all_usage(rows: &Rows) -> BTreeMap<TenantId, Usage> {
    rows.scan(&Scan::prefix(&kernel_key(b'u')))
        .into_iter()
        .map(|(key, value)| {
            let tenant = key.last_chunk::<4>().expect("usage keys end in a tenant");
            let mut reader = Reader::new(value);
            let usage = Usage {
                bytes: reader.i64().expect("written by end_entry"),
                entities: reader.i64().expect("written by end_entry"),
                // Older binaries did not count these.
                queues: reader.i64().unwrap_or(0),
                leased: reader.i64().unwrap_or(0),
            };
            (TenantId(u32::from_be_bytes(*tenant)), usage)
        })
        .collect()
}

/// Where this shard stands among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// This one.
    pub shard: ShardId,
    /// All of them.
    pub shard_count: u16,
}

/// What turns share: the parts of a shard's state that are not a machine's.
#[derive(Debug)]
pub struct Ground {
    /// Where the shard stands.
    pub place: Place,
    /// Its deadlines.
    pub timers: Timers,
    usage: BTreeMap<TenantId, Usage>,
    usage_changed: BTreeSet<TenantId>,
    unique: u64,
    /// Letters of this entry to machines of this very shard, still to be delivered in it.
    pub local_letters: Vec<Letter>,
    /// What this entry leaves for the world outside.
    pub outputs: Vec<Output>,
}

impl Ground {
    /// The ground of a shard whose rows are these.
    #[must_use]
    pub fn new(place: Place, rows: &Rows) -> Ground {
        Ground {
            place,
            timers: Timers::default(),
            usage: all_usage(rows),
            usage_changed: BTreeSet::new(),
            unique: 0,
            local_letters: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Begins an entry: unique numbers start anew.
    pub fn begin_entry(&mut self) {
        assert!(self.local_letters.is_empty(), "an entry delivers its local letters");
        self.unique = 0;
    }

    /// Ends an entry: what was counted during it becomes rows.
    pub fn end_entry(&mut self, rows: &mut Rows) {
        for tenant in std::mem::take(&mut self.usage_changed) {
            let usage = self.usage[&tenant];
            let mut value = BytesMut::with_capacity(32);
            for counted in [usage.bytes, usage.entities, usage.queues, usage.leased] {
                value.put_i64(counted);
            }
            rows.put(usage_key(tenant), value.freeze());
            self.outputs.push(Output::Usage { tenant, usage });
        }
    }

    /// What every tenant uses here.
    #[must_use]
    pub fn usage(&self) -> &BTreeMap<TenantId, Usage> {
        &self.usage
    }

    /// A turn for one command, timer or letter.
    pub fn turn<'a>(
        &'a mut self,
        rows: &'a mut Rows,
        stamp: Stamp,
        machine: MachineId,
        tenant: TenantId,
    ) -> Turn<'a> {
        Turn { ground: self, rows, stamp, machine, tenant, answer_ms: IDEMPOTENCY_MS }
    }
}

/// A machine's turn: everything it may see and do.
pub struct Turn<'a> {
    ground: &'a mut Ground,
    rows: &'a mut Rows,
    stamp: Stamp,
    machine: MachineId,
    tenant: TenantId,
    answer_ms: u64,
}

impl Turn<'_> {
    /// Nothing was done, and asking again later may do it: the answer is not remembered under the
    /// client's idempotency key, or it would get the same one for a day.
    pub fn may_be_asked_again(&mut self) {
        self.answer_ms = 0;
    }

    /// The answer is remembered for so long only, under the client's idempotency key.
    pub fn keep_answer_for(&mut self, ms: u64) {
        self.answer_ms = ms.min(IDEMPOTENCY_MS);
    }

    /// How long the answer is to be remembered; 0 is not at all.
    #[must_use]
    pub fn answer_ms(&self) -> u64 {
        self.answer_ms
    }

    /// The time of the entry, in Unix milliseconds. Never goes back.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.stamp.at_ms
    }

    /// On whose behalf.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Which shard this is, for ids that say where they were made.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.ground.place.shard
    }

    /// Begins a key of this machine's rows, of this turn's tenant.
    #[must_use]
    pub fn key(&self, kind: u8) -> Vec<u8> {
        machine_key(self.machine, kind, self.tenant)
    }

    /// The rows, to read.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        self.rows
    }

    fn own(&self, key: &[u8]) {
        assert!(key.starts_with(&self.machine.0.to_be_bytes()), "a machine writes its own rows");
    }

    /// Writes a row of this machine's.
    pub fn put(&mut self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.own(&key);
        self.rows.put(key, value);
    }

    /// Writes a row of this machine's whose key was never used; see [`Rows::put_new`].
    pub fn put_new(&mut self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.own(&key);
        self.rows.put_new(key, value);
    }

    /// Deletes a row of this machine's.
    pub fn delete(&mut self, key: &[u8]) {
        self.own(key);
        self.rows.delete(key);
    }

    /// Deletes all rows of this machine's that begin so.
    pub fn delete_prefix(&mut self, prefix: &[u8]) {
        self.own(prefix);
        self.rows.delete_prefix(prefix);
    }

    /// A number that no other call in this shard ever got or gets; later ones are greater.
    pub fn unique(&mut self) -> u64 {
        let number = self.ground.unique;
        self.ground.unique += 1;
        assert!(number < 1 << UNIQUE_BITS, "an entry's unique numbers are used up");
        assert!(self.stamp.index.0 >> (64 - UNIQUE_BITS) == 0, "the shard's are used up");
        self.stamp.index.0 << UNIQUE_BITS | number
    }

    /// 128 bits that nobody can guess, the same in every replay.
    pub fn secret(&mut self) -> [u8; 16] {
        let number = self.unique();
        self.stamp.draw(number)
    }

    /// Sets a timer; [`Machine::fire`] is called in the first entry at or after `deadline_ms`.
    pub fn set_timer(&mut self, deadline_ms: u64, payload: impl Into<Bytes>) -> TimerId {
        let id = TimerId { deadline_ms, number: self.unique() };
        let due = Due { id, machine: self.machine, tenant: self.tenant, payload: payload.into() };
        self.ground.timers.set(self.rows, due);
        id
    }

    /// Forgets a timer. One that has fired makes no difference.
    pub fn cancel_timer(&mut self, id: TimerId) {
        self.ground.timers.cancel(self.rows, id);
    }

    /// Sends a letter to the machine that has `machine`'s number where `to` is placed.
    pub fn send(&mut self, to: VirtualShard, machine: MachineId, body: impl Into<Bytes>) {
        let letter = Letter { machine, tenant: self.tenant, body: body.into() };
        assert!(letter.body.len() <= LETTER_BYTES_MAX, "a machine bounds its letters");
        let Place { shard, shard_count } = self.ground.place;
        let to = to.shard(shard_count);
        if to == shard {
            self.ground.local_letters.push(letter);
        } else {
            mail::post(self.rows, to, &letter);
            self.ground.outputs.push(Output::Mail(to));
        }
    }

    /// Shows a new value to readers, or (`None`) drops the view from memory.
    pub fn publish(&mut self, key: impl Into<Bytes>, value: Option<Bytes>) {
        let output = Output::View { machine: self.machine, key: key.into(), value };
        self.ground.outputs.push(output);
    }

    /// Asks the outside world for something, until [`Turn::effect_done`] says that it is done.
    pub fn ask(&mut self, payload: impl Into<Bytes>) -> u64 {
        let number = self.unique();
        let payload = payload.into();
        let mut value = BytesMut::with_capacity(6 + payload.len());
        value.put_u16(self.machine.0);
        value.put_u32(self.tenant.0);
        value.put_slice(&payload);
        self.rows.put_new(effect_key(number), value.freeze());
        let effect = Effect { number, machine: self.machine, tenant: self.tenant, payload };
        self.ground.outputs.push(Output::Effect(effect));
        number
    }

    /// Says that an effect is done. False when it was done already: the second report of an
    /// executor that was asked twice.
    pub fn effect_done(&mut self, number: u64) -> bool {
        let key = effect_key(number);
        let pending = self.rows.get(&key).is_some();
        if pending {
            self.rows.delete(&key);
        }
        pending
    }

    /// Counts what the tenant keeps.
    pub fn count(&mut self, bytes: i64, entities: i64) {
        self.count_all(Usage { bytes, entities, ..Usage::default() });
    }

    /// [`Turn::count`], of everything that can be counted.
    pub fn count_all(&mut self, more: Usage) {
        let usage = self.ground.usage.entry(self.tenant).or_default();
        usage.bytes += more.bytes;
        usage.entities += more.entities;
        usage.queues += more.queues;
        usage.leased += more.leased;
        self.ground.usage_changed.insert(self.tenant);
    }
}
