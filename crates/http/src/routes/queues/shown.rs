//! How messages are shown, whether they were taken or looked at.

use std::collections::BTreeMap;

use queue::parcel::{Body, Parcel};
use queue::{Delivery, Looked, PeekState, Peeked, Story};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::queues::parcel::{BodyAsJson, attribute_to_json};
use crate::queues::{message_id, receipt_handle};
use crate::time::{Rfc3339, rfc3339};

/// A message.
#[derive(Serialize, ToSchema)]
pub(super) struct MessageView {
    #[serde(flatten)]
    about: AboutMessage,
    /// As sent.
    #[schema(value_type = Object)]
    body: BodyAsJson,
}

/// What is known of a message besides its body.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AboutMessage {
    message_id: String,
    /// What acks it. Only of a message that was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_handle: Option<String>,
    /// How often it has been received.
    receive_count: u32,
    /// Its place in the order of the queue.
    sequence: u64,
    #[schema(value_type = String)]
    sent_at: Rfc3339,
    /// When its time comes: of one that is `delayed`, or waits to be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    visible_at: Option<Rfc3339>,
    /// When the lease ends that somebody has: of one that was looked at `inflight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    lease_ends_at: Option<Rfc3339>,
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
    /// What a consumer last said of it; else how its last lease ended.
    last_reason: Option<String>,
    /// When it came to this queue.
    moved_at: String,
    /// Its group where it died, also if this queue has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group_id: Option<String>,
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
            moved_at: rfc3339(story.moved_ms).to_string(),
            message_group_id: story.group,
        }
    }
}

impl MessageView {
    /// Of a message that was looked at in this state, and what is in it.
    pub(super) fn of_looked(state: PeekState, (looked, parcel): (Looked, Parcel)) -> MessageView {
        let mut view = MessageView::of((looked.peeked, parcel));
        let until = looked.until_ms.map(rfc3339);
        match state {
            PeekState::Visible => {}
            PeekState::Delayed => view.about.visible_at = until,
            PeekState::Leased => view.about.lease_ends_at = until,
        }
        view
    }

    fn of((peeked, parcel): (Peeked, Parcel)) -> MessageView {
        let trace_id = parcel.trace_id().map(|id| format!("{id:032x}"));
        let is_binary = matches!(parcel.body, Body::Binary(_));
        let attributes = parcel.attributes.into_iter();
        let about = AboutMessage {
            message_id: message_id(peeked.id),
            receipt_handle: None,
            receive_count: peeked.receives,
            sequence: peeked.sequence,
            sent_at: rfc3339(peeked.sent_ms),
            visible_at: None,
            lease_ends_at: None,
            body_encoding: is_binary.then_some("base64"),
            attributes: attributes.map(|(name, value)| (name, attribute_to_json(&value))).collect(),
            message_group_id: peeked.group,
            trace_id,
            last_reason: peeked.reason,
            dead_letter: peeked.story.map(DeadLetterView::from),
        };
        MessageView { about, body: BodyAsJson(parcel.body) }
    }

    /// Of a message that was received, and what is in it.
    pub(super) fn of_delivery((delivery, opened): (Delivery, Parcel)) -> MessageView {
        let handle = receipt_handle(&delivery.receipt);
        let Delivery { id, sequence, receives, sent_ms, group, parcel, story, .. } = delivery;
        let seen = Peeked { id, sequence, sent_ms, receives, reason: None, group, story, parcel };
        let mut view = MessageView::of((seen, opened));
        view.about.receipt_handle = Some(handle);
        view
    }
}

/// What a message takes in an answer besides its body, about.
const ABOUT_BYTES: usize = 400;

impl MessageView {
    /// About so many bytes as JSON.
    pub(super) fn bytes(&self) -> usize {
        ABOUT_BYTES + self.body.0.bytes().len()
    }

    /// As it would be serialised, several times as fast: a receive is mostly bodies.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, &self.about).expect("plain data serialises");
        let closed = out.pop();
        debug_assert_eq!(closed, Some(b'}'), "an object ends so");
        out.extend_from_slice(b",\"body\":");
        self.body.put(out);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_reads_as_what_is_serialised() {
        let id = queue::MessageId { shard: 1, queue: 2, sequence: 3 };
        for body in ["text", "\"quoted\" and \n more", ""] {
            for body in [Body::Text(body.into()), Body::Json("{\"a\": 1.50}".into())] {
                let mut parcel = Parcel::new(body);
                let attribute = queue::parcel::Attribute::text("Number", "7");
                parcel.attributes.insert("weight".into(), attribute);
                let peeked = Peeked {
                    id,
                    sequence: 3,
                    sent_ms: 1_700_000_000_000,
                    receives: 1,
                    reason: Some("late".into()),
                    group: Some("g".into()),
                    story: None,
                    parcel: parcel.encode(),
                };
                let looked = Looked { peeked, until_ms: Some(1_700_000_030_000) };
                let view = MessageView::of_looked(PeekState::Leased, (looked, parcel));
                let mut put = Vec::new();
                view.put(&mut put);
                let put: Value = serde_json::from_slice(&put).expect("JSON");
                assert_eq!(put, serde_json::to_value(&view).expect("JSON"));
            }
        }
    }
}
