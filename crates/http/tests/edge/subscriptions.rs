//! Subscribing queues that are there already.

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

impl Server {
    async fn subscribe(&self, subscription: Value) -> Answer {
        self.post("/v1/topics/news/subscriptions", &subscription.to_string()).await
    }
}

/// A server with the topic `news`, and with a queue `mail` that is not as queues usually are.
async fn with_topic() -> Server {
    let (server, _) = Server::start_product(2).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let settings = json!({"name": "mail", "mode": "FIFO", "maxReceiveCount": 5,
        "deadLetterQueue": "mail-dead", "retryBackoff": {"baseSeconds": 10, "maxSeconds": 60}});
    server.make(settings).await;
    server
}

#[tokio::test]
async fn a_queue_with_any_settings_can_be_subscribed_and_its_filter_changed() {
    let server = with_topic().await;
    let before = server.look("mail").await;
    let filters = [json!({"kind": ["mail"]}), json!({"kind": ["sms"]})];
    for (filter, status) in filters.iter().zip([201, 200]) {
        let made = server.subscribe(json!({"name": "mail", "filter": filter})).await;
        assert_eq!(Server::ok(&made, status)["queueId"], before["queueId"]);
        let topic = Server::ok(&server.get("/v1/topics/news").await, 200);
        assert_eq!(topic["subscriptions"], json!([{"name": "mail", "filter": filter}]));
    }
    let after = server.look("mail").await;
    for field in ["queueId", "mode", "maxReceiveCount", "deadLetterQueue", "retryBackoff"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    server.stop().await;
}

#[tokio::test]
async fn subscribing_again_without_a_filter_takes_it_away() {
    let server = with_topic().await;
    let with = json!({"name": "mail", "filter": {"kind": ["mail"]}});
    Server::ok(&server.subscribe(with).await, 201);
    Server::ok(&server.subscribe(json!({"name": "mail"})).await, 200);
    let topic = Server::ok(&server.get("/v1/topics/news").await, 200);
    assert_eq!(topic["subscriptions"], json!([{"name": "mail"}]));
    server.stop().await;
}

#[tokio::test]
async fn what_a_subscription_cannot_be_is_refused_with_what_it_can() {
    let server = with_topic().await;
    let misspelt = server.subscribe(json!({"name": "mail", "filters": {}})).await;
    let detail = misspelt.problem(400, "invalid-body");
    let known = "unknown field `filters`, expected one of `name`, `filter`, `mode`, `retention";
    assert!(detail.contains(known), "{detail}");
    for name in ["$originalQueue", "$receiveCount"] {
        let filter = json!({name: [{"exists": true}]});
        let refused = server.subscribe(json!({"name": "mail", "filter": filter})).await;
        let detail = refused.problem(400, "invalid-body");
        assert!(detail.starts_with(&format!("at filter: {name}: a topic")), "{detail}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_queue_with_other_settings_is_refused_by_the_names_of_what_differs() {
    let server = with_topic().await;
    let other = json!({"name": "mail", "mode": "FIFO", "maxReceiveCount": 5,
        "deadLetterQueue": "dead", "tags": {"a": "b"}});
    let told = "there is a queue `mail`, with other settings: deadLetterQueue, \
        retryBackoff.baseSeconds, retryBackoff.maxSeconds, tags";
    let subscribed = server.subscribe(other.clone()).await;
    assert_eq!(subscribed.problem(409, "conflict"), told);
    let made = server.post("/v1/queues", &other.to_string()).await;
    assert_eq!(made.problem(409, "conflict"), told);
    // To name a setting is to ask for it, and for the usual ones beside it.
    let mode = server.subscribe(json!({"name": "mail", "mode": "STANDARD"})).await;
    assert!(mode.problem(409, "conflict").contains(": mode, "));
    server.stop().await;
}

#[tokio::test]
async fn a_subscription_that_is_asked_for_twice_under_one_key_is_answered_the_same() {
    let server = with_topic().await;
    let keyed = async |key: &str, body: &Value| {
        let headers = format!("content-type: application/json\r\nidempotency-key: {key}\r\n");
        server.send("POST", "/v1/topics/news/subscriptions", &headers, &body.to_string()).await
    };
    // One whose queue is there, and one whose queue is made by it.
    for name in ["mail", "sms"] {
        let body = json!({"name": name});
        let first = keyed(name, &body).await;
        assert_eq!(Server::ok(&first, 201), Server::ok(&keyed(name, &body).await, 201));
    }
    Server::ok(&keyed("k", &json!({"name": "push"})).await, 201);
    for other in [json!({"name": "push", "filter": {"kind": ["a"]}}), json!({"name": "fax"})] {
        keyed("k", &other).await.problem(422, "idempotency-conflict");
    }
    server.get("/v1/queues/fax").await.problem(404, "not-found");
    let topic = Server::ok(&server.get("/v1/topics/news").await, 200);
    assert_eq!(
        topic["subscriptions"],
        json!([{"name": "mail"}, {"name": "push"}, {"name": "sms"}])
    );
    server.stop().await;
}

#[tokio::test]
async fn a_subscription_that_a_topic_has_no_room_for_makes_no_queue() {
    let server = with_topic().await;
    for n in 0..100 {
        Server::ok(&server.subscribe(json!({"name": format!("s{n}")})).await, 201);
    }
    let refused = server.subscribe(json!({"name": "s100", "retentionSeconds": 60})).await;
    refused.problem(422, "unprocessable");
    server.get("/v1/queues/s100").await.problem(404, "not-found");
    let again = server.subscribe(json!({"name": "s99", "filter": {"kind": ["mail"]}})).await;
    Server::ok(&again, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_subscription_that_was_made_is_answered_again_when_the_topic_is_full() {
    let server = with_topic().await;
    let keyed = "content-type: application/json\r\nidempotency-key: k\r\n";
    let path = "/v1/topics/news/subscriptions";
    let again = || server.send("POST", path, keyed, r#"{"name": "first"}"#);
    let first = Server::ok(&again().await, 201);
    assert_eq!(server.send("DELETE", &format!("{path}/first"), "", "").await.status, 204);
    for n in 0..100 {
        Server::ok(&server.subscribe(json!({"name": format!("s{n}")})).await, 201);
    }
    assert_eq!(Server::ok(&again().await, 201), first);
    let topic = Server::ok(&server.get("/v1/topics/news").await, 200);
    assert_eq!(topic["subscriptions"].as_array().map(Vec::len), Some(100), "it is not one again");
    server.stop().await;
}
