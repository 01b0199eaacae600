//! Bodies that are wrong, too large or unfinished.

use crate::harness::Server;

#[tokio::test]
async fn a_good_body_is_taken() {
    let server = Server::start().await;
    let answer = server.post("/t/things", r#"{"name":"a","count":1}"#).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let odd_type = "Content-Type:  Application/JSON ; charset=utf-8\r\n";
    let answer = server.send("POST", "/t/things", odd_type, r#"{"name":"a","count":1}"#).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    server.stop().await;
}

#[tokio::test]
async fn bad_json_is_refused_with_the_place() {
    let server = Server::start().await;
    let deep =
        format!(r#"{{"name":"a","count":1,"any":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let cases: &[(&str, &str)] = &[
        ("", "the body is empty"),
        (" \n", "the body is empty"),
        ("{", "not JSON: it ends too soon, at line 1 column 1"),
        (r#"{"name":"a","count":1"#, "not JSON: it ends too soon"),
        (r#"{"name":"a","count":1}x"#, "follows the end"),
        (r#"{"name":"a","count":1} {}"#, "follows the end"),
        (r#"{"name":"a"}"#, "missing field `count`"),
        (r#"{"name":"a","count":1,"colour":2}"#, "unknown field `colour`"),
        (r#"{"name":"a","count":1,"count":2}"#, "duplicate field `count`"),
        (r#"{"name":7,"count":1}"#, "at name: it must be a string, not the number 7"),
        (r#"{"name":"a","count":"1"}"#, "at count: it must be a whole number from 0 to 4294967295"),
        (r#"{"name":"a","count":-1}"#, "not the number -1"),
        (r#"{"name":"a","count":1.5}"#, "at count: it must be a whole number"),
        (r#"{"name":"a","count":4294967296}"#, "not the number 4294967296"),
        (
            r#"{"name":"a","count":99999999999999999999999999}"#,
            "at count: it must be a whole number",
        ),
        (r#"{"name":"a","count":1e400}"#, "out of range"),
        (r#"{"name":"a","count":NaN}"#, "at count: the body is not JSON: expected value at line 1"),
        (
            r#"{"name":"a","count":1,"inner":[{"x":1},{"x":"y"}]}"#,
            "at inner[1].x: it must be a number, not the string \"y\"",
        ),
        (r#"{"name":"a","count":1,"inner":[{"x":1,"y":2}]}"#, "at inner[0]"),
        (r#"{"name":null,"count":1}"#, "at name: it must be a string, not null"),
        (r#"{"name":"\ud800","count":1}"#, "at name: "),
        ("{\"name\":\"a\u{1}\",\"count\":1}", "control character"),
        ("[]", "must be an object"),
        ("null", "the body must be an object, not null"),
        ("42", "the body must be an object, not the number 42"),
        (&deep, "nested too deep"),
    ];
    for (body, part) in cases {
        let answer = server.post("/t/things", body).await;
        let detail = answer.problem(400, "invalid-body");
        let shown: String = body.chars().take(80).collect();
        assert!(detail.contains(part), "{shown}: {detail}");
        assert!(detail.len() < 500, "{shown}: {detail}");
    }
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_are_refused() {
    let server = Server::start().await;
    for bad in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf8\x88\x80\x80"] {
        let body = [br#"{"name":""#, bad, br#"","count":1}"#].concat();
        let head = format!(
            "POST /t/things HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let answer = server.raw([head.as_bytes(), &body].concat()).await;
        answer.problem(400, "invalid-body");
    }
    server.stop().await;
}

#[tokio::test]
async fn other_media_types_are_refused() {
    let server = Server::start().await;
    let good = r#"{"name":"a","count":1}"#;
    for headers in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/jsonx\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: \r\n",
        "content-type: \u{e9}\r\n",
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
    ] {
        let answer = server.send("POST", "/t/things", headers, good).await;
        answer.problem(415, "unsupported-media-type");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_optional_body_may_be_absent_but_not_wrong() {
    let server = Server::start().await;
    assert_eq!(server.send("PUT", "/t/things", "", "").await.body, "nothing");
    let json = "content-type: application/json\r\n";
    let good = r#"{"name":"a","count":1}"#;
    assert_eq!(server.send("PUT", "/t/things", json, good).await.body, "a");
    server.send("PUT", "/t/things", json, "{").await.problem(400, "invalid-body");
    server.send("PUT", "/t/things", "", good).await.problem(415, "unsupported-media-type");
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_and_while_it_is_read() {
    let server = Server::start().await;
    let limit = 1 << 20;
    let fits = "x".repeat(limit);
    assert_eq!(server.send("POST", "/t/raw", "", &fits).await.body, limit.to_string());
    assert_eq!(server.send("POST", "/t/large", "", &fits.repeat(4)).await.status, 200);

    // Said to be too large: refused without reading any of it.
    let head = format!("POST /t/raw HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", limit + 1);
    server.raw(&head).await.problem(413, "payload-too-large");
    let head =
        format!("POST /t/raw HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", u64::MAX / 2);
    server.raw(&head).await.problem(413, "payload-too-large");
    // And with all of it on the way: the answer still arrives.
    let answer = server.send("POST", "/t/raw", "", &"x".repeat(10 << 20)).await;
    let json = answer.json();
    answer.problem(413, "payload-too-large");
    assert_eq!(json["limitBytes"], limit);
    assert!(answer.head.contains("connection: close"), "{answer:?}");

    // Not said: refused when it is reached.
    let mut chunks =
        "POST /t/raw HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    for _ in 0..40 {
        chunks += "10000\r\n";
        chunks += &"x".repeat(0x10000);
        chunks += "\r\n";
    }
    server.raw(&chunks).await.problem(413, "payload-too-large");
    server.send("POST", "/t/large", "", &fits.repeat(5)).await.problem(413, "payload-too-large");
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_expects_to_be_refused_never_sends_its_body() {
    let server = Server::start().await;
    let head = |len| {
        format!(
            "POST /t/raw HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n"
        )
    };
    server.raw(head(9 << 20)).await.problem(413, "payload-too-large");
    let answer = server.raw(head(2) + "ab").await;
    assert_eq!(answer.status, 100, "{answer:?}");
    assert!(answer.body.starts_with("HTTP/1.1 200"), "{answer:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_breaks_off_harms_nobody() {
    use tokio::io::AsyncWriteExt;
    let server = Server::start().await;
    for start in [
        "POST /t/things HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"na",
        "POST /t/things HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{",
    ] {
        let mut stream = server.connect().await;
        stream.write_all(start.as_bytes()).await.expect("it is read");
        stream.shutdown().await.expect("half closed");
        let answer = crate::harness::exchange(stream, b"").await;
        // hyper gives up on a connection whose client has gone; an answer, if any, is a 4xx.
        assert!(answer.status == 0 || answer.status == 400, "{answer:?}");
        server.is_alive().await;
    }
    server.stop().await;
}

#[tokio::test]
async fn chunks_that_are_not_are_refused() {
    let server = Server::start().await;
    for chunk in [
        "zz\r\nx\r\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
        "1\r\nxx\r\n0\r\n\r\n",
        "1 1\r\nx\r\n",
        "\r\n",
    ] {
        let answer = server
            .raw(format!(
                "POST /t/raw HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"
            ))
            .await;
        answer.problem(400, "bad-request");
        assert!(answer.head.contains("connection: close"), "{answer:?}");
    }
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_is_visible_ascii() {
    let server = Server::start().await;
    let once = async |header: &str, body: &str| server.send("POST", "/t/once", header, body).await;
    assert_eq!(once("", "a").await.body, "None");
    let first = once("idempotency-key: k\r\n", "a").await.body;
    assert_eq!(first, once("Idempotency-Key: k\r\n", "a").await.body);
    assert_ne!(first, once("idempotency-key: k\r\n", "b").await.body);
    assert_ne!(first, once("idempotency-key: l\r\n", "a").await.body);
    let longest = format!("idempotency-key: {}\r\n", "k".repeat(255));
    assert_eq!(once(&longest, "a").await.status, 200);
    let too_long = format!("idempotency-key: {}\r\n", "k".repeat(256));
    for bad in [
        "idempotency-key: \r\n",
        "idempotency-key: a b\r\n",
        "idempotency-key: \u{e9}\r\n",
        "idempotency-key: a\r\nidempotency-key: a\r\n",
        &too_long,
    ] {
        once(bad, "a").await.problem(400, "invalid-header");
    }
    server.stop().await;
}
