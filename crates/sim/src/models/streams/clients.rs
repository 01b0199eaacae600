//! Clients of streams: writers, readers who are slow or lost, and whoever changes settings under
//! them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use kernel::machine::Effect;
use kernel::rows::RowsReader;
use kernel::{Machine, MachineId, TenantId};
use streams::{
    Append, Command, Commit, Create, Join, MACHINE, NewRecord, PARTITIONS_MAX, Retention, Seek,
    Settings, StreamId, Streams, Update, partition_place, place,
};

use super::StreamsModel;
use super::ledger::{Heard, Known, Ledger, Name};
use crate::random::Random;
use crate::subject::{Archive, Draft, Model, Subject};

/// No other machine counts what these use.
pub(super) const TENANTS: [TenantId; 2] = [TenantId(21), TenantId(22)];
const NAMES: [&str; 4] = ["clicks", "orders", "logs", "a"];
const GROUPS: [&str; 3] = ["a", "ab", "billing"];
const MEMBERS: [&str; 5] = ["ann", "bob", "cid", "b", "eve"];
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Streams under test.
#[derive(Debug, Default)]
pub struct StreamsSubject {
    ledger: Rc<RefCell<Ledger>>,
    /// The few streams that all is about in this run.
    busy: Vec<Name>,
    /// A run of large records for one partition, so that there are chunks: the simulated log takes
    /// only small commands, and a chunk is some twenty of the largest.
    heavy: bool,
    /// A run in which one group is often deleted, and made anew.
    restless: bool,
    /// Makes each record another one.
    records: u64,
}

fn settings(random: &mut Random, heavy: bool) -> Settings {
    if heavy {
        let age_ms = random.pick(&[None, Some(60_000), Some(3 * DAY_MS)]);
        let bytes = random.pick(&[None, None, Some(0), Some(1_000)]);
        return Settings { partitions: 1, retention: Retention { age_ms, bytes } };
    }
    let age_ms = random.pick(&[None, Some(200), Some(3_000), Some(60_000), Some(3 * DAY_MS)]);
    let bytes = random.pick(&[None, None, None, Some(0), Some(2_000), Some(60_000)]);
    let partitions = match random.chance(20) {
        true => random.pick(&[0, PARTITIONS_MAX + 1]),
        false => random.pick(&[1, 1, 2, 3, 5]),
    };
    Settings { partitions, retention: Retention { age_ms, bytes } }
}

impl StreamsSubject {
    fn name(&mut self, random: &mut Random) -> Name {
        if self.busy.is_empty() {
            self.heavy = random.chance(400);
            self.restless = !self.heavy && random.chance(300);
        }
        while self.busy.len() < if self.heavy || self.restless { 1 } else { 3 } {
            let tenant = random.pick(&[TENANTS[0], TENANTS[0], TENANTS[1]]);
            self.busy.push((tenant, random.pick(&NAMES).to_owned()));
        }
        self.busy[random.place(self.busy.len())].clone()
    }

    fn record(&mut self, random: &mut Random, bytes: usize) -> NewRecord {
        self.records += 1;
        let mut value = self.records.to_string().into_bytes();
        value.resize(bytes.max(value.len()), b'.');
        let key = random.pick(&[None, None, Some("k"), Some("")]);
        NewRecord { key: key.map(|key| Bytes::from_static(key.as_bytes())), value: value.into() }
    }

    fn append(&mut self, random: &mut Random, known: &Known) -> Append {
        let sizes = match random.below(100) {
            0..90 if self.heavy => vec![2900 + random.place(300)],
            0..10 => vec![1; 300],
            10..13 => Vec::new(),
            _ => (0..random.pick(&[1, 1, 2, 5])).map(|_| 1 + random.place(60)).collect(),
        };
        let records = sizes.into_iter().map(|bytes| self.record(random, bytes)).collect();
        let (version, retention) = match random.chance(50) {
            // By somebody who has looked long ago.
            true => random.pick(&known.versions),
            false => (known.version, known.settings.retention),
        };
        let partition = random.below(u64::from(known.settings.partitions));
        let partition = u16::try_from(partition).expect("less than there are");
        Append { id: known.id, partition, version, retention, records }
    }

    /// An append to a stream that is there, or to one that was.
    fn append_somewhere(&mut self, random: &mut Random, name: &Name) -> Option<(TenantId, Append)> {
        let ledger = Rc::clone(&self.ledger);
        let ledger = ledger.borrow();
        if !ledger.dead.is_empty() && random.chance(40) {
            let (tenant, known) = &ledger.dead[random.place(ledger.dead.len())];
            return Some((*tenant, self.append(random, known)));
        }
        ledger.streams.get(name).map(|known| (name.0, self.append(random, known)))
    }

