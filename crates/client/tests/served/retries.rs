//! What is tried again, and what that does.

use std::time::Duration;

use client::{Client, Error, Receive, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{Cut, Proxy, Server, quick};

#[tokio::test]
async fn connections_are_reused() {
    let server = Server::start().await;
    server.queue("jobs").await;
    let proxy = Proxy::start(server.addr, &[]).await;
    let client = proxy.client();
    for n in 0..10 {
        client.clone().queue("jobs").send(&n).await.expect("sent");
    }
    assert_eq!(proxy.connections(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_send_that_is_cut_is_tried_again_and_sent_once() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let plan = [Cut::AtOnce, Cut::BeforeTheAnswer, Cut::BeforeTheAnswer];
    let proxy = Proxy::start(server.addr, &plan).await;
    let sent = proxy.client().queue("jobs").send("once").await.expect("sent in the end");
    assert_eq!(proxy.connections(), 4);
    let got = queue.receive(Receive::up_to(10)).await.expect("received");
    assert_eq!((got.len(), &got[0].message_id), (1, &sent.message_id));
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_is_cut_is_sent_once() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let proxy = Proxy::start(server.addr, &[Cut::BeforeTheAnswer]).await;
    let batch: Vec<_> = (0..5).map(|n| client::Outgoing::new(&n).expect("JSON")).collect();
    let results = proxy.client().queue("jobs").send_batch(&batch).await.expect("sent");
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(queue.receive(Receive::up_to(100)).await.expect("received").len(), 5);
    server.stop().await;
}

#[tokio::test]
async fn an_ack_whose_answer_was_lost_is_not_known() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    for body in ["one", "two"] {
        queue.send(body).await.expect("sent");
    }
    let got = queue.receive(Receive::up_to(2)).await.expect("received");
    let proxy = Proxy::start(server.addr, &[Cut::BeforeTheAnswer]).await;
    let error = proxy.client().queue("jobs").ack(&got[0]).await.expect_err("nobody can say");
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    let proxy = Proxy::start(server.addr, &[Cut::BeforeTheAnswer]).await;
    let handles = [got[1].receipt_handle.clone()];
    let results = proxy.client().queue("jobs").ack_batch(&handles).await.expect("answered");
    assert!(matches!(results[0], Err(Error::Unknown(_))), "{:?}", results[0]);
    let info = server.client().queues().get("jobs").await.expect("there");
    assert_eq!((info.visible, info.inflight), (0, 0), "both were done by the first try");
    server.stop().await;
}

#[tokio::test]
async fn an_ack_that_never_arrived_is_simply_tried_again() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    queue.send("one").await.expect("sent");
    let got = queue.receive(Receive::default()).await.expect("received");
    let proxy = Proxy::start(server.addr, &[Cut::AtOnce, Cut::AtOnce]).await;
    proxy.client().queue("jobs").ack(&got[0]).await.expect("acked");
    server.stop().await;
}

#[tokio::test]
async fn deleting_twice_is_deleting_but_purging_twice_is_not_tried() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let proxy = Proxy::start(server.addr, &[Cut::BeforeTheAnswer]).await;
    let error = proxy.client().queues().purge("jobs").await.expect_err("not known");
    assert!(matches!(error, Error::Cut { .. }), "{error}");
    assert_eq!(proxy.connections(), 1);
    let proxy = Proxy::start(server.addr, &[Cut::BeforeTheAnswer]).await;
    proxy.client().queues().delete("jobs").await.expect("it is gone, as asked");
    assert!(queue.send(&1).await.expect_err("gone").is("not-found"));
    server.stop().await;
}

#[tokio::test]
async fn a_full_queue_is_waited_for_under_a_new_key() {
    let server = Server::start().await;
    let client = server.client();
    let settings =
        client::QueueSettings { max_messages: Some(1), ..client::QueueSettings::default() };
    let new = client::NewQueue::new("small").settings(settings);
    client.queues().create(&new).await.expect("made");
    let queue = client.queue("small");
    queue.send(&1).await.expect("sent");
    // The server asks for a second before the next try, which is time enough to make room.
    let waiting = queue.clone();
    let waiting = tokio::spawn(async move { waiting.send(&2).await });
    let one = queue.receive(Receive::default()).await.expect("received");
    queue.ack(&one[0]).await.expect("acked");
    waiting.await.expect("no panic").expect("sent, once there was room");
    server.stop().await;
}

