//! The wire of the SQS dialect: pure functions between bytes and types, no I/O and no clock.
//!
//! ```text
//!   bytes ─▶ signature::parse ─▶ (key is looked up) ─▶ Presented::check
//!     └────▶ Protocol::decode ─▶ Action ─▶ validate ─▶ (the queue) ─▶ Output ─▶ Protocol::answer
//!                                                             └─▶ SqsError ─▶ Protocol::refuse
//! ```
//!
//! Two protocols carry the same 23 actions: AWS JSON 1.0, which clients speak since the end of
//! 2023, and the query protocol of before (forms in, XML out). Nothing after
//! [`Protocol::decode`] can tell which one it was.
//!
//! | module | what it holds |
//! |---|---|
//! | [`action`] | the table of actions: name, input, output |
//! | [`mod@arn`], [`url`] | the two ways to name a queue |
//! | [`attributes`] | the attributes of a queue, typed |
//! | [`digest`] | the checksums that clients compare |
//! | [`error`] | every error, in one table |
//! | [`input`], [`output`], [`value`] | the shapes of the model, under its names |
//! | [`limits`] | every bound that AWS documents, in one place |
//! | [`policy`] | permissions, as a policy has them |
//! | [`protocol`] | both protocols, both ways |
//! | [`select`] | which attributes a caller asks for |
//! | [`signature`] | signature version 4 |
//! | [`validate`] | what can be refused by looking at a request alone |

pub mod action;
pub mod arn;
pub mod attributes;
pub mod digest;
pub mod error;
pub mod input;
pub mod limits;
pub mod output;
pub mod policy;
pub mod protocol;
pub mod select;
pub mod signature;
pub mod url;
pub mod validate;
pub mod value;

pub use action::{Action, ActionName, Output};
pub use arn::QueueArn;
pub use attributes::QueueAttributes;
pub use error::{ErrorKind, SqsError};
pub use protocol::Protocol;
pub use signature::Presented;
pub use url::QueuePath;
