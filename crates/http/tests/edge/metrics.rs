//! What `/metrics` tells, after traffic that is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;

use crate::harness::Server;

/// Every sample, by its name and labels as they are spelt.
struct Scrape {
    samples: BTreeMap<String, f64>,
}

fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(known)
}

/// The labels of a sample, and what follows them.
fn split_labels(rest: &str) -> (&str, &str) {
    let Some(inner) = rest.strip_prefix('{') else { return ("", rest) };
    let (labels, value) = inner.split_once("} ").expect("labels end before the value");
    for label in labels.split("\",") {
        let (name, value) = label.split_once("=\"").expect("a label has a value in quotes");
        assert!(is_name(name), "{label}");
        assert!(!value.trim_end_matches('"').contains('"'), "{label}");
    }
    assert!(labels.ends_with('"'), "{labels}");
    (&rest[..labels.len() + 2], value)
}

impl Scrape {
    /// Reads the text format of Prometheus, strictly: every metric has its HELP and its TYPE, once,
    /// and its samples follow.
    fn parse(text: &str) -> Scrape {
        assert!(text.ends_with('\n'));
        let (mut helped, mut types) = (BTreeSet::new(), BTreeMap::new());
        let mut samples = BTreeMap::new();
        let mut family = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("a name and a text");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                assert!(helped.insert(name.to_owned()), "twice: {line}");
                continue;
            }
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a name and a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                family = name.to_owned();
                continue;
            }
            let end = line.find(['{', ' ']).expect("a sample has a value");
            let (name, rest) = line.split_at(end);
            let (labels, value) = split_labels(rest);
            let base = match types[&family].as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .unwrap_or(name),
                _ => name,
            };
            assert_eq!(base, family, "a sample follows the TYPE of its metric: {line}");
            let value: f64 = value.trim().parse().unwrap_or_else(|_| panic!("a number: {line}"));
            let is_new = samples.insert(format!("{name}{labels}"), value).is_none();
            assert!(is_new, "twice: {line}");
        }
        for name in types.keys() {
            assert!(helped.contains(name), "{name} has no HELP");
            let suffix = types[name] == "counter";
            assert_eq!(name.ends_with("_total"), suffix, "counters end in _total: {name}");
        }
        Scrape { samples }
    }

    async fn of(server: &Server) -> Scrape {
        let answer = server.get("/metrics").await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{answer:?}");
        Scrape::parse(&answer.body)
    }

    #[track_caller]
    fn get(&self, sample: &str) -> f64 {
        *self.samples.get(sample).unwrap_or_else(|| panic!("{sample} is not told"))
    }

    #[track_caller]
    fn of_queue(&self, metric: &str, queue: &str) -> f64 {
        self.get(&format!("stampede_queue_{metric}{{tenant=\"default\",queue=\"{queue}\"}}"))
    }

    fn queues(&self) -> Vec<&str> {
        let names = self.samples.keys();
        names.filter_map(|name| name.strip_prefix("stampede_queue_visible{")).collect()
    }
}

