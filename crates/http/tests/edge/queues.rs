//! Queues over HTTP, as a user has them.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

pub(crate) const JSON: &str = "content-type: application/json\r\n";

impl Server {
    #[track_caller]
    pub(crate) fn ok(answer: &Answer, status: u16) -> Value {
        assert_eq!(answer.status, status, "{answer:?}");
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    pub(crate) async fn make(&self, settings: Value) -> Value {
        Server::ok(&self.post("/v1/queues", &settings.to_string()).await, 201)
    }

    pub(crate) async fn send_to(&self, queue: &str, message: Value) -> Value {
        let path = format!("/v1/queues/{queue}/messages");
        Server::ok(&self.post(&path, &message.to_string()).await, 202)
    }

    pub(crate) async fn receive(&self, queue: &str, ask: Value) -> Vec<Value> {
        let path = format!("/v1/queues/{queue}/messages:receive");
        let answer = Server::ok(&self.post(&path, &ask.to_string()).await, 200);
        answer["messages"].as_array().expect("a list").clone()
    }

    pub(crate) async fn settle(
        &self,
        queue: &str,
        message: &Value,
        how: &str,
        body: Value,
    ) -> Answer {
        let handle = message["receiptHandle"].as_str().expect("a handle");
        let path = format!("/v1/queues/{queue}/messages/{handle}:{how}");
        self.post(&path, &body.to_string()).await
    }

    pub(crate) async fn look(&self, queue: &str) -> Value {
        Server::ok(&self.get(&format!("/v1/queues/{queue}")).await, 200)
    }
}

/// Numbers of queues are given out by each shard for itself.
#[tokio::test]
async fn queues_of_different_shards_are_not_taken_for_each_other() {
    const QUEUES: usize = 32;
    let (server, _) = Server::start_product(2).await;
    let name = |number: usize| format!("q{number}");
    let mut ids = std::collections::BTreeSet::new();
    for number in 0..QUEUES {
        let made = server.make(json!({"name": name(number)})).await;
        ids.insert(made["queueId"].as_str().expect("an id").to_owned());
    }
    assert_eq!(ids.len(), QUEUES, "{ids:?}");
    // What is known without asking the shard.
    for number in 0..QUEUES {
        server.send_to(&name(number), json!({"body": number})).await;
    }
    for number in 0..QUEUES {
        let got = server.receive(&name(number), json!({"maxMessages": 10})).await;
        assert_eq!(got.len(), 1, "of {number}");
        assert_eq!(got[0]["body"], number);
    }
    // Who is called.
    let server = std::sync::Arc::new(server);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..QUEUES {
        let server = std::sync::Arc::clone(&server);
        waiting.spawn(async move {
            let got = server.receive(&name(number), json!({"waitSeconds": 20})).await;
            assert_eq!(got.len(), 1, "nobody called whoever waits for {number}");
            assert_eq!(got[0]["body"], number);
        });
    }
    while server.node.waiting() < QUEUES {
        tokio::task::yield_now().await;
    }
    for number in 0..QUEUES {
        server.send_to(&name(number), json!({"body": number})).await;
    }
    while let Some(ended) = waiting.join_next().await {
        ended.expect("each got its own");
    }
}

#[tokio::test]
async fn a_message_is_sent_received_once_and_acked() {
    let (server, _) = Server::start_product(2).await;
    let made = server.make(json!({"name": "jobs"})).await;
    assert!(made["queueId"].as_str().expect("an id").starts_with("q_"), "{made}");
    let sent = server
        .send_to("jobs", json!({"body": {"n": 1.50}, "attributes": {"kind": "mail", "size": 3}}))
        .await;
    assert_eq!(sent["sequence"], 1, "{sent}");
    let got = server.receive("jobs", json!({"maxMessages": 10})).await;
    assert_eq!(got.len(), 1);
    let message = &got[0];
    assert_eq!(message["messageId"], sent["messageId"]);
    assert_eq!(message["body"], json!({"n": 1.50}));
    assert_eq!(message["attributes"], json!({"kind": "mail", "size": 3}));
    assert_eq!((&message["receiveCount"], &message["sequence"]), (&json!(1), &json!(1)));
    assert!(server.receive("jobs", json!({})).await.is_empty(), "it is leased");
    let view = server.look("jobs").await;
    assert_eq!((&view["visible"], &view["inflight"]), (&json!(0), &json!(1)), "{view}");
    assert_eq!(server.settle("jobs", message, "ack", json!({})).await.status, 204);
    server.settle("jobs", message, "ack", json!({})).await.problem(409, "conflict");
    let view = server.look("jobs").await;
    assert_eq!((&view["inflight"], &view["bytes"]), (&json!(0), &json!(0)), "{view}");
    assert!(view["rates"]["ackPerSecond"].as_f64().expect("a rate") > 0.0, "{view}");
    server.stop().await;
}

#[tokio::test]
async fn bodies_and_attributes_come_back_as_they_were() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    for body in [json!("text"), json!(null), json!([1, "ü", {"a": []}]), json!(17), json!("")] {
        server.send_to("jobs", json!({"body": body})).await;
        let got = server.receive("jobs", json!({})).await;
        assert_eq!(got[0]["body"], body);
    }
    let attributes = json!({"a": true, "b": -2.5, "c": {"type": "Binary", "value": "AAE="}});
    server.send_to("jobs", json!({"body": 1, "attributes": attributes})).await;
    assert_eq!(server.receive("jobs", json!({})).await[0]["attributes"], attributes);
    server.stop().await;
}

