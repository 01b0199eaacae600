//! Ends of many leases at once.

use serde_json::json;

use crate::harness::Server;

#[tokio::test]
async fn more_handles_than_one_command_takes_get_their_results_in_their_order() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let mut handles = Vec::new();
    for _ in 0..2 {
        let messages: Vec<_> = (0..100).map(|number| json!({"body": number})).collect();
        let batch = json!({"messages": messages}).to_string();
        Server::ok(&server.post("/v1/queues/jobs/messages:batch", &batch).await, 200);
        let got = server.receive("jobs", json!({"maxMessages": 100})).await;
        handles.extend(got.iter().map(|message| message["receiptHandle"].clone()));
    }
    assert_eq!(handles.len(), 200);
    // One that was never given, in the middle, and one a second time, at the end.
    handles.insert(100, json!("forged"));
    handles.push(handles[0].clone());
    let acks = json!({"receiptHandles": handles}).to_string();
    let answer = server.post("/v1/queues/jobs/messages:ack", &acks).await;
    let results = Server::ok(&answer, 200)["results"].clone();
    assert_eq!(results.as_array().map(Vec::len), Some(202));
    for number in 0..202 {
        let result = &results[number];
        let kind = match number {
            100 => Some("invalid-parameter"),
            201 => Some("conflict"),
            _ => None,
        };
        assert_eq!((&result["index"], result["error"]["type"].as_str()), (&json!(number), kind));
    }
    let left = server.look("jobs").await;
    assert_eq!((&left["visible"], &left["inflight"]), (&json!(0), &json!(0)), "all are gone");
    server.stop().await;
}
