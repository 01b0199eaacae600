//! With `--dev` no key is needed, and any page that a developer opens can have the browser ask.

use serde_json::json;

use crate::harness::Server;
use crate::sqs_keys::with_tenant;

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

#[tokio::test]
async fn a_page_of_another_site_can_do_nothing_without_a_key() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    server.send_to("jobs", json!({"body": 1})).await;
    let delete = "Action=DeleteQueue&QueueUrl=jobs";
    for from in
        ["origin: http://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n"]
    {
        let headers = format!("{from}{FORM}");
        server.send("POST", "/v1/queues/jobs:purge", &headers, "").await.problem(403, "forbidden");
        server.send("GET", "/q/jobs?n=10", from, "").await.problem(403, "forbidden");
        let sqs = server.send("POST", "/", &headers, delete).await;
        assert_eq!(sqs.status, 403, "{sqs:?}");
        // What everybody may see does no harm.
        assert_eq!(server.send("GET", "/readyz", from, "").await.status, 200);
    }
    // A name that its owner has led here.
    let led = "GET /q/jobs HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n".to_owned();
    server.raw(led).await.problem(403, "forbidden");
    let left = server.look("jobs").await;
    assert_eq!((&left["visible"], &left["inflight"]), (&json!(1), &json!(0)));
    let near = "origin: http://localhost:3000\r\n";
    assert_eq!(server.send("POST", "/v1/queues/jobs:purge", near, "").await.status, 204);
    server.stop().await;
}

#[tokio::test]
async fn who_shows_a_key_may_ask_from_anywhere() {
    let (server, key) = with_tenant().await;
    let headers = format!("authorization: Bearer {key}\r\norigin: https://app.example\r\n");
    assert_eq!(server.send("GET", "/v1/queues", &headers, "").await.status, 200);
    server.stop().await;
}
