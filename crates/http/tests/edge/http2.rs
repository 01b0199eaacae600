//! HTTP/2, over plain text with prior knowledge.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use http_edge::Edge;
use http_edge::server::ServerOptions;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::harness::{HANG, Server};

type Never = Infallible;

async fn client<B>(server: &Server) -> (SendRequest<B>, tokio::task::JoinHandle<()>)
where
    B: Body<Data = Bytes, Error = Never> + Send + Unpin + 'static,
{
    let io = TokioIo::new(server.connect().await);
    let (client, connection) = handshake(TokioExecutor::new(), io).await.expect("a handshake");
    let task = tokio::spawn(async move {
        let _ = connection.await;
    });
    (client, task)
}

async fn send<B>(client: &mut SendRequest<B>, request: Request<B>) -> (StatusCode, Bytes)
where
    B: Body<Data = Bytes, Error = Never> + Send + 'static,
{
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

/// A body that ends when the test says so, and tells whether anybody took it to its end.
struct Withheld {
    first: Option<Bytes>,
    end: oneshot::Receiver<()>,
    taken: Arc<AtomicBool>,
}

impl Withheld {
    fn new() -> (Withheld, oneshot::Sender<()>, Arc<AtomicBool>) {
        let (sender, end) = oneshot::channel();
        let taken = Arc::new(AtomicBool::new(false));
        let body = Withheld { first: Some(Bytes::from("{")), end, taken: taken.clone() };
        (body, sender, taken)
    }
}

impl Body for Withheld {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        ready!(Pin::new(&mut self.end).poll(cx)).expect("the test says so");
        self.taken.store(true, Ordering::SeqCst);
        Poll::Ready(None)
    }
}

struct Flood;

impl Body for Flood {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16 << 10])))))
    }
}

fn post<B>(path: &str, body: B) -> Request<B> {
    let request = Request::builder().method("POST").uri(format!("http://x{path}"));
    request.body(body).expect("a request")
}

/// A server that waits for unread bodies longer than the test does for its answer.
async fn patient() -> Server {
    let change = |edge: &mut Edge| edge.limits.unread_timeout = HANG * 2;
    Server::start_with(change, ServerOptions::default()).await
}

#[tokio::test]
async fn the_body_of_a_refused_request_is_taken_to_its_end() {
    let server = patient().await;
    let (mut client, _task) = client(&server).await;
    let long = format!("/{}", "a".repeat(9 << 10));
    for (path, status, slug) in [
        ("/nope", 404, "unknown-path"),
        ("/healthz", 405, "method-not-allowed"),
        ("/t/things", 415, "unsupported-media-type"),
        (&long, 414, "uri-too-long"),
    ] {
        let (body, end, taken) = Withheld::new();
        let later = async {
            // A refusal that did not wait is there before this is.
            server.is_alive().await;
            end.send(()).is_ok()
        };
        let (answer, waited_for) = tokio::join!(send(&mut client, post(path, body)), later);
        problem(&answer, status, slug);
        assert!(waited_for && taken.load(Ordering::SeqCst), "{path}: reset before its end");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_does_not_wait_long_for_a_body_that_stops() {
    let server = Server::impatient(Duration::from_millis(150)).await;
    let (mut client, _task) = client(&server).await;
    let (body, _end, taken) = Withheld::new();
    problem(&send(&mut client, post("/nope", body)).await, 404, "unknown-path");
    assert!(!taken.load(Ordering::SeqCst));
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_does_not_wait_for_more_than_it_would_read() {
    let server = patient().await;
    let (mut withholding, _task) = client(&server).await;
    let (body, _end, _) = Withheld::new();
    let mut announced = post("/nope", body);
    announced.headers_mut().insert("content-length", (1_u64 << 30).into());
    problem(&send(&mut withholding, announced).await, 404, "unknown-path");
    let (mut flooding, _task) = client(&server).await;
    problem(&send(&mut flooding, post("/nope", Flood)).await, 404, "unknown-path");
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn the_authority_is_the_host() {
    let (server, _) = Server::start_product(1).await;
    let (mut client, _task) = client(&server).await;
    let asked = |uri: &str| {
        let request = Request::builder().method("POST").uri(uri);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let form = Bytes::from("Action=CreateQueue&QueueName=jobs");
        request.body(Full::new(form)).expect("a request")
    };
    let (status, made) = send(&mut client, asked("http://queues:7700/sqs")).await;
    let made = String::from_utf8_lossy(&made);
    assert_eq!(status, StatusCode::OK, "{made}");
    assert!(made.contains("<QueueUrl>http://queues:7700/sqs/default/jobs</QueueUrl>"), "{made}");
    // A name that its owner has led here: without a key, nothing is done for its pages.
    let (status, refused) = send(&mut client, asked("http://evil.example/sqs")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused:?}");
    let mut led = request("GET", "/q/jobs", "");
    *led.uri_mut() = "http://evil.example/q/jobs".parse().expect("a URI");
    problem(&send(&mut client, led).await, 403, "forbidden");
    server.stop().await;
}
