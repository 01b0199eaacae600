//! The simulator: shards, their disks, the clock, the clients and the network in one thread, all
//! of it decided by one seed.
//!
//! ```text
//!   clients ── calls, twice, reordered ──▶ inbox ──▶ Shard ──▶ SimLog on SimDisk   crash, tear,
//!   post ───── letters, lost, twice ─────▶              │                          fail, full
//!   executors ◀─ effects ── rows ◀──────────────────────┘──▶ SimBase               full, fail
//!                                                       │
//!                       naive kernel + model ◀── entry ─┘   compared after every entry
//! ```
//!
//! The shard, its machines and the log are the ones that serve; only the disk, the store beneath
//! the rows, the clock and the people are simulated. A run has two phases: first with faults,
//! then healing, in which everything pending must come to its end.
//!
//! Invariants that every run checks:
//! - What was answered is in the log after every crash; what was refused as not written is not.
//! - What is unknown is settled by the log that is opened again.
//! - After every entry, and after every opening, each machine's state is that of its model after
//!   exactly the entries in the log; replies and effects too.
//! - What was applied while nobody listened is applied again on paper, and compared like the rest.
//! - A message that a queue has taken is in one place, until it is acked, too old or removed; nobody
//!   gets it again afterwards, and a dead letter arrives once.
//! - What is published comes to every subscription that wanted it then, and to none twice. A redrive
//!   moves and does not copy, in the order of groups, no more and no faster than was asked for, tells
//!   what it has moved, and goes on until it ends or is ended.
//! - A record that a stream has taken is read at its offset until it is too old or too much; in one
//!   epoch no two members commit the same partition; of a deleted stream nothing is left.
//! - A replay from zero, a replay from the last checkpoint and the living shard have the same rows.
//! - The same seed gives the same trace, to the byte.
//!
//! A new machine needs a [`Subject`](subject::Subject) and a [`Model`](subject::Model), in
//! `models/`, and its name in [`Choice`].

pub mod base;
mod cli;
mod common;
mod explore;
pub mod models;
pub mod naive;
mod options;
pub mod probe;
pub mod random;
mod report;
mod seat;
pub mod subject;
mod tap;
mod world;

pub use cli::{Arguments, cli};
pub use explore::{Summary, explore, run};
pub use options::{Choice, Options, Parts, UnknownMachine};
pub use report::{Failure, Report};
