//! How messages are shown, whether they were taken or looked at.

use std::collections::BTreeMap;

use queue::parcel::Parcel;
use queue::{Delivery, Peeked, Story};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::queues::parcel::{attribute_to_json, body_to_json};
use crate::queues::{message_id, receipt_handle};
use crate::time::rfc3339;

/// A message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageView {
    message_id: String,
    /// What acks it. Only of a message that was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_handle: Option<String>,
    /// How often it has been received.
    receive_count: u32,
    /// Its place in the order of the queue.
    sequence: u64,
    sent_at: String,
    /// As sent.
    #[schema(value_type = Object)]
    body: Box<RawValue>,
    /// `base64` when the body was not text, and is that here.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_encoding: Option<&'static str>,
    #[schema(value_type = Object)]
    attributes: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group_id: Option<String>,
    /// Of the request that sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    /// What was last said of it by a consumer that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<DeadLetterView>,
}

/// What became of a message before it came to a dead-letter queue.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetterView {
    original_queue: String,
    original_message_id: String,
    receive_count: u32,
    first_failed_at: String,
    last_failed_at: String,
    last_reason: Option<String>,
}

impl From<Story> for DeadLetterView {
    fn from(story: Story) -> DeadLetterView {
        DeadLetterView {
            original_queue: story.queue,
            original_message_id: message_id(story.id),
            receive_count: story.receives,
            first_failed_at: rfc3339(story.first_failed_ms).to_string(),
            last_failed_at: rfc3339(story.last_failed_ms).to_string(),
            last_reason: story.reason,
        }
    }
}

impl From<Peeked> for MessageView {
    fn from(peeked: Peeked) -> MessageView {
        let parcel = Parcel::decode(&peeked.parcel);
        let (body, base64) = body_to_json(&parcel.body);
        let attributes = parcel.attributes.iter();
        MessageView {
            message_id: message_id(peeked.id),
            receipt_handle: None,
            receive_count: peeked.receives,
            sequence: peeked.sequence,
            sent_at: rfc3339(peeked.sent_ms).to_string(),
            body,
            body_encoding: base64.then_some("base64"),
            attributes: attributes
                .map(|(name, value)| (name.clone(), attribute_to_json(value)))
                .collect(),
            message_group_id: peeked.group,
            trace_id: parcel.trace_id().map(|id| format!("{id:032x}")),
            last_reason: peeked.reason,
            dead_letter: peeked.story.map(DeadLetterView::from),
        }
    }
}

impl From<Delivery> for MessageView {
    fn from(delivery: Delivery) -> MessageView {
        let handle = receipt_handle(&delivery.receipt);
        let Delivery { id, sequence, receives, sent_ms, group, parcel, story, .. } = delivery;
        let seen = Peeked { id, sequence, sent_ms, receives, reason: None, group, story, parcel };
        MessageView { receipt_handle: Some(handle), ..MessageView::from(seen) }
    }
}
