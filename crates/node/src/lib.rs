//! A node: shards on their own threads, what they publish, and the executors of what they ask.
//!
//! | module | what it holds |
//! |---|---|
//! | `folder` | the data folder and its lock |
//! | `node` | starting, submitting, reading, shutting down |
//! | `known` | reading what shards have published, and waiting for it |
//! | `inbox` | the bounded, fair way into a shard |
//! | `porter` | wakes shards' threads for requests, and those who wait for answers |
//! | `runner` | the thread of a shard |
//! | `checkpointer` | the slow part of a checkpoint |
//! | `views`, `usage`, `status` | what shards publish |
//! | `meters`, `disk` | what is measured |
//! | `waiters` | those who wait for something to be published |
//! | `mailman` | letters between shards |
//! | `effects`, `recents_archive`, `queue_bodies` | executors |
//! | `registry` | every machine there is |

mod archive;
mod checkpointer;
mod courtesy;
mod disk;
mod effects;
mod folder;
mod inbox;
mod known;
mod mailman;
mod meters;
mod node;
mod pace;
mod porter;
mod queue_bodies;
mod recents_archive;
mod registry;
mod runner;
mod status;
#[cfg(test)]
mod tests;
mod usage;
mod views;
mod waiters;

pub use disk::{DiskUse, ShardDisk};
pub use folder::{FolderError, shard_count, shard_folder};
pub use node::{Node, NodeConfig, OnProgress, Refusal, StartError};
pub use queue_bodies::BodyError;
pub use registry::machines;
pub use runner::Clock;
pub use status::{Readiness, ShardState};
pub use views::View;
pub use waiters::{WaitingPlace, WaitingPlaces};
