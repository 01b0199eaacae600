//! What a look says of messages that nobody can receive now.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::harness::Server;

impl Server {
    async fn in_state(&self, state: &str) -> Vec<Value> {
        let looked = self.get(&format!("/v1/queues/jobs/messages?state={state}")).await;
        Server::ok(&looked, 200)["messages"].as_array().expect("a list").clone()
    }
}

/// Milliseconds from when a message was sent to a time that is said of it.
#[track_caller]
fn after(message: &Value, field: &str) -> u64 {
    let ms = |field: &str| {
        let text = message[field].as_str().unwrap_or_else(|| panic!("no {field}: {message}"));
        http_edge::time::parse(text).expect("a time")
    };
    ms(field) - ms("sentAt")
}

#[track_caller]
fn about(ms: u64, seconds: u64) {
    assert!((seconds * 1000..(seconds + 60) * 1000).contains(&ms), "{ms} ms are not {seconds} s");
}

#[tokio::test]
async fn a_look_says_when_a_delay_and_a_lease_end() {
    for mode in ["STANDARD", "FIFO"] {
        let (server, ahead_ms) = Server::start_product(1).await;
        server.make(json!({"name": "jobs", "mode": mode})).await;
        let group = |name: &str| if mode == "FIFO" { json!(name) } else { Value::Null };
        let delayed = json!({"body": "d", "delaySeconds": 5000, "messageGroupId": group("d")});
        server.send_to("jobs", delayed).await;
        server.send_to("jobs", json!({"body": "a", "messageGroupId": group("a")})).await;
        let visible = server.in_state("visible").await;
        assert_eq!((visible[0].get("visibleAt"), visible[0].get("leaseEndsAt")), (None, None));
        let delayed = server.in_state("delayed").await;
        assert_eq!((delayed.len(), after(&delayed[0], "visibleAt")), (1, 5_000_000), "{mode}");
        assert_eq!(delayed[0].get("leaseEndsAt"), None);

        let ask = json!({"visibilityTimeoutSeconds": 100});
        let mut got = server.receive("jobs", ask).await.remove(0);
        let leased = server.in_state("inflight").await;
        about(after(&leased[0], "leaseEndsAt"), 100);
        assert_eq!((leased.len(), leased[0].get("visibleAt")), (1, None), "{mode}");
        for seconds in [1000, 400] {
            let ask = json!({"visibilityTimeoutSeconds": seconds});
            assert_eq!(server.settle("jobs", &got, "change-visibility", ask).await.status, 204);
            about(after(&server.in_state("inflight").await[0], "leaseEndsAt"), seconds);
        }

        // It waits to be tried again, or is back when its lease is over.
        let nack = json!({"delaySeconds": 2000});
        assert_eq!(server.settle("jobs", &got, "nack", nack).await.status, 204);
        let delayed = server.in_state("delayed").await;
        let retried = delayed.iter().find(|message| message["body"] == "a").expect("it waits");
        about(after(retried, "visibleAt"), 2000);
        ahead_ms.fetch_add(2_100_000, Ordering::SeqCst);
        got = server.receive("jobs", json!({"waitSeconds": 20})).await.remove(0);
        assert_eq!(got["body"], "a");
        about(after(&server.in_state("inflight").await[0], "leaseEndsAt"), 2130);
        server.stop().await;
    }
}
