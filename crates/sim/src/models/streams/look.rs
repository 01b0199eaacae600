//! Whether rows hold what the model holds.

use kernel::machine::machine_key;
use kernel::rows::{RowsReader, Scan};
use streams::{Definition, MACHINE, PartitionInfo, Record, StreamId};

use super::clients::TENANTS;
use super::ledger::Name;
use super::partitions::Partition;
use super::{PartitionName, Stream, StreamsModel};
use crate::subject::{Difference, Sight, same};

const MANY: (usize, usize) = (usize::MAX, usize::MAX);
/// What a row of records costs besides its value.
const ROW_BYTES: u64 = 64;
/// Kinds of rows that belong to a stream by its id.
const KINDS: [u8; 8] = *b"gmoprhix";

impl StreamsModel {
    pub(super) fn look(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        let mut names = std::mem::take(&mut self.touched);
        let mut streams = std::mem::take(&mut self.touched_streams);
        if sight.full {
            names.extend(self.partitions.iter().map(|partition| partition.name));
            streams.extend(self.streams.iter().map(|stream| stream.name.clone()));
        }
        for name in streams {
            let found = streams::stream(sight.rows, name.0, &name.1);
            match self.streams.iter().find(|stream| stream.name == name) {
                Some(stream) => look_at_stream(sight.rows, stream, found.as_ref())
                    .map_err(|difference| format!("stream {}: {difference}", name.1))?,
                None => same("a stream that is gone", &None, &found)?,
            }
        }
        let now_ms = self.now_ms;
        for name in names {
            let info = info(sight.rows, name);
            match self.partitions.iter_mut().find(|partition| partition.name == name) {
                Some(partition) => look_at_partition(sight.rows, now_ms, partition, info)
                    .map_err(|difference| format!("partition {name:?}: {difference}"))?,
                None => same("a partition that is gone", &None, &info)?,
            }
        }
        if sight.full { self.check_all(sight) } else { Ok(()) }
    }

    /// What is counted is what is there, and nothing is there that should not be.
    fn check_all(&self, sight: &Sight<'_>) -> Result<(), Difference> {
        for tenant in TENANTS {
            let rows_of =
                |kind| sight.rows.scan(&Scan::prefix(&machine_key(MACHINE, kind, tenant)));
            let mine = || self.streams.iter().filter(|stream| stream.name.0 == tenant);
            let groups: usize = mine().map(|stream| stream.groups.len()).sum();
            same("streams", &mine().count(), &rows_of(b'd').len())?;
            same("groups", &groups, &rows_of(b'g').len())?;
            let open = self.partitions.iter().filter(|partition| partition.name.0 == tenant);
            same("partitions", &open.clone().count(), &rows_of(b'p').len())?;
            let gone = self.gone.iter().filter(|(name, _)| name.0 == tenant).count();
            same("partitions that are remembered as gone", &gone, &rows_of(b'x').len())?;
            let used = sight.usage.get(&tenant).copied().unwrap_or_default();
            let entities = i64::try_from(mine().count() + groups).expect("few");
            same("usage: entities", &entities, &used.entities)?;
            let stored = rows_of(b'r').iter().map(|(_, row)| row.len() as u64 + ROW_BYTES).sum();
            same("usage: bytes", &stored, &used.bytes.unsigned_abs())?;
            let infos = open.filter_map(|partition| info(sight.rows, partition.name));
            same("bytes", &stored, &infos.map(|info| info.bytes).sum())?;
        }
        for ((_, key), view) in sight.views.iter().filter(|((machine, _), _)| *machine == MACHINE) {
            let row = sight.rows.get(key);
            if key.get(2) == Some(&b'g') {
                let shown = |row: &bytes::Bytes| streams::group(row);
                same("view of a group", &row.as_ref().map(shown), &view.as_ref().map(shown))?;
            } else {
                same("view", &row, view)?;
            }
        }
        Ok(())
    }

    pub(super) fn look_healed(&self, rows: &RowsReader) -> Result<(), Difference> {
        for partition in &self.partitions {
            let left = partition.retention.age_ms.and_then(|_| partition.records.first());
            same("record that is too old after years", &None, &left)?;
        }
        for stream in &self.streams {
            for group in &stream.groups {
                same("members after years", &0, &group.members.len())?;
            }
        }
        let ledger = self.ledger.borrow();
        for (tenant, kind) in TENANTS.into_iter().flat_map(|t| KINDS.map(|k| (t, k))) {
            let prefix = machine_key(MACHINE, kind, tenant);
            for (key, _) in rows.scan(&Scan::prefix(&prefix)) {
                let id = id_of(&key[prefix.len()..]);
                let known = ledger.is_live(tenant, id) || ledger.reopened.contains(&id);
                same("row of a stream that is gone", &true, &(kind != b'x' && known))?;
            }
        }
        Ok(())
    }
}

