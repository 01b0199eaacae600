//! What a tenant may do with queues: reached, said to be so in each dialect, and lifted again.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{Answer, Server};
use crate::large_bodies::{Away, How, text};

/// A tenant of the server, which needs no key.
pub(crate) struct Shop {
    pub(crate) server: Arc<Server>,
}

impl Shop {
    pub(crate) async fn open() -> Shop {
        Shop::open_with(|_| {}).await
    }

    async fn open_with(change: impl FnOnce(&mut http_edge::Edge)) -> Shop {
        let (server, _) = Server::start_product_with(2, change).await;
        Server::ok(&server.post("/v1/tenants", r#"{"name": "shop"}"#).await, 201);
        Shop { server: Arc::new(server) }
    }

    pub(crate) async fn quotas(&self, quotas: Value) -> Value {
        let json = "content-type: application/json\r\n";
        let path = "/v1/tenants/shop/quotas";
        Server::ok(&self.server.send("PUT", path, json, &quotas.to_string()).await, 200)
    }

    pub(crate) async fn used(&self, quota: &str) -> Value {
        let answer = self.server.get("/v1/tenants/shop/quotas").await;
        Server::ok(&answer, 200)["used"][quota].clone()
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        let headers = "content-type: application/json\r\nx-tenant: shop\r\n";
        self.server.send(method, path, headers, &body.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, body).await
    }

    pub(crate) async fn sqs(&self, action: &str, body: Value) -> Answer {
        let headers = format!(
            "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}\r\n\
             x-tenant: shop\r\n"
        );
        self.server.send("POST", "/", &headers, &body.to_string()).await
    }

    pub(crate) fn url(&self, queue: &str) -> String {
        format!("http://x/sqs/shop/{queue}")
    }

    pub(crate) async fn make(&self, queue: &str) {
        Server::ok(&self.post("/v1/queues", json!({"name": queue})).await, 201);
    }

    pub(crate) async fn fill(&self, queue: &str, count: usize) {
        let messages: Vec<_> = (0..count).map(|n| json!({"body": n})).collect();
        let path = format!("/v1/queues/{queue}/messages:batch");
        Server::ok(&self.post(&path, json!({"messages": messages})).await, 200);
    }

    pub(crate) async fn receive(&self, queue: &str, ask: Value) -> Answer {
        self.post(&format!("/v1/queues/{queue}/messages:receive"), ask).await
    }

    pub(crate) async fn stop(self) {
        Arc::into_inner(self.server).expect("nobody else has it").stop().await;
    }
}

/// A refusal because of a quota that names it, and says when to come back, or nothing of it.
#[track_caller]
pub(crate) fn refused(answer: &Answer, quota: &str, come_back: bool) {
    let detail = answer.problem(429, "quota-exceeded");
    assert!(detail.contains(quota), "{detail}");
    let json = answer.json();
    assert_eq!(json["quota"], quota);
    assert_eq!(json["retryAfterMs"].as_u64().is_some_and(|ms| ms > 0), come_back, "{json}");
    assert_eq!(answer.head.contains("\r\nretry-after: "), come_back, "{answer:?}");
}

/// The same in the words of AWS.
#[track_caller]
pub(crate) fn refused_sqs(answer: &Answer, code: &str, status: u16, quota: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let header = format!("x-amzn-query-error: {};sender", code.to_lowercase());
    assert!(answer.head.contains(&header), "{answer:?}");
    let json = answer.json();
    assert_eq!(json["__type"], format!("com.amazonaws.sqs#{code}"));
    assert!(json["message"].as_str().expect("a message").contains(quota), "{json}");
}

#[tokio::test]
async fn messages_a_second_count_in_every_dialect_and_a_batch_of_n_is_n() {
    let shop = Shop::open().await;
    shop.make("jobs").await;
    Server::ok(&shop.post("/v1/topics", json!({"name": "news"})).await, 201);
    // A batch of a thousand is let in once, and then nothing for a thousand seconds.
    shop.quotas(json!({"publishPerSecond": 1})).await;
    shop.fill("jobs", 1000).await;
    let messages = json!({"messages": [{"body": 1}, {"body": 2}]});
    let one = json!({"body": 1});
    for (path, body) in [
        ("/v1/queues/jobs/messages", &one),
        ("/v1/queues/jobs/messages:batch", &messages),
        ("/v1/topics/news/messages", &one),
        ("/v1/topics/news/messages:batch", &messages),
    ] {
        let answer = shop.post(path, body.clone()).await;
        refused(&answer, "publishPerSecond", true);
        let wait_ms = answer.json()["retryAfterMs"].as_u64().expect("a number");
        assert!((500_000..=1_001_000).contains(&wait_ms), "{wait_ms}");
    }
    refused(&shop.call("PUT", "/q/jobs", json!("by hand")).await, "publishPerSecond", true);
    let metrics = shop.server.get("/metrics").await.body;
    let told = "stampede_throttled_total{tenant=\"shop\",quota=\"publishPerSecond\"} ";
    assert!(metrics.contains(told), "who is refused is told: {metrics}");
    let url = shop.url("jobs");
    let send = json!({"QueueUrl": url, "MessageBody": "x"});
    let quota = "publishPerSecond";
    refused_sqs(&shop.sqs("SendMessage", send.clone()).await, "RequestThrottled", 403, quota);
    let batch = json!({"QueueUrl": url, "Entries": [{"Id": "a", "MessageBody": "x"}]});
    refused_sqs(&shop.sqs("SendMessageBatch", batch).await, "RequestThrottled", 403, quota);
    // What is not sent, and what others send, costs nothing.
    Server::ok(&shop.receive("jobs", json!({})).await, 200);
    shop.server.make(json!({"name": "jobs"})).await;
    shop.server.send_to("jobs", json!({"body": 1})).await;

    shop.quotas(json!({"publishPerSecond": null})).await;
    Server::ok(&shop.post("/v1/queues/jobs/messages", one).await, 202);
    Server::ok(&shop.sqs("SendMessage", send).await, 200);
    shop.stop().await;
}

#[tokio::test]
async fn what_was_sent_is_answered_again_even_over_the_rate() {
    let shop = Shop::open().await;
    shop.make("jobs").await;
    let headers = "content-type: application/json\r\nx-tenant: shop\r\nidempotency-key: once\r\n";
    let send = async || {
        let path = "/v1/queues/jobs/messages";
        shop.server.send("POST", path, headers, r#"{"body": 1}"#).await
    };
    let first = Server::ok(&send().await, 202);
    shop.quotas(json!({"publishPerSecond": 1})).await;
    shop.fill("jobs", 1000).await;
    assert_eq!(Server::ok(&send().await, 202), first);
    shop.stop().await;
}

#[tokio::test]
async fn queues_are_counted_with_those_of_subscriptions() {
    let shop = Shop::open().await;
    shop.make("one").await;
    Server::ok(&shop.post("/v1/topics", json!({"name": "news"})).await, 201);
    let subscribe =
        async |name: &str| shop.post("/v1/topics/news/subscriptions", json!({"name": name})).await;
    Server::ok(&subscribe("two").await, 201);
    let set = shop.quotas(json!({"queues": 2})).await;
    assert_eq!((&set["queues"], &set["used"]["queues"]), (&json!(2), &json!(2)), "{set}");
    refused(&shop.post("/v1/queues", json!({"name": "three"})).await, "queues", false);
    refused(&subscribe("three").await, "queues", false);
    refused(&shop.call("PUT", "/q/three", json!("by hand")).await, "queues", false);
    let create = json!({"QueueName": "three"});
    refused_sqs(&shop.sqs("CreateQueue", create.clone()).await, "OverLimit", 403, "queues");
    // What is there is no queue more.
    Server::ok(&shop.post("/v1/queues", json!({"name": "one"})).await, 200);
    Server::ok(&subscribe("two").await, 200);
    Server::ok(&shop.sqs("CreateQueue", json!({"QueueName": "one"})).await, 200);

    Server::ok(&shop.call("DELETE", "/v1/queues/one", Value::Null).await, 204);
    Server::ok(&shop.sqs("CreateQueue", create).await, 200);
    assert_eq!(shop.used("queues").await, 2);
    shop.quotas(json!({"queues": 0})).await;
    refused(&shop.post("/v1/queues", json!({"name": "four"})).await, "queues", false);
    shop.stop().await;
}

#[tokio::test]
async fn queues_keep_messages_no_longer_than_the_tenant_may() {
    let shop = Shop::open().await;
    shop.make("old").await;
    shop.quotas(json!({"retentionSecondsMax": 3600})).await;
    let quota = "retentionSecondsMax";
    let long = |name: &str| json!({"name": name, "retentionSeconds": 3601});
    refused(&shop.post("/v1/queues", long("new")).await, quota, false);
    let create = json!({"QueueName": "new", "Attributes": {"MessageRetentionPeriod": "3601"}});
    refused_sqs(&shop.sqs("CreateQueue", create).await, "InvalidAttributeValue", 400, quota);
    // Who does not say gets as much as there is.
    for name in ["new", "new-too"] {
        let made = shop.post("/v1/queues", json!({"name": name})).await;
        Server::ok(&made, 201);
        Server::ok(&shop.post("/v1/queues", json!({"name": name})).await, 200);
    }
    Server::ok(&shop.sqs("CreateQueue", json!({"QueueName": "sqs"})).await, 200);
    let retention = async |name: &str| {
        let view = shop.call("GET", &format!("/v1/queues/{name}"), Value::Null).await;
        Server::ok(&view, 200)["retentionSeconds"].clone()
    };
    assert_eq!((retention("new").await, retention("sqs").await), (json!(3600), json!(3600)));
    // What was there stays, can be made again and changed, but not to keep for longer.
    assert_eq!(retention("old").await, 345_600);
    Server::ok(&shop.post("/v1/queues", json!({"name": "old"})).await, 200);
    let change = async |body: Value| shop.call("PATCH", "/v1/queues/old", body).await;
    Server::ok(&change(json!({"maxMessages": 3})).await, 200);
    refused(&change(json!({"retentionSeconds": 400_000})).await, quota, false);
    Server::ok(&change(json!({"retentionSeconds": 60})).await, 200);
    let set = async |seconds: &str| {
        let attributes = json!({"MessageRetentionPeriod": seconds});
        let body = json!({"QueueUrl": shop.url("old"), "Attributes": attributes});
        shop.sqs("SetQueueAttributes", body).await
    };
    refused_sqs(&set("4000").await, "InvalidAttributeValue", 400, quota);
    Server::ok(&set("3600").await, 200);

    shop.quotas(json!({"retentionSecondsMax": null})).await;
    Server::ok(&set("4000").await, 200);
    Server::ok(&change(json!({"retentionSeconds": 400_000})).await, 200);
    Server::ok(&shop.post("/v1/queues", json!({"name": "new"})).await, 409);
    shop.stop().await;
}

#[tokio::test]
async fn leases_are_counted_over_all_queues() {
    let shop = Shop::open().await;
    for queue in ["one", "two"] {
        shop.make(queue).await;
        shop.fill(queue, 5).await;
    }
    shop.quotas(json!({"inflight": 3})).await;
    let got = Server::ok(&shop.receive("one", json!({"maxMessages": 2})).await, 200);
    assert_eq!(got["messages"].as_array().map(Vec::len), Some(2));
    let more = Server::ok(&shop.receive("two", json!({"maxMessages": 5})).await, 200);
    assert_eq!(more["messages"].as_array().map(Vec::len), Some(1), "as many as are left");
    assert_eq!(shop.used("inflight").await, 3);
    for queue in ["one", "two"] {
        refused(&shop.receive(queue, json!({})).await, "inflight", true);
        refused(&shop.receive(queue, json!({"waitSeconds": 20})).await, "inflight", true);
        let by_hand = shop.call("GET", &format!("/q/{queue}"), Value::Null).await;
        refused(&by_hand, "inflight", true);
        let ask = json!({"QueueUrl": shop.url(queue)});
        refused_sqs(&shop.sqs("ReceiveMessage", ask).await, "OverLimit", 403, "inflight");
    }
    // A queue without anything to lease is empty, not over a quota.
    shop.make("empty").await;
    Server::ok(&shop.receive("empty", json!({})).await, 200);

    let handle = got["messages"][0]["receiptHandle"].as_str().expect("a handle");
    let path = format!("/v1/queues/one/messages/{handle}:ack");
    Server::ok(&shop.post(&path, json!({})).await, 204);
    let ask = json!({"QueueUrl": shop.url("two"), "MaxNumberOfMessages": 10});
    let got = Server::ok(&shop.sqs("ReceiveMessage", ask).await, 200);
    assert_eq!(got["Messages"].as_array().map(Vec::len), Some(1));
    shop.quotas(json!({"inflight": null})).await;
    let got = Server::ok(&shop.receive("two", json!({"maxMessages": 5})).await, 200);
    assert_eq!(got["messages"].as_array().map(Vec::len), Some(3));
    // What is purged is in nobody's hands.
    Server::ok(&shop.post("/v1/queues/two:purge", json!({})).await, 204);
    assert_eq!(shop.used("inflight").await, 1);
    shop.stop().await;
}

async fn until_waiting(shop: &Shop, count: usize) {
    while shop.server.node.waiting() != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn receives_that_wait_are_counted_until_they_are_answered() {
    let shop = Shop::open().await;
    shop.make("jobs").await;
    shop.quotas(json!({"waiters": 1})).await;
    let wait = json!({"waitSeconds": 20});
    let server = Arc::clone(&shop.server);
    let waiting = tokio::spawn(async move {
        let headers = "content-type: application/json\r\nx-tenant: shop\r\n";
        let path = "/v1/queues/jobs/messages:receive";
        let answer = server.send("POST", path, headers, r#"{"waitSeconds": 20}"#).await;
        drop(server);
        answer
    });
    until_waiting(&shop, 1).await;
    assert_eq!(shop.used("waiters").await, 1);
    refused(&shop.receive("jobs", wait.clone()).await, "waiters", true);
    let by_hand = shop.call("GET", "/q/jobs?wait=20", Value::Null).await;
    refused(&by_hand, "waiters", true);
    let ask = json!({"QueueUrl": shop.url("jobs"), "WaitTimeSeconds": 20});
    let answer = shop.sqs("ReceiveMessage", ask.clone()).await;
    refused_sqs(&answer, "RequestThrottled", 403, "waiters");
    // Who does not wait is none, and neither is who finds something.
    Server::ok(&shop.receive("jobs", json!({})).await, 200);
    shop.make("full").await;
    shop.fill("full", 1).await;
    let got = Server::ok(&shop.receive("full", wait.clone()).await, 200);
    assert_eq!(got["messages"].as_array().map(Vec::len), Some(1));

    shop.fill("jobs", 1).await;
    Server::ok(&waiting.await.expect("no panic"), 200);
    until_waiting(&shop, 0).await;
    assert_eq!(shop.used("waiters").await, 0);
    shop.fill("jobs", 1).await;
    Server::ok(&shop.sqs("ReceiveMessage", ask).await, 200);
    shop.stop().await;
}

#[tokio::test]
async fn a_fetch_that_waits_is_as_many_waiters_as_it_has_lines() {
    let shop = Shop::open().await;
    Server::ok(&shop.post("/v1/streams", json!({"name": "s", "partitions": 4})).await, 201);
    shop.quotas(json!({"waiters": 4})).await;
    let fetch = "/v1/streams/s/groups/g:fetch";
    let ask = json!({"member": "m", "waitSeconds": 20});
    // A group and four partitions.
    refused(&shop.post(fetch, ask).await, "waiters", true);
    Server::ok(&shop.post(fetch, json!({"member": "m"})).await, 200);
    assert_eq!(shop.used("waiters").await, 0);
    shop.stop().await;
}

#[tokio::test]
async fn a_server_lets_so_many_wait_and_no_more() {
    let shop = Shop::open_with(|edge| edge.limits.waiters_max = 1).await;
    shop.make("jobs").await;
    let server = Arc::clone(&shop.server);
    server.make(json!({"name": "jobs"})).await;
    let waiting = tokio::spawn(async move {
        let got = server.receive("jobs", json!({"waitSeconds": 20})).await;
        drop(server);
        got
    });
    until_waiting(&shop, 1).await;
    let answer = shop.receive("jobs", json!({"waitSeconds": 20})).await;
    answer.problem(503, "overloaded");
    assert_eq!(answer.json()["retryAfterMs"], 1000);
    let ask = json!({"QueueUrl": shop.url("jobs"), "WaitTimeSeconds": 20});
    let answer = shop.sqs("ReceiveMessage", ask).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    shop.server.send_to("jobs", json!({"body": 1})).await;
    assert_eq!(waiting.await.expect("no panic").len(), 1);
    shop.stop().await;
}

#[tokio::test]
async fn bounds_of_a_queue_say_why_and_when_to_come_back() {
    let shop = Shop::open().await;
    let bounds = json!({"name": "jobs", "maxMessages": 2, "maxInflight": 1});
    Server::ok(&shop.post("/v1/queues", bounds).await, 201);
    let small = json!({"name": "small", "maxBytes": 400});
    Server::ok(&shop.post("/v1/queues", small).await, 201);
    let half = json!({"body": "x".repeat(250)});
    Server::ok(&shop.post("/v1/queues/small/messages", half).await, 202);
    shop.fill("jobs", 2).await;
    Server::ok(&shop.receive("jobs", json!({})).await, 200);
    let body = || json!({"body": 1});
    for (answer, bound) in [
        (shop.post("/v1/queues/jobs/messages", body()).await, "maxMessages"),
        (shop.post("/v1/queues/small/messages", body()).await, "maxBytes"),
        (shop.receive("jobs", json!({})).await, "maxInflight"),
    ] {
        let detail = answer.problem(429, "quota-exceeded");
        assert!(detail.contains(bound), "{detail}");
        assert_eq!(answer.json()["quota"], bound);
        assert_eq!(answer.json()["retryAfterMs"], 1000);
        assert!(answer.head.contains("\r\nretry-after: 1"), "{answer:?}");
    }
    let send = |queue: &str| json!({"QueueUrl": shop.url(queue), "MessageBody": "x"});
    let again = "try again in 1000 ms";
    refused_sqs(&shop.sqs("SendMessage", send("jobs")).await, "OverLimit", 403, again);
    refused_sqs(&shop.sqs("SendMessage", send("small")).await, "OverLimit", 403, again);
    let ask = json!({"QueueUrl": shop.url("jobs")});
    refused_sqs(&shop.sqs("ReceiveMessage", ask).await, "OverLimit", 403, again);
    shop.stop().await;
}

#[tokio::test]
async fn a_message_that_is_larger_than_all_of_its_queue_may_be_is_not_told_to_wait() {
    let shop = Shop::open().await;
    let tiny = json!({"name": "tiny", "maxBytes": 300});
    Server::ok(&shop.post("/v1/queues", tiny).await, 201);
    let large = json!({"body": "x".repeat(200)});
    let answer = shop.post("/v1/queues/tiny/messages", large.clone()).await;
    let detail = answer.problem(413, "payload-too-large");
    assert!(detail.contains("maxBytes of 300"), "{detail}");
    assert_eq!(
        (&answer.json()["limitBytes"], answer.json().get("retryAfterMs")),
        (&300.into(), None)
    );
    shop.call("PUT", "/q/tiny", json!("x".repeat(200))).await.problem(413, "payload-too-large");
    let batch = json!({"messages": [large, {"body": 1}]});
    let answer = shop.post("/v1/queues/tiny/messages:batch", batch).await;
    let results = &Server::ok(&answer, 200)["results"];
    assert_eq!(results[0]["error"]["type"], "payload-too-large");
    assert!(results[1]["messageId"].is_string(), "{results}");
    let send = json!({"QueueUrl": shop.url("tiny"), "MessageBody": "x".repeat(200)});
    let answer = shop.sqs("SendMessage", send).await;
    assert_eq!((answer.status, answer.json()["message"].is_string()), (400, true), "{answer:?}");
    assert!(answer.head.contains("x-amzn-query-error: invalidparametervalue;sender"), "{answer:?}");
    shop.stop().await;
}

#[tokio::test]
async fn messages_a_second_to_one_queue_are_bounded_in_every_dialect_and_topics_are_not() {
    let shop = Shop::open().await;
    let bounded = json!({"name": "jobs", "maxPublishPerSecond": 1});
    Server::ok(&shop.post("/v1/queues", bounded).await, 201);
    shop.make("others").await;
    Server::ok(&shop.post("/v1/topics", json!({"name": "news"})).await, 201);
    let subscribed = shop.post("/v1/topics/news/subscriptions", json!({"name": "jobs"})).await;
    Server::ok(&subscribed, 201);
    // A batch of a thousand is let in once, and then nothing for a thousand seconds.
    shop.fill("jobs", 1000).await;
    let messages = json!({"messages": [{"body": 1}, {"body": 2}]});
    let one = json!({"body": 1});
    for answer in [
        shop.post("/v1/queues/jobs/messages", one.clone()).await,
        shop.post("/v1/queues/jobs/messages:batch", messages).await,
        shop.call("PUT", "/q/jobs", json!("by hand")).await,
    ] {
        refused(&answer, "maxPublishPerSecond", true);
    }
    let url = shop.url("jobs");
    let send = json!({"QueueUrl": url, "MessageBody": "x"});
    let answer = shop.sqs("SendMessage", send).await;
    refused_sqs(&answer, "RequestThrottled", 403, "maxPublishPerSecond");
    let metrics = shop.server.get("/metrics").await.body;
    let told = "stampede_throttled_total{tenant=\"shop\",quota=\"maxPublishPerSecond\"} ";
    assert!(metrics.contains(told), "{metrics}");
    Server::ok(&shop.post("/v1/queues/others/messages", one.clone()).await, 202);
    Server::ok(&shop.post("/v1/topics/news/messages", one.clone()).await, 202);
    let lifted = shop.call("PATCH", "/v1/queues/jobs", json!({"maxPublishPerSecond": null})).await;
    Server::ok(&lifted, 200);
    Server::ok(&shop.post("/v1/queues/jobs/messages", one).await, 202);
    shop.stop().await;
}

#[tokio::test]
async fn what_the_tenant_may_not_send_is_not_counted_against_its_queue() {
    let shop = Shop::open().await;
    let bounded = json!({"name": "jobs", "maxPublishPerSecond": 1});
    Server::ok(&shop.post("/v1/queues", bounded).await, 201);
    shop.make("others").await;
    shop.quotas(json!({"publishPerSecond": 1})).await;
    shop.fill("others", 1000).await;
    let one = json!({"body": 1});
    for _ in 0..5 {
        let answer = shop.post("/v1/queues/jobs/messages", one.clone()).await;
        refused(&answer, "publishPerSecond", true);
        assert_eq!(answer.json()["quota"], "publishPerSecond");
    }
    shop.quotas(json!({"publishPerSecond": null})).await;
    Server::ok(&shop.post("/v1/queues/jobs/messages", one).await, 202);
    shop.stop().await;
}

/// Bounds of a second that a batch of a thousand uses up for a quarter of an hour.
async fn one_a_second(shop: &Shop, queue: &str) {
    let path = format!("/v1/queues/{queue}");
    Server::ok(&shop.call("PATCH", &path, json!({"maxPublishPerSecond": 1})).await, 200);
    shop.quotas(json!({"publishPerSecond": 1})).await;
}

#[tokio::test]
async fn what_is_not_sent_is_not_counted_against_any_rate() {
    let shop = Shop::open().await;
    let full = json!({"name": "jobs", "maxMessages": 1, "largeBodies": true});
    Server::ok(&shop.post("/v1/queues", full).await, 201);
    one_a_second(&shop, "jobs").await;
    let one = json!({"body": 1});
    // Nothing of a batch is sent whose large bodies cannot be put into the archive.
    let away = Away::take(&shop.server, How::Missing);
    let mut messages = vec![one.clone(); 999];
    messages.push(json!({"body": text(300 << 10)}));
    let batch = json!({"messages": messages});
    let answer = shop.post("/v1/queues/jobs/messages:batch", batch).await;
    answer.problem(503, "archive-unavailable");
    away.put_back();
    Server::ok(&shop.post("/v1/queues/jobs/messages", one.clone()).await, 202);
    // What the queue refuses was as much work as what it takes.
    let other = json!({"name": "other", "maxMessages": 1, "maxPublishPerSecond": 1});
    Server::ok(&shop.post("/v1/queues", other).await, 201);
    shop.quotas(json!({"publishPerSecond": null})).await;
    let two = json!({"messages": [one, one, one]});
    let answer = shop.post("/v1/queues/other/messages:batch", two).await;
    assert_eq!(Server::ok(&answer, 200)["results"][1]["error"]["quota"], "maxMessages");
    let refused_by = shop.post("/v1/queues/other/messages", one).await;
    refused(&refused_by, "maxPublishPerSecond", true);
    shop.stop().await;
}

#[tokio::test]
async fn a_queue_whose_oldest_message_has_waited_for_too_long_takes_no_more() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "maxAgeSeconds": 60})).await;
    server.send_to("jobs", json!({"body": 1})).await;
    ahead_ms.fetch_add(120_000, std::sync::atomic::Ordering::SeqCst);
    let keyed = "content-type: application/json\r\nidempotency-key: k\r\n";
    let send = || server.send("POST", "/v1/queues/jobs/messages", keyed, r#"{"body": 2}"#);
    let answer = send().await;
    assert!(answer.problem(429, "quota-exceeded").contains("maxAgeSeconds"));
    assert_eq!(answer.json()["retryAfterMs"], 1000);
    let late = server.receive("jobs", json!({})).await.remove(0);
    assert_eq!(server.settle("jobs", &late, "ack", json!({})).await.status, 204);
    Server::ok(&send().await, 202);
    server.stop().await;
}
