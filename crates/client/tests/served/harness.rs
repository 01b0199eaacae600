//! A server with a clock that can be set forward, and a proxy that cuts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use client::{Client, Queue, Retry};
use http_edge::Edge;
use http_edge::server::ServerOptions;
use node::{Node, NodeConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Longer than anything takes on a slow machine.
pub(crate) const HANG: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) node: Node,
    ahead_ms: Arc<AtomicU64>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::start_with(ServerOptions::default()).await
    }

    pub(crate) async fn start_with(options: ServerOptions) -> Server {
        http_edge::telemetry::install();
        let folder = tempfile::tempdir().expect("a folder");
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let ahead = Arc::clone(&ahead_ms);
        let defaults = NodeConfig::default();
        let wall = Arc::clone(&defaults.clock);
        let config = NodeConfig {
            data_dir: folder.path().join("data"),
            shards: Some(1),
            segment_bytes: 1 << 20,
            clock: Arc::new(move || wall() + ahead.load(Ordering::SeqCst)),
            ..defaults
        };
        let starting = tokio::task::spawn_blocking(|| Node::start(config));
        let node = starting.await.expect("no panic").expect("a node on an empty folder");
        let mut edge = Edge::new(node.clone());
        edge.dev = true;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let app = http_edge::app(Arc::new(edge));
        let task = tokio::spawn(http_edge::serve(listener, app, options, shutdown));
        Server { addr, node, ahead_ms, stop, task, _folder: folder }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(format!("http://{}", self.addr)).expect("a URL")
    }

    /// A new queue.
    pub(crate) async fn queue(&self, name: &str) -> Queue {
        let client = self.client();
        client.queues().create(&client::NewQueue::new(name)).await.expect("made");
        client.queue(name)
    }

    /// Sets the server's clock forward.
    pub(crate) fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).expect("not so long");
        self.ahead_ms.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        tokio::time::timeout(HANG, self.task).await.expect("it ends").expect("without a panic");
        self.node.shutdown().await;
    }
}

/// Short pauses, so that tests are.
pub(crate) fn quick() -> Retry {
    Retry { base: Duration::from_millis(5), max: Duration::from_millis(20), ..Retry::default() }
}

/// What a proxy does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing.
    Never,
    /// Takes it and drops it before a byte has passed.
    AtOnce,
    /// Passes the request on, waits for the answer, and keeps that to itself.
    BeforeTheAnswer,
}

/// A proxy before a server: each connection is treated as the next entry of a plan says.
pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    down: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr, plan: &[Cut]) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("it is bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, plan) = (Arc::clone(&connections), plan.to_vec());
        let (down, is_down) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.expect("a connection");
                let number = count.fetch_add(1, Ordering::SeqCst);
                let cut = plan.get(number).copied().unwrap_or(Cut::Never);
                let mut is_down = is_down.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        _ = is_down.wait_for(|down| *down) => {}
                        () = pass(near, server, cut) => {}
                    }
                });
            }
        });
        Proxy { addr, connections, down, task }
    }

    /// Closes what is open and what is opened, until it is told otherwise.
    pub(crate) fn down(&self, down: bool) {
        self.down.send_replace(down);
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn client(&self) -> Client {
        let url = format!("http://{}", self.addr);
        Client::builder(url).retry(quick()).build().expect("a URL")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut near: TcpStream, server: SocketAddr, cut: Cut) {
    if cut == Cut::AtOnce {
        return;
    }
    let mut far = TcpStream::connect(server).await.expect("the server listens");
    if cut == Cut::Never {
        // Either side may close at any time.
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        return;
    }
    // The answer begins when the server is through with the request.
    let (mut from_near, mut to_near) = ([0; 4096], [0; 1]);
    loop {
        tokio::select! {
            read = near.read(&mut from_near) => match read {
                Ok(count) if count > 0 => {
                    far.write_all(&from_near[..count]).await.expect("the server reads");
                }
                _ => return,
            },
            _ = far.read(&mut to_near) => return,
        }
    }
}
