//! Many messages in a request, and many handles.

use serde_json::json;

use crate::harness::Server;
use crate::queues::JSON;

#[tokio::test]
async fn a_batch_gives_a_result_for_each() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "maxBodyBytes": 100, "maxMessages": 3})).await;
    let batch = json!({"messages": [
        {"clientMessageId": "a", "body": 1},
        {"clientMessageId": "b", "body": "x".repeat(101)},
        {"body": 3, "messageGroupId": "g"},
        {"clientMessageId": "d", "body": 4, "priority": 10},
        {"clientMessageId": "e", "body": 5},
        {"clientMessageId": "f", "body": 6},
        {"clientMessageId": "g", "body": 7},
    ]});
    let answer = server.post("/v1/queues/jobs/messages:batch", &batch.to_string()).await;
    let results = Server::ok(&answer, 200)["results"].clone();
    let outcome = |n: usize| {
        let result = &results[n];
        assert_eq!(result["index"], n);
        result["error"]["type"].as_str().unwrap_or("sent").to_owned()
    };
    let outcomes: Vec<_> = (0..7).map(outcome).collect();
    let (bad, full) = ("invalid-body", "quota-exceeded");
    assert_eq!(outcomes, ["sent", "payload-too-large", bad, bad, "sent", "sent", full]);
    assert_eq!((&results[0]["clientMessageId"], &results[0]["sequence"]), (&json!("a"), &json!(1)));
    assert!(results[2].get("clientMessageId").is_none());
    let got = server.receive("jobs", json!({"maxMessages": 100})).await;
    let bodies: Vec<_> = got.iter().map(|message| message["body"].clone()).collect();
    assert_eq!(bodies, [1, 5, 6]);

    let handles: Vec<_> = got.iter().map(|message| message["receiptHandle"].clone()).collect();
    let acks = json!({"receiptHandles": [handles[0], "forged", handles[0], handles[1]]});
    let answer = server.post("/v1/queues/jobs/messages:ack", &acks.to_string()).await;
    let results = Server::ok(&answer, 200)["results"].clone();
    let kinds: Vec<_> =
        (0..4).map(|n| results[n]["error"]["type"].as_str().unwrap_or("done").to_owned()).collect();
    assert_eq!(kinds, ["done", "invalid-parameter", "conflict", "done"]);
    let nacks = json!({"receiptHandles": [handles[2]], "reason": "no"});
    Server::ok(&server.post("/v1/queues/jobs/messages:nack", &nacks.to_string()).await, 200);
    let again = server.receive("jobs", json!({})).await.remove(0);
    assert_eq!((&again["body"], &again["receiveCount"]), (&json!(6), &json!(2)));
    let extend = json!({"receiptHandles": [again["receiptHandle"]], "visibilityTimeoutSeconds": 0});
    let path = "/v1/queues/jobs/messages:change-visibility";
    Server::ok(&server.post(path, &extend.to_string()).await, 200);
    assert_eq!(server.receive("jobs", json!({})).await.len(), 1, "0 gives it back");
    server.stop().await;
}

