//! The shapes that inputs and outputs share.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, which both protocols write as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob(pub Bytes);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(serde::de::Error::custom)?;
        Ok(Blob(bytes.into()))
    }
}

/// The value of an attribute of a message, user's and system's alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MessageAttributeValue {
    /// `String`, `Number` or `Binary`, with a suffix of the user's after a period.
    pub data_type: String,
    /// The value of a `String` or `Number`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    /// The value of a `Binary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary_value: Option<Blob>,
    /// In the model, but refused by AWS and by us.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub string_list_values: Vec<String>,
    /// In the model, but refused by AWS and by us.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub binary_list_values: Vec<Blob>,
}

impl MessageAttributeValue {
    /// What its type is a kind of: `String`, `Number` or `Binary`.
    #[must_use]
    pub fn base_type(&self) -> &str {
        self.data_type.split('.').next().unwrap_or(&self.data_type)
    }

    /// Whether its value is bytes. Its type says so, and not which values are there: some clients write
    /// that of the other kind too, but empty.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        self.base_type() == "Binary"
    }
}

/// Attributes by name. The order is that of the checksum.
pub type MessageAttributes = BTreeMap<String, MessageAttributeValue>;

/// `null` is as good as nothing: some clients write members that are not set.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
