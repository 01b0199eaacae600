//! Paths and queries.

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
        ("limit=ten", "limit"),
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
