//! What is done to partitions: appends, chunks, and the end of what is old.

use bytes::Bytes;
use kernel::Turn;
use kernel::rows::Scan;

use crate::command::{
    APPEND_RECORDS_MAX, Append, Appended, NewSettings, Refusal, Reply, Retention, StreamId,
};
use crate::run::{Builder, Run};
use crate::state::{
    Alarm, Chunk, Partition, chunk_key, index_key, part_key, read, row, run_key, timer,
};

/// Loose rows at which they become a chunk. *(frozen)*
pub(crate) const LOOSE_ROWS_MAX: usize = 256;
/// Bytes of loose records at which they become a chunk, and of a chunk at least, unpacked.
/// *(frozen)*
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// What a row costs besides its value. *(frozen)*
pub(crate) const ROW_BYTES: u64 = 64;
/// Runs that are dropped at a time: few, as the timers of many partitions may fire together.
/// *(frozen)*
pub(crate) const SWEEP_MAX: usize = 8;
/// When there are more, they are dropped so much later. *(frozen)*
pub(crate) const SWEEP_STEP_MS: u64 = 10;
/// A partition is not looked through for old runs more often. *(frozen)*
const SWEEP_EVERY_MS: u64 = 1000;
/// How long a partition of a deleted stream refuses appends. Whoever appends has looked the stream
/// up a moment before. *(frozen)*
pub const GONE_KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// One partition, for the length of a command. What is changed becomes a row at the end.
struct Desk<'a, 't> {
    turn: &'a mut Turn<'t>,
    id: StreamId,
    number: u16,
    partition: Partition,
}

/// The first run of a partition.
struct Front {
    chunk: Chunk,
    /// Bytes of its records, if it is no chunk yet.
    loose_bytes: Option<u32>,
}

fn stored(row: &Bytes) -> u64 {
    row.len() as u64 + ROW_BYTES
}

fn find(turn: &Turn<'_>, id: StreamId, number: u16) -> Option<Partition> {
    turn.rows().get(&part_key(turn.tenant(), b'p', id, number)).map(|row| read(&row))
}

/// A partition, made with these settings if it is not there; `None` when its stream is deleted.
fn open(
    turn: &Turn<'_>,
    (id, number): (StreamId, u16),
    version: u64,
    retention: Retention,
) -> Option<Partition> {
    let is_gone = || turn.rows().get(&part_key(turn.tenant(), b'x', id, number)).is_some();
    match find(turn, id, number) {
        None if is_gone() => None,
        None => Some(Partition::new(version, retention)),
        found => found,
    }
}

/// Works at a partition, and keeps what came of it.
fn at<T>(
    turn: &mut Turn<'_>,
    (id, number): (StreamId, u16),
    partition: Partition,
    work: impl FnOnce(&mut Desk<'_, '_>) -> T,
) -> T {
    let before = partition.bytes;
    let mut desk = Desk { turn, id, number, partition };
    let done = work(&mut desk);
    let partition = desk.partition;
    if partition.bytes != before {
        turn.count(partition.bytes.cast_signed() - before.cast_signed(), 0);
    }
    let row = Bytes::from(row(&partition));
    let key = part_key(turn.tenant(), b'p', id, number);
    turn.put(key.clone(), row.clone());
    turn.publish(key, Some(row));
    done
}

pub(crate) fn append(turn: &mut Turn<'_>, append: &Append) -> Reply {
    if append.records.len() > APPEND_RECORDS_MAX {
        return Reply::Refused(Refusal::TooMany);
    }
    let (id, number) = (append.id, append.partition);
    let Some(partition) = open(turn, (id, number), append.version, append.retention) else {
        return Reply::Refused(Refusal::Gone);
    };
    at(turn, (id, number), partition, |desk| {
        desk.take_settings(append.version, append.retention);
        Reply::Appended(desk.append(append))
    })
}

/// Settings that are newer than those the partition knows. They open one that is not open: its first
/// append may be by somebody who knows older ones.
pub(crate) fn take_settings(turn: &mut Turn<'_>, new: &NewSettings) {
    let place = (new.id, new.partition);
    let Some(partition) = open(turn, place, new.version, new.retention) else { return };
    at(turn, place, partition, |desk| {
        desk.take_settings(new.version, new.retention);
    });
}

