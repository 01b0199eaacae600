//! Metrics, logs and traces.
//!
//! All of it is cheap when nobody looks: counters are registered once for each route, the access
//! log is one disabled branch, and a trace id is only made for requests that bring one, that
//! fail, or that are exported.

pub(crate) mod census;
pub mod logs;
pub mod metrics;
pub mod otlp;
mod page;
pub(crate) mod queue_meters;
pub mod trace;

pub use logs::{LogFormat, LogOptions};
pub use metrics::install;
pub use otlp::Tracer;
