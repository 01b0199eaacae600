//! Clients that go away while what they receive is read from the archive.

use std::fs::OpenOptions;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{HANG, Server};
use crate::large_bodies::text;

/// A body that whoever reads it waits for, because a pipe without a writer lies in its place.
struct Held {
    object: PathBuf,
    aside: PathBuf,
    pipe: PathBuf,
}

impl Held {
    /// Of the only one there is.
    fn take(server: &Server) -> Held {
        let object = server.objects().pop().expect("there is one");
        let [aside, pipe] = ["aside", "pipe"].map(|name| server.folder.path().join(name));
        mkfifoat(CWD, &pipe, Mode::RWXU).expect("it can be made");
        std::fs::rename(&object, &aside).expect("it can be moved");
        std::fs::hard_link(&pipe, &object).expect("it can be linked");
        Held { object, aside, pipe }
    }

    /// Who reads it from now on does not wait; who waits goes on waiting.
    fn put_back(&self) {
        std::fs::rename(&self.aside, &self.object).expect("it can be moved");
    }
}

impl Drop for Held {
    /// Lets go whoever waits: the runtime does not end before. To be done before the server's folder is
    /// gone.
    fn drop(&mut self) {
        let opened = OpenOptions::new().read(true).write(true).open(&self.pipe);
        drop(opened.expect("it can be opened"));
        std::fs::remove_file(&self.pipe).expect("it can be removed");
    }
}

fn post(path: &str, head: &str, body: &Value) -> String {
    let body = body.to_string();
    let len = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{head}\r\ncontent-length: {len}\r\n\r\n{body}")
}

fn sqs(ask: &Value) -> String {
    let head = "content-type: application/x-amz-json-1.0\r\n\
                x-amz-target: AmazonSQS.ReceiveMessage";
    post("/sqs", head, ask)
}

fn plain(queue: &str, ask: &Value) -> String {
    let path = format!("/v1/queues/{queue}/messages:receive");
    post(&path, "content-type: application/json", ask)
}

impl Server {
    /// Begins a receive that leases so many. They are leased, and the first large body is being read.
    async fn begin_receive(&self, queue: &str, request: &str, leases: u64) -> TcpStream {
        let mut client = self.connect().await;
        client.write_all(request.as_bytes()).await.expect("it is read");
        let leased = async { while self.look(queue).await["inflight"] != leases {} };
        timeout(HANG, leased).await.expect("it is received");
        // What is leased is shown before the handler is told of it. Answers are told in their order, so
        // it has been told when what came later is answered.
        assert_eq!(self.send("PUT", "/q/other", "", "later").await.status, 202);
        client
    }
}

#[tokio::test]
async fn what_a_client_leaves_behind_is_received_by_the_next_as_if_for_the_first_time() {
    let (server, _) = Server::start_product(1).await;
    let url = "http://x/sqs/default/sqs";
    for (queue, request) in [
        ("json", plain("json", &json!({"waitSeconds": 20}))),
        ("curl", "GET /q/curl?wait=20 HTTP/1.1\r\nhost: x\r\n\r\n".to_owned()),
        ("sqs", sqs(&json!({"QueueUrl": url, "WaitTimeSeconds": 20}))),
    ] {
        let dead = json!({"name": queue, "largeBodies": true, "maxReceiveCount": 1, "deadLetterQueue": "dead"});
        server.make(dead).await;
        let body = text(300 << 10);
        server.send_to(queue, json!({"body": body})).await;
        let held = Held::take(&server);
        for _ in 0..2 {
            let client = server.begin_receive(queue, &request, 1).await;
            drop(client);
            let back = async { while server.look(queue).await["inflight"] != 0 {} };
            timeout(HANG, back).await.expect("its lease ends");
            let shown = server.look(queue).await;
            let left = ["visible", "delayed"].map(|state| shown[state].as_u64().unwrap_or(0));
            assert_eq!(left[0] + left[1], 1, "{queue}: and it is no dead letter");
        }
        held.put_back();
        let got = server.receive(queue, json!({"waitSeconds": 20})).await;
        assert_eq!(got[0]["receiveCount"], 1, "{queue}: nobody had it before");
        assert!(got[0]["body"] == body);
        assert_eq!(server.settle(queue, &got[0], "ack", json!({})).await.status, 204);
        server.until_objects(0).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn everything_that_was_leased_for_a_client_that_hangs_up_comes_back_in_order() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "largeBodies": true, "mode": "FIFO"})).await;
    for (group, body) in [("a", "a1"), ("a", "large"), ("a", "a3"), ("b", "b1")] {
        let body = if body == "large" { text(300 << 10) } else { body.to_owned() };
        server.send_to("jobs", json!({"body": body, "messageGroupId": group})).await;
    }
    let held = Held::take(&server);
    let ask = json!({"maxMessages": 10, "waitSeconds": 20});
    let client = server.begin_receive("jobs", &plain("jobs", &ask), 4).await;
    drop(client);
    held.put_back();
    let got = server.receive("jobs", ask).await;
    let seen = |group: &str| -> Vec<_> {
        let of_group = got.iter().filter(|m| m["messageGroupId"] == group);
        of_group.map(|m| (m["sequence"].as_u64(), m["receiveCount"].as_u64())).collect()
    };
    assert_eq!(seen("a"), [1, 2, 3].map(|sequence| (Some(sequence), Some(1))));
    assert_eq!(seen("b"), [(Some(4), Some(1))]);
    drop(held);
    server.stop().await;
}

#[tokio::test]
async fn an_attempt_whose_client_hangs_up_keeps_its_leases_for_the_next_try() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs.fifo", "largeBodies": true, "mode": "FIFO"})).await;
    let body = text(300 << 10);
    server.send_to("jobs.fifo", json!({"body": body, "messageGroupId": "g"})).await;
    let ask = json!({
        "QueueUrl": "http://x/sqs/default/jobs.fifo",
        "ReceiveRequestAttemptId": "a",
        "AttributeNames": ["ApproximateReceiveCount"],
    });
    let held = Held::take(&server);
    let client = server.begin_receive("jobs.fifo", &sqs(&ask), 1).await;
    drop(client);
    held.put_back();
    let got = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    assert!(got["Messages"][0]["Body"] == body, "it has it still");
    assert_eq!(got["Messages"][0]["Attributes"]["ApproximateReceiveCount"], "1");
    let metrics = server.get("/metrics").await.body;
    let mut leases =
        metrics.lines().filter(|line| line.starts_with("stampede_queue_received_total"));
    assert!(leases.any(|line| line.ends_with(" 1")), "it is still the same lease: {metrics}");
    assert_eq!(server.look("jobs.fifo").await["inflight"], 1, "nobody takes it away");
    drop(held);
    server.stop().await;
}
