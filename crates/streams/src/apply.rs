//! What is done to streams as a whole.

use bytes::Bytes;
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{Machine, MachineId, Turn, Unreadable};

use crate::MACHINE;
use crate::command::{
    Command, Create, NewSettings, PARTITIONS_MAX, Post, Refusal, Reply, StreamId, Update,
};
use crate::query::partition_place;
use crate::state::{Alarm, Stream, key, past_epoch_key, read, row, stream_key};
use crate::{group, partition};

/// The machine. It keeps nothing at hand: everything is in rows.
#[derive(Debug, Default)]
pub struct Streams;

impl Machine for Streams {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn name(&self) -> &'static str {
        "streams"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let reply = match Command::decode(command)? {
            Command::Create(create) => make(turn, &create),
            Command::Update(update) => change(turn, &update),
            Command::Delete { stream } => delete(turn, &stream),
            Command::Append(append) => partition::append(turn, &append),
            Command::Join(join) => group::join(turn, &join),
            Command::Leave { stream, group, member } => {
                group::leave(turn, &stream, &group, &member)
            }
            Command::Commit(commit) => group::commit(turn, &commit),
            Command::Seek(seek) => group::seek(turn, &seek),
            Command::DeleteGroup { stream, group } => group::delete(turn, &stream, &group),
        };
        if let Reply::Refused(Refusal::Groups | Refusal::Members | Refusal::GroupInUse) = reply {
            turn.may_be_asked_again();
        }
        Ok(reply.encode())
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let fired = (timer.id.deadline_ms, timer.id.number);
        match read(&timer.payload) {
            Alarm::Sweep { id, partition } => partition::sweep(turn, id, partition, fired),
            Alarm::Forget { id, partition } => partition::forget(turn, id, partition),
            Alarm::Watch { stream, id, group } => {
                group::look_for_lost(turn, &stream, id, &group, fired);
            }
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        match Post::decode(&letter.body)? {
            Post::Settings(settings) => partition::take_settings(turn, &settings),
            Post::Close { id, partition } => partition::close(turn, id, partition),
        }
        Ok(())
    }
}

/// What rows say of a stream.
pub(crate) fn find(turn: &Turn<'_>, name: &str) -> Option<Stream> {
    turn.rows().get(&stream_key(turn.tenant(), name)).map(|row| read(&row))
}

/// Writes what a stream is, and shows it.
pub(crate) fn show(turn: &mut Turn<'_>, name: &str, stream: &Stream) {
    let row = Bytes::from(row(stream));
    let key = stream_key(turn.tenant(), name);
    turn.put(key.clone(), row.clone());
    turn.publish(key, Some(row));
}

/// Whether a stream can have so many partitions. The edge asks this too; but what is wrong there must
/// not stop a shard.
fn may_have(partitions: u16) -> bool {
    (1..=PARTITIONS_MAX).contains(&partitions)
}

fn make(turn: &mut Turn<'_>, create: &Create) -> Reply {
    if !may_have(create.settings.partitions) {
        return Reply::Refused(Refusal::Partitions);
    }
    if let Some(stream) = find(turn, &create.stream) {
        return if stream.settings == create.settings {
            Reply::Created { id: stream.id, new: false }
        } else {
            Reply::Refused(Refusal::Exists)
        };
    }
    let id = StreamId { shard: turn.shard().0, number: turn.unique() };
    let now_ms = turn.now_ms();
    let past = turn.rows().get(&past_epoch_key(turn.tenant())).map(|row| read(&row));
    let stream = Stream {
        id,
        version: 1,
        created_ms: now_ms,
        updated_ms: now_ms,
        settings: create.settings,
        groups: 0,
        last_epoch: past.unwrap_or(0).max(now_ms),
    };
    show(turn, &create.stream, &stream);
    turn.count(0, 1);
    Reply::Created { id, new: true }
}

/// Groups deal new partitions out when a member is next heard of: those who wait are called.
fn change(turn: &mut Turn<'_>, update: &Update) -> Reply {
    let Some(mut stream) = find(turn, &update.stream) else {
        return Reply::Refused(Refusal::NoStream);
    };
    if stream.version != update.version {
        return Reply::Refused(Refusal::Version);
    }
    if !may_have(update.settings.partitions) {
        return Reply::Refused(Refusal::Partitions);
    }
    if update.settings.partitions < stream.settings.partitions {
        return Reply::Refused(Refusal::FewerPartitions);
    }
    let before = std::mem::replace(&mut stream.settings, update.settings);
    stream.version += 1;
    stream.updated_ms = turn.now_ms();
    show(turn, &update.stream, &stream);
    let (id, version, retention) = (stream.id, stream.version, update.settings.retention);
    if before.partitions < update.settings.partitions {
        group::call_all(turn, id);
    }
    if before.retention != retention {
        // Appends bring it too, but a partition may never get another one.
        for partition in 0..before.partitions {
            let post = Post::Settings(NewSettings { id, partition, version, retention });
            turn.send(partition_place(turn.tenant(), id, partition), MACHINE, post.encode());
        }
    }
    Reply::Updated { version }
}

fn delete(turn: &mut Turn<'_>, name: &str) -> Reply {
    let Some(stream) = find(turn, name) else { return Reply::Refused(Refusal::NoStream) };
    let (tenant, id) = (turn.tenant(), stream.id);
    let last_epoch = group::delete_all(turn, &stream);
    if last_epoch > turn.now_ms() {
        let key = past_epoch_key(tenant);
        let past: u64 = turn.rows().get(&key).map_or(0, |row| read(&row));
        turn.put(key, row(&past.max(last_epoch)));
    }
    for kind in [b'g', b'm', b'o'] {
        turn.delete_prefix(&key(tenant, kind, id));
    }
    turn.delete(&stream_key(tenant, name));
    turn.publish(stream_key(tenant, name), None);
    turn.count(0, -1);
    for partition in 0..stream.settings.partitions {
        let post = Post::Close { id, partition };
        turn.send(partition_place(tenant, id, partition), MACHINE, post.encode());
    }
    Reply::Deleted
}
