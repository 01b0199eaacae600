//! Streams, plainly: a list of streams with their groups, and a list of partitions, each with a list
//! of records.
//!
//! The machine has some freedom, and the model allows it exactly: when what is too old or too much
//! is dropped, the ids of streams, and how records lie in rows. For the first it looks at the rows
//! after the entry, and takes no step that a record must not take.

mod clients;
mod groups;
mod ledger;
mod look;
mod partitions;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use kernel::codec::{pack, split_command, unpack};
use kernel::{TenantId, Unreadable};
use streams::{
    Command, Create, GONE_KEPT_MS, MACHINE, PARTITIONS_MAX, Refusal, Reply, Retention, Settings,
    StreamId, Update, partition_place,
};

pub use clients::StreamsSubject;
use groups::Group;
use ledger::{Ledger, Name};
use partitions::Partition;

use crate::naive::Scene;
use crate::subject::{Difference, Model, Sight, same};

/// A stream at its home.
#[derive(Debug)]
struct Stream {
    name: Name,
    id: StreamId,
    version: u64,
    created_ms: u64,
    updated_ms: u64,
    settings: Settings,
    groups: Vec<Group>,
    /// The latest that a deleted group or stream had, or when the stream was made.
    last_epoch: u64,
}

/// A partition: whose, of which stream, and which.
type PartitionName = (TenantId, StreamId, u16);

/// See the module.
#[derive(Debug)]
pub struct StreamsModel {
    ledger: Rc<RefCell<Ledger>>,
    streams: Vec<Stream>,
    partitions: Vec<Partition>,
    /// Partitions that were deleted, and until when they are remembered.
    gone: Vec<(PartitionName, u64)>,
    /// The latest epoch of a tenant's deleted streams.
    past_epochs: BTreeMap<TenantId, u64>,
    now_ms: u64,
    /// To be looked at.
    touched: BTreeSet<PartitionName>,
    touched_streams: BTreeSet<Name>,
}

impl StreamsModel {
    fn new(ledger: Rc<RefCell<Ledger>>) -> StreamsModel {
        StreamsModel {
            ledger,
            streams: Vec::new(),
            partitions: Vec::new(),
            gone: Vec::new(),
            past_epochs: BTreeMap::new(),
            now_ms: 0,
            touched: BTreeSet::new(),
            touched_streams: BTreeSet::new(),
        }
    }

    fn find(&mut self, tenant: TenantId, stream: &str) -> Result<usize, Reply> {
        let name = (tenant, stream.to_owned());
        let found = self.streams.iter().position(|stream| stream.name == name);
        self.touched_streams.insert(name);
        found.ok_or(Reply::Refused(Refusal::NoStream))
    }

    fn partition(&mut self, name: PartitionName) -> Option<&mut Partition> {
        self.touched.insert(name);
        self.partitions.iter_mut().find(|partition| partition.name == name)
    }

    fn create(
        &mut self,
        tenant: TenantId,
        create: Create,
        actual: &Reply,
    ) -> Result<Reply, Difference> {
        let found = self.find(tenant, &create.stream);
        if !(1..=PARTITIONS_MAX).contains(&create.settings.partitions) {
            return Ok(Reply::Refused(Refusal::Partitions));
        }
        if let Ok(at) = found {
            let stream = &self.streams[at];
            let known = stream.settings == create.settings;
            return Ok(match known {
                true => Reply::Created { id: stream.id, new: false },
                false => Reply::Refused(Refusal::Exists),
            });
        }
        let Reply::Created { id, new: true } = *actual else {
            return Err(format!("a stream was not made: {actual:?}"));
        };
        let past = self.past_epochs.get(&tenant).copied().unwrap_or(0);
        let name = (tenant, create.stream);
        self.ledger.borrow_mut().made(&name, id, create.settings)?;
        self.streams.push(Stream {
            name,
            id,
            version: 1,
            created_ms: self.now_ms,
            updated_ms: self.now_ms,
            settings: create.settings,
            groups: Vec::new(),
            last_epoch: past.max(self.now_ms),
        });
        Ok(Reply::Created { id, new: true })
    }

    fn update(&mut self, scene: &mut Scene<'_>, at: usize, update: &Update) -> Reply {
        let stream = &mut self.streams[at];
        if stream.version != update.version {
            return Reply::Refused(Refusal::Version);
        }
        if !(1..=PARTITIONS_MAX).contains(&update.settings.partitions) {
            return Reply::Refused(Refusal::Partitions);
        }
        let before = stream.settings;
        if update.settings.partitions < before.partitions {
            return Reply::Refused(Refusal::FewerPartitions);
        }
        stream.settings = update.settings;
        stream.version += 1;
        stream.updated_ms = self.now_ms;
        self.ledger.borrow_mut().changed(&stream.name, stream.version, stream.settings);
        let (id, version, retention) = (stream.id, stream.version, stream.settings.retention);
        if retention != before.retention {
            for partition in 0..before.partitions {
                let to = partition_place(scene.tenant(), id, partition);
                scene.send(to, MACHINE, pack(1, 1, &(id, partition, version, retention)));
            }
        }
        Reply::Updated { version }
    }