#[tokio::test]
async fn an_attribute_that_is_no_number_is_named_and_keeps_only_its_message_out() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    for value in ["NaN", "inf", "", "abc"] {
        let bad = json!({"body": 1, "attributes": {"size": {"type": "Number", "value": value}}});
        let answer = server.post("/v1/queues/jobs/messages", &bad.to_string()).await;
        let told = "at attributes.size: the value of a Number is a number";
        assert_eq!(answer.problem(400, "invalid-body"), told, "{value}");
        let batch = json!({"messages": [bad, {"body": 2}]});
        let answer = server.post("/v1/queues/jobs/messages:batch", &batch.to_string()).await;
        let results = &Server::ok(&answer, 200)["results"];
        assert_eq!(results[0]["error"]["detail"], told, "{value}");
        assert!(results[1]["messageId"].is_string(), "{value}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_message_of_a_batch_that_cannot_be_read_keeps_no_other_out() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let topic = json!({"name": "news"}).to_string();
    Server::ok(&server.post("/v1/topics", &topic).await, 201);
    let batch = json!({"messages": [
        {"clientMessageId": "a", "body": 1},
        {"clientMessageId": "b", "bodi": 2},
        7,
        {"clientMessageId": 4, "body": 4},
        {"clientMessageId": "e", "body": 5, "delaySeconds": "soon"},
        {"clientMessageId": "f", "body": 6},
    ]});
    for path in ["/v1/queues/jobs/messages:batch", "/v1/topics/news/messages:batch"] {
        let answer = server.post(path, &batch.to_string()).await;
        let results = Server::ok(&answer, 200)["results"].clone();
        let named: Vec<_> = (0..6).map(|n| results[n]["clientMessageId"].as_str()).collect();
        assert_eq!(named, [Some("a"), Some("b"), None, None, Some("e"), Some("f")], "{path}");
        for (n, part) in [(1, "bodi"), (2, "7"), (3, "clientMessageId"), (4, "delaySeconds")] {
            let error = &results[n]["error"];
            assert_eq!((&error["type"], &error["status"]), (&json!("invalid-body"), &json!(400)));
            assert!(error["detail"].as_str().is_some_and(|said| said.contains(part)), "{error}");
        }
        assert!(results[0]["messageId"].is_string() && results[5]["messageId"].is_string());
    }
    let got = server.receive("jobs", json!({"maxMessages": 100})).await;
    let bodies: Vec<_> = got.iter().map(|message| message["body"].clone()).collect();
    assert_eq!(bodies, [1, 6]);
    server.stop().await;
}

#[tokio::test]
async fn of_a_batch_of_too_many_no_more_is_read_than_shows_that() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let path = "/v1/queues/jobs/messages:batch";
    let refused = async |body: &str| {
        let detail = server.post(path, body).await.problem(400, "invalid-body");
        assert_eq!(detail, "at messages: there must be from 1 to 1000");
    };
    for element in ["7", r#"{"body": 1}"#] {
        refused(&format!(r#"{{"messages": [{}]}}"#, vec![element; 100_000].join(","))).await;
        // What follows the first that is too many may be anything.
        refused(&format!(r#"{{"messages": [{}, !"#, vec![element; 1001].join(","))).await;
    }
    let one_bad = format!(r#"{{"messages": [7, {}, !"#, vec![r#"{"body": 1}"#; 1000].join(","));
    refused(&one_bad).await;
    refused(r#"{"messages": []}"#).await;
    assert_eq!(server.look("jobs").await["visible"], 0);
    let most = format!(r#"{{"messages": [{}]}}"#, vec![r#"{"body": 1}"#; 1000].join(","));
    Server::ok(&server.post(path, &most).await, 200);
    assert_eq!(server.look("jobs").await["visible"], 1000);
    let detail = server.post(path, r#"{"messages": 7}"#).await.problem(400, "invalid-body");
    assert_eq!(detail, "at messages: it must be an array, not the number 7");
    server.stop().await;
}

#[tokio::test]
async fn a_batch_larger_than_a_command_keeps_its_order() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let body = |n: usize| json!({"body": format!("{n:03}{}", "x".repeat(200_000))});
    let batch = json!({"messages": (0..10).map(body).collect::<Vec<_>>()});
    let answer = server.post("/v1/queues/jobs/messages:batch", &batch.to_string()).await;
    let results = Server::ok(&answer, 200)["results"].clone();
    let sequences: Vec<_> = (0..10).map(|n| results[n]["sequence"].clone()).collect();
    assert_eq!(sequences, (1..=10).collect::<Vec<_>>());
    let got = server.receive("jobs", json!({"maxMessages": 10})).await;
    let first: Vec<_> =
        got.iter().map(|m| m["body"].as_str().expect("text")[..3].to_owned()).collect();
    assert_eq!(first, (0..10).map(|n| format!("{n:03}")).collect::<Vec<_>>());
    server.stop().await;
}

#[tokio::test]
async fn a_batch_sent_again_under_its_key_is_the_same_whatever_its_trace() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "maxBodyBytes": 200_000})).await;
    let body = |n: usize| json!({"body": format!("{n}{}", "x".repeat(150_000 + n * 20_000))});
    let batch = json!({"messages": (0..9).map(body).collect::<Vec<_>>()}).to_string();
    let path = "/v1/queues/jobs/messages:batch";
    let key = format!("{JSON}idempotency-key: k1\r\n");
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    let first = server.send("POST", path, &format!("{key}{trace}"), &batch).await;
    let first = Server::ok(&first, 200);
    assert_eq!(first["results"][4]["error"]["type"], "payload-too-large");
    let again = Server::ok(&server.send("POST", path, &key, &batch).await, 200);
    assert_eq!(first, again);
    assert_eq!(server.look("jobs").await["visible"], 3);
    // Others of them are good now, so it is not the same request any more.
    let wider = r#"{"maxBodyBytes": 262144}"#;
    assert_eq!(server.send("PATCH", "/v1/queues/jobs", JSON, wider).await.status, 200);
    let changed = server.send("POST", path, &key, &batch).await;
    changed.problem(422, "idempotency-conflict");
    server.stop().await;
}

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

#[tokio::test]
async fn what_tells_messages_of_a_batch_apart_is_refused_for_one_alone() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    for path in ["/v1/queues/jobs/messages", "/v1/topics/news/messages"] {
        let refused = server.post(path, r#"{"clientMessageId": "a", "body": 1}"#).await;
        let detail = refused.problem(400, "invalid-body");
        assert!(detail.starts_with("at clientMessageId: "), "{path}: {detail}");
    }
    server.stop().await;
}
