//! The shard: machines over a log and rows, without threads of its own while it serves.
//!
//! ```text
//!            stamp            append                     apply           publish
//!   requests ─────▶ entry ──────────▶ log ──durable──▶ machines ──▶ answers and outputs
//! ```
//!
//! A [`Shard`] does nothing by itself. Its owner (a thread of the node, or the simulator) calls
//! [`Shard::submit`] with requests and a time, then [`Shard::commit`], passes on what the log says
//! to [`Shard::on_event`], and gets the answers back from there. So the simulator runs the very
//! code that serves.
//!
//! Invariants:
//! - State changes only in `apply`, and apply is called only for durable entries, in log order.
//! - An answer leaves only after its entry is durable and applied.
//! - After the log is lost, nothing is answered but refusals; only opening anew helps.

mod apply;
mod checkpoint;
mod machines;
mod open;
mod shard;

pub use apply::Outcome;
pub use checkpoint::CheckpointJob;
pub use machines::Machines;
pub use open::{OpenError, Opened, Progress};
pub use shard::{Answer, Published, Refused, Request, Shard, SubmitError};
