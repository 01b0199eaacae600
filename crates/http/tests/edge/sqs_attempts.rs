//! Receives that are repeated under their attempt's id.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::harness::Server;

const URL: &str = "http://x/sqs/default/jobs.fifo";

impl Server {
    async fn attempt(&self, id: &str, wait_seconds: u32) -> Value {
        let ask = json!({
            "QueueUrl": URL,
            "ReceiveRequestAttemptId": id,
            "WaitTimeSeconds": wait_seconds,
        });
        Server::ok(&self.sqs_call("ReceiveMessage", &ask).await, 200)
    }

    async fn send_fifo(&self, body: &str) {
        let send = json!({
            "QueueUrl": URL,
            "MessageBody": body,
            "MessageGroupId": "g",
            "MessageDeduplicationId": body,
        });
        Server::ok(&self.sqs_call("SendMessage", &send).await, 200);
    }
}

#[tokio::test]
async fn an_attempt_that_got_its_messages_after_waiting_gets_them_again() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs.fifo", "mode": "FIFO", "retentionSeconds": 60})).await;
    // Too old when it is to be received: the first try finds nothing where something was.
    server.send_fifo("old").await;
    ahead_ms.fetch_add(61_000, Ordering::SeqCst);
    let server = Arc::new(server);
    let waiting = Arc::clone(&server);
    let first = tokio::spawn(async move { waiting.attempt("a", 20).await });
    while server.node.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    server.send_fifo("young").await;
    let first = first.await.expect("it is answered");
    assert_eq!(first["Messages"][0]["Body"], "young");
    assert_eq!(server.attempt("a", 0).await, first);
    assert_eq!(server.attempt("b", 0).await.get("Messages"), None, "it is leased");
    Arc::into_inner(server).expect("nobody else has it").stop().await;
}
