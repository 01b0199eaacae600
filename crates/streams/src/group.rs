//! What is done to groups: members come and go, and say how far they are.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::Turn;
use kernel::rows::Scan;

use crate::apply::{find, show};
use crate::command::{Commit, GROUPS_MAX, Join, MEMBERS_MAX, Refusal, Reply, Seek, StreamId};
use crate::deal::deal;
use crate::query::{members, stand};
use crate::state::{
    Alarm, GroupRow, Seen, Stream, group_key, key, member_key, of_group_key, offset_key, read, row,
    timer,
};

fn find_group(turn: &Turn<'_>, id: StreamId, group: &str) -> Option<GroupRow> {
    turn.rows().get(&group_key(turn.tenant(), id, group)).map(|row| GroupRow::decode(&row))
}

/// Keeps a group; whoever waits for it is to look again if its epoch is another.
fn keep(turn: &mut Turn<'_>, id: StreamId, name: &str, group: &GroupRow, shown: bool) {
    let row = Bytes::from(group.encode());
    let key = group_key(turn.tenant(), id, name);
    turn.put(key.clone(), row.clone());
    if shown {
        turn.publish(key, Some(row));
    }
}

fn put_offsets(turn: &mut Turn<'_>, id: StreamId, group: &str, offsets: &BTreeMap<u16, u64>) {
    for (partition, offset) in offsets {
        turn.put(offset_key(turn.tenant(), id, group, *partition), row(offset));
    }
}

fn has_all(stream: &Stream, offsets: &BTreeMap<u16, u64>) -> bool {
    offsets.keys().all(|partition| *partition < stream.settings.partitions)
}

/// The stream of a command, if it is the one that the command was made for.
fn find_same(turn: &Turn<'_>, name: &str, id: Option<StreamId>) -> Result<Stream, Reply> {
    let stream = find(turn, name).ok_or(Reply::Refused(Refusal::NoStream))?;
    match id {
        Some(id) if id != stream.id => Err(Reply::Refused(Refusal::Gone)),
        _ => Ok(stream),
    }
}

/// A group that was not there.
fn make(
    turn: &mut Turn<'_>,
    name: &str,
    stream: &mut Stream,
    group: &str,
) -> Result<GroupRow, Refusal> {
    // Its length would not fit into the keys of its rows.
    if group.len() > usize::from(u16::MAX) {
        return Err(Refusal::NoGroup);
    }
    if stream.groups >= GROUPS_MAX {
        return Err(Refusal::Groups);
    }
    stream.groups += 1;
    show(turn, name, stream);
    turn.count(0, 1);
    let epoch = turn.now_ms().max(stream.last_epoch);
    Ok(GroupRow {
        epoch,
        sought: epoch + 1,
        created_ms: turn.now_ms(),
        partitions: stream.settings.partitions,
        // A group that was deleted may have had this name, and members who commit late.
        told: u64::from(stream.last_epoch > stream.created_ms),
        ..GroupRow::default()
    })
}

/// Deals out anew.
fn rebalance(group: &mut GroupRow, stream: &Stream) {
    group.epoch += 1;
    group.partitions = stream.settings.partitions;
    deal(&mut group.owners, group.partitions, group.epoch);
}

pub(crate) fn join(turn: &mut Turn<'_>, join: &Join) -> Reply {
    let mut stream = match find_same(turn, &join.stream, join.id) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let (tenant, id) = (turn.tenant(), stream.id);
    let mut group = match find_group(turn, id, &join.group) {
        Some(group) => group,
        None if !has_all(&stream, &join.start) => return Reply::Refused(Refusal::NoPartition),
        None => match make(turn, &join.stream, &mut stream, &join.group) {
            Ok(group) => {
                put_offsets(turn, id, &join.group, &join.start);
                group
            }
            Err(refusal) => return Reply::Refused(refusal),
        },
    };
    let new = !group.owners.contains_key(&join.member);
    if new && group.owners.len() >= MEMBERS_MAX {
        return Reply::Refused(Refusal::Members);
    }
    let changed = new || group.partitions != stream.settings.partitions;
    if changed {
        group.owners.entry(join.member.clone()).or_default();
        rebalance(&mut group, &stream);
    }
    let told = group.epoch;
    let seen = Seen { session_ms: join.session_ms, seen_ms: turn.now_ms(), told };
    turn.put(member_key(tenant, id, &join.group, &join.member), seen.encode());
    let told_anew = std::mem::replace(&mut group.told, told) != told;
    let armed = arm(turn, &mut group, (&join.stream, id, &join.group), seen.member().lost_ms());
    if changed || armed || told_anew {
        keep(turn, id, &join.group, &group, changed);
    }
    let owned = &group.owners[&join.member];
    Reply::Joined(stand(turn.rows(), tenant, id, &join.group, group.epoch, owned))
}

