//! Metrics and traces.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::harness::{HANG, Server};
use http_edge::server::ServerOptions;
use http_edge::telemetry::otlp::{OtlpOptions, Tracer};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn requests_are_counted_by_operation_and_status() {
    let server = Server::start().await;
    server.get("/t/names/a").await;
    server.get("/t/list?limit=0").await;
    server.get("/nope").await;
    let text = server.get("/metrics").await.body;
    for line in [
        r#"http_requests_total{operation="test.name",status="2xx"}"#,
        r#"http_requests_total{operation="test.list",status="4xx"}"#,
        r#"http_requests_total{operation="none",status="4xx"}"#,
        r#"http_request_duration_seconds_bucket{operation="test.name",le="0.001"}"#,
        "http_connections",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_trace_is_continued_and_shown() {
    let server = Server::start().await;
    let head = server.send("GET", "/healthz", &format!("traceparent: {PARENT}\r\n"), "").await.head;
    assert!(head.contains("traceparent: 00-0af7651916cd43dd8448eb211c80319c-"), "{head}");
    assert!(!head.contains("b7ad6b7169203331"), "the span is ours: {head}");
    let head = server.send("GET", "/healthz", "traceparent: nonsense\r\n", "").await.head;
    assert!(head.contains("traceparent: 00-"), "{head}");
    let head = server.get("/nope").await.head;
    assert!(head.contains("traceparent: 00-"), "an error can be found in the logs: {head}");
    assert!(!server.get("/healthz").await.head.contains("traceparent"));
    server.stop().await;
}

#[tokio::test]
async fn spans_reach_a_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let tracer = Tracer::start(OtlpOptions::new(&url, 0.0).expect("an address"));
    let change = |edge: &mut http_edge::Edge| edge.tracer = Some(tracer);
    let server = Server::start_with(change, ServerOptions::default()).await;
    server.get("/t/names/unsampled").await;
    server.send("GET", "/t/names/a", &format!("traceparent: {PARENT}\r\n"), "").await;
    let post = timeout(HANG, receive(listener)).await.expect("a batch arrives");
    assert!(post.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{post}");
    let json: serde_json::Value =
        serde_json::from_str(post.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
    let spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans");
    assert_eq!(spans.len(), 1, "{json}");
    assert_eq!(spans[0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(spans[0]["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(spans[0]["name"], "test.name");
    assert_eq!(spans[0]["attributes"][1]["value"]["stringValue"], "/t/names/{name}");
    server.stop().await;
}

/// One request, as a collector would read it.
async fn receive(listener: TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.expect("the exporter connects");
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).await.expect("it sends");
        assert!(n > 0, "it closed early");
        text.extend_from_slice(&piece[..n]);
        let shown = String::from_utf8_lossy(&text);
        let Some((head, body)) = shown.split_once("\r\n\r\n") else { continue };
        let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if len.is_some_and(|len| body.len() == len.parse::<usize>().expect("a number")) {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                .await
                .expect("read");
            return shown.into_owned();
        }
    }
}

#[tokio::test]
async fn a_collector_that_is_away_harms_nobody() {
    let url = "http://127.0.0.1:1".to_owned();
    let tracer = Tracer::start(OtlpOptions::new(&url, 1.0).expect("an address"));
    let change = |edge: &mut http_edge::Edge| edge.tracer = Some(tracer);
    let server = Server::start_with(change, ServerOptions::default()).await;
    for _ in 0..20 {
        server.is_alive().await;
    }
    server.stop().await;
    for bad in ["", "localhost", "https://x", "ftp://x", "http://"] {
        assert!(OtlpOptions::new(bad, 1.0).is_err(), "{bad}");
    }
}
