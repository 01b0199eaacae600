//! Bodies and attributes of messages as JSON, and what tells a message sent twice.
//!
//! What is in a message is the same in every dialect, so that what is sent in one can be received
//! in another.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kernel::id::digest;
use queue::Settings;
use queue::parcel::{Attribute, AttributeValue, Body};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use sqs::select::QueueAttributeName;

/// The type of JSON's `true` and `false`.
const BOOLEAN: &str = "String.boolean";

/// A body that is read out of a request without a copy of it in between.
pub(crate) fn deserialize_body<'de, D: Deserializer<'de>>(json: D) -> Result<Body, D::Error> {
    <&RawValue>::deserialize(json).map(body_from_json)
}

/// From JSON, as it was spelt.
pub(crate) fn body_from_json(raw: &RawValue) -> Body {
    let unquoted = raw.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    if let Some(plain) = unquoted.filter(|text| !text.contains('\\')) {
        return Body::Text(plain.to_owned());
    }
    match serde_json::from_str::<String>(raw.get()) {
        Ok(text) => Body::Text(text),
        Err(_) => Body::Json(raw.get().to_owned()),
    }
}

/// From bytes of any kind.
pub(crate) fn body_from_bytes(bytes: &[u8]) -> Body {
    match std::str::from_utf8(bytes) {
        Ok(text) => Body::Text(text.to_owned()),
        Err(_) => Body::Binary(bytes.to_vec()),
    }
}

/// A body as JSON: a text as a string, JSON as it was spelt, bytes as base64.
pub(crate) struct BodyAsJson(pub(crate) Body);

impl BodyAsJson {
    /// As it is serialised.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Body::Text(text) => put_string(out, text),
            Body::Json(json) => out.extend_from_slice(json.as_bytes()),
            Body::Binary(bytes) => put_string(out, &STANDARD.encode(bytes)),
        }
    }
}

/// A string as JSON. Most need no escapes, which is seen eight bytes at a time.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    if needs_escapes(text.as_bytes()) {
        serde_json::to_writer(out, text).expect("strings serialise");
        return;
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn needs_escapes(text: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // A byte below `n` borrows from the high bit that it does not have itself.
    let any_below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & HIGH != 0;
    let any_is = |word: u64, byte: u8| any_below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = text.as_chunks::<8>();
    let in_words = words.iter().any(|word| {
        let word = u64::from_ne_bytes(*word);
        any_below(word, 0x20) | any_is(word, b'"') | any_is(word, b'\\')
    });
    in_words || rest.iter().any(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'))
}

impl Serialize for BodyAsJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Body::Text(text) => serializer.serialize_str(text),
            Body::Json(json) => serde_json::from_str::<&RawValue>(json)
                .expect("it was JSON when it came")
                .serialize(serializer),
            Body::Binary(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
        }
    }
}

/// Attributes of a message.
const ATTRIBUTES_MAX: usize = 50;
/// Bytes of an attribute's name.
const NAME_BYTES_MAX: usize = 256;

/// The attributes of a message, read no further than to the first that cannot be one: a body has room for
/// millions of numbers and fields, and each would take many times its bytes.
#[derive(Default)]
pub(crate) struct Attributes(pub(crate) BTreeMap<String, Attribute>);

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Attributes, D::Error> {
        json.deserialize_map(OfAttributes)
    }
}

struct OfAttributes;

impl<'de> Visitor<'de> for OfAttributes {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Attributes, A::Error> {
        let mut attributes = BTreeMap::new();
        while let Some(name) = access.next_key::<String>()? {
            if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
                return Err(A::Error::custom(format_args!(
                    "an attribute's name must have from 1 to {NAME_BYTES_MAX} bytes"
                )));
            }
            if attributes.len() == ATTRIBUTES_MAX && !attributes.contains_key(&name) {
                let why = format_args!("there must be from 0 to {ATTRIBUTES_MAX}");
                return Err(A::Error::custom(why));
            }
            let OneAttribute(attribute) = access.next_value()?;
            attributes.insert(name, attribute);
        }
        Ok(Attributes(attributes))
    }
}

struct OneAttribute(Attribute);

impl<'de> Deserialize<'de> for OneAttribute {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<OneAttribute, D::Error> {
        let raw = <&RawValue>::deserialize(json)?;
        attribute_from_json(raw.get()).map(OneAttribute).map_err(D::Error::custom)
    }
}