    /// The stream that a client has looked up, if it did, just now or before the last one was deleted.
    fn looked_up(&self, random: &mut Random, name: &Name) -> Option<StreamId> {
        let ledger = self.ledger.borrow();
        let dead = ledger.dead.iter().rev().find(|(tenant, _)| *tenant == name.0);
        match random.below(20) {
            0 => None,
            1 => dead.map(|(_, known)| known.id),
            _ => ledger.streams.get(name).map(|known| known.id),
        }
    }

    fn commit(&self, random: &mut Random, name: &Name) -> Command {
        let id = self.looked_up(random, name);
        let ledger = self.ledger.borrow();
        let mine: Vec<&Heard> = ledger.heard.iter().filter(|heard| heard.name == *name).collect();
        // What was heard lately, or long ago.
        let recent = &mine[mine.len().saturating_sub(if random.chance(700) { 4 } else { 40 })..];
        let Some(heard) = (!recent.is_empty()).then(|| recent[random.place(recent.len())]) else {
            return Command::Commit(Commit {
                stream: name.1.clone(),
                group: random.pick(&GROUPS).to_owned(),
                member: None,
                epoch: None,
                offsets: offsets(random),
                id,
            });
        };
        let offsets = match random.below(10) {
            0 => offsets(random),
            _ => {
                let owned = heard.standing.owned.iter();
                owned.map(|owned| (owned.partition, random.below(60))).collect()
            }
        };
        let epoch = match random.below(12) {
            0..3 => None,
            3 => Some(heard.standing.epoch + 1),
            4 => Some(heard.standing.epoch.saturating_sub(1)),
            _ => Some(heard.standing.epoch),
        };
        let member = match random.below(12) {
            0..2 => None,
            2 => Some(random.pick(&MEMBERS).to_owned()),
            _ => Some(heard.member.clone()),
        };
        let (stream, group) = (name.1.clone(), heard.group.clone());
        Command::Commit(Commit { stream, group, member, epoch, offsets, id })
    }

    fn of_home(&self, random: &mut Random, name: &Name, known: Option<&Known>) -> Command {
        let stream = name.1.clone();
        let group = if self.restless { GROUPS[0] } else { random.pick(&GROUPS) }.to_owned();
        let member = random.pick(&MEMBERS).to_owned();
        let version = known.map_or(1, |known| known.version);
        match random.below(100) {
            0..45 => Command::Join(Join {
                stream,
                group,
                member,
                session_ms: match self.restless {
                    true => random.pick(&[1, 100, 300]),
                    false => random.pick(&[1, 300, 3_000, 3_000, 30_000]),
                },
                start: if random.chance(200) { offsets(random) } else { BTreeMap::new() },
                id: self.looked_up(random, name),
            }),
            45..75 => self.commit(random, name),
            75..85 if self.restless => Command::DeleteGroup { stream, group },
            75..82 => Command::Leave { stream, group, member },
            82..88 => {
                let (offsets, id) = (offsets(random), self.looked_up(random, name));
                Command::Seek(Seek { stream, group, offsets, id })
            }
            88..91 => Command::DeleteGroup { stream, group },
            91..96 => {
                let mut settings = settings(random, self.heavy);
                if let Some(known) = known
                    && random.chance(800)
                {
                    settings.partitions = known.settings.partitions + random.pick(&[0, 0, 1, 2]);
                }
                let version = if random.chance(100) { version + 1 } else { version };
                Command::Update(Update { stream, version, settings })
            }
            96..98 => Command::Create(Create { stream, settings: settings(random, self.heavy) }),
            _ => Command::Delete { stream },
        }
    }
}

fn offsets(random: &mut Random) -> BTreeMap<u16, u64> {
    let count = random.pick(&[0, 1, 1, 2, 3]);
    (0..count).map(|_| (random.pick(&[0, 0, 1, 2, 6]), random.below(60))).collect()
}

impl Subject for StreamsSubject {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn machine(&self) -> Box<dyn Machine> {
        Box::new(Streams)
    }

    fn model(&self) -> Box<dyn Model> {
        Box::new(StreamsModel::new(Rc::clone(&self.ledger)))
    }

    fn draft(&mut self, random: &mut Random, _now_ms: u64) -> Draft {
        let name = self.name(random);
        if random.chance(if self.heavy { 850 } else { 550 })
            && let Some((tenant, append)) = self.append_somewhere(random, &name)
        {
            let to = partition_place(tenant, append.id, append.partition);
            return Draft { to, tenant, command: Command::Append(append).encode() };
        }
        let known = self.ledger.borrow().streams.get(&name).cloned();
        let command = if known.is_none() && random.chance(800) {
            Command::Create(Create {
                stream: name.1.clone(),
                settings: settings(random, self.heavy),
            })
        } else {
            self.of_home(random, &name, known.as_ref())
        };
        Draft { to: place(name.0, &name.1), tenant: name.0, command: command.encode() }
    }

    fn perform(&mut self, _: &Effect, _: &RowsReader, _: &mut Archive, _: &mut Random) -> Bytes {
        unreachable!("streams ask for nothing")
    }
}
