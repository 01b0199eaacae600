//! Bodies that a queue does not hold itself: who sends and receives sees no difference.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_edge::limits::Limits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, HANG, Server};
use crate::sqs_keys::signed;

/// Between two looks at what executors do in the background.
const LOOK: Duration = Duration::from_millis(5);

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

pub(crate) fn text(bytes: usize) -> String {
    "0123456789abcdef".repeat(bytes / 16)
}

impl Server {
    fn bodies(&self) -> PathBuf {
        self.folder.path().join("data/archive/bodies")
    }

    pub(crate) fn objects(&self) -> Vec<PathBuf> {
        files(&self.bodies())
    }

    pub(crate) async fn until_objects(&self, count: usize) {
        let look = async {
            while self.objects().len() != count {
                // sleeps because executors work in the background and nothing tells when they are done
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(HANG, look).await.expect("the archive has as many in the end");
    }

    pub(crate) async fn large(&self, name: &str) {
        self.make(json!({"name": name, "largeBodies": true})).await;
    }

    async fn one(&self, queue: &str) -> Value {
        self.receive(queue, json!({})).await.remove(0)
    }

    async fn ack(&self, queue: &str, message: &Value) {
        assert_eq!(self.settle(queue, message, "ack", json!({})).await.status, 204);
    }

    /// The head of a request. The server has seen it, and waits for its body.
    async fn begin(&self, path: &str, bytes: usize) -> TcpStream {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
             content-length: {bytes}\r\nexpect: 100-continue\r\n\r\n"
        );
        let mut stream = self.connect().await;
        stream.write_all(head.as_bytes()).await.expect("it is read");
        let mut go_on = [0; 25];
        let read = stream.read_exact(&mut go_on);
        tokio::time::timeout(HANG, read).await.expect("in time").expect("it wants the body");
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    /// Most of a large body: more than sockets hold, so the server has read enough to be full.
    async fn fill_room(&self, path: &str) -> TcpStream {
        let mut slow = self.begin(path, 31 << 20).await;
        slow.write_all(text(30 << 20).as_bytes()).await.expect("it is read");
        slow
    }

    pub(crate) async fn sqs_call(&self, action: &str, body: &Value) -> Answer {
        let head = format!(
            "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}\r\n"
        );
        self.send("POST", "/sqs", &head, &body.to_string()).await
    }
}

#[tokio::test]
async fn large_bodies_come_back_as_they_were_and_leave_the_archive_with_their_message() {
    let (server, _) = Server::start_product(2).await;
    server.large("jobs").await;
    let view = server.look("jobs").await;
    assert_eq!((&view["largeBodies"], &view["maxBodyBytes"]), (&json!(true), &json!(16 << 20)));
    for body in [json!(text(300 << 10)), json!({"n": 1.50, "text": text(5 << 20)})] {
        let attributes = json!({"kind": "mail"});
        let sent = server.send_to("jobs", json!({"body": body, "attributes": attributes})).await;
        assert_eq!(server.objects().len(), 1);
        let bytes = server.look("jobs").await["bytes"].as_u64().expect("a number");
        assert!(bytes > 300 << 10, "{bytes}");
        let peeked = Server::ok(&server.get("/v1/queues/jobs/messages").await, 200);
        assert!(peeked["messages"][0]["body"] == body, "looking shows it too");
        let got = server.one("jobs").await;
        assert_eq!((&got["messageId"], &got["attributes"]), (&sent["messageId"], &attributes));
        assert!(got["body"] == body);
        server.ack("jobs", &got).await;
        server.until_objects(0).await;
    }
    // What a queue holds itself never goes there.
    server.send_to("jobs", json!({"body": text(256 << 10)})).await;
    assert!(server.objects().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn large_bodies_by_hand_are_bytes_or_text() {
    let (server, _) = Server::start_product(1).await;
    server.large("jobs").await;
    let text = text(300 << 10);
    assert_eq!(server.send("PUT", "/q/jobs", "", &text).await.status, 202);
    let bytes: Vec<u8> = (5..=u8::MAX).cycle().take(300_000).collect();
    let mut put = format!(
        "PUT /q/jobs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        bytes.len()
    )
    .into_bytes();
    put.extend(&bytes);
    assert_eq!(server.raw(put).await.status, 202);
    let got = Server::ok(&server.get("/q/jobs?n=10").await, 200)["messages"].clone();
    assert!(got[0]["body"] == text && got[0].get("bodyEncoding").is_none());
    assert_eq!(got[1]["bodyEncoding"], "base64");
    assert!(got[1]["body"] == STANDARD.encode(&bytes));
    for place in 0..2 {
        let handle = got[place]["receiptHandle"].as_str().expect("a handle");
        assert_eq!(server.send("DELETE", &format!("/q/jobs/{handle}"), "", "").await.status, 204);
    }
    server.until_objects(0).await;
    server.stop().await;
}

#[tokio::test]
async fn large_bodies_for_clients_of_sqs_have_the_right_digests() {
    let (server, _) = Server::start_product(1).await;
    server.large("jobs").await;
    let url = "http://x/sqs/default/jobs";
    for bytes in [300 << 10, 5 << 20] {
        let body = text(bytes);
        let md5 = sqs::digest::body(&body);
        let send = json!({"QueueUrl": url, "MessageBody": body});
        let sent = Server::ok(&server.sqs_call("SendMessage", &send).await, 200);
        assert_eq!(sent["MD5OfMessageBody"], md5);
        let receive = json!({"QueueUrl": url});
        let got = Server::ok(&server.sqs_call("ReceiveMessage", &receive).await, 200);
        let message = &got["Messages"][0];
        assert_eq!(message["MD5OfBody"], md5);
        assert!(message["Body"] == body);
        let delete = json!({"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]});
        Server::ok(&server.sqs_call("DeleteMessage", &delete).await, 200);
        server.until_objects(0).await;
    }
    let entry = |id: &str| json!({"Id": id, "MessageBody": text(300 << 10)});
    let batch = json!({"QueueUrl": url, "Entries": [entry("a"), entry("b")]});
    let sent = Server::ok(&server.sqs_call("SendMessageBatch", &batch).await, 200);
    assert_eq!(sent["Successful"].as_array().map(Vec::len), Some(2));
    assert_eq!(server.objects().len(), 2);
    // Queues without it are as they were.
    server.make(json!({"name": "small"})).await;
    let small = "http://x/sqs/default/small";
    let send = json!({"QueueUrl": small, "MessageBody": text(300 << 10)});
    let refused = server.sqs_call("SendMessage", &send).await;
    assert!(refused.head.contains("invalidparametervalue"), "{refused:?}");
    let half = |id: &str| json!({"Id": id, "MessageBody": text(200 << 10)});
    let batch = json!({"QueueUrl": small, "Entries": [half("a"), half("b")]});
    let refused = server.sqs_call("SendMessageBatch", &batch).await;
    assert!(refused.head.contains("batchrequesttoolong"), "{refused:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_restart_between_sending_and_receiving_loses_nothing() {
    let (server, _) = Server::start_product(2).await;
    server.make(json!({"name": "jobs", "largeBodies": true, "maxReceiveCount": 1, "deadLetterQueue": "dead"})).await;
    let body = text(1 << 20);
    server.send_to("jobs", json!({"body": body})).await;
    let (server, _) = server.restart_product().await;
    let got = server.one("jobs").await;
    assert!(got["body"] == body);
    assert_eq!(server.settle("jobs", &got, "nack", json!({})).await.status, 204);
    let (server, _) = server.restart_product().await;
    let dead = server.receive("dead", json!({"waitSeconds": 20})).await.remove(0);
    assert!(dead["body"] == body);
    assert_eq!(server.objects().len(), 1);
    assert_eq!(server.send("DELETE", "/v1/queues/dead", "", "").await.status, 204);
    server.until_objects(0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_not_what_was_sent_is_not_handed_out() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "largeBodies": true, "maxReceiveCount": 2, "deadLetterQueue": "dead"})).await;
    let body = text(300 << 10);
    server.send_to("jobs", json!({"body": body})).await;
    server.send_to("jobs", json!({"body": "small"})).await;
    let object = server.objects().remove(0);
    let mut bytes = std::fs::read(&object).expect("it is there");
    assert!(bytes == body.as_bytes(), "the archive has it as it is");
    bytes[1000] ^= 1;
    let shorter = bytes[1..].to_vec();
    for tampered in [Some(bytes), Some(shorter), None] {
        match &tampered {
            Some(bytes) => std::fs::write(&object, bytes).expect("it can be written"),
            None => std::fs::remove_file(&object).expect("it can be removed"),
        }
        let page = Server::ok(&server.get("/v1/queues/jobs/messages").await, 200);
        let page = page["messages"].as_array().expect("a list").clone();
        assert_eq!(page.iter().map(|m| &m["body"]).collect::<Vec<_>>(), [&json!("small")]);
    }
    let got = server.receive("jobs", json!({"maxMessages": 10})).await;
    assert_eq!(got.len(), 1, "the other one");
    server.ack("jobs", &got[0]).await;
    assert_eq!(server.look("jobs").await["inflight"], 1, "its lease goes on");
    std::fs::write(&object, &body).expect("it can be written");
    ahead_ms.fetch_add(31_000, Ordering::SeqCst);
    let got = server.receive("jobs", json!({"waitSeconds": 20})).await;
    assert!(got[0]["body"] == body, "nothing of it was lost");
    server.stop().await;
}

#[tokio::test]
async fn without_an_archive_nothing_large_is_taken_and_everything_else_is() {
    for how in HOWS {
        nothing_large_is_taken_without_an_archive(how).await;
    }
}

async fn nothing_large_is_taken_without_an_archive(how: How) {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.large("jobs").await;
    server.send_to("jobs", json!({"body": text(300 << 10)})).await;
    let away = Away::take(&server, how);
    let send = "/v1/queues/jobs/messages";
    let large = json!({"body": text(300 << 10)}).to_string();
    let detail = server.post(send, &large).await.problem(503, "archive-unavailable");
    // Nothing of the server's own files is told to whoever asks.
    assert_eq!(detail, "the archive cannot be written to; the server's log says why");
    let batch = format!(r#"{{"messages": [{{"body": "small"}}, {large}]}}"#);
    let path = "/v1/queues/jobs/messages:batch";
    server.post(path, &batch).await.problem(503, "archive-unavailable");
    assert_eq!(server.look("jobs").await["visible"], 1, "nothing of it was sent");
    let receive = "/v1/queues/jobs/messages:receive";
    let detail = server.post(receive, "{}").await.problem(503, "archive-unavailable");
    assert_eq!(detail, "the archive cannot be read; the server's log says why");
    server.send_to("jobs", json!({"body": "small"})).await;
    assert_eq!(server.one("jobs").await["body"], "small");
    away.put_back();
    assert_eq!(server.post(send, &large).await.status, 202);
    // What was reserved for what failed ends, and takes nothing with it.
    ahead_ms.fetch_add(2 * 60 * 60 * 1000, Ordering::SeqCst);
    let ask = json!({"maxMessages": 10, "waitSeconds": 20});
    let mut got = 0;
    while got < 3 {
        got += server.receive("jobs", ask.clone()).await.len();
    }
    assert_eq!(server.objects().len(), 2);
    server.stop().await;
}

/// How an archive is away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// What lies there cannot be read.
    Broken,
    /// Its folder is not there.
    Missing,
    /// Its disk is not mounted: the folder is there, and empty.
    Unmounted,
}

const HOWS: [How; 3] = [How::Broken, How::Missing, How::Unmounted];

/// What lies in the archive cannot be read until it is put back.
pub(crate) struct Away {
    place: PathBuf,
    aside: PathBuf,
}

impl Away {
    pub(crate) fn take(server: &Server, how: How) -> Away {
        let (bodies, aside) = (server.bodies(), server.folder.path().join("aside"));
        let archive = bodies.parent().expect("bodies lie in the archive").to_owned();
        let place = if matches!(how, How::Broken) { bodies } else { archive };
        std::fs::rename(&place, &aside).expect("it can be moved");
        match how {
            How::Broken => std::fs::write(&place, "not a folder").expect("it can be written"),
            How::Missing => {}
            How::Unmounted => std::fs::create_dir(&place).expect("it can be made"),
        }
        Away { place, aside }
    }

    pub(crate) fn put_back(self) {
        if self.place.is_dir() {
            // Fails if anything was put there meanwhile, which would be out of sight from now on.
            std::fs::remove_dir(&self.place).expect("nothing was put there");
        } else if self.place.exists() {
            std::fs::remove_file(&self.place).expect("it can be removed");
        }
        std::fs::rename(&self.aside, &self.place).expect("it can be moved");
    }
}

#[tokio::test]
async fn while_the_archive_is_away_no_message_dies_that_nobody_has_seen() {
    for how in HOWS {
        no_message_dies_while_the_archive_is_away(how).await;
    }
}

async fn no_message_dies_while_the_archive_is_away(how: How) {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "largeBodies": true, "maxReceiveCount": 1, "deadLetterQueue": "dead"})).await;
    server.send_to("jobs", json!({"body": text(300 << 10)})).await;
    let away = Away::take(&server, how);
    let receive = "/v1/queues/jobs/messages:receive";
    let sqs = json!({"QueueUrl": "http://x/sqs/default/jobs", "WaitTimeSeconds": 20});
    for _ in 0..3 {
        let answer = server.post(receive, r#"{"waitSeconds": 20}"#).await;
        answer.problem(503, "archive-unavailable");
        assert_eq!(server.look("jobs").await["inflight"], 0, "it is given back at once");
        assert_eq!(server.sqs_call("ReceiveMessage", &sqs).await.status, 503);
        ahead_ms.fetch_add(31_000, Ordering::SeqCst);
    }
    away.put_back();
    let got = server.receive("jobs", json!({"waitSeconds": 20})).await;
    assert_eq!((got.len(), &got[0]["receiveCount"]), (1, &json!(1)), "nobody had it before");
    assert_eq!(server.look("jobs").await["dead"], 0);
    server.stop().await;
}

#[tokio::test]
async fn while_the_archive_is_away_nothing_of_a_group_overtakes_what_lies_there() {
    for how in HOWS {
        nothing_overtakes_while_the_archive_is_away(how).await;
    }
}

async fn nothing_overtakes_while_the_archive_is_away(how: How) {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "largeBodies": true, "mode": "FIFO"})).await;
    for (group, body) in [("a", "a1"), ("a", "large"), ("a", "a3"), ("b", "b1")] {
        let body = if body == "large" { text(300 << 10) } else { body.to_owned() };
        server.send_to("jobs", json!({"body": body, "messageGroupId": group})).await;
    }
    let away = Away::take(&server, how);
    let ask = json!({"maxMessages": 10, "waitSeconds": 20});
    let got = server.receive("jobs", ask.clone()).await;
    assert_eq!(got.iter().map(|m| &m["body"]).collect::<Vec<_>>(), ["a1", "b1"]);
    server.ack("jobs", &got[0]).await;
    away.put_back();
    ahead_ms.fetch_add(1000, Ordering::SeqCst);
    let got = server.receive("jobs", ask).await;
    let seen: Vec<_> = got.iter().map(|m| (&m["sequence"], &m["receiveCount"])).collect();
    assert_eq!(seen, [(&json!(2), &json!(1)), (&json!(3), &json!(1))]);
    server.stop().await;
}

