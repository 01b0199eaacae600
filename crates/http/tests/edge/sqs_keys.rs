//! Whose requests of SQS are, by the key that they are signed with.

use hmac::{Hmac, KeyInit, Mac};
use http_edge::Edge;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::harness::Server;

/// The head of an SQS request, signed with this key.
pub(crate) fn signed(key: &str, action: &str, body: &str) -> String {
    let date = amz_date();
    let day = &date[..8];
    let hash = |bytes: &[u8]| hex(&Sha256::digest(bytes));
    let names = "host;x-amz-date;x-amz-target";
    let target = format!("AmazonSQS.{action}");
    let request = format!(
        "POST\n/sqs\n\nhost:x\nx-amz-date:{date}\nx-amz-target:{target}\n\n{names}\n{}",
        hash(body.as_bytes())
    );
    let scope = [day, "us-east-1", "sqs", "aws4_request"];
    let joined = scope.join("/");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{joined}\n{}", hash(request.as_bytes()));
    let mac = |key: &[u8], text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length will do");
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().to_vec()
    };
    let first = format!("AWS4{key}").into_bytes();
    let signing = scope.iter().fold(first, |key, part| mac(&key, part));
    let signature = hex(&mac(&signing, &text));
    format!(
        "content-type: application/x-amz-json-1.0\r\nx-amz-target: {target}\r\n\
         x-amz-date: {date}\r\nauthorization: AWS4-HMAC-SHA256 Credential={key}/{joined}, \
         SignedHeaders={names}, Signature={signature}\r\n"
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Now, as signatures have it: `20130524T000000Z`.
fn amz_date() -> String {
    let now = http_edge::time::rfc3339(wall_ms());
    let date: String = now.as_str()[..19].chars().filter(|c| !"-:".contains(*c)).collect();
    format!("{date}Z")
}

fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("before the year 10000")
}

/// The server in `--dev`, and a key of its tenant `acme`.
pub(crate) async fn with_tenant() -> (Server, String) {
    with_tenant_and(|_| {}).await
}

pub(crate) async fn with_tenant_and(change: impl FnOnce(&mut Edge)) -> (Server, String) {
    let (server, _) = Server::start_product_with(1, change).await;
    Server::ok(&server.post("/v1/tenants", r#"{"name": "acme"}"#).await, 201);
    let head = "content-type: application/json\r\nx-tenant: acme\r\n";
    let ask = r#"{"name": "worker", "scopes": ["admin", "read"]}"#;
    let made = Server::ok(&server.send("POST", "/v1/keys", head, ask).await, 201);
    let key = made["key"].as_str().expect("a key").to_owned();
    (server, key)
}

#[tokio::test]
async fn a_key_of_sqs_counts_in_dev_and_anything_else_is_the_developer() {
    let (server, key) = with_tenant().await;
    let ask = json!({"QueueName": "jobs"}).to_string();
    for (access_key, tenant) in [(key.as_str(), "acme"), ("test", "default")] {
        let head = signed(access_key, "CreateQueue", &ask);
        let made = Server::ok(&server.send("POST", "/sqs", &head, &ask).await, 200);
        assert_eq!(made["QueueUrl"], format!("http://x/sqs/{tenant}/jobs"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_key_of_sqs_that_is_wrong_is_refused_in_dev_as_well() {
    let (server, key) = with_tenant().await;
    let ask = json!({"QueueName": "jobs"}).to_string();
    let unknown = format!("sk_{}", "0".repeat(48));
    let cut_off = &key[..20];
    let good = |key: &str| signed(key, "CreateQueue", &ask);
    for (head, code) in [
        (signed(&key, "CreateQueue", "another body"), "InvalidSignatureException"),
        (good(&unknown), "UnrecognizedClientException"),
        (good(cut_off), "UnrecognizedClientException"),
    ] {
        let refused = server.send("POST", "/sqs", &head, &ask).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.body.contains(code), "{refused:?}");
    }
    server.get("/v1/queues/jobs").await.problem(404, "not-found");
    server.stop().await;
}

/// What signs these headers with no key at all, in the name of this one.
fn signed_wrongly(key: &str, names: &str) -> String {
    let date = amz_date();
    format!(
        "x-amz-date: {date}\r\nauthorization: AWS4-HMAC-SHA256 \
         Credential={key}/{}/us-east-1/sqs/aws4_request, SignedHeaders={names}, Signature={}\r\n",
        &date[..8],
        "0".repeat(64)
    )
}

#[tokio::test]
async fn a_signature_that_is_wrong_is_told_of_a_key_that_there_is_and_no_other() {
    let (server, key) = with_tenant().await;
    let unknown = format!("sk_{}", "0".repeat(48));
    let json = "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.ListQueues\r\n";
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for (key, code, in_json) in [
        (&key, "SignatureDoesNotMatch", "InvalidSignatureException"),
        (&unknown, "InvalidClientTokenId", "UnrecognizedClientException"),
    ] {
        let head = signed_wrongly(key, "host;x-amz-date;x-amz-target");
        let refused = server.send("POST", "/sqs", &format!("{json}{head}"), "{}").await;
        assert_eq!(refused.status, 403, "{refused:?}");
        let query_error = format!("x-amzn-query-error: {};sender", code.to_lowercase());
        assert!(refused.head.contains(&query_error), "{refused:?}");
        assert!(refused.body.contains(in_json), "{refused:?}");

        let head = signed_wrongly(key, "host;x-amz-date");
        let ask = "Action=ListQueues&Version=2012-11-05";
        let refused = server.send("POST", "/sqs", &format!("{form}{head}"), ask).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.body.contains(&format!("<Code>{code}</Code>")), "{refused:?}");
        let invalid = "The security token included in the request is invalid.";
        assert_eq!(refused.body.contains(invalid), code == "InvalidClientTokenId", "{refused:?}");
    }
    server.stop().await;
}
