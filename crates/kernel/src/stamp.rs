//! Time and randomness of an entry: the only time and randomness a machine ever sees.

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use crate::id::Index;

/// What the owner of a shard wrote into an entry before appending it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The entry's place in the log.
    pub index: Index,
    /// Unix time in milliseconds. Never less than that of the entry before.
    pub at_ms: u64,
    /// Fresh from the operating system for each entry.
    pub seed: [u8; 16],
}

impl Stamp {
    /// The `number`-th draw of this entry: 128 bits that nobody can guess who has not read the
    /// log, and that every replay draws again.
    ///
    /// SipHash is a pseudo-random function under its key: seeing some draws of an entry tells
    /// nothing about the others.
    #[must_use]
    pub fn draw(&self, number: u64) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.seed);
        hasher.write_u64(self.index.0);
        hasher.write_u64(number);
        hasher.finish128().as_bytes()
    }
}
