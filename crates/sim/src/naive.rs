//! What the kernel and the shard promise, written as plainly as can be: lists, searched from end
//! to end.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use kernel::codec::Reader;
use kernel::limits::IDEMPOTENCY_MS;
use kernel::machine::{Effect, KERNEL, Place, kernel_key, pending_effects};
use kernel::mail::{self, Letter, MailCommand};
use kernel::rows::{RowsReader, Scan};
use kernel::{Entry, Envelope, IdempotencyKey, Index, MachineId, ShardId, TenantId, VirtualShard};
use shard::Outcome;

use crate::subject::{Difference, Model, Sight, same};

/// Every letter that was ever sent from one shard to another, in order.
pub type Letters = BTreeMap<(ShardId, ShardId), Vec<Letter>>;

/// The models of a shard's machines.
pub type Models = BTreeMap<MachineId, Box<dyn Model>>;

#[derive(Clone, Debug)]
struct Timer {
    deadline_ms: u64,
    /// Grows in the order of setting.
    order: u64,
    machine: MachineId,
    tenant: TenantId,
    payload: Bytes,
}

#[derive(Clone, Debug)]
struct Asked {
    handle: u64,
    /// As the shard has it; known once it has been seen there.
    number: Option<u64>,
    machine: MachineId,
    tenant: TenantId,
    payload: Bytes,
}

/// An answer that is to be given again.
#[derive(Clone, Debug)]
struct Remembered {
    key: IdempotencyKey,
    machine: MachineId,
    expected: Bytes,
    /// What was really answered; unknown when it was applied while nobody listened.
    actual: Option<Bytes>,
}

/// How a command should end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// With this reply, in the sense of the machine's model.
    Reply {
        /// Whose.
        machine: MachineId,
        /// As the model has it.
        reply: Bytes,
        /// The key under which it is kept.
        key: Option<[u8; 16]>,
    },
    /// With the reply that was given before, to the byte.
    Again(Bytes),
    /// With a conflict.
    Conflict,
}

/// The plain kernel of one shard.
pub struct Naive {
    place: Place,
    at_ms: u64,
    order: u64,
    timers: Vec<Timer>,
    effects: Vec<Asked>,
    /// Pending ones of machines whose models look at them by themselves, when last looked at.
    free_effects: usize,
    answers: Vec<Remembered>,
    received: BTreeMap<ShardId, u64>,
    collected: BTreeMap<ShardId, u64>,
    local: VecDeque<Letter>,
    posted: Vec<(ShardId, Letter)>,
    /// Letters sent before this entry.
    sent: BTreeMap<ShardId, u64>,
    /// Timers fired so far, those of the kernel included.
    pub timers_fired: u64,
    /// Letters received so far, from here and elsewhere.
    pub letters_received: u64,
}

/// What an entry really did, for models that leave their machine some freedom.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The rows after it.
    pub rows: &'a RowsReader,
    /// How each of its commands ended.
    pub outcomes: &'a [Outcome],
}

/// A model's turn.
pub struct Scene<'a> {
    naive: &'a mut Naive,
    /// The entry.
    pub index: Index,
    /// The rows after the whole entry.
    pub rows: &'a RowsReader,
    /// What the machine answered, when this is a command's turn.
    pub reply: Option<&'a Bytes>,
    machine: MachineId,
    tenant: TenantId,
    kept_ms: u64,
}

