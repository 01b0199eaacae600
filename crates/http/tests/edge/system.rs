//! The system's own routes.

use crate::harness::Server;

#[tokio::test]
async fn the_system_routes_answer() {
    let server = Server::start().await;
    server.is_alive().await;
    let root = server.get("/").await;
    assert!(root.status == 200 && root.body.contains("/docs"), "{root:?}");
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &true.into()));
    let document = server.get("/openapi.json").await;
    assert!(document.head.contains("content-type: application/json"));
    assert_eq!(document.json()["openapi"], "3.1.0");
    assert!(document.json()["paths"]["/t/names/{name}:shout"]["post"].is_object());
    let docs = server.get("/docs").await;
    assert!(docs.head.contains("content-type: text/html"));
    assert!(docs.body.contains("curl -X POST"), "{}", docs.body);
    server.stop().await;
}

#[tokio::test]
async fn a_node_that_goes_down_is_not_ready() {
    let server = Server::start().await;
    server.node.shutdown().await;
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &false.into()));
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn a_panic_is_a_problem_and_the_connection_goes_on() {
    let server = Server::start().await;
    let answer = server
        .raw("GET /t/panic HTTP/1.1\r\nhost: x\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains(r#""type":"internal""#), "{answer:?}");
    assert!(!answer.body.contains("on purpose"), "the panic's words are for the log");
    assert!(answer.body.ends_with("\r\n\r\nok"), "{answer:?}");
    server.stop().await;
}