#[tokio::test]
async fn a_lease_that_ends_gives_the_message_to_another() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "defaultVisibilityTimeoutSeconds": 30})).await;
    server.send_to("jobs", json!({"body": "x"})).await;
    let first = server.receive("jobs", json!({})).await.remove(0);
    assert_eq!(
        server
            .settle("jobs", &first, "change-visibility", json!({"visibilityTimeoutSeconds": 60}))
            .await
            .status,
        204
    );
    ahead_ms.fetch_add(61_000, Ordering::SeqCst);
    let second = server.receive("jobs", json!({"waitSeconds": 20})).await.remove(0);
    assert_eq!(second["receiveCount"], 2);
    for how in ["ack", "nack"] {
        server.settle("jobs", &first, how, json!({})).await.problem(409, "conflict");
    }
    let longer = json!({"visibilityTimeoutSeconds": 9});
    server.settle("jobs", &first, "change-visibility", longer).await.problem(409, "conflict");
    assert_eq!(server.settle("jobs", &second, "ack", json!({})).await.status, 204);
    server.stop().await;
}

#[tokio::test]
async fn what_fails_too_often_is_found_in_the_dead_letter_queue_with_its_story() {
    let (server, _) = Server::start_product(2).await;
    server.make(json!({"name": "jobs", "maxReceiveCount": 2, "deadLetterQueue": "dead"})).await;
    let sent = server.send_to("jobs", json!({"body": "poison", "attributes": {"k": "v"}})).await;
    for reason in ["first", "second"] {
        let message = server.receive("jobs", json!({})).await.remove(0);
        let body = json!({"reason": reason, "delaySeconds": 0});
        assert_eq!(server.settle("jobs", &message, "nack", body).await.status, 204);
    }
    assert!(server.receive("jobs", json!({})).await.is_empty());
    assert_eq!(server.look("jobs").await["dead"], 1);
    // It arrives through mail, perhaps from another shard; the queue is made by its arrival.
    let dead = loop {
        let answer =
            server.post("/v1/queues/dead/messages:receive", r#"{"waitSeconds": 20}"#).await;
        if answer.status == 200 {
            break answer.json()["messages"][0].clone();
        }
        answer.problem(404, "not-found");
        tokio::task::yield_now().await;
    };
    assert_eq!((&dead["body"], &dead["attributes"]), (&json!("poison"), &json!({"k": "v"})));
    let story = &dead["deadLetter"];
    assert_eq!(story["originalQueue"], "jobs");
    assert_eq!(story["originalMessageId"], sent["messageId"]);
    assert_eq!((&story["receiveCount"], &story["lastReason"]), (&json!(2), &json!("second")));
    assert!(story["firstFailedAt"].as_str() <= story["lastFailedAt"].as_str(), "{story}");
    server.stop().await;
}

#[tokio::test]
async fn a_waiting_receive_is_answered_by_the_next_message_first_come_first_served() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let server = std::sync::Arc::new(server);
    let mut waiting = Vec::new();
    for n in 0..3 {
        let waiter = std::sync::Arc::clone(&server);
        waiting.push(tokio::spawn(async move {
            waiter.receive("jobs", json!({"waitSeconds": 20})).await
        }));
        while server.node.waiting() <= n {
            tokio::task::yield_now().await;
        }
    }
    for (n, waiter) in waiting.into_iter().enumerate() {
        server.send_to("jobs", json!({"body": n})).await;
        let got = waiter.await.expect("no panic");
        assert_eq!(got.len(), 1);
        assert_eq!(got[0]["body"], n);
    }
    assert_eq!(server.node.waiting(), 0);
    std::sync::Arc::into_inner(server).expect("nobody else has it").stop().await;
}

