//! Connections: accepting them, bounding them, and letting go of them.
//!
//! ```text
//!   accept ─▶ permit ─▶ [TLS handshake] ─▶ hyper over ConnIo ─▶ App::answer
//!                                            │        └ answers that hyper gives itself become problems
//!                                            └ Watchdog: head, idle and write time-outs, shutdown
//! ```
//!
//! hyper parses; what it refuses it answers itself and closes. The rest of this module is about
//! clients that are slow, silent or too many.

mod body;
mod conn;
mod io;
mod unread;
mod watchdog;

pub(crate) use body::ConnBody;
pub use conn::Conn;
pub(crate) use conn::InFlight;
pub(crate) use io::raw_problem;
pub(crate) use unread::Unread;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::app::App;
use crate::limits::{self, Limits};
use crate::tls::Tls;
use io::{ConnIo, Stream};
use watchdog::{Verdict, Watchdog};

/// How a listener is served.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Certificates; without them connections are plain.
    pub tls: Option<Arc<Tls>>,
}

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const ENDED: u8 = 2;

/// What all connections of a listener share.
pub(crate) struct Shared {
    app: Arc<App>,
    options: ServerOptions,
    http: Builder<TokioExecutor>,
    phase: AtomicU8,
    phase_changed: Notify,
}

impl Shared {
    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Release);
        self.phase_changed.notify_waiters();
    }

    fn limits(&self) -> &Limits {
        &self.app.edge.limits
    }
}

/// Connections that have not been accepted: everyone arrives at once, and whoever finds no place is
/// told nothing and tries again a second later. The system's own bound (`net.core.somaxconn`) holds.
const BACKLOG: u32 = 65_535;

/// A port that nobody listened on, and at which nobody is answered yet: whoever connects is refused, as by
/// a server that is not there, and does not wait for one that still reads its log. Another server may take
/// it as well until one of them listens.
#[derive(Debug)]
pub struct Bound(TcpSocket);

/// Takes a port. It needs no runtime, so it can be the first thing that is done.
///
/// # Errors
/// As the system says.
pub fn bind(address: SocketAddr) -> std::io::Result<Bound> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(Bound(socket))
}

impl Bound {
    /// The address, with the port that the system chose where none was named.
    ///
    /// # Errors
    /// As the system says.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Listens, with room for a crowd.
    ///
    /// # Errors
    /// As the system says: that the port is taken after all, by another that listened first.
    pub fn listen(self) -> std::io::Result<TcpListener> {
        self.0.listen(BACKLOG)
    }
}

/// Takes a port, and listens.
///
/// # Errors
/// As the system says.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    bind(address)?.listen()
}

/// Serves until `shutdown` resolves, then stops accepting and gives requests in flight
/// [`Limits::drain_timeout`] to finish.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    options: ServerOptions,
    shutdown: impl Future<Output = ()>,
) {
    let connections_max = app.edge.limits.connections_max.min(Semaphore::MAX_PERMITS);
    let connections_max = u32::try_from(connections_max).unwrap_or(u32::MAX);
    let permits = Arc::new(Semaphore::new(connections_max as usize));
    let reload = options.tls.clone().map(|tls| tokio::spawn(Tls::reload_on_hangup(tls)));
    let shared = Arc::new(Shared {
        app,
        options,
        http: http(),
        phase: AtomicU8::new(RUNNING),
        phase_changed: Notify::new(),
    });
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &permits) => accepted,
        };
        let (stream, peer, permit) = accepted;
        tokio::spawn(connection(shared.clone(), stream, peer, permit));
    }
    drop(listener);
    shared.enter(DRAINING);
    shared.app.edge.leaving.send_replace(true);
    let drained = permits.acquire_many(connections_max);
    if timeout(shared.limits().drain_timeout, drained).await.is_err() {
        tracing::warn!("requests in flight were cut off at the end of the drain time");
        shared.enter(ENDED);
        // They end at their next wake-up, which `enter` has caused.
        let _ = timeout(Duration::from_secs(1), permits.acquire_many(connections_max)).await;
    }
    if let Some(reload) = reload {
        reload.abort();
    }
}

