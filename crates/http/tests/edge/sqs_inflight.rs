//! Receives of SQS from queues that have as many messages in flight as they may.

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

impl Server {
    /// A queue of this mode with two messages, one of them leased; its URL, and its receipt.
    async fn full(&self, name: &str, mode: &str) -> (String, Value) {
        self.make(json!({"name": name, "mode": mode, "maxInflight": 1})).await;
        let url = format!("http://x/sqs/default/{name}");
        for id in ["a", "b"] {
            let mut send = json!({"QueueUrl": url, "MessageBody": id});
            if mode == "FIFO" {
                send["MessageGroupId"] = id.into();
                send["MessageDeduplicationId"] = id.into();
            }
            Server::ok(&self.sqs_call("SendMessage", &send).await, 200);
        }
        let got = Server::ok(&self.take(&url, 0).await, 200);
        (url, got["Messages"][0]["ReceiptHandle"].clone())
    }

    async fn take(&self, url: &str, wait_seconds: u32) -> Answer {
        let ask = json!({"QueueUrl": url, "WaitTimeSeconds": wait_seconds});
        self.sqs_call("ReceiveMessage", &ask).await
    }
}

#[tokio::test]
async fn a_full_queue_is_told_to_who_does_not_wait_and_has_no_order() {
    let (server, _) = Server::start_product(1).await;
    let (url, _) = server.full("jobs", "STANDARD").await;
    let refused = server.take(&url, 0).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(refused.json()["__type"], "com.amazonaws.sqs#OverLimit");
    let empty = Server::ok(&server.take(&url, 1).await, 200);
    assert_eq!(empty.get("Messages"), None);
    let (url, _) = server.full("jobs.fifo", "FIFO").await;
    for wait_seconds in [0, 1] {
        let empty = Server::ok(&server.take(&url, wait_seconds).await, 200);
        assert_eq!(empty.get("Messages"), None);
    }
    server.stop().await;
}

#[tokio::test]
async fn who_waits_at_a_full_queue_gets_what_there_is_room_for() {
    let (server, _) = Server::start_product(1).await;
    for (name, mode) in [("jobs", "STANDARD"), ("jobs.fifo", "FIFO")] {
        let (url, receipt) = server.full(name, mode).await;
        let delete = json!({"QueueUrl": url, "ReceiptHandle": receipt});
        let (got, deleted) =
            tokio::join!(server.take(&url, 20), server.sqs_call("DeleteMessage", &delete));
        Server::ok(&deleted, 200);
        assert_eq!(Server::ok(&got, 200)["Messages"][0]["Body"], "b", "{mode}");
    }
    server.stop().await;
}
