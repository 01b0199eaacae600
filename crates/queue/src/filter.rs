//! Which messages: by their attributes.
//!
//! Every attribute that is named must have one of the things that are said of it. What a dead
//! letter tells of itself can be asked for like an attribute: `$originalQueue`, `$lastReason`,
//! `$receiveCount`.
//!
//! As with SNS, a text is compared with texts and a number with numbers: "5" is not 5.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::command::Story;
use crate::parcel::{Attribute, AttributeValue, Parcel};

/// What can be asked of a dead letter itself. No other name that begins so is asked for.
pub const OF_STORY: [&str; 3] = ["$originalQueue", "$lastReason", "$receiveCount"];

/// Which messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// All of these must hold, of each any.
    pub attributes: BTreeMap<String, Vec<Rule>>,
}

/// What can be said of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// It is this text. What is true or false is a text here.
    Is(String),
    /// It is a text that begins so.
    Prefix(String),
    /// It is a number between these, each included or not.
    Between {
        /// The lowest.
        from: Option<Edge>,
        /// The highest.
        to: Option<Edge>,
    },
    /// It is there, or it is not.
    Exists(bool),
}

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The bits of the number: a command can be compared.
    bits: u64,
    /// Whether the number itself is in the range.
    pub included: bool,
}

impl Edge {
    /// An end at a number.
    #[must_use]
    pub fn new(number: f64, included: bool) -> Edge {
        Edge { bits: number.to_bits(), included }
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> f64 {
        f64::from_bits(self.bits)
    }
}

impl Rule {
    /// The number itself, and no other.
    #[must_use]
    pub fn number(number: f64) -> Rule {
        let edge = Some(Edge::new(number, true));
        Rule::Between { from: edge, to: edge }
    }