/// An attribute with its type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    #[serde(rename = "type")]
    data_type: String,
    value: String,
}

/// From a string, number, boolean, or `{type, value}`, in which the value of a `Binary` is
/// base64.
fn attribute_from_json(json: &str) -> Result<Attribute, &'static str> {
    if json.starts_with('{') {
        return match serde_json::from_str(json) {
            Ok(Typed { data_type, value }) => typed(&data_type, &value),
            Err(_) => Err("an attribute's object has type and value, both strings"),
        };
    }
    // What takes more memory than text is not read at all.
    let scalar = if json.starts_with('[') { None } else { serde_json::from_str(json).ok() };
    match scalar {
        Some(Value::String(text)) => Ok(Attribute::text("String", text)),
        Some(Value::Number(number)) => Ok(Attribute::text("Number", number.to_string())),
        Some(Value::Bool(is)) => Ok(Attribute::text(BOOLEAN, is.to_string())),
        _ => Err("an attribute is a string, a number, a boolean, or {type, value}"),
    }
}

fn typed(data_type: &str, value: &str) -> Result<Attribute, &'static str> {
    let basic = data_type.split('.').next().unwrap_or_default();
    match basic {
        "String" => Ok(Attribute::text(data_type, value.to_owned())),
        // What is no number to a filter, or to clients of SQS, is none here: `NaN` and `inf` parse too.
        "Number" if value.parse().is_ok_and(f64::is_finite) => {
            Ok(Attribute::text(data_type, value.to_owned()))
        }
        "Number" => Err("the value of a Number is a number"),
        "Binary" => match STANDARD.decode(value) {
            Ok(bytes) => Ok(Attribute {
                data_type: data_type.to_owned(),
                value: AttributeValue::Binary(bytes),
            }),
            Err(_) => Err("the value of a Binary is base64"),
        },
        _ => Err("a type is String, Number or Binary, or one of these with .name behind it"),
    }
}

/// The JSON that [`attribute_from_json`] reads.
pub(crate) fn attribute_to_json(attribute: &Attribute) -> Value {
    let text = match &attribute.value {
        AttributeValue::Text(text) => text.clone(),
        AttributeValue::Binary(bytes) => STANDARD.encode(bytes),
    };
    match attribute.data_type.as_str() {
        "String" => return Value::String(text),
        BOOLEAN if text == "true" || text == "false" => return Value::Bool(text == "true"),
        "Number" => {
            if let Ok(Value::Number(number)) = serde_json::from_str(&text) {
                return Value::Number(number);
            }
        }
        _ => {}
    }
    serde_json::json!({"type": attribute.data_type, "value": text})
}

/// Of a deduplication key.
pub(crate) fn dedup_of_key(key: &str) -> [u8; 16] {
    let digest = Sha256::digest(key.as_bytes());
    *digest.first_chunk().expect("it has 32 bytes")
}

/// Of a body that stands for its own key: which key that is of a text, receivers are shown, and may send.
/// JSON that is no text is another body than the text that reads the same.
pub(crate) fn dedup_of_body(body: &Body) -> [u8; 16] {
    let of_bytes = dedup_of_key(&sqs::digest::deduplication_id(body.bytes()));
    match body {
        Body::Json(_) => digest(&[&of_bytes, b"json"]),
        // What is not text reads as none.
        Body::Text(_) | Body::Binary(_) => of_bytes,
    }
}

/// What tells a message sent twice in a queue with these settings: what tells it by itself, and its group
/// where groups have nothing to do with each other.
pub(crate) fn dedup_in(settings: &Settings, group: Option<&str>, own: [u8; 16]) -> [u8; 16] {
    match group {
        Some(group) if deduplicates_by_group(settings) => digest(&[&own, group.as_bytes()]),
        _ => own,
    }
}

