//! Clients that ask and do not read, over HTTP/2 and HTTP/1.

use std::collections::BTreeSet;
use std::time::Duration;

use http_edge::limits::Limits;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{HANG, Server};
use crate::large_bodies::text;

const PATIENCE: Duration = Duration::from_millis(150);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("it is short");
    // GET and http of the static table; then `:authority` and `:path` as they are.
    let head = [&[0x82, 0x86, 0x01, 1, b'x', 0x04, length], path.as_bytes()].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)
}

/// Leave to send so many bytes more; of stream 0, on the connection.
fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A client that lets nothing be sent of an answer of which it does not say so, and sends what `paced`
/// gives a few times in each time-out of the server, for as long as the server takes it.
async fn client(
    server: &Server,
    first: &[u8],
    mut paced: impl FnMut(u32) -> Option<Vec<u8>> + Send + 'static,
) -> (OwnedReadHalf, JoinHandle<()>) {
    let (reader, mut writer) = server.connect().await.into_split();
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let start = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &no_window[..], first].concat();
    writer.write_all(&start).await.expect("it is read");
    let sends = tokio::spawn(async move {
        let mut pace = tokio::time::interval(PATIENCE / 5);
        for round in 0.. {
            pace.tick().await;
            let Some(bytes) = paced(round) else { return };
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    (reader, sends)
}

/// What comes: its kind, flags and stream. `None` when the connection is closed, or reset.
async fn next_frame(reader: &mut OwnedReadHalf) -> Option<(u8, u8, u32)> {
    let mut head = [0; 9];
    let read = timeout(HANG, reader.read_exact(&mut head)).await;
    read.expect("the server sends or closes").ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    reader.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
}

async fn is_closed((mut reader, sends): (OwnedReadHalf, JoinHandle<()>)) {
    let mut leaving = false;
    while let Some((kind, flags, _)) = next_frame(&mut reader).await {
        leaving |= kind == GO_AWAY;
        // Long after its time: whoever answers that would stay for ever.
        let asks = kind == PING && flags & ACK == 0 && !leaving;
        assert!(!asks, "the server asks whether the client is still there");
    }
    sends.abort();
}

/// Streams from 3 on.
fn of_round(round: u32) -> u32 {
    3 + 2 * round
}

#[tokio::test]
async fn an_answer_that_gets_no_window_ends_its_connection_whatever_else_comes_on_it() {
    let server = Server::impatient(PATIENCE).await;
    let pings = |_| Some(frame(PING, 0, 0, &[7; 8]));
    let others = |round| {
        let stream = of_round(round);
        Some([get(stream, "/healthz"), window(stream, 100)].concat())
    };
    is_closed(client(&server, &get(1, "/healthz"), pings).await).await;
    is_closed(client(&server, &get(1, "/t/bytes/1000000"), others).await).await;
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_read_too_slowly_ends_its_connection() {
    let server = Server::impatient(PATIENCE).await;
    // In no time-out as many bytes as there must be, and some in each.
    let trickle = |_| Some([window(0, 4 << 10), window(1, 4 << 10)].concat());
    is_closed(client(&server, &get(1, "/t/bytes/100000000"), trickle).await).await;
    server.stop().await;
}

#[tokio::test]
async fn the_end_of_an_answer_is_waited_for_no_longer_than_its_beginning() {
    let server = Server::impatient(PATIENCE).await;
    let pings = |_| Some(frame(PING, 0, 0, &[7; 8]));
    // All of it is with HTTP/2, which has leave to send the first byte.
    let first = [get(1, "/healthz"), window(1, 1)].concat();
    is_closed(client(&server, &first, pings).await).await;
    server.stop().await;
}

#[tokio::test]
async fn pings_alone_keep_no_connection() {
    let server = Server::impatient(PATIENCE).await;
    is_closed(client(&server, &[], |_| Some(frame(PING, 0, 0, &[7; 8]))).await).await;
    server.stop().await;
}

#[tokio::test]
async fn answers_that_are_read_keep_their_connection() {
    // It must not be the machine that is slow.
    let server = Server::impatient(PATIENCE * 6).await;
    // For several time-outs, and each in two parts.
    const ROUNDS: u32 = 120;
    let asks = |round| {
        let last = (round > 0).then(|| window(of_round(round - 1), 100_000));
        let next = (round < ROUNDS).then(|| {
            let stream = of_round(round);
            [get(stream, "/t/bytes/100000"), window(stream, 1), window(0, 100_000)].concat()
        });
        let bytes: Vec<u8> = last.into_iter().chain(next).flatten().collect();
        (round <= ROUNDS).then_some(bytes)
    };
    let (mut reader, sends) = client(&server, &[], asks).await;
    let mut ended = BTreeSet::new();
    while ended.len() < ROUNDS as usize {
        let (kind, flags, stream) = next_frame(&mut reader).await.expect("it is open");
        if kind == DATA && flags & END_STREAM != 0 {
            ended.insert(stream);
        }
    }
    assert_eq!(ended, (0..ROUNDS).map(of_round).collect());
    sends.await.expect("no panic");
    server.stop().await;
}

/// A request that asks for the messages of a queue, and reads no more than the beginning of the answer.
async fn receive_and_stop(server: &Server, queue: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    // Else the system takes many megabytes on its behalf.
    socket.set_recv_buffer_size(64 << 10).expect("it can be small");
    let mut stream = socket.connect(server.addr).await.expect("the server listens");
    let ask = format!(
        "POST /v1/queues/{queue}/messages:receive HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.expect("it is read");
    let mut head = [0; 15];
    timeout(HANG, stream.read_exact(&mut head)).await.expect("in time").expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test]
async fn a_large_answer_has_its_room_until_it_is_read() {
    let change = |edge: &mut http_edge::Edge| {
        edge.limits = Limits {
            // Of one message of the largest, and no more than that.
            large_bytes_max: 17 << 20,
            room_timeout: Duration::from_millis(1),
            write_timeout: HANG * 2,
            body_timeout: HANG,
            ..Limits::default()
        };
    };
    let (server, _) = Server::start_product_with(1, change).await;
    server.large("jobs").await;
    server.send_to("jobs", json!({"body": text(16 << 20)})).await;
    server.send_to("jobs", json!({"body": text(300 << 10)})).await;
    let unread = receive_and_stop(&server, "jobs").await;
    let receive = "/v1/queues/jobs/messages:receive";
    server.post(receive, "{}").await.problem(503, "overloaded");
    drop(unread);
    let got = async { while server.post(receive, "{}").await.status != 200 {} };
    timeout(HANG, got).await.expect("there is room again");
    server.stop().await;
}
