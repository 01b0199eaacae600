//! Bodies that are nested deep: what is taken can be read by whoever receives it.

use serde_json::{Value, json};

use crate::harness::Server;

/// As `docs/queue.md` says.
const LEVELS_MAX: usize = 100;

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[tokio::test]
async fn a_message_as_deep_as_it_may_be_comes_back_and_a_deeper_one_is_refused() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let subscription = r#"{"name": "jobs"}"#;
    Server::ok(&server.post("/v1/topics/news/subscriptions", subscription).await, 201);
    for path in ["/v1/queues/jobs/messages", "/v1/topics/news/messages"] {
        let message = |levels| format!(r#"{{"body": {}}}"#, nested(levels));
        for levels in [LEVELS_MAX + 1, 100_000] {
            let refused = server.post(path, &message(levels)).await;
            let detail = refused.problem(400, "invalid-body");
            assert_eq!(detail, "at body: it is nested deeper than 100 levels", "{path}");
        }
        Server::ok(&server.post(path, &message(LEVELS_MAX)).await, 202);
        // The whole answer is read here as any client reads it.
        let got = server.receive("jobs", json!({"waitSeconds": 20})).await;
        assert_eq!((got.len(), depth(&got[0]["body"])), (1, LEVELS_MAX), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_deep_keeps_no_other_of_its_batch_out() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let deep = nested(LEVELS_MAX + 1);
    let batch = format!(r#"{{"messages": [{{"body": 1}}, {{"body": {deep}}}, {{"body": 3}}]}}"#);
    for path in ["/v1/queues/jobs/messages:batch", "/v1/topics/news/messages:batch"] {
        let results = Server::ok(&server.post(path, &batch).await, 200)["results"].clone();
        assert!(results[0]["messageId"].is_string() && results[2]["messageId"].is_string());
        let error = &results[1]["error"];
        assert_eq!((&error["type"], &error["status"]), (&json!("invalid-body"), &json!(400)));
    }
    let got = server.receive("jobs", json!({"maxMessages": 100})).await;
    let bodies: Vec<_> = got.iter().map(|message| message["body"].clone()).collect();
    assert_eq!(bodies, [1, 3]);
    server.stop().await;
}

#[tokio::test]
async fn a_record_that_is_too_deep_keeps_no_other_out() {
    let (server, _) = Server::start_product(1).await;
    server.stream(json!({"name": "clicks"})).await;
    let values = [nested(LEVELS_MAX), nested(LEVELS_MAX + 1), nested(100_000)];
    let records = values.map(|value| format!(r#"{{"value": {value}}}"#)).join(",");
    let records = format!(r#"{{"records": [{records}]}}"#);
    let answer = server.post("/v1/streams/clicks/records", &records).await;
    let results = Server::ok(&answer, 200)["results"].clone();
    assert_eq!(results[0]["offset"], 0, "{results}");
    for result in [&results[1], &results[2]] {
        assert_eq!(result["error"]["type"], "invalid-body");
        assert_eq!(result["error"]["detail"], "at value: it is nested deeper than 100 levels");
    }
    let got = server.fetch("clicks", "g", "m").await;
    assert_eq!(depth(&got["records"][0]["value"]), LEVELS_MAX);
    server.stop().await;
}

#[tokio::test]
async fn what_is_text_is_not_nested() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let text = nested(1000);
    Server::ok(&server.send("PUT", "/q/jobs", "", &text).await, 202);
    let quoted = json!({"body": text}).to_string();
    Server::ok(&server.post("/v1/queues/jobs/messages", &quoted).await, 202);
    let within = json!({"body": {"text": text, "more": [text]}}).to_string();
    Server::ok(&server.post("/v1/queues/jobs/messages", &within).await, 202);
    let got = server.receive("jobs", json!({"maxMessages": 10})).await;
    assert_eq!((&got[0]["body"], &got[1]["body"]), (&json!(text), &json!(text)));
    server.stop().await;
}
