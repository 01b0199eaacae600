//! Which messages a filter lets through, told once more.

use bytes::Bytes;
use kernel::codec::{read_versioned, unpack};
use queue::Story;
use queue::filter::{Filter, Rule};
use queue::parcel::{ArchivedBody, AttributeValue, Parcel};

/// What a parcel whose body lies in the archive begins with.
const ARCHIVED_BYTES: usize = 51;

/// Whether a message passes. Nothing can be said of what is not a parcel.
pub(super) fn passes(filter: Option<&Filter>, parcel: &Bytes, story: Option<&Story>) -> bool {
    let Some(filter) = filter else { return true };
    let parcel: Result<Parcel, _> = match ArchivedBody::of(parcel) {
        Some(_) => unpack("a parcel", &parcel[ARCHIVED_BYTES..]),
        None => read_versioned("a parcel", parcel),
    };
    let Ok(parcel) = parcel else { return false };
    filter.attributes.iter().all(|(name, rules)| {
        let told = match (name.as_str(), story) {
            ("$originalQueue", Some(story)) => Some(story.queue.clone()),
            ("$lastReason", Some(story)) => story.reason.clone(),
            ("$receiveCount", Some(story)) => Some(story.receives.to_string()),
            _ => None,
        };
        let sent = parcel.attributes.get(name).map(|attribute| match &attribute.value {
            AttributeValue::Text(text) => text.clone(),
            AttributeValue::Binary(_) => String::new(),
        });
        let value = told.or(sent);
        rules.iter().any(|rule| holds(rule, value.as_deref()))
    })
}

fn holds(rule: &Rule, value: Option<&str>) -> bool {
    let Some(value) = value else { return *rule == Rule::Exists(false) };
    match rule {
        Rule::Exists(wanted) => *wanted,
        Rule::Is(text) => value == text,
        Rule::Prefix(prefix) => value.starts_with(prefix.as_str()),
        Rule::Between { from, to } => value.parse::<f64>().is_ok_and(|value| {
            let at = |number: f64| value.total_cmp(&number);
            let low = from.is_none_or(|edge| {
                at(edge.number()).is_ge() && (edge.included || at(edge.number()).is_ne())
            });
            let high = to.is_none_or(|edge| {
                at(edge.number()).is_le() && (edge.included || at(edge.number()).is_ne())
            });
            low && high
        }),
    }
}
