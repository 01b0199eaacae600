//! The attributes of a queue, typed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize};

use crate::arn::QueueArn;
use crate::error::{ErrorKind, SqsError};
use crate::limits;
use crate::select::{QueueAttributeName as Name, unknown};
use crate::validate::is_fifo_name;

/// An attribute that empty text takes away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting<T> {
    /// It was empty.
    Cleared,
    /// It has a value.
    Set(T),
}

/// What `CreateQueue` and `SetQueueAttributes` give; `None` where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAttributes {
    /// Seconds before a new message can be received.
    pub delay_seconds: Option<u32>,
    /// Bytes of the largest message.
    pub maximum_message_size: Option<u32>,
    /// Seconds that a message is kept.
    pub message_retention_period: Option<u32>,
    /// Seconds that receiving waits.
    pub receive_message_wait_time_seconds: Option<u32>,
    /// Seconds that a received message stays hidden.
    pub visibility_timeout: Option<u32>,
    /// Where dead letters go.
    pub redrive_policy: Option<Setting<RedrivePolicy>>,
    /// Whose dead letters may come here.
    pub redrive_allow_policy: Option<Setting<RedriveAllowPolicy>>,
    /// Who may do what: JSON, but not looked into.
    pub policy: Option<Setting<String>>,
    /// Whether it is a FIFO queue.
    pub fifo_queue: Option<bool>,
    /// Whether the body stands for a missing deduplication id.
    pub content_based_deduplication: Option<bool>,
    /// What a deduplication id is unique in.
    pub deduplication_scope: Option<DeduplicationScope>,
    /// What the limit of throughput is for.
    pub fifo_throughput_limit: Option<FifoThroughputLimit>,
    /// The key that messages are encrypted with.
    pub kms_master_key_id: Option<Setting<String>>,
    /// Seconds that a data key is used again.
    pub kms_data_key_reuse_period_seconds: Option<u32>,
    /// Whether messages are encrypted with a key of the service.
    pub sqs_managed_sse_enabled: Option<bool>,
}

/// Where messages go that were received too often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedrivePolicy {
    /// The dead-letter queue.
    pub dead_letter_target_arn: String,
    /// 1 to 1000. Clients write it as a number or as text.
    #[serde(deserialize_with = "number_or_text")]
    pub max_receive_count: u32,
}

/// Which queues may have this one as their dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedriveAllowPolicy {
    /// All, none, or those listed.
    pub redrive_permission: RedrivePermission,
    /// The list; up to 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_queue_arns: Vec<String>,
}

/// See [`RedriveAllowPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RedrivePermission {
    /// Every queue of the account.
    AllowAll,
    /// No queue.
    DenyAll,
    /// Queues that are listed.
    ByQueue,
}

/// What a deduplication id is unique in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeduplicationScope {
    /// `messageGroup`.
    MessageGroup,
    /// `queue`.
    Queue,
}

/// What the limit of throughput is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FifoThroughputLimit {
    /// `perMessageGroupId`.
    PerMessageGroupId,
    /// `perQueue`.
    PerQueue,
}

impl QueueAttributes {
    /// Reads attributes that can be set.
    pub fn parse(map: &BTreeMap<String, String>) -> Result<QueueAttributes, SqsError> {
        let mut attributes = QueueAttributes::default();
        for (name, value) in map {
            let known = Name::parse(name).ok_or_else(|| unknown(name))?;
            attributes.set(known, value)?;
        }
        Ok(attributes)
    }

