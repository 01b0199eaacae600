//! The names of metrics, as the documentation and its alerts have them.

use std::collections::BTreeSet;

use serde_json::json;

use crate::harness::Server;

const ALERTS: &str = include_str!("../../../../docs/alerts.yml");
const LISTED: &str = include_str!("../../../../docs/metrics.md");

/// What reads as the name of a metric.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| ["stampede_", "http_", "otlp_"].iter().any(|p| word.starts_with(p));
    words.filter(ours).collect()
}

/// Each metric that is served, and its type.
fn served(page: &str) -> BTreeSet<(&str, &str)> {
    page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

/// A server on which everything has happened that metrics tell of, a checkpoint as well.
async fn with_traffic() -> Server {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs", "maxMessages": 1})).await;
    server.send_to("jobs", json!({"body": 1})).await;
    let full = server.post("/v1/queues/jobs/messages", r#"{"body": 2}"#).await;
    full.problem(429, "quota-exceeded");
    let got = server.receive("jobs", json!({})).await.remove(0);
    assert_eq!(server.settle("jobs", &got, "ack", json!({})).await.status, 204);
    Server::ok(&server.post("/v1/streams", r#"{"name": "clicks"}"#).await, 201);
    let records = r#"{"records": [{"value": 1}]}"#;
    Server::ok(&server.post("/v1/streams/clicks/records", records).await, 200);
    let fetch = r#"{"member": "m"}"#;
    Server::ok(&server.post("/v1/streams/clicks/groups/g:fetch", fetch).await, 200);
    server.restart_product().await.0
}

#[tokio::test]
async fn what_the_documentation_calls_a_metric_is_served_and_the_other_way_round() {
    let server = with_traffic().await;
    let page = server.get("/metrics").await.body;
    let served = served(&page);
    let is_served = |name: &str| {
        let base = name.strip_suffix("_bucket").unwrap_or(name);
        served.iter().any(|(known, kind)| *known == name || *kind == "histogram" && *known == base)
    };
    for (file, text) in [("alerts.yml", ALERTS), ("metrics.md", LISTED)] {
        assert!(names(text).len() > 10, "{file}");
        let lost: Vec<_> = names(text).into_iter().filter(|name| !is_served(name)).collect();
        assert!(lost.is_empty(), "{file} tells of {lost:?}");
    }
    let listed = names(LISTED);
    let ours = names(&page);
    let unlisted: Vec<_> =
        served.iter().filter(|(name, _)| ours.contains(name) && !listed.contains(name)).collect();
    assert!(unlisted.is_empty(), "metrics.md does not tell of {unlisted:?}");
    server.stop().await;
}
