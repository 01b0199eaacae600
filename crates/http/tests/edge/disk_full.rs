//! A disk that is full in the middle of a batch: what was sent before is told, and not sent again.

use serde_json::{Value, json};

use crate::harness::Server;
use crate::large_bodies::text;
use crate::queues::JSON;

/// What came of each message of a batch.
fn kinds(results: &Value) -> Vec<&str> {
    let results = results.as_array().expect("results").iter();
    results.map(|result| result["error"]["type"].as_str().unwrap_or("sent")).collect()
}

async fn sent_in_part(path: &str) {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let subscribe = server.post("/v1/topics/news/subscriptions", r#"{"name": "jobs"}"#).await;
    Server::ok(&subscribe, 201);
    let messages = vec![json!({"body": text(200 << 10)}); 40];
    let batch = json!({"messages": messages}).to_string();
    let keyed = format!("{JSON}idempotency-key: k\r\n");

    let server = server.restart_full().await;
    let answer = Server::ok(&server.send("POST", path, &keyed, &batch).await, 200);
    let (first, told) = (&answer["results"], kinds(&answer["results"]));
    let sent = told.iter().filter(|kind| **kind == "sent").count();
    assert!((1..40).contains(&sent), "{told:?}");
    assert!(told[..sent].iter().all(|kind| *kind == "sent"), "in their order: {told:?}");
    assert!(told[sent..].iter().all(|kind| *kind == "disk-full"), "{told:?}");
    assert!(first[sent]["error"]["retryAfterMs"].is_u64(), "{first}");
    assert_eq!(server.look("jobs").await["visible"], sent);

    // The same request once more sends the rest, and tells again of what was sent.
    let (server, _) = server.restart_product().await;
    let again = Server::ok(&server.send("POST", path, &keyed, &batch).await, 200);
    let again = &again["results"];
    assert_eq!(kinds(again), ["sent"; 40]);
    for n in 0..sent {
        assert_eq!(again[n], first[n]);
    }
    assert_eq!(server.look("jobs").await["visible"], 40);
    server.stop().await;
}

#[tokio::test]
async fn a_batch_that_is_sent_in_part_says_which_part() {
    sent_in_part("/v1/queues/jobs/messages:batch").await;
}

#[tokio::test]
async fn a_batch_that_is_published_in_part_says_which_part() {
    sent_in_part("/v1/topics/news/messages:batch").await;
}

#[tokio::test]
async fn a_batch_of_sqs_that_is_sent_in_part_has_failed_entries() {
    let (server, _) = Server::start_product(1).await;
    server.large("jobs").await;
    let server = server.restart_full().await;
    let entry = |n: usize| json!({"Id": n.to_string(), "MessageBody": text(250 << 10)});
    let entries: Vec<_> = (0..10).map(entry).collect();
    let batch = json!({"QueueUrl": "jobs", "Entries": entries});
    let mut sent = 0;
    let failed = loop {
        let answer = Server::ok(&server.sqs_call("SendMessageBatch", &batch).await, 200);
        let count = |member: &str| answer[member].as_array().map_or(0, Vec::len);
        sent += count("Successful");
        assert_eq!(server.look("jobs").await["visible"], sent);
        if count("Failed") > 0 {
            assert_eq!(count("Successful") + count("Failed"), 10);
            break answer["Failed"][0].clone();
        }
    };
    assert_eq!(
        (&failed["Code"], &failed["SenderFault"]),
        (&json!("ServiceUnavailable"), &json!(false))
    );
    server.stop().await;
}