    fn set(&mut self, name: Name, value: &str) -> Result<(), SqsError> {
        let number = |allowed: RangeInclusive<i64>| {
            let parsed = value.parse().ok().filter(|v: &u32| allowed.contains(&i64::from(*v)));
            parsed.map(Some).ok_or_else(|| wrong(name))
        };
        match name {
            Name::DelaySeconds => self.delay_seconds = number(limits::DELAY_SECONDS)?,
            Name::MaximumMessageSize => {
                self.maximum_message_size = number(limits::MAXIMUM_MESSAGE_SIZE)?;
            }
            Name::MessageRetentionPeriod => {
                self.message_retention_period = number(limits::RETENTION_SECONDS)?;
            }
            Name::ReceiveMessageWaitTimeSeconds => {
                self.receive_message_wait_time_seconds = number(limits::WAIT_SECONDS)?;
            }
            Name::VisibilityTimeout => {
                self.visibility_timeout = number(limits::VISIBILITY_SECONDS)?
            }
            Name::KmsDataKeyReusePeriodSeconds => {
                self.kms_data_key_reuse_period_seconds = number(limits::KMS_REUSE_SECONDS)?;
            }
            Name::FifoQueue => self.fifo_queue = Some(flag(name, value)?),
            Name::ContentBasedDeduplication => {
                self.content_based_deduplication = Some(flag(name, value)?);
            }
            Name::SqsManagedSseEnabled => self.sqs_managed_sse_enabled = Some(flag(name, value)?),
            Name::DeduplicationScope => self.deduplication_scope = Some(scope(value)?),
            Name::FifoThroughputLimit => self.fifo_throughput_limit = Some(throughput(value)?),
            Name::KmsMasterKeyId => {
                self.kms_master_key_id = Some(setting(value, |text| Ok(text.to_owned()))?);
            }
            Name::Policy => self.policy = Some(setting(value, policy)?),
            Name::RedrivePolicy => self.redrive_policy = Some(setting(value, redrive)?),
            Name::RedriveAllowPolicy => {
                self.redrive_allow_policy = Some(setting(value, redrive_allow)?);
            }
            Name::ApproximateNumberOfMessages
            | Name::ApproximateNumberOfMessagesDelayed
            | Name::ApproximateNumberOfMessagesNotVisible
            | Name::CreatedTimestamp
            | Name::LastModifiedTimestamp
            | Name::QueueArn => return Err(unknown(name.as_str())),
        }
        Ok(())
    }

    /// What goes together in a new queue.
    pub fn check_new(&self, queue_name: &str) -> Result<(), SqsError> {
        let is_fifo = self.fifo_queue == Some(true);
        if is_fifo && !is_fifo_name(queue_name) {
            return Err(ErrorKind::InvalidParameterValue.because(
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or \
                 underscores, must end with .fifo suffix and be 1 to 80 in length",
            ));
        }
        if !is_fifo && is_fifo_name(queue_name) {
            return Err(ErrorKind::InvalidParameterValue.because(
                "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in \
                 length",
            ));
        }
        if !is_fifo {
            self.check_standard()?;
        }
        self.check_together()
    }

    /// What goes together in a change of a queue; `FifoQueue` cannot change.
    pub fn check_change(&self) -> Result<(), SqsError> {
        if self.fifo_queue == Some(false) {
            return Err(wrong(Name::FifoQueue));
        }
        self.check_together()
    }

    /// What only FIFO queues have: for a queue that is known to be none.
    pub fn check_standard(&self) -> Result<(), SqsError> {
        let fifo_only = [
            (Name::FifoQueue, self.fifo_queue == Some(true)),
            (Name::ContentBasedDeduplication, self.content_based_deduplication.is_some()),
            (Name::DeduplicationScope, self.deduplication_scope.is_some()),
            (Name::FifoThroughputLimit, self.fifo_throughput_limit.is_some()),
        ];
        match fifo_only.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => Err(unknown(name.as_str())),
            None => Ok(()),
        }
    }

    fn check_together(&self) -> Result<(), SqsError> {
        let is_managed = self.sqs_managed_sse_enabled == Some(true);
        if is_managed && matches!(self.kms_master_key_id, Some(Setting::Set(_))) {
            return Err(ErrorKind::InvalidAttributeName.because(
                "You can use one type of server-side encryption (SSE) at one time. You can either \
                 enable KMS SSE or SQS SSE.",
            ));
        }
        let per_group = self.fifo_throughput_limit == Some(FifoThroughputLimit::PerMessageGroupId);
        // One that is not named is the queue's, which is not known here.
        if per_group && self.deduplication_scope == Some(DeduplicationScope::Queue) {
            return Err(wrong(Name::FifoThroughputLimit));
        }
        Ok(())
    }
}