fn http() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        // Heads and answers are small: one copied buffer is cheaper than a vectored write (reads 8 %).
        // Large ones come in slices, and no slice while more than `max_buf_size` is to be written.
        .writev(false)
        .timer(TokioTimer::new())
        // The watchdog does this without a timer for each request.
        .header_read_timeout(None)
        .max_buf_size(limits::HEAD_BYTES_MAX)
        .max_headers(limits::HEADER_COUNT_MAX);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::H2_STREAMS_MAX)
        .max_header_list_size(limits::H2_HEAD_BYTES_MAX)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    http
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let permit = permits.clone().acquire_owned().await.expect("never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, permit),
            Err(error) => {
                // Out of file descriptors, mostly: others must close before it can go on.
                tracing::warn!(%error, "a connection could not be accepted");
                metrics::counter!("http_accept_errors_total").increment(1);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn connection(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
) {
    let open = metrics::gauge!("http_connections");
    open.increment(1);
    // Answers are written whole: there is nothing to wait for and join with.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %peer, "TCP_NODELAY");
    }
    let stream = match &shared.options.tls {
        None => Some(Stream::Plain(stream)),
        Some(tls) => handshake(tls, stream, shared.limits().head_timeout).await,
    };
    if let Some(stream) = stream {
        drive(&shared, stream, peer).await;
    }
    open.decrement(1);
    drop(permit);
}

async fn handshake(tls: &Tls, stream: TcpStream, limit: Duration) -> Option<Stream> {
    match timeout(limit.min(limits::TLS_HANDSHAKE_TIMEOUT), tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Stream::Tls(Box::new(stream))),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake");
            metrics::counter!("http_tls_handshake_errors_total").increment(1);
            None
        }
        Err(_) => None,
    }
}

/// Runs hyper over a connection until it ends, or the watchdog ends it.
async fn drive(shared: &Arc<Shared>, stream: Stream, peer: SocketAddr) {
    let conn = Arc::new(Conn::new(peer, matches!(stream, Stream::Tls(_))));
    let service = service_fn({
        let (app, conn) = (shared.app.clone(), conn.clone());
        move |request| {
            let answer = App::answer(app.clone(), conn.clone(), request);
            async move { Ok::<_, Infallible>(answer.await) }
        }
    });
    let io = TokioIo::new(ConnIo::new(stream, conn.clone(), shared.limits()));
    let mut connection = pin!(shared.http.serve_connection(io, service));
    let mut watchdog = pin!(Watchdog::new(&conn, shared.limits()));
    let mut phase_changed = pin!(shared.phase_changed.notified());
    phase_changed.as_mut().enable();
    let mut waits_for_phase = false;
    let mut leaving = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = connection.as_mut().poll(cx) {
                if let Err(error) = outcome {
                    tracing::debug!(error = %error, %peer, "connection");
                }
                return Poll::Ready(());
            }
            let phase = shared.phase.load(Ordering::Acquire);
            if phase == ENDED {
                return Poll::Ready(());
            }
            if phase == DRAINING && !leaving {
                leaving = true;
                conn.never_linger();
                connection.as_mut().graceful_shutdown();
                // To be told of the end as well.
                phase_changed.set(shared.phase_changed.notified());
                waits_for_phase = false;
                continue;
            }
            // Once registered there is no need to ask again: the waker is always this task's.
            if !waits_for_phase {
                waits_for_phase = true;
                if phase_changed.as_mut().poll(cx).is_ready() {
                    continue;
                }
            }
            match watchdog.as_mut().poll(cx, &conn) {
                Verdict::Fine => return Poll::Pending,
                Verdict::HeadTooSlow => conn.refuse_head(),
                Verdict::Idle => {
                    conn.never_linger();
                    connection.as_mut().graceful_shutdown();
                }
                Verdict::Hopeless => return Poll::Ready(()),
            }
        }
    })
    .await;
}
