//! A machine for the simulator alone. It uses everything that a turn offers, and writes down what
//! happened to it, so that its model can tell whether the kernel keeps its promises.
//!
//! ```text
//!   kind  after machine, kind and tenant    value
//!   'g'   group, slot                       a number: put, deleted, deleted by prefix
//!   'n'   group, unique number              a number: put_new, deleted by prefix
//!   't'   name of a timer                   the id of the timer
//!   'f'   count                             a timer that fired: deadline, name, at
//!   'r'   count                             a letter that came
//!   'c'   'f' or 'r'                        how many of them
//! ```

use bytes::{BufMut, Bytes};
use kernel::mail::Letter;
use kernel::rows::Scan;
use kernel::timers::Due;
use kernel::{Machine, MachineId, TimerId, Turn, Unreadable, VirtualShard};
use serde::{Deserialize, Serialize};

/// The probe's number.
pub const PROBE: MachineId = MachineId(60_000);

/// What can be asked of the probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeCommand {
    /// Write a slot of a group.
    Put {
        /// Which group.
        group: u8,
        /// Which slot.
        slot: u8,
        /// What.
        value: u32,
    },
    /// Delete a slot.
    Delete {
        /// Which group.
        group: u8,
        /// Which slot.
        slot: u8,
    },
    /// Write rows with new keys, and answer with their numbers and as many secrets.
    New {
        /// Under which group.
        group: u8,
        /// How many.
        count: u8,
    },
    /// Delete the oldest row with a new key.
    DeleteNew {
        /// Of which group.
        group: u8,
    },
    /// Delete all rows of a group by prefix.
    DeleteGroup {
        /// Which.
        group: u8,
    },
    /// Set timers: `count` of them, `step_ms` apart.
    Timers {
        /// The deadline of the first.
        deadline_ms: u64,
        /// From one to the next; 0 for the same millisecond.
        step_ms: u64,
        /// How many.
        count: u32,
        /// The name of the first; the others count up.
        name: u32,
        /// What each does when it fires.
        then: Then,
    },
    /// Cancel a timer by name.
    Cancel {
        /// Which.
        name: u32,
    },
    /// Send a letter.
    Send(Note),
    /// Ask for an effect.
    Ask {
        /// Which.
        name: u32,
    },
    /// An effect is done.
    Done {
        /// Its number.
        effect: u64,
    },
}

/// What a timer does when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// Nothing but being written down.
    Nothing,
    /// Cancels the timer of another name.
    Cancel(u32),
    /// Sets itself again, so many times, so much later.
    Again {
        /// How often.
        times: u8,
        /// How much later; 0 for at once.
        after_ms: u64,
    },
    /// Sends a letter.
    Send(Note),
    /// Asks for an effect.
    Ask,
}

/// A letter of the probe's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The slot it goes to.
    pub to: u16,
    /// What it says.
    pub name: u32,
    /// How often it is passed on.
    pub hops: u8,
}

impl Note {
    /// The same letter to the next slot, unless it has arrived.
    #[must_use]
    pub fn passed_on(self) -> Option<Note> {
        let to = (self.to + 1500) % kernel::id::VIRTUAL_SHARDS;
        (self.hops > 0).then(|| Note { to, name: self.name, hops: self.hops - 1 })
    }

    fn body(self) -> Bytes {
        pack(&self)
    }
}

/// What the probe answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReply {
    /// Unique numbers that were drawn.
    pub numbers: Vec<u64>,
    /// Secrets that were drawn.
    pub secrets: Vec<[u8; 16]>,
    /// Whether there was anything to delete, to cancel or to end.
    pub found: bool,
}

/// A timer's payload: its name and what it does.
pub type TimerNote = (u32, Then);

/// A timer that fired: deadline, name, time of the entry.
pub type Fired = (u64, u32, u64);

/// Encodes.
#[must_use]
pub fn pack(value: &impl Serialize) -> Bytes {
    postcard::to_stdvec(value).expect("plain data encodes").into()
}

/// Decodes what [`pack`] made.
///
/// # Errors
/// [`Unreadable::Body`] for anything else.
pub fn unpack<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Unreadable> {
    let unreadable =
        |error: postcard::Error| Unreadable::Body { whose: "probe", why: error.to_string() };
    postcard::from_bytes(bytes).map_err(unreadable)
}

/// The machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Probe;

impl Machine for Probe {
    fn id(&self) -> MachineId {
        PROBE
    }