/// The attribute has a value it cannot have.
#[must_use]
pub fn wrong(name: Name) -> SqsError {
    let name = name.as_str();
    ErrorKind::InvalidAttributeValue.because(format!("Invalid value for the parameter {name}."))
}

fn flag(name: Name, value: &str) -> Result<bool, SqsError> {
    match value {
        _ if value.eq_ignore_ascii_case("true") => Ok(true),
        _ if value.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(wrong(name)),
    }
}

fn scope(value: &str) -> Result<DeduplicationScope, SqsError> {
    match value {
        "messageGroup" => Ok(DeduplicationScope::MessageGroup),
        "queue" => Ok(DeduplicationScope::Queue),
        _ => Err(wrong(Name::DeduplicationScope)),
    }
}

fn throughput(value: &str) -> Result<FifoThroughputLimit, SqsError> {
    match value {
        "perMessageGroupId" => Ok(FifoThroughputLimit::PerMessageGroupId),
        "perQueue" => Ok(FifoThroughputLimit::PerQueue),
        _ => Err(wrong(Name::FifoThroughputLimit)),
    }
}

fn setting<T>(
    value: &str,
    read: impl FnOnce(&str) -> Result<T, SqsError>,
) -> Result<Setting<T>, SqsError> {
    if value.is_empty() { Ok(Setting::Cleared) } else { read(value).map(Setting::Set) }
}

fn policy(text: &str) -> Result<String, SqsError> {
    let parsed: Result<serde_json::Map<_, _>, _> = serde_json::from_str(text);
    parsed.map(|_| text.to_owned()).map_err(|_| wrong(Name::Policy))
}

fn redrive(text: &str) -> Result<RedrivePolicy, SqsError> {
    let shown = || text.chars().take(1024).collect::<String>();
    let refused = |reason: &str| SqsError::value(shown(), "RedrivePolicy", reason);
    let map: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text)
        .map_err(|_| refused("Redrive policy is not a valid JSON map."))?;
    let lacks = |name: &str| {
        refused(&format!("Redrive policy does not contain mandatory attribute: {name}."))
    };
    let arn = map.get("deadLetterTargetArn").filter(|arn| arn.is_string());
    arn.ok_or_else(|| lacks("deadLetterTargetArn"))?;
    let count = map.get("maxReceiveCount").ok_or_else(|| lacks("maxReceiveCount"))?;
    let count: String = count.to_string().chars().filter(|c| *c != '"').take(20).collect();
    let reason = format!(
        "Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both \
         inclusive."
    );
    let policy: RedrivePolicy = serde_json::from_value(map.into()).map_err(|_| refused(&reason))?;
    if !limits::MAX_RECEIVE_COUNT.contains(&i64::from(policy.max_receive_count)) {
        return Err(refused(&reason));
    }
    policy.dead_letter_target_arn.parse::<QueueArn>()?;
    Ok(policy)
}

fn redrive_allow(text: &str) -> Result<RedriveAllowPolicy, SqsError> {
    let policy: RedriveAllowPolicy =
        serde_json::from_str(text).map_err(|_| wrong(Name::RedriveAllowPolicy))?;
    let count = policy.source_queue_arns.len();
    let is_good = match policy.redrive_permission {
        RedrivePermission::ByQueue => (1..=limits::SOURCE_QUEUES_MAX).contains(&count),
        RedrivePermission::AllowAll | RedrivePermission::DenyAll => count == 0,
    };
    if !is_good || policy.source_queue_arns.iter().any(|arn| arn.parse::<QueueArn>().is_err()) {
        return Err(wrong(Name::RedriveAllowPolicy));
    }
    Ok(policy)
}

fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u32),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}
