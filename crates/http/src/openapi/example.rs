//! An example of what a schema describes.

use serde_json::{Map, Value};

/// Schemas may contain themselves.
const DEPTH_MAX: usize = 6;

/// A value of the schema, as simple as it can be; `components` are the schemas it may refer to.
pub(super) fn of(schema: &Value, components: &Value) -> Value {
    at(schema, components, 0)
}

/// What stands for a parameter of a path in examples: the things that the examples of bodies make,
/// or a variable for what only an answer tells.
pub(super) fn of_parameter(name: &str) -> &'static str {
    match name {
        "queue" => "email-send",
        "topic" => "orders",
        "name" => "mailer",
        "stream" => "clicks",
        "partition" => "0",
        "group" => "report",
        "member" => "w1",
        "tenant" => "shop",
        "account" => "default",
        "user" => "ann",
        "q" => "hotels",
        "receiptHandle" => "$RECEIPT_HANDLE",
        "redriveId" => "$REDRIVE_ID",
        "key" => "$KEY_ID",
        _ => "x",
    }
}

/// A path with its parameters filled in.
pub(super) fn of_path(path: &str) -> String {
    let mut filled = String::new();
    for (place, part) in path.split('{').enumerate() {
        match part.split_once('}').filter(|_| place > 0) {
            Some((name, rest)) => filled.extend([of_parameter(name), rest]),
            None => filled.push_str(part),
        }
    }
    filled
}

fn at(schema: &Value, components: &Value, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    if let Some(given) = schema.get("example").or_else(|| schema.get("default")) {
        return given.clone();
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return at(&components[name], components, depth + 1);
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        let choices = schema[choice].as_array();
        let real = choices.and_then(|list| list.iter().find(|schema| schema["type"] != "null"));
        if let Some(first) = real {
            return at(first, components, depth + 1);
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap_or(&Value::Null),
        kind => kind,
    };
    match kind.as_str().unwrap_or_default() {
        "object" => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let properties =
                properties.map(|(name, inner)| (name.clone(), at(inner, components, depth + 1)));
            properties.collect::<Map<_, _>>().into()
        }
        "array" => Value::Array(vec![at(&schema["items"], components, depth + 1)]),
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
        "boolean" => true.into(),
        "string" if schema["format"] == "date-time" => "2026-01-31T12:00:00.000Z".into(),
        "string" => "…".into(),
        _ => Value::Object(Map::new()),
    }
}
