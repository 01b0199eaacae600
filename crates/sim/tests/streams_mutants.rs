//! That the simulator finds a broken stream: each test breaks one promise.

mod common;

use bytes::{BufMut, Bytes};
use kernel::codec::{pack, unpack};
use kernel::machine::machine_key;
use kernel::mail::Letter;
use kernel::rows::Scan;
use kernel::timers::Due;
use kernel::{Machine, MachineId, Turn, Unreadable};
use sim::Choice;
use streams::{Append, Command, Commit, MACHINE, Reply, Retention, StreamId};

fn check_found(machine: fn(Box<dyn Machine>) -> Box<dyn Machine>, words: &[&str]) {
    common::check_found(Choice::Streams, machine, words);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    ARecordIsLost,
    LaterOvertakes,
    KeysAreForgotten,
    StaleCommitsAreTaken,
    CommitsWithoutEpochUndoSeeks,
    CommitsMoveBack,
    CommitsOfAnotherStreamAreTaken,
    SeekKeepsTheEpoch,
    EpochsBeginAgain,
    MembersAreNeverLost,
    SomeTimersAreDropped,
    SomeAreDroppedTooEarly,
    ClosingIsForgotten,
    NewSettingsAreForgotten,
    GoneIsForgotten,
    ChunksAreNotFoundByTime,
    OldSettingsWin,
}

struct BrokenStreams {
    streams: Box<dyn Machine>,
    fault: Fault,
}

fn kind_key(turn: &Turn<'_>, kind: u8, id: StreamId) -> Vec<u8> {
    let mut key = machine_key(MACHINE, kind, turn.tenant());
    key.put_u16(id.shard);
    key.put_u64(id.number);
    key
}

fn partition_key(turn: &Turn<'_>, kind: u8, id: StreamId, partition: u16) -> Vec<u8> {
    let mut key = kind_key(turn, kind, id);
    key.put_u16(partition);
    key
}

impl BrokenStreams {
    fn append(&mut self, turn: &mut Turn<'_>, mut append: Append) -> Result<Bytes, Unreadable> {
        let count = append.records.len();
        match self.fault {
            Fault::ARecordIsLost if count > 1 => {
                append.records.pop();
            }
            Fault::LaterOvertakes if count > 1 => append.records.swap(0, 1),
            Fault::KeysAreForgotten => append.records.iter_mut().for_each(|r| r.key = None),
            Fault::OldSettingsWin => append.version += 1,
            _ => {}
        }
        let (id, partition) = (append.id, append.partition);
        let reply = self.streams.apply(turn, &Command::Append(append).encode())?;
        if self.fault == Fault::ChunksAreNotFoundByTime {
            let index = Scan::prefix(&partition_key(turn, b'i', id, partition));
            for (key, _) in turn.rows().scan(&index) {
                turn.delete(&key);
            }
        }
        Ok(match Reply::decode(&reply)? {
            // It says that all are there.
            Reply::Appended(appended) => {
                let count = u32::try_from(count).expect("few");
                Reply::Appended(streams::Appended { count, ..appended }).encode()
            }
            _ => reply,
        })
    }

    fn commit(&mut self, turn: &mut Turn<'_>, mut commit: Commit) -> Result<Bytes, Unreadable> {
        if self.fault == Fault::StaleCommitsAreTaken {
            commit.epoch = None;
        }
        if self.fault == Fault::CommitsOfAnotherStreamAreTaken {
            commit.id = None;
        }
        if self.fault == Fault::CommitsWithoutEpochUndoSeeks && commit.epoch.is_none() {
            // As if it was fetched just now.
            let stream = streams::stream(turn.rows(), turn.tenant(), &commit.stream);
            let key = stream.map(|s| streams::group_row(turn.tenant(), s.id, &commit.group));
            let row = key.and_then(|key| turn.rows().get(&key));
            commit.epoch = row.map(|row| streams::group(&row).epoch);
        }
        let reply = self.streams.apply(turn, &Command::Commit(commit.clone()).encode())?;
        if self.fault == Fault::CommitsMoveBack
            && let Reply::Committed(_) = Reply::decode(&reply)?
        {
            let stream = streams::stream(turn.rows(), turn.tenant(), &commit.stream);
            let id = stream.expect("it was just committed to").id;
            for (partition, offset) in &commit.offsets {
                let mut key = kind_key(turn, b'o', id);
                key.put_u16(u16::try_from(commit.group.len()).expect("short"));
                key.put_slice(commit.group.as_bytes());
                key.put_u16(*partition);
                turn.put(key, kernel::codec::versioned(offset));
            }
        }
        Ok(reply)
    }

