//! Messages, on their way in and on their way out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value, json};

use crate::error::Error;

/// A note on a message, beside its body.
///
/// ```
/// use client::Attribute;
///
/// assert_eq!(Attribute::from("mail"), Attribute::Text("mail".to_owned()));
/// assert_eq!(serde_json::to_string(&Attribute::from(3)).unwrap(), "3");
/// assert_eq!(Attribute::from(vec![0, 1]).to_string(), "AAE=");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// Text.
    Text(String),
    /// A number, as it was spelt.
    Number(Number),
    /// Yes or no.
    Bool(bool),
    /// Any bytes.
    Binary(Vec<u8>),
    /// A value with a type of its own, which clients of SQS can give it, as it was spelt: `Number.id`
    /// and `1.50`, `Number` and `007`. That of `Binary.png` is base64, which [`Attribute::bytes`] reads.
    Typed {
        /// `String`, `Number` or `Binary`, mostly with `.name` behind it.
        data_type: String,
        /// The value.
        value: String,
    },
}

impl Attribute {
    /// The bytes of a `Binary`, or of one with a name behind it: `Binary.png`.
    #[must_use]
    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Attribute::Binary(bytes) => Some(Cow::Borrowed(bytes)),
            Attribute::Typed { data_type, value } if data_type.starts_with("Binary.") => {
                STANDARD.decode(value).ok().map(Cow::Owned)
            }
            _ => None,
        }
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Attribute {
        Attribute::Text(text.to_owned())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Attribute {
        Attribute::Text(text)
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Attribute {
        Attribute::Number(number.into())
    }
}

impl From<bool> for Attribute {
    fn from(truth: bool) -> Attribute {
        Attribute::Bool(truth)
    }
}

impl From<Vec<u8>> for Attribute {
    fn from(bytes: Vec<u8>) -> Attribute {
        Attribute::Binary(bytes)
    }
}

/// As a variable of a program has it: text as it is, bytes in base64.
impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Attribute::Text(text) => f.write_str(text),
            Attribute::Number(number) => number.fmt(f),
            Attribute::Bool(truth) => truth.fmt(f),
            Attribute::Binary(bytes) => f.write_str(&STANDARD.encode(bytes)),
            Attribute::Typed { value, .. } => f.write_str(value),
        }
    }
}

impl Serialize for Attribute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Attribute::Text(text) => serializer.serialize_str(text),
            Attribute::Number(number) => number.serialize(serializer),
            Attribute::Bool(truth) => serializer.serialize_bool(*truth),
            Attribute::Binary(bytes) => {
                json!({"type": "Binary", "value": STANDARD.encode(bytes)}).serialize(serializer)
            }
            Attribute::Typed { data_type, value } => {
                json!({"type": data_type, "value": value}).serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Attribute, D::Error> {
        let bad = |what: &str| serde::de::Error::custom(format!("an attribute cannot be {what}"));
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Attribute::Text(text)),
            Value::Number(number) => Ok(Attribute::Number(number)),
            Value::Bool(truth) => Ok(Attribute::Bool(truth)),
            Value::Object(object) => {
                let field = |name| object.get(name).and_then(Value::as_str);
                match (field("type"), field("value")) {
                    (Some(data_type), Some(value)) => Ok(typed(data_type, value)),
                    _ => Err(bad("an object without type and value, both text")),
                }
            }
            Value::Null => Err(bad("null")),
            Value::Array(_) => Err(bad("a list")),
        }
    }
}

fn typed(data_type: &str, value: &str) -> Attribute {
    let as_it_is = || Attribute::Typed { data_type: data_type.to_owned(), value: value.to_owned() };
    match STANDARD.decode(value) {
        Ok(bytes) if data_type == "Binary" => Attribute::Binary(bytes),
        _ => as_it_is(),
    }
}