#[tokio::test]
async fn a_delayed_message_wakes_whoever_waits_when_its_time_comes() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let year = 365 * 24 * 60 * 60_u64;
    server.send_to("jobs", json!({"body": "later", "delaySeconds": year})).await;
    assert!(server.receive("jobs", json!({})).await.is_empty());
    let delayed = server.get("/v1/queues/jobs/messages?state=delayed").await;
    assert_eq!(Server::ok(&delayed, 200)["messages"][0]["body"], "later");
    let server = std::sync::Arc::new(server);
    let waiter = std::sync::Arc::clone(&server);
    let waiting =
        tokio::spawn(async move { waiter.receive("jobs", json!({"waitSeconds": 20})).await });
    while server.node.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    ahead_ms.fetch_add(year * 1000, Ordering::SeqCst);
    assert_eq!(waiting.await.expect("no panic")[0]["body"], "later");
    std::sync::Arc::into_inner(server).expect("nobody else has it").stop().await;
}

#[tokio::test]
async fn whoever_waits_is_sent_home_when_the_server_goes_down() {
    let (mut server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let request = b"POST /v1/queues/jobs/messages:receive HTTP/1.1\r\nhost: x\r\n\
        content-type: application/json\r\ncontent-length: 19\r\n\r\n{\"waitSeconds\": 20}";
    let stream = server.connect().await;
    let answer = tokio::spawn(async move { crate::harness::exchange(stream, request).await });
    while server.node.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    server.begin_stop();
    assert_eq!(Server::ok(&answer.await.expect("no panic"), 200)["messages"], json!([]));
    server.ended().await;
}

#[tokio::test]
async fn a_fifo_queue_keeps_the_order_of_a_group_and_blocks_no_other() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "orders.fifo", "mode": "FIFO"})).await;
    for (group, n) in [("a", 1), ("a", 2), ("b", 3)] {
        server.send_to("orders.fifo", json!({"body": n, "messageGroupId": group})).await;
    }
    let first = server.receive("orders.fifo", json!({})).await.remove(0);
    assert_eq!((&first["body"], &first["messageGroupId"]), (&json!(1), &json!("a")));
    let other = server.receive("orders.fifo", json!({"maxMessages": 10})).await;
    assert_eq!(other.len(), 1, "a's second message waits for its first");
    assert_eq!(other[0]["body"], 3);
    assert_eq!(server.settle("orders.fifo", &first, "ack", json!({})).await.status, 204);
    assert_eq!(server.receive("orders.fifo", json!({})).await[0]["body"], 2);
    let path = "/v1/queues/orders.fifo/messages";
    server.post(path, r#"{"body": 1}"#).await.problem(400, "invalid-body");
    server.stop().await;
}

