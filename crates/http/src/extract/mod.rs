//! What handlers take from a request, with our own refusals.
//!
//! | extractor | takes | refuses with |
//! |---|---|---|
//! | [`Json`] | a JSON body | `unsupported-media-type`, `invalid-body`, `payload-too-large`, `timeout` |
//! | [`RawBody`] | any body | `payload-too-large`, `timeout` |
//! | [`Path`] | the parameters of the path | `invalid-parameter` |
//! | [`Query`] | the query | `invalid-parameter` |
//! | [`Idempotency`] | the `Idempotency-Key` header | `invalid-header` |

mod batch;
pub mod body;
pub(crate) mod depth;
mod fields;
pub mod idempotency;
pub mod page;
pub mod path;
mod percent;
pub mod query;
mod words;

pub(crate) use batch::{BATCH_MAX, Unread, deserialize_batch, read_batch};
pub(crate) use body::{FromTo, parse, read_json};
pub use body::{Json, RawBody};
pub(crate) use depth::check_depth;
pub(crate) use fields::Fields;
pub use idempotency::Idempotency;
pub use page::{Cursor, Limit};
pub(crate) use page::{NamesQuery, Page, PageQuery, not_of_this_list, page_by_name};
pub use path::Path;
pub use query::Query;
pub(crate) use words::read_part;
