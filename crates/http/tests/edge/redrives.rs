//! Redrives that move less than all, and those that cannot do what was asked for.

use serde_json::{Value, json};

use crate::harness::Server;

/// A queue `jobs` whose dead letters are in `dead`: so many of them.
async fn with_dead(server: &Server, count: u64, mode: &str) {
    let queue =
        json!({"name": "jobs", "maxReceiveCount": 1, "deadLetterQueue": "dead", "mode": mode});
    server.make(queue).await;
    server.make(json!({"name": "dead", "mode": mode})).await;
    let group = (mode == "FIFO").then_some("g");
    for n in 0..count {
        server.send_to("jobs", json!({"body": n, "priority": 7, "messageGroupId": group})).await;
        let message = server.receive("jobs", json!({})).await.remove(0);
        let settled = server.settle("jobs", &message, "nack", json!({"reason": "full"})).await;
        assert_eq!(settled.status, 204);
    }
    while server.look("dead").await["visible"] != count {
        tokio::task::yield_now().await;
    }
}

/// A redrive of `dead`, once it is as it is waited for.
async fn redriven(server: &Server, body: Value, until: impl Fn(&Value) -> bool) -> Value {
    let started = server.post("/v1/queues/dead:redrive", &body.to_string()).await;
    let id = Server::ok(&started, 202)["redriveId"].as_str().expect("an id").to_owned();
    loop {
        let job = Server::ok(&server.get(&format!("/v1/redrives/{id}")).await, 200);
        if until(&job) {
            return job;
        }
        tokio::task::yield_now().await;
    }
}

async fn failed(server: &Server, body: Value) -> Value {
    // From another shard messages come back one by one, when the job may already have done its part.
    redriven(server, body, |job| job["state"] == "failed" && job["moved"] == 0).await
}

/// What a job that is done has matched, moved and skipped.
async fn done(server: &Server, body: Value) -> [Value; 3] {
    let job = redriven(server, body, |job| job["state"] != "running").await;
    assert_eq!(job["state"], "done", "{job}");
    ["matched", "moved", "skipped"].map(|field| job[field].clone())
}

#[tokio::test]
async fn a_dry_run_counts_and_moves_nothing_and_a_limit_moves_just_so_many() {
    let (server, _) = Server::start_product(2).await;
    with_dead(&server, 5, "STANDARD").await;
    let here = async || {
        let (dead, jobs) = (server.look("dead").await, server.look("jobs").await);
        [dead["visible"].clone(), dead["inflight"].clone(), jobs["visible"].clone()]
    };
    let all = server.get("/v1/queues/dead/messages").await.json();
    let none = json!({"dryRun": true, "filter": {"$lastReason": ["empty"]}});
    for (ask, counted) in [
        (json!({"dryRun": true}), [5, 0, 0]),
        (json!({"dryRun": true, "limit": 2}), [2, 0, 0]),
        (json!({"dryRun": true, "limit": 9, "targetQueue": "jobs"}), [5, 0, 0]),
        (none, [0, 0, 5]),
    ] {
        assert_eq!(done(&server, ask.clone()).await, counted.map(Value::from), "{ask}");
        assert_eq!(here().await, [json!(5), json!(0), json!(0)], "{ask}");
    }
    assert_eq!(server.get("/v1/queues/dead/messages").await.json(), all);
    assert_eq!(done(&server, json!({"limit": 2})).await, [2, 2, 0].map(Value::from));
    assert_eq!(here().await, [json!(3), json!(0), json!(2)]);
    assert_eq!(done(&server, json!({"limit": 100})).await, [3, 3, 0].map(Value::from));
    assert_eq!(here().await, [json!(0), json!(0), json!(5)]);
    server.stop().await;
}

#[tokio::test]
async fn a_queue_that_is_gone_does_not_come_back_and_its_letters_stay_as_they_are() {
    let (server, _) = Server::start_product(3).await;
    with_dead(&server, 3, "STANDARD").await;
    let before = server.get("/v1/queues/dead/messages").await.json()["messages"].clone();
    assert_eq!(server.send("DELETE", "/v1/queues/jobs", "", "").await.status, 204);
    let job = failed(&server, json!({})).await;
    assert_eq!((&job["failureReason"], &job["matched"]), (&json!("queue-not-found"), &json!(3)));
    server.get("/v1/queues/jobs").await.problem(404, "not-found");
    let after = server.get("/v1/queues/dead/messages").await.json()["messages"].clone();
    let told = |messages: &Value| -> Vec<Value> {
        let messages = messages.as_array().expect("a list").iter();
        messages.map(|m| json!([m["messageId"], m["deadLetter"], m["sentAt"], m["body"]])).collect()
    };
    assert_eq!(told(&after), told(&before));
    server.stop().await;
}

#[tokio::test]
async fn dead_letters_of_groups_are_not_moved_where_there_are_none() {
    let (server, _) = Server::start_product(2).await;
    with_dead(&server, 1, "FIFO").await;
    server.make(json!({"name": "plain"})).await;
    let refused = server.post("/v1/queues/dead:redrive", r#"{"targetQueue": "plain"}"#).await;
    assert_eq!(
        refused.problem(422, "unprocessable"),
        "at targetQueue: `dead` is a FIFO queue and `plain` a standard queue: messages move between queues of \
         one mode"
    );
    let dead = server.receive("dead", json!({})).await.remove(0);
    let story = &dead["deadLetter"];
    assert_eq!((&story["messageGroupId"], &story["lastReason"]), (&json!("g"), &json!("full")));
    assert_eq!(story["movedAt"], story["lastFailedAt"]);
    server.stop().await;
}
