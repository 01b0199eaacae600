//! What a receiver gets.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kernel::IdempotencyKey;
use kernel::id::digest;
use queue::parcel::{Attribute, AttributeValue, Body, Parcel};
use queue::{Command, Definition, Delivery, Extend, Mode, Receive, Refusal, Reply, Settled};
use sqs::select::{MessageSystemName as Name, MessageSystemSelection, wants_message_attribute};
use sqs::validate::is_allowed;
use sqs::value::{Blob, MessageAttributeValue, MessageAttributes};
use sqs::{Output, Protocol, SqsError, input, output};

use super::{Session, refused, unavailable};
use crate::aside::by_bytes;
use crate::queues::large::{self, Source, Whole};
use crate::queues::service::Leased;
use crate::queues::{message_id, receipt_handle, service};

/// How long a receive can be repeated under its attempt's id.
const ATTEMPT_MS: u64 = 5 * 60 * 1000;
/// How often what an attempt takes is remembered; more often, nobody repeats one in five minutes.
const FRESH_MAX: usize = 8;

fn attribute_value(attribute: &Attribute, protocol: Protocol) -> MessageAttributeValue {
    let mut value = MessageAttributeValue {
        data_type: carried(attribute.data_type.clone(), protocol),
        ..Default::default()
    };
    match &attribute.value {
        AttributeValue::Text(text) => value.string_value = Some(carried(text.clone(), protocol)),
        AttributeValue::Binary(bytes) => value.binary_value = Some(Blob(bytes.clone().into())),
    }
    value
}

/// A text as its receiver reads it, whose checksum is of that: XML has no way to say some characters,
/// and what is sent by another way than this dialect may hold any.
fn carried(text: String, protocol: Protocol) -> String {
    if is_sayable(&text, protocol) {
        return text;
    }
    let sayable = |c| if is_allowed(c) { c } else { char::REPLACEMENT_CHARACTER };
    text.chars().map(sayable).collect()
}

fn is_sayable(text: &str, protocol: Protocol) -> bool {
    protocol == Protocol::Json || text.chars().all(is_allowed)
}

/// A message as its receiver reads it, but for its system attributes; hashes it.
fn shown(
    delivery: &Delivery,
    mut parcel: Parcel,
    names: &[String],
    protocol: Protocol,
) -> output::Message {
    // A name is not replaced in part: it could be another's then.
    let chosen = parcel
        .attributes
        .iter()
        .filter(|(name, _)| wants_message_attribute(names, name) && is_sayable(name, protocol));
    let shown =
        |(name, value): (&String, &Attribute)| (name.clone(), attribute_value(value, protocol));
    let message_attributes: MessageAttributes = chosen.map(shown).collect();
    let body = match &mut parcel.body {
        Body::Text(text) | Body::Json(text) => carried(std::mem::take(text), protocol),
        Body::Binary(bytes) => STANDARD.encode(bytes),
    };
    output::Message {
        message_id: Some(message_id(delivery.id)),
        receipt_handle: Some(receipt_handle(&delivery.receipt)),
        md5_of_body: Some(sqs::digest::body(&body)),
        body: Some(body),
        attributes: BTreeMap::new(),
        md5_of_message_attributes: sqs::digest::attributes(&message_attributes),
        message_attributes,
    }
}

