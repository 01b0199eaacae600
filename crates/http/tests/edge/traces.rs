//! The trace of whoever sent a message, which its dead letter tells.

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

impl Server {
    async fn traced(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let headers = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n{headers}");
        self.send(method, path, &headers, body).await
    }

    async fn traced_post(&self, path: &str, body: Value, status: u16) {
        let json = "content-type: application/json\r\n";
        Server::ok(&self.traced("POST", path, json, &body.to_string()).await, status);
    }

    async fn traced_sqs(&self, action: &str, body: Value) {
        let headers = format!(
            "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}\r\n"
        );
        Server::ok(&self.traced("POST", "/", &headers, &body.to_string()).await, 200);
    }
}

#[tokio::test]
async fn a_dead_letter_tells_the_trace_it_was_sent_in_whichever_way_it_came() {
    let (server, _) = Server::start_product(2).await;
    server.make(json!({"name": "jobs", "maxReceiveCount": 1, "deadLetterQueue": "dead"})).await;
    server.make(json!({"name": "dead"})).await;
    server.traced_post("/v1/topics", json!({"name": "news"}), 201).await;
    server.traced_post("/v1/topics/news/subscriptions", json!({"name": "jobs"}), 201).await;

    server.traced_post("/v1/queues/jobs/messages", json!({"body": 1}), 202).await;
    let batch = json!({"messages": [{"body": 2}]});
    server.traced_post("/v1/queues/jobs/messages:batch", batch.clone(), 200).await;
    Server::ok(&server.traced("PUT", "/q/jobs", "", "by hand").await, 202);
    server.traced_post("/v1/topics/news/messages", json!({"body": 3}), 202).await;
    server.traced_post("/v1/topics/news/messages:batch", batch, 200).await;
    server.traced_sqs("SendMessage", json!({"QueueUrl": "jobs", "MessageBody": "x"})).await;
    let entries = json!([{"Id": "a", "MessageBody": "y"}]);
    server.traced_sqs("SendMessageBatch", json!({"QueueUrl": "jobs", "Entries": entries})).await;
    server.send_to("jobs", json!({"body": "of no trace"})).await;

    let mut dead = 0;
    while dead < 8 {
        for message in server.receive("jobs", json!({"maxMessages": 100, "waitSeconds": 20})).await
        {
            assert_eq!(server.settle("jobs", &message, "nack", json!({})).await.status, 204);
            dead += 1;
        }
    }
    while server.look("dead").await["visible"] != 8 {
        tokio::task::yield_now().await;
    }
    let looked = Server::ok(&server.get("/v1/queues/dead/messages").await, 200);
    let looked = looked["messages"].as_array().expect("a list").clone();
    let received = server.receive("dead", json!({"maxMessages": 100})).await;
    for messages in [looked, received] {
        assert_eq!(messages.len(), 8);
        for message in messages {
            let trace = if message["body"] == "of no trace" { json!(null) } else { json!(TRACE) };
            assert_eq!(message["traceId"], trace, "{message}");
        }
    }
    server.stop().await;
}
