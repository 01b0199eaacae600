//! What can be refused by looking at a request alone, in the words of AWS where they are known.
//!
//! [`action`] refuses a request as a whole; of a batch, for its ids. What is wrong with one entry is
//! told by [`send_entry`], [`delete_entry`] and [`visibility_entry`], and becomes a failed entry. How
//! large messages may be is for their queue to say: [`size`], [`batch_size`]. Whether `QueueUrl`
//! names a queue is told by [`crate::QueuePath::of_queue_url`].

mod batch;
mod message;
mod queue;

pub use batch::{batch_size, delete_entry, group, send_entry, visibility_entry};
pub use message::{is_allowed, message_bytes, size};
pub use queue::{is_fifo_name, is_queue_name};

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::action::Action;
use crate::attributes::QueueAttributes;
use crate::error::{ErrorKind, SqsError};
use crate::limits;
use crate::select::{MessageSystemSelection, QueueAttributeSelection};

/// Refuses an action that no queue could carry out.
pub fn action(action: &Action) -> Result<(), SqsError> {
    match action {
        Action::AddPermission(input) => queue::permission(input),
        Action::CancelMessageMoveTask(input) => present("TaskHandle", &input.task_handle),
        Action::ChangeMessageVisibility(input) => {
            present("ReceiptHandle", &input.receipt_handle)?;
            visibility(Some(input.visibility_timeout))
        }
        Action::ChangeMessageVisibilityBatch(input) => {
            batch::ids(input.entries.iter().map(|entry| entry.id.as_str()))
        }
        Action::CreateQueue(input) => {
            queue::name(&input.queue_name)?;
            queue::tags(&input.tags)?;
            together(&input.attributes, |attributes| attributes.check_new(&input.queue_name))
        }
        Action::DeleteMessage(input) => present("ReceiptHandle", &input.receipt_handle),
        Action::DeleteMessageBatch(input) => {
            batch::ids(input.entries.iter().map(|entry| entry.id.as_str()))
        }
        Action::GetQueueAttributes(input) => {
            QueueAttributeSelection::parse(&input.attribute_names).map(drop)
        }
        Action::GetQueueUrl(input) => present("QueueName", &input.queue_name),
        Action::ListDeadLetterSourceQueues(input) => list(input.max_results, limits::LIST_RESULTS),
        Action::ListMessageMoveTasks(input) => {
            input.source_arn.parse::<crate::QueueArn>()?;
            list(input.max_results, limits::TASK_RESULTS)
        }
        Action::ListQueues(input) => list(input.max_results, limits::LIST_RESULTS),
        Action::ReceiveMessage(input) => receive(input),
        Action::RemovePermission(input) => queue::label(&input.label),
        Action::SendMessage(input) => message::send(input),
        Action::SendMessageBatch(input) => batch::send(input),
        Action::SetQueueAttributes(input) if input.attributes.is_empty() => {
            Err(SqsError::missing("Attribute.Name"))
        }
        Action::SetQueueAttributes(input) => {
            together(&input.attributes, QueueAttributes::check_change)
        }
        Action::StartMessageMoveTask(input) => move_task(input),
        Action::TagQueue(input) if input.tags.is_empty() => Err(SqsError::missing("Tags")),
        Action::TagQueue(input) => queue::tags(&input.tags),
        Action::UntagQueue(input) => queue::tag_keys(&input.tag_keys),
        Action::DeleteQueue(_) | Action::ListQueueTags(_) | Action::PurgeQueue(_) => Ok(()),
    }
}

/// What goes together of attributes that can be. Which values can be is for their queue to say: those that it
/// has.
fn together(
    attributes: &BTreeMap<String, String>,
    check: impl FnOnce(&QueueAttributes) -> Result<(), SqsError>,
) -> Result<(), SqsError> {
    QueueAttributes::parse(attributes).map_or(Ok(()), |attributes| check(&attributes))
}

fn receive(input: &crate::input::ReceiveMessage) -> Result<(), SqsError> {
    let between = "Must be between 1 and 10, if provided.";
    let max = input.max_number_of_messages;
    range("MaxNumberOfMessages", max, limits::RECEIVE_COUNT, Some(between))?;
    let wait = "Must be >= 0 and <= 20, if provided.";
    range("WaitTimeSeconds", input.wait_time_seconds, limits::WAIT_SECONDS, Some(wait))?;
    visibility(input.visibility_timeout)?;
    token("ReceiveRequestAttemptId", input.receive_request_attempt_id.as_deref())?;
    MessageSystemSelection::parse(&input.attribute_names, &input.message_system_attribute_names)
        .map(drop)
}

fn move_task(input: &crate::input::StartMessageMoveTask) -> Result<(), SqsError> {
    input.source_arn.parse::<crate::QueueArn>()?;
    if let Some(arn) = &input.destination_arn {
        arn.parse::<crate::QueueArn>()?;
    }
    let rate = input.max_number_of_messages_per_second;
    range("MaxNumberOfMessagesPerSecond", rate, limits::TASK_RATE, None)
}

fn list(max_results: Option<i32>, allowed: RangeInclusive<i64>) -> Result<(), SqsError> {
    range("MaxResults", max_results, allowed, None)
}

fn visibility(seconds: Option<i32>) -> Result<(), SqsError> {
    let reason = "VisibilityTimeout must be an integer between 0 and 43200.";
    range("VisibilityTimeout", seconds, limits::VISIBILITY_SECONDS, Some(reason))
}

fn delay(seconds: Option<i32>) -> Result<(), SqsError> {
    let reason = "DelaySeconds must be >= 0 and <= 900.";
    range("DelaySeconds", seconds, limits::DELAY_SECONDS, Some(reason))
}

/// A number that may be absent.
fn range(
    name: &str,
    value: Option<i32>,
    allowed: RangeInclusive<i64>,
    reason: Option<&str>,
) -> Result<(), SqsError> {
    let Some(value) = value.filter(|value| !allowed.contains(&i64::from(*value))) else {
        return Ok(());
    };
    let (start, end) = (allowed.start(), allowed.end());
    let otherwise = || format!("Must be between {start} and {end}.");
    Err(SqsError::value(value, name, &reason.map_or_else(otherwise, str::to_owned)))
}

/// Text that must be there. AWS takes empty text for none.
fn present(name: &str, text: &str) -> Result<(), SqsError> {
    if text.is_empty() { Err(SqsError::missing(name)) } else { Ok(()) }
}

/// Ids of deduplication, groups and attempts: 1 to 128 letters, digits and punctuation of ASCII.
fn token(name: &str, text: Option<&str>) -> Result<(), SqsError> {
    let Some(text) = text else { return Ok(()) };
    let is_good = (1..=limits::TOKEN_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_good {
        return Ok(());
    }
    let reason = "can only include alphanumeric and punctuation characters. 1 to 128 in length.";
    let shown = shortened(text);
    Err(SqsError::value(shown, name, &format!("{name} {reason}")))
}

/// Part of what the client sent, for a message to it.
fn shortened(text: &str) -> String {
    text.chars().take(limits::TOKEN_MAX).collect()
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn is_dotted_word(text: &str) -> bool {
    text.split('.').all(is_word)
}

fn invalid(message: String) -> SqsError {
    ErrorKind::InvalidParameterValue.because(message)
}
