//! Filters as JSON: for each attribute a list of things, one of which must hold.
//!
//! ```json
//! {"kind": ["mail", {"prefix": "sms."}], "size": [{"numeric": [">=", 1, "<", 100]}],
//!  "trace": [{"exists": false}]}
//! ```

use std::collections::BTreeMap;

use queue::filter::{Edge, Filter, OF_STORY, Rule};
use serde_json::{Map, Value, json};

/// Attributes that a filter names.
const ATTRIBUTES_MAX: usize = 20;
/// Bytes of a name or a text in it.
const TEXT_BYTES_MAX: usize = 256;
/// Things that are said in it.
const RULES_MAX: usize = 150;
/// Of a word that is not known, when it is said again.
const NAME_SHOWN_CHARS_MAX: usize = 60;

const TOO_LONG: &str = "it is too long";

/// As [`from_json`], of a topic: only a dead letter tells of itself, and what is published is none.
pub(crate) fn of_topic(value: &Value) -> Result<Filter, String> {
    let names = value.as_object().into_iter().flat_map(Map::keys);
    match names.into_iter().find(|name| name.starts_with('$')) {
        Some(name) => Err(format!("{name}: a topic's filter asks for no name that begins with $")),
        None => from_json(value),
    }
}

/// Reads a filter, or says what is wrong with it.
pub(crate) fn from_json(value: &Value) -> Result<Filter, String> {
    let object = value
        .as_object()
        .ok_or(r#"a filter is an object of attributes, like {"kind": ["mail"]}"#)?;
    let mut attributes = BTreeMap::new();
    for (name, rules) in object {
        let wrong = |why: &str| format!("{name}: {why}");
        if name.len() > TEXT_BYTES_MAX {
            return Err(format!("an attribute's name has {TEXT_BYTES_MAX} bytes at most"));
        }
        if name.starts_with('$') && !OF_STORY.contains(&name.as_str()) {
            let known = OF_STORY.join(", ");
            return Err(wrong(&format!("of a dead letter itself can be asked {known}")));
        }
        let rules = rules.as_array().filter(|rules| !rules.is_empty());
        let rules =
            rules.ok_or_else(|| wrong(r#"it must be a list that is not empty, like ["mail"]"#))?;
        let read = rules.iter().map(|rule| rule_from_json(rule).map_err(|why| wrong(&why)));
        attributes.insert(name.clone(), read.collect::<Result<Vec<Rule>, String>>()?);
    }
    let rules: usize = attributes.values().map(Vec::len).sum();
    if attributes.len() > ATTRIBUTES_MAX || rules > RULES_MAX {
        return Err(format!("a filter names {ATTRIBUTES_MAX} attributes and {RULES_MAX} things"));
    }
    Ok(Filter { attributes })
}

fn rule_from_json(value: &Value) -> Result<Rule, String> {
    match value {
        Value::String(text) if text.len() > TEXT_BYTES_MAX => Err(TOO_LONG.to_owned()),
        Value::String(text) => Ok(Rule::Is(text.clone())),
        Value::Number(number) => {
            number.as_f64().map(Rule::number).ok_or_else(|| "it is no number".to_owned())
        }
        Value::Bool(is) => Ok(Rule::Is(is.to_string())),
        Value::Object(object) => object_rule(object),
        _ => {
            Err("it is a text, a number, a boolean, or one of prefix, numeric and exists"
                .to_owned())
        }
    }
}

fn object_rule(object: &Map<String, Value>) -> Result<Rule, String> {
    let known = |name: &&String| ["prefix", "numeric", "exists"].contains(&name.as_str());
    if let Some(name) = object.keys().find(|name| !known(name)) {
        let shown: String = name.chars().take(NAME_SHOWN_CHARS_MAX).collect();
        return Err(format!("unknown field `{shown}`, expected one of prefix, numeric and exists"));
    }
    let mut fields = object.iter();
    match (fields.next(), fields.next()) {
        (Some((_, Value::String(text))), None) if text.len() > TEXT_BYTES_MAX => {
            Err(TOO_LONG.to_owned())
        }
        (Some((name, Value::String(prefix))), None) if name == "prefix" => {
            Ok(Rule::Prefix(prefix.clone()))
        }
        (Some((name, Value::Bool(is))), None) if name == "exists" => Ok(Rule::Exists(*is)),
        (Some((name, Value::Array(parts))), None) if name == "numeric" => {
            numeric(parts).map_err(str::to_owned)
        }
        _ => {
            Err("it is {\"prefix\": text}, {\"numeric\": [\"<\", 5]} or {\"exists\": true}"
                .to_owned())
        }
    }
}

fn numeric(parts: &[Value]) -> Result<Rule, &'static str> {
    const WRONG: &str = "numeric is a list like [\">=\", 1, \"<\", 5] or [\"=\", 3]";
    let (mut from, mut to) = (None, None);
    if parts.is_empty() || parts.len() % 2 == 1 {
        return Err(WRONG);
    }
    for pair in parts.chunks_exact(2) {
        let (Some(sign), Some(number)) = (pair[0].as_str(), pair[1].as_f64()) else {
            return Err(WRONG);
        };
        let (of_from, of_to) = match sign {
            "=" => (Some(true), Some(true)),
            ">" => (Some(false), None),
            ">=" => (Some(true), None),
            "<" => (None, Some(false)),
            "<=" => (None, Some(true)),
            _ => return Err(WRONG),
        };
        for (side, included) in [(&mut from, of_from), (&mut to, of_to)] {
            if let Some(included) = included
                && side.replace(Edge::new(number, included)).is_some()
            {
                return Err(WRONG);
            }
        }
    }
    match (&from, &to) {
        (Some(from), Some(to)) if never_holds(from, to) => {
            Err("numeric asks for what there is not: no number is within its bounds")
        }
        _ => Ok(Rule::Between { from, to }),
    }
}

fn never_holds(from: &Edge, to: &Edge) -> bool {
    let (low, high) = (from.number(), to.number());
    low > high || low == high && !(from.included && to.included)
}

/// The JSON that [`from_json`] reads.
pub(crate) fn to_json(filter: &Filter) -> Value {
    let rules = |rules: &Vec<Rule>| rules.iter().map(rule_to_json).collect::<Value>();
    filter.attributes.iter().map(|(name, said)| (name.clone(), rules(said))).collect()
}

fn rule_to_json(rule: &Rule) -> Value {
    match rule {
        Rule::Is(text) => Value::String(text.clone()),
        Rule::Prefix(prefix) => json!({"prefix": prefix}),
        Rule::Exists(is) => json!({"exists": is}),
        Rule::Between { from, to } => {
            let mut parts = Vec::new();
            for (edge, with, without) in [(from, ">=", ">"), (to, "<=", "<")] {
                if let Some(edge) = edge {
                    parts.push(json!(if edge.included { with } else { without }));
                    parts.push(json!(edge.number()));
                }
            }
            json!({"numeric": parts})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read() {
        let filter = from_json(&json!({
            "kind": ["mail", {"prefix": "sms."}, 5, true],
            "size": [{"numeric": [">", 1, "<=", 9]}, {"numeric": ["=", 20]}],
            "trace": [{"exists": false}],
        }))
        .expect("a filter");
        assert_eq!(filter.attributes["kind"][3], Rule::Is("true".into()));
        let (from, to) = (Some(Edge::new(1.0, false)), Some(Edge::new(9.0, true)));
        assert_eq!(filter.attributes["size"], [Rule::Between { from, to }, Rule::number(20.0)]);
        assert_eq!(filter.attributes["trace"], [Rule::Exists(false)]);
        assert_eq!(from_json(&to_json(&filter)), Ok(filter), "and written so");
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for bad in [
            json!([]),
            json!({"a": "x"}),
            json!({"a": []}),
            json!({"a": [null]}),
            json!({"a": [{}]}),
            json!({"a": [{"prefix": 5}]}),
            json!({"a": [{"prefix": "x", "exists": true}]}),
            json!({"a": [{"suffix": "x"}]}),
            json!({"a": [{"numeric": []}]}),
            json!({"a": [{"numeric": [">"]}]}),
            json!({"a": [{"numeric": ["~", 1]}]}),
            json!({"a": [{"numeric": [">", 1, ">=", 2]}]}),
            json!({"a": [{"numeric": [">", "1"]}]}),
            json!({"a": [{"numeric": [">", 5, "<", 1]}]}),
            json!({"a": [{"numeric": [">", 5, "<=", 5]}]}),
            json!({"$kind": ["x"]}),
            json!({"a": vec!["x"; 151]}),
            json!({"a": ["x".repeat(257)]}),
            json!({"a": [{"prefix": "x".repeat(257)}]}),
            json!({"x".repeat(257): ["x"]}),
        ] {
            assert!(from_json(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_that_are_not_known_are_named() {
        for word in ["prefx", "anything-but"] {
            let why = from_json(&json!({"a": [{word: ["x"]}]})).expect_err("refused");
            assert!(why.starts_with("a: ") && why.contains(&format!("`{word}`")), "{why}");
        }
        let why = from_json(&json!({"a": [{"x".repeat(500): 1}]})).expect_err("refused");
        assert!(why.len() < 200, "{why}");
    }

    #[test]
    fn bounds_that_hold_no_number_are_told_so() {
        for bounds in [json!([">", 5, "<", 1]), json!([">", 5, "<=", 5]), json!([">", 5, "<", 5])] {
            let why = from_json(&json!({"a": [{"numeric": bounds}]})).expect_err("refused");
            assert!(why.ends_with("no number is within its bounds"), "{why}");
        }
    }

    #[test]
    fn one_number_alone_can_be_asked_for_as_a_range() {
        let filter = from_json(&json!({"a": [{"numeric": [">=", 5, "<=", 5]}]}));
        let edge = || Some(Edge::new(5.0, true));
        let between = Rule::Between { from: edge(), to: edge() };
        assert_eq!(filter.expect("a filter").attributes["a"], [between]);
    }

    #[test]
    fn a_topic_is_not_asked_for_what_only_dead_letters_have() {
        for name in OF_STORY.into_iter().chain(["$other"]) {
            let filter = json!({name: [{"exists": true}]});
            let why = of_topic(&filter).expect_err("refused");
            assert!(why.starts_with(name), "{why}");
        }
        let usual = json!({"kind": ["mail"]});
        assert_eq!(of_topic(&usual), from_json(&usual));
    }
}
