//! Batches: what is refused whole, and what entry by entry.

use std::collections::HashSet;

use super::{delay, is_word, message, present, visibility};
use crate::error::{ErrorKind, SqsError};
use crate::input::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, SendMessageBatch,
    SendMessageBatchRequestEntry,
};
use crate::limits::{BATCH_ENTRIES_MAX, ENTRY_ID_MAX, MESSAGE_BYTES_MAX};

/// One to ten entries, each with an id of its own.
pub(super) fn ids<'a>(ids: impl ExactSizeIterator<Item = &'a str>) -> Result<(), SqsError> {
    let count = ids.len();
    if count == 0 {
        return Err(ErrorKind::EmptyBatchRequest
            .because("There should be at least one entry in the request."));
    }
    if count > BATCH_ENTRIES_MAX {
        return Err(ErrorKind::TooManyEntriesInBatchRequest.because(format!(
            "Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent {count}."
        )));
    }
    let mut seen = HashSet::new();
    for id in ids {
        if !(1..=ENTRY_ID_MAX).contains(&id.len()) || !is_word(id) {
            return Err(ErrorKind::InvalidBatchEntryId.because(
                "A batch entry id can only contain alphanumeric characters, hyphens and \
                 underscores. It can be at most 80 letters long.",
            ));
        }
        if !seen.insert(id) {
            return Err(ErrorKind::BatchEntryIdsNotDistinct.because(format!("Id {id} repeated.")));
        }
    }
    Ok(())
}

pub(super) fn send(input: &SendMessageBatch) -> Result<(), SqsError> {
    ids(input.entries.iter().map(|entry| entry.id.as_str()))
}

/// Refuses a batch whose messages together are larger than a message of their queue may be.
///
/// # Errors
/// `BatchRequestTooLong`.
pub fn batch_size(input: &SendMessageBatch, bytes_max: usize) -> Result<(), SqsError> {
    let bytes_max = bytes_max.max(MESSAGE_BYTES_MAX);
    let bytes = |entry: &SendMessageBatchRequestEntry| {
        message::message_bytes(&entry.message_body, &entry.message_attributes)
    };
    let total: usize = input.entries.iter().map(bytes).sum();
    if total > bytes_max {
        return Err(ErrorKind::BatchRequestTooLong.because(format!(
            "Batch requests cannot be longer than {bytes_max} bytes. You have sent {total} \
             bytes."
        )));
    }
    Ok(())
}

/// Refuses a message of a batch, and only that one.
pub fn send_entry(entry: &SendMessageBatchRequestEntry) -> Result<(), SqsError> {
    delay(entry.delay_seconds)?;
    message::ids(entry.message_deduplication_id.as_deref(), entry.message_group_id.as_deref())?;
    message::content(
        &entry.message_body,
        &entry.message_attributes,
        &entry.message_system_attributes,
    )
}

/// The group of a message for a queue with order, where it has all that such a queue asks for.
///
/// # Errors
/// What it lacks. It refuses a batch as a whole, in which order is that of its messages.
pub fn group(
    entry: &SendMessageBatchRequestEntry,
    is_told_by_body: bool,
) -> Result<&str, SqsError> {
    let group = entry.message_group_id.as_deref();
    let group = group.ok_or_else(|| SqsError::missing("MessageGroupId"))?;
    if entry.message_deduplication_id.is_none() && !is_told_by_body {
        return Err(ErrorKind::InvalidParameterValue.because(
            "The queue should either have ContentBasedDeduplication enabled or \
             MessageDeduplicationId provided explicitly",
        ));
    }
    Ok(group)
}

/// Refuses a change of a batch, and only that one.
pub fn visibility_entry(entry: &ChangeMessageVisibilityBatchRequestEntry) -> Result<(), SqsError> {
    present("ReceiptHandle", &entry.receipt_handle)?;
    visibility(entry.visibility_timeout)
}

/// Refuses a removal of a batch, and only that one.
pub fn delete_entry(entry: &DeleteMessageBatchRequestEntry) -> Result<(), SqsError> {
    present("ReceiptHandle", &entry.receipt_handle)
}
