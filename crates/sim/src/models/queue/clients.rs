//! Clients of queues: senders, workers who are slow, forgetful or lying, and whoever changes
//! settings under them.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use kernel::machine::Effect;
use kernel::rows::RowsReader;
use kernel::{Machine, MachineId, TenantId};
use queue::parcel::{ArchivedBody, Body};
use queue::{
    Ack, Backoff, Command, Create, Extend, MACHINE, Mode, Nack, NewMessage, Queues, Receipt,
    Receive, Release, ReserveBody, Send, Settings, Update,
};

use super::QueueModel;
use super::asks::with_attributes;
use super::ledger::{Ledger, Name};
use super::look::body_of;
use crate::random::Random;
use crate::subject::{Archive, Draft, Model, Subject};

/// No other machine counts what these use.
pub(super) const TENANTS: [TenantId; 2] = [TenantId(11), TenantId(12)];
/// Many messages at a time go here, more than one timer brings back.
pub(super) const BULK: &str = "bulk";
pub(super) const NAMES: [&str; 6] = ["jobs", "mail", "orders", "late", "dead", BULK];
const GROUPS: [&str; 4] = ["a", "ab", "b", ""];
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Queues under test.
#[derive(Debug, Default)]
pub struct QueueSubject {
    pub(super) ledger: Rc<RefCell<Ledger>>,
    /// The few queues that most is about in this run.
    busy: Vec<Name>,
    /// Once in a run many messages are sent at a time.
    burst: bool,
    /// Makes each parcel another one.
    parcels: u64,
    /// A queue that is sent more than its redrive may move, and how often still.
    pub(super) fed: Option<(Name, u32)>,
}

fn usual_mode(name: &str) -> Mode {
    if matches!(name, "orders" | "late") { Mode::Fifo } else { Mode::Standard }
}

fn settings(random: &mut Random, name: &str) -> Settings {
    let mode = match (random.chance(30), usual_mode(name)) {
        (true, Mode::Fifo) => Mode::Standard,
        (true, Mode::Standard) if name != BULK => Mode::Fifo,
        (_, usual) => usual,
    };
    if name == BULK {
        return Settings {
            visibility_ms: random.pick(&[300, 3000]),
            max_receive_count: random.pick(&[None, Some(2)]),
            dead_letter_queue: Some("dead".to_owned()),
            ..Settings::usual(mode)
        };
    }
    let dead_letter_queue = match name {
        "orders" | "jobs" => Some(random.pick(&["late", "dead", "dead"])),
        "mail" => Some("dead"),
        // Round in a circle, or into nothing that anybody made.
        "dead" => random.pick(&[None, None, Some("jobs"), Some("grave")]),
        _ => None,
    };
    Settings {
        mode,
        retention_ms: random.pick(&[150, 2_000, 20_000, 200_000, 4 * DAY_MS, 4 * DAY_MS]),
        visibility_ms: random.pick(&[1, 300, 2_000, 10_000]),
        delay_ms: random.pick(&[0, 0, 0, 500]),
        max_receive_count: random.pick(&[None, Some(1), Some(2), Some(2), Some(3)]),
        dead_letter_queue: dead_letter_queue.map(str::to_owned),
        backoff: Backoff {
            base_ms: random.pick(&[0, 0, 1, 200, 1_000]),
            max_ms: random.pick(&[1_000, 60_000]),
            jitter: random.chance(500),
        },
        dedup_ms: random.pick(&[0, 150, 3_000, 5 * 60_000]),
        max_messages: random.pick(&[None, None, Some(3), Some(20)]),
        max_bytes: random.pick(&[None, None, Some(500), Some(3_000)]),
        max_age_ms: random.pick(&[None, None, None, Some(1_000), Some(20_000)]),
        max_inflight: random.pick(&[1, 3, 10, 1_000]),
        ..Settings::usual(mode)
    }
}