    fn holds(&self, value: Option<Told<'_>>) -> bool {
        match (self, value) {
            (Rule::Exists(wanted), value) => *wanted == value.is_some(),
            (Rule::Is(text), Some(Told::Text(value))) => *text == value,
            (Rule::Prefix(prefix), Some(Told::Text(value))) => value.starts_with(prefix.as_str()),
            (Rule::Between { from, to }, Some(Told::Number(value))) => {
                let Ok(value) = value.parse::<f64>() else { return false };
                let above =
                    |edge: &Edge| value > edge.number() || edge.included && value >= edge.number();
                let below =
                    |edge: &Edge| value < edge.number() || edge.included && value <= edge.number();
                from.as_ref().is_none_or(above) && to.as_ref().is_none_or(below)
            }
            _ => false,
        }
    }
}

/// What an attribute says, by its type.
enum Told<'a> {
    Text(Cow<'a, str>),
    Number(Cow<'a, str>),
    Bytes,
}

impl<'a> Told<'a> {
    fn by(attribute: &'a Attribute) -> Told<'a> {
        match &attribute.value {
            AttributeValue::Binary(_) => Told::Bytes,
            AttributeValue::Text(text) if attribute.is_number() => Told::Number(text.into()),
            AttributeValue::Text(text) => Told::Text(text.into()),
        }
    }

    /// What a dead letter says of itself.
    fn of_story(name: &str, story: &'a Story) -> Option<Told<'a>> {
        match name {
            // All of `OF_STORY`.
            "$originalQueue" => Some(Told::Text((&story.queue).into())),
            "$lastReason" => story.reason.as_ref().map(|reason| Told::Text(reason.into())),
            "$receiveCount" => Some(Told::Number(story.receives.to_string().into())),
            _ => None,
        }
    }
}

impl Filter {
    /// Whether a message passes. A binary attribute is there, and nothing else can be said of it.
    #[must_use]
    pub fn passes(&self, parcel: &Parcel, story: Option<&Story>) -> bool {
        self.attributes.iter().all(|(name, rules)| {
            let value = || {
                let told = story.and_then(|story| Told::of_story(name, story));
                told.or_else(|| parcel.attributes.get(name).map(Told::by))
            };
            rules.iter().any(|rule| rule.holds(value()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageId;
    use crate::parcel::Body;

    fn parcel() -> Parcel {
        let mut parcel = Parcel::new(Body::Text("x".into()));
        let mut put = |name: &str, attribute| parcel.attributes.insert(name.into(), attribute);
        put("kind", Attribute::text("String", "mail.welcome"));
        put("size", Attribute::text("Number", "5"));
        put("code", Attribute::text("String", "5"));
        put("port", Attribute::text("Number.int", "5"));
        let bytes = AttributeValue::Binary(b"5".to_vec());
        put("raw", Attribute { data_type: "Binary".into(), value: bytes });
        parcel
    }

    fn one(name: &str, rules: Vec<Rule>) -> Filter {
        Filter { attributes: BTreeMap::from([(name.to_owned(), rules)]) }
    }

    fn between(from: Option<(f64, bool)>, to: Option<(f64, bool)>) -> Rule {
        let edge = |(number, included)| Edge::new(number, included);
        Rule::Between { from: from.map(edge), to: to.map(edge) }
    }

    #[test]
    fn rules() {
        for (name, rule, passes) in [
            ("kind", Rule::Is("mail.welcome".into()), true),
            ("kind", Rule::Is("mail".into()), false),
            ("kind", Rule::Prefix("mail.".into()), true),
            ("kind", between(None, None), false),
            ("size", Rule::number(5.0), true),
            ("size", between(Some((5.0, false)), None), false),
            ("size", between(Some((4.0, true)), Some((5.0, true))), true),
            ("size", between(None, Some((5.0, false))), false),
            ("size", Rule::Is("5".into()), false),
            ("size", Rule::Prefix("5".into()), false),
            ("port", Rule::number(5.0), true),
            ("code", Rule::Is("5".into()), true),
            ("code", Rule::number(5.0), false),
            ("raw", Rule::Is(String::new()), false),
            ("raw", Rule::Prefix(String::new()), false),
            ("raw", between(None, None), false),
            ("raw", Rule::Exists(true), true),
            ("size", Rule::Exists(true), true),
            ("size", Rule::Exists(false), false),
            ("none", Rule::Exists(false), true),
            ("none", Rule::Is(String::new()), false),
        ] {
            assert_eq!(one(name, vec![rule.clone()]).passes(&parcel(), None), passes, "{rule:?}");
        }
    }

    #[test]
    fn of_an_attribute_any_of_several_attributes_all() {
        let any = vec![Rule::Is("a".into()), Rule::Prefix("mail".into())];
        let mut filter = one("kind", any);
        assert!(filter.passes(&parcel(), None));
        filter.attributes.insert("size".into(), vec![Rule::number(6.0)]);
        assert!(!filter.passes(&parcel(), None));
        assert!(Filter::default().passes(&parcel(), None), "nothing is asked");
    }

    #[test]
    fn a_dead_letter_tells_its_story() {
        let story = Story {
            queue: "jobs".into(),
            id: MessageId { shard: 0, queue: 1, sequence: 1 },
            receives: 3,
            first_failed_ms: 1,
            last_failed_ms: 2,
            reason: Some("timeout: db".into()),
            moved_ms: 2,
            group: None,
        };
        let by_reason = one("$lastReason", vec![Rule::Prefix("timeout".into())]);
        assert!(by_reason.passes(&parcel(), Some(&story)));
        assert!(!by_reason.passes(&parcel(), None));
        assert!(one("$receiveCount", vec![Rule::number(3.0)]).passes(&parcel(), Some(&story)));
        let as_text = one("$receiveCount", vec![Rule::Is("3".into())]);
        assert!(!as_text.passes(&parcel(), Some(&story)));
        let other = one("$originalQueue", vec![Rule::Is("other".into())]);
        assert!(!other.passes(&parcel(), Some(&story)));
    }
}
