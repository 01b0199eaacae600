//! Messages that were received and not begun.

use serde_json::json;

use crate::harness::Server;

#[tokio::test]
async fn what_is_released_is_received_again_and_does_not_count() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "maxReceiveCount": 1, "deadLetterQueue": "dead"})).await;
    server.send_to("jobs", json!({"body": 1})).await;
    server.send_to("jobs", json!({"body": 2})).await;
    for _ in 0..3 {
        let held = server.receive("jobs", json!({"maxMessages": 10})).await;
        assert_eq!(held.len(), 2);
        assert!(held.iter().all(|message| message["receiveCount"] == 1));
        let handle = |at: usize| held[at]["receiptHandle"].as_str().expect("a handle");
        let one = format!("/v1/queues/jobs/messages/{}:release", handle(0));
        assert_eq!(server.post(&one, "").await.status, 204);
        server.post(&one, "").await.problem(409, "conflict");
        let many = json!({"receiptHandles": [handle(0), handle(1), "forged"]}).to_string();
        let answer = server.post("/v1/queues/jobs/messages:release", &many).await;
        let results = Server::ok(&answer, 200)["results"].clone();
        let status = |at: usize| &results[at]["error"]["status"];
        assert_eq!([status(0), status(1), status(2)], [&json!(409), &json!(null), &json!(400)]);
    }
    let message = server.receive("jobs", json!({})).await.remove(0);
    assert_eq!(server.settle("jobs", &message, "nack", json!({})).await.status, 204);
    assert_eq!(server.look("jobs").await["dead"], 1, "that was a receive");
    server.stop().await;
}
