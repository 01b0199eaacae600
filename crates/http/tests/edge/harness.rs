//! A server on a port of its own, routes to try it with, and a client that can misbehave.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use http_edge::extract::{Cursor, Idempotency, Json, Limit, Path, Query, RawBody};
use http_edge::limits::Limits;
use http_edge::server::ServerOptions;
use http_edge::{App, Edge, Problem, Routes, doc};
use kernel::TenantId;
use node::{FolderError, Node, NodeConfig, StartError};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

/// Longer than any test takes on a slow machine; only a server that hangs gets there.
pub(crate) const HANG: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) node: Node,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
    pub(crate) folder: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::start_with(|_| {}, ServerOptions::default()).await
    }

    pub(crate) async fn start_with(
        change: impl FnOnce(&mut Edge),
        options: ServerOptions,
    ) -> Server {
        let app = |edge| {
            let tables = vec![http_edge::routes::system::routes(), routes()];
            App::with_routes(Arc::new(edge), tables)
        };
        let folder = tempfile::tempdir().expect("a folder");
        Server::start_node(folder, NodeConfig::default(), 1, change, app, options).await
    }

    /// The whole product, which needs no key, with a clock that can be set forward.
    pub(crate) async fn start_product(shards: u16) -> (Server, Arc<AtomicU64>) {
        Server::start_product_with(shards, |_| {}).await
    }

    pub(crate) async fn start_product_with(
        shards: u16,
        change: impl FnOnce(&mut Edge),
    ) -> (Server, Arc<AtomicU64>) {
        let folder = tempfile::tempdir().expect("a folder");
        Server::start_product_in(folder, shards, NodeConfig::default(), change).await
    }

    /// Ends the server, and starts one on what it leaves.
    pub(crate) async fn restart_product(self) -> (Server, Arc<AtomicU64>) {
        self.restart_with(NodeConfig::default()).await
    }

    /// As [`Server::restart_product`], on a disk of which there is nothing left but what the log has
    /// taken already.
    pub(crate) async fn restart_full(self) -> Server {
        let full = NodeConfig { log_reserve_bytes: u64::MAX / 2, ..NodeConfig::default() };
        self.restart_with(full).await.0
    }

    async fn restart_with(mut self, config: NodeConfig) -> (Server, Arc<AtomicU64>) {
        self.begin_stop();
        self.ended().await;
        let Server { node, folder, .. } = self;
        let shards = node.shard_count();
        drop(node);
        Server::start_product_in(folder, shards, config, |_| {}).await
    }

    async fn start_product_in(
        folder: tempfile::TempDir,
        shards: u16,
        config: NodeConfig,
        change: impl FnOnce(&mut Edge),
    ) -> (Server, Arc<AtomicU64>) {
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let ahead = Arc::clone(&ahead_ms);
        let wall = NodeConfig::default().clock;
        let clock: node::Clock = Arc::new(move || wall() + ahead.load(Ordering::SeqCst));
        let config = NodeConfig { clock, ..config };
        let dev = |edge: &mut Edge| {
            edge.dev = true;
            change(edge);
        };
        let app = |edge| http_edge::app(Arc::new(edge));
        let options = ServerOptions::default();
        let server = Server::start_node(folder, config, shards, dev, app, options).await;
        (server, ahead_ms)
    }

    async fn start_node(
        folder: tempfile::TempDir,
        config: NodeConfig,
        shards: u16,
        change: impl FnOnce(&mut Edge),
        app: impl FnOnce(Edge) -> Arc<App>,
        options: ServerOptions,
    ) -> Server {
        http_edge::telemetry::install();
        let config = NodeConfig {
            data_dir: folder.path().join("data"),
            shards: Some(shards),
            segment_bytes: 1 << 20,
            ..config
        };
        let start = move || loop {
            match Node::start(config.clone()) {
                // Who served its last request may still hold on to it.
                Err(StartError::Folder(FolderError::InUse(_))) => std::thread::yield_now(),
                started => return started,
            }
        };
        let starting = timeout(HANG, tokio::task::spawn_blocking(start)).await;
        let started = starting.expect("nobody keeps the folder").expect("no panic");
        let node = started.expect("a node on its folder");
        let mut edge = Edge::new(node.clone());
        change(&mut edge);
        let app = app(edge);
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = http_edge::listen(any).expect("a port");
        let addr = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let task = tokio::spawn(http_edge::serve(listener, app, options, shutdown));
        Server { addr, node, stop: Some(stop), task: Some(task), folder }
    }

    /// A server that waits for slow clients only this long.
    pub(crate) async fn impatient(patience: Duration) -> Server {
        let change = |edge: &mut Edge| {
            edge.limits = Limits {
                head_timeout: patience,
                body_stall_timeout: patience,
                body_timeout: patience * 4,
                write_timeout: patience,
                idle_timeout: patience,
                unread_timeout: patience,
                ..Limits::default()
            };
        };
        Server::start_with(change, ServerOptions::default()).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.expect("the server listens")
    }

    /// Sends bytes and reads what comes until the server closes.
    pub(crate) async fn raw(&self, bytes: impl AsRef<[u8]>) -> Answer {
        exchange(self.connect().await, bytes.as_ref()).await
    }

    /// Sends a request whose connection closes after it.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let len = body.len();
        self.raw(format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n{headers}\r\n{body}"
        ))
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.raw(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, "content-type: application/json\r\n", body).await
    }

    pub(crate) async fn is_alive(&self) {
        let answer = self.get("/healthz").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    }

    /// Ends the server and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.begin_stop();
        self.ended().await;
    }

    pub(crate) fn begin_stop(&mut self) {
        let _ = self.stop.take().expect("stopped once").send(());
    }

    pub(crate) async fn ended(&mut self) {
        let task = self.task.take().expect("ended once");
        timeout(HANG, task).await.expect("it ends").expect("without a panic");
        self.node.shutdown().await;
    }
}

