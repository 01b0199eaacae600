//! The edge from outside, over real sockets.
//!
//! Nothing here sleeps to wait: a test reads until the server closes the connection, and a
//! watch over the whole exchange turns a server that never does into a failure.

mod archive_away;
mod bad_body;
mod bad_head;
mod batches;
mod depth;
mod disk_full;
mod hang_ups;
mod harness;
mod http2;
mod large_bodies;
mod lists;
mod looks;
mod metric_names;
mod metrics;
mod nearby;
mod queues;
mod quotas;
mod quotas_of_room;
mod redrives;
mod refusals;
mod released;
mod room;
mod shutdown;
mod slow;
mod sqs_attempts;
mod sqs_endpoint;
mod sqs_fifo;
mod sqs_inflight;
mod sqs_keys;
mod sqs_queues;
mod stream_groups;
mod streams;
mod subscriptions;
mod system;
mod telemetry;
mod tls;
mod traces;
mod unread;