type Answers = &'static [(u16, &'static str)];

const BUSY: (u16, &str) =
    (503, r#"{"type":"overloaded","title":"t","status":503,"detail":"d","retryAfterMs":300}"#);
const STOPPED: (u16, &str) =
    (503, r#"{"type":"stopped","title":"t","status":503,"detail":"d","retryAfterMs":1}"#);
const SENT: (u16, &str) = (202, r#"{"messageId":"m","sequence":1}"#);

/// Answers each connection with the next of these, and tells what it was asked.
async fn stub(answers: Answers) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let task = tokio::spawn(async move {
        let mut asked = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut text = String::new();
            // Every request here ends with its one object.
            while !text.ends_with('}') {
                let mut part = [0; 4096];
                let count = stream.read(&mut part).await.expect("a request");
                text.push_str(&String::from_utf8_lossy(&part[..count]).to_lowercase());
            }
            asked.push(text);
            let length = body.len();
            let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n");
            let answer = format!("{head}content-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.expect("it reads");
        }
        asked
    });
    (url, task)
}

const MIXED: (u16, &str) = (
    200,
    r#"{"results":[{"index":0},
        {"index":1,"error":{"type":"overloaded","title":"t","status":503,"retryAfterMs":300}},
        {"index":2,"error":{"type":"conflict","title":"t","status":409}},
        {"index":3,"error":{"type":"stopped","title":"t","status":503,"retryAfterMs":1}}]}"#,
);
const THEN: (u16, &str) = (
    200,
    r#"{"results":[{"index":0},
        {"index":1,"error":{"type":"conflict","title":"t","status":409}}]}"#,
);
const BOTH_BUSY: (u16, &str) = (
    200,
    r#"{"results":[{"index":0,"error":{"type":"overloaded","title":"t","status":503}},
        {"index":1,"error":{"type":"overloaded","title":"t","status":503}}]}"#,
);
const NOT_FOUND: (u16, &str) = (404, r#"{"type":"not-found","title":"t","status":404}"#);

fn handles() -> Vec<String> {
    ["h0", "h1", "h2", "h3"].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn of_many_acks_those_that_are_refused_for_now_are_tried_again_and_no_others() {
    let (url, asked) = stub(&[MIXED, THEN]).await;
    let client = Client::builder(url).retry(quick()).build().expect("a URL");
    let started = std::time::Instant::now();
    let results = client.queue("jobs").ack_batch(&handles()).await.expect("answered");
    assert!(started.elapsed() >= Duration::from_millis(300), "as long as the server asks for");
    assert!(matches!(results[..2], [Ok(()), Ok(())]), "{results:?}");
    assert!(results[2].as_ref().is_err_and(|error| error.is("conflict")), "{results:?}");
    // A shard that stopped may have done it first.
    assert!(matches!(results[3], Err(Error::Unknown(_))), "{results:?}");
    assert_eq!(results.len(), 4);
    let asked = asked.await.expect("no panic");
    assert!(asked[0].ends_with(r#"{"receipthandles":["h0","h1","h2","h3"]}"#), "{}", asked[0]);
    assert!(asked[1].ends_with(r#"{"receipthandles":["h1","h3"]}"#), "{}", asked[1]);

    // Giving back is settling too.
    let (url, asked) = stub(&[MIXED, THEN]).await;
    let client = Client::builder(url).retry(quick()).build().expect("a URL");
    client.queue("jobs").give_back(&handles()).await.expect("answered");
    let again = r#"{"receipthandles":["h1","h3"]}"#;
    let asked = asked.await.expect("no panic");
    assert!(asked[1].ends_with(again), "{}", asked[1]);
}

#[tokio::test]
async fn tries_of_some_acks_are_bounded_and_keep_what_was_settled() {
    // One that is refused as a whole counts as well.
    let (url, asked) = stub(&[STOPPED, MIXED, BOTH_BUSY]).await;
    let thrice = Retry { attempts: 3, ..quick() };
    let client = Client::builder(url).retry(thrice).build().expect("a URL");
    let results = client.queue("jobs").ack_batch(&handles()).await.expect("answered");
    let busy = |at: usize| results[at].as_ref().is_err_and(|error| error.is("overloaded"));
    assert!(results[0].is_ok() && busy(1) && busy(3), "{results:?}");
    assert!(matches!(results[2], Err(Error::Unknown(_))), "{results:?}");
    asked.await.expect("no panic");

    let (url, asked) = stub(&[MIXED, NOT_FOUND]).await;
    let client = Client::builder(url).retry(quick()).build().expect("a URL");
    let results = client.queue("jobs").ack_batch(&handles()).await.expect("answered");
    let kinds: Vec<_> = results
        .iter()
        .map(|result| match result {
            Ok(()) => "done",
            Err(error) => error.problem().map_or("other", |problem| &problem.kind),
        })
        .collect();
    assert_eq!(kinds, ["done", "not-found", "conflict", "not-found"]);
    asked.await.expect("no panic");
}

fn key(request: &str) -> &str {
    let line = request.lines().find(|line| line.starts_with("idempotency-key: "));
    line.expect("a key")
}

#[tokio::test]
async fn the_key_changes_after_a_refusal_and_stays_when_it_may_have_been_done() {
    for (answers, same) in [(&[BUSY, SENT][..], false), (&[STOPPED, SENT], true)] {
        let (url, asked) = stub(answers).await;
        let client = Client::builder(url).retry(quick()).build().expect("a URL");
        client.queue("jobs").send(&1).await.expect("sent");
        let asked = asked.await.expect("no panic");
        assert_eq!(key(&asked[0]) == key(&asked[1]), same, "{answers:?}");
    }
}

#[tokio::test]
async fn retry_after_is_waited_for_and_attempts_are_bounded() {
    let (url, asked) = stub(&[BUSY, SENT]).await;
    let client = Client::builder(url).key("sk_x").tenant("t").retry(quick()).build().expect("ok");
    let started = std::time::Instant::now();
    client.queue("jobs").send(&1).await.expect("sent");
    assert!(started.elapsed() >= Duration::from_millis(300));
    let asked = asked.await.expect("no panic");
    for part in ["authorization: bearer sk_x", "x-tenant: t", "idempotency-key: ", "{\"body\":1}"] {
        assert!(asked[0].contains(part), "{part} is not in {}", asked[0]);
    }

    let (url, asked) = stub(&[BUSY, BUSY]).await;
    let twice = Retry { attempts: 2, ..quick() };
    let client = Client::builder(url).retry(twice).build().expect("ok");
    let error = client.queue("jobs").send(&1).await.expect_err("it stays busy");
    assert!(error.is("overloaded") && error.is_passing(), "{error}");
    asked.await.expect("no panic");

    let (url, _asked) = stub(&[BUSY, SENT]).await;
    let short = Retry { deadline: Duration::from_millis(200), ..quick() };
    let client = Client::builder(url).retry(short).build().expect("ok");
    let error = client.queue("jobs").send(&1).await.expect_err("no time to wait so long");
    assert!(error.is("overloaded"), "{error}");
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let client = Client::builder(url).timeout(Duration::from_millis(50)).retry(Retry::none());
    let client = client.build().expect("a URL");
    let error = client.queues().get("jobs").await.expect_err("nobody answers");
    assert!(matches!(error, Error::Cut { .. }), "{error}");
}

#[tokio::test]
async fn nobody_there_is_said_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let client = Client::builder(&url).retry(quick()).build().expect("a URL");
    let error = client.queues().get("jobs").await.expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&url) && error.to_string().contains("refused"), "{error}");
}