#[tokio::test]
async fn nothing_of_a_group_overtakes_what_is_lost() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "largeBodies": true, "mode": "FIFO"})).await;
    for body in [text(300 << 10), "behind".to_owned()] {
        server.send_to("jobs", json!({"body": body, "messageGroupId": "g"})).await;
    }
    std::fs::remove_file(&server.objects()[0]).expect("it can be removed");
    let got = server.receive("jobs", json!({"maxMessages": 10})).await;
    assert!(got.is_empty(), "somebody may put it back: {got:?}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_acked_while_the_archive_is_away_leaves_it_when_it_is_back() {
    let (server, _) = Server::start_product(1).await;
    server.large("jobs").await;
    server.send_to("jobs", json!({"body": text(300 << 10)})).await;
    let got = server.one("jobs").await;
    let away = Away::take(&server, How::Unmounted);
    server.ack("jobs", &got).await;
    away.put_back();
    server.until_objects(0).await;
    server.stop().await;
}

#[tokio::test]
async fn an_attempt_gets_again_what_it_still_has_when_a_part_was_given_back() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs.fifo", "largeBodies": true, "mode": "FIFO"})).await;
    for (group, body) in [("a", "a1".to_owned()), ("a", text(300 << 10)), ("b", "b1".to_owned())] {
        server.send_to("jobs.fifo", json!({"body": body, "messageGroupId": group})).await;
    }
    let away = Away::take(&server, How::Missing);
    let ask = json!({
        "QueueUrl": "http://x/sqs/default/jobs.fifo",
        "ReceiveRequestAttemptId": "a",
        "MaxNumberOfMessages": 10,
    });
    let first = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    assert_eq!(first["Messages"].as_array().map(Vec::len), Some(2), "{first}");
    let again = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    assert_eq!(again, first);
    away.put_back();
    server.stop().await;
}

