//! What is done to messages, but for receiving them.

use std::borrow::Cow;

use queue::parcel::{Attribute, AttributeValue, Body, Parcel};
use queue::{
    Ack, Command, Definition, Extend, Mode, NewMessage, Reply, SendRefusal, Sent, Settled,
};
use sqs::select::MessageSystemName as Name;
use sqs::value::{Blob, MessageAttributeValue};
use sqs::{ActionName, ErrorKind, Output, SqsError, input, output};

use super::{Session, refused};
use crate::aside::by_bytes;
use crate::queues::large;
use crate::queues::parcel::{dedup_in, dedup_of_body, dedup_of_key};
use crate::queues::service::{self, NotSent};
use crate::queues::{message_id, receipt};

fn attribute(value: &MessageAttributeValue) -> Attribute {
    let data_type = value.data_type.clone();
    let value = if value.is_binary() {
        let bytes = value.binary_value.as_ref().map(|Blob(bytes)| bytes.to_vec());
        AttributeValue::Binary(bytes.unwrap_or_default())
    } else {
        AttributeValue::Text(value.string_value.clone().unwrap_or_default())
    };
    Attribute { data_type, value }
}

/// A message on its way in: what of it is the same alone and in a batch.
struct Outgoing {
    entry: input::SendMessageBatchRequestEntry,
    packed: Result<large::Outgoing, SqsError>,
    /// Of the body, for its sender.
    md5: String,
}

/// Who sends, and in which trace.
struct Sender {
    name: Cow<'static, str>,
    trace_id: Option<u128>,
}

/// Packs messages of which this has nothing to say, and hashes their bodies.
async fn outgoing(
    definition: Definition,
    sender: Sender,
    entries: Vec<input::SendMessageBatchRequestEntry>,
    check: fn(&input::SendMessageBatchRequestEntry) -> Result<(), SqsError>,
) -> Vec<Outgoing> {
    let bytes = entries.iter().map(|entry| entry.message_body.len()).sum();
    let one = move |entry: input::SendMessageBatchRequestEntry| {
        let packed = check(&entry).and_then(|()| packed(&definition, &sender, &entry));
        Outgoing { packed, md5: sqs::digest::body(&entry.message_body), entry }
    };
    by_bytes(bytes, move || entries.into_iter().map(one).collect()).await
}

fn packed(
    definition: &Definition,
    sender: &Sender,
    entry: &input::SendMessageBatchRequestEntry,
) -> Result<large::Outgoing, SqsError> {
    let settings = &definition.settings;
    let mut parcel = Parcel::new(Body::Text(entry.message_body.clone())).traced(sender.trace_id);
    let pairs = entry.message_attributes.iter();
    parcel.attributes = pairs.map(|(name, value)| (name.clone(), attribute(value))).collect();
    let system = entry.message_system_attributes.iter();
    parcel.system = system.map(|(name, value)| (name.clone(), attribute(value))).collect();
    let name = Attribute::text("String", sender.name.as_ref());
    parcel.system.insert(Name::SenderId.as_str().to_owned(), name);
    let max = usize::try_from(settings.max_body_bytes).unwrap_or(usize::MAX);
    sqs::validate::size(parcel.counted_bytes(), max)?;
    let group = entry.message_group_id.as_deref();
    let dedup_id = entry.message_deduplication_id.as_deref();
    let dedup = match settings.mode {
        Mode::Fifo => {
            let (dedup, id) = fifo_dedup(definition, entry)?;
            // Also where the body stands for it: other queues it may go to do not know that.
            let name = Name::MessageDeduplicationId.as_str().to_owned();
            parcel.system.insert(name, Attribute::text("String", id));
            Some(dedup)
        }
        Mode::Standard if dedup_id.is_some() => {
            let why = "The request include parameter that is not valid for this queue type";
            return Err(SqsError::value(
                dedup_id.unwrap_or_default(),
                "MessageDeduplicationId",
                why,
            ));
        }
        Mode::Standard => settings.dedup_by_body.then(|| dedup_of_body(&parcel.body)),
    };
    let group = group.map(str::to_owned);
    let group = match settings.mode {
        Mode::Fifo => group,
        Mode::Standard => {
            // Without meaning to a queue without order, but the receiver may want it.
            if let Some(group) = group {
                let name = Name::MessageGroupId.as_str().to_owned();
                parcel.system.insert(name, Attribute::text("String", &group));
            }
            None
        }
    };
    let delay = entry.delay_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let delay_ms = delay.map(|seconds| seconds * 1000);
    let packed = large::Outgoing::new(parcel, settings);
    let mut packed = packed.map_err(|_| not_taken(SendRefusal::TooLarge))?;
    packed.message = NewMessage { delay_ms, group, dedup, ..packed.message };
    Ok(packed)
}

