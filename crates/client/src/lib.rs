//! A client of the API: queues, their messages, and a consumer that works through them; streams.
//!
//! ```no_run
//! # #[derive(serde::Serialize, serde::Deserialize)] struct Mail { to: String }
//! # async fn deliver(mail: Mail) -> Result<(), String> { Ok(()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{Client, Delivery, NewQueue};
//!
//! let client = Client::builder("http://127.0.0.1:7700").key("sk_…").build()?;
//! client.queues().create(&NewQueue::new("mail")).await?;
//! let queue = client.queue("mail");
//! queue.send(&Mail { to: "a@b.example".to_owned() }).await?;
//!
//! let consumer = queue.consumer().concurrency(8).start(|delivery: Delivery| async move {
//!     let mail: Mail = delivery.body().map_err(|error| error.to_string())?;
//!     deliver(mail).await
//! });
//! tokio::signal::ctrl_c().await?;
//! let summary = consumer.shutdown().await?;
//! println!("{} done, {} failed", summary.done, summary.failed);
//! # Ok(())
//! # }
//! ```
//!
//! # What is tried again
//!
//! Connections that fail, and answers of 429, 503 and 507, with exponential backoff, full jitter
//! and a deadline ([`Retry`]). Only what is safe: a send carries an `Idempotency-Key`, so it is sent
//! once however often it is tried. A retried ack that is refused after its first answer was lost is
//! [`Error::Unknown`]: it may have been done, and the lease may have ended. A purge whose answer was
//! lost is not tried again. What concerns the leases of a consumer is tried until they end.
//!
//! | module | what it holds |
//! |---|---|
//! | `client`, `call` | [`Client`], [`Call`], the loop of tries |
//! | `retry` | pauses, and what a second try may do |
//! | `transport` | connections and TLS |
//! | `queues`, `queue`, `message`, `lease` | queues, one queue, what is in it, what ends a lease |
//! | `topics` | what is published to many queues |
//! | `consumer` | a handler run for each message |
//! | `streams`, `stream`, `group` | streams, one stream and its groups |

mod call;
mod client;
mod consumer;
mod error;
mod group;
mod lease;
mod message;
mod queue;
mod queues;
mod redrive;
mod retry;
mod stream;
mod streams;
mod topics;
mod transport;

pub use http::Method;
pub use tokio_util::sync::CancellationToken;

pub use crate::call::Call;
pub use crate::client::{Client, ClientBuilder};
pub use crate::consumer::{Consumer, ConsumerBuilder, Delivery, Stopper, Summary};
pub use crate::error::{Error, Problem};
pub use crate::group::{GroupInfo, GroupMember, GroupPartition, GroupSummary};
pub use crate::message::{Attribute, DeadLetter, Message, Outgoing, Sent};
pub use crate::queue::{PeekPage, PeekState, Queue, Receive};
pub use crate::queues::{
    Backoff, Bound, ListQueues, Mode, NewQueue, Page, QueueInfo, QueueMade, QueueSettings,
    QueueUpdate, Queues, Rates,
};
pub use crate::redrive::{Redrive, RedriveAsk, RedriveState, Redrives};
pub use crate::retry::Retry;
pub use crate::stream::{
    Fetch, Fetched, NewRecord, Placed, Record, RecordPage, SeekTo, Sought, Stream,
};
pub use crate::streams::{NewStream, PartitionInfo, StreamInfo, StreamMade, StreamUpdate, Streams};
pub use crate::topics::{Published, Subscription, TopicInfo, TopicMade, Topics};