/// A message to be sent.
///
/// ```
/// use std::time::Duration;
/// use client::Outgoing;
///
/// # fn main() -> Result<(), client::Error> {
/// let message = Outgoing::new(&serde_json::json!({"to": "a@b.example"}))?
///     .attribute("kind", "mail")
///     .delay(Duration::from_secs(5))
///     .deduplication_key("mail-17");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Outgoing {
    body: Box<RawValue>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, Attribute>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_group_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deduplication_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
}

impl Outgoing {
    /// A message with this body, as JSON.
    ///
    /// # Errors
    /// [`Error::Body`] for what cannot be JSON.
    pub fn new<T: Serialize + ?Sized>(body: &T) -> Result<Outgoing, Error> {
        serde_json::value::to_raw_value(body).map(Outgoing::raw).map_err(Error::Body)
    }

    /// A message whose body is JSON already; it comes back as it is spelt.
    pub fn raw(body: Box<RawValue>) -> Outgoing {
        Outgoing {
            body,
            attributes: BTreeMap::new(),
            delay_seconds: None,
            message_group_id: None,
            deduplication_key: None,
            priority: None,
        }
    }

    /// A note on it.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Attribute>) -> Outgoing {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Hidden for so long, in whole seconds, rounded up; up to ten years.
    pub fn delay(mut self, delay: Duration) -> Outgoing {
        self.delay_seconds = Some(seconds(delay));
        self
    }

    /// The group in which order is kept. A FIFO queue needs it, and no other takes it.
    pub fn group(mut self, group: impl Into<String>) -> Outgoing {
        self.message_group_id = Some(group.into());
        self
    }

    /// A second message with this key within the queue's window is not sent again.
    pub fn deduplication_key(mut self, key: impl Into<String>) -> Outgoing {
        self.deduplication_key = Some(key.into());
        self
    }

    /// 0 to 9; higher goes first, but a minute of waiting counts as one priority.
    pub fn priority(mut self, priority: u8) -> Outgoing {
        self.priority = Some(priority);
        self
    }

    /// About the bytes it takes on the wire.
    pub(crate) fn bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let noted: usize =
            attributes.map(|(name, value)| name.len() + value.to_string().len()).sum();
        self.body.get().len() + noted + 512
    }
}

/// Whole seconds, rounded up: a lease of half a second must not become none at all.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// A message that is in the queue, on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Sent {
    /// Its name.
    pub message_id: String,
    /// Its place in the order of the queue.
    pub sequence: u64,
    /// Whether it had been sent before, under the same deduplication key.
    #[serde(default)]
    pub duplicate: bool,
}

/// A message that was received or looked at.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Message {
    /// Its name.
    pub message_id: String,
    /// What settles it; empty when it was only looked at.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub receipt_handle: String,
    /// How often it has been received.
    pub receive_count: u32,
    /// Its place in the order of the queue.
    pub sequence: u64,
    /// When it was sent, RFC 3339.
    pub sent_at: String,
    /// The body, as it was spelt.
    #[serde(rename = "body")]
    pub raw_body: Box<RawValue>,
    /// `base64` when the body was not text, and is that in `raw_body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_encoding: Option<String>,
    /// Notes on it.
    #[serde(default)]
    pub attributes: BTreeMap<String, Attribute>,
    /// Its group, in a FIFO queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group_id: Option<String>,
    /// That of the request that sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// What was last said of it by a consumer that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// When its time comes, RFC 3339; only of one that was looked at and is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_at: Option<String>,
    /// When its lease ends, RFC 3339; only of one that was looked at and is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ends_at: Option<String>,
    /// What became of it before it came to a dead-letter queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<DeadLetter>,
}

/// The story of a dead message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeadLetter {
    /// Where it was sent to.
    pub original_queue: String,
    /// Its name there.
    pub original_message_id: String,
    /// How often it was received there.
    pub receive_count: u32,
    /// RFC 3339.
    pub first_failed_at: String,
    /// RFC 3339.
    pub last_failed_at: String,
    /// What a consumer last said of it; else how its last lease ended.
    pub last_reason: Option<String>,
    /// When it came to the queue that it is in. RFC 3339.
    #[serde(default)]
    pub moved_at: Option<String>,
    /// Its group where it died.
    #[serde(default)]
    pub message_group_id: Option<String>,
}