#[tokio::test]
async fn the_same_message_is_not_sent_twice() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    server.make(json!({"name": "by-body", "deduplicateByBody": true})).await;
    let message = json!({"body": 1, "deduplicationKey": "n1"});
    let first = server.send_to("jobs", message.clone()).await;
    let second = server.send_to("jobs", message).await;
    assert_eq!((&second["messageId"], &second["duplicate"]), (&first["messageId"], &json!(true)));
    server.send_to("by-body", json!({"body": "same"})).await;
    assert_eq!(server.send_to("by-body", json!({"body": "same"})).await["duplicate"], true);
    // A number and the text that reads the same are two bodies.
    for body in [json!(5), json!("5")] {
        let message = json!({"body": body});
        assert_eq!(server.send_to("by-body", message.clone()).await.get("duplicate"), None);
        assert_eq!(server.send_to("by-body", message).await["duplicate"], true);
    }
    let headers = format!("{JSON}idempotency-key: k1\r\n");
    let path = "/v1/queues/jobs/messages";
    let first = server.send("POST", path, &headers, r#"{"body": 2}"#).await;
    let again = server.send("POST", path, &headers, r#"{"body": 2}"#).await;
    assert_eq!(Server::ok(&first, 202), Server::ok(&again, 202));
    let other = server.send("POST", path, &headers, r#"{"body": 3}"#).await;
    other.problem(422, "idempotency-conflict");
    assert_eq!(server.look("jobs").await["visible"], 2);
    server.stop().await;
}

#[tokio::test]
async fn queues_are_made_once_changed_listed_purged_and_deleted() {
    let (server, _) = Server::start_product(3).await;
    for n in 0..7 {
        server.make(json!({"name": format!("q{n}"), "maxMessages": 9})).await;
    }
    let again = server.post("/v1/queues", r#"{"name": "q1", "maxMessages": 9}"#).await;
    assert_eq!(again.status, 200);
    server.post("/v1/queues", r#"{"name": "q1"}"#).await.problem(409, "conflict");
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/queues?limit=3{cursor}")).await.json();
        let items = page["items"].as_array().expect("a list");
        names.extend(items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()));
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(names, ["q0", "q1", "q2", "q3", "q4", "q5", "q6"]);
    let some = server.get("/v1/queues?prefix=q3").await.json();
    assert_eq!(some["items"].as_array().expect("a list").len(), 1);

    let change = json!({"maxMessages": null, "retentionSeconds": 60,
        "maxReceiveCount": 3, "deadLetterQueue": "q2"});
    let patched = server.send("PATCH", "/v1/queues/q1", JSON, &change.to_string()).await;
    let view = Server::ok(&patched, 200);
    assert_eq!(view["maxMessages"], Value::Null);
    assert_eq!((&view["retentionSeconds"], &view["maxReceiveCount"]), (&json!(60), &json!(3)));

    server.send_to("q1", json!({"body": 1})).await;
    let leased = server.receive("q1", json!({})).await.remove(0);
    server.send_to("q1", json!({"body": 2})).await;
    assert_eq!(server.post("/v1/queues/q1:purge", "").await.status, 204);
    let view = server.look("q1").await;
    assert_eq!((&view["visible"], &view["inflight"]), (&json!(0), &json!(0)));
    server.settle("q1", &leased, "ack", json!({})).await.problem(409, "conflict");
    assert_eq!(server.send("DELETE", "/v1/queues/q1", "", "").await.status, 204);
    server.get("/v1/queues/q1").await.problem(404, "not-found");
    server.send("DELETE", "/v1/queues/q1", "", "").await.problem(404, "not-found");
    let made = server.make(json!({"name": "q1"})).await;
    assert_eq!(made["name"], "q1");
    server.settle("q1", &leased, "ack", json!({})).await.problem(400, "invalid-parameter");
    server.stop().await;
}

#[tokio::test]
async fn who_found_no_room_may_ask_again_with_the_same_key() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "maxMessages": 1})).await;
    server.send_to("jobs", json!({"body": 1})).await;
    let headers = format!("{JSON}idempotency-key: k1\r\n");
    let path = "/v1/queues/jobs/messages";
    let full = server.send("POST", path, &headers, r#"{"body": 2}"#).await;
    full.problem(429, "quota-exceeded");
    assert_eq!(server.post("/v1/queues/jobs:purge", "").await.status, 204);
    let first = server.send("POST", path, &headers, r#"{"body": 2}"#).await;
    let again = server.send("POST", path, &headers, r#"{"body": 2}"#).await;
    assert_eq!(Server::ok(&first, 202), Server::ok(&again, 202));
    assert_eq!(server.look("jobs").await["visible"], 1);
    server.stop().await;
}

#[tokio::test]
async fn what_is_published_reaches_every_subscription_that_wants_it() {
    let (server, _) = Server::start_product(3).await;
    let made = server.post("/v1/topics", r#"{"name": "news"}"#).await;
    assert!(Server::ok(&made, 201)["topicId"].is_string());
    assert_eq!(server.post("/v1/topics", r#"{"name": "news"}"#).await.status, 200);
    let subscriptions = "/v1/topics/news/subscriptions";
    let all = json!({"name": "all"});
    let cheap =
        json!({"name": "cheap", "filter": {"price": [{"numeric": ["<", 10]}]}, "maxMessages": 3});
    for subscription in [&all, &cheap] {
        let made = server.post(subscriptions, &subscription.to_string()).await;
        assert_eq!(Server::ok(&made, 201)["name"], subscription["name"]);
    }
    assert_eq!(server.post(subscriptions, &cheap.to_string()).await.status, 200);
    let messages = json!({"messages": [
        {"body": "a", "attributes": {"price": 5}},
        {"body": "b", "attributes": {"price": 50}},
    ]});
    let published = server.post("/v1/topics/news/messages:batch", &messages.to_string()).await;
    let results = Server::ok(&published, 200)["results"].clone();
    assert_eq!(
        (&results[0]["subscriptions"], &results[1]["subscriptions"]),
        (&json!(2), &json!(1))
    );
    let one = server.post("/v1/topics/news/messages", r#"{"body": "c"}"#).await;
    assert_eq!(Server::ok(&one, 202)["sequence"], 3);
    let mut got = Vec::new();
    while got.len() < 3 {
        let ask = json!({"maxMessages": 10, "waitSeconds": 20});
        for message in server.receive("all", ask).await {
            got.push(message["body"].clone());
        }
    }
    assert_eq!(got, ["a", "b", "c"]);
    let cheap = server.receive("cheap", json!({"maxMessages": 10, "waitSeconds": 20})).await;
    assert_eq!(cheap.len(), 1);
    assert_eq!(cheap[0]["messageId"], results[0]["messageId"]);
    let view = Server::ok(&server.get("/v1/topics/news").await, 200);
    assert_eq!(view["subscriptions"][1]["filter"]["price"][0]["numeric"], json!(["<", 10.0]));
    assert_eq!(server.get("/v1/topics").await.json()["items"][0]["name"], "news");

    let gone = format!("{subscriptions}/cheap");
    assert_eq!(server.send("DELETE", &gone, "", "").await.status, 204);
    server.send("DELETE", &gone, "", "").await.problem(404, "not-found");
    assert_eq!(server.send("DELETE", "/v1/topics/news", "", "").await.status, 204);
    server.post("/v1/topics/news/messages", r#"{"body": 1}"#).await.problem(404, "not-found");
    server.post(subscriptions, r#"{"name": "x"}"#).await.problem(404, "not-found");
    server.post("/v1/topics", r#"{"name": "a b"}"#).await.problem(400, "invalid-parameter");
    server.post("/v1/topics", r#"{"name": "a", "x": 1}"#).await.problem(400, "invalid-body");
    server.post("/v1/topics", r#"{"name": "t"}"#).await;
    let path = "/v1/topics/t/subscriptions";
    let bad = server.post(path, r#"{"name": "x", "colour": 1}"#).await;
    assert!(bad.problem(400, "invalid-body").contains("colour"));
    for rules in ["1", "[]"] {
        let ask = format!(r#"{{"name": "x", "filter": {{"a": {rules}}}}}"#);
        let bad = server.post(path, &ask).await;
        let like = r#"at filter: a: it must be a list that is not empty, like ["mail"]"#;
        assert_eq!(bad.problem(400, "invalid-body"), like);
    }
    server.stop().await;
}

#[tokio::test]
async fn dead_letters_are_moved_back_as_a_job() {
    let (server, _) = Server::start_product(3).await;
    server.make(json!({"name": "jobs", "maxReceiveCount": 1, "deadLetterQueue": "dead"})).await;
    server.make(json!({"name": "dead"})).await;
    for kind in ["a", "b"] {
        server.send_to("jobs", json!({"body": kind, "attributes": {"kind": kind}})).await;
        let message = server.receive("jobs", json!({})).await.remove(0);
        assert_eq!(server.settle("jobs", &message, "nack", json!({})).await.status, 204);
    }
    while server.look("dead").await["visible"] != 2 {
        tokio::task::yield_now().await;
    }
    let ask = json!({"filter": {"kind": ["b"], "$originalQueue": ["jobs"]}});
    let started = server.post("/v1/queues/dead:redrive", &ask.to_string()).await;
    let id = Server::ok(&started, 202)["redriveId"].as_str().expect("an id").to_owned();
    let path = format!("/v1/redrives/{id}");
    let ended = loop {
        let job = Server::ok(&server.get(&path).await, 200);
        if job["state"] != "running" {
            break job;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&ended["moved"], &ended["skipped"]), (&json!(1), &json!(1)), "{ended}");
    let back = server.receive("jobs", json!({"waitSeconds": 20})).await.remove(0);
    assert_eq!((&back["body"], &back["receiveCount"]), (&json!("b"), &json!(1)));
    assert_eq!(server.send("DELETE", &path, "", "").await.status, 204);

    let listed = Server::ok(&server.get("/v1/redrives?queue=dead").await, 200);
    assert_eq!(listed["items"], json!([ended]));
    server.get("/v1/redrives?queue=none").await.problem(404, "not-found");
    server.get("/v1/redrives").await.problem(400, "invalid-parameter");

    for (body, part) in [
        (r#"{"limit": 0}"#, "limit"),
        (r#"{"maxMessagesPerSecond": 0}"#, "maxMessagesPerSecond"),
        (r#"{"filter": {"a": [{"like": "x"}]}}"#, "filter: a"),
        (r#"{"filter": {"$lastError": ["x"]}}"#, "filter: $lastError"),
    ] {
        let answer = server.post("/v1/queues/dead:redrive", body).await;
        let detail = answer.problem(400, "invalid-body");
        assert!(detail.contains(part), "{body}: {detail}");
    }
    let itself = server.post("/v1/queues/dead:redrive", r#"{"targetQueue": "dead"}"#).await;
    itself.problem(422, "unprocessable");
    let nowhere = server.post("/v1/queues/dead:redrive", r#"{"targetQueue": "none"}"#).await;
    nowhere.problem(404, "not-found");
    for id in ["x", "rd_1_dead", "rd_1_none", "rd_zz_dead"] {
        server.get(&format!("/v1/redrives/{id}")).await.problem(404, "not-found");
        server
            .send("DELETE", &format!("/v1/redrives/{id}"), "", "")
            .await
            .problem(404, "not-found");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_redrive_that_stands_in_the_way_is_named() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "dead"})).await;
    server.make(json!({"name": "jobs"})).await;
    for body in 0..20 {
        server.send_to("dead", json!({"body": body})).await;
    }
    // Twenty seconds' work, which is ended long before.
    let slow = json!({"targetQueue": "jobs", "maxMessagesPerSecond": 1}).to_string();
    let started = server.post("/v1/queues/dead:redrive", &slow).await;
    let id = Server::ok(&started, 202)["redriveId"].clone();
    let keyed = format!("{JSON}idempotency-key: k1\r\n");
    let again = async || server.send("POST", "/v1/queues/dead:redrive", &keyed, &slow).await;
    let second = again().await;
    let detail = second.problem(409, "conflict");
    assert!(detail.contains(id.as_str().expect("an id")), "{detail}");
    assert_eq!(second.json()["redriveId"], id);
    let listed = Server::ok(&server.get("/v1/redrives?queue=dead").await, 200);
    assert_eq!(
        (&listed["items"][0]["redriveId"], &listed["items"][0]["state"]),
        (&id, &json!("running"))
    );
    let path = format!("/v1/redrives/{}", id.as_str().expect("an id"));
    assert_eq!(server.send("DELETE", &path, "", "").await.status, 204);
    assert_eq!(Server::ok(&server.get(&path).await, 200)["state"], "cancelled");
    // Nothing is in the way any more, and nothing of that is remembered.
    let other = Server::ok(&again().await, 202)["redriveId"].clone();
    assert_ne!(other, id);
    assert_eq!(Server::ok(&again().await, 202)["redriveId"], other);
    server.stop().await;
}

#[tokio::test]
async fn who_asks_for_the_head_of_a_receive_takes_nothing() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    server.send_to("jobs", json!({"body": 1})).await;
    let head = server.send("HEAD", "/q/jobs", "", "").await;
    assert_eq!(head.status, 405);
    assert!(head.head.contains("allow: get, options, put\r\n"), "{head:?}");
    assert_eq!(server.send("HEAD", "/v1/queues/jobs", "", "").await.status, 200);
    let left = server.look("jobs").await;
    assert_eq!((&left["visible"], &left["inflight"]), (&json!(1), &json!(0)));
    server.stop().await;
}

#[tokio::test]
async fn by_hand_with_curl() {
    let (server, _) = Server::start_product(1).await;
    for _ in 0..2 {
        let put = server.send("PUT", "/q/jobs", "idempotency-key: k\r\n", "hello\n").await;
        assert_eq!(Server::ok(&put, 202)["sequence"], 1);
    }
    let asked = server.send("PUT", "/q/jobs?delaySeconds=60", "", "hello").await;
    assert_eq!(asked.problem(400, "invalid-parameter"), "this call takes no query");
    let mut binary = b"PUT /q/jobs HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
        content-length: 2\r\n\r\n"
        .to_vec();
    binary.extend([0xff, 0]);
    assert_eq!(server.raw(binary).await.status, 202);
    let got = Server::ok(&server.get("/q/jobs?n=10").await, 200)["messages"].clone();
    assert_eq!((&got[0]["body"], got[0].get("bodyEncoding")), (&json!("hello\n"), None));
    assert_eq!((&got[1]["body"], &got[1]["bodyEncoding"]), (&json!("/wA="), &json!("base64")));
    let handle = got[0]["receiptHandle"].as_str().expect("a handle");
    assert_eq!(server.send("DELETE", &format!("/q/jobs/{handle}"), "", "").await.status, 204);
    server.send("DELETE", &format!("/q/jobs/{handle}"), "", "").await.problem(409, "conflict");
    for (query, bounds) in [
        ("n=0", "`n` in the query: it must be from 1 to 100"),
        ("wait=21", "`wait` in the query: it must be from 0 to 20"),
    ] {
        let refused = server.get(&format!("/q/jobs?{query}")).await;
        assert_eq!(refused.problem(400, "invalid-parameter"), bounds);
    }
    server.get("/q/nothing").await.problem(404, "not-found");
    server.stop().await;
}

#[tokio::test]
async fn what_was_put_is_answered_again_when_its_queue_is_gone_and_makes_none() {
    let (server, _) = Server::start_product(1).await;
    let put = async |key: &str, body: &str| {
        let head = format!("idempotency-key: {key}\r\n");
        server.send("PUT", "/q/jobs", &head, body).await
    };
    let first = Server::ok(&put("k", "hello").await, 202);
    assert_eq!(server.send("DELETE", "/v1/queues/jobs", "", "").await.status, 204);
    assert_eq!(Server::ok(&put("k", "hello").await, 202), first);
    put("k", "another").await.problem(422, "idempotency-conflict");
    server.get("/v1/queues/jobs").await.problem(404, "not-found");
    Server::ok(&put("l", "hello").await, 202);
    assert_eq!(server.look("jobs").await["visible"], 1);
    server.stop().await;
}

#[tokio::test]
async fn bad_input_is_refused_with_its_place() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let create = "/v1/queues";
    let send = "/v1/queues/jobs/messages";
    let batch = "/v1/queues/jobs/messages:batch";
    let receive = "/v1/queues/jobs/messages:receive";
    let ack = "/v1/queues/jobs/messages:ack";
    let many = format!(r#"{{"receiptHandles": [{}"x"]}}"#, r#""x","#.repeat(1000));
    let long = format!(r#"{{"body": 1, "deduplicationKey": "{}"}}"#, "k".repeat(257));
    for (path, body, part) in [
        (create, r#"{}"#, "name"),
        (create, r#"{"name": 5}"#, "at name: it must be a string, not the number 5"),
        (create, r#"{"name": "x", "colour": "red"}"#, "colour"),
        (create, r#"{"name": "x", "mode": "LIFO"}"#, "at mode: unknown value `LIFO`"),
        (create, r#"{"name": "x", "maxReceiveCount": 0}"#, "maxReceiveCount"),
        (create, r#"{"name": "x", "retentionSeconds": 999999999999}"#, "retentionSeconds"),
        (
            create,
            r#"{"name": "x", "retentionSeconds": -1}"#,
            "at retentionSeconds: it must be from 1 to 315360000",
        ),
        (
            create,
            r#"{"name": "x", "retryBackoff": {"baseSeconds": {}}}"#,
            "at retryBackoff.baseSeconds: it must",
        ),
        (
            create,
            r#"{"name": "x", "retryBackoff": {"baseSeconds": 9, "maxSeconds": 1}}"#,
            "maxSeconds",
        ),
        (create, r#"{"name": "x", "maxBodyBytes": 262145}"#, "maxBodyBytes"),
        (create, r#"{"name": "x", "tags": {"": "x"}}"#, "tags"),
        (send, r#"{}"#, "body"),
        (send, r#"{"body": 1, "more": 2}"#, "more"),
        (send, r#"{"body": 1, "delaySeconds": 9999999999}"#, "delaySeconds"),
        (send, r#"{"body": 1, "delaySeconds": 1.5}"#, "delaySeconds"),
        (send, r#"{"body": 1, "priority": 10}"#, "priority"),
        (send, r#"{"body": 1, "priority": 256}"#, "priority"),
        (send, r#"{"body": 1, "messageGroupId": "g"}"#, "messageGroupId"),
        (send, r#"{"body": 1, "attributes": {"a": null}}"#, "attributes.a"),
        (send, r#"{"body": 1, "attributes": {"": "x"}}"#, "attributes"),
        (send, r#"{"body": 1, "clientMessageId": "x"}"#, "clientMessageId"),
        (send, &long, "deduplicationKey"),
        (batch, r#"{"messages": []}"#, "messages"),
        (batch, r#"{"messages": [{"body": 1}], "more": 2}"#, "more"),
        (batch, r#"{"messages": {"body": 1}}"#, "messages"),
        (batch, r#"{"messages": [{"body": 1}"#, "it ends too soon"),
        (receive, r#"{"maxMessages": 0}"#, "maxMessages"),
        (receive, r#"{"maxMessages": 101}"#, "maxMessages"),
        (receive, r#"{"waitSeconds": 21}"#, "waitSeconds"),
        (receive, r#"{"visibilityTimeoutSeconds": 43201}"#, "visibilityTimeoutSeconds"),
        (ack, r#"{"receiptHandles": []}"#, "receiptHandles"),
        (ack, &many, "receiptHandles"),
    ] {
        let detail = server.post(path, body).await.problem(400, "invalid-body");
        assert!(detail.contains(part), "{body}: {detail}");
    }
    for name in ["a%20b", "a%2Fb", "%C3%BC", &"x".repeat(81)] {
        let path = format!("/v1/queues/{name}/messages");
        server.post(&path, r#"{"body": 1}"#).await.problem(400, "invalid-parameter");
    }
    for handle in ["x", "AAAA", &"A".repeat(48)] {
        for how in ["ack", "nack"] {
            let path = format!("/v1/queues/jobs/messages/{handle}:{how}");
            server.post(&path, "").await.problem(400, "invalid-parameter");
        }
    }
    let large = format!(r#"{{"body": "{}"}}"#, "x".repeat(262_145));
    server.post(send, &large).await.problem(413, "payload-too-large");
    server.get("/v1/queues/jobs/messages?state=lost").await.problem(400, "invalid-parameter");
    for path in ["messages", "messages:batch", "messages:receive", "messages:ack"] {
        let body = match path {
            "messages" => r#"{"body": 1}"#,
            "messages:batch" => r#"{"messages": [{"body": 1}]}"#,
            "messages:receive" => "{}",
            _ => r#"{"receiptHandles": ["x"]}"#,
        };
        server.post(&format!("/v1/queues/none/{path}"), body).await.problem(404, "not-found");
    }
    server.stop().await;
}

#[tokio::test]
async fn rates_have_three_digits_behind_the_point() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    Server::ok(&server.post("/v1/queues/jobs/messages", r#"{"body": 1}"#).await, 202);
    // One in seven seconds, which has no end as a fraction.
    ahead_ms.fetch_add(7_000, Ordering::SeqCst);
    let view = server.look("jobs").await;
    let rate = view["rates"]["publishPerSecond"].to_string();
    let (_, behind) = rate.split_once('.').expect("a fraction");
    assert!((1..=3).contains(&behind.len()), "{rate}");
    assert_ne!(rate, "0.0");
    server.stop().await;
}