    /// The group is put back as it was, but for its offsets.
    fn seek(&mut self, turn: &mut Turn<'_>, seek: &streams::Seek) -> Result<Bytes, Unreadable> {
        let stream = streams::stream(turn.rows(), turn.tenant(), &seek.stream);
        let key = stream.map(|s| streams::group_row(turn.tenant(), s.id, &seek.group));
        let before = key.and_then(|key| turn.rows().get(&key).map(|row| (key, row)));
        let reply = self.streams.apply(turn, &Command::Seek(seek.clone()).encode())?;
        if let Some((key, row)) = before {
            turn.put(key, row);
        }
        Ok(reply)
    }

    /// A group that was not there before begins with the first epoch.
    fn join(&mut self, turn: &mut Turn<'_>, join: &streams::Join) -> Result<Bytes, Unreadable> {
        let stream = streams::stream(turn.rows(), turn.tenant(), &join.stream);
        let key = stream.map(|s| streams::group_row(turn.tenant(), s.id, &join.group));
        let new = key.filter(|key| turn.rows().get(key).is_none());
        let reply = self.streams.apply(turn, &Command::Join(join.clone()).encode())?;
        if let Some(key) = new
            && let Some(row) = turn.rows().get(&key)
        {
            let (_, rest): (u64, &[u8]) = postcard::take_from_bytes(&row[1..]).expect("a group");
            turn.put(key, [&[row[0], 1][..], rest].concat());
        }
        Ok(reply)
    }

    /// While it looks for what is old, half the age is enough.
    fn sweep_early(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        let (kind, id, partition): (u8, StreamId, u16) =
            match postcard::take_from_bytes(&timer.payload[1..]) {
                Ok((sweep, [])) => sweep,
                _ => return self.streams.fire(turn, timer),
            };
        const SWEEP: u8 = 0;
        let key = partition_key(turn, b'p', id, partition);
        let row = turn.rows().get(&key).filter(|_| kind == SWEEP);
        let Some(row) = row else { return self.streams.fire(turn, timer) };
        let ((version, retention), _) = settings_of(&row);
        let age_ms = retention.age_ms.map(|age_ms| age_ms / 2);
        put_settings(turn, &key, version, Retention { age_ms, ..retention });
        self.streams.fire(turn, timer);
        put_settings(turn, &key, version, retention);
    }
}

/// What a partition's row begins with, and the rest.
fn settings_of(row: &[u8]) -> ((u64, Retention), &[u8]) {
    postcard::take_from_bytes(&row[1..]).expect("a partition")
}

fn put_settings(turn: &mut Turn<'_>, key: &[u8], version: u64, retention: Retention) {
    let row = turn.rows().get(key).expect("it was there");
    let changed = postcard::to_extend(&(version, retention), vec![row[0]]).expect("plain data");
    turn.put(key.to_vec(), [&changed[..], settings_of(&row).1].concat());
}

impl Machine for BrokenStreams {
    fn id(&self) -> MachineId {
        self.streams.id()
    }

