//! The edge: the only crate that knows HTTP and JSON.
//!
//! A request passes, in this order:
//!
//! ```text
//!   accept ─▶ TLS ─▶ hyper ─▶ App::answer ─▶ route table ─▶ extractors ─▶ handler ─▶ node
//!   server    tls            app            router         extract      routes/*
//!   limits on connections,   panics, traces, 404, 405      limits on bodies, auth,
//!   heads and idle time      metrics, access log           JSON, parameters
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@app`] | the state that handlers share, and the function around every request |
//! | `aside` | work that takes time by the byte |
//! | [`auth`] | who is calling, and what they may do |
//! | [`extract`] | bodies, paths, queries, cursors, idempotency keys |
//! | [`limits`] | every bound of the edge, in one place |
//! | [`openapi`] | the document and the page made from the route table |
//! | [`problem`] | every error, in one table |
//! | `queues` | queues as every dialect uses them |
//! | `room` | memory for what is large |
//! | [`route`] | how a route file is written |
//! | [`router`] | how a path finds its route |
//! | [`routes`] | one file a system, each a table |
//! | [`server`] | connections, time-outs, shutdown |
//! | `sqs` | the dialect of AWS SQS |
//! | `streams` | how the edge talks to streams |
//! | [`telemetry`] | metrics, logs, traces |
//! | [`time`] | RFC 3339 |
//! | [`tls`] | certificates |

pub mod app;
mod aside;
pub mod auth;
pub mod extract;
pub mod limits;
pub mod openapi;
pub mod problem;
mod queues;
mod room;
pub mod route;
pub mod router;
pub mod routes;
pub mod server;
mod sqs;
mod streams;
pub mod telemetry;
pub mod time;
pub mod tls;

pub use app::{App, Ctx, Edge, EdgeState, app};
pub use problem::{Problem, ProblemKind};
pub use route::{Access, Doc, Routes, doc};
pub use server::{Bound, ServerOptions, bind, listen, serve};
