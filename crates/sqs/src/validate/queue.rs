//! Names, tags and permissions of queues.

use std::collections::BTreeMap;

use super::{invalid, is_dotted_word, is_word, present, shortened};
use crate::action::ActionName;
use crate::error::{ErrorKind, SqsError};
use crate::input::AddPermission;
use crate::limits::{
    FIFO_SUFFIX, LABEL_MAX, PERMISSION_ACTIONS_MAX, QUEUE_NAME_MAX, TAG_KEY_MAX, TAG_VALUE_MAX,
    TAGS_MAX,
};

/// Whether a queue can have this name. One that was not made by this dialect may have periods anywhere.
#[must_use]
pub fn is_queue_name(name: &str) -> bool {
    (1..=QUEUE_NAME_MAX).contains(&name.len()) && is_dotted_word(name)
}

/// Whether a queue can be made under this name, as at AWS.
fn is_new_queue_name(name: &str) -> bool {
    let stem = name.strip_suffix(FIFO_SUFFIX).unwrap_or(name);
    !stem.is_empty() && name.len() <= QUEUE_NAME_MAX && is_word(stem)
}

/// Whether it is the name of a FIFO queue.
#[must_use]
pub fn is_fifo_name(name: &str) -> bool {
    name.ends_with(FIFO_SUFFIX)
}

pub(super) fn name(name: &str) -> Result<(), SqsError> {
    present("QueueName", name)?;
    if is_new_queue_name(name) {
        return Ok(());
    }
    Err(invalid(
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
            .to_owned(),
    ))
}

pub(super) fn tags(tags: &BTreeMap<String, String>) -> Result<(), SqsError> {
    if tags.len() > TAGS_MAX {
        return Err(invalid(format!("Too many tags added for queue: at most {TAGS_MAX}.")));
    }
    for (key, value) in tags {
        tag_key(key)?;
        if value.chars().count() > TAG_VALUE_MAX || !value.chars().all(is_tag_character) {
            return Err(invalid(format!("The value of the tag '{key}' is invalid.")));
        }
    }
    Ok(())
}

pub(super) fn tag_keys(keys: &[String]) -> Result<(), SqsError> {
    if keys.is_empty() {
        return Err(SqsError::missing("TagKeys"));
    }
    keys.iter().try_for_each(|key| tag_key(key))
}

fn tag_key(key: &str) -> Result<(), SqsError> {
    let is_reserved = key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("aws:"));
    let is_good = (1..=TAG_KEY_MAX).contains(&key.chars().count())
        && key.chars().all(is_tag_character)
        && !is_reserved;
    if is_good {
        return Ok(());
    }
    Err(invalid(format!("The key of the tag '{}' is invalid.", shortened(key))))
}

fn is_tag_character(c: char) -> bool {
    c.is_alphanumeric() || c.is_whitespace() || "_.:/=+-@".contains(c)
}

pub(super) fn label(label: &str) -> Result<(), SqsError> {
    present("Label", label)?;
    if label.len() <= LABEL_MAX && is_word(label) {
        return Ok(());
    }
    let reason =
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
    Err(SqsError::value(shortened(label), "Label", reason))
}

pub(super) fn permission(input: &AddPermission) -> Result<(), SqsError> {
    label(&input.label)?;
    if input.actions.is_empty() {
        return Err(SqsError::missing("Actions"));
    }
    if input.aws_account_ids.is_empty() {
        return Err(SqsError::missing("AWSAccountIds"));
    }
    if input.actions.len() > PERMISSION_ACTIONS_MAX {
        return Err(ErrorKind::OverLimit.because(format!(
            "{} Actions were found, maximum allowed is {PERMISSION_ACTIONS_MAX}.",
            input.actions.len()
        )));
    }
    for action in &input.actions {
        if action != "*" && ActionName::parse(action).is_none() {
            let reason = "Only the names of actions and * are valid.";
            return Err(SqsError::value(shortened(action), "ActionName", reason));
        }
    }
    Ok(())
}
