//! The probe, plainly.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kernel::machine::{Effect, machine_key};
use kernel::rows::{RowsReader, Scan};
use kernel::{Machine, MachineId, TenantId, VirtualShard};
use serde::de::DeserializeOwned;

use crate::naive::Scene;
use crate::probe::{
    Fired, Note, PROBE, Probe, ProbeCommand, ProbeReply, Then, TimerNote, pack, unpack,
};
use crate::random::Random;
use crate::subject::{Archive, Difference, Draft, Model, Sight, Subject, same};

const TENANT: TenantId = TenantId(7);
const GROUPS: u64 = 4;
const SLOTS: u64 = 6;

/// The probe under test.
#[derive(Debug, Default)]
pub struct ProbeSubject {
    /// Every timer has a name of its own.
    names: u32,
    bursts: u32,
}

impl ProbeSubject {
    fn note(&mut self, random: &mut Random) -> Note {
        self.names += 1;
        let to = u16::try_from(random.below(u64::from(kernel::id::VIRTUAL_SHARDS)));
        let hops = u8::try_from(random.below(4)).expect("small");
        Note { to: to.expect("less than 4096"), name: self.names, hops }
    }

    fn deadline(random: &mut Random, now_ms: u64) -> u64 {
        const MINUTE_MS: u64 = 60_000;
        match random.below(10) {
            // Already over.
            0 => now_ms.saturating_sub(random.below(10 * MINUTE_MS)),
            1 => now_ms,
            2..5 => now_ms + random.below(2_000),
            // About where the wheel ends.
            5..7 => now_ms + random.below(15 * MINUTE_MS),
            7 => (now_ms / (5 * MINUTE_MS) + random.below(4)) * 5 * MINUTE_MS,
            8 => now_ms + random.below(3 * 24 * 60 * MINUTE_MS),
            _ => now_ms + random.below(300 * 24 * 60 * MINUTE_MS),
        }
    }

    fn timers(&mut self, random: &mut Random, now_ms: u64) -> ProbeCommand {
        let deadline_ms = ProbeSubject::deadline(random, now_ms);
        let burst = self.bursts == 0 && random.chance(10);
        self.bursts += u32::from(burst);
        // More than are loaded, or fire, at a time.
        let count = if burst { random.pick(&[1100, 2100, 4500]) } else { 1 + random.below(6) };
        let step_ms = random.pick(&[0, 0, 1, 700, 100_000]);
        let name = self.names + 1;
        self.names += u32::try_from(count).expect("small");
        let then = match random.below(10) {
            _ if burst => Then::Nothing,
            0..2 => Then::Cancel(name + u32::try_from(random.below(count + 1)).expect("small")),
            2..4 => Then::Again {
                times: u8::try_from(random.below(4)).expect("small"),
                after_ms: random.pick(&[0, 1, 5_000, 400_000, 86_400_000]),
            },
            4 => Then::Send(self.note(random)),
            5 => Then::Ask,
            _ => Then::Nothing,
        };
        let count = u32::try_from(count).expect("small");
        ProbeCommand::Timers { deadline_ms, step_ms, count, name, then }
    }
}

impl Subject for ProbeSubject {
    fn id(&self) -> MachineId {
        PROBE
    }

    fn machine(&self) -> Box<dyn Machine> {
        Box::new(Probe)
    }

    fn model(&self) -> Box<dyn Model> {
        Box::new(ProbeModel::default())
    }

    fn draft(&mut self, random: &mut Random, now_ms: u64) -> Draft {
        let group = u8::try_from(random.below(GROUPS)).expect("small");
        let slot = u8::try_from(random.below(SLOTS)).expect("small");
        let value = u32::try_from(random.below(1 << 20)).expect("small");
        let command = match random.below(100) {
            0..15 => ProbeCommand::Put { group, slot, value },
            15..20 => ProbeCommand::Delete { group, slot },
            20..35 => ProbeCommand::New { group, count: 1 + slot },
            35..40 => ProbeCommand::DeleteNew { group },
            40..44 => ProbeCommand::DeleteGroup { group },
            44..64 => self.timers(random, now_ms),
            64..72 => {
                let name = random.below(u64::from(self.names) + 1);
                ProbeCommand::Cancel { name: u32::try_from(name).expect("small") }
            }
            72..90 => ProbeCommand::Send(self.note(random)),
            90..98 => ProbeCommand::Ask { name: value },
            _ => ProbeCommand::Done { effect: u64::from(value) },
        };
        let to = u16::try_from(random.below(u64::from(kernel::id::VIRTUAL_SHARDS)));
        let to = VirtualShard(to.expect("less than 4096"));
        Draft { to, tenant: TENANT, command: pack(&command) }
    }