    fn delete(&mut self, scene: &mut Scene<'_>, at: usize) -> Reply {
        let stream = self.streams.remove(at);
        self.ledger.borrow_mut().deleted(&stream.name);
        let past = self.past_epochs.entry(stream.name.0).or_insert(0);
        let epochs = stream.groups.iter().map(|group| group.epoch);
        *past = epochs.fold(stream.last_epoch.max(*past), u64::max);
        for partition in 0..stream.settings.partitions {
            let to = partition_place(scene.tenant(), stream.id, partition);
            scene.send(to, MACHINE, pack(2, 1, &(stream.id, partition)));
        }
        Reply::Deleted
    }

    /// Of a command that needs a stream.
    fn at_stream(&mut self, scene: &mut Scene<'_>, command: &Command) -> Result<Reply, Difference> {
        let name = match command {
            Command::Update(Update { stream, .. })
            | Command::Delete { stream }
            | Command::Leave { stream, .. }
            | Command::DeleteGroup { stream, .. } => stream,
            Command::Join(join) => &join.stream,
            Command::Commit(commit) => &commit.stream,
            Command::Seek(seek) => &seek.stream,
            Command::Create(_) | Command::Append(_) => unreachable!("these need none"),
        };
        let at = match self.find(scene.tenant(), name) {
            Ok(at) => at,
            Err(refused) => return Ok(refused),
        };
        match command {
            Command::Update(update) => Ok(self.update(scene, at, update)),
            Command::Delete { .. } => Ok(self.delete(scene, at)),
            command => self.at_group(at, command),
        }
    }
}

impl Model for StreamsModel {
    fn apply(&mut self, scene: &mut Scene<'_>, command: &Bytes) -> Result<Bytes, Difference> {
        let command = Command::decode(command).map_err(|error| error.to_string())?;
        let bytes = scene.reply.ok_or("a command without a reply")?;
        let actual = Reply::decode(bytes).map_err(|error| error.to_string())?;
        let tenant = scene.tenant();
        let expected = match command {
            Command::Create(create) => self.create(tenant, create, &actual)?,
            Command::Append(append) => self.append(tenant, append),
            command => self.at_stream(scene, &command)?,
        };
        same("reply", &expected, &actual)?;
        if let Reply::Refused(Refusal::Groups | Refusal::Members | Refusal::GroupInUse) = expected {
            scene.may_be_asked_again();
        }
        Ok(bytes.clone())
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn tick(&mut self, scene: &mut Scene<'_>) -> Result<(), Difference> {
        self.now_ms = scene.now_ms();
        let now_ms = self.now_ms;
        self.gone.retain(|(_, until_ms)| *until_ms > now_ms);
        for stream in &mut self.streams {
            for group in &mut stream.groups {
                if group.lose(now_ms, stream.settings.partitions) {
                    self.touched_streams.insert(stream.name.clone());
                }
            }
        }
        Ok(())
    }

    /// One for what is old in each partition, one to forget each that is gone, one to look for lost
    /// members in each group.
    fn check_timers(&self, count: usize) -> Result<(), Difference> {
        let groups: usize = self.streams.iter().map(|stream| stream.groups.len()).sum();
        let max = self.partitions.len() + self.gone.len() + groups;
        same("more timers than streams need", &true, &(count <= max))
    }

    fn fire(&mut self, _: &mut Scene<'_>, _: &Bytes) -> Result<(), Difference> {
        Err("this model sets no timers".to_owned())
    }

    fn receive(&mut self, scene: &mut Scene<'_>, body: &Bytes) -> Result<(), Difference> {
        let unreadable = |error: Unreadable| error.to_string();
        let tenant = scene.tenant();
        match split_command(body).map_err(unreadable)? {
            (1, 1, body) => {
                let (id, number, version, retention): (StreamId, u16, u64, Retention) =
                    unpack("streams", body).map_err(unreadable)?;
                self.take_settings((tenant, id, number), version, retention);
            }
            (2, 1, body) => {
                let (id, number): (StreamId, u16) = unpack("streams", body).map_err(unreadable)?;
                let name = (tenant, id, number);
                self.partition(name);
                self.partitions.retain(|partition| partition.name != name);
                self.gone.push((name, self.now_ms + GONE_KEPT_MS));
            }
            (tag, version, _) => return Err(format!("letter {tag} in version {version}")),
        }
        Ok(())
    }

    fn check(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        self.look(sight)
    }

    fn check_healed(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        self.look_healed(sight.rows)
    }
}
