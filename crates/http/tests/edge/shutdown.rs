//! Going down.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{SLOW, SLOW_BEGUN, Server, exchange};
use http_edge::server::ServerOptions;

#[tokio::test]
async fn requests_in_flight_are_finished_and_idle_connections_closed() {
    let mut server = Server::start().await;
    let idle = server.connect().await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET /t/slow HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is read");
    SLOW_BEGUN.acquire().await.expect("never closed").forget();
    server.begin_stop();
    // The idle one is closed while the other is still in flight.
    assert_eq!(exchange(idle, b"").await.status, 0);
    assert!(TcpStream::connect(server.addr).await.is_err(), "nobody new is let in");
    SLOW.add_permits(1);
    let answer = exchange(busy, b"").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "done"));
    server.ended().await;
}

#[tokio::test]
async fn requests_that_do_not_end_are_cut_off() {
    let change =
        |edge: &mut http_edge::Edge| edge.limits.drain_timeout = Duration::from_millis(100);
    let mut server = Server::start_with(change, ServerOptions::default()).await;
    let mut busy = server.connect().await;
    busy.write_all(b"POST /t/raw HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n")
        .await
        .expect("read");
    server.is_alive().await;
    server.begin_stop();
    server.ended().await;
    assert_eq!(exchange(busy, b"").await.status, 0);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn() {
    let change = |edge: &mut http_edge::Edge| edge.limits.connections_max = 2;
    let server = Server::start_with(change, ServerOptions::default()).await;
    let first = server.connect().await;
    let second = server.connect().await;
    let third = tokio::spawn(exchange_owned(server.connect().await));
    let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(exchange(first, request).await.status, 200);
    assert_eq!(third.await.expect("no panic"), 200);
    drop(second);
    server.stop().await;
}

async fn exchange_owned(stream: TcpStream) -> u16 {
    exchange(stream, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.status
}
