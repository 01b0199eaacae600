//! Memory for large requests and answers, which all tenants share.

use http_edge::Edge;
use http_edge::limits::Limits;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{HANG, Server};
use crate::large_bodies::text;
use crate::sqs_keys::{signed, with_tenant_and};

/// Most of a large request, which never ends.
async fn begin(server: &Server, path: &str, head: &str) -> TcpStream {
    let mut stream = server.connect().await;
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\n{head}content-length: 4194304\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("it is read");
    stream.write_all(text((4 << 20) - 16).as_bytes()).await.expect("it is read");
    stream
}

#[tokio::test]
async fn one_tenants_large_requests_leave_room_for_anothers() {
    let change = |edge: &mut Edge| {
        edge.limits = Limits {
            // Of one tenant as much as is begun here, and no other beside it.
            large_bytes_max: 9 << 20,
            body_stall_timeout: HANG * 2,
            body_timeout: HANG * 2,
            ..Limits::default()
        };
    };
    let (server, key) = with_tenant_and(change).await;
    let acme = format!("content-type: application/json\r\nauthorization: Bearer {key}\r\n");
    let make = r#"{"name": "jobs", "largeBodies": true}"#;
    assert_eq!(server.send("POST", "/v1/queues", &acme, make).await.status, 201);
    server.large("jobs").await;
    let path = "/v1/queues/jobs/messages";
    let large = json!({"body": text((1 << 20) + (512 << 10))}).to_string();
    // Its owner is known before it has come, and a signature only afterwards.
    for (to, head) in [(path, &acme), ("/sqs", &signed(&key, "SendMessage", ""))] {
        let slow = begin(&server, to, head).await;
        let full = async { while server.send("POST", path, &acme, &large).await.status != 503 {} };
        timeout(HANG, full).await.expect("acme has its share");
        assert_eq!(server.post(path, &large).await.status, 202, "there is room for others");
        drop(slow);
        let free = async { while server.send("POST", path, &acme, &large).await.status != 202 {} };
        timeout(HANG, free).await.expect("there is room again");
    }
    server.stop().await;
}