#[tokio::test]
async fn an_attempt_that_was_told_of_the_archive_is_good_for_what_it_gets_later() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs.fifo", "largeBodies": true, "mode": "FIFO"})).await;
    let large = json!({"body": text(300 << 10), "messageGroupId": "g"});
    server.send_to("jobs.fifo", large).await;
    let away = Away::take(&server, How::Missing);
    let ask = json!({
        "QueueUrl": "http://x/sqs/default/jobs.fifo",
        "ReceiveRequestAttemptId": "a",
        "WaitTimeSeconds": 20,
    });
    assert_eq!(server.sqs_call("ReceiveMessage", &ask).await.status, 503);
    away.put_back();
    ahead_ms.fetch_add(1000, Ordering::SeqCst);
    let first = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    assert_eq!(first["Messages"].as_array().map(Vec::len), Some(1));
    let again = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    assert!(again == first, "it has it still");
    server.stop().await;
}

#[tokio::test]
async fn a_request_sent_again_under_its_key_puts_nothing_into_the_archive() {
    let (server, _) = Server::start_product(1).await;
    server.large("jobs").await;
    let head = "content-type: application/json\r\nidempotency-key: k1\r\n";
    let large = json!({"body": text(300 << 10)}).to_string();
    let path = "/v1/queues/jobs/messages";
    let first = Server::ok(&server.send("POST", path, head, &large).await, 202);
    for _ in 0..2 {
        let again = Server::ok(&server.send("POST", path, head, &large).await, 202);
        assert_eq!(again, first);
    }
    assert_eq!(server.objects().len(), 1);
    server.make(json!({"name": "by-body", "largeBodies": true, "deduplicateByBody": true})).await;
    for duplicate in [None, Some(&json!(true))] {
        let sent = server.send_to("by-body", json!({"body": text(300 << 10)})).await;
        assert_eq!(sent.get("duplicate"), duplicate);
    }
    server.until_objects(2).await;
    server.stop().await;
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_told_what_would_take_it() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "small"})).await;
    server.large("jobs").await;
    let message = |bytes: usize| json!({"body": text(bytes)}).to_string();
    let small = "/v1/queues/small/messages";
    let detail = server.post(small, &message(300 << 10)).await.problem(413, "payload-too-large");
    assert!(detail.contains("`largeBodies`") && detail.contains("262144"), "{detail}");
    let put = server.send("PUT", "/q/small", "", &text(300 << 10)).await;
    assert!(put.problem(413, "payload-too-large").contains("`largeBodies`"));
    let jobs = "/v1/queues/jobs/messages";
    let detail = server.post(jobs, &message((16 << 20) + 16)).await;
    let detail = detail.problem(413, "payload-too-large");
    assert!(detail.contains("16777216") && !detail.contains("largeBodies"), "{detail}");
    assert_eq!(server.post(jobs, &message(16 << 20)).await.status, 202);
    let attributes = json!({"body": text(300 << 10), "attributes": {"a": text(257 << 10)}});
    let detail = server.post(jobs, &attributes.to_string()).await;
    assert!(detail.problem(413, "payload-too-large").contains("attributes"));
    let topic = server.post("/v1/topics", r#"{"name": "news"}"#).await;
    assert_eq!(topic.status, 201);
    let publish = server.post("/v1/topics/news/messages", &message(300 << 10)).await;
    publish.problem(413, "payload-too-large");
    server.stop().await;
}

