//! Clients who move messages from queue to queue, and those who publish.

use std::collections::BTreeMap;

use queue::filter::{Edge, Filter, Rule};
use queue::parcel::{Attribute, Body, Parcel};
use queue::{Command, Mode, Publish, Send, StartRedrive, Subscribe};

use super::clients::{BULK, NAMES, QueueSubject};
use super::ledger::Name;
use crate::random::Random;
use crate::subject::Draft;

const TOPICS: [&str; 2] = ["news", "alerts"];
const KINDS: [&str; 3] = ["mail.new", "mail.old", "sms"];

/// A parcel of which filters can say something.
pub(super) fn with_attributes(random: &mut Random, body: Body) -> Parcel {
    let mut parcel = Parcel::new(body);
    if random.chance(700) {
        let kind = Attribute::text("String", random.pick(&KINDS));
        parcel.attributes.insert("kind".to_owned(), kind);
    }
    if random.chance(300) {
        let size = Attribute::text("Number", random.below(10).to_string());
        parcel.attributes.insert("size".to_owned(), size);
    }
    parcel
}

fn filter(random: &mut Random) -> Filter {
    let text = str::to_owned;
    let mut attributes = BTreeMap::new();
    for _ in 0..random.pick(&[1, 1, 2]) {
        let edge = |number, included| Some(Edge::new(number, included));
        let included = random.chance(500);
        let (name, rules) = match random.below(7) {
            0 => ("kind", vec![Rule::Is(text("sms"))]),
            1 => ("kind", vec![Rule::Prefix(text("mail."))]),
            2 => ("kind", vec![Rule::Exists(false), Rule::Is(text("mail.old"))]),
            3 => ("size", vec![Rule::Between { from: edge(3.0, included), to: None }]),
            4 => ("size", vec![Rule::number(1.0), Rule::Exists(false)]),
            5 => ("$originalQueue", vec![Rule::Is(text(random.pick(&NAMES)))]),
            _ => ("$lastReason", vec![Rule::Prefix(text("the ")), Rule::Is(text("boom"))]),
        };
        attributes.insert(name.to_owned(), rules);
    }
    Filter { attributes }
}

impl QueueSubject {
    /// Mostly where dead letters are.
    fn redriven(&mut self, random: &mut Random) -> Name {
        let ledger = self.ledger.borrow();
        let dead = |name: &&Name| matches!(name.1.as_str(), "dead" | "late" | BULK);
        let dead: Vec<&Name> = ledger.queues.keys().filter(dead).collect();
        if !dead.is_empty() && random.chance(700) {
            return dead[random.place(dead.len())].clone();
        }
        drop(ledger);
        self.name(random)
    }

    pub(super) fn ask_redrive(&mut self, random: &mut Random) -> Draft {
        let name = self.redriven(random);
        let (tenant, queue) = name.clone();
        let to = queue::place(tenant, &queue);
        if random.chance(200) {
            let ledger = self.ledger.borrow();
            let mut mine = ledger.jobs.iter().rev().filter(|(of, _)| *of == name);
            let job = mine.nth(random.pick(&[0, 0, 0, 1, 12])).map_or(1, |(_, job)| *job);
            let command = Command::CancelRedrive { queue, job };
            return Draft { to, tenant, command: command.encode() };
        }
        let target = random.chance(500).then(|| match random.below(10) {
            0 => "elsewhere".to_owned(),
            1..4 => self.name(random).1,
            _ => random.pick(&NAMES).to_owned(),
        });
        let rates = [None, None, Some(1), Some(7), Some(10), Some(25), Some(3_000)];
        let per_second = random.pick(&rates);
        if per_second.is_some() && random.chance(100) {
            self.fed = Some((name, 30));
        }
        let command = Command::StartRedrive(StartRedrive {
            queue,
            target,
            per_second,
            limit: random.pick(&[None, None, None, Some(0), Some(1), Some(2), Some(5)]),
            filter: random.chance(300).then(|| filter(random)),
            dry_run: random.chance(150),
        });
        Draft { to, tenant, command: command.encode() }
    }

    /// Somebody sends more than a redrive of that queue may move, for a while.
    pub(super) fn feed(&mut self, random: &mut Random) -> Option<Draft> {
        let (name, left) = self.fed.take()?;
        if left > 1 {
            self.fed = Some((name.clone(), left - 1));
        }
        let known = self.ledger.borrow().queues.get(&name).copied();
        let (mode, _) = known.filter(|_| random.chance(700))?;
        let messages = (0..2).map(|_| self.message(random, mode)).collect();
        let (tenant, queue) = name;
        let to = queue::place(tenant, &queue);
        let command = Command::Send(Send { queue, messages });
        Some(Draft { to, tenant, command: command.encode() })
    }

    pub(super) fn ask_topic(&mut self, random: &mut Random) -> Draft {
        let name = self.name(random);
        let (tenant, queue) = name.clone();
        let topic = random.pick(&TOPICS).to_owned();
        let to = queue::topic_place(tenant, &topic);
        let command = match random.below(100) {
            0..20 => Command::CreateTopic { topic },
            20..40 => {
                let filter = random.chance(600).then(|| filter(random));
                Command::Subscribe(Subscribe { topic, queue, filter })
            }
            40..47 => {
                let ledger = self.ledger.borrow();
                let subscribed = ledger.subscriptions.iter().rev();
                let mut mine = subscribed.filter(|(of, _)| *of == (tenant, topic.clone()));
                let known = mine.nth(random.pick(&[0, 1, 4])).map(|(_, queue)| queue.clone());
                Command::Unsubscribe { topic, queue: known.unwrap_or(queue) }
            }
            47..49 => Command::DeleteTopic { topic },
            _ => {
                let mode = random.pick(&[Mode::Standard, Mode::Fifo]);
                let mut messages = Vec::new();
                for _ in 0..random.pick(&[1, 1, 2, 4]) {
                    messages.push(if random.chance(20) {
                        self.large_message(random, &name, mode)
                    } else {
                        self.message(random, mode)
                    });
                }
                Command::Publish(Publish { topic, messages })
            }
        };
        Draft { to, tenant, command: command.encode() }
    }
}
