//! What can be asked of recents, what it answers, and what it asks of the world outside.

use bytes::Bytes;
use kernel::Unreadable;
use kernel::codec::{pack, read_versioned, split_command, unpack, versioned};
use kernel::id::digest;
use serde::{Deserialize, Serialize};

/// A command. The comment on each gives its tag, which is never reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// 1: a search.
    Add(Add),
    /// 2: forget one query.
    Remove(Remove),
    /// 3: forget a user.
    Clear(Clear),
    /// 4: history has been written to the archive.
    Archived(Archived),
    /// 5: the node's settings, when they differ from those in rows.
    Configure(Settings),
    /// 6: the archive no longer holds what a cleared user left there.
    Purged {
        /// The effect that asked for it.
        effect: u64,
    },
}

/// A search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Add {
    /// Whose.
    pub user: String,
    /// As typed, trimmed.
    pub query: String,
    /// Of the query with case and space folded: [`fold`].
    pub folded: u64,
}

/// Forget one query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remove {
    /// Whose.
    pub user: String,
    /// Which: [`fold`].
    pub folded: u64,
}

/// Forget a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clear {
    /// Who.
    pub user: String,
}

/// What an executor reports when it has uploaded history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    /// Whose.
    pub user: String,
    /// The effect that asked for it.
    pub effect: u64,
    /// Where it is now. Empty when there was nothing to upload.
    pub object: String,
    /// The numbers of the history rows that are in it, ascending.
    pub numbers: Vec<u64>,
    /// Bytes of those rows, as counted against the tenant.
    pub row_bytes: u64,
}

/// How much is kept, where, for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Queries in a user's list.
    pub keep: u16,
    /// Days until history moves to the archive.
    pub archive_after_days: u16,
    /// Days without a search until a user is dropped from memory.
    pub idle_days: u16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { keep: 10, archive_after_days: 180, idle_days: 30 }
    }
}

/// The digest by which two spellings of a query are one: lower case, runs of white space as one
/// space, none at the ends. Called at the edge only; see the crate's page.
#[must_use]
pub fn fold(query: &str) -> u64 {
    let mut folded = String::with_capacity(query.len());
    for word in query.split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        folded.extend(word.chars().flat_map(char::to_lowercase));
    }
    let digest = digest(&[folded.as_bytes()]);
    u64::from_be_bytes(*digest.first_chunk().expect("a digest has sixteen bytes"))
}

const NAME: &str = "recents";

impl Command {
    /// `[tag][version][body]`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Command::Add(add) => pack(1, 1, add),
            Command::Remove(remove) => pack(2, 1, remove),
            Command::Clear(clear) => pack(3, 1, clear),
            Command::Archived(archived) => pack(4, 1, archived),
            Command::Configure(settings) => pack(5, 1, settings),
            Command::Purged { effect } => pack(6, 1, effect),
        }
    }

    /// Reads every version there ever was.
    ///
    /// # Errors
    /// [`Unreadable`] for anything else.
    pub fn decode(command: &[u8]) -> Result<Command, Unreadable> {
        let (tag, version, body) = split_command(command)?;
        Ok(match (tag, version) {
            (1, 1) => Command::Add(unpack(NAME, body)?),
            (2, 1) => Command::Remove(unpack(NAME, body)?),
            (3, 1) => Command::Clear(unpack(NAME, body)?),
            (4, 1) => Command::Archived(unpack(NAME, body)?),
            (5, 1) => Command::Configure(unpack(NAME, body)?),
            (6, 1) => Command::Purged { effect: unpack(NAME, body)? },
            _ => return Err(Unreadable::Command { machine: NAME, tag, version }),
        })
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The search is in the list and in the history.
    Added {
        /// Since when.
        at_ms: u64,
    },
    /// The query is forgotten.
    Removed,
    /// The user is forgotten.
    Cleared,
    /// The report was taken: the rows are gone, the archive has them.
    Archived,
    /// The report came too late: its rows were cleared meanwhile, and its object must be deleted.
    Stale,
    /// The settings are in force.
    Configured,
    /// The purge is noted.
    Purged,
    /// The user has removed as many queries one by one as can be; nothing was changed.
    TooManyRemovals,
}

impl Reply {
    /// As it is answered and remembered.
    #[must_use]
    pub fn encode(self) -> Bytes {
        versioned(&self).into()
    }

    /// Reads [`Reply::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Reply, Unreadable> {
        read_versioned("a reply of recents", bytes)
    }
}

/// What recents asks of the world outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecentsEffect {
    /// Write old history to the archive and report [`Archived`].
    Archive(ArchiveEffect),
    /// Delete what a cleared user has in the archive and report [`Command::Purged`].
    Purge(PurgeEffect),
}

/// Which history to archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveEffect {
    /// Whose.
    pub user: String,
    /// Searches before this time.
    pub before_ms: u64,
}

/// Which objects to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeEffect {
    /// Whose.
    pub user: String,
    /// Objects whose last number is at most this; later ones belong to searches after the clearing.
    pub through: u64,
}

impl RecentsEffect {
    /// The payload for [`kernel::Turn::ask`].
    #[must_use]
    pub fn encode(&self) -> Bytes {
        versioned(self).into()
    }

    /// Reads [`RecentsEffect::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when it is something else.
    pub fn decode(bytes: &[u8]) -> Result<RecentsEffect, Unreadable> {
        read_versioned("an effect of recents", bytes)
    }
}
