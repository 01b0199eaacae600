//! What clients of SQS see of queues with order.

use serde_json::{Value, json};

use crate::harness::Server;

const URL: &str = "http://x/sqs/default/jobs.fifo";

impl Server {
    /// The deduplication id of each message that is there, leased for a moment.
    async fn dedup_ids(&self, url: &str) -> Vec<Value> {
        let ask = json!({"QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0,
            "WaitTimeSeconds": 20,
            "MessageSystemAttributeNames": ["MessageDeduplicationId"]});
        let got = Server::ok(&self.sqs_call("ReceiveMessage", &ask).await, 200);
        let messages = got["Messages"].as_array().expect("messages").iter();
        messages.map(|message| message["Attributes"]["MessageDeduplicationId"].clone()).collect()
    }
}

#[tokio::test]
async fn a_large_body_stands_for_its_own_deduplication_id_in_every_dialect() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs.fifo", "mode": "FIFO", "deduplicateByBody": true, "largeBodies": true})).await;
    let body = "abc".repeat(200 << 10);
    let send = json!({"QueueUrl": URL, "MessageBody": body, "MessageGroupId": "g"});
    let first = Server::ok(&server.sqs_call("SendMessage", &send).await, 200);
    assert_eq!(first["MD5OfMessageBody"], sqs::digest::body(&body));
    let batch = json!({"QueueUrl": URL, "Entries": [
        {"Id": "a", "MessageBody": body, "MessageGroupId": "g"},
        {"Id": "b", "MessageBody": "another", "MessageGroupId": "g"},
    ]});
    let sent =
        Server::ok(&server.sqs_call("SendMessageBatch", &batch).await, 200)["Successful"].clone();
    assert_eq!(sent[0]["MessageId"], first["MessageId"]);
    assert_eq!(sent[0]["MD5OfMessageBody"], first["MD5OfMessageBody"]);
    let message = json!({"body": body, "messageGroupId": "g"});
    assert_eq!(server.send_to("jobs.fifo", message.clone()).await["duplicate"], true);
    let path = "/v1/queues/jobs.fifo/messages:batch";
    let batch = json!({"messages": [message, {"body": 1}]}).to_string();
    let results = Server::ok(&server.post(path, &batch).await, 200)["results"].clone();
    assert_eq!(
        (&results[0]["duplicate"], &results[1]["error"]["status"]),
        (&json!(true), &json!(400))
    );
    assert_eq!(server.look("jobs.fifo").await["visible"], 2);
    server.stop().await;
}

#[tokio::test]
async fn a_deduplication_id_that_came_from_the_body_is_shown_as_well() {
    let (server, _) = Server::start_product(1).await;
    let dead = json!({"name": "dead.fifo", "mode": "FIFO"});
    server.make(dead).await;
    let jobs = json!({"name": "jobs.fifo", "mode": "FIFO", "deduplicateByBody": true,
        "maxReceiveCount": 1, "deadLetterQueue": "dead.fifo"});
    server.make(jobs).await;
    let send = json!({"QueueUrl": URL, "MessageBody": "abc", "MessageGroupId": "g"});
    Server::ok(&server.sqs_call("SendMessage", &send).await, 200);
    let named = json!({"QueueUrl": URL, "MessageBody": "abc", "MessageGroupId": "g",
        "MessageDeduplicationId": "own"});
    Server::ok(&server.sqs_call("SendMessage", &named).await, 200);
    // As the standard has it for these three letters.
    let of_body = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    // Who copies it from a receive means the same message.
    let copied = json!({"QueueUrl": URL, "MessageBody": "abc", "MessageGroupId": "g",
        "MessageDeduplicationId": of_body});
    Server::ok(&server.sqs_call("SendMessage", &copied).await, 200);
    let expect = [json!(of_body), json!("own")];
    assert_eq!(server.dedup_ids(URL).await, expect);
    // That was their last receive. Where they lie now, bodies stand for nothing.
    assert_eq!(server.dedup_ids("http://x/sqs/default/dead.fifo").await, expect);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_with_a_message_that_cannot_be_in_order_is_refused_whole() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs.fifo", "mode": "FIFO"})).await;
    let good = json!({"Id": "a", "MessageBody": "x", "MessageGroupId": "g",
        "MessageDeduplicationId": "a"});
    for (lacks, kind, words) in [
        (
            "MessageGroupId",
            "MissingRequiredParameterException",
            "The request must contain the parameter MessageGroupId.",
        ),
        (
            "MessageDeduplicationId",
            "InvalidParameterValueException",
            "The queue should either have ContentBasedDeduplication enabled or \
             MessageDeduplicationId provided explicitly",
        ),
    ] {
        let mut bad = good.clone();
        bad["Id"] = "b".into();
        bad.as_object_mut().expect("an entry").remove(lacks);
        let batch = json!({"QueueUrl": URL, "Entries": [good, bad]});
        let refused = server.sqs_call("SendMessageBatch", &batch).await;
        let expect =
            json!({"__type": format!("com.amazon.coral.service#{kind}"), "message": words});
        assert_eq!((refused.status, refused.json()), (400, expect));
    }
    assert_eq!(server.look("jobs.fifo").await["visible"], 0);
    server.stop().await;
}

#[tokio::test]
async fn deduplication_by_group_holds_for_every_dialect() {
    let (server, _) = Server::start_product(1).await;
    let attributes = json!({"FifoQueue": "true", "ContentBasedDeduplication": "true",
        "DeduplicationScope": "messageGroup"});
    let create = json!({"QueueName": "jobs.fifo", "Attributes": attributes});
    Server::ok(&server.sqs_call("CreateQueue", &create).await, 200);
    let ours = async |group: &str, key: Option<&str>| {
        let mut message = json!({"body": "x", "messageGroupId": group});
        if let Some(key) = key {
            message["deduplicationKey"] = key.into();
        }
        server.send_to("jobs.fifo", message).await["duplicate"] == true
    };
    let theirs = async |group: &str, id: Option<&str>| {
        let mut send = json!({"QueueUrl": URL, "MessageBody": "x", "MessageGroupId": group});
        if let Some(id) = id {
            send["MessageDeduplicationId"] = id.into();
        }
        Server::ok(&server.sqs_call("SendMessage", &send).await, 200)
    };
    for key in [None, Some("k")] {
        assert!(!ours("a", key).await && !ours("b", key).await, "of two groups: {key:?}");
        assert!(ours("a", key).await && ours("b", key).await, "of one: {key:?}");
        theirs("a", key).await;
        theirs("c", key).await;
        assert!(ours("c", key).await, "{key:?}");
    }
    assert_eq!(server.look("jobs.fifo").await["visible"], 6);
    server.stop().await;
}
