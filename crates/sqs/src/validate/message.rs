//! Messages: size, characters, attributes.

use super::{delay, invalid, is_dotted_word, present, shortened, token};
use crate::error::{ErrorKind, SqsError};
use crate::input::SendMessage;
use crate::limits::{
    ATTRIBUTE_NAME_MAX, ATTRIBUTE_TYPE_MAX, MESSAGE_ATTRIBUTES_MAX, NUMBER_DIGITS_MAX,
};
use crate::value::{MessageAttributeValue, MessageAttributes};

/// The one system attribute that a message can be sent with.
const TRACE_HEADER: &str = "AWSTraceHeader";
const TRACE_HEADER_MAX: usize = 1024;
/// A number is at least this power of ten, and at most that.
const NUMBER_EXPONENTS: std::ops::RangeInclusive<i64> = -128..=126;

pub(super) fn send(input: &SendMessage) -> Result<(), SqsError> {
    delay(input.delay_seconds)?;
    ids(input.message_deduplication_id.as_deref(), input.message_group_id.as_deref())?;
    content(&input.message_body, &input.message_attributes, &input.message_system_attributes)
}

pub(super) fn ids(deduplication: Option<&str>, group: Option<&str>) -> Result<(), SqsError> {
    token("MessageDeduplicationId", deduplication)?;
    token("MessageGroupId", group)
}

pub(super) fn content(
    body: &str,
    attributes: &MessageAttributes,
    system: &MessageAttributes,
) -> Result<(), SqsError> {
    present("MessageBody", body)?;
    characters(body, "message body", ErrorKind::InvalidMessageContents)?;
    if attributes.len() > MESSAGE_ATTRIBUTES_MAX {
        return Err(invalid(format!(
            "Number of message attributes [{}] exceeds the allowed maximum \
             [{MESSAGE_ATTRIBUTES_MAX}].",
            attributes.len()
        )));
    }
    for (name, attribute) in attributes {
        attribute_name(name)?;
        attribute_value(name, attribute)?;
    }
    for (name, attribute) in system {
        if name != TRACE_HEADER || attribute.data_type != "String" {
            let shown = shortened(name);
            return Err(invalid(format!("Message system attribute name '{shown}' is invalid.")));
        }
        attribute_value(name, attribute)?;
        // It does not count to the size of the message, so it has a bound of its own.
        if attribute.string_value.as_ref().is_some_and(|text| text.len() > TRACE_HEADER_MAX) {
            return Err(invalid(format!("{TRACE_HEADER} has {TRACE_HEADER_MAX} bytes at most.")));
        }
    }
    Ok(())
}

/// Refuses a message that is larger than its queue takes.
///
/// # Errors
/// `InvalidParameterValue`.
pub fn size(bytes: usize, bytes_max: usize) -> Result<(), SqsError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(invalid(format!(
        "One or more parameters are invalid. Reason: Message must be shorter than {bytes_max} \
         bytes."
    )))
}

/// The size of a message: its text, and the name, type and value of every attribute of the user.
#[must_use]
pub fn message_bytes(body: &str, attributes: &MessageAttributes) -> usize {
    let of_attribute = |(name, value): (&String, &MessageAttributeValue)| {
        let text = value.string_value.as_ref().map_or(0, String::len);
        let blob = value.binary_value.as_ref().map_or(0, |blob| blob.0.len());
        name.len() + value.data_type.len() + text + blob
    };
    body.len() + attributes.iter().map(of_attribute).sum::<usize>()
}

/// Whether a message may hold this character: those of XML 1.0.
#[must_use]
pub const fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

fn characters(text: &str, place: &str, kind: ErrorKind) -> Result<(), SqsError> {
    match text.chars().find(|c| !is_allowed(*c)) {
        None => Ok(()),
        Some(c) => Err(kind.because(format!(
            "Invalid binary character '#x{:X}' was found in the {place}, the set of allowed \
             characters is #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]",
            u32::from(c)
        ))),
    }
}

fn attribute_name(name: &str) -> Result<(), SqsError> {
    let fail =
        |what: &str| Err(invalid(format!("Message attribute name '{}' {what}", shortened(name))));
    if !(1..=ATTRIBUTE_NAME_MAX).contains(&name.chars().count()) {
        return fail("must be 1 to 256 characters long.");
    }
    // Of any script, as at AWS.
    if !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        return fail("can only include alphanumeric characters, hyphens, underscores and periods.");
    }
    if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        return fail("cannot start or end with a period or have periods in succession.");
    }
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("aws.") || lower.starts_with("amazon.") {
        return fail("cannot start with a reserved prefix: AWS. or Amazon.");
    }
    Ok(())
}

fn attribute_value(name: &str, attribute: &MessageAttributeValue) -> Result<(), SqsError> {
    let data_type = attribute.data_type.as_str();
    let base = attribute.base_type();
    let fail = |what: &str| Err(invalid(format!("The message attribute '{name}' {what}")));
    if data_type.len() > ATTRIBUTE_TYPE_MAX || !is_dotted_word(data_type) {
        return fail("has a type that is too long or has characters that a type cannot have.");
    }
    if !attribute.string_list_values.is_empty() || !attribute.binary_list_values.is_empty() {
        return Err(ErrorKind::UnsupportedOperation
            .because("Message attribute list values in SendMessage operation are not supported."));
    }
    // Some clients write the value of the other type too, but empty.
    let text = attribute.string_value.as_deref().unwrap_or_default();
    let blob: &[u8] = attribute.binary_value.as_ref().map_or(&[], |blob| &blob.0);
    match base {
        "String" | "Number" if !text.is_empty() && blob.is_empty() => {
            characters(text, "message attribute value", ErrorKind::InvalidParameterValue)?;
            if base == "Number" && !is_number(text) {
                return fail("has a value that is not a number.");
            }
            Ok(())
        }
        "Binary" if !blob.is_empty() && text.is_empty() => Ok(()),
        "String" | "Number" | "Binary" => {
            fail(&format!("must contain a non-empty value of the type '{base}', and no other."))
        }
        _ => fail("has an invalid type: it must begin with String, Number or Binary."),
    }
}

/// Up to 38 digits, between 10^-128 and 10^126, either sign.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let Ok(exponent) = exponent.parse::<i64>() else { return false };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return true;
    }
    // The power of ten of the first digit that counts.
    let leading_zeros = digits.len() - significant.len();
    let power = i64::try_from(whole.len()).ok().zip(i64::try_from(leading_zeros).ok());
    let Some((whole_len, zeros)) = power else { return false };
    let power = exponent.saturating_add(whole_len - zeros - 1);
    significant.trim_end_matches('0').len() <= NUMBER_DIGITS_MAX
        && NUMBER_EXPONENTS.contains(&power)
}

#[cfg(test)]
mod tests {
    use super::is_number;

    #[test]
    fn numbers_are_told_from_text() {
        for text in ["0", "-1", "+2.50", ".5", "1.", "1e126", "-1E-128", "0230.01", "1493147359900"]
        {
            assert!(is_number(text), "{text}");
        }
        let long = "1".repeat(39);
        for text in
            ["", "-", ".", "e5", "1e", "1e127", "1e-129", "nan", "inf", "1 ", "0x1", "1.2.3"]
        {
            assert!(!is_number(text), "{text}");
        }
        assert!(!is_number(&long) && is_number(&long[..38]));
        assert!(!is_number("1e9223372036854775807"));
    }
}