impl Session<'_> {
    pub(super) async fn receive(&self, ask: input::ReceiveMessage) -> Result<Output, SqsError> {
        let wanted = MessageSystemSelection::parse(
            &ask.attribute_names,
            &ask.message_system_attribute_names,
        )?;
        let (name, definition) = self.queue(&ask.queue_url).await?;
        let ms = |seconds: i32| u64::try_from(seconds).unwrap_or(0) * 1000;
        let wait_ms = ask.wait_time_seconds.map_or(definition.settings.wait_ms, ms);
        let receive = Receive {
            queue: name.to_owned(),
            max: u16::try_from(ask.max_number_of_messages.unwrap_or(1)).unwrap_or(1),
            visibility_ms: ask.visibility_timeout.map(ms),
        };
        let wait = Duration::from_millis(wait_ms);
        let attempt = ask.receive_request_attempt_id.as_deref();
        let leased = match attempt.filter(|_| definition.settings.mode == Mode::Fifo) {
            Some(attempt) => self.take_again(&definition, receive, wait, attempt).await?,
            None => self.take(&definition, receive, wait, None).await?,
        };
        let source = Source { tenant: self.caller.tenant, name, definition: &definition };
        let whole = large::handed_out(self.edge, source, leased).await;
        let Whole { messages, room } = whole.map_err(super::refusal)?;
        if let Some(room) = room {
            let _kept = self.room.set(room);
        }
        let bytes = messages.iter().map(|(_, parcel)| parcel.counted_bytes()).sum();
        let with_system = |(delivery, parcel): (Delivery, Parcel)| {
            let system = self.system_attributes(&delivery, &parcel, &wanted);
            (delivery, parcel, system)
        };
        let messages: Vec<_> = messages.into_iter().map(with_system).collect();
        let (names, protocol) = (ask.message_attribute_names, self.protocol);
        let show = move || {
            let one = |(delivery, parcel, system)| output::Message {
                attributes: system,
                ..shown(&delivery, parcel, &names, protocol)
            };
            messages.into_iter().map(one).collect()
        };
        let messages = by_bytes(bytes, show).await;
        Ok(output::ReceiveMessageResult { messages }.into())
    }

    /// Leases messages. Nobody is told that a queue with order has too many in flight: there is nothing
    /// for them until there is room, as at AWS.
    async fn take(
        &self,
        definition: &Definition,
        receive: Receive,
        wait: Duration,
        key: Option<IdempotencyKey>,
    ) -> Result<Leased, SqsError> {
        let received = service::receive(self.edge, &self.caller, definition, receive, wait, key);
        match received.await.map_err(super::refusal)? {
            Err(Refusal::Inflight) if definition.settings.mode == Mode::Fifo => {
                Ok(Leased::nothing())
            }
            other => other.map_err(refused),
        }
    }

    /// Takes what the same attempt took before, as far as it still has it, and those leases begin
    /// again: what was deleted, given back, or went to others, is not given again. When it has
    /// nothing any more it takes something new.
    async fn take_again(
        &self,
        definition: &Definition,
        receive: Receive,
        wait: Duration,
        attempt: &str,
    ) -> Result<Leased, SqsError> {
        let place = queue::place(self.caller.tenant, &receive.queue);
        let now = self.edge.node.now_ms() / ATTEMPT_MS;
        let current = self.attempt_key(definition, attempt, now);
        let mut fresh = None;
        // The first try may have been just before the present five minutes began. What it takes when
        // it has nothing any more is remembered under a further key.
        let earlier = self.attempt_key(definition, attempt, now.saturating_sub(1));
        let further = (0..FRESH_MAX).map(|part| service::part_of(current, part));
        for key in std::iter::once(earlier).chain(further) {
            let answered = self.edge.node.is_answered(place, Some(key));
            if !answered.await.map_err(unavailable)? {
                if key != earlier {
                    fresh = Some(key);
                    break;
                }
                continue;
            }
            let before = self.take(definition, receive.clone(), Duration::ZERO, Some(key)).await?;
            let before = self.begin_again(definition, &receive, before).await?;
            if !before.deliveries.is_empty() {
                return Ok(before);
            }
        }
        self.take(definition, receive, wait, fresh).await
    }

    fn attempt_key(&self, definition: &Definition, attempt: &str, window: u64) -> IdempotencyKey {
        let (tenant, number) = (self.caller.tenant.0, definition.number);
        let parts: [&[u8]; 4] = [
            &tenant.to_be_bytes(),
            &number.to_be_bytes(),
            &window.to_be_bytes(),
            attempt.as_bytes(),
        ];
        IdempotencyKey { key: digest(&parts), body: [0; 16] }
    }

    /// Those of these leases that are in force; they are as long as new ones then.
    async fn begin_again(
        &self,
        definition: &Definition,
        receive: &Receive,
        mut before: Leased,
    ) -> Result<Leased, SqsError> {
        let visibility_ms = receive.visibility_ms.unwrap_or(definition.settings.visibility_ms);
        if before.deliveries.is_empty() || visibility_ms == 0 {
            before.deliveries.clear();
            return Ok(before);
        }
        let receipts = before.deliveries.iter().map(|delivery| delivery.receipt).collect();
        let queue = receive.queue.clone();
        let extend = Command::Extend(Extend { queue, receipts, visibility_ms });
        let Reply::Settled(settled) = self.submit(&receive.queue, &extend).await? else {
            unreachable!("a settling is answered with Settled");
        };
        let mut settled = settled.iter();
        before.deliveries.retain(|_| settled.next() == Some(&Settled::Done));
        Ok(before)
    }

    fn system_attributes(
        &self,
        delivery: &Delivery,
        parcel: &Parcel,
        wanted: &MessageSystemSelection,
    ) -> BTreeMap<String, String> {
        let noted = |name: Name| match &parcel.system.get(name.as_str())?.value {
            AttributeValue::Text(text) => Some(text.clone()),
            AttributeValue::Binary(_) => None,
        };
        let value = |name: Name| match name {
            Name::SentTimestamp => Some(delivery.sent_ms.to_string()),
            Name::ApproximateReceiveCount => Some(delivery.receives.to_string()),
            Name::ApproximateFirstReceiveTimestamp => Some(delivery.first_received_ms.to_string()),
            Name::SequenceNumber => {
                delivery.group.as_ref().map(|_| format!("{:020}", delivery.sequence))
            }
            Name::MessageGroupId => delivery.group.clone().or_else(|| noted(name)),
            Name::DeadLetterQueueSourceArn => {
                delivery.story.as_ref().map(|story| self.arn(&story.queue))
            }
            Name::AWSTraceHeader | Name::MessageDeduplicationId | Name::SenderId => noted(name),
        };
        let asked = Name::ALL.iter().copied().filter(|name| wanted.has(*name));
        asked.filter_map(|name| Some((name.as_str().to_owned(), value(name)?))).collect()
    }
}