/// Sees to it that lost members are looked for by then. Whether that is new.
fn arm(
    turn: &mut Turn<'_>,
    group: &mut GroupRow,
    (stream, id, name): (&str, StreamId, &str),
    at_ms: u64,
) -> bool {
    match group.watch {
        Some((armed_ms, _)) if armed_ms <= at_ms => return false,
        Some(later) => turn.cancel_timer(timer(later)),
        None => {}
    }
    let alarm = Alarm::Watch { stream: stream.to_owned(), id, group: name.to_owned() };
    let set = turn.set_timer(at_ms, row(&alarm));
    group.watch = Some((set.deadline_ms, set.number));
    true
}

/// Members who were not heard of for too long are members no more.
pub(crate) fn look_for_lost(
    turn: &mut Turn<'_>,
    stream_name: &str,
    id: StreamId,
    name: &str,
    fired: (u64, u64),
) {
    let Some(stream) = find(turn, stream_name).filter(|stream| stream.id == id) else { return };
    let Some(mut group) = find_group(turn, id, name).filter(|group| group.watch == Some(fired))
    else {
        return;
    };
    group.watch = None;
    let now_ms = turn.now_ms();
    let mut lost = false;
    let mut next_ms: Option<u64> = None;
    for (member, known) in members(turn.rows(), turn.tenant(), id, name) {
        let lost_ms = known.lost_ms();
        if lost_ms <= now_ms {
            remove(turn, &mut group, id, name, &member);
            lost = true;
        } else {
            next_ms = Some(next_ms.map_or(lost_ms, |other| other.min(lost_ms)));
        }
    }
    if lost {
        rebalance(&mut group, &stream);
    }
    if let Some(next_ms) = next_ms {
        arm(turn, &mut group, (stream_name, id, name), next_ms);
    }
    keep(turn, id, name, &group, lost);
}

fn remove(turn: &mut Turn<'_>, group: &mut GroupRow, id: StreamId, name: &str, member: &str) {
    group.owners.remove(member);
    turn.delete(&member_key(turn.tenant(), id, name, member));
}

pub(crate) fn leave(turn: &mut Turn<'_>, stream: &str, name: &str, member: &str) -> Reply {
    let Some(stream) = find(turn, stream) else { return Reply::Refused(Refusal::NoStream) };
    let Some(mut group) = find_group(turn, stream.id, name) else {
        return Reply::Refused(Refusal::NoGroup);
    };
    if group.owners.contains_key(member) {
        remove(turn, &mut group, stream.id, name, member);
        rebalance(&mut group, &stream);
        keep(turn, stream.id, name, &group, true);
    }
    Reply::Left
}

pub(crate) fn commit(turn: &mut Turn<'_>, commit: &Commit) -> Reply {
    let stream = match find_same(turn, &commit.stream, commit.id) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    let Some(group) = find_group(turn, stream.id, &commit.group) else {
        return Reply::Refused(Refusal::NoGroup);
    };
    if !has_all(&stream, &commit.offsets) {
        return Reply::Refused(Refusal::NoPartition);
    }
    if !may_commit(turn, stream.id, &group, commit) {
        return Reply::Refused(Refusal::StaleMember { epoch: group.epoch });
    }
    let tenant = turn.tenant();
    let mut committed = commit.offsets.clone();
    for (partition, offset) in &mut committed {
        let key = offset_key(tenant, stream.id, &commit.group, *partition);
        match turn.rows().get(&key).map(|row| read(&row)) {
            // Old news.
            Some(known) if known >= *offset => *offset = known,
            _ => turn.put(key, row(offset)),
        }
    }
    Reply::Committed(committed)
}

/// Whether every partition was the member's in the epoch that is named, and is still. Where nobody
/// is owner, whether the group was not sent elsewhere since.
fn may_commit(turn: &Turn<'_>, id: StreamId, group: &GroupRow, commit: &Commit) -> bool {
    if commit.epoch.is_some_and(|epoch| epoch > group.epoch) {
        return false;
    }
    let told = |member: &str| {
        let row = turn.rows().get(&member_key(turn.tenant(), id, &commit.group, member));
        row.map_or(0, |row| Seen::decode(&row).told)
    };
    let Some(member) = &commit.member else { return may_commit_as_nobody(group, commit, told) };
    let Some(owned) = group.owners.get(member) else { return false };
    // Who names no epoch means what it was last told.
    let epoch = commit.epoch.unwrap_or_else(|| told(member));
    let may = |partition: u16| owned_since(owned, partition).is_some_and(|since| epoch >= since);
    commit.offsets.keys().all(|partition| may(*partition))
}

