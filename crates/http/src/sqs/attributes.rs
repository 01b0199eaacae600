//! Between the settings of a queue and the attributes that AWS has for them.

use std::collections::BTreeMap;

use queue::{Described, Mode, Settings};
use sqs::SqsError;
use sqs::attributes::{
    DeduplicationScope, FifoThroughputLimit, QueueAttributes, RedrivePolicy, Setting,
};
use sqs::select::{QueueAttributeName as Name, QueueAttributeSelection};

use crate::queues::parcel::deduplicates_by_group;

/// Makes a queue's settings what the attributes say. `dead_letter_queue` is the name behind the
/// ARN of a redrive policy.
pub(super) fn apply(
    attributes: &QueueAttributes,
    dead_letter_queue: Option<String>,
    settings: &mut Settings,
) {
    let seconds = |value: Option<u32>, ms: &mut u64| {
        if let Some(value) = value {
            *ms = u64::from(value) * 1000;
        }
    };
    seconds(attributes.delay_seconds, &mut settings.delay_ms);
    seconds(attributes.message_retention_period, &mut settings.retention_ms);
    seconds(attributes.receive_message_wait_time_seconds, &mut settings.wait_ms);
    seconds(attributes.visibility_timeout, &mut settings.visibility_ms);
    if let Some(bytes) = attributes.maximum_message_size {
        settings.max_body_bytes = bytes.into();
    }
    if let Some(by_body) = attributes.content_based_deduplication {
        settings.dedup_by_body = by_body;
    }
    match &attributes.redrive_policy {
        Some(Setting::Set(policy)) => {
            settings.max_receive_count = Some(policy.max_receive_count);
            settings.dead_letter_queue = dead_letter_queue;
        }
        Some(Setting::Cleared) => {
            settings.max_receive_count = None;
            settings.dead_letter_queue = None;
        }
        None => {}
    }
    apply_notes(attributes, &mut settings.notes);
}