    fn name(&self) -> &'static str {
        self.streams.name()
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        match (self.fault, Command::decode(command)?) {
            (_, Command::Append(append)) => self.append(turn, append),
            (_, Command::Commit(commit)) => self.commit(turn, commit),
            (Fault::SeekKeepsTheEpoch, Command::Seek(seek)) => self.seek(turn, &seek),
            (Fault::EpochsBeginAgain, Command::Join(join)) => self.join(turn, &join),
            (Fault::MembersAreNeverLost, Command::Join(mut join)) => {
                join.session_ms = u64::MAX;
                self.streams.apply(turn, &Command::Join(join).encode())
            }
            _ => self.streams.apply(turn, command),
        }
    }

    fn fire(&mut self, turn: &mut Turn<'_>, timer: &Due) {
        match self.fault {
            Fault::SomeTimersAreDropped if timer.id.deadline_ms.is_multiple_of(7) => {}
            Fault::SomeAreDroppedTooEarly => self.sweep_early(turn, timer),
            _ => self.streams.fire(turn, timer),
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        const SETTINGS: u8 = 1;
        const CLOSE: u8 = 2;
        match (self.fault, letter.body[0]) {
            (Fault::NewSettingsAreForgotten, SETTINGS) | (Fault::ClosingIsForgotten, CLOSE) => {
                Ok(())
            }
            (Fault::GoneIsForgotten, CLOSE) => {
                self.streams.receive(turn, letter)?;
                let (id, partition): (StreamId, u16) = unpack("a letter", &letter.body[2..])?;
                assert_eq!(letter.body, pack(CLOSE, 1, &(id, partition)));
                turn.delete(&partition_key(turn, b'x', id, partition));
                Ok(())
            }
            _ => self.streams.receive(turn, letter),
        }
    }
}

macro_rules! broken {
    ($fault:expr) => {
        |streams| Box::new(BrokenStreams { streams, fault: $fault })
    };
}

#[test]
fn a_record_that_is_lost_is_found() {
    check_found(broken!(Fault::ARecordIsLost), &["next: expected"]);
}

#[test]
fn a_record_that_overtakes_another_is_found() {
    check_found(broken!(Fault::LaterOvertakes), &["record: expected"]);
}

#[test]
fn a_key_that_is_forgotten_is_found() {
    check_found(broken!(Fault::KeysAreForgotten), &["record: expected"]);
}

#[test]
fn a_stale_commit_that_is_taken_is_found() {
    check_found(broken!(Fault::StaleCommitsAreTaken), &["expected Refused(StaleMember"]);
}

#[test]
fn a_commit_without_an_epoch_that_undoes_a_seek_is_found() {
    let words = ["expected Refused(StaleMember"];
    check_found(broken!(Fault::CommitsWithoutEpochUndoSeeks), &words);
}

#[test]
fn a_commit_that_moves_back_is_found() {
    check_found(broken!(Fault::CommitsMoveBack), &["offsets: expected", "reply: expected"]);
}

#[test]
fn a_commit_of_another_stream_that_is_taken_is_found() {
    let words = ["reply: expected Refused(Gone)"];
    check_found(broken!(Fault::CommitsOfAnotherStreamAreTaken), &words);
}

#[test]
fn a_seek_that_keeps_the_epoch_is_found() {
    check_found(broken!(Fault::SeekKeepsTheEpoch), &["group: expected"]);
}

#[test]
fn a_new_group_that_begins_with_epochs_of_an_old_one_is_found() {
    check_found(broken!(Fault::EpochsBeginAgain), &["group: expected"]);
}

#[test]
fn a_member_who_is_never_lost_is_found() {
    check_found(broken!(Fault::MembersAreNeverLost), &["members: expected"]);
}

#[test]
fn a_member_who_stays_for_want_of_a_timer_is_found() {
    check_found(broken!(Fault::SomeTimersAreDropped), &["group: expected"]);
}

#[test]
fn a_record_that_is_never_dropped_is_found() {
    check_found(broken!(Fault::SomeTimersAreDropped), &["too old after years"]);
}

#[test]
fn a_record_that_is_dropped_too_early_is_found() {
    check_found(broken!(Fault::SomeAreDroppedTooEarly), &["lost, at"]);
}

#[test]
fn records_of_a_deleted_stream_that_stay_are_found() {
    let words = ["a partition that is gone", "partitions: expected"];
    check_found(broken!(Fault::ClosingIsForgotten), &words);
}

#[test]
fn settings_that_do_not_arrive_are_found() {
    check_found(broken!(Fault::NewSettingsAreForgotten), &["settings: expected"]);
}

#[test]
fn settings_that_older_ones_replace_are_found() {
    check_found(broken!(Fault::OldSettingsWin), &["settings: expected"]);
}

#[test]
fn an_append_that_brings_a_deleted_stream_back_is_found() {
    check_found(broken!(Fault::GoneIsForgotten), &["reply: expected Refused(Gone)"]);
}

#[test]
fn a_chunk_that_is_not_found_by_its_time_is_found() {
    check_found(broken!(Fault::ChunksAreNotFoundByTime), &["offset of a time"]);
}
