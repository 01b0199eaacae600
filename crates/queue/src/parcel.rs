//! What is in a message: a body, attributes and where it came from.
//!
//! The edge packs it, in every dialect the same, and the queue only looks at its attributes, to
//! filter by them. Rows hold it for as long as a message lives: a change is a new version.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use kernel::Unreadable;
use kernel::codec::{read_versioned, unpack, versioned};
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

/// A body that lies in the archive, under a name that is made of this.
///
/// Of a parcel with such a body it comes first, so that the queue finds it without reading more:
///
/// ```text
///   2, shard u16, number u64, sha256, bytes u64, the rest with an empty body in postcard
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArchivedBody {
    /// The shard that gave the number.
    pub shard: u16,
    /// Never given twice by a shard: the same body sent twice is two objects.
    pub number: u64,
    /// Of the body.
    pub sha256: [u8; 32],
    /// How many it has.
    pub bytes: u64,
}

/// Of a parcel whose body lies in the archive.
const ARCHIVED_VERSION: u8 = 2;
/// What such a parcel begins with.
const ARCHIVED_BYTES: usize = 1 + 2 + 8 + 32 + 8;

impl ArchivedBody {
    /// Where the body of an encoded parcel lies; `None` when it is in the parcel.
    #[must_use]
    pub fn of(parcel: &[u8]) -> Option<ArchivedBody> {
        let (&ARCHIVED_VERSION, fields) = parcel.split_first()? else { return None };
        let (shard, fields) = fields.split_first_chunk()?;
        let (number, fields) = fields.split_first_chunk()?;
        let (sha256, fields) = fields.split_first_chunk()?;
        let bytes = u64::from_be_bytes(*fields.first_chunk()?);
        let (shard, number) = (u16::from_be_bytes(*shard), u64::from_be_bytes(*number));
        Some(ArchivedBody { shard, number, sha256: *sha256, bytes })
    }
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

    /// As [`Parcel::encode`], with a body that lies in the archive: the one in here is empty, and
    /// only says of which kind it is.
    #[must_use]
    pub fn encode_archived(&self, body: &ArchivedBody) -> Bytes {
        debug_assert!(self.body.bytes().is_empty(), "a body lies in one place");
        let mut parcel = Vec::with_capacity(ARCHIVED_BYTES + 256);
        parcel.put_u8(ARCHIVED_VERSION);
        parcel.put_u16(body.shard);
        parcel.put_u64(body.number);
        parcel.put_slice(&body.sha256);
        parcel.put_u64(body.bytes);
        postcard::to_extend(self, parcel).expect("plain data serialises").into()
    }

    /// Reads what [`Parcel::encode`] or [`Parcel::encode_archived`] made: of a body that lies in the
    /// archive, [`ArchivedBody::of`] says where.
    ///
    /// # Panics
    /// When it was made by a newer binary.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Parcel {
        Parcel::read(bytes).expect("only the edge packs parcels")
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Parcel, Unreadable> {
        if ArchivedBody::of(bytes).is_some() {
            return unpack("a parcel", &bytes[ARCHIVED_BYTES..]);
        }
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
    /// Takes the bytes out, and leaves an empty body of the same kind.
    #[must_use]
    pub fn take(&mut self) -> Bytes {
        match self {
            Body::Text(text) | Body::Json(text) => std::mem::take(text).into(),
            Body::Binary(bytes) => std::mem::take(bytes).into(),
        }
    }

    /// Puts bytes in that [`Body::take`] took out. False when they cannot be of this kind: they are
    /// others then.
    #[must_use]
    pub fn fill(&mut self, bytes: Vec<u8>) -> bool {
        match self {
            Body::Binary(body) => *body = bytes,
            Body::Text(body) | Body::Json(body) => match String::from_utf8(bytes) {
                Ok(text) => *body = text,
                Err(_) => return false,
            },
        }
        true
    }

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

    /// Whether its text is a number: its type is `Number`, with or without a name behind it.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.data_type.split('.').next() == Some("Number")
    }
}