    fn perform(
        &mut self,
        effect: &Effect,
        _rows: &RowsReader,
        archive: &mut Archive,
        _random: &mut Random,
    ) -> Bytes {
        archive.insert(format!("probe/{}", effect.number), effect.payload.clone());
        pack(&ProbeCommand::Done { effect: effect.number })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct ProbeModel {
    slots: Vec<(u8, u8, u32)>,
    /// How many rows with new keys a group has.
    news: Vec<(u8, u64)>,
    /// Pending timers by name, with their handles: the latest of each name.
    timers: BTreeMap<u32, u64>,
    /// Name and time.
    fired: Vec<(u32, u64)>,
    received: Vec<Note>,
    /// Every number and secret that was ever given out here.
    numbers: BTreeSet<u64>,
    secrets: BTreeSet<[u8; 16]>,
    /// How much of `fired` and `received` has been compared.
    fired_checked: usize,
    received_checked: usize,
}

impl ProbeModel {
    fn set_timer(&mut self, scene: &mut Scene<'_>, deadline_ms: u64, note: TimerNote) {
        let handle = scene.set_timer(deadline_ms, pack(&note));
        self.timers.insert(note.0, handle);
    }

    fn news(&mut self, group: u8) -> &mut u64 {
        if !self.news.iter().any(|(of, _)| *of == group) {
            self.news.push((group, 0));
        }
        let found = self.news.iter_mut().find(|(of, _)| *of == group);
        &mut found.expect("pushed above").1
    }

    fn delete(&mut self, group: u8, slot: u8) -> bool {
        let before = self.slots.len();
        self.slots.retain(|(of, at, _)| (*of, *at) != (group, slot));
        self.slots.len() < before
    }

    fn cancel(&mut self, scene: &mut Scene<'_>, name: u32) -> bool {
        let Some(handle) = self.timers.remove(&name) else { return false };
        scene.cancel_timer(handle);
        true
    }
}

fn send(scene: &mut Scene<'_>, note: Note) {
    scene.send(VirtualShard(note.to), PROBE, pack(&note));
}

impl Model for ProbeModel {
    fn apply(&mut self, scene: &mut Scene<'_>, command: &Bytes) -> Result<Bytes, Difference> {
        let mut reply = ProbeReply::default();
        match unpack(command).map_err(|error| error.to_string())? {
            ProbeCommand::Put { group, slot, value } => {
                self.delete(group, slot);
                self.slots.push((group, slot, value));
            }
            ProbeCommand::Delete { group, slot } => reply.found = self.delete(group, slot),
            ProbeCommand::New { group, count } => {
                *self.news(group) += u64::from(count);
                // Which numbers, the machine decides.
                reply.numbers = vec![0; usize::from(count)];
                reply.secrets = vec![[0; 16]; usize::from(count)];
            }
            ProbeCommand::DeleteNew { group } => {
                let news = self.news(group);
                reply.found = *news > 0;
                *news = news.saturating_sub(1);
            }
            ProbeCommand::DeleteGroup { group } => {
                self.slots.retain(|(of, _, _)| *of != group);
                *self.news(group) = 0;
            }
            ProbeCommand::Timers { deadline_ms, step_ms, count, name, then } => {
                for number in 0..count {
                    let at_ms = deadline_ms + u64::from(number) * step_ms;
                    self.set_timer(scene, at_ms, (name + number, then));
                }
            }
            ProbeCommand::Cancel { name } => reply.found = self.cancel(scene, name),
            ProbeCommand::Send(note) => send(scene, note),
            ProbeCommand::Ask { name } => {
                scene.ask(pack(&name));
            }
            ProbeCommand::Done { effect } => reply.found = scene.effect_done(effect).is_some(),
        }
        Ok(pack(&reply))
    }

    fn fire(&mut self, scene: &mut Scene<'_>, payload: &Bytes) -> Result<(), Difference> {
        let (name, then): TimerNote = unpack(payload).map_err(|error| error.to_string())?;
        // A request that came again after its answer was forgotten set a second one of this name.
        self.timers.remove(&name);
        self.fired.push((name, scene.now_ms()));
        match then {
            Then::Nothing | Then::Again { times: 0, .. } => {}
            Then::Cancel(other) => {
                self.cancel(scene, other);
            }
            Then::Again { times, after_ms } => {
                let at_ms = scene.now_ms() + after_ms;
                let then = Then::Again { times: times - 1, after_ms };
                self.set_timer(scene, at_ms, (name, then));
            }
            Then::Send(note) => send(scene, note),
            Then::Ask => {
                scene.ask(pack(&name));
            }
        }
        Ok(())
    }

    fn receive(&mut self, scene: &mut Scene<'_>, body: &Bytes) -> Result<(), Difference> {
        let note: Note = unpack(body).map_err(|error| error.to_string())?;
        self.received.push(note);
        if let Some(next) = note.passed_on() {
            send(scene, next);
        }
        Ok(())
    }

    fn same_reply(&mut self, expected: &Bytes, actual: &Bytes) -> Result<(), Difference> {
        let decode = |bytes| unpack::<ProbeReply>(bytes).map_err(|error| error.to_string());
        let (expected, actual) = (decode(expected)?, decode(actual)?);
        same("found", &expected.found, &actual.found)?;
        same("numbers", &expected.numbers.len(), &actual.numbers.len())?;
        same("secrets", &expected.secrets.len(), &actual.secrets.len())?;
        for number in actual.numbers {
            if !self.numbers.insert(number) {
                return Err(format!("number {number} was given out twice"));
            }
        }
        for secret in actual.secrets {
            if !self.secrets.insert(secret) {
                return Err(format!("secret {secret:x?} was given out twice"));
            }
        }
        Ok(())
    }

    fn check(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        if sight.full {
            (self.fired_checked, self.received_checked) = (0, 0);
            self.check_rows(sight)?;
        }
        let fired: Vec<Fired> = logged(sight, b'f', self.fired_checked);
        let early = fired.iter().find(|(deadline_ms, _, at_ms)| deadline_ms > at_ms);
        same("timer that fired early", &None, &early)?;
        let actual: Vec<(u32, u64)> = fired.iter().map(|(_, name, at)| (*name, *at)).collect();
        same("timers fired", &self.fired[self.fired_checked..], &actual[..])?;
        let received: Vec<Note> = logged(sight, b'r', self.received_checked);
        same("letters received", &self.received[self.received_checked..], &received[..])?;
        (self.fired_checked, self.received_checked) = (self.fired.len(), self.received.len());
        Ok(())
    }
}

impl ProbeModel {
    fn check_rows(&mut self, sight: &Sight<'_>) -> Result<(), Difference> {
        let prefix = machine_key(PROBE, b'g', TENANT);
        let rows = sight.rows.scan(&Scan::prefix(&prefix)).into_iter();
        let actual: Vec<(u8, u8, u32)> = rows
            .map(|(key, value)| {
                let rest = &key[prefix.len()..];
                (rest[0], rest[1], unpack(&value).expect("a number"))
            })
            .collect();
        self.slots.sort_unstable();
        same("slots", &self.slots, &actual)?;
        for (group, count) in &self.news {
            let mut prefix = machine_key(PROBE, b'n', TENANT);
            prefix.push(*group);
            let rows = sight.rows.scan(&Scan::prefix(&prefix));
            same("rows with new keys", count, &(rows.len() as u64))?;
        }
        let rows = sight.rows.scan(&Scan::prefix(&machine_key(PROBE, b't', TENANT)));
        same("timers by name", &self.timers.len(), &rows.len())
    }
}

fn logged<T: DeserializeOwned>(sight: &Sight<'_>, kind: u8, skip: usize) -> Vec<T> {
    let prefix = machine_key(PROBE, kind, TENANT);
    let mut from = prefix.clone();
    from.extend_from_slice(&(skip as u64).to_be_bytes());
    let to = kernel::rows::prefix_end(&prefix).expect("no key is all ones");
    let rows = sight.rows.scan(&Scan::between(&from, &to));
    rows.iter().map(|(_, value)| unpack(value).expect("written down")).collect()
}