/// Those attributes that are other than the queue shows them. Our own API sets what AWS does not let be set,
/// and who says again what is so changes nothing.
pub(super) fn other_than_shown(
    asked: &BTreeMap<String, String>,
    settings: &Settings,
    arn: impl Fn(&str) -> String,
) -> BTreeMap<String, String> {
    let is_so = |name: Name, value: &String| set(name, settings, &arn).as_ref() == Some(value);
    let other = |(name, value): &(&String, &String)| match Name::parse(name) {
        // That there are groups goes together with other attributes.
        None | Some(Name::FifoQueue) => true,
        Some(name) => !is_so(name, value),
    };
    asked.iter().filter(other).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What means nothing to the queue, and is given back as it was said.
fn apply_notes(attributes: &QueueAttributes, notes: &mut BTreeMap<String, String>) {
    let mut note = |name: Name, value: Option<Option<String>>| match value {
        Some(Some(value)) => drop(notes.insert(name.as_str().to_owned(), value)),
        Some(None) => drop(notes.remove(name.as_str())),
        None => {}
    };
    let text = |setting: &Setting<String>| match setting {
        Setting::Set(text) => Some(text.clone()),
        Setting::Cleared => None,
    };
    note(Name::Policy, attributes.policy.as_ref().map(text));
    // Of the two ways to encrypt, one is in force: the one that was named last.
    if attributes.sqs_managed_sse_enabled == Some(true) {
        note(Name::KmsMasterKeyId, Some(None));
    }
    if let Some(Setting::Set(_)) = attributes.kms_master_key_id {
        note(Name::SqsManagedSseEnabled, Some(None));
    }
    note(Name::KmsMasterKeyId, attributes.kms_master_key_id.as_ref().map(text));
    let reuse = attributes.kms_data_key_reuse_period_seconds;
    note(Name::KmsDataKeyReusePeriodSeconds, reuse.map(|seconds| Some(seconds.to_string())));
    let managed = attributes.sqs_managed_sse_enabled;
    note(Name::SqsManagedSseEnabled, managed.map(|is| Some(is.to_string())));
    let scope = attributes.deduplication_scope.map(|scope| match scope {
        DeduplicationScope::MessageGroup => "messageGroup",
        DeduplicationScope::Queue => "queue",
    });
    note(Name::DeduplicationScope, scope.map(|scope| Some(scope.to_owned())));
    let limit = attributes.fifo_throughput_limit.map(|limit| match limit {
        FifoThroughputLimit::PerMessageGroupId => "perMessageGroupId",
        FifoThroughputLimit::PerQueue => "perQueue",
    });
    note(Name::FifoThroughputLimit, limit.map(|limit| Some(limit.to_owned())));
    let allow = attributes.redrive_allow_policy.as_ref().map(|setting| match setting {
        Setting::Set(policy) => Some(serde_json::to_string(policy).expect("plain data serialises")),
        Setting::Cleared => None,
    });
    note(Name::RedriveAllowPolicy, allow);
}

/// Refuses a limit of throughput by group where deduplication is not by group.
pub(super) fn check_throughput(settings: &Settings) -> Result<(), SqsError> {
    let limit = settings.notes.get(Name::FifoThroughputLimit.as_str());
    let is_by_group = limit.is_some_and(|limit| limit == "perMessageGroupId");
    if is_by_group && !deduplicates_by_group(settings) {
        return Err(sqs::attributes::wrong(Name::FifoThroughputLimit));
    }
    Ok(())
}

/// The first attribute that is another under other settings, as it is shown: what was never said is
/// what it is by default.
pub(super) fn differing(
    before: &Settings,
    after: &Settings,
    arn: impl Fn(&str) -> String,
) -> Option<Name> {
    let differs = |name: &Name| set(*name, before, &arn) != set(*name, after, &arn);
    Name::ALL.iter().copied().find(differs)
}

/// The attributes that were asked for. `arn` names a queue of the tenant.
pub(super) fn shown(
    selection: &QueueAttributeSelection,
    name: &str,
    described: &Described,
    arn: impl Fn(&str) -> String,
) -> BTreeMap<String, String> {
    let value = |attribute: Name| shown_one(attribute, name, described, &arn);
    let wanted = Name::ALL.iter().copied().filter(|attribute| selection.has(*attribute));
    wanted
        .filter_map(|attribute| Some((attribute.as_str().to_owned(), value(attribute)?)))
        .collect()
}

fn shown_one(
    attribute: Name,
    name: &str,
    described: &Described,
    arn: impl Fn(&str) -> String,
) -> Option<String> {
    let Described { definition, counts, .. } = described;
    match attribute {
        Name::ApproximateNumberOfMessages => Some(counts.visible.to_string()),
        Name::ApproximateNumberOfMessagesDelayed => Some(counts.delayed.to_string()),
        Name::ApproximateNumberOfMessagesNotVisible => Some(counts.leased.to_string()),
        Name::CreatedTimestamp => Some((definition.created_ms / 1000).to_string()),
        Name::LastModifiedTimestamp => Some((definition.updated_ms / 1000).to_string()),
        Name::QueueArn => Some(arn(name)),
        _ => set(attribute, &definition.settings, arn),
    }
}

/// An attribute that is set, or what it is when it is not; `None` for one that is not a setting.
fn set(attribute: Name, settings: &Settings, arn: impl Fn(&str) -> String) -> Option<String> {
    let is_fifo = settings.mode == Mode::Fifo;
    let fifo_only = |value: String| is_fifo.then_some(value);
    let noted = || settings.notes.get(attribute.as_str()).cloned();
    match attribute {
        Name::ApproximateNumberOfMessages
        | Name::ApproximateNumberOfMessagesDelayed
        | Name::ApproximateNumberOfMessagesNotVisible
        | Name::CreatedTimestamp
        | Name::LastModifiedTimestamp
        | Name::QueueArn => None,
        Name::DelaySeconds => Some((settings.delay_ms / 1000).to_string()),
        Name::MaximumMessageSize => Some(settings.max_body_bytes.to_string()),
        Name::MessageRetentionPeriod => Some((settings.retention_ms / 1000).to_string()),
        Name::ReceiveMessageWaitTimeSeconds => Some((settings.wait_ms / 1000).to_string()),
        Name::VisibilityTimeout => Some((settings.visibility_ms / 1000).to_string()),
        Name::FifoQueue => fifo_only("true".to_owned()),
        Name::ContentBasedDeduplication => fifo_only(settings.dedup_by_body.to_string()),
        Name::DeduplicationScope => fifo_only(noted().unwrap_or_else(|| "queue".to_owned())),
        Name::FifoThroughputLimit => fifo_only(noted().unwrap_or_else(|| "perQueue".to_owned())),
        Name::RedrivePolicy => {
            let policy = RedrivePolicy {
                dead_letter_target_arn: arn(settings.dead_letter_queue.as_deref()?),
                max_receive_count: settings.max_receive_count?,
            };
            Some(serde_json::to_string(&policy).expect("plain data serialises"))
        }
        // Disks are encrypted below this server, or not.
        Name::SqsManagedSseEnabled => Some(noted().unwrap_or_else(|| "false".to_owned())),
        Name::Policy
        | Name::KmsMasterKeyId
        | Name::KmsDataKeyReusePeriodSeconds
        | Name::RedriveAllowPolicy => noted(),
    }
}