/// Whether deduplication is by group, or over the whole queue. Only clients of SQS can say so, and it holds
/// for everybody.
pub(crate) fn deduplicates_by_group(settings: &Settings) -> bool {
    let scope = settings.notes.get(QueueAttributeName::DeduplicationScope.as_str());
    scope.is_some_and(|scope| scope == "messageGroup")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).expect("JSON")
    }

    fn shown(body: Body) -> String {
        serde_json::to_string(&BodyAsJson(body)).expect("bodies serialise")
    }

    #[test]
    fn bodies_come_back_as_they_were_spelt() {
        let texts = [r#""text""#, r#""""#, r#""ü\n""#, r#""\"""#, r#""a\\""#];
        for json in [r#"{"b": 1.50, "a": [null, 1e3]}"#, "17", "null"].into_iter().chain(texts) {
            let back = shown(body_from_json(&raw(json)));
            let same: Value = serde_json::from_str(&back).expect("JSON");
            assert_eq!(same, serde_json::from_str::<Value>(json).expect("JSON"), "{json}");
        }
        assert_eq!(body_from_json(&raw(r#"{"b": 1.50}"#)).bytes(), br#"{"b": 1.50}"#);
        assert_eq!(shown(body_from_json(&raw(r#"{"b": 1.50}"#))), r#"{"b": 1.50}"#);
        assert_eq!(shown(body_from_bytes(&[0xff, 0])), r#""/wA=""#);
    }

    #[test]
    fn every_byte_that_needs_an_escape_is_seen_wherever_it_stands() {
        for byte in 0..=0x7f_u8 {
            for place in 0..20 {
                let mut text = vec![b'.'; 20];
                text[place] = byte;
                let text = String::from_utf8(text).expect("ASCII");
                let mut put = Vec::new();
                put_string(&mut put, &text);
                assert_eq!(put, serde_json::to_vec(&text).expect("JSON"), "{byte} at {place}");
            }
        }
        assert!(!needs_escapes("ü€😀 and no more of them than that".as_bytes()));
    }

    #[test]
    fn attributes_come_back_as_they_were_sent() {
        for json in [
            r#""text""#,
            "17",
            "-2.5",
            "true",
            r#"{"type":"Binary","value":"AAE="}"#,
            r#"{"type":"Number.int","value":"5"}"#,
        ] {
            let value: Value = serde_json::from_str(json).expect("JSON");
            let attribute = attribute_from_json(json).expect("an attribute");
            assert_eq!(attribute_to_json(&attribute), value);
        }
    }

    #[test]
    fn what_is_no_attribute_is_refused() {
        for json in [
            "null",
            "[1]",
            "1e999",
            "{}",
            r#"{"type":"Blob","value":"x"}"#,
            r#"{"type":"Number","value":"x"}"#,
            r#"{"type":"Number","value":""}"#,
            r#"{"type":"Number","value":"NaN"}"#,
            r#"{"type":"Number.x","value":"-inf"}"#,
            r#"{"type":"Number","value":"infinity"}"#,
            r#"{"type":"Number","value":"1e999"}"#,
            r#"{"type":"Binary","value":"?"}"#,
            r#"{"type":"String","value":"x","more":1}"#,
        ] {
            assert!(attribute_from_json(json).is_err(), "{json}");
        }
    }

    #[test]
    fn attributes_are_read_no_further_than_they_may_go() {
        let read = |json: &str| {
            let error = serde_json::from_str::<Attributes>(json).map(|read| read.0).unwrap_err();
            error.to_string()
        };
        let many: String = (0..51).map(|n| format!("\"a{n}\": 1,")).collect();
        for what in ["1}", "[0, 0", "no JSON"] {
            let said = read(&format!("{{{many} \"last\": {what}"));
            assert!(said.starts_with("there must be from 0 to 50"), "{said}");
        }
        // Whoever builds it says that it is nested too deep.
        let deep = format!("{}0{}", "[".repeat(200), "]".repeat(200));
        let said = read(&format!("{{\"a\": {deep}}}"));
        assert!(said.starts_with("an attribute is a string"), "{said}");
        for fields in [format!("\"type\": \"String\", \"value\": {deep}"), format!("\"x\": {deep}")]
        {
            let said = read(&format!("{{\"a\": {{{fields}}}}}"));
            assert!(said.starts_with("an attribute's object has type and value"), "{said}");
        }
        let said = read(&format!("{{\"{}\": 1}}", "n".repeat(257)));
        assert!(said.starts_with("an attribute's name must have from 1 to 256 bytes"), "{said}");
    }

    #[test]
    fn a_key_and_a_body_that_read_the_same_are_two_things() {
        assert_ne!(dedup_of_key("x"), dedup_of_body(&Body::Text("x".into())));
    }

    #[test]
    fn a_text_and_the_json_that_reads_the_same_are_two_bodies() {
        let text = dedup_of_body(&Body::Text("5".into()));
        assert_ne!(text, dedup_of_body(&Body::Json("5".into())));
        assert_eq!(text, dedup_of_key(&sqs::digest::deduplication_id(b"5")), "as clients of SQS");
    }
}