impl Scene<'_> {
    /// Nothing was done: the answer is not remembered under the client's key.
    pub fn may_be_asked_again(&mut self) {
        self.kept_ms = 0;
    }

    /// The answer is remembered for so long only.
    pub fn keep_answer_for(&mut self, ms: u64) {
        self.kept_ms = ms;
    }

    /// The same turn on behalf of another tenant.
    #[must_use]
    pub fn of(&mut self, tenant: TenantId) -> Scene<'_> {
        let Scene { index, rows, reply, machine, .. } = *self;
        Scene { naive: self.naive, index, rows, reply, machine, tenant, kept_ms: IDEMPOTENCY_MS }
    }

    /// Where the shard stands.
    #[must_use]
    pub fn place(&self) -> Place {
        self.naive.place
    }

    /// The entry's time.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.naive.at_ms
    }

    /// On whose behalf.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Sets a timer; the handle cancels it.
    pub fn set_timer(&mut self, deadline_ms: u64, payload: Bytes) -> u64 {
        self.naive.set_timer(deadline_ms, self.machine, self.tenant, payload)
    }

    /// Forgets a timer.
    pub fn cancel_timer(&mut self, handle: u64) {
        self.naive.timers.retain(|timer| timer.order != handle);
    }

    /// Sends a letter.
    pub fn send(&mut self, to: VirtualShard, machine: MachineId, body: Bytes) {
        let letter = Letter { machine, tenant: self.tenant, body };
        let to = to.shard(self.naive.place.shard_count);
        if to == self.naive.place.shard {
            self.naive.local.push_back(letter);
        } else {
            self.naive.posted.push((to, letter));
        }
    }

    /// The letters to another shard that the machines have sent in this entry, in order.
    #[must_use]
    pub fn new_letters(&self, to: ShardId) -> Vec<Letter> {
        let sent = self.naive.sent.get(&to).copied().unwrap_or(0);
        let waiting = mail::uncollected(self.rows, to, usize::MAX).into_iter();
        waiting.filter(|(number, _)| *number > sent).map(|(_, letter)| letter).collect()
    }

    /// Asks for an effect.
    pub fn ask(&mut self, payload: Bytes) -> u64 {
        self.naive.order += 1;
        let handle = self.naive.order;
        let (machine, tenant) = (self.machine, self.tenant);
        self.naive.effects.push(Asked { handle, number: None, machine, tenant, payload });
        handle
    }

    /// The handle of the effect that is done now, unless it was done before.
    pub fn effect_done(&mut self, number: u64) -> Option<u64> {
        let at = self.naive.effects.iter().position(|asked| asked.number == Some(number))?;
        Some(self.naive.effects.remove(at).handle)
    }

    /// Takes an effect back.
    pub fn take_back(&mut self, handle: u64) {
        self.naive.effects.retain(|asked| asked.handle != handle);
    }
}

impl Naive {
    /// A shard in which nothing has happened.
    #[must_use]
    pub fn new(place: Place) -> Naive {
        Naive {
            place,
            at_ms: 0,
            order: 0,
            timers: Vec::new(),
            effects: Vec::new(),
            free_effects: 0,
            answers: Vec::new(),
            received: BTreeMap::new(),
            collected: BTreeMap::new(),
            local: VecDeque::new(),
            posted: Vec::new(),
            sent: BTreeMap::new(),
            timers_fired: 0,
            letters_received: 0,
        }
    }

    fn set_timer(
        &mut self,
        deadline_ms: u64,
        machine: MachineId,
        tenant: TenantId,
        payload: Bytes,
    ) -> u64 {
        self.order += 1;
        let order = self.order;
        self.timers.push(Timer { deadline_ms, order, machine, tenant, payload });
        order
    }

    /// Applies an entry, and says how each command should end.
    pub fn entry(
        &mut self,
        index: Index,
        entry: &Entry,
        seen: Seen<'_>,
        models: &mut Models,
        letters: &mut Letters,
    ) -> Result<Vec<Expected>, Difference> {
        if entry.at_ms < self.at_ms {
            return Err(format!("time went back from {} to {}", self.at_ms, entry.at_ms));
        }
        self.at_ms = entry.at_ms;
        self.fire_due(index, entry, seen, models)?;
        self.tick(index, seen, models)?;
        let mut expected = Vec::new();
        same("outcomes", &entry.commands.len(), &seen.outcomes.len())?;
        for (envelope, outcome) in entry.commands.iter().zip(seen.outcomes) {
            expected.push(self.command(index, envelope, (outcome, seen), models, letters)?);
            self.deliver_local(index, seen, models)?;
        }
        for (to, letter) in std::mem::take(&mut self.posted) {
            letters.entry((self.place.shard, to)).or_default().push(letter);
            *self.sent.entry(to).or_default() += 1;
        }
        Ok(expected)
    }

    /// Models that keep time by themselves do what is due.
    fn tick(
        &mut self,
        index: Index,
        seen: Seen<'_>,
        models: &mut Models,
    ) -> Result<(), Difference> {
        let (rows, reply, tenant) = (seen.rows, None, TenantId::SYSTEM);
        for (machine, model) in models.iter_mut() {
            let machine = *machine;
            model.tick(&mut Scene {
                naive: self,
                index,
                rows,
                reply,
                machine,
                tenant,
                kept_ms: IDEMPOTENCY_MS,
            })?;
        }
        self.deliver_local(index, seen, models)
    }

    fn fire_due(
        &mut self,
        index: Index,
        entry: &Entry,
        seen: Seen<'_>,
        models: &mut Models,
    ) -> Result<(), Difference> {
        self.timers.sort_by_key(|timer| (timer.deadline_ms, timer.order));
        let max = entry.timers_max as usize;
        let due = self.timers.iter().take_while(|timer| timer.deadline_ms <= entry.at_ms);
        let due: Vec<u64> = due.take(max).map(|timer| timer.order).collect();
        for order in due {
            // One that fired before it may have cancelled it.
            let Some(at) = self.timers.iter().position(|timer| timer.order == order) else {
                continue;
            };
            let timer = self.timers.remove(at);
            self.timers_fired += 1;
            if timer.machine == KERNEL {
                self.answers.retain(|answer| answer.key.key != timer.payload[..]);
                continue;
            }
            let (machine, tenant) = (timer.machine, timer.tenant);
            let model = model_of(models, machine)?;
            let rows = seen.rows;
            let mut scene = Scene {
                naive: self,
                index,
                rows,
                reply: None,
                machine,
                tenant,
                kept_ms: IDEMPOTENCY_MS,
            };
            model.fire(&mut scene, &timer.payload)?;
            self.deliver_local(index, seen, models)?;
        }
        Ok(())
    }