impl QueueSubject {
    fn choose_busy(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 4) {
            let tenant = random.pick(&[TENANTS[0], TENANTS[0], TENANTS[1]]);
            self.busy.push((tenant, random.pick(&NAMES).to_owned()));
        }
    }

    pub(super) fn name(&mut self, random: &mut Random) -> Name {
        if self.busy.is_empty() {
            self.choose_busy(random);
        }
        let ledger = self.ledger.borrow();
        if !ledger.queues.is_empty() && random.chance(250) {
            let at = random.place(ledger.queues.len());
            return ledger.queues.keys().nth(at).expect("in range").clone();
        }
        if random.chance(30) {
            return (random.pick(&TENANTS), random.pick(&NAMES).to_owned());
        }
        self.busy[random.place(self.busy.len())].clone()
    }

    pub(super) fn message(&mut self, random: &mut Random, mode: Mode) -> NewMessage {
        self.parcels += 1;
        let mut body = self.parcels.to_string();
        body.extend(std::iter::repeat_n('.', random.place(40)));
        let parcel = with_attributes(random, Body::Text(body)).encode();
        let group = (mode == Mode::Fifo) != random.chance(10);
        NewMessage {
            delay_ms: match random.below(10) {
                0 => Some(random.below(4_000)),
                1 => Some(0),
                2 if random.chance(100) => Some(random.below(300 * DAY_MS)),
                _ => None,
            },
            priority: random.pick(&[0, 0, 0, 1, 5, 9, 200]),
            group: group.then(|| random.pick(&GROUPS).to_owned()),
            dedup: random.chance(300).then(|| [random.pick(&[1, 2, 3, 4]); 16]),
            parcel,
        }
    }

    /// A message with a body that was reserved, mostly for this queue, and mostly not sent before.
    pub(super) fn large_message(
        &mut self,
        random: &mut Random,
        name: &Name,
        mode: Mode,
    ) -> NewMessage {
        let message = self.message(random, mode);
        let mut ledger = self.ledger.borrow_mut();
        let mine = |(queue, _): &(Name, ArchivedBody)| queue == name || random.chance(20);
        let Some(place) = ledger.reserved.iter().rposition(mine) else { return message };
        let (_, body) = ledger.reserved[place];
        if random.chance(900) {
            ledger.reserved.remove(place);
        }
        let parcel = with_attributes(random, Body::Text(String::new())).encode_archived(&body);
        NewMessage { parcel, ..message }
    }

    fn send(&mut self, random: &mut Random, name: &Name, mode: Mode) -> Command {
        let queue = name.1.clone();
        if queue == BULK && !self.burst && random.chance(150) {
            self.burst = true;
            let delay_ms = random.pick(&[None, Some(700)]);
            let tiny = |number: u16| NewMessage {
                delay_ms,
                priority: 0,
                group: None,
                dedup: None,
                parcel: Bytes::copy_from_slice(&number.to_be_bytes()),
            };
            return Command::Send(Send { queue, messages: (0..300).map(tiny).collect() });
        }
        if random.chance(150) {
            let (sha256, bytes) = ([random.pick(&[1, 2, 3]); 32], random.pick(&[1, 300, 5_000]));
            return Command::ReserveBody(ReserveBody { queue, sha256, bytes });
        }
        let count = random.pick(&[1, 1, 1, 2, 3, 5]);
        let mut one = || {
            if random.chance(300) {
                self.large_message(random, name, mode)
            } else {
                self.message(random, mode)
            }
        };
        let messages = (0..count).map(|_| one()).collect();
        Command::Send(Send { queue, messages })
    }

    fn receipts(&self, random: &mut Random, name: &Name) -> Vec<Receipt> {
        let ledger = self.ledger.borrow();
        let mine: Vec<Receipt> =
            ledger.receipts.iter().filter(|(of, _)| of == name).map(|(_, r)| *r).collect();
        let mut receipts = Vec::new();
        for _ in 0..random.pick(&[1, 1, 1, 2, 4]) {
            let recent = &mine[mine.len().saturating_sub(6)..];
            let from = match random.below(100) {
                0..80 => recent,
                _ => &mine[..],
            };
            let receipt = if random.chance(40) && !ledger.receipts.is_empty() {
                // Of another queue.
                ledger.receipts[random.place(ledger.receipts.len())].1
            } else if from.is_empty() {
                continue;
            } else {
                random.pick(from)
            };
            receipts.push(if random.chance(40) { forged(random, receipt) } else { receipt });
        }
        receipts
    }
}