/// The stream is deleted.
pub(crate) fn close(turn: &mut Turn<'_>, id: StreamId, number: u16) {
    let tenant = turn.tenant();
    if let Some(partition) = find(turn, id, number) {
        if let Some(armed) = partition.sweep {
            turn.cancel_timer(timer(armed));
        }
        turn.count(-partition.bytes.cast_signed(), 0);
        let key = part_key(tenant, b'p', id, number);
        turn.delete(&key);
        turn.publish(key, None);
        // What of them is in memory is a checkpoint's worth of chunks, and so not many rows.
        for kind in [b'r', b'h', b'i'] {
            turn.delete_prefix(&part_key(tenant, kind, id, number));
        }
    }
    turn.put(part_key(tenant, b'x', id, number), row(&()));
    let alarm = Alarm::Forget { id, partition: number };
    turn.set_timer(turn.now_ms() + GONE_KEPT_MS, row(&alarm));
}

/// The stream was deleted long ago.
pub(crate) fn forget(turn: &mut Turn<'_>, id: StreamId, number: u16) {
    turn.delete(&part_key(turn.tenant(), b'x', id, number));
}

/// Something may be too old.
pub(crate) fn sweep(turn: &mut Turn<'_>, id: StreamId, number: u16, fired: (u64, u64)) {
    let Some(partition) = find(turn, id, number) else { return };
    if partition.sweep != Some(fired) {
        return;
    }
    at(turn, (id, number), partition, |desk| {
        desk.partition.sweep = None;
        desk.drop_front();
    });
}

impl Partition {
    fn new(version: u64, retention: Retention) -> Partition {
        Partition {
            version,
            retention,
            start: 0,
            next: 0,
            bytes: 0,
            chunk_bytes: 0,
            loose_first: 0,
            loose_rows: 0,
            loose_bytes: 0,
            last_ms: 0,
            sweep: None,
        }
    }
}

impl Desk<'_, '_> {
    fn key(&self, first: u64) -> Vec<u8> {
        run_key(self.turn.tenant(), self.id, self.number, first)
    }

    fn take_settings(&mut self, version: u64, retention: Retention) {
        if version <= self.partition.version {
            return;
        }
        self.partition.version = version;
        if std::mem::replace(&mut self.partition.retention, retention) != retention {
            // A shorter one is in force at once.
            self.arm(self.turn.now_ms());
        }
    }

    fn append(&mut self, append: &Append) -> Appended {
        let (first, at_ms) = (self.partition.next, self.turn.now_ms());
        let count = u32::try_from(append.records.len()).expect("bounded above");
        let appended = Appended { first, count, at_ms };
        if count == 0 {
            return appended;
        }
        let mut run = Builder::new(first);
        for record in &append.records {
            run.push(at_ms, record.key.as_deref(), &record.value);
        }
        self.partition.next += u64::from(count);
        self.partition.last_ms = at_ms;
        self.partition.loose_rows += 1;
        self.partition.loose_bytes += run.raw_bytes() as u64;
        let row = run.loose();
        self.partition.bytes += stored(&row);
        self.turn.put_new(self.key(first), row);
        let packed = self.partition.loose_rows as usize >= LOOSE_ROWS_MAX
            || self.partition.loose_bytes >= CHUNK_BYTES as u64;
        if packed {
            self.pack_loose();
        }
        let Retention { bytes, .. } = self.partition.retention;
        if packed && bytes.is_some_and(|max| self.partition.chunk_bytes > max) {
            self.drop_front();
        } else if let Some(age_ms) = self.partition.retention.age_ms {
            self.arm(at_ms.saturating_add(age_ms));
        }
        appended
    }

    /// Makes chunks of what is loose. The first begins where the first loose run began, so that
    /// whoever looks for an offset finds it before and after.
    fn pack_loose(&mut self) {
        let from = self.key(self.partition.loose_first);
        let to = self.key(self.partition.next);
        let loose = self.turn.rows().scan(&Scan::between(&from, &to));
        debug_assert_eq!(loose.len(), self.partition.loose_rows as usize);
        let mut records = Vec::new();
        for (key, row) in &loose {
            self.partition.bytes -= stored(row);
            self.turn.delete(key);
            records.extend(Run::decode(row).records());
        }
        // As many as have their size; what is over is shared among them.
        let chunks = (self.partition.loose_bytes / CHUNK_BYTES as u64).max(1);
        let share_bytes = self.partition.loose_bytes / chunks;
        let mut chunk = Builder::new(self.partition.loose_first);
        let mut made = 0;
        for record in &records {
            if chunk.raw_bytes() as u64 >= share_bytes && made + 1 < chunks {
                self.put_chunk(std::mem::replace(&mut chunk, Builder::new(record.offset)));
                made += 1;
            }
            chunk.push(record.at_ms, record.key.as_deref(), &record.value);
        }
        self.put_chunk(chunk);
        self.partition.loose_first = self.partition.next;
        self.partition.loose_rows = 0;
        self.partition.loose_bytes = 0;
    }