#[tokio::test]
async fn the_setting_and_the_bound_go_together() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let patch = async |change: &str| {
        let head = "content-type: application/json\r\n";
        server.send("PATCH", "/v1/queues/jobs", head, change).await
    };
    let shown = |answer: &Answer| {
        let view = Server::ok(answer, 200);
        (view["largeBodies"].as_bool().expect("yes or no"), view["maxBodyBytes"].as_u64())
    };
    let refused = patch(r#"{"maxBodyBytes": 1000000}"#).await.problem(400, "invalid-body");
    assert!(refused.contains("largeBodies"), "{refused}");
    for (change, large, max) in [
        (r#"{"largeBodies": true}"#, true, 16 << 20),
        (r#"{"maxBodyBytes": 1000000}"#, true, 1_000_000),
        (r#"{"largeBodies": true}"#, true, 1_000_000),
        (r#"{"largeBodies": false}"#, false, 256 << 10),
        (r#"{"maxBodyBytes": 1000}"#, false, 1000),
        (r#"{"largeBodies": true}"#, true, 1000),
        (r#"{"largeBodies": true, "maxBodyBytes": 16777216}"#, true, 16 << 20),
    ] {
        assert_eq!(shown(&patch(change).await), (large, Some(max)), "{change}");
    }
    let refused = patch(r#"{"maxBodyBytes": 16777217}"#).await;
    assert!(refused.problem(400, "invalid-body").contains("maxBodyBytes"));
    server.stop().await;
}

#[tokio::test]
async fn large_requests_and_answers_share_a_bound_of_memory() {
    let change = |edge: &mut http_edge::Edge| {
        edge.limits =
            Limits { large_bytes_max: 3 << 20, body_stall_timeout: HANG, ..Limits::default() };
    };
    let (server, _) = Server::start_product_with(1, change).await;
    server.large("jobs").await;
    let path = "/v1/queues/jobs/messages";
    let slow = server.fill_room(path).await;
    let large = json!({"body": text((1 << 20) + (512 << 10))}).to_string();
    server.post(path, &large).await.problem(503, "overloaded");
    let small = json!({"body": text(200 << 10)}).to_string();
    assert_eq!(server.post(path, &small).await.status, 202, "what is small needs no room");
    drop(slow);
    let taken = async { while server.post(path, &large).await.status != 202 {} };
    tokio::time::timeout(HANG, taken).await.expect("there is room again");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_only_announced_takes_no_room() {
    let change = |edge: &mut http_edge::Edge| edge.limits.large_bytes_max = 3 << 20;
    let (server, _) = Server::start_product_with(1, change).await;
    server.large("jobs").await;
    let path = "/v1/queues/jobs/messages";
    let slow = [server.begin(path, 3 << 20).await, server.begin(path, 3 << 20).await];
    let large = json!({"body": text((1 << 20) + (512 << 10))}).to_string();
    assert_eq!(server.post(path, &large).await.status, 202);
    drop(slow);
    server.stop().await;
}

#[tokio::test]
async fn a_large_body_of_a_stranger_is_refused_before_it_is_read() {
    let (server, _) = Server::start_product_with(1, |edge| edge.dev = false).await;
    let stranger = format!(
        "authorization: AWS4-HMAC-SHA256 \
         Credential=nobody/20260101/us-east-1/sqs/aws4_request, \
         SignedHeaders=host;x-amz-date;x-amz-target, Signature={}\r\n\
         x-amz-date: 20260101T000000Z\r\n",
        "0".repeat(64)
    );
    for (length, signed, code) in [
        ("content-length: 1048577", "", "MissingAuthenticationToken"),
        ("transfer-encoding: chunked", "", "MissingAuthenticationToken"),
        ("content-length: 1048577", &stranger, "UnrecognizedClientException"),
    ] {
        let answer = server
            .raw(format!(
                "POST /sqs HTTP/1.1\r\nhost: x\r\n{length}\r\n{signed}\
                 content-type: application/x-amz-json-1.0\r\n\
                 x-amz-target: AmazonSQS.SendMessage\r\n\r\n"
            ))
            .await;
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.body.contains(code), "{answer:?}");
        assert!(answer.head.contains("connection: close"), "{answer:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_receive_without_room_for_large_bodies_leases_nothing() {
    let change = |edge: &mut http_edge::Edge| {
        edge.limits = Limits {
            large_bytes_max: 1 << 20,
            room_timeout: Duration::from_millis(1),
            body_stall_timeout: HANG,
            body_timeout: HANG,
            ..Limits::default()
        };
    };
    let (server, _) = Server::start_product_with(1, change).await;
    server.large("jobs").await;
    server.large("others").await;
    server.make(json!({"name": "small"})).await;
    server.send_to("jobs", json!({"body": text(300 << 10)})).await;
    let receive = "/v1/queues/jobs/messages:receive";
    let head = "content-type: application/json\r\n";
    // One that takes no large bodies any more has what it had.
    for change in [r#"{"largeBodies": true}"#, r#"{"largeBodies": false}"#] {
        let slow = server.fill_room("/v1/queues/others/messages").await;
        assert_eq!(server.send("PATCH", "/v1/queues/jobs", head, change).await.status, 200);
        server.post(receive, "{}").await.problem(503, "overloaded");
        let ask = json!({"QueueUrl": "http://x/sqs/default/jobs"});
        assert_eq!(server.sqs_call("ReceiveMessage", &ask).await.status, 503);
        assert_eq!(server.receive("small", json!({})).await.len(), 0, "it needs no room");
        drop(slow);
    }
    let got = async {
        loop {
            let answer = server.post(receive, "{}").await;
            if answer.status != 503 {
                return Server::ok(&answer, 200);
            }
        }
    };
    let got = tokio::time::timeout(HANG, got).await.expect("there is room again");
    assert_eq!(got["messages"][0]["receiveCount"], 1, "nobody had it before");
    server.stop().await;
}

#[tokio::test]
async fn a_large_body_with_a_good_signature_is_taken_and_with_another_leaves_no_memory_taken() {
    let change = |edge: &mut http_edge::Edge| {
        edge.dev = false;
        // One such request, and no second.
        edge.limits.large_bytes_max = 3 << 20;
    };
    let (server, _) = Server::start_product_with(1, change).await;
    let key = http_edge::auth::bootstrap(&server.node).await.expect("it works");
    let key = key.expect("an empty folder");
    let head = format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\n");
    let make = r#"{"name": "jobs", "largeBodies": true}"#;
    assert_eq!(server.send("POST", "/v1/queues", &head, make).await.status, 201);
    let url = "http://x/sqs/default/jobs";
    let body = json!({"QueueUrl": url, "MessageBody": text(2 << 20)}).to_string();
    let good = signed(&key, "SendMessage", &body);
    let bad = signed(&key, "SendMessage", "another body");
    let stranger = good.replace(&key, &format!("{}x", &key[..key.len() - 1]));
    for round in 0..3 {
        for (head, code) in
            [(&bad, "InvalidSignatureException"), (&stranger, "UnrecognizedClientException")]
        {
            let refused = server.send("POST", "/sqs", head, &body).await;
            assert_eq!(refused.status, 403, "{round}: {}", refused.head);
            assert!(refused.body.contains(code), "{round}: {}", refused.body);
        }
        let sent = server.send("POST", "/sqs", &good, &body).await;
        assert_eq!(sent.status, 200, "{round}: {}", sent.body);
    }
    assert_eq!(server.objects().len(), 3);
    server.stop().await;
}