impl Message {
    /// The body, as a type.
    ///
    /// # Errors
    /// [`Error::Body`] when it is something else.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(self.raw_body.get()).map_err(Error::Body)
    }

    /// The body for a program that knows no JSON: text without its quotes, bytes that were sent as
    /// bytes, and anything else as its JSON.
    #[must_use]
    pub fn plain_body(&self) -> Cow<'_, [u8]> {
        let raw = self.raw_body.get();
        match serde_json::from_str::<String>(raw) {
            Err(_) => Cow::Borrowed(raw.as_bytes()),
            Ok(text) if self.body_encoding.as_deref() == Some("base64") => {
                Cow::Owned(STANDARD.decode(&text).unwrap_or_else(|_| text.into_bytes()))
            }
            Ok(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> Message {
        let text = format!(
            r#"{{"messageId":"m","receiveCount":1,"sequence":2,"sentAt":"t","attributes":{{}},{body}}}"#
        );
        serde_json::from_str(&text).expect("a message")
    }

    #[test]
    fn bodies_are_typed_or_plain() {
        assert_eq!(message(r#""body":[1, 2]"#).body::<Vec<u8>>().expect("numbers"), [1, 2]);
        assert!(message(r#""body":"x""#).body::<u8>().is_err());
        for (body, plain) in [
            (r#""body":{"a": 1.50}"#, &br#"{"a": 1.50}"#[..]),
            (r#""body":"one\ntwo""#, b"one\ntwo"),
            (r#""body":null"#, b"null"),
            (r#""body":"/wA=","bodyEncoding":"base64""#, &[0xff, 0]),
        ] {
            assert_eq!(&*message(body).plain_body(), plain, "{body}");
        }
    }

    #[test]
    fn attributes_go_and_come_back() {
        let text = r#"{"a":true,"b":-2.5,"c":{"type":"Binary","value":"AAE="},"d":"x"}"#;
        let attributes: BTreeMap<String, Attribute> = serde_json::from_str(text).expect("typed");
        assert_eq!(attributes["c"], Attribute::Binary(vec![0, 1]));
        assert_eq!(serde_json::to_string(&attributes).expect("JSON"), text);
        assert!(serde_json::from_str::<Attribute>("[]").is_err());
    }

    #[test]
    fn attributes_with_types_of_their_own_come_back_as_they_were_spelt() {
        for (text, shown, bytes) in [
            (r#"{"type":"Number.id","value":"1.50"}"#, "1.50", None),
            // Base64 as well, and yet a text.
            (r#"{"type":"String.x","value":"abcd"}"#, "abcd", None),
            (r#"{"type":"Number","value":"007"}"#, "007", None),
            (r#"{"type":"Binary.png","value":"AAE="}"#, "AAE=", Some(&[0, 1][..])),
            (r#"{"type":"Binary","value":"AAE="}"#, "AAE=", Some(&[0, 1])),
        ] {
            let attribute: Attribute = serde_json::from_str(text).expect("an attribute");
            assert_eq!(serde_json::to_string(&attribute).expect("JSON"), text);
            assert_eq!(
                (attribute.to_string().as_str(), attribute.bytes().as_deref()),
                (shown, bytes)
            );
        }
    }

    #[test]
    fn only_what_is_set_is_sent() {
        let plain = Outgoing::new("x").expect("text");
        assert_eq!(serde_json::to_string(&plain).expect("JSON"), r#"{"body":"x"}"#);
        let delayed = plain.delay(Duration::from_millis(1200)).priority(3);
        let text = serde_json::to_string(&delayed).expect("JSON");
        assert_eq!(text, r#"{"body":"x","delaySeconds":2,"priority":3}"#);
    }
}