    fn name(&self) -> &'static str {
        "probe"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let mut reply = ProbeReply::default();
        match unpack(command)? {
            ProbeCommand::Put { group, slot, value } => {
                turn.put(key(turn, b'g', &[group, slot]), pack(&value));
            }
            ProbeCommand::Delete { group, slot } => {
                let key = key(turn, b'g', &[group, slot]);
                reply.found = turn.rows().get(&key).is_some();
                turn.delete(&key);
            }
            ProbeCommand::New { group, count } => put_new(turn, group, count, &mut reply),
            ProbeCommand::DeleteNew { group } => {
                let scan = Scan::prefix(&key(turn, b'n', &[group])).limit(1);
                if let Some((key, _)) = turn.rows().scan(&scan).first() {
                    turn.delete(key);
                    reply.found = true;
                }
            }
            ProbeCommand::DeleteGroup { group } => {
                turn.delete_prefix(&key(turn, b'g', &[group]));
                turn.delete_prefix(&key(turn, b'n', &[group]));
            }
            ProbeCommand::Timers { deadline_ms, step_ms, count, name, then } => {
                for number in 0..count {
                    let at_ms = deadline_ms + u64::from(number) * step_ms;
                    set_timer(turn, at_ms, (name + number, then));
                }
            }
            ProbeCommand::Cancel { name } => reply.found = cancel(turn, name),
            ProbeCommand::Send(note) => turn.send(VirtualShard(note.to), PROBE, note.body()),
            ProbeCommand::Ask { name } => {
                turn.ask(pack(&name));
            }
            ProbeCommand::Done { effect } => reply.found = turn.effect_done(effect),
        }
        Ok(pack(&reply))
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let (name, then): TimerNote = unpack(&timer.payload).expect("set by this machine");
        let timer_key = key(turn, b't', &name.to_be_bytes());
        turn.delete(&timer_key);
        let fired: Fired = (timer.id.deadline_ms, name, turn.now_ms());
        write_down(turn, b'f', &fired);
        match then {
            Then::Nothing => {}
            Then::Cancel(other) => {
                cancel(turn, other);
            }
            Then::Again { times: 0, .. } => {}
            Then::Again { times, after_ms } => {
                let at_ms = turn.now_ms() + after_ms;
                set_timer(turn, at_ms, (name, Then::Again { times: times - 1, after_ms }));
            }
            Then::Send(note) => turn.send(VirtualShard(note.to), PROBE, note.body()),
            Then::Ask => {
                turn.ask(pack(&name));
            }
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        let note: Note = unpack(&letter.body)?;
        write_down(turn, b'r', &note);
        if let Some(next) = note.passed_on() {
            turn.send(VirtualShard(next.to), PROBE, next.body());
        }
        Ok(())
    }
}

/// A key of the probe's, from a turn.
fn key(turn: &Turn<'_>, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = turn.key(kind);
    key.put_slice(rest);
    key
}

fn put_new(turn: &mut Turn<'_>, group: u8, count: u8, reply: &mut ProbeReply) {
    for _ in 0..count {
        let number = turn.unique();
        let mut key = key(turn, b'n', &[group]);
        key.put_u64(number);
        turn.put_new(key, pack(&number));
        reply.numbers.push(number);
        reply.secrets.push(turn.secret());
    }
}

fn set_timer(turn: &mut Turn<'_>, deadline_ms: u64, note: TimerNote) {
    let key = key(turn, b't', &note.0.to_be_bytes());
    let id = turn.set_timer(deadline_ms, pack(&note));
    turn.put(key, Bytes::copy_from_slice(&id.to_bytes()));
}

fn cancel(turn: &mut Turn<'_>, name: u32) -> bool {
    let key = key(turn, b't', &name.to_be_bytes());
    let Some(id) = turn.rows().get(&key) else { return false };
    turn.cancel_timer(TimerId::from_bytes(id[..].try_into().expect("sixteen bytes")));
    turn.delete(&key);
    true
}

fn write_down(turn: &mut Turn<'_>, kind: u8, what: &impl Serialize) {
    let counter = key(turn, b'c', &[kind]);
    let count = turn.rows().get(&counter).map_or(0, |count| unpack(&count).expect("a count"));
    let next: u64 = count + 1;
    turn.put(counter, pack(&next));
    turn.put_new(key(turn, kind, &count.to_be_bytes()), pack(what));
}