/// As [`may_commit`], of whoever names no member. Without an epoch only a seek is in the way, until the
/// owner has been told of it; where nobody is owner, until any member has.
fn may_commit_as_nobody(group: &GroupRow, commit: &Commit, told: impl Fn(&str) -> u64) -> bool {
    let mut owners = BTreeMap::new();
    for (member, owned) in &group.owners {
        owners.extend(owned.iter().map(|(partition, since)| (*partition, (*since, member))));
    }
    let may = |partition: &u16| match (owners.get(partition), commit.epoch) {
        (Some((since, _)), Some(epoch)) => epoch >= *since,
        (None, Some(epoch)) => epoch >= group.sought,
        // What came to its owner later than the last seek was perhaps sought before that.
        (Some((since, member)), None) => told(member) >= group.sought.min(*since),
        // Where there never was a member, nothing was fetched before the seek.
        (None, None) => group.told == 0 || group.told >= group.sought,
    };
    commit.offsets.keys().all(may)
}

fn owned_since(owned: &[(u16, u64)], partition: u16) -> Option<u64> {
    let at = owned.binary_search_by_key(&partition, |(partition, _)| *partition).ok()?;
    Some(owned[at].1)
}

pub(crate) fn seek(turn: &mut Turn<'_>, seek: &Seek) -> Reply {
    let mut stream = match find_same(turn, &seek.stream, seek.id) {
        Ok(stream) => stream,
        Err(refused) => return refused,
    };
    if !has_all(&stream, &seek.offsets) {
        return Reply::Refused(Refusal::NoPartition);
    }
    let mut group = match find_group(turn, stream.id, &seek.group) {
        Some(group) => group,
        None => match make(turn, &seek.stream, &mut stream, &seek.group) {
            Ok(group) => group,
            Err(refusal) => return Reply::Refused(refusal),
        },
    };
    group.epoch += 1;
    group.sought = group.epoch;
    for (partition, since) in group.owners.values_mut().flatten() {
        if seek.offsets.contains_key(partition) {
            *since = group.epoch;
        }
    }
    put_offsets(turn, stream.id, &seek.group, &seek.offsets);
    keep(turn, stream.id, &seek.group, &group, true);
    Reply::Sought { epoch: group.epoch }
}

pub(crate) fn delete(turn: &mut Turn<'_>, stream_name: &str, name: &str) -> Reply {
    let Some(mut stream) = find(turn, stream_name) else {
        return Reply::Refused(Refusal::NoStream);
    };
    let (tenant, id) = (turn.tenant(), stream.id);
    let Some(group) = find_group(turn, id, name) else { return Reply::Refused(Refusal::NoGroup) };
    if !group.owners.is_empty() {
        return Reply::Refused(Refusal::GroupInUse);
    }
    forget(turn, id, name, &group);
    turn.delete_prefix(&of_group_key(tenant, b'o', id, name));
    turn.delete(&group_key(tenant, id, name));
    stream.groups -= 1;
    stream.last_epoch = stream.last_epoch.max(group.epoch);
    show(turn, stream_name, &stream);
    turn.count(0, -1);
    Reply::GroupDeleted
}

/// Has whoever waits in a group of a stream look again, after the stream has been shown: there are
/// [`GROUPS_MAX`] groups at most.
pub(crate) fn call_all(turn: &mut Turn<'_>, id: StreamId) {
    let prefix = key(turn.tenant(), b'g', id);
    for (key, row) in turn.rows().scan(&Scan::prefix(&prefix)) {
        turn.publish(key, Some(row));
    }
}

/// Before the rows of a group are deleted.
fn forget(turn: &mut Turn<'_>, id: StreamId, name: &str, group: &GroupRow) {
    if let Some(armed) = group.watch {
        turn.cancel_timer(timer(armed));
    }
    turn.publish(group_key(turn.tenant(), id, name), None);
}

/// Before the rows of all groups of a stream are deleted: there are [`GROUPS_MAX`] at most. The last
/// epoch that any has had.
pub(crate) fn delete_all(turn: &mut Turn<'_>, stream: &Stream) -> u64 {
    let prefix = key(turn.tenant(), b'g', stream.id);
    let groups = turn.rows().scan(&Scan::prefix(&prefix));
    let mut last_epoch = stream.last_epoch;
    for (group_key, row) in &groups {
        let name = std::str::from_utf8(&group_key[prefix.len()..]).expect("put from a string");
        let group = GroupRow::decode(row);
        last_epoch = last_epoch.max(group.epoch);
        forget(turn, stream.id, name, &group);
    }
    turn.count(0, -i64::from(stream.groups));
    last_epoch
}