#[tokio::test]
async fn what_should_never_happen_is_told_before_it_does() {
    let (server, _) = Server::start_product(1).await;
    let scrape = Scrape::of(&server).await;
    for name in [
        "http_accept_errors_total",
        "http_tls_handshake_errors_total",
        "http_panics_total",
        "otlp_spans_dropped_total",
        "stampede_queue_bodies_lost_total",
    ] {
        scrape.get(name);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_batch_of_which_nothing_is_good_is_no_command() {
    const BATCHES: [&str; 2] = ["/v1/queues/jobs/messages:batch", "/v1/topics/news/messages:batch"];
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    Server::ok(&server.post("/v1/topics", r#"{"name": "news"}"#).await, 201);
    let commands =
        async || Scrape::of(&server).await.get(r#"stampede_stamp_commands_total{shard="0"}"#);
    let head = "content-type: application/json\r\nidempotency-key: k1\r\n";
    let before = commands().await;
    let bad = r#"{"messages": [7, {"body": 1, "priority": 10}]}"#;
    for path in BATCHES {
        for head in ["content-type: application/json\r\n", head] {
            let results = Server::ok(&server.send("POST", path, head, bad).await, 200);
            for n in 0..2 {
                assert_eq!(results["results"][n]["error"]["type"], "invalid-body", "{path}");
            }
        }
        let lost = path.replace("jobs", "lost").replace("news", "lost");
        server.post(&lost, bad).await.problem(404, "not-found");
    }
    assert_eq!(commands().await, before);
    // A key that was used for something else is said to be so all the same.
    for path in BATCHES {
        let good = r#"{"messages": [{"body": 1}]}"#;
        Server::ok(&server.send("POST", path, head, good).await, 200);
        server.send("POST", path, head, bad).await.problem(422, "idempotency-conflict");
    }
    server.stop().await;
}

#[tokio::test]
async fn every_queue_is_told_of_after_known_traffic() {
    let (server, ahead_ms) = Server::start_product(2).await;
    let settings = json!({"name": "jobs", "maxReceiveCount": 2, "deadLetterQueue": "dead",
        "maxMessages": 4});
    server.make(settings).await;
    server.make(json!({"name": "quiet"})).await;
    for n in 0..3 {
        server.send_to("jobs", json!({"body": n})).await;
    }
    server.send_to("jobs", json!({"body": "later", "delaySeconds": 100_000})).await;
    let over = server.post("/v1/queues/jobs/messages", r#"{"body": 5}"#).await;
    over.problem(429, "quota-exceeded");
    ahead_ms.fetch_add(20_000, Ordering::SeqCst);
    // One acked, one that fails once and one that fails twice and is dead; one more is in hands.
    let got = server.receive("jobs", json!({"maxMessages": 3})).await;
    assert_eq!(server.settle("jobs", &got[0], "ack", json!({})).await.status, 204);
    for message in &got[1..] {
        assert_eq!(server.settle("jobs", message, "nack", json!({})).await.status, 204);
    }
    let again = server.receive("jobs", json!({})).await.remove(0);
    assert_eq!(server.settle("jobs", &again, "nack", json!({})).await.status, 204);
    let last = server.receive("jobs", json!({})).await.remove(0);
    assert_eq!(server.receive("dead", json!({"waitSeconds": 20})).await.len(), 1);
    server.send_to("jobs", json!({"body": "old"})).await;
    ahead_ms.fetch_add(9000, Ordering::SeqCst);

    let server = Arc::new(server);
    let waiter = Arc::clone(&server);
    let waiting =
        tokio::spawn(async move { waiter.receive("quiet", json!({"waitSeconds": 20})).await });
    while server.node.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let scrape = Scrape::of(&server).await;
    let jobs = |metric: &str| scrape.of_queue(metric, "jobs");
    let age = jobs("oldest_visible_age_seconds");
    assert!((9.0..19.0).contains(&age), "{age}");
    assert_eq!((jobs("visible"), jobs("delayed"), jobs("inflight")), (1.0, 1.0, 1.0));
    assert!(jobs("bytes") > 300.0 && jobs("bytes") < 600.0, "{}", jobs("bytes"));
    let totals = ["sent", "received", "acked", "failed", "dead", "expired", "moved"];
    let totals = totals.map(|total| jobs(&format!("{total}_total")));
    assert_eq!(totals, [5.0, 5.0, 1.0, 3.0, 1.0, 0.0, 0.0]);
    assert_eq!(scrape.of_queue("sent_total", "dead"), 1.0);
    assert_eq!(scrape.of_queue("oldest_visible_age_seconds", "quiet"), 0.0);
    assert_eq!(scrape.of_queue("waiters", "quiet"), 1.0);
    assert_eq!((scrape.get("stampede_queues"), scrape.get("stampede_queues_omitted")), (3.0, 0.0));
    assert_eq!(scrape.get("stampede_waiters"), 1.0);

    let count = |action| {
        scrape.get(&format!("stampede_queue_request_seconds_count{{action=\"{action}\"}}"))
    };
    assert_eq!((count("send"), count("ack"), count("nack")), (6.0, 1.0, 3.0));
    assert!(count("receive") >= 4.0, "who waits asks when called: {}", count("receive"));
    // Six were received, none sooner than twenty seconds after it was sent.
    let age = |end: &str| scrape.get(&format!("stampede_queue_message_age_seconds_{end}"));
    assert_eq!((age("count"), age("bucket{le=\"15\"}")), (6.0, 0.0));
    assert_eq!(age("bucket{le=\"300\"}"), 6.0);
    assert_eq!(
        scrape.get("stampede_throttled_total{tenant=\"default\",quota=\"maxMessages\"}"),
        1.0
    );

    assert!(scrape.get("stampede_disk_free_bytes") <= scrape.get("stampede_disk_size_bytes"));
    assert!(scrape.get("stampede_data_bytes") > 0.0);
    for shard in 0..2 {
        scrape.get(&format!("stampede_store_bytes{{shard=\"{shard}\"}}"));
        scrape.get(&format!("stampede_log_bytes{{shard=\"{shard}\"}}"));
    }
    assert!(scrape.get("stampede_census_age_seconds") >= 0.0);

    assert_eq!(server.settle("jobs", &last, "ack", json!({})).await.status, 204);
    server.send_to("quiet", json!({"body": 1})).await;
    assert_eq!(waiting.await.expect("no panic").len(), 1);
    Arc::into_inner(server).expect("nobody else has it").stop().await;
}

#[tokio::test]
async fn of_too_many_queues_those_that_have_waited_longest_are_told_of() {
    let few = |edge: &mut http_edge::Edge| edge.limits.metrics_queues_max = 2;
    let (server, ahead_ms) = Server::start_product_with(2, few).await;
    // More than are read at a time.
    for n in 0..300 {
        server.make(json!({"name": format!("q{n:03}")})).await;
    }
    for queue in ["q250", "q017"] {
        server.send_to(queue, json!({"body": 1})).await;
        ahead_ms.fetch_add(1000, Ordering::SeqCst);
    }
    server.send_to("q100", json!({"body": 1})).await;
    let scrape = Scrape::of(&server).await;
    let told = ["tenant=\"default\",queue=\"q017\"}", "tenant=\"default\",queue=\"q250\"}"];
    assert_eq!(scrape.queues(), told);
    assert_eq!(scrape.get("stampede_queues"), 300.0);
    assert_eq!(scrape.get("stampede_queues_omitted"), 298.0);
    server.stop().await;
}

#[tokio::test]
async fn what_is_told_becomes_new_again_and_says_how_old_it_is() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let first = Scrape::of(&server).await;
    assert_eq!(first.get("stampede_queues"), 1.0);
    server.make(json!({"name": "more"})).await;
    // However slow this is, what is told is not older than it says.
    loop {
        let next = Scrape::of(&server).await;
        if next.get("stampede_queues") == 2.0 {
            break;
        }
        assert!(next.get("stampede_census_age_seconds") < 60.0);
    }
    server.stop().await;
}

#[tokio::test]
async fn streams_and_their_groups_are_told_of_the_furthest_behind_first() {
    let (server, _) =
        Server::start_product_with(2, |edge| edge.limits.metrics_queues_max = 2).await;
    Server::ok(&server.post("/v1/tenants", r#"{"name": "shop"}"#).await, 201);
    for (tenant, name, count) in
        [("", "few", 1), ("", "more", 30), ("x-tenant: shop\r\n", "most", 60)]
    {
        let headers = format!("content-type: application/json\r\n{tenant}");
        let post = async |path: String, body: serde_json::Value| {
            server.send("POST", &path, &headers, &body.to_string()).await
        };
        let settings = json!({"name": name, "partitions": 2});
        Server::ok(&post("/v1/streams".to_owned(), settings).await, 201);
        let records: Vec<_> = (0..count).map(|n| json!({"value": n})).collect();
        let path = format!("/v1/streams/{name}/records");
        Server::ok(&post(path, json!({"records": records})).await, 200);
        let path = format!("/v1/streams/{name}/groups/g:fetch");
        Server::ok(&post(path, json!({"member": "m"})).await, 200);
    }
    let commit = r#"{"offsets": {"0": 10}}"#;
    Server::ok(&server.post("/v1/streams/more/groups/g:commit", commit).await, 200);
    let scrape = Scrape::of(&server).await;
    let more = r#"{tenant="default",stream="more"}"#;
    let most = r#"{tenant="shop",stream="most"}"#;
    for (labels, records) in [(more, 30.0), (most, 60.0)] {
        assert_eq!(scrape.get(&format!("stampede_stream_records{labels}")), records);
        assert_eq!(scrape.get(&format!("stampede_stream_appended_total{labels}")), records);
        assert!(scrape.get(&format!("stampede_stream_bytes{labels}")) > records);
    }
    let group = |metric: &str, labels: &str| {
        let labels = labels.replace('}', r#",group="g"}"#);
        scrape.get(&format!("stampede_stream_group_{metric}{labels}"))
    };
    assert_eq!((group("lag", more), group("members", more)), (20.0, 1.0));
    assert_eq!(group("lag", most), 60.0);
    for total in ["streams", "stream_groups"] {
        assert_eq!(scrape.get(&format!("stampede_{total}")), 3.0);
        assert_eq!(scrape.get(&format!("stampede_{total}_omitted")), 1.0);
    }
    server.stop().await;
}