/// What tells a message sent twice, and the id that it was made of.
fn fifo_dedup(
    definition: &Definition,
    entry: &input::SendMessageBatchRequestEntry,
) -> Result<([u8; 16], String), SqsError> {
    let group = sqs::validate::group(entry, definition.settings.dedup_by_body)?;
    if entry.delay_seconds.is_some_and(|seconds| seconds != 0) {
        let why = "The request include parameter that is not valid for this queue type";
        return Err(SqsError::value(entry.delay_seconds.unwrap_or(0), "DelaySeconds", why));
    }
    let of_body = || sqs::digest::deduplication_id(entry.message_body.as_bytes());
    let id = entry.message_deduplication_id.clone().unwrap_or_else(of_body);
    Ok((dedup_in(&definition.settings, Some(group), dedup_of_key(&id)), id))
}

fn not_taken(refusal: SendRefusal) -> SqsError {
    match refusal {
        SendRefusal::Messages => ErrorKind::OverLimit
            .because("The queue holds as many messages as it may; try again in 1000 ms"),
        SendRefusal::Bytes => ErrorKind::OverLimit
            .because("The queue holds as many bytes as it may; try again in 1000 ms"),
        SendRefusal::Age => ErrorKind::OverLimit.because(
            "The oldest message has waited for longer than the queue's maxAgeSeconds allows; \
             try again in 1000 ms",
        ),
        SendRefusal::GroupMissing => SqsError::missing("MessageGroupId"),
        SendRefusal::TooLarge => {
            ErrorKind::InvalidParameterValue.because("The message is too large.")
        }
        SendRefusal::NotReserved => ErrorKind::ServiceUnavailable
            .because("The body came to the archive too late; try again in 1000 ms"),
        SendRefusal::GroupUnexpected => {
            ErrorKind::InvalidParameterValue.because("Only a FIFO queue has groups.")
        }
    }
}

fn not_sent(why: NotSent) -> SqsError {
    match why {
        NotSent::NotTaken(refusal) => not_taken(refusal),
        NotSent::Refused(refusal) => refused(refusal),
        NotSent::Failed(problem) => super::refusal(problem),
    }
}

/// What a client compares and keeps of a message it has sent.
fn sent_entry(
    mode: Mode,
    entry: &input::SendMessageBatchRequestEntry,
    md5: String,
    sent: Sent,
) -> output::SendMessageBatchResultEntry {
    output::SendMessageBatchResultEntry {
        id: entry.id.clone(),
        message_id: message_id(sent.id),
        md5_of_message_body: md5,
        md5_of_message_attributes: sqs::digest::attributes(&entry.message_attributes),
        md5_of_message_system_attributes: sqs::digest::attributes(&entry.message_system_attributes),
        sequence_number: (mode == Mode::Fifo).then(|| format!("{:020}", sent.sequence)),
    }
}