fn id_of(key: &[u8]) -> StreamId {
    let (shard, rest) = key.split_first_chunk().expect("keys begin with an id");
    let number = rest.first_chunk().expect("keys begin with an id");
    StreamId { shard: u16::from_be_bytes(*shard), number: u64::from_be_bytes(*number) }
}

fn info(rows: &RowsReader, (tenant, id, number): PartitionName) -> Option<PartitionInfo> {
    let row = rows.get(&streams::partition_row(tenant, id, number))?;
    Some(streams::partition(&row))
}

fn look_at_stream(
    rows: &RowsReader,
    stream: &Stream,
    found: Option<&Definition>,
) -> Result<(), Difference> {
    let Stream { name, id, version, created_ms, updated_ms, settings, groups, .. } = stream;
    let definition = Definition {
        id: *id,
        version: *version,
        created_ms: *created_ms,
        updated_ms: *updated_ms,
        settings: *settings,
        groups: u32::try_from(groups.len()).expect("few"),
    };
    same("definition", &Some(&definition), &found)?;
    let mut names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    names.sort();
    same("groups", &names, &streams::group_names(rows, name.0, *id, "", usize::MAX))?;
    look_at_groups(rows, name, stream)
}

fn look_at_groups(rows: &RowsReader, name: &Name, stream: &Stream) -> Result<(), Difference> {
    let (tenant, id) = (name.0, stream.id);
    for group in &stream.groups {
        let row = rows.get(&streams::group_row(tenant, id, &group.name));
        let found = streams::group(&row.ok_or("a group without a row")?);
        let of_members = group.members.iter();
        let expected = streams::Group {
            epoch: group.epoch,
            created_ms: group.created_ms,
            partitions: u16::try_from(group.owners.len()).expect("few"),
            owners: of_members.map(|m| (m.name.clone(), group.owned_by(&m.name))).collect(),
        };
        same("group", &expected, &found)?;
        let members = group.members.iter().map(|m| {
            let (seen_ms, session_ms) = (m.seen_ms, m.session_ms);
            (m.name.clone(), streams::Member { seen_ms, session_ms })
        });
        let members = members.collect();
        same("members", &members, &streams::members(rows, tenant, id, &group.name))?;
        let offsets = streams::committed(rows, tenant, id, &group.name);
        same("offsets", &group.offsets, &offsets)?;
    }
    Ok(())
}

fn look_at_partition(
    rows: &RowsReader,
    now_ms: u64,
    partition: &mut Partition,
    info: Option<PartitionInfo>,
) -> Result<(), Difference> {
    let info = info.ok_or("it has no row")?;
    let (tenant, id, number) = partition.name;
    adopt_dropped(partition, &info, now_ms)?;
    same("next", &partition.next, &info.next)?;
    same("last", &partition.last_ms, &info.last_ms)?;
    let settings = (partition.version, partition.retention);
    same("settings", &settings, &(info.version, info.retention))?;
    let records = &partition.records;
    let fetched = streams::fetch(rows, tenant, id, number, 0, MANY).records;
    for (expected, actual) in records.iter().zip(&fetched) {
        same("record", expected, actual)?;
    }
    same("records", &records.len(), &fetched.len())?;
    let oldest_ms = records.first().map(|record| record.at_ms);
    same("oldest", &oldest_ms, &streams::oldest_ms(rows, tenant, id, number))?;
    // From the middle, a few.
    let middle = records.len() / 2;
    let from = info.start + middle as u64;
    let some = streams::fetch(rows, tenant, id, number, from, (3, usize::MAX)).records;
    same("some records", &records[middle..].iter().take(3).collect::<Vec<_>>(), &refs(&some))?;
    let times = records.iter().step_by(records.len() / 8 + 1).map(|record| record.at_ms);
    for at_ms in times.chain([0, partition.last_ms, partition.last_ms + 1]) {
        let expected = records.iter().find(|record| record.at_ms >= at_ms);
        let expected = expected.map_or(info.next, |record| record.offset);
        let found = streams::offset_at(rows, tenant, id, number, at_ms);
        same("offset of a time", &expected, &found)?;
    }
    partition.looked_at();
    Ok(())
}

fn refs(records: &[Record]) -> Vec<&Record> {
    records.iter().collect()
}

/// Records that are in no row any more. The last of them was too old, or there are as many bytes
/// after it as are to be kept; so it was with those before it.
fn adopt_dropped(
    partition: &mut Partition,
    info: &PartitionInfo,
    now_ms: u64,
) -> Result<(), Difference> {
    let dropped = partition.records.iter().take_while(|record| record.offset < info.start);
    let Some(last) = dropped.last() else { return Ok(()) };
    let too_old = partition.age_ms.is_some_and(|age_ms| last.at_ms + age_ms <= now_ms);
    let too_much = partition.bytes.is_some_and(|bytes| info.bytes >= bytes);
    if !too_old && !too_much {
        return Err(format!("lost, at {now_ms}: {last:?}"));
    }
    let start = last.offset + 1;
    partition.records.retain(|record| record.offset >= start);
    same("start", &info.start, &start)
}
