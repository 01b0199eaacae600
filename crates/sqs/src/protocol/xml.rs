//! Answers of the query protocol: the JSON of the model into XML.

use serde_json::{Map, Value};

use super::members::{OUTPUTS, Shape};
use crate::action::ActionName;
use crate::error::SqsError;

const HEAD: &str = "<?xml version=\"1.0\"?>";
const NO_QUEUE: &str = "The specified queue does not exist for this wsdl version.";
const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

/// The document of an output; `None` for an action that has none.
pub(super) fn output(
    action: ActionName,
    output: Option<&Map<String, Value>>,
    request_id: &str,
) -> String {
    let name = action.as_str();
    let mut xml = format!("{HEAD}<{name}Response xmlns=\"{NAMESPACE}\">");
    if let Some(members) = output {
        let result = format!("{name}Result");
        element(&mut xml, &result, |xml| object(xml, action, members));
    }
    element(&mut xml, "ResponseMetadata", |xml| leaf(xml, "RequestId", request_id));
    xml.push_str("</");
    xml.push_str(name);
    xml.push_str("Response>");
    xml
}

/// The document of an error.
pub(super) fn error(error: &SqsError, request_id: &str) -> String {
    let mut xml = format!("{HEAD}<ErrorResponse xmlns=\"{NAMESPACE}\">");
    element(&mut xml, "Error", |xml| {
        leaf(xml, "Type", error.kind.fault().as_str());
        leaf(xml, "Code", error.kind.code());
        // Older clients look for the words of their protocol.
        let is_no_queue = *error == SqsError::no_queue();
        let message = if is_no_queue { NO_QUEUE } else { &error.message };
        leaf(xml, "Message", message);
        xml.push_str("<Detail/>");
    });
    leaf(&mut xml, "RequestId", request_id);
    xml.push_str("</ErrorResponse>");
    xml
}

fn element(xml: &mut String, name: &str, inside: impl FnOnce(&mut String)) {
    xml.push('<');
    xml.push_str(name);
    xml.push('>');
    inside(xml);
    xml.push_str("</");
    xml.push_str(name);
    xml.push('>');
}

fn leaf(xml: &mut String, name: &str, text: &str) {
    element(xml, name, |xml| escape(xml, text));
}

fn object(xml: &mut String, action: ActionName, members: &Map<String, Value>) {
    for (member, inner) in members {
        if member == "Successful" {
            let name = format!("{}ResultEntry", action.as_str());
            list(xml, action, &name, inner);
            continue;
        }
        match OUTPUTS.iter().find(|(_, other, _)| other == member) {
            Some((wire, _, Shape::List)) => list(xml, action, wire, inner),
            Some((wire, _, Shape::Map(key, value))) => map(xml, action, (wire, key, value), inner),
            _ => element(xml, member, |xml| scalar_or_object(xml, action, inner)),
        }
    }
}

fn list(xml: &mut String, action: ActionName, name: &str, items: &Value) {
    for item in items.as_array().into_iter().flatten() {
        element(xml, name, |xml| scalar_or_object(xml, action, item));
    }
}

fn map(xml: &mut String, action: ActionName, names: (&str, &str, &str), entries: &Value) {
    let (name, key_name, value_name) = names;
    for (key, inner) in entries.as_object().into_iter().flatten() {
        element(xml, name, |xml| {
            leaf(xml, key_name, key);
            element(xml, value_name, |xml| scalar_or_object(xml, action, inner));
        });
    }
}

fn scalar_or_object(xml: &mut String, action: ActionName, value: &Value) {
    match value {
        Value::Object(members) => object(xml, action, members),
        Value::String(text) => escape(xml, text),
        other => xml.push_str(&other.to_string()),
    }
}

/// A carriage return is written as a reference, because a reader would make a line feed of it and
/// the checksum of the message would be wrong. What XML cannot hold at all is replaced.
fn escape(xml: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\r' => xml.push_str("&#xD;"),
            c if crate::validate::is_allowed(c) => xml.push(c),
            _ => xml.push(char::REPLACEMENT_CHARACTER),
        }
    }
}