impl Session<'_> {
    fn as_sender(&self) -> Sender {
        Sender { name: self.sender(), trace_id: self.trace_id }
    }

    /// Sends what can be sent; an outcome for each.
    async fn send_all(
        &self,
        to: (&str, Option<u32>),
        mode: Mode,
        messages: Vec<Outgoing>,
    ) -> Result<Vec<Result<output::SendMessageBatchResultEntry, SqsError>>, SqsError> {
        let good: Vec<_> = messages
            .iter()
            .enumerate()
            .filter_map(|(place, message)| Some((place, message.packed.as_ref().ok()?.clone())))
            .collect();
        let sent = service::send(self.edge, &self.caller, to, None, good).await;
        let mut sent = sent.map_err(not_sent)?.into_iter();
        let outcome = |message: Outgoing| {
            message.packed?;
            let sent = sent.next().expect("an answer for each that was sent");
            let sent = sent.map_err(not_sent)?;
            Ok(sent_entry(mode, &message.entry, message.md5, sent))
        };
        Ok(messages.into_iter().map(outcome).collect())
    }

    pub(super) async fn send(&self, ask: input::SendMessage) -> Result<Output, SqsError> {
        let (name, definition) = self.queue(&ask.queue_url).await?;
        let entry = input::SendMessageBatchRequestEntry {
            id: String::new(),
            message_body: ask.message_body,
            delay_seconds: ask.delay_seconds,
            message_attributes: ask.message_attributes,
            message_system_attributes: ask.message_system_attributes,
            message_deduplication_id: ask.message_deduplication_id,
            message_group_id: ask.message_group_id,
        };
        let mode = definition.settings.mode;
        let to = (name, definition.settings.max_publish_per_second);
        // What is wrong with it in any queue has been said.
        let messages = outgoing(definition, self.as_sender(), vec![entry], |_| Ok(())).await;
        let mut sent = self.send_all(to, mode, messages).await?;
        let sent = sent.pop().expect("one for one")?;
        Ok(output::SendMessageResult {
            md5_of_message_body: Some(sent.md5_of_message_body),
            md5_of_message_attributes: sent.md5_of_message_attributes,
            md5_of_message_system_attributes: sent.md5_of_message_system_attributes,
            message_id: Some(sent.message_id),
            sequence_number: sent.sequence_number,
        }
        .into())
    }

    pub(super) async fn send_batch(
        &self,
        ask: input::SendMessageBatch,
    ) -> Result<Output, SqsError> {
        let (name, definition) = self.queue(&ask.queue_url).await?;
        let max = usize::try_from(definition.settings.max_body_bytes).unwrap_or(usize::MAX);
        sqs::validate::batch_size(&ask, max)?;
        let mode = definition.settings.mode;
        if mode == Mode::Fifo {
            for entry in &ask.entries {
                sqs::validate::group(entry, definition.settings.dedup_by_body)?;
            }
        }
        let ids: Vec<_> = ask.entries.iter().map(|entry| entry.id.clone()).collect();
        let check = sqs::validate::send_entry;
        let to = (name, definition.settings.max_publish_per_second);
        let messages = outgoing(definition, self.as_sender(), ask.entries, check).await;
        let outcomes = self.send_all(to, mode, messages).await?;
        let mut result = output::SendMessageBatchResult::default();
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            match outcome {
                Ok(entry) => result.successful.push(entry),
                Err(error) => result.failed.push(error.entry(id)),
            }
        }
        Ok(result.into())
    }

    /// What came of each handle.
    async fn settle(
        &self,
        name: &str,
        handles: &[&str],
        command: impl FnOnce(Vec<queue::Receipt>) -> Command,
    ) -> Result<Vec<Settled>, SqsError> {
        let receipts: Vec<_> = handles.iter().map(|handle| receipt(handle)).collect();
        let good = receipts.iter().flatten().copied().collect();
        let Reply::Settled(settled) = self.submit(name, &command(good)).await? else {
            unreachable!("a settling is answered with Settled");
        };
        let mut settled = settled.into_iter();
        let outcome = |receipt: Option<_>| {
            receipt.map_or(Settled::Forged, |_| settled.next().expect("an answer for each"))
        };
        Ok(receipts.into_iter().map(outcome).collect())
    }

    async fn delete_all(&self, url: &str, handles: &[&str]) -> Result<Vec<Outcome>, SqsError> {
        let (name, definition) = self.queue(url).await?;
        let ack = |receipts| Command::Ack(Ack { queue: name.to_owned(), receipts });
        let settled = self.settle(name, handles, ack).await?;
        let outcome = |(settled, handle): (Settled, &&str)| match settled {
            Settled::Done => Ok(()),
            Settled::Forged => Err(invalid_handle(handle)),
            // What is gone is gone: deleting it twice is no mistake. But a message of a group must
            // not be thought to be done when it was given to somebody else.
            Settled::Stale if definition.settings.mode == Mode::Standard => Ok(()),
            Settled::Stale => {
                Err(SqsError::value(handle, "ReceiptHandle", "The receipt handle has expired."))
            }
        };
        Ok(settled.into_iter().zip(handles).map(outcome).collect())
    }

    pub(super) async fn delete_message(
        &self,
        ask: input::DeleteMessage,
    ) -> Result<Output, SqsError> {
        self.delete_all(&ask.queue_url, &[&ask.receipt_handle]).await?.remove(0)?;
        Ok(Output::Nothing(ActionName::DeleteMessage))
    }

    pub(super) async fn delete_batch(
        &self,
        ask: input::DeleteMessageBatch,
    ) -> Result<Output, SqsError> {
        let handles: Vec<_> =
            ask.entries.iter().map(|entry| entry.receipt_handle.as_str()).collect();
        let outcomes = self.delete_all(&ask.queue_url, &handles).await?;
        let mut result = output::DeleteMessageBatchResult::default();
        for (entry, outcome) in ask.entries.iter().zip(outcomes) {
            match sqs::validate::delete_entry(entry).and(outcome) {
                Ok(()) => {
                    let id = entry.id.clone();
                    result.successful.push(output::DeleteMessageBatchResultEntry { id });
                }
                Err(error) => result.failed.push(error.entry(&entry.id)),
            }
        }
        Ok(result.into())
    }

    async fn change_one(
        &self,
        name: &str,
        handle: &str,
        seconds: i32,
    ) -> Result<Outcome, SqsError> {
        let visibility_ms = u64::try_from(seconds).unwrap_or(0) * 1000;
        let extend =
            |receipts| Command::Extend(Extend { queue: name.to_owned(), receipts, visibility_ms });
        let settled = self.settle(name, &[handle], extend).await?;
        Ok(match settled[0] {
            Settled::Done => Ok(()),
            Settled::Forged => Err(invalid_handle(handle)),
            Settled::Stale => Err(ErrorKind::MessageNotInflight.because(format!(
                "Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not \
                 exist or is not available for visibility timeout change."
            ))),
        })
    }

    pub(super) async fn change_visibility(
        &self,
        ask: input::ChangeMessageVisibility,
    ) -> Result<Output, SqsError> {
        let (name, _) = self.queue(&ask.queue_url).await?;
        self.change_one(name, &ask.receipt_handle, ask.visibility_timeout).await??;
        Ok(Output::Nothing(ActionName::ChangeMessageVisibility))
    }

    pub(super) async fn change_batch(
        &self,
        ask: input::ChangeMessageVisibilityBatch,
    ) -> Result<Output, SqsError> {
        let (name, _) = self.queue(&ask.queue_url).await?;
        let mut result = output::ChangeMessageVisibilityBatchResult::default();
        for entry in &ask.entries {
            let seconds = entry.visibility_timeout.unwrap_or(0);
            let outcome = match sqs::validate::visibility_entry(entry) {
                Ok(()) => self.change_one(name, &entry.receipt_handle, seconds).await?,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => {
                    let id = entry.id.clone();
                    result.successful.push(output::ChangeMessageVisibilityBatchResultEntry { id });
                }
                Err(error) => result.failed.push(error.entry(&entry.id)),
            }
        }
        Ok(result.into())
    }
}

/// Of one handle among several.
type Outcome = Result<(), SqsError>;

fn invalid_handle(handle: &str) -> SqsError {
    let shown: String = handle.chars().take(100).collect();
    ErrorKind::ReceiptHandleIsInvalid
        .because(format!("The input receipt handle \"{shown}\" is not a valid receipt handle."))
}
