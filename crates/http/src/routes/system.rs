//! Health, metrics and the documentation.

use crate::route::{Routes, doc};

/// The table.
#[must_use]
pub fn routes() -> Routes {
    Routes::new("system", "Health, metrics and this documentation.").get(
        "/healthz",
        "system.health",
        health,
        doc("Whether the process is alive").public().gives_other(200, "text/plain", "It is"),
    )
}

async fn health() -> &'static str {
    "ok"
}
