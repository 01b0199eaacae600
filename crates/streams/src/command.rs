//! What can be asked of streams, and what they answer.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::Unreadable;
use kernel::codec::{pack, read_versioned, split_command, unpack, versioned};
use serde::{Deserialize, Serialize};

/// Partitions of a stream, at most: as many offsets a join answers, a commit writes and a seek moves,
/// so it bounds what they do in apply. *(frozen)*
pub const PARTITIONS_MAX: u16 = 1024;
/// Groups of a stream, at most. *(frozen)*
pub const GROUPS_MAX: u32 = 1000;
/// Members of a group, at most. *(frozen)*
pub const MEMBERS_MAX: usize = 1000;
/// Records of one append, at most. Their bytes are bounded by those of a command. *(frozen)*
pub const APPEND_RECORDS_MAX: usize = 1000;

/// Names a stream for ever. One that has the name of a deleted one has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamId {
    /// The shard that it was made in: numbers are each shard's own.
    pub shard: u16,
    /// Its number there.
    pub number: u64,
}

/// A command. The comment on each gives its tag, which is never reused.
///
/// [`Command::Append`] goes to [`partition_place`](crate::partition_place), every other to
/// [`place`](crate::place).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// 1: make a stream.
    Create(Create),
    /// 2: change a stream's settings.
    Update(Update),
    /// 3: remove a stream, its records and its groups.
    Delete {
        /// Which.
        stream: String,
    },
    /// 4: put records at the end of a partition.
    Append(Append),
    /// 5: take part in a group, or go on to.
    Join(Join),
    /// 6: take part no more.
    Leave {
        /// Of which stream.
        stream: String,
        /// In which group.
        group: String,
        /// Who.
        member: String,
    },
    /// 7: what is before these offsets is done.
    Commit(Commit),
    /// 8: go on from these offsets, wherever the group was.
    Seek(Seek),
    /// 9: remove a group and its offsets.
    DeleteGroup {
        /// Of which stream.
        stream: String,
        /// Which.
        group: String,
    },
}

/// What is kept, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// A record older than this is dropped; for ever when not given.
    pub age_ms: Option<u64>,
    /// Of each partition the newest so many bytes are kept, as chunks are stored; what is before them
    /// is dropped, chunk by chunk. All when not given.
    pub bytes: Option<u64>,
}

/// How a stream behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// 1 to [`PARTITIONS_MAX`]. May grow, never shrink.
    pub partitions: u16,
    /// What is kept.
    pub retention: Retention,
}

/// Make a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// Its name, which the edge has checked.
    pub stream: String,
    /// How it behaves.
    pub settings: Settings,
}

/// Change a stream's settings. With more partitions, keys go to other partitions than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// Which.
    pub stream: String,
    /// The version that the change was made from; another one is refused.
    pub version: u64,
    /// All of them.
    pub settings: Settings,
}

/// Put records at the end of a partition, which the first append opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// Of which stream.
    pub id: StreamId,
    /// Less than the stream has.
    pub partition: u16,
    /// The version of the stream's settings that `retention` is of.
    pub version: u64,
    /// What the partition keeps, if it knows no newer version.
    pub retention: Retention,
    /// In this order.
    pub records: Vec<NewRecord>,
}

/// A record to be appended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRecord {
    /// What it is about; records of a key are in one partition, in order.
    pub key: Option<Bytes>,
    /// What it says, in the edge's encoding.
    pub value: Bytes,
}

/// Take part in a group, or say that one still does. The first to join makes the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Of which stream.
    pub stream: String,
    /// In which group.
    pub group: String,
    /// Who.
    pub member: String,
    /// A member who is not heard of for so long, and a third longer, is one no more: who was heard of
    /// lately is not asked to join again.
    pub session_ms: u64,
    /// Where a new group begins; partitions that are not here, at their beginning. Without meaning
    /// for a group that is there.
    pub start: BTreeMap<u16, u64>,
    /// The stream that was looked up, as of [`Commit::id`].
    pub id: Option<StreamId>,
}

/// What is before these offsets is done: all of it, or the command is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Of which stream.
    pub stream: String,
    /// In which group.
    pub group: String,
    /// Who says so: must own each of the partitions. Nobody is asked when not given.
    pub member: Option<String>,
    /// The epoch in which the records were fetched: each of the partitions must have had its owner
    /// then already. When not given, that of the member's last join; without a member, the owner of
    /// each partition must have been told of the last seek.
    pub epoch: Option<u64>,
    /// The next offset of each partition. One that is behind what was committed changes nothing.
    pub offsets: BTreeMap<u16, u64>,
    /// The stream whose ends were looked at: offsets of one that was deleted mean nothing in another
    /// that has its name now. Nobody looked when not given, as in the first version.
    pub id: Option<StreamId>,
}

/// Go on from these offsets. What was fetched before can be committed no more. Makes the group if
/// it is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seek {
    /// Of which stream.
    pub stream: String,
    /// Which group.
    pub group: String,
    /// The next offset of each partition; the others stay where they are.
    pub offsets: BTreeMap<u16, u64>,
    /// The stream that they were looked up in, as of [`Commit::id`].
    pub id: Option<StreamId>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The stream is there: new, or made before with the very same settings.
    Created {
        /// Its id.
        id: StreamId,
        /// Whether this made it.
        new: bool,
    },
    /// The settings are in force.
    Updated {
        /// Their version.
        version: u64,
    },
    /// The stream is gone.
    Deleted,
    /// The records are in the log.
    Appended(Appended),
    /// The member takes part.
    Joined(Standing),
    /// The member takes part no more, if it did.
    Left,
    /// What is committed now, of each partition that was named.
    Committed(BTreeMap<u16, u64>),
    /// The group goes on from there.
    Sought {
        /// Commits of earlier epochs are refused.
        epoch: u64,
    },
    /// The group is gone.
    GroupDeleted,
    /// Nothing was done.
    Refused(Refusal),
}

