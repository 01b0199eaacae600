//! HTTP/2, over plain text with prior knowledge.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use crate::harness::{HANG, Server};

type Client = SendRequest<Full<Bytes>>;

async fn client(server: &Server) -> (Client, tokio::task::JoinHandle<()>) {
    let io = TokioIo::new(server.connect().await);
    let (client, connection) = handshake(TokioExecutor::new(), io).await.expect("a handshake");
    let task = tokio::spawn(async move {
        let _ = connection.await;
    });
    (client, task)
}

async fn send(client: &mut Client, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
    client.ready().await.expect("it is open");
    let answer: Response<_> =
        timeout(HANG, client.send_request(request)).await.expect("in time").expect("an answer");
    let status = answer.status();
    (status, answer.into_body().collect().await.expect("a body").to_bytes())
}

fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("http://x{path}"))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .expect("a request")
}

fn problem(answer: &(StatusCode, Bytes), status: u16, slug: &str) {
    assert_eq!(answer.0.as_u16(), status, "{answer:?}");
    let json: serde_json::Value = serde_json::from_slice(&answer.1).expect("JSON");
    assert_eq!(json["type"], slug, "{answer:?}");
}

#[tokio::test]
async fn the_same_refusals_as_over_http_1() {
    let server = Server::start().await;
    let (mut client, _task) = client(&server).await;
    let health = send(&mut client, request("GET", "/healthz", "")).await;
    assert_eq!(health, (StatusCode::OK, Bytes::from("ok")));
    let head = send(&mut client, request("HEAD", "/healthz", "")).await;
    assert_eq!(head, (StatusCode::OK, Bytes::new()));
    problem(&send(&mut client, request("GET", "/nope", "")).await, 404, "unknown-path");
    problem(&send(&mut client, request("PUT", "/healthz", "")).await, 405, "method-not-allowed");
    problem(&send(&mut client, request("POST", "/t/things", "{")).await, 400, "invalid-body");
    let big = vec![b'x'; 2 << 20];
    problem(&send(&mut client, request("POST", "/t/raw", big)).await, 413, "payload-too-large");
    let long = format!("/{}", "a".repeat(9 << 10));
    problem(&send(&mut client, request("GET", &long, "")).await, 414, "uri-too-long");
    problem(&send(&mut client, request("GET", "/t/panic", "")).await, 500, "internal");
    assert_eq!(send(&mut client, request("GET", "/healthz", "")).await.0, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn large_headers_are_refused() {
    let server = Server::start().await;
    let (mut client, _task) = client(&server).await;
    let mut large = request("GET", "/healthz", "");
    for i in 0..100 {
        let name = http::HeaderName::try_from(format!("a{i}")).expect("a name");
        large.headers_mut().insert(name, "b".repeat(2000).try_into().expect("a value"));
    }
    client.ready().await.expect("it is open");
    if let Ok(answer) = timeout(HANG, client.send_request(large)).await.expect("in time") {
        assert_eq!(answer.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let server = Server::impatient(Duration::from_millis(150)).await;
    let (mut client, task) = client(&server).await;
    assert_eq!(send(&mut client, request("GET", "/healthz", "")).await.0, StatusCode::OK);
    timeout(HANG, task).await.expect("the server closes it").expect("no panic");
    server.stop().await;
}

#[tokio::test]
async fn garbage_after_the_preface_is_closed() {
    let server = Server::start().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for rest in
        [&b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"GET / HTTP/1.1\r\n\r\n"]
    {
        server.raw([&preface[..], rest].concat()).await;
        server.is_alive().await;
    }
    server.stop().await;
}
