//! Clients that stop in the middle. The server is made impatient, and the tests wait for it to
//! close: no sleeps.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::harness::{Answer, ENDLESS_DROPPED, HANG, Server, exchange};

const PATIENCE: Duration = Duration::from_millis(150);

#[tokio::test]
async fn a_head_that_stops_is_answered_and_closed() {
    let server = Server::impatient(PATIENCE).await;
    for start in ["G", "GET /healthz HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\nhost: x\r\na: b"] {
        server.raw(start).await.problem(408, "timeout");
    }
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn a_head_that_trickles_is_closed() {
    let server = Server::impatient(PATIENCE).await;
    let (mut reader, mut writer) = server.connect().await.into_split();
    writer.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await.expect("it is read");
    let trickle = tokio::spawn(async move {
        // Each byte comes well within the time-out; together they never end.
        let mut pace = tokio::time::interval(PATIENCE / 5);
        loop {
            pace.tick().await;
            if writer.write_all(b"a").await.is_err() {
                return;
            }
        }
    });
    let mut text = Vec::new();
    let read = reader.read_to_end(&mut text);
    let _ = timeout(HANG, read).await.expect("the server closes");
    Answer::parse(&text).problem(408, "timeout");
    trickle.abort();
    server.stop().await;
}

#[tokio::test]
async fn a_second_head_that_stops_is_closed_too() {
    let server = Server::impatient(PATIENCE).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is read");
    let mut text = Vec::new();
    while !text.ends_with(b"ok") {
        assert!(stream.read_buf(&mut text).await.expect("an answer") > 0, "it closed early");
    }
    exchange(stream, b"GET /healthz HT").await.problem(408, "timeout");
    // Cut off within one packet it is closed as well, if without words.
    let answer = server.raw("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /healthz HT").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    server.stop().await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let server = Server::impatient(PATIENCE).await;
    assert_eq!(server.raw("").await.status, 0);
    let answer = server.raw("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_comes_after_its_head_leaves_nothing_open() {
    let server = Server::impatient(PATIENCE).await;
    let mut stream = server.connect().await;
    let head =
        b"POST /t/raw HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    stream.write_all(head).await.expect("it is read");
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut text).await.expect("go on") > 0, "it closed early");
    }
    // Closed when it is idle, without an answer to a request that was never begun.
    let answer = exchange(stream, b"ab").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "2"));
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_stops_is_answered_and_closed() {
    let server = Server::impatient(PATIENCE).await;
    let json = "content-type: application/json\r\n";
    for rest in [
        "content-length: 10\r\n\r\n",
        "content-length: 10\r\n\r\n{\"a",
        "transfer-encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let answer =
            server.raw(format!("POST /t/things HTTP/1.1\r\nhost: x\r\n{json}{rest}")).await;
        answer.problem(408, "timeout");
        assert!(answer.head.contains("connection: close"), "{answer:?}");
    }
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_trickles_is_closed() {
    let server = Server::impatient(PATIENCE).await;
    let (mut reader, mut writer) = server.connect().await.into_split();
    writer
        .write_all(b"POST /t/raw HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        .await
        .expect("it is read");
    let trickle = tokio::spawn(async move {
        let mut pace = tokio::time::interval(PATIENCE / 5);
        loop {
            pace.tick().await;
            if writer.write_all(b"a").await.is_err() {
                return;
            }
        }
    });
    let mut text = Vec::new();
    let _ = timeout(HANG, reader.read_to_end(&mut text)).await.expect("the server closes");
    Answer::parse(&text).problem(408, "timeout");
    trickle.abort();
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let server = Server::impatient(PATIENCE).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /t/endless HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is read");
    let dropped = timeout(HANG, ENDLESS_DROPPED.acquire()).await.expect("the server gives up");
    dropped.expect("never closed").forget();
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn a_crowd_that_comes_before_anybody_is_accepted_is_not_turned_away() {
    let listener = http_edge::listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let bound = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("Linux");
    let crowd = bound.trim().parse::<usize>().expect("a number").min(1000);
    let mut connections = Vec::new();
    for _ in 0..crowd {
        // Who finds no place waits for one, and nobody makes any.
        let connecting = timeout(HANG, tokio::net::TcpStream::connect(address)).await;
        connections.push(connecting.expect("there is a place").expect("it connects"));
    }
}
