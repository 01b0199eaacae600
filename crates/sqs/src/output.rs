//! The outputs of the actions that have one, under the names of the service model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::value::{MessageAttributes, or_default};

/// Of [`crate::input::CancelMessageMoveTask`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CancelMessageMoveTaskResult {
    /// Messages moved so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approximate_number_of_messages_moved: Option<i64>,
}

/// Of [`crate::input::ChangeMessageVisibilityBatch`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibilityBatchResult {
    /// Entries that succeeded.
    #[serde(default, deserialize_with = "or_default")]
    pub successful: Vec<ChangeMessageVisibilityBatchResultEntry>,
    /// Entries that did not.
    #[serde(default, deserialize_with = "or_default")]
    pub failed: Vec<BatchResultErrorEntry>,
}

/// An entry that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibilityBatchResultEntry {
    /// Unique in the batch.
    pub id: String,
}

/// An entry that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BatchResultErrorEntry {
    /// Unique in the batch.
    pub id: String,
    /// Whether it is the client's fault.
    pub sender_fault: bool,
    /// The query code of the error.
    pub code: String,
    /// What, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Of [`crate::input::CreateQueue`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateQueueResult {
    /// The queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_url: Option<String>,
}

/// Of [`crate::input::DeleteMessageBatch`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessageBatchResult {
    /// Entries that succeeded.
    #[serde(default, deserialize_with = "or_default")]
    pub successful: Vec<DeleteMessageBatchResultEntry>,
    /// Entries that did not.
    #[serde(default, deserialize_with = "or_default")]
    pub failed: Vec<BatchResultErrorEntry>,
}

/// An entry that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessageBatchResultEntry {
    /// Unique in the batch.
    pub id: String,
}

/// Of [`crate::input::GetQueueAttributes`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GetQueueAttributesResult {
    /// Attributes by name.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Of [`crate::input::GetQueueUrl`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GetQueueUrlResult {
    /// The queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_url: Option<String>,
}

/// Of [`crate::input::ListDeadLetterSourceQueues`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListDeadLetterSourceQueuesResult {
    /// The queues.
    #[serde(rename = "queueUrls", default, deserialize_with = "or_default")]
    pub queue_urls: Vec<String>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// Of [`crate::input::ListMessageMoveTasks`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListMessageMoveTasksResult {
    /// The newest first.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ListMessageMoveTasksResultEntry>,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListMessageMoveTasksResultEntry {
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_handle: Option<String>,
    /// `RUNNING`, `COMPLETED`, `CANCELLING`, `CANCELLED` or `FAILED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The dead-letter queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_arn: Option<String>,
    /// Where messages go; to their sources when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_arn: Option<String>,
    /// The rate of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_number_of_messages_per_second: Option<i32>,
    /// Messages moved so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approximate_number_of_messages_moved: Option<i64>,
    /// Messages there were at the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approximate_number_of_messages_to_move: Option<i64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// When it began, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_timestamp: Option<i64>,
}

/// Of [`crate::input::ListQueueTags`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListQueueTagsResult {
    /// Tags by key.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Of [`crate::input::ListQueues`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListQueuesResult {
    /// The queues.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub queue_urls: Vec<String>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// Of [`crate::input::ReceiveMessage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReceiveMessageResult {
    /// The messages.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
}

/// A message as it is received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Message {
    /// The message's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The receipt of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_handle: Option<String>,
    /// See [`crate::digest::body`].
    #[serde(rename = "MD5OfBody", skip_serializing_if = "Option::is_none")]
    pub md5_of_body: Option<String>,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Attributes by name.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// See [`crate::digest::attributes`].
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_attributes: Option<String>,
    /// Attributes of the user.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub message_attributes: MessageAttributes,
}

/// Of [`crate::input::SendMessage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessageResult {
    /// See [`crate::digest::body`].
    #[serde(rename = "MD5OfMessageBody", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_body: Option<String>,
    /// See [`crate::digest::attributes`].
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_attributes: Option<String>,
    /// See [`crate::digest::attributes`].
    #[serde(rename = "MD5OfMessageSystemAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_system_attributes: Option<String>,
    /// The message's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Its place in a FIFO queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<String>,
}

/// Of [`crate::input::SendMessageBatch`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessageBatchResult {
    /// Entries that succeeded.
    #[serde(default, deserialize_with = "or_default")]
    pub successful: Vec<SendMessageBatchResultEntry>,
    /// Entries that did not.
    #[serde(default, deserialize_with = "or_default")]
    pub failed: Vec<BatchResultErrorEntry>,
}

/// An entry that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessageBatchResultEntry {
    /// Unique in the batch.
    pub id: String,
    /// The message's id.
    pub message_id: String,
    /// See [`crate::digest::body`].
    #[serde(rename = "MD5OfMessageBody")]
    pub md5_of_message_body: String,
    /// See [`crate::digest::attributes`].
    #[serde(rename = "MD5OfMessageAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_attributes: Option<String>,
    /// See [`crate::digest::attributes`].
    #[serde(rename = "MD5OfMessageSystemAttributes", skip_serializing_if = "Option::is_none")]
    pub md5_of_message_system_attributes: Option<String>,
    /// Its place in a FIFO queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<String>,
}

/// Of [`crate::input::StartMessageMoveTask`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StartMessageMoveTaskResult {
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_handle: Option<String>,
}
