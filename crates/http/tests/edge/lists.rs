//! Paths and queries.

use serde_json::json;

use crate::harness::Server;

#[tokio::test]
async fn path_parameters_are_decoded_once() {
    let server = Server::start().await;
    assert_eq!(server.get("/t/names/a%20b%2Fc%25d+e").await.body, "a b/c%d+e");
    assert_eq!(server.get("/t/names/caf%C3%A9").await.body, "café");
    assert_eq!(server.get("/t/names/a:b").await.body, "a:b");
    assert_eq!(server.post("/t/names/a:b:shout", "").await.body, "A:B");
    server.post("/t/names/a:b", "").await.problem(405, "method-not-allowed");
    assert_eq!(server.get("/t/pairs/x/18446744073709551615").await.body, "x 18446744073709551615");
    server.stop().await;
}

#[tokio::test]
async fn bad_path_parameters_are_refused() {
    let server = Server::start().await;
    for path in ["/t/names/%ff", "/t/names/%C3%28", "/t/names/%", "/t/names/%4", "/t/names/%zz"] {
        let detail = server.get(path).await.problem(400, "invalid-parameter");
        assert!(detail.contains("`name`"), "{detail}");
    }
    for path in
        ["/t/pairs/a/x", "/t/pairs/a/-1", "/t/pairs/a/18446744073709551616", "/t/pairs/a/1.0"]
    {
        let detail = server.get(path).await.problem(400, "invalid-parameter");
        assert!(detail.contains("`n`"), "{detail}");
    }
    // Raw bytes beyond ASCII are not a path at all, or one that is not UTF-8.
    let answer =
        server.raw(b"GET /t/names/\xff HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert_eq!(answer.status, 400, "{answer:?}");
    server.stop().await;
}

#[tokio::test]
async fn queries_are_read_strictly() {
    let server = Server::start().await;
    let json = server.get("/t/list?limit=5&cursor=YWI&name=a%20b+c").await.json();
    assert_eq!(json, serde_json::json!({"limit": 5, "cursor": "ab", "name": "a b c"}));
    assert_eq!(server.get("/t/list").await.json()["limit"], 100);
    assert_eq!(server.get("/t/list?").await.json()["limit"], 100);
    let cases = [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("limit=ten", "`limit` in the query: it must be a whole number"),
        ("limit=99999999999999999999", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=!", "cursor"),
        ("cursor=YWI=", "cursor"),
        ("colour=red", "unknown field `colour`"),
        ("name=%ff", "UTF-8"),
        ("name=%", "UTF-8"),
        ("%C3%28=1", "UTF-8"),
        ("name", "query"),
    ];
    for (query, part) in cases.iter().take(13) {
        let answer = server.get(&format!("/t/list?{query}")).await;
        let detail = answer.problem(400, "invalid-parameter");
        assert!(detail.contains(part), "{query}: {detail}");
    }
    let long = format!("/t/list?cursor={}", "A".repeat(4000));
    server.get(&long).await.problem(400, "invalid-parameter");
    server.stop().await;
}

/// All pages of a list, and how many they were.
async fn pages(server: &Server, path: &str, field: &str) -> (Vec<serde_json::Value>, usize) {
    let (mut all, mut count, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let page = Server::ok(&server.get(&format!("{path}{cursor}")).await, 200);
        all.extend(page[field].as_array().expect("a list").iter().cloned());
        count += 1;
        let Some(next) = page["nextCursor"].as_str() else { return (all, count) };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn messages_are_looked_at_page_by_page() {
    let (server, _) = Server::start_product(1).await;
    for (queue, mode) in [("jobs", "STANDARD"), ("orders", "FIFO")] {
        server.make(json!({"name": queue, "mode": mode})).await;
        let message = |n: usize, delay: u64| {
            let mut message = json!({"body": n, "delaySeconds": delay});
            if mode == "FIFO" {
                message["messageGroupId"] = format!("g{}", n % 7).into();
            }
            message
        };
        for n in 0..25 {
            server.send_to(queue, message(n, 0)).await;
            server.send_to(queue, message(n + 100, 3600)).await;
        }
        let taken = server.receive(queue, json!({"maxMessages": 5})).await.len();
        for (state, expected) in [("visible", 25 - taken), ("delayed", 25), ("inflight", taken)] {
            let path =
                |limit: u32| format!("/v1/queues/{queue}/messages?state={state}&limit={limit}");
            let (whole, count) = pages(&server, &path(1000), "messages").await;
            assert_eq!((whole.len(), count), (expected, 1), "{queue} {state}");
            for limit in [1, 3, 10] {
                let (all, count) = pages(&server, &path(limit), "messages").await;
                assert_eq!(all, whole, "{queue} {state} {limit}");
                assert!(count >= expected.div_ceil(limit as usize), "{queue} {state} {limit}");
            }
        }
    }
    let first = server.get("/v1/queues/jobs/messages?limit=1").await.json();
    let cursor = first["nextCursor"].as_str().expect("there is more");
    for bad in [format!("state=delayed&cursor={cursor}"), "cursor=eHh4".into(), "cursor=".into()] {
        let answer = server.get(&format!("/v1/queues/jobs/messages?{bad}")).await;
        assert!(answer.problem(400, "invalid-parameter").contains("cursor"), "{bad}");
    }
    server.stop().await;
}

#[tokio::test]
async fn subscriptions_are_listed_page_by_page() {
    let (server, _) = Server::start_product(2).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let path = "/v1/topics/news/subscriptions";
    assert_eq!(Server::ok(&server.get(path).await, 200), json!({"items": []}));
    for n in 0..5 {
        let ask = json!({"name": format!("q{n}"), "filter": {"kind": [format!("k{n}")]}});
        Server::ok(&server.post(path, &ask.to_string()).await, 201);
    }
    let (all, count) = pages(&server, &format!("{path}?limit=2"), "items").await;
    assert_eq!((all.len(), count), (5, 3));
    assert_eq!((&all[4]["name"], &all[4]["filter"]), (&json!("q4"), &json!({"kind": ["k4"]})));
    server.get(&format!("{path}?cursor=_w")).await.problem(400, "invalid-parameter");
    let lost = server.get("/v1/topics/lost/subscriptions").await.problem(404, "not-found");
    assert!(lost.contains("`lost`"), "{lost}");
    server.stop().await;
}

#[tokio::test]
async fn the_id_of_a_topic_names_its_shard_as_the_ids_of_its_messages_do() {
    let (server, _) = Server::start_product(2).await;
    let mut shards = std::collections::BTreeSet::new();
    for n in 0..16 {
        let made = server.post("/v1/topics", &format!(r#"{{"name": "t{n}"}}"#)).await;
        let id = Server::ok(&made, 201)["topicId"].as_str().expect("an id").to_owned();
        let path = format!("/v1/topics/t{n}");
        assert_eq!(Server::ok(&server.get(&path).await, 200)["topicId"], *id);
        let sent = server.post(&format!("{path}/messages"), r#"{"body": 1}"#).await;
        let message = Server::ok(&sent, 202)["messageId"].as_str().expect("an id").to_owned();
        let numbers = |id: &str, between: char| -> Vec<u64> {
            let parts = id.split(between).map(|part| u64::from_str_radix(part, 16));
            parts.map(|number| number.expect("a number")).take(2).collect()
        };
        let of_topic = numbers(id.strip_prefix("t_").expect("it begins so"), '_');
        assert_eq!(of_topic, numbers(&message, '-'), "{id} {message}");
        shards.insert(of_topic[0]);
    }
    assert_eq!(shards.len(), 2);
    let listed = Server::ok(&server.get("/v1/topics").await, 200);
    let ids: std::collections::BTreeSet<_> =
        listed["items"].as_array().expect("a list").iter().map(|t| t["topicId"].as_str()).collect();
    assert_eq!(ids.len(), 16);
    server.stop().await;
}

#[tokio::test]
async fn redrives_are_listed_page_by_page_the_latest_first() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "dead"})).await;
    server.make(json!({"name": "jobs"})).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let ask = json!({"targetQueue": "jobs"}).to_string();
        let started = Server::ok(&server.post("/v1/queues/dead:redrive", &ask).await, 202);
        let id = started["redriveId"].as_str().expect("an id");
        while server.get(&format!("/v1/redrives/{id}")).await.json()["state"] == "running" {
            tokio::task::yield_now().await;
        }
        ids.insert(0, started["redriveId"].clone());
    }
    for (limit, expected) in [(2, 3), (5, 1), (1000, 1)] {
        let path = format!("/v1/redrives?queue=dead&limit={limit}");
        let (all, count) = pages(&server, &path, "items").await;
        let listed: Vec<_> = all.iter().map(|redrive| redrive["redriveId"].clone()).collect();
        assert_eq!((listed, count), (ids.clone(), expected), "{limit}");
    }
    for bad in ["limit=0", "cursor=_w", "cursor=!"] {
        let answer = server.get(&format!("/v1/redrives?queue=dead&{bad}")).await;
        answer.problem(400, "invalid-parameter");
    }
    server.stop().await;
}