    fn put_chunk(&mut self, chunk: Builder) {
        let head = *chunk.head();
        let packed = chunk.chunk();
        let bytes = stored(&packed);
        self.partition.bytes += bytes;
        self.partition.chunk_bytes += bytes;
        self.turn.put(self.key(head.first), packed);
        let tenant = self.turn.tenant();
        let chunk = Chunk { next: head.next(), last_ms: head.last_ms, bytes };
        self.turn.put_new(chunk_key(tenant, self.id, self.number, head.first), row(&chunk));
        let index = index_key(tenant, self.id, self.number, head.last_ms, head.first);
        self.turn.put_new(index, row(&()));
    }

    /// Sees to it that old runs are looked for by then.
    fn arm(&mut self, at_ms: u64) {
        match self.partition.sweep {
            Some((armed_ms, _)) if armed_ms <= at_ms => return,
            Some(later) => self.turn.cancel_timer(timer(later)),
            None => {}
        }
        let alarm = Alarm::Sweep { id: self.id, partition: self.number };
        let set = self.turn.set_timer(at_ms, row(&alarm));
        self.partition.sweep = Some((set.deadline_ms, set.number));
    }

    /// What there is to know of the first run. A chunk is not read for that.
    fn front(&self) -> Front {
        let start = self.partition.start;
        let there = "a partition that is not empty has a first run";
        if start < self.partition.loose_first {
            let key = chunk_key(self.turn.tenant(), self.id, self.number, start);
            let chunk = read(&self.turn.rows().get(&key).expect(there));
            return Front { chunk, loose_bytes: None };
        }
        let row = self.turn.rows().get(&self.key(start)).expect(there);
        let head = Run::decode(&row).head;
        let chunk = Chunk { next: head.next(), last_ms: head.last_ms, bytes: stored(&row) };
        Front { chunk, loose_bytes: Some(head.raw_bytes) }
    }

    /// Drops what is too old or too much, and sees to it that this is done again in time.
    fn drop_front(&mut self) {
        let now_ms = self.turn.now_ms();
        for _ in 0..SWEEP_MAX {
            if self.partition.start == self.partition.next {
                return;
            }
            let front = self.front();
            if !self.is_over(&front) {
                if let Some(age_ms) = self.partition.retention.age_ms {
                    let old_ms = front.chunk.last_ms.saturating_add(age_ms);
                    self.arm(old_ms.max(now_ms + SWEEP_EVERY_MS));
                }
                return;
            }
            self.drop_run(&front);
        }
        self.arm(now_ms + SWEEP_STEP_MS);
    }

    fn is_over(&self, front: &Front) -> bool {
        let Retention { age_ms, bytes } = self.partition.retention;
        let old_ms = |age_ms| front.chunk.last_ms.saturating_add(age_ms);
        let too_old = age_ms.is_some_and(|age_ms| old_ms(age_ms) <= self.turn.now_ms());
        // Only chunks count, and go: what is loose will be smaller. The last one stays, however
        // little is to be kept.
        let left = self.partition.chunk_bytes.saturating_sub(front.chunk.bytes);
        let is_chunk = front.loose_bytes.is_none();
        too_old || is_chunk && bytes.is_some_and(|bytes| left >= bytes.max(1))
    }

    fn drop_run(&mut self, front: &Front) {
        let (tenant, first) = (self.turn.tenant(), self.partition.start);
        let Chunk { next, last_ms, bytes } = front.chunk;
        self.turn.delete(&self.key(first));
        self.partition.start = next;
        self.partition.bytes -= bytes;
        if let Some(loose_bytes) = front.loose_bytes {
            self.partition.loose_first = next;
            self.partition.loose_rows -= 1;
            self.partition.loose_bytes -= u64::from(loose_bytes);
        } else {
            self.partition.chunk_bytes -= bytes;
            self.turn.delete(&chunk_key(tenant, self.id, self.number, first));
            self.turn.delete(&index_key(tenant, self.id, self.number, last_ms, first));
        }
    }
}
