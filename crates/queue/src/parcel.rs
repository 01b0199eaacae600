//! What is in a message: a body, attributes and where it came from.
//!
//! The edge packs it, in every dialect the same, and the queue only looks at its attributes, to
//! filter by them. Rows hold it for as long as a message lives: a change is a new version.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::Unreadable;
use kernel::codec::{read_versioned, versioned};
use serde::{Deserialize, Serialize};

/// What is in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// Before the body, so that a filter need not read it.
    pub attributes: BTreeMap<String, Attribute>,
    /// The id of the trace that the sender was in; 0 for none. As long as any other: how a batch is
    /// cut into commands must not depend on it.
    trace_id: [u8; 16],
    /// What another dialect sends along for itself.
    pub system: BTreeMap<String, Attribute>,
    /// What it is about.
    pub body: Body,
}

/// A body as it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// A text, or a JSON string.
    Text(String),
    /// Any other JSON, as it was spelt.
    Json(String),
    /// What is not text.
    Binary(Vec<u8>),
}

/// An attribute of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, and perhaps a dot and a name behind it.
    pub data_type: String,
    /// Its value.
    pub value: AttributeValue,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeValue {
    /// Of a `String` or a `Number`.
    Text(String),
    /// Of a `Binary`.
    Binary(Vec<u8>),
}

impl Parcel {
    /// A body and nothing else.
    #[must_use]
    pub fn new(body: Body) -> Parcel {
        let (attributes, system) = (BTreeMap::new(), BTreeMap::new());
        Parcel { body, attributes, trace_id: [0; 16], system }
    }

    /// In this trace.
    #[must_use]
    pub fn traced(mut self, trace_id: Option<u128>) -> Parcel {
        self.trace_id = trace_id.unwrap_or(0).to_be_bytes();
        self
    }

    /// The trace that the sender was in.
    #[must_use]
    pub fn trace_id(&self) -> Option<u128> {
        Some(u128::from_be_bytes(self.trace_id)).filter(|id| *id != 0)
    }

    /// For [`NewMessage::parcel`](crate::NewMessage).
    #[must_use]
    pub fn encode(&self) -> Bytes {
        versioned(self).into()
    }

    /// Reads what [`Parcel::encode`] made.
    ///
    /// # Panics
    /// When it was made by a newer binary.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Parcel {
        Parcel::read(bytes).expect("only the edge packs parcels")
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Parcel, Unreadable> {
        read_versioned("a parcel", bytes)
    }

    /// What a queue's bound on bodies counts: the body and the attributes.
    #[must_use]
    pub fn counted_bytes(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, attribute)| {
            name.len() + attribute.data_type.len() + attribute.value.bytes().len()
        });
        self.body.bytes().len() + attributes.sum::<usize>()
    }
}

impl Body {
    /// As they are.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Text(text) | Body::Json(text) => text.as_bytes(),
            Body::Binary(bytes) => bytes,
        }
    }
}

impl AttributeValue {
    /// As they are.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            AttributeValue::Text(text) => text.as_bytes(),
            AttributeValue::Binary(bytes) => bytes,
        }
    }
}

impl Attribute {
    /// Of a type whose value is text.
    #[must_use]
    pub fn text(data_type: &str, value: impl Into<String>) -> Attribute {
        Attribute { data_type: data_type.to_owned(), value: AttributeValue::Text(value.into()) }
    }
}
