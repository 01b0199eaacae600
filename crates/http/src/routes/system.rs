//! Health, metrics and the documentation.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};

use crate::app::{App, EdgeState};
use crate::route::{Routes, doc};
use crate::sqs;
use crate::telemetry::{census, metrics};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The table.
#[must_use]
pub fn routes() -> Routes {
    Routes::new("system", "Health, metrics and this documentation.")
        .get(
            "/",
            "system.root",
            root,
            doc("Where to begin").public().gives_other(200, "text/plain", "Points here"),
        )
        .get(
            "/healthz",
            "system.health",
            health,
            doc("Whether the process is alive").public().gives_other(200, "text/plain", "It is"),
        )
        .get(
            "/readyz",
            "system.ready",
            ready,
            doc("Whether traffic should be sent here")
                .text("Lists what each shard is doing.")
                .public()
                .gives_other(200, "application/json", "Every shard takes writes")
                .gives_other(503, "application/json", "Some shard does not, or the server stops"),
        )
        .get(
            "/metrics",
            "system.metrics",
            measured,
            doc("Measurements for Prometheus").public().gives_other(200, "text/plain", "As text"),
        )
        .get(
            "/openapi.json",
            "system.openapi",
            openapi,
            doc("The OpenAPI document").public().gives_other(
                200,
                "application/json",
                "Version 3.1",
            ),
        )
        .get(
            "/docs",
            "system.docs",
            docs,
            doc("This page").public().gives_other(200, "text/html", "As HTML"),
        )
}

/// SQS has the POST of this path, and the GET that names an action.
async fn root(here: sqs::Here, request: Request) -> Response {
    const POINTER: &str = "This is Stampede. The API is described at /docs for people and at \
        /openapi.json for programs; /readyz says how the server is.\n";
    if let Some(answer) = sqs::at_root(here, request).await {
        return answer;
    }
    text(TEXT, Body::from(POINTER))
}

async fn health() -> Response {
    text(TEXT, Body::from("ok"))
}

async fn ready(State(edge): State<EdgeState>) -> Response {
    let readiness = edge.node.readiness();
    let status =
        if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::to_vec(&readiness).expect("readiness serializes");
    (status, [(CONTENT_TYPE, JSON), (CACHE_CONTROL, NO_STORE)], body).into_response()
}

async fn measured(State(edge): State<EdgeState>) -> Response {
    let looked_at = census::text(&edge).await;
    text(PROMETHEUS, (looked_at + &metrics::render()).into())
}

async fn openapi(State(app): State<Arc<App>>) -> Response {
    text(JSON, app.openapi.json.clone().into())
}

async fn docs(State(app): State<Arc<App>>) -> Response {
    text(HTML, app.openapi.page.clone().into())
}

fn text(media_type: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
