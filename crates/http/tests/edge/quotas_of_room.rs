//! What a tenant may keep: as many bytes and as many things as its quotas say.

use serde_json::{Value, json};

use crate::harness::{Answer, Server};
use crate::quotas::{Shop, refused, refused_sqs};

const KEYED: &str = "content-type: application/json\r\nx-tenant: shop\r\nidempotency-key: once\r\n";

impl Shop {
    async fn keyed(&self, path: &str, body: Value) -> Answer {
        self.server.send("POST", path, KEYED, &body.to_string()).await
    }

    async fn visible(&self, queue: &str) -> Value {
        let path = format!("/v1/queues/{queue}");
        Server::ok(&self.call("GET", &path, Value::Null).await, 200)["visible"].clone()
    }
}

#[tokio::test]
async fn who_stores_all_it_may_sends_nothing_more_in_any_dialect() {
    let shop = Shop::open().await;
    shop.make("jobs").await;
    Server::ok(&shop.post("/v1/topics", json!({"name": "news"})).await, 201);
    Server::ok(&shop.post("/v1/topics/news/subscriptions", json!({"name": "mail"})).await, 201);
    let one = json!({"body": 1});
    let two = json!({"messages": [{"body": 1}, {"body": 2}]});
    let ways = [
        ("/v1/queues/jobs/messages", &one),
        ("/v1/queues/jobs/messages:batch", &two),
        ("/v1/topics/news/messages", &one),
        ("/v1/topics/news/messages:batch", &two),
    ];
    let first = Server::ok(&shop.keyed("/v1/queues/jobs/messages", one.clone()).await, 202);
    shop.quotas(json!({"bytesStored": 1})).await;
    assert!(shop.used("bytesStored").await.as_u64().expect("a number") > 100);
    for (path, body) in ways {
        refused(&shop.post(path, body.clone()).await, "bytesStored", false);
    }
    refused(&shop.call("PUT", "/q/jobs", json!("by hand")).await, "bytesStored", false);
    let send = json!({"QueueUrl": shop.url("jobs"), "MessageBody": "x"});
    let quota = "bytesStored";
    refused_sqs(&shop.sqs("SendMessage", send.clone()).await, "OverLimit", 403, quota);
    let entries = json!([{"Id": "a", "MessageBody": "x"}]);
    let batch = json!({"QueueUrl": shop.url("jobs"), "Entries": entries});
    refused_sqs(&shop.sqs("SendMessageBatch", batch).await, "OverLimit", 403, quota);
    assert_eq!((shop.visible("jobs").await, shop.visible("mail").await), (json!(1), json!(0)));
    let again = shop.keyed("/v1/queues/jobs/messages", one.clone()).await;
    assert_eq!(Server::ok(&again, 202), first, "what was sent is answered again");

    // What is there can be worked on, and makes room.
    let got = Server::ok(&shop.receive("jobs", json!({})).await, 200);
    let handle = got["messages"][0]["receiptHandle"].as_str().expect("a handle");
    let ack = format!("/v1/queues/jobs/messages/{handle}:ack");
    Server::ok(&shop.post(&ack, json!({})).await, 204);
    assert_eq!(shop.used("bytesStored").await, 0);
    Server::ok(&shop.sqs("SendMessage", send).await, 200);
    refused(&shop.post(ways[0].0, one.clone()).await, "bytesStored", false);
    shop.quotas(json!({"bytesStored": null})).await;
    for (path, body) in ways {
        assert!([200, 202].contains(&shop.post(path, body.clone()).await.status), "{path}");
    }
    shop.stop().await;
}

#[tokio::test]
async fn a_topic_that_is_there_is_found_however_full_it_is() {
    let shop = Shop::open().await;
    assert_eq!(shop.post("/v1/topics", json!({"name": "news"})).await.status, 201);
    shop.quotas(json!({"entities": 1})).await;
    shop.post("/v1/topics", json!({"name": "more"})).await.problem(429, "quota-exceeded");
    assert_eq!(shop.post("/v1/topics", json!({"name": "news"})).await.status, 200);
    shop.stop().await;
}

#[tokio::test]
async fn a_topic_that_was_made_and_deleted_since_is_answered_again_however_full_it_is() {
    let shop = Shop::open().await;
    shop.make("jobs").await;
    // Of several, some are in another shard than a queue of their name would be.
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let topic = json!({"name": name});
        let head = KEYED.replace("once", &format!("once-{name}"));
        let make = async || shop.server.send("POST", "/v1/topics", &head, &topic.to_string()).await;
        let first = Server::ok(&make().await, 201);
        let path = format!("/v1/topics/{name}");
        Server::ok(&shop.call("DELETE", &path, Value::Null).await, 204);
        shop.quotas(json!({"entities": 1})).await;
        refused(&shop.post("/v1/topics", topic.clone()).await, "entities", false);
        assert_eq!(Server::ok(&make().await, 201), first, "{name}");
        shop.quotas(json!({"entities": null})).await;
    }
    shop.stop().await;
}
