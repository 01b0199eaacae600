//! The inputs of the 23 actions, under the names of the service model.
//!
//! What must be there is not an `Option`; what has a wrong value is found by [`crate::validate`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::value::{MessageAttributes, or_default};

/// Lets other accounts use a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AddPermission {
    /// The queue.
    pub queue_url: String,
    /// The permission's name.
    pub label: String,
    /// Who is allowed.
    #[serde(
        rename = "AWSAccountIds",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub aws_account_ids: Vec<String>,
    /// What is allowed.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
}

/// Stops a task that moves messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CancelMessageMoveTask {
    /// The task.
    pub task_handle: String,
}

/// Changes how long a message in flight stays hidden.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibility {
    /// The queue.
    pub queue_url: String,
    /// The receipt of the message.
    pub receipt_handle: String,
    /// Seconds that the message stays hidden.
    pub visibility_timeout: i32,
}

/// [`ChangeMessageVisibility`] for up to 10 messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibilityBatch {
    /// The queue.
    pub queue_url: String,
    /// 1 to 10.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<ChangeMessageVisibilityBatchRequestEntry>,
}

/// One of [`ChangeMessageVisibilityBatch`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeMessageVisibilityBatchRequestEntry {
    /// Unique in the batch.
    pub id: String,
    /// The receipt of the message.
    pub receipt_handle: String,
    /// Seconds that the message stays hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<i32>,
}

/// Makes a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateQueue {
    /// The queue's name.
    pub queue_name: String,
    /// Attributes by name.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Tags by key.
    #[serde(
        rename = "tags",
        alias = "Tags",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub tags: BTreeMap<String, String>,
}

/// Removes a message that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessage {
    /// The queue.
    pub queue_url: String,
    /// The receipt of the message.
    pub receipt_handle: String,
}

/// [`DeleteMessage`] for up to 10 messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessageBatch {
    /// The queue.
    pub queue_url: String,
    /// 1 to 10.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<DeleteMessageBatchRequestEntry>,
}

/// One of [`DeleteMessageBatch`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteMessageBatchRequestEntry {
    /// Unique in the batch.
    pub id: String,
    /// The receipt of the message.
    pub receipt_handle: String,
}

/// Removes a queue and its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteQueue {
    /// The queue.
    pub queue_url: String,
}

/// Looks at a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GetQueueAttributes {
    /// The queue.
    pub queue_url: String,
    /// Which attributes; see [`crate::select`].
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub attribute_names: Vec<String>,
}

/// Finds a queue by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GetQueueUrl {
    /// The queue's name.
    pub queue_name: String,
    /// The queue's account.
    #[serde(rename = "QueueOwnerAWSAccountId", skip_serializing_if = "Option::is_none")]
    pub queue_owner_aws_account_id: Option<String>,
}

/// Lists the queues whose dead letters come here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListDeadLetterSourceQueues {
    /// The queue.
    pub queue_url: String,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
    /// Length of a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_results: Option<i32>,
}

/// Lists tasks that move messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListMessageMoveTasks {
    /// The dead-letter queue.
    pub source_arn: String,
    /// Length of a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_results: Option<i32>,
}

/// Lists the tags of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListQueueTags {
    /// The queue.
    pub queue_url: String,
}

/// Lists queues by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListQueues {
    /// How names begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_name_prefix: Option<String>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
    /// Length of a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_results: Option<i32>,
}

/// Removes all messages of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PurgeQueue {
    /// The queue.
    pub queue_url: String,
}

/// Takes messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReceiveMessage {
    /// The queue.
    pub queue_url: String,
    /// Which attributes; see [`crate::select`].
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub attribute_names: Vec<String>,
    /// Which system attributes; the newer name of `AttributeNames`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub message_system_attribute_names: Vec<String>,
    /// Which attributes of users; see [`crate::select`].
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub message_attribute_names: Vec<String>,
    /// 1 to 10; 1 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_number_of_messages: Option<i32>,
    /// Seconds that the message stays hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<i32>,
    /// Seconds to wait for a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_time_seconds: Option<i32>,
    /// The same for an attempt that is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_request_attempt_id: Option<String>,
}

/// Takes back what [`AddPermission`] gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RemovePermission {
    /// The queue.
    pub queue_url: String,
    /// The permission's name.
    pub label: String,
}

/// Puts a message into a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessage {
    /// The queue.
    pub queue_url: String,
    /// The text.
    pub message_body: String,
    /// Seconds before it can be received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<i32>,
    /// Attributes of the user.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub message_attributes: MessageAttributes,
    /// Attributes of the system: `AWSTraceHeader`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub message_system_attributes: MessageAttributes,
    /// What is the same for duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_deduplication_id: Option<String>,
    /// The group, in whose order messages are received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_group_id: Option<String>,
}

/// [`SendMessage`] for up to 10 messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessageBatch {
    /// The queue.
    pub queue_url: String,
    /// 1 to 10.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<SendMessageBatchRequestEntry>,
}

/// One of [`SendMessageBatch`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SendMessageBatchRequestEntry {
    /// Unique in the batch.
    pub id: String,
    /// The text.
    pub message_body: String,
    /// Seconds before it can be received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<i32>,
    /// Attributes of the user.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub message_attributes: MessageAttributes,
    /// Attributes of the system: `AWSTraceHeader`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub message_system_attributes: MessageAttributes,
    /// What is the same for duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_deduplication_id: Option<String>,
    /// The group, in whose order messages are received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_group_id: Option<String>,
}

/// Changes a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SetQueueAttributes {
    /// The queue.
    pub queue_url: String,
    /// Attributes by name.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Moves dead letters back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StartMessageMoveTask {
    /// The dead-letter queue.
    pub source_arn: String,
    /// Where messages go; to their sources when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_arn: Option<String>,
    /// The rate of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_number_of_messages_per_second: Option<i32>,
}

/// Adds tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagQueue {
    /// The queue.
    pub queue_url: String,
    /// Tags by key.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Removes tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UntagQueue {
    /// The queue.
    pub queue_url: String,
    /// The keys of the tags.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub tag_keys: Vec<String>,
}
