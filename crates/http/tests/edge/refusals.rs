//! What is refused, and in which words.

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

const JSON: &str = "content-type: application/json\r\n";

impl Server {
    async fn sqs(&self, action: &str, body: Value) -> Answer {
        let headers = format!(
            "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}\r\n"
        );
        self.send("POST", "/", &headers, &body.to_string()).await
    }

    async fn patch(&self, queue: &str, change: Value) -> Answer {
        self.send("PATCH", &format!("/v1/queues/{queue}"), JSON, &change.to_string()).await
    }
}

#[tokio::test]
async fn a_queue_is_not_its_own_dead_letter_queue() {
    let (server, _) = Server::start_product(1).await;
    let itself = json!({"name": "jobs", "maxReceiveCount": 3, "deadLetterQueue": "jobs"});
    let detail = server.post("/v1/queues", &itself.to_string()).await;
    let detail = detail.problem(422, "unprocessable");
    assert_eq!(detail, "at deadLetterQueue: it is the queue itself");
    server.get("/v1/queues/jobs").await.problem(404, "not-found");
    server.make(json!({"name": "jobs"})).await;
    let change = json!({"maxReceiveCount": 3, "deadLetterQueue": "jobs"});
    server.patch("jobs", change).await.problem(422, "unprocessable");
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let subscribed = server.post("/v1/topics/news/subscriptions", &itself.to_string()).await;
    subscribed.problem(422, "unprocessable");

    let policy = json!({"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:jobs",
        "maxReceiveCount": 3});
    let attributes = json!({"RedrivePolicy": policy.to_string()});
    let create = json!({"QueueName": "jobs", "Attributes": attributes});
    let set = json!({"QueueUrl": "http://x/sqs/default/jobs", "Attributes": attributes});
    for (action, ask) in [("CreateQueue", create), ("SetQueueAttributes", set)] {
        let answer = server.sqs(action, ask).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        let error = answer.json();
        assert_eq!(
            error["__type"], "com.amazon.coral.service#InvalidParameterValueException",
            "{error}"
        );
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("RedrivePolicy") && message.contains("its own"), "{message}");
    }
    assert_eq!(server.look("jobs").await["deadLetterQueue"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn a_receive_count_and_a_dead_letter_queue_go_together() {
    let (server, _) = Server::start_product(1).await;
    for (half, missing) in [
        (json!({"name": "jobs", "maxReceiveCount": 3}), "needs deadLetterQueue"),
        (json!({"name": "jobs", "deadLetterQueue": "dead"}), "needs maxReceiveCount"),
    ] {
        let answer = server.post("/v1/queues", &half.to_string()).await;
        let detail = answer.problem(422, "unprocessable");
        assert!(detail.contains(missing), "{detail}");
    }
    server.make(json!({"name": "jobs"})).await;
    // What counts is what the queue would be.
    for (change, status) in [
        (json!({"maxReceiveCount": 3}), 422),
        (json!({"deadLetterQueue": "dead"}), 422),
        (json!({"maxReceiveCount": 3, "deadLetterQueue": "dead"}), 200),
        (json!({"maxReceiveCount": 5}), 200),
        (json!({"deadLetterQueue": "other"}), 200),
        (json!({"maxReceiveCount": null}), 422),
        (json!({"deadLetterQueue": null}), 422),
        (json!({"retentionSeconds": 60}), 200),
        (json!({"maxReceiveCount": null, "deadLetterQueue": null}), 200),
    ] {
        let answer = server.patch("jobs", change.clone()).await;
        assert_eq!(answer.status, status, "{change}: {answer:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let (server, _) = Server::start_product(2).await;
    server.make(json!({"name": "dead"})).await;
    let handle = "A".repeat(48);
    let body = r#"{"body": 1}"#;
    for (method, path, body) in [
        ("GET", "/v1/queues/lost", ""),
        ("PATCH", "/v1/queues/lost", "{}"),
        ("DELETE", "/v1/queues/lost", ""),
        ("POST", "/v1/queues/lost:purge", ""),
        ("POST", "/v1/queues/lost:redrive", ""),
        ("POST", "/v1/queues/dead:redrive", r#"{"targetQueue": "lost"}"#),
        ("DELETE", "/v1/redrives/rd_1_lost", ""),
        ("GET", "/v1/redrives/lost", ""),
        ("DELETE", "/v1/redrives/lost", ""),
        ("GET", "/v1/tenants/lost", ""),
        ("DELETE", "/v1/tenants/lost", ""),
        ("POST", "/v1/queues/lost/messages", body),
        ("GET", "/v1/queues/lost/messages", ""),
        ("POST", "/v1/queues/lost/messages:batch", r#"{"messages": [{"body": 1}]}"#),
        ("POST", "/v1/queues/lost/messages:receive", "{}"),
        ("POST", "/v1/queues/lost/messages:ack", r#"{"receiptHandles": ["x"]}"#),
        ("POST", &format!("/v1/queues/lost/messages/{handle}:nack"), ""),
        ("GET", "/q/lost", ""),
        ("DELETE", &format!("/q/lost/{handle}"), ""),
        ("GET", "/v1/topics/lost", ""),
        ("DELETE", "/v1/topics/lost", ""),
        ("POST", "/v1/topics/lost/messages", body),
        ("POST", "/v1/topics/lost/subscriptions", r#"{"name": "x"}"#),
        ("DELETE", "/v1/topics/lost/subscriptions/x", ""),
    ] {
        let headers = if body.is_empty() { "" } else { JSON };
        let detail = server.send(method, path, headers, body).await.problem(404, "not-found");
        assert!(detail.contains("`lost`"), "{method} {path}: {detail}");
    }
    server.stop().await;
}

#[tokio::test]
async fn refusals_say_what_would_do() {
    let (server, _) = Server::start_product(1).await;
    let unknown = server.post("/v1/queues", r#"{"name": "q", "size": 5}"#).await;
    let detail = unknown.problem(400, "invalid-body");
    assert!(detail.contains("one of `name`, `mode`, `retentionSeconds`, "), "{detail}");
    let backoff = r#"{"name": "q", "retryBackoff": {"size": 5}}"#;
    let detail = server.post("/v1/queues", backoff).await.problem(400, "invalid-body");
    assert!(detail.contains("`baseSeconds`") && !detail.contains("`mode`"), "{detail}");

    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let large = json!({"body": "x".repeat(262_145)}).to_string();
    let detail = server.post("/v1/topics/news/messages", &large).await;
    let detail = detail.problem(413, "payload-too-large");
    assert!(detail.contains("262144 bytes that topics take"), "{detail}");
    server.stop().await;
}

#[tokio::test]
async fn a_misspelt_field_is_told_before_the_one_that_it_was_meant_to_be() {
    let (server, _) = Server::start_product(1).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    server.make(json!({"name": "jobs"})).await;
    for (path, body, field) in [
        ("/v1/queues", r#"{"nmae": "jobs"}"#, "nmae"),
        ("/v1/queues", r#"{"Name": "jobs", "mode": "FIFO"}"#, "Name"),
        ("/v1/topics", r#"{"nmae": "news"}"#, "nmae"),
        ("/v1/topics/news/subscriptions", r#"{"queue": "jobs"}"#, "queue"),
        ("/v1/queues/jobs/messages", r#"{"bdoy": 1}"#, "bdoy"),
        ("/v1/queues/jobs/messages:ack", r#"{"receiptHandle": "x"}"#, "receiptHandle"),
        ("/v1/streams", r#"{"nmae": "clicks"}"#, "nmae"),
        ("/v1/keys", r#"{"scope": ["read"]}"#, "scope"),
    ] {
        let detail = server.post(path, body).await.problem(400, "invalid-body");
        let expect = format!("unknown field `{field}`, expected ");
        assert!(detail.contains(&expect), "{path}: {detail}");
    }
    let detail = server.post("/v1/queues", "{}").await.problem(400, "invalid-body");
    assert_eq!(detail, "missing field `name`");
    let twice = r#"{"name": "jobs", "maxBytes": 5000, "maxBytes": 6000}"#;
    for path in ["/v1/queues", "/v1/topics/news/subscriptions"] {
        let detail = server.post(path, twice).await.problem(400, "invalid-body");
        assert!(detail.starts_with("duplicate field `maxBytes`"), "{detail}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_change_to_null_takes_a_bound_away_and_is_refused_where_there_is_always_something() {
    let (server, _) = Server::start_product(1).await;
    // Who makes a queue says so that it is as usual.
    server.make(json!({"name": "jobs", "retentionSeconds": null, "tags": null})).await;
    assert_eq!(server.look("jobs").await["retentionSeconds"], 345_600);
    for field in [
        "retentionSeconds",
        "defaultVisibilityTimeoutSeconds",
        "delaySeconds",
        "receiveWaitSeconds",
        "deduplicationWindowSeconds",
        "deduplicateByBody",
        "maxInflight",
        "maxBodyBytes",
        "largeBodies",
        "tags",
    ] {
        let answer = server.patch("jobs", json!({"maxMessages": 5, field: null})).await;
        let null = answer.problem(400, "invalid-body");
        // As anything else that it cannot be, whoever asks.
        let array = json!({"name": "other", field: []}).to_string();
        let made = server.post("/v1/queues", &array).await.problem(400, "invalid-body");
        let changed = server.patch("jobs", json!({field: []})).await;
        for other in [made, changed.problem(400, "invalid-body")] {
            assert_eq!(null, other.replace("not an array", "not null"));
        }
    }
    for field in ["name", "mode"] {
        let mut queue = json!({"name": "other", "mode": "FIFO"});
        queue[field] = Value::Null;
        let null = server.post("/v1/queues", &queue.to_string()).await.problem(400, "invalid-body");
        assert_eq!(null, format!("at {field}: it must be a string, not null"));
    }
    assert_eq!(server.look("jobs").await["maxMessages"], Value::Null);
    for (field, value) in [
        ("maxMessages", json!(5)),
        ("maxBytes", json!(1000)),
        ("maxPublishPerSecond", json!(10)),
        ("maxAgeSeconds", json!(60)),
        ("retryBackoff", json!({"baseSeconds": 1, "maxSeconds": 2, "jitter": false})),
    ] {
        let usual = server.look("jobs").await[field].clone();
        let changed = Server::ok(&server.patch("jobs", json!({field: value})).await, 200);
        assert_ne!(changed[field], usual, "{field}");
        let taken_away = Server::ok(&server.patch("jobs", json!({field: null})).await, 200);
        assert_eq!(taken_away[field], usual, "{field}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_fifo_queue_and_its_dead_letter_queue_are_both_fifo() {
    let (server, _) = Server::start_product(1).await;
    for (name, mode) in [("plain", "STANDARD"), ("dead", "STANDARD"), ("ordered", "FIFO")] {
        server.make(json!({"name": name, "mode": mode})).await;
    }
    let with = |mut queue: Value, dead: &str| {
        queue["maxReceiveCount"] = json!(1);
        queue["deadLetterQueue"] = json!(dead);
        queue
    };
    let new = with(json!({"name": "new", "mode": "FIFO"}), "dead");
    let refused = server.post("/v1/queues", &new.to_string()).await;
    let detail = refused.problem(422, "unprocessable");
    assert!(detail.starts_with("at deadLetterQueue: a FIFO queue and its"), "{detail}");
    let other_way = with(json!({"name": "new"}), "ordered");
    server.post("/v1/queues", &other_way.to_string()).await.problem(422, "unprocessable");
    server.patch("ordered", with(json!({}), "dead")).await.problem(422, "unprocessable");
    Server::ok(&server.patch("plain", with(json!({}), "dead")).await, 200);
    // One that is not there is made as it must be.
    server.make(with(json!({"name": "new", "mode": "FIFO"}), "later")).await;
    server.stop().await;
}

#[tokio::test]
async fn ranges_are_told_in_one_way() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let handle = "A".repeat(48);
    for (path, body, expect) in [
        ("jobs/messages", json!({"body": 1, "priority": 10}), "priority: it must be from 0 to 9"),
        ("jobs/messages", json!({"body": 1, "priority": -1}), "priority: it must be from 0 to 9"),
        ("jobs/messages", json!({"body": 1, "priority": 300}), "priority: it must be from 0 to 9"),
        (
            "jobs/messages",
            json!({"body": 1, "priority": 5.5}),
            "priority: it must be a whole number from 0 to 9, not the number 5.5",
        ),
        (
            "jobs/messages:receive",
            json!({"maxMessages": -1}),
            "maxMessages: it must be from 1 to 100",
        ),
        (
            "jobs/messages",
            json!({"body": 1, "delaySeconds": 400_000_000}),
            "delaySeconds: it must be from 0 to 315360000",
        ),
        (
            "jobs/messages",
            json!({"body": 1, "deduplicationKey": ""}),
            "deduplicationKey: it must have from 1 to 256 bytes",
        ),
        (
            "jobs/messages:receive",
            json!({"maxMessages": 101}),
            "maxMessages: it must be from 1 to 100",
        ),
        (
            "jobs/messages:ack",
            json!({"receiptHandles": []}),
            "receiptHandles: there must be from 1 to 1000",
        ),
        (
            &format!("jobs/messages/{handle}:nack"),
            json!({"delaySeconds": 400_000_000}),
            "delaySeconds: it must be from 0 to 315360000",
        ),
        (
            &format!("jobs/messages/{handle}:change-visibility"),
            json!({"visibilityTimeoutSeconds": 43_201}),
            "visibilityTimeoutSeconds: it must be from 0 to 43200",
        ),
        (
            "jobs:redrive",
            json!({"maxMessagesPerSecond": 0}),
            "maxMessagesPerSecond: it must be from 1 to 100000",
        ),
        (
            "jobs:redrive",
            json!({"maxMessagesPerSecond": -1}),
            "maxMessagesPerSecond: it must be from 1 to 100000",
        ),
        ("jobs:redrive", json!({"limit": 0}), "limit: it must be 1 or more"),
        (
            "jobs/messages",
            json!({"body": 1, "delaySeconds": 1e23}),
            "delaySeconds: it must be a whole number from 0 to 315360000, not the number 1e+23",
        ),
        (
            "jobs/messages",
            json!({"body": 1, "attributes": {"": "x"}}),
            "attributes: an attribute's name must have from 1 to 256 bytes",
        ),
    ] {
        let answer = server.post(&format!("/v1/queues/{path}"), &body.to_string()).await;
        let detail = answer.problem(400, "invalid-body");
        assert_eq!(detail, format!("at {expect}"), "{path}");
    }
    for count in [json!(0), json!(-1), json!(1_u64 << 40)] {
        let change = json!({"maxReceiveCount": count, "deadLetterQueue": "dead"});
        let detail = server.patch("jobs", change).await.problem(400, "invalid-body");
        assert_eq!(detail, "at maxReceiveCount: it must be from 1 to 1000");
    }
    let detail = server.get("/v1/queues?limit=0").await.problem(400, "invalid-parameter");
    assert_eq!(detail, "`limit` in the query: it must be from 1 to 1000");
    server.stop().await;
}

#[tokio::test]
async fn a_name_that_cannot_be_is_told_as_what_it_names() {
    let (server, _) = Server::start_product(1).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let (name, message) = (r#"{"name": "a b"}"#, r#"{"body": 1}"#);
    for (path, body, what) in [
        ("/v1/queues", name, "queue"),
        ("/v1/queues/a%20b/messages", message, "queue"),
        ("/v1/topics", name, "topic"),
        ("/v1/topics/a%20b/messages", message, "topic"),
        ("/v1/topics/a%20b/subscriptions", r#"{"name": "q"}"#, "topic"),
        ("/v1/topics/news/subscriptions", name, "subscription"),
        ("/v1/streams", name, "stream"),
        ("/v1/streams/s/groups/a%20b:fetch", r#"{"member": "m"}"#, "group"),
    ] {
        let detail = server.post(path, body).await.problem(400, "invalid-parameter");
        assert_eq!(
            detail,
            format!("a {what}'s name has 1 to 80 of A-Z a-z 0-9 . - _, and is not . or .."),
            "{path}"
        );
    }
    let deleted = server.send("DELETE", "/v1/topics/a%20b", "", "").await;
    assert!(deleted.problem(400, "invalid-parameter").starts_with("a topic's name"));
    server.stop().await;
}

#[tokio::test]
async fn a_name_in_a_body_is_told_with_its_field() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let told = "a queue's name has 1 to 80 of A-Z a-z 0-9 . - _, and is not . or ..";
    let made = json!({"name": "c", "deadLetterQueue": "zz z", "maxReceiveCount": 3});
    let made = server.post("/v1/queues", &made.to_string()).await;
    assert_eq!(made.problem(400, "invalid-parameter"), format!("at deadLetterQueue: {told}"));
    let moved = server.post("/v1/queues/jobs:redrive", r#"{"targetQueue": "zz z"}"#).await;
    assert_eq!(moved.problem(400, "invalid-parameter"), format!("at targetQueue: {told}"));
    server.stop().await;
}

#[tokio::test]
async fn what_never_changes_of_a_queue_is_told_so() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    for (field, value) in [("mode", "FIFO"), ("name", "other")] {
        let answer = server.patch("jobs", json!({field: value})).await;
        let told = format!("at {field}: the {field} of a queue never changes");
        assert_eq!(answer.problem(400, "invalid-body"), told);
    }
    let unknown = server.patch("jobs", json!({"moed": "FIFO"})).await;
    let detail = unknown.problem(400, "invalid-body");
    assert!(detail.contains("unknown field `moed`, expected one of `retention"), "{detail}");
    server.stop().await;
}

#[tokio::test]
async fn partitions_and_offsets_that_are_no_numbers_are_told_so() {
    let (server, _) = Server::start_product(1).await;
    Server::ok(&server.post("/v1/streams", r#"{"name": "s"}"#).await, 201);
    for (offsets, told) in [
        (r#"{"x": 5}"#, "at offsets: a name in it must be a whole number in quotes"),
        (
            r#"{"70000": 5}"#,
            "at offsets.70000: it must be a whole number from 0 to 65535, not the number 70000",
        ),
    ] {
        for verb in ["commit", "fetch"] {
            let body = format!(r#"{{"member": "m", "offsets": {offsets}}}"#);
            let answer = server.post(&format!("/v1/streams/s/groups/g:{verb}"), &body).await;
            assert_eq!(answer.problem(400, "invalid-body"), told);
        }
    }
    let answer = server.get("/v1/streams/s/partitions/0/records?offset=-1").await;
    let detail = answer.problem(400, "invalid-parameter");
    assert!(
        detail.ends_with("it must be a whole number, 0 or more, and not too large"),
        "{detail}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_backoff_needs_its_first_pause() {
    let (server, _) = Server::start_product(1).await;
    let queue = r#"{"name": "jobs", "retryBackoff": {"maxSeconds": 60}}"#;
    let detail = server.post("/v1/queues", queue).await.problem(400, "invalid-body");
    assert_eq!(detail, "at retryBackoff: missing field `baseSeconds`");
    server.stop().await;
}
