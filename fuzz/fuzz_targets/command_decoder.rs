//! Any bytes are decoded or refused, never a panic, by everything that an entry of the log goes
//! through; and what was decoded, encoded again, decodes to the same.
//!
//! The bytes are tried as everything: as an entry with its commands and letters, and directly as
//! each command, reply and effect. `examples/command_seeds.rs` writes a sound one of each.

#![no_main]

use std::fmt::Debug;

use bytes::Bytes;
use kernel::mail::MailCommand;
use kernel::{Entry, Unreadable};
use libfuzzer_sys::fuzz_target;
use recents::RecentsEffect;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    entry(&bytes);
    command(&bytes);
    answer(&bytes);
});

fn entry(bytes: &Bytes) {
    let Some((entry, encoded)) = round_trip(bytes, Entry::decode, Entry::encode) else { return };
    assert_eq!(encoded, bytes, "an entry has one spelling: nothing in it goes unread");
    for envelope in &entry.commands {
        command(&envelope.command);
    }
}

/// Tried as a command of every machine, whatever machine the envelope names.
fn command(bytes: &Bytes) {
    machine_command(bytes);
    let mail = round_trip(bytes, MailCommand::decode, MailCommand::encode);
    let Some((mail, encoded)) = mail else { return };
    assert_eq!(encoded, bytes, "mail has one spelling: nothing in it goes unread");
    if let MailCommand::Deliver { letter, .. } = mail {
        machine_command(&letter.body);
    }
}

fn machine_command(bytes: &Bytes) {
    round_trip(bytes, |bytes| queue::Command::decode(&bytes), queue::Command::encode);
    round_trip(bytes, |bytes| recents::Command::decode(&bytes), recents::Command::encode);
    round_trip(bytes, |bytes| streams::Command::decode(&bytes), streams::Command::encode);
    round_trip(bytes, |bytes| tenants::Command::decode(&bytes), tenants::Command::encode);
}

/// What a machine answers and asks for: remembered in rows, read by the edge and the executors.
fn answer(bytes: &Bytes) {
    round_trip(bytes, |bytes| queue::Reply::decode(&bytes), |reply| reply.encode());
    round_trip(bytes, |bytes| recents::Reply::decode(&bytes), |reply| reply.encode());
    round_trip(bytes, |bytes| RecentsEffect::decode(&bytes), RecentsEffect::encode);
    round_trip(bytes, |bytes| streams::Reply::decode(&bytes), streams::Reply::encode);
    round_trip(bytes, |bytes| tenants::Reply::decode(&bytes), tenants::Reply::encode);
}

/// What `bytes` decode to, and its bytes when it is encoded again.
fn round_trip<T: PartialEq + Debug>(
    bytes: &Bytes,
    decode: impl Fn(Bytes) -> Result<T, Unreadable>,
    encode: impl Fn(&T) -> Bytes,
) -> Option<(T, Bytes)> {
    let value = decode(bytes.clone()).ok()?;
    let encoded = encode(&value);
    // An older version may be shorter: it says less.
    let same_version = encoded.get(..2) == bytes.get(..2);
    let shorter = same_version && bytes.len() < encoded.len();
    assert!(!shorter, "no spelling is shorter than the one that is written");
    assert_eq!(decode(encoded.clone()).as_ref(), Ok(&value));
    Some((value, encoded))
}
