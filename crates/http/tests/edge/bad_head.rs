//! Request lines and headers that are wrong, too large, or meant to mislead.

use crate::harness::Server;

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let server = Server::start().await;
    for path in ["/nope", "/healthz/", "//healthz", "/t/names/", "/t/pairs/a", "/%00", "/t/%ff"] {
        server.get(path).await.problem(404, "unknown-path");
    }
    let answer = server.send("DELETE", "/healthz", "", "").await;
    let detail = answer.problem(405, "method-not-allowed");
    assert_eq!(detail, "this path does not have DELETE; it has GET, HEAD, OPTIONS");
    assert!(answer.head.contains("allow: get, head, options"), "{answer:?}");
    for method in ["POST", "PUT", "PATCH", "TRACE", "BREW", "get"] {
        server.send(method, "/healthz", "", "").await.problem(405, "method-not-allowed");
    }
    let answer = server.send("PATCH", "/t/things", "", "").await;
    assert!(answer.head.contains("allow: options, post, put"), "{answer:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_verb_that_there_is_not_is_told_as_such() {
    let (server, _) = Server::start_product(1).await;
    let detail = server.post("/v1/queues/jobs:purg", "").await.problem(405, "method-not-allowed");
    assert!(detail.contains(r#"it has no verb "purg" (there are purge, redrive), so"#), "{detail}");
    let all = "ack, batch, change-visibility, nack, receive, release";
    let settling = "ack, change-visibility, nack, release";
    for (path, expect) in [
        ("messages:recieve", format!(r#"it has no verb "recieve" (there are {all})"#)),
        ("messages/handle:akc", format!(r#"it has no verb "akc" (there are {settling})"#)),
        ("messages/handle:", format!(r#"it has no verb "" (there are {settling})"#)),
        ("messages/handle", format!("it lacks a verb after a colon: {settling}")),
    ] {
        let answer = server.post(&format!("/v1/queues/jobs/{path}"), "{}").await;
        let detail = answer.problem(404, "unknown-path");
        assert_eq!(detail, format!("no operation has this path: {expect}; see /docs"), "{path}");
    }
    let detail = server.post("/v1/queues/jobs/massages:x", "").await.problem(404, "unknown-path");
    assert_eq!(detail, "no operation has this path; see /docs");
    // These verbs there are, with another method.
    for (method, path) in [
        ("GET", "/v1/queues/jobs/messages:receive"),
        ("PUT", "/v1/queues/jobs:purge"),
        ("GET", "/v1/queues/jobs:purge"),
        ("DELETE", "/v1/queues/jobs:redrive"),
        ("GET", "/v1/streams/clicks/groups/readers:fetch"),
        ("GET", "/v1/queues/jobs/messages/handle:ack"),
    ] {
        let answer = server.send(method, path, "", "").await;
        let detail = answer.problem(405, "method-not-allowed");
        let expect = format!("this path does not have {method}; it has OPTIONS, POST");
        assert_eq!(detail, expect, "{path}");
        assert!(answer.head.contains("allow: options, post\r\n"), "{answer:?}");
    }
    // Where there are no verbs, a colon is a part of the name like any other.
    let headers = "x-user: ann\r\n";
    let removed = server.send("DELETE", "/v1/users/ann/searches/std:purge", headers, "").await;
    assert_eq!(removed.status, 204, "{removed:?}");
    server.stop().await;
}

#[tokio::test]
async fn head_and_options_are_answered() {
    let server = Server::start().await;
    let answer = server.send("HEAD", "/healthz", "", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert!(answer.head.contains("content-length: 2"), "{answer:?}");
    let answer = server.send("HEAD", "/nope", "", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (404, ""));
    let answer = server.send("OPTIONS", "/t/things", "", "").await;
    assert_eq!(answer.status, 204);
    assert!(answer.head.contains("allow: options, post, put"), "{answer:?}");
    assert_eq!(server.send("OPTIONS", "*", "", "").await.status, 204);
    server.send("OPTIONS", "/nope", "", "").await.problem(404, "unknown-path");
    server.send("CONNECT", "example.com:443", "", "").await.problem(400, "bad-request");
    server.stop().await;
}

#[tokio::test]
async fn absolute_addresses_and_http_1_0_work() {
    let server = Server::start().await;
    assert_eq!(server.get("http://example.com/healthz").await.body, "ok");
    assert_eq!(server.raw("GET /healthz HTTP/1.0\r\n\r\n").await.body, "ok");
    server.stop().await;
}

/// Each of these may be understood in two ways by two servers in a row.
#[tokio::test]
async fn smuggling_is_refused_and_the_connection_closed() {
    let server = Server::start().await;
    let inner = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let heads = [
        "content-length: 5\r\ncontent-length: 6\r\n",
        "content-length: 5, 6\r\n",
        "content-length: +5\r\n",
        "content-length: -1\r\n",
        "content-length: 0x5\r\n",
        "content-length: 5 5\r\n",
        "content-length: 99999999999999999999\r\n",
        "transfer-encoding: identity\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding : chunked\r\n",
        "content-length : 5\r\n",
        "a: b\r\n folded: c\r\n",
        "a: b\r\n\tfolded\r\n",
        "a\r\n",
        ": b\r\n",
        "a b: c\r\n",
        "a: b\0c\r\n",
        "a: b\rc\r\n",
        "\u{e9}: b\r\n",
    ];
    for head in heads {
        let answer =
            server.raw(format!("POST /t/raw HTTP/1.1\r\nhost: x\r\n{head}\r\n{inner}")).await;
        answer.problem(400, "bad-request");
        assert!(!answer.body.contains("HTTP/1.1"), "{head:?} was followed by another: {answer:?}");
    }
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn a_length_and_an_encoding_together_do_not_hide_a_request() {
    let server = Server::start().await;
    let inner = "GET /t/names/smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    for (first, second) in [
        ("content-length: 4", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 4"),
        ("Content-Length: 4", "TRANSFER-ENCODING: chunked"),
        ("transfer-encoding: chunked", "transfer-encoding: chunked"),
        ("transfer-encoding: gzip, chunked", "a: b"),
    ] {
        let bytes = format!(
            "POST /t/raw HTTP/1.1\r\nhost: x\r\n{first}\r\n{second}\r\n\r\n0\r\n\r\n{inner}"
        );
        let answer = server.raw(bytes).await;
        answer.problem(400, "bad-request");
        assert!(!answer.body.contains("smuggled"), "{answer:?}");
        assert!(answer.head.contains("connection: close"), "{answer:?}");
    }
    // Alone, an encoding is fine, whatever the body holds.
    let body = "12\r\n\ncontent-length: 4\r\n0\r\n\r\n";
    let answer = server
        .raw(format!(
            "POST /t/raw HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{body}"
        ))
        .await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "18"));
    server.stop().await;
}

#[tokio::test]
async fn request_lines_that_are_not_are_refused() {
    let server = Server::start().await;
    for line in [
        "GET",
        "GET /",
        "GET / HTTP/9.9",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 extra",
        "GET /\u{1} HTTP/1.1",
        "G@T / HTTP/1.1",
        "\u{e9} / HTTP/1.1",
        "GET nope HTTP/1.1",
        "\x16\x03\x01\x02",
    ] {
        let answer = server.raw(format!("{line}\r\nhost: x\r\n\r\n")).await;
        answer.problem(400, "bad-request");
    }
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn large_heads_are_refused_while_they_come() {
    let server = Server::start().await;
    let start = "GET /healthz HTTP/1.1\r\nhost: x\r\n";
    let one = format!("{start}a: {}\r\n\r\n", "b".repeat(10 << 20));
    server.raw(one).await.problem(431, "header-too-large");
    let many = format!("{start}{}\r\n", "a: b\r\n".repeat(1_000_000));
    server.raw(many).await.problem(431, "header-too-large");
    let count = format!("{start}{}\r\n", "a: b\r\n".repeat(101));
    server.raw(count).await.problem(431, "header-too-large");
    let fits = format!("{start}connection: close\r\n{}\r\n", "a: b\r\n".repeat(90));
    assert_eq!(server.raw(fits).await.status, 200);
    server.get(&format!("/{}", "a".repeat(9 << 10))).await.problem(414, "uri-too-long");
    server.get(&format!("/healthz?{}", "a".repeat(9 << 10))).await.problem(414, "uri-too-long");
    let endless = server.get(&format!("/{}", "a".repeat(10 << 20))).await;
    assert!(matches!(endless.status, 414 | 431), "{endless:?}");
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn refusals_on_a_used_connection_are_answers_too() {
    let server = Server::start().await;
    let good = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let answer = server.raw(format!("{good}{good}BAD\r\n\r\n{good}")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body.matches("HTTP/1.1 200").count(), 1, "{answer:?}");
    assert_eq!(answer.body.matches("HTTP/1.1 400").count(), 1, "{answer:?}");
    server.stop().await;
}
