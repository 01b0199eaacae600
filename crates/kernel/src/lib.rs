//! The ground that every machine stands on, without any I/O.
//!
//! A *machine* ([`Machine`]) is a deterministic function from commands to rows, timers, letters
//! and replies. It never reads a clock, never draws randomness of its own and never waits: all
//! of that comes in with the [`Stamp`] of the log entry it is applied from. So the state is
//! exactly what the committed log says: on the leader, in replay and in the simulator alike.
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`] | numbers with names: shard, tenant, machine, index, epoch |
//! | [`stamp`] | time and randomness of an entry |
//! | [`entry`] | the bytes of an entry: a stamp and its commands |
//! | [`base`] | what rows need from the store beneath them |
//! | [`rows`] | the ordered map machines write to: an overlay above a base |
//! | [`timers`] | deadlines: rows by bucket, the near ones in memory |
//! | [`mail`] | letters between machines, exactly once and in order |
//! | [`idempotency`] | an answer given once is given again |
//! | [`machine`] | the trait, and the [`Turn`] a machine gets |
//! | [`codec`] | versioned encodings of commands |
//! | [`rig`] | one machine under test |
//! | [`limits`] | every bound, in one place |

pub mod base;
pub mod codec;
pub mod entry;
pub mod id;
pub mod idempotency;
pub mod limits;
pub mod machine;
pub mod mail;
pub mod rig;
pub mod rows;
pub mod stamp;
pub mod timers;

pub use base::{Base, BaseError};
pub use entry::{Entry, Envelope, IdempotencyKey};
pub use id::{Epoch, Index, MachineId, ShardId, TenantId, VirtualShard};
pub use machine::{Machine, Output, Turn, Unreadable};
pub use rows::{Layer, Rows};
pub use stamp::Stamp;
pub use timers::{TimerId, Timers};
