//! Requests of the query protocol: parameters with dotted names into the JSON of the model.

use std::collections::BTreeMap;

use percent_encoding::percent_decode;
use serde_json::{Map, Value};

use super::members::{INPUTS, Shape};
use crate::error::{ErrorKind, SqsError};
use crate::url::QueuePath;

/// Parts of the longest name there is:
/// `SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringListValue.1`.
const PARTS_MAX: usize = 7;

/// Parameters of a request. The largest that is good, ten messages with ten attributes each, has some
/// 600; each becomes nodes of a tree, which take many times the bytes of a short name.
const PARAMETERS_MAX: usize = 4000;

/// Whether a query string has a parameter of this name.
pub(super) fn names(query: &str, name: &str) -> bool {
    query.split('&').any(|pair| pair.split('=').next() == Some(name))
}

/// The parameters of a request, as a tree along the dots of their names.
#[derive(Debug)]
pub(super) struct Parameters(Node);

#[derive(Debug, Default)]
struct Node {
    text: Option<String>,
    children: BTreeMap<String, Node>,
}

impl Parameters {
    /// From the query string and the form; the form wins.
    pub(super) fn parse(query: &[u8], form: &[u8]) -> Result<Parameters, SqsError> {
        let mut root = Node::default();
        let pairs = [query, form].into_iter().flat_map(|source| source.split(|byte| *byte == b'&'));
        for (count, pair) in pairs.filter(|pair| !pair.is_empty()).enumerate() {
            if count == PARAMETERS_MAX {
                let detail = format!("A request has {PARAMETERS_MAX} parameters at most.");
                return Err(ErrorKind::MalformedInput.because(detail));
            }
            let mut sides = pair.splitn(2, |byte| *byte == b'=');
            let name = text(sides.next().unwrap_or_default())?;
            let value = text(sides.next().unwrap_or_default())?;
            root.insert(&name, value)?;
        }
        Ok(Parameters(root))
    }

    /// A parameter without dots.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.children.get(name)?.text.as_deref()
    }

    /// The input of an action. A queue that no parameter names is named by the path.
    pub(super) fn into_input(self, path: &str) -> Result<Value, SqsError> {
        let mut object = self.0.into_object()?;
        if !object.contains_key("QueueUrl") && QueuePath::parse(path).is_some() {
            object.insert("QueueUrl".to_owned(), path.into());
        }
        Ok(Value::Object(object))
    }
}

/// Text of a form. What is not UTF-8 is refused: a message must come out as it went in.
fn text(raw: &[u8]) -> Result<String, SqsError> {
    let spaced: Vec<u8> = raw.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    String::from_utf8(percent_decode(&spaced).collect())
        .map_err(|_| ErrorKind::MalformedInput.because("A parameter is not UTF-8."))
}

/// Whether the model has a list or a map of this name.
fn is_of_many(name: &str) -> bool {
    INPUTS.iter().any(|(_, member, shape)| *member == name && *shape != Shape::Number)
}

impl Node {
    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.text.as_deref().is_none_or(str::is_empty)
    }

    fn insert(&mut self, name: &str, value: String) -> Result<(), SqsError> {
        let mut node = self;
        for (depth, part) in name.split('.').enumerate() {
            if depth == PARTS_MAX {
                return Err(
                    ErrorKind::MalformedInput.because("The name of a parameter is too deep.")
                );
            }
            node = node.children.entry(part.to_owned()).or_default();
        }
        node.text = Some(value);
        Ok(())
    }

    fn into_object(self) -> Result<Map<String, Value>, SqsError> {
        let mut object = Map::new();
        for (name, node) in self.children {
            match INPUTS.iter().find(|(wire, ..)| *wire == name) {
                // Older clients write a list without elements so, under its name in the model.
                None if node.is_empty() && is_of_many(&name) => {}
                None => {
                    object.insert(name, node.into_value()?);
                }
                Some((_, member, shape)) => {
                    object.insert((*member).to_owned(), node.into_shape(&name, *shape)?);
                }
            }
        }
        Ok(object)
    }

    fn into_value(self) -> Result<Value, SqsError> {
        if self.children.is_empty() {
            return Ok(self.text.unwrap_or_default().into());
        }
        self.into_object().map(Value::Object)
    }

    fn into_shape(self, name: &str, shape: Shape) -> Result<Value, SqsError> {
        match shape {
            Shape::Number => number(name, &self.text.unwrap_or_default()),
            Shape::List => {
                self.into_items().into_iter().map(Node::into_value).collect::<Result<_, _>>()
            }
            Shape::Map(key, value) => {
                let mut object = Map::new();
                for mut item in self.into_items() {
                    let missing = |part: &str| SqsError::missing(&format!("{name}.{part}"));
                    let key_text = item.children.remove(key).and_then(|node| node.text);
                    let node = item.children.remove(value).ok_or_else(|| missing(value))?;
                    object.insert(key_text.ok_or_else(|| missing(key))?, node.into_value()?);
                }
                Ok(Value::Object(object))
            }
        }
    }

    /// The elements in the order of their numbers. A lone one may come without a number, as in
    /// `Attribute.Name=Policy`.
    fn into_items(self) -> Vec<Node> {
        if self.is_empty() {
            return Vec::new();
        }
        let is_numbered = self.children.keys().any(|key| key.parse::<u32>().is_ok());
        if !is_numbered {
            return vec![self];
        }
        let numbered = |(key, node): (String, Node)| Some((key.parse::<u32>().ok()?, node));
        let mut items: Vec<_> = self.children.into_iter().filter_map(numbered).collect();
        items.sort_by_key(|(number, _)| *number);
        items.into_iter().map(|(_, node)| node).collect()
    }
}

fn number(name: &str, text: &str) -> Result<Value, SqsError> {
    match text.parse::<i32>() {
        Ok(number) => Ok(number.into()),
        Err(_) => {
            let shown: String = text.chars().take(100).collect();
            Err(SqsError::value(shown, name, "Must be an integer."))
        }
    }
}