/// A receipt of which somebody has changed something.
fn forged(random: &mut Random, receipt: Receipt) -> Receipt {
    let mut bytes = receipt.to_bytes();
    bytes[random.place(bytes.len())] ^= random.pick(&[1, 0x80, 0xff]);
    Receipt::from_bytes(&bytes).expect("as long as before")
}

impl Subject for QueueSubject {
    fn id(&self) -> MachineId {
        MACHINE
    }

    fn machine(&self) -> Box<dyn Machine> {
        Box::new(Queues::default())
    }

    fn model(&self) -> Box<dyn Model> {
        Box::new(QueueModel::new(Rc::clone(&self.ledger)))
    }

    fn draft(&mut self, random: &mut Random, _now_ms: u64) -> Draft {
        if let Some(draft) = self.feed(random) {
            return draft;
        }
        match random.below(1000) {
            0..80 => return self.ask_topic(random),
            80..130 => return self.ask_redrive(random),
            _ => {}
        }
        let name = self.name(random);
        let known = self.ledger.borrow().queues.get(&name).copied();
        let (mode, version) = known.unwrap_or((usual_mode(&name.1), 1));
        let queue = name.1.clone();
        let visibility_ms = random.pick(&[None, None, Some(0), Some(400), Some(5_000)]);
        let command = match random.below(1000) {
            _ if known.is_none() && random.chance(800) => {
                Command::Create(Create { queue, settings: settings(random, &name.1) })
            }
            0..370 => self.send(random, &name, mode),
            370..650 => {
                let max = if queue == BULK { 350 } else { random.pick(&[1, 1, 2, 3, 10]) };
                Command::Receive(Receive { queue, max, visibility_ms })
            }
            650..800 => Command::Ack(Ack { queue, receipts: self.receipts(random, &name) }),
            800..880 => Command::Nack(Nack {
                queue,
                receipts: self.receipts(random, &name),
                delay_ms: random.pick(&[None, None, Some(0), Some(600), Some(100_000)]),
                reason: random.pick(&[None, Some("boom"), Some("no")]).map(str::to_owned),
            }),
            880..900 => Command::Release(Release {
                queue,
                receipts: self.receipts(random, &name),
                delay_ms: random.pick(&[0, 600, 1_000]),
            }),
            900..940 => Command::Extend(Extend {
                queue,
                receipts: self.receipts(random, &name),
                visibility_ms: random.pick(&[0, 100, 2_000, 20_000, 30 * DAY_MS]),
            }),
            940..970 => Command::Update(Update {
                queue,
                version: if random.chance(100) { version + 1 } else { version },
                settings: settings(random, &name.1),
            }),
            970..980 => Command::Create(Create { queue, settings: settings(random, &name.1) }),
            980..990 => Command::Purge { queue },
            _ => Command::Delete { queue },
        };
        Draft { to: queue::place(name.0, &name.1), tenant: name.0, command: command.encode() }
    }

    fn perform(
        &mut self,
        effect: &Effect,
        _: &RowsReader,
        _: &mut Archive,
        _: &mut Random,
    ) -> Bytes {
        let body = body_of(effect).expect("queues asked for it");
        self.ledger.borrow_mut().deleted(body);
        Command::BodyDeleted { effect: effect.number }.encode()
    }
}
