//! Queues: work that is handed out, one lease at a time, until somebody says that it is done.
//!
//! ```text
//!                 delay                                      ack
//!   send ──┬───────────────▶ hidden until due                ┌──▶ gone
//!          │                      │                          │
//!          ▼                      ▼            receive       │
//!        lane  ◀───────────────────────────────────────▶  hidden (leased until …)
//!          ▲                                                 │
//!          └──── nack, lease ended (after a backoff) ────────┤
//!                                        too many receives   └──▶ letter to the dead-letter queue
//! ```
//!
//! A message is one row that moves. It is either in a *lane*, where receivers find it, or *hidden
//! until* some time: delayed, leased, or waiting to be tried again. Hidden rows are ordered by that
//! time, so one timer a queue brings back what is due, however many there are, and however far off.
//!
//! Lanes are consumed from their head and grow at their tail, so a receive costs the same with ten
//! messages waiting or ten million. A standard queue has two a priority, which take turns: new
//! messages, and those that came back. A queue with order has one lane, of *groups* that are ready; a
//! group's messages wait in a range of their own, and a group with a message leased is not ready.
//!
//! Invariants:
//! - A message that was accepted is in exactly one place until it is acked, expires or is purged.
//! - Only the receipt of the lease in force acks, extends or gives back.
//! - In a queue with order, a message is leased only when none before it in its group is left, nor on
//!   its way to a queue from where it may come back.
//! - A body lies in the archive for as long as some message, letter or reservation has it.
//! - A message that is received [`Settings::max_receive_count`] times without an ack goes to the
//!   dead-letter queue, with its story, once.
//!
//! `command.rs` says what can be asked and answered, `post.rs` what queues write to each other, `state.rs` how it lies in rows, `apply.rs` what
//! is done to queues, `deliver.rs` what is done to messages, `lane.rs` how those lie that can be
//! received, `fifo.rs` how groups keep their order, `sweep.rs` what time does, `redrive.rs` how
//! messages move from queue to queue, `filter.rs` which, `topic.rs` how one message becomes many,
//! `large.rs` what of a message lies in the archive, `query.rs` how it is read without entering the
//! shard.

mod apply;
mod command;
mod deliver;
mod fifo;
pub mod filter;
mod lane;
mod large;
pub mod parcel;
mod post;
mod query;
mod receipt;
mod redrive;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod topic;

pub use apply::{Queues, RECEIVED_KEPT_MS};
pub use command::{
    Ack, BODY_BYTES_MAX, Backoff, Command, Create, Delivery, Extend, LARGE_BODY_BYTES_MAX, Mode,
    Nack, NewMessage, PARCEL_BYTES_MAX, Publish, Published, Receive, Refusal, Release, Reply,
    ReserveBody, Send, SendRefusal, Sent, Settings, Settled, StartRedrive, Story, Subscribe,
    Update,
};
pub use large::{QueueEffect, RESERVED_MS};
pub use post::DeadLetter;
pub use query::{
    Definition, Found, Looked, PeekState, Peeked, counts, counts_row, definition, definition_row,
    holds_body, names, peek_after, peek_all, place, queue, queues, ready,
};
pub use receipt::Receipt;
pub use redrive::{Job, JobState, job, jobs};
pub use state::{Counts, Described, MessageId, Rates, Totals, message_bytes};
pub use topic::{
    FAN_OUT_BYTES_MAX, FAN_OUT_LETTERS_MAX, SUBSCRIPTIONS_MAX, Topic, topic, topic_names,
    topic_place, topic_row,
};

use kernel::MachineId;

/// This machine's number in every log.
pub const MACHINE: MachineId = MachineId(4);