    fn command(
        &mut self,
        index: Index,
        envelope: &Envelope,
        (outcome, seen): (&Outcome, Seen<'_>),
        models: &mut Models,
        letters: &Letters,
    ) -> Result<Expected, Difference> {
        if let Some(key) = envelope.idempotency
            && let Some(known) = self.answers.iter().find(|known| known.key.key == key.key)
        {
            if known.key.body != key.body {
                return Ok(Expected::Conflict);
            }
            return Ok(match &known.actual {
                Some(actual) => Expected::Again(actual.clone()),
                None => Expected::Reply {
                    machine: known.machine,
                    reply: known.expected.clone(),
                    key: Some(key.key),
                },
            });
        }
        let (machine, tenant) = (envelope.machine, envelope.tenant);
        let mut kept_ms = IDEMPOTENCY_MS;
        let reply = if machine == KERNEL {
            self.mail(&envelope.command, letters)?
        } else {
            let model = model_of(models, machine)?;
            let reply = match outcome {
                Outcome::Reply(reply) => Some(reply),
                Outcome::IdempotencyConflict => None,
            };
            let rows = seen.rows;
            let mut scene =
                Scene { naive: self, index, rows, reply, machine, tenant, kept_ms: IDEMPOTENCY_MS };
            let reply = model.apply(&mut scene, &envelope.command)?;
            kept_ms = scene.kept_ms;
            reply
        };
        let key = envelope.idempotency.filter(|_| kept_ms > 0);
        if let Some(key) = key {
            let expected = reply.clone();
            self.answers.push(Remembered { key, machine, expected, actual: None });
            let payload = Bytes::copy_from_slice(&key.key);
            let until_ms = self.at_ms + kept_ms;
            self.set_timer(until_ms, KERNEL, TenantId::SYSTEM, payload);
        }
        Ok(Expected::Reply { machine, reply, key: key.map(|key| key.key) })
    }

    fn mail(&mut self, command: &Bytes, letters: &Letters) -> Result<Bytes, Difference> {
        let last = match MailCommand::decode(command.clone()).map_err(|e| e.to_string())? {
            MailCommand::Deliver { from, number, letter } => {
                let received = self.received.entry(from).or_default();
                if number == *received + 1 {
                    let sent = letters.get(&(from, self.place.shard));
                    let at = usize::try_from(number - 1).expect("a small number");
                    let sent = sent.and_then(|sent| sent.get(at));
                    same("the next letter", &sent, &Some(&letter))?;
                    *received = number;
                    self.local.push_back(letter);
                }
                *received
            }
            MailCommand::Collected { to, through } => {
                let collected = self.collected.entry(to).or_default();
                *collected = through.max(*collected);
                through
            }
        };
        Ok(Bytes::copy_from_slice(&last.to_be_bytes()))
    }

    fn deliver_local(
        &mut self,
        index: Index,
        seen: Seen<'_>,
        models: &mut Models,
    ) -> Result<(), Difference> {
        while let Some(letter) = self.local.pop_front() {
            self.letters_received += 1;
            let (machine, tenant) = (letter.machine, letter.tenant);
            let model = model_of(models, machine)?;
            let rows = seen.rows;
            let mut scene = Scene {
                naive: self,
                index,
                rows,
                reply: None,
                machine,
                tenant,
                kept_ms: IDEMPOTENCY_MS,
            };
            model.receive(&mut scene, &letter.body)?;
        }
        Ok(())
    }

    /// What was really answered under a key, if that is known.
    #[must_use]
    pub fn answer(&self, key: [u8; 16]) -> Option<Bytes> {
        let known = self.answers.iter().find(|answer| answer.key.key == key);
        known.and_then(|answer| answer.actual.clone())
    }

    /// Remembers what was really answered.
    pub fn answered(&mut self, key: [u8; 16], reply: &Bytes) {
        for answer in &mut self.answers {
            if answer.key.key == key {
                answer.actual = Some(reply.clone());
            }
        }
    }

    /// Compares the kernel's rows, and learns the numbers of effects.
    pub fn check(
        &mut self,
        sight: &Sight<'_>,
        models: &Models,
        letters: &Letters,
    ) -> Result<(), Difference> {
        self.check_effects(sight.rows, models)?;
        if sight.full {
            self.check_timers(sight.rows, models)?;
            self.check_outbox(sight.rows, letters)?;
        }
        Ok(())
    }

    fn check_effects(&mut self, rows: &RowsReader, models: &Models) -> Result<(), Difference> {
        let keeps_time =
            |effect: &Effect| models.get(&effect.machine).is_some_and(|model| model.keeps_time());
        let pending = pending_effects(rows, 0, usize::MAX).into_iter();
        let (free, pending): (Vec<_>, Vec<_>) = pending.partition(keeps_time);
        self.free_effects = free.len();
        same("pending effects", &self.effects.len(), &pending.len())?;
        for (asked, effect) in self.effects.iter_mut().zip(pending) {
            same("effect's machine", &asked.machine, &effect.machine)?;
            same("effect's tenant", &asked.tenant, &effect.tenant)?;
            let model = models.get(&asked.machine).expect("it asked");
            model.same_effect(&asked.payload, &effect.payload)?;
            same("effect's number", &asked.number.unwrap_or(effect.number), &effect.number)?;
            asked.number = Some(effect.number);
        }
        Ok(())
    }

    /// To the byte, but for machines whose models keep time by themselves.
    fn check_timers(&mut self, rows: &RowsReader, models: &Models) -> Result<(), Difference> {
        self.timers.sort_by_key(|timer| (timer.deadline_ms, timer.order));
        let found = rows.scan(&Scan::prefix(&kernel_key(b't')));
        let found = found.into_iter().map(|(key, value)| {
            let id = key.last_chunk::<16>().expect("timer keys end in an id");
            let deadline_ms = u64::from_be_bytes(*id.first_chunk().expect("it is longer"));
            let mut reader = Reader::new(value);
            let machine = reader.u16().expect("timers have a machine");
            let tenant = reader.u32().expect("timers have a tenant");
            (deadline_ms, MachineId(machine), TenantId(tenant), reader.rest())
        });
        let keeps_time =
            |machine: &MachineId| models.get(machine).is_some_and(|model| model.keeps_time());
        let (free, found): (Vec<_>, Vec<_>) =
            found.partition(|(_, machine, _, _)| keeps_time(machine));
        for (machine, model) in models.iter().filter(|(machine, _)| keeps_time(machine)) {
            model.check_timers(free.iter().filter(|timer| timer.1 == *machine).count())?;
        }
        let timers = self.timers.iter();
        let expected = timers.map(|t| (t.deadline_ms, t.machine, t.tenant, t.payload.clone()));
        same("timers", &expected.collect::<Vec<_>>(), &found)
    }

    fn check_outbox(&self, rows: &RowsReader, letters: &Letters) -> Result<(), Difference> {
        for to in (0..self.place.shard_count).map(ShardId) {
            let sent = letters.get(&(self.place.shard, to)).map_or(&[][..], Vec::as_slice);
            let from = self.collected.get(&to).copied().unwrap_or(0);
            let from = usize::try_from(from).expect("a small number");
            let waiting: Vec<Letter> = mail::uncollected(rows, to, usize::MAX)
                .into_iter()
                .map(|(_, letter)| letter)
                .collect();
            same("outbox", &sent[from..], &waiting[..])?;
        }
        Ok(())
    }

    /// Whether any effect has not been done.
    #[must_use]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty() || self.free_effects > 0
    }

