//! The client against a real node and edge, in one process.

mod calls;
mod consumer;
mod harness;
mod leases;
mod retries;
mod streams;
mod stub;
