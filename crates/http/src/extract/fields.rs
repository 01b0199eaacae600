//! The fields of an object that is read in parts.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// As a map, but a field that is given twice is refused, as where fields are read into a type.
#[derive(Debug)]
pub(crate) struct Fields(pub(crate) Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(OfFields)
    }
}

struct OfFields;

impl<'de> Visitor<'de> for OfFields {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Fields, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = access.next_entry::<String, Value>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_given_twice_is_refused() {
        let read = |json: &str| serde_json::from_str::<Fields>(json);
        let why = read(r#"{"a": 1, "b": 2, "a": 3}"#).expect_err("twice").to_string();
        assert!(why.starts_with("duplicate field `a`"), "{why}");
        assert_eq!(read(r#"{"a": 1, "b": 2}"#).expect("fields").0.len(), 2);
    }
}