    /// Whether something is left that should have been done at `now_ms`.
    #[must_use]
    pub fn unfinished(&self, now_ms: u64, models: &Models, letters: &Letters) -> Option<String> {
        if let Some(left) = models.values().find_map(|model| model.unfinished(now_ms)) {
            return Some(left);
        }
        if let Some(timer) = self.timers.iter().find(|timer| timer.deadline_ms <= now_ms) {
            return Some(format!("a timer due at {} at {now_ms}", timer.deadline_ms));
        }
        if let Some(asked) = self.effects.first() {
            return Some(format!("an effect of machine {}", asked.machine));
        }
        if self.free_effects > 0 {
            return Some(format!("{} effects of a machine that is free", self.free_effects));
        }
        let from = self.place.shard;
        letters.iter().filter(|((sender, _), _)| *sender == from).find_map(|((_, to), sent)| {
            let collected = self.collected.get(to).copied().unwrap_or(0);
            (collected < sent.len() as u64).then(|| format!("letters from {from} to {to}"))
        })
    }
}

fn model_of(models: &mut Models, machine: MachineId) -> Result<&mut dyn Model, Difference> {
    match models.get_mut(&machine) {
        Some(model) => Ok(model.as_mut()),
        None => Err(format!("no model of machine {machine}")),
    }
}
