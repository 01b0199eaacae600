//! Topics, plainly: a list of topics, each with its subscriptions.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::TenantId;
use kernel::codec::pack;
use kernel::machine::machine_key;
use kernel::rows::Scan;
use queue::filter::Filter;
use queue::parcel::ArchivedBody;
use queue::{
    Command, MACHINE, MessageId, NewMessage, Publish, Published, Refusal, Reply, Subscribe,
};

use super::QueueModel;
use super::filter::passes;
use super::ledger::Name;
use super::letters::Fanned;
use super::plain::{Known, New, Rank};
use crate::naive::Scene;
use crate::subject::{Difference, Sight, same};

#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: Name,
    number: u64,
    created_ms: u64,
    subscriptions: BTreeMap<String, Option<Filter>>,
    last_sequence: u64,
}

impl QueueModel {
    fn create_topic(&mut self, name: Name, actual: &Reply) -> Result<Reply, Difference> {
        if let Some(topic) = self.topics.iter().find(|topic| topic.name == name) {
            return Ok(Reply::Created { number: topic.number, new: false });
        }
        let Reply::Created { number, .. } = *actual else {
            return Err(format!("a topic was not made: {actual:?}"));
        };
        if !self.numbers.insert(number) {
            return Err(format!("a topic has number {number}, which is not new"));
        }
        let (created_ms, subscriptions) = (self.now_ms, BTreeMap::new());
        self.topics.push(Topic { name, number, created_ms, subscriptions, last_sequence: 0 });
        Ok(Reply::Created { number, new: true })
    }

    /// What a command about topics does, and what it must answer.
    pub(super) fn topic_command(
        &mut self,
        scene: &mut Scene<'_>,
        command: Command,
        actual: &Reply,
    ) -> Result<Reply, Difference> {
        let name = match &command {
            Command::CreateTopic { topic }
            | Command::DeleteTopic { topic }
            | Command::Subscribe(Subscribe { topic, .. })
            | Command::Unsubscribe { topic, .. }
            | Command::Publish(Publish { topic, .. }) => (scene.tenant(), topic.clone()),
            other => return Err(format!("no client of the simulator asks for {other:?}")),
        };
        if let Command::CreateTopic { .. } = command {
            return self.create_topic(name, actual);
        }
        let Some(at) = self.topics.iter().position(|topic| topic.name == name) else {
            return Ok(Reply::Refused(Refusal::NoTopic));
        };
        let topic = &mut self.topics[at];
        Ok(match command {
            Command::Subscribe(Subscribe { queue, filter, .. }) => {
                self.ledger.borrow_mut().subscriptions.push((name, queue.clone()));
                Reply::Subscribed { new: topic.subscriptions.insert(queue, filter).is_none() }
            }
            Command::Unsubscribe { queue, .. } => match topic.subscriptions.remove(&queue) {
                Some(_) => Reply::Unsubscribed,
                None => Reply::Refused(Refusal::NoSubscription),
            },
            Command::Publish(publish) => self.publish(scene, at, &publish.messages)?,
            _ => {
                self.topics.remove(at);
                Reply::Deleted
            }
        })
    }

    fn publish(
        &mut self,
        scene: &mut Scene<'_>,
        at: usize,
        messages: &[NewMessage],
    ) -> Result<Reply, Difference> {
        if messages.iter().any(|message| ArchivedBody::of(&message.parcel).is_some()) {
            return Ok(Reply::Refused(Refusal::FanOut));
        }
        let (tenant, shard) = (scene.tenant(), scene.place().shard.0);
        let topic = &mut self.topics[at];
        let mut published = Vec::new();
        for message in messages {
            topic.last_sequence += 1;
            let sequence = topic.last_sequence;
            let id = MessageId { shard, queue: topic.number, sequence };
            let wanting = topic.subscriptions.iter();
            let wanting = wanting.filter(|(_, f)| passes(f.as_ref(), &message.parcel, None));
            let wanting: Vec<&String> = wanting.map(|(queue, _)| queue).collect();
            let to = wanting.iter().map(|queue| (tenant, (*queue).clone()));
            self.ledger.borrow_mut().published(id, to)?;
            for queue in &wanting {
                let to = queue::place(tenant, queue);
                let fanned = Fanned { queue: (*queue).clone(), id, message: message.clone() };
                scene.send(to, MACHINE, pack(3, 1, &fanned));
            }
            let subscriptions = u32::try_from(wanting.len()).expect("few");
            published.push(Published { id, sequence, subscriptions });
        }
        Ok(Reply::Published(published))
    }

    /// A message comes from a topic. Where no queue is any more, or where its key is known, it is
    /// not wanted.
    pub(super) fn take_fanned(
        &mut self,
        tenant: TenantId,
        fanned: Fanned,
    ) -> Result<(), Difference> {
        let Fanned { queue, id, message: new } = fanned;
        let name = (tenant, queue);
        let found = self.find(&name);
        let mut ledger = self.ledger.borrow_mut();
        let Some(at) = found else { return ledger.unwanted(id, &name, "no queue") };
        let queue = &mut self.queues[at];
        if queue.known.iter().any(|known| Some(known.digest) == new.dedup) {
            return ledger.unwanted(id, &name, "known");
        }
        ledger.arrived(id, &name)?;
        let now_ms = self.now_ms;
        if let Some(digest) = new.dedup {
            let until_ms = now_ms + queue.settings.dedup_ms.max(1);
            let sequence = queue.last_sequence + 1;
            queue.known.push(Known { digest, id, sequence, until_ms });
        }
        let group = queue.is_fifo().then(|| new.group.unwrap_or_default());
        let due_ms = now_ms + new.delay_ms.unwrap_or(queue.settings.delay_ms);
        let (priority, parcel) = (new.priority, new.parcel);
        let new = New { id, sent_ms: now_ms, due_ms, priority, group, story: None, parcel };
        queue.put(new, now_ms, Rank { step: self.step, order: None });
        queue.note_ready(now_ms, self.step);
        Ok(())
    }

    /// That rows hold these topics, and no others.
    pub(super) fn check_topics(
        &self,
        sight: &Sight<'_>,
        tenant: TenantId,
    ) -> Result<(), Difference> {
        let mine = || self.topics.iter().filter(|topic| topic.name.0 == tenant);
        let rows = |kind| sight.rows.scan(&Scan::prefix(&machine_key(MACHINE, kind, tenant)));
        same("topics", &mine().count(), &rows(b't').len())?;
        let published = mine().filter(|topic| topic.last_sequence > 0).count();
        same("topics that something was published to", &published, &rows(b'u').len())?;
        for topic in mine() {
            let row = sight.rows.get(&queue::topic_row(tenant, &topic.name.1));
            let row = row.map(|row: Bytes| queue::topic(&row));
            let Topic { number, created_ms, ref subscriptions, .. } = *topic;
            let subscriptions = subscriptions.clone();
            let expected = queue::Topic { number, created_ms, subscriptions };
            same(&format!("topic {}", topic.name.1), &Some(expected), &row)?;
        }
        Ok(())
    }

    /// How many topics a tenant has here.
    pub(super) fn topic_count(&self, tenant: TenantId) -> u64 {
        self.topics.iter().filter(|topic| topic.name.0 == tenant).count() as u64
    }
}