/// Where records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// The offset of the first; the others follow without a gap.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// Their time.
    pub at_ms: u64,
}

impl Appended {
    /// The offset of the last; `None` when there were none.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        (self.count > 0).then(|| self.first + u64::from(self.count) - 1)
    }
}

/// What a member of a group has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Grows whenever partitions get other owners, and with every seek.
    pub epoch: u64,
    /// The partitions that are the member's, ascending.
    pub owned: Vec<Owned>,
}

/// A partition of a member's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// Which.
    pub partition: u16,
    /// Since which epoch: what was fetched in an earlier one can be committed no more.
    pub since: u64,
    /// The next offset; from the beginning of the partition when nothing was committed.
    pub committed: Option<u64>,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such stream.
    NoStream,
    /// There is such a stream, with other settings.
    Exists,
    /// The settings have been changed meanwhile.
    Version,
    /// A stream never has fewer partitions than before.
    FewerPartitions,
    /// The stream was deleted; another may have its name.
    Gone,
    /// More than [`APPEND_RECORDS_MAX`] records.
    TooMany,
    /// The stream has no such partition.
    NoPartition,
    /// There is no such group.
    NoGroup,
    /// The stream has as many groups as it may.
    Groups,
    /// The group has as many members as it may.
    Members,
    /// The group has members.
    GroupInUse,
    /// The partition is not this member's, or was not in the epoch that is named, or that it was last
    /// told.
    StaleMember {
        /// The present one.
        epoch: u64,
    },
    /// No partitions, or more than [`PARTITIONS_MAX`].
    Partitions,
}

/// What the home of a stream writes to its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    /// 1: other settings.
    Settings(NewSettings),
    /// 2: the stream is deleted.
    Close { id: StreamId, partition: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewSettings {
    pub(crate) id: StreamId,
    pub(crate) partition: u16,
    pub(crate) version: u64,
    pub(crate) retention: Retention,
}

const NAME: &str = "streams";

impl Command {
    /// `[tag][version][body]`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Command::Create(create) => pack(1, 1, create),
            Command::Update(update) => pack(2, 1, update),
            Command::Delete { stream } => pack(3, 1, stream),
            Command::Append(append) => pack(4, 1, append),
            Command::Join(join) => pack(5, 2, join),
            Command::Leave { stream, group, member } => pack(6, 1, &(stream, group, member)),
            Command::Commit(commit) => pack(7, 2, commit),
            Command::Seek(seek) => pack(8, 2, seek),
            Command::DeleteGroup { stream, group } => pack(9, 1, &(stream, group)),
        }
    }

    /// Reads every version there ever was.
    ///
    /// # Errors
    /// [`Unreadable`] for anything else.
    pub fn decode(command: &[u8]) -> Result<Command, Unreadable> {
        let (tag, version, body) = split_command(command)?;
        Ok(match (tag, version) {
            (1, 1) => Command::Create(unpack(NAME, body)?),
            (2, 1) => Command::Update(unpack(NAME, body)?),
            (3, 1) => Command::Delete { stream: unpack(NAME, body)? },
            (4, 1) => Command::Append(unpack(NAME, body)?),
            (5, 1) => {
                let (stream, group, member, session_ms, start) = unpack(NAME, body)?;
                Command::Join(Join { stream, group, member, session_ms, start, id: None })
            }
            (5, 2) => Command::Join(unpack(NAME, body)?),
            (6, 1) => {
                let (stream, group, member) = unpack(NAME, body)?;
                Command::Leave { stream, group, member }
            }
            (7, 1) => {
                let (stream, group, member, epoch, offsets) = unpack(NAME, body)?;
                Command::Commit(Commit { stream, group, member, epoch, offsets, id: None })
            }
            (7, 2) => Command::Commit(unpack(NAME, body)?),
            (8, 1) => {
                let (stream, group, offsets) = unpack(NAME, body)?;
                Command::Seek(Seek { stream, group, offsets, id: None })
            }
            (8, 2) => Command::Seek(unpack(NAME, body)?),
            (9, 1) => {
                let (stream, group) = unpack(NAME, body)?;
                Command::DeleteGroup { stream, group }
            }
            _ => return Err(Unreadable::Command { machine: NAME, tag, version }),
        })
    }
}

impl Post {
    pub(crate) fn encode(&self) -> Bytes {
        match self {
            Post::Settings(settings) => pack(1, 1, settings),
            Post::Close { id, partition } => pack(2, 1, &(id, partition)),
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Post, Unreadable> {
        match split_command(body)? {
            (1, 1, body) => Ok(Post::Settings(unpack(NAME, body)?)),
            (2, 1, body) => {
                let (id, partition) = unpack(NAME, body)?;
                Ok(Post::Close { id, partition })
            }
            (tag, version, _) => Err(Unreadable::Command { machine: NAME, tag, version }),
        }
    }
}

impl Reply {
    /// As it is answered and remembered.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        versioned(self).into()
    }

    /// Reads [`Reply::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Reply, Unreadable> {
        read_versioned("a reply of a stream", bytes)
    }
}
