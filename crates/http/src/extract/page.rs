//! Lists, page by page: the two parameters that every one of them takes, and what it gives.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::rows::RowsReader;
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::limits::{CURSOR_BYTES_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX};
use crate::problem::{Problem, ProblemKind};

/// How many items to give: 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub struct Limit(u32);

impl Limit {
    /// The number.
    #[must_use]
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

impl Default for Limit {
    fn default() -> Limit {
        Limit(PAGE_ITEMS_DEFAULT)
    }
}

impl TryFrom<u32> for Limit {
    type Error = String;

    fn try_from(limit: u32) -> Result<Limit, String> {
        if (1..=PAGE_ITEMS_MAX).contains(&limit) {
            Ok(Limit(limit))
        } else {
            Err(format!("it must be from 1 to {PAGE_ITEMS_MAX}"))
        }
    }
}

/// Where the next page begins: bytes that mean something to the list that gave them, and nothing
/// to the client.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor(
    /// The bytes.
    pub Vec<u8>,
);

impl Cursor {
    /// Of a list by name: the name that the page before ended with; empty before the first.
    pub(crate) fn name_before(cursor: Option<Cursor>) -> Result<String, Problem> {
        let bytes = cursor.map_or(Vec::new(), |cursor| cursor.0);
        String::from_utf8(bytes).map_err(|_| not_of_this_list())
    }
}

/// What a list takes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    #[serde(default)]
    pub(crate) limit: Limit,
    pub(crate) cursor: Option<Cursor>,
}

/// What a list by name takes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamesQuery {
    #[serde(default)]
    pub(crate) limit: Limit,
    pub(crate) cursor: Option<Cursor>,
    /// Only those whose names begin so.
    pub(crate) prefix: Option<String>,
}

/// What a list gives.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<Cursor>,
}

pub(crate) fn not_of_this_list() -> Problem {
    ProblemKind::InvalidParameter.because("cursor: not a cursor that this list gave")
}

/// A page of a list by name that lies in several shards: each name with the place of its shard, and
/// where the next page begins. `names` gives those of a shard, at most so many. Blocks.
pub(crate) fn page_by_name(
    shards: &[RowsReader],
    limit: usize,
    names: impl Fn(&RowsReader, usize) -> Vec<String>,
) -> (Vec<(String, usize)>, Option<Cursor>) {
    let mut found: Vec<(String, usize)> = Vec::new();
    for (shard, rows) in shards.iter().enumerate() {
        // One more than asked for tells whether there is a next page.
        found.extend(names(rows, limit + 1).into_iter().map(|name| (name, shard)));
    }
    found.sort();
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|(name, _)| Cursor(name.clone().into_bytes()));
    (found, next)
}

impl TryFrom<String> for Cursor {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Cursor, &'static str> {
        match URL_SAFE_NO_PAD.decode(text) {
            Ok(bytes) if bytes.len() <= CURSOR_BYTES_MAX => Ok(Cursor(bytes)),
            _ => Err("not a cursor that this server gave"),
        }
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> String {
        URL_SAFE_NO_PAD.encode(cursor.0)
    }
}

// By hand: the derived one does not say what an item is.
impl<T: ToSchema> PartialSchema for Page<T> {
    fn schema() -> RefOr<Schema> {
        let page = ObjectBuilder::new()
            .property("items", ArrayBuilder::new().items(Ref::from_schema_name(T::name())))
            .required("items")
            .property("nextCursor", Cursor::schema());
        RefOr::T(Schema::Object(page.build()))
    }
}

impl<T: ToSchema> ToSchema for Page<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Page", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }
}

impl PartialSchema for Limit {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .minimum(Some(1))
            .maximum(Some(PAGE_ITEMS_MAX))
            .description(Some("How many items to give."));
        RefOr::T(Schema::Object(number.build()))
    }
}

impl ToSchema for Limit {}

impl PartialSchema for Cursor {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .description(Some("The `nextCursor` of the page before; opaque."));
        RefOr::T(Schema::Object(text.build()))
    }
}

impl ToSchema for Cursor {}