/// Writes and reads at once, so that neither side's buffers can block the other for ever.
pub(crate) async fn exchange<S: AsyncRead + AsyncWrite>(stream: S, bytes: &[u8]) -> Answer {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut text = Vec::new();
    let both = async {
        let write = async {
            // The server may close before it has read everything; that is its right.
            let _ = writer.write_all(bytes).await;
            let _ = writer.flush().await;
        };
        let read = async {
            let _ = reader.read_to_end(&mut text).await;
        };
        tokio::join!(write, read);
    };
    timeout(HANG, both).await.expect("the server closes the connection");
    Answer::parse(&text)
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The last of the answers in a stream; status 0 when there is none.
    pub(crate) fn parse(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return Answer { status: 0, head: text, body: String::new() };
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that it is a problem of this status and type, and gives its detail.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, slug: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!((&json["type"], &json["status"]), (&slug.into(), &status.into()), "{self:?}");
        assert!(json["title"].is_string(), "{self:?}");
        json["detail"].as_str().expect("a detail").to_owned()
    }
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Thing {
    name: String,
    count: u32,
    #[serde(default)]
    inner: Vec<Inner>,
    #[serde(default)]
    #[schema(value_type = Object)]
    any: serde_json::Value,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Inner {
    x: f64,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    limit: Option<Limit>,
    cursor: Option<Cursor>,
    name: Option<String>,
}

fn routes() -> Routes {
    let open = |summary| doc(summary).public().gives_nothing(200, "Done");
    Routes::new("test", "Routes to try the edge with.")
        .post("/t/things", "test.add", add, open("Add").body::<Thing>())
        .put("/t/things", "test.maybe", maybe, open("Maybe").body::<Thing>())
        .post("/t/raw", "test.raw", raw, open("Raw"))
        .post("/t/large", "test.large", raw, open("Large").body_bytes_max(4 << 20))
        .post("/t/once", "test.once", once, open("Once").idempotent())
        .get("/t/list", "test.list", list, open("List").query::<ListQuery>())
        .get("/t/names/{name}", "test.name", name, open("Name"))
        .post("/t/names/{name}:shout", "test.shout", shout, open("Shout"))
        .get("/t/pairs/{a}/{n}", "test.pair", pair, open("Pair"))
        .get("/t/panic", "test.panic", panics, open("Panic"))
        .get("/t/slow", "test.slow", slow, open("Slow"))
        .get("/t/endless", "test.endless", endless, open("Endless"))
        .get("/t/bytes/{count}", "test.bytes", bytes, open("So many"))
}

async fn add(Json { value, raw }: Json<Thing>) -> Response {
    assert!(!raw.is_empty());
    axum::Json(value).into_response()
}

async fn maybe(body: Option<Json<Thing>>) -> String {
    body.map_or_else(|| "nothing".to_owned(), |body| body.value.name)
}

async fn raw(RawBody(body): RawBody) -> String {
    body.len().to_string()
}

async fn once(key: Idempotency, RawBody(body): RawBody) -> String {
    format!("{:?}", key.with(TenantId(1), &body))
}

async fn list(Query(query): Query<ListQuery>) -> Response {
    let cursor = query.cursor.map(|cursor| String::from_utf8_lossy(&cursor.0).into_owned());
    let limit = query.limit.unwrap_or_default().get();
    axum::Json(serde_json::json!({"limit": limit, "cursor": cursor, "name": query.name}))
        .into_response()
}

async fn name(Path(name): Path<String>) -> String {
    name
}

async fn shout(Path(name): Path<String>) -> String {
    name.to_uppercase()
}

async fn pair(Path((a, n)): Path<(String, u64)>) -> String {
    format!("{a} {n}")
}

async fn bytes(Path(count): Path<String>) -> Vec<u8> {
    vec![b'x'; count.parse().expect("a number")]
}

async fn panics() -> Result<String, Problem> {
    panic!("on purpose")
}

/// Answers when the test says so.
pub(crate) static SLOW: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);
pub(crate) static SLOW_BEGUN: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);

async fn slow() -> &'static str {
    SLOW_BEGUN.add_permits(1);
    SLOW.acquire().await.expect("never closed").forget();
    "done"
}

/// Without an end, so that no socket buffer holds it.
struct Endless;

/// Told when an endless body is given up.
pub(crate) static ENDLESS_DROPPED: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 4096])))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        ENDLESS_DROPPED.add_permits(1);
    }
}

async fn endless() -> Body {
    Body::new(Endless)
}
