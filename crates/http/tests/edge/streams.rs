//! Streams over HTTP, as a user has them.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::harness::{Answer, Server};

pub(crate) const JSON: &str = "content-type: application/json\r\n";

impl Server {
    pub(crate) async fn stream(&self, settings: Value) -> Value {
        Server::ok(&self.post("/v1/streams", &settings.to_string()).await, 201)
    }

    pub(crate) async fn append(&self, stream: &str, records: Value) -> Vec<Value> {
        let path = format!("/v1/streams/{stream}/records");
        let body = json!({"records": records}).to_string();
        let answer = Server::ok(&self.post(&path, &body).await, 200);
        answer["results"].as_array().expect("a list").clone()
    }

    pub(crate) async fn group(&self, stream: &str, group: &str, verb: &str, body: Value) -> Answer {
        let path = format!("/v1/streams/{stream}/groups/{group}:{verb}");
        self.post(&path, &body.to_string()).await
    }

    pub(crate) async fn fetch(&self, stream: &str, group: &str, member: &str) -> Value {
        let ask = json!({"member": member, "maxRecords": 1000});
        Server::ok(&self.group(stream, group, "fetch", ask).await, 200)
    }

    pub(crate) async fn commit(
        &self,
        stream: &str,
        group: &str,
        member: &str,
        got: &Value,
    ) -> Answer {
        let body = json!({"member": member, "epoch": got["epoch"], "offsets": got["nextOffsets"]});
        self.group(stream, group, "commit", body).await
    }

    pub(crate) async fn look_at(&self, path: &str) -> Value {
        Server::ok(&self.get(path).await, 200)
    }

    pub(crate) async fn lag(&self, stream: &str, group: &str) -> Value {
        self.look_at(&format!("/v1/streams/{stream}/groups/{group}")).await["lag"].clone()
    }
}

pub(crate) fn values(got: &Value) -> Vec<Value> {
    let records = got["records"].as_array().expect("records");
    records.iter().map(|record| record["value"].clone()).collect()
}

pub(crate) fn numbers(count: u64) -> Value {
    (0..count).map(|n| json!({"value": n})).collect()
}

#[tokio::test]
async fn records_are_appended_fetched_and_committed() {
    let (server, _) = Server::start_product(2).await;
    let made = server.stream(json!({"name": "clicks", "partitions": 1})).await;
    assert!(made["streamId"].as_str().expect("an id").starts_with("s_"), "{made}");
    let records = json!([
        {"key": "ann", "value": {"n": 1.50}},
        {"value": "text"},
        {"key": "bob", "value": null},
    ]);
    let results = server.append("clicks", records).await;
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index, "{result}");
        assert_eq!((&result["partition"], &result["offset"]), (&json!(0), &json!(index)));
        assert!(result["timestamp"].is_string() && result["error"].is_null(), "{result}");
    }
    let got = server.fetch("clicks", "g", "m").await;
    assert_eq!(got["partitions"], json!([0]), "{got}");
    assert_eq!(values(&got), [json!({"n": 1.50}), json!("text"), Value::Null]);
    let second = &got["records"][1];
    assert_eq!((&second["offset"], &second["key"]), (&json!(1), &Value::Null), "{second}");
    assert_eq!(second["timestamp"], results[1]["timestamp"]);
    assert_eq!(got["nextOffsets"], json!({"0": 3}));

    // Until it is committed it comes again, unless the member says where it is.
    assert_eq!(server.fetch("clicks", "g", "m").await["records"], got["records"]);
    let ask = json!({"member": "m", "epoch": got["epoch"], "offsets": {"0": 2}});
    let ahead = Server::ok(&server.group("clicks", "g", "fetch", ask).await, 200);
    assert_eq!(values(&ahead), [Value::Null]);
    let committed = Server::ok(&server.commit("clicks", "g", "m", &got).await, 200);
    assert_eq!(committed, json!({"offsets": {"0": 3}}));
    assert_eq!(values(&server.fetch("clicks", "g", "m").await), [] as [Value; 0]);
    // An older commit that comes late changes nothing.
    let late = json!({"member": "m", "epoch": got["epoch"], "offsets": {"0": 1}});
    let late = Server::ok(&server.group("clicks", "g", "commit", late).await, 200);
    assert_eq!(late["offsets"], json!({"0": 3}));

    // Another group begins at the beginning, and whoever has none sees everything, too.
    assert_eq!(values(&server.fetch("clicks", "h", "m").await).len(), 3);
    let read = server.look_at("/v1/streams/clicks/partitions/0/records?offset=1&limit=1").await;
    assert_eq!(values(&read), ["text"]);
    assert_eq!(
        (&read["start"], &read["end"], &read["nextOffset"]),
        (&json!(0), &json!(3), &json!(2)),
        "{read}"
    );
    server.stop().await;
}

#[tokio::test]
async fn who_reads_past_the_end_is_told_where_to_go_on() {
    let (server, ahead_ms) = Server::start_product(1).await;
    server.stream(json!({"name": "s", "retentionSeconds": 60})).await;
    let read = async |offset: u64| {
        let path = format!("/v1/streams/s/partitions/0/records?offset={offset}");
        let page = server.look_at(&path).await;
        let numbers = ["start", "end", "nextOffset"].map(|field| page[field].as_u64());
        (numbers.map(|number| number.expect("a number")), values(&page).len())
    };
    assert_eq!(read(9).await, ([0, 0, 0], 0), "there is nothing yet");
    server.append("s", numbers(3)).await;
    assert_eq!(read(0).await, ([0, 3, 3], 3));
    for past in [3, 4, u64::MAX] {
        assert_eq!(read(past).await, ([0, 3, 3], 0), "{past}");
    }
    // Who goes on there misses nothing of what comes.
    server.append("s", numbers(2)).await;
    assert_eq!(read(3).await, ([0, 5, 5], 2));
    // What is kept no more is on the other side of what is.
    ahead_ms.fetch_add(61_000, Ordering::SeqCst);
    server.append("s", numbers(1)).await;
    let ([start, end, next], count) = read(0).await;
    assert_eq!((end, next, u64::try_from(count)), (6, 6, Ok(6 - start)));
    assert_eq!(read(7).await, ([start, 6, 6], 0));
    server.stop().await;
}

#[tokio::test]
async fn a_key_has_one_partition_and_its_order_and_others_are_spread() {
    let (server, _) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": 16})).await;
    let record = |n: u64| json!({"key": format!("k{}", n % 5), "value": n});
    let mut placed = server.append("s", (0..100).map(record).collect()).await;
    placed.extend(server.append("s", (100..200).map(record).collect()).await);
    for (n, result) in placed.iter().enumerate() {
        assert_eq!(result["partition"], placed[n % 5]["partition"], "{result}");
    }
    let got = server.fetch("s", "g", "m").await;
    for key in 0..5 {
        let is_its = |record: &&Value| record["key"] == format!("k{key}");
        let records = got["records"].as_array().expect("records").iter().filter(is_its);
        let seen: Vec<_> = records.map(|record| record["value"].as_u64()).collect();
        assert_eq!(seen, (0..40).map(|n| Some(key + 5 * n)).collect::<Vec<_>>());
    }
    let spread = server.append("s", numbers(8)).await;
    let mut partitions: Vec<_> = spread.iter().map(|result| result["partition"].as_u64()).collect();
    partitions.sort_unstable();
    partitions.dedup();
    assert_eq!(partitions.len(), 8, "{spread:?}");
    server.stop().await;
}

#[tokio::test]
async fn what_was_answered_outlives_a_restart() {
    let (server, _) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": 3, "retentionSeconds": null})).await;
    let placed = server.append("s", numbers(30)).await;
    let got = server.fetch("s", "g", "m").await;
    let some: Value = json!({"0": 2});
    let commit = json!({"member": "m", "epoch": got["epoch"], "offsets": some});
    Server::ok(&server.group("s", "g", "commit", commit).await, 200);
    let before = (
        server.look_at("/v1/streams/s").await,
        server.look_at("/v1/streams/s/groups/g").await,
        server.look_at("/v1/streams/s/partitions/1/records").await,
    );
    assert_eq!(before.1["lag"], 28);
    let (server, _) = server.restart_product().await;
    let after = (
        server.look_at("/v1/streams/s").await,
        server.look_at("/v1/streams/s/groups/g").await,
        server.look_at("/v1/streams/s/partitions/1/records").await,
    );
    assert_eq!(before, after);
    let again = server.fetch("s", "g", "m").await;
    assert_eq!((&again["epoch"], values(&again).len()), (&got["epoch"], 28));
    let next = server.append("s", json!([{"key": "0", "value": "next"}])).await;
    let partition = &next[0]["partition"];
    let last = placed.iter().filter(|result| &result["partition"] == partition);
    let last = last.filter_map(|result| result["offset"].as_u64()).max().expect("there is one");
    assert_eq!(next[0]["offset"], last + 1);
    server.stop().await;
}

#[tokio::test]
async fn an_append_with_a_key_is_done_once() {
    for partitions in [4, 100] {
        check_done_once(partitions).await;
    }
}

async fn check_done_once(partitions: u16) {
    let (server, _) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": partitions})).await;
    let headers = format!("{JSON}idempotency-key: once\r\n");
    let append = async |records: Value| {
        let body = json!({"records": records}).to_string();
        server.send("POST", "/v1/streams/s/records", &headers, &body).await
    };
    let mut records = numbers(20).as_array().expect("a list").clone();
    records.push(json!({"key": "", "value": "bad"}));
    records.extend((0..20).map(|n| json!({"key": format!("k{n}"), "value": n})));
    let records = Value::from(records);
    let first = Server::ok(&append(records.clone()).await, 200);
    assert_eq!(first["results"][20]["error"]["type"], "invalid-body", "{first}");
    assert_eq!(Server::ok(&append(records.clone()).await, 200), first);
    assert_eq!(server.look_at("/v1/streams/s").await["records"], 40);
    // Wherever its one record would go.
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let other = append(json!([{"key": key, "value": 1}])).await;
        other.problem(422, "idempotency-conflict");
    }
    // With more partitions it would be split in another way, but it was split.
    let more = json!({"partitions": partitions + 3});
    let changed = server.send("PATCH", "/v1/streams/s", JSON, &more.to_string()).await;
    assert_eq!(Server::ok(&changed, 200)["partitions"], more["partitions"]);
    assert_eq!(Server::ok(&append(records).await, 200), first);
    append(json!([{"value": 1}])).await.problem(422, "idempotency-conflict");
    assert_eq!(server.look_at("/v1/streams/s").await["records"], 40);
    server.stop().await;
}

#[tokio::test]
async fn streams_are_made_listed_changed_and_deleted() {
    let (server, ahead_ms) = Server::start_product(2).await;
    for name in ["a", "b", "c"] {
        server.stream(json!({"name": name, "partitions": 2, "retentionSeconds": 60})).await;
    }
    let same = r#"{"name": "a", "partitions": 2, "retentionSeconds": 60}"#;
    Server::ok(&server.post("/v1/streams", same).await, 200);
    let other = server.post("/v1/streams", r#"{"name": "a"}"#).await.problem(409, "conflict");
    assert!(other.ends_with("other settings: partitions, retentionSeconds"), "{other}");
    let page = server.look_at("/v1/streams?limit=2").await;
    let cursor = page["nextCursor"].as_str().expect("there is more").to_owned();
    assert_eq!(page["items"][0]["name"], "a");
    let last = server.look_at(&format!("/v1/streams?limit=2&cursor={cursor}")).await;
    assert_eq!((&last["items"][0]["name"], &last["nextCursor"]), (&json!("c"), &Value::Null));
    assert_eq!(
        server.look_at("/v1/streams?prefix=b").await["items"].as_array().map(Vec::len),
        Some(1)
    );

    server.append("a", numbers(4)).await;
    let view = server.look_at("/v1/streams/a").await;
    assert_eq!(
        (&view["records"], &view["partitions"], &view["retentionSeconds"]),
        (&json!(4), &json!(2), &json!(60))
    );
    assert!(view["bytes"].as_u64() > Some(0) && view["perPartition"][1]["end"] == 2, "{view}");
    let patch = async |body: &str| server.send("PATCH", "/v1/streams/a", JSON, body).await;
    let changed = Server::ok(&patch(r#"{"partitions": 3, "retentionBytes": 1000000}"#).await, 200);
    assert_eq!(
        (&changed["partitions"], &changed["retentionBytes"], &changed["retentionSeconds"]),
        (&json!(3), &json!(1_000_000), &json!(60))
    );
    assert_eq!(
        Server::ok(&patch(r#"{"retentionBytes": null}"#).await, 200)["retentionBytes"],
        Value::Null
    );
    patch(r#"{"partitions": 2}"#).await.problem(422, "unprocessable");
    let null = patch(r#"{"partitions": null}"#).await.problem(400, "invalid-body");
    let array = patch(r#"{"partitions": []}"#).await.problem(400, "invalid-body");
    assert_eq!(null, array.replace("not an array", "not null"));
    // A member has the new partition when it is next heard of.
    assert_eq!(server.fetch("a", "g", "m").await["partitions"], json!([0, 1, 2]));
    let more = patch(r#"{"partitions": 4}"#).await;
    Server::ok(&more, 200);
    assert_eq!(server.fetch("a", "g", "m").await["partitions"], json!([0, 1, 2, 3]));

    // What is too old is gone; offsets go on.
    ahead_ms.fetch_add(61_000, Ordering::SeqCst);
    let read = async || server.look_at("/v1/streams/a/partitions/0/records").await;
    while read().await["start"] == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(values(&read().await), [] as [Value; 0]);
    server.append("a", json!([{"key": "k", "value": 1}])).await;

    let groups = server.look_at("/v1/streams/a/groups").await;
    assert_eq!(groups["items"][0]["group"], "g", "{groups}");
    let delete = async |path: &str| server.send("DELETE", path, "", "").await;
    // Lost after 30 s, or a member still: the shard may not have looked yet.
    assert_eq!(delete("/v1/streams/a/groups/g/members/m").await.status, 204);
    assert_eq!(delete("/v1/streams/a/groups/g").await.status, 204);
    delete("/v1/streams/a/groups/g").await.problem(404, "not-found");
    assert_eq!(server.look_at("/v1/streams/a/groups").await["items"], json!([]));
    let old = server.fetch("a", "g", "m").await;
    delete("/v1/streams/a/groups/g").await.problem(409, "conflict");

    assert_eq!(delete("/v1/streams/a").await.status, 204);
    delete("/v1/streams/a").await.problem(404, "not-found");
    server.get("/v1/streams/a").await.problem(404, "not-found");
    // Nothing of it shows in another of its name, and no commit that was under way counts there.
    ahead_ms.fetch_add(1_000, Ordering::SeqCst);
    server.stream(json!({"name": "a", "partitions": 4})).await;
    let got = server.fetch("a", "g", "m").await;
    assert_eq!(values(&got).len(), 0);
    assert!(got["epoch"].as_u64() > old["epoch"].as_u64(), "{got}");
    let late = json!({"member": "m", "epoch": old["epoch"], "offsets": {"0": 0}});
    server.group("a", "g", "commit", late).await.problem(409, "stale-member");
    server.stop().await;
}

#[tokio::test]
async fn an_answer_has_about_a_mebibyte() {
    let (server, _) = Server::start_product(1).await;
    server.stream(json!({"name": "s"})).await;
    let large = "x".repeat(200 << 10);
    for _ in 0..3 {
        server.append("s", (0..4).map(|_| json!({"value": large})).collect()).await;
    }
    let got = server.fetch("s", "g", "m").await;
    assert_eq!(values(&got).len(), 6, "the sixth goes over it");
    let read = server.look_at("/v1/streams/s/partitions/0/records").await;
    assert_eq!((values(&read).len(), &read["nextOffset"]), (6, &json!(6)));
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_sees_its_own_streams_only() {
    let (server, _) = Server::start_product(2).await;
    Server::ok(&server.post("/v1/tenants", r#"{"name": "shop"}"#).await, 201);
    server.stream(json!({"name": "s"})).await;
    server.append("s", numbers(3)).await;
    let headers = format!("{JSON}x-tenant: shop\r\n");
    let shop = async |method: &str, path: &str, body: &str| {
        server.send(method, path, &headers, body).await
    };
    shop("GET", "/v1/streams/s", "").await.problem(404, "not-found");
    assert_eq!(Server::ok(&shop("GET", "/v1/streams", "").await, 200)["items"], json!([]));
    let fetch = r#"{"member": "m"}"#;
    shop("POST", "/v1/streams/s/groups/g:fetch", fetch).await.problem(404, "not-found");
    shop("POST", "/v1/streams/s/records", r#"{"records": [{"value": 1}]}"#)
        .await
        .problem(404, "not-found");
    shop("DELETE", "/v1/streams/s", "").await.problem(404, "not-found");
    Server::ok(&shop("POST", "/v1/streams", r#"{"name": "s"}"#).await, 201);
    let got = Server::ok(&shop("POST", "/v1/streams/s/groups/g:fetch", fetch).await, 200);
    assert_eq!(values(&got).len(), 0);
    Server::ok(&shop("DELETE", "/v1/streams/s", "").await, 204);
    assert_eq!(values(&server.fetch("s", "g", "m").await).len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn quotas_hold_for_streams() {
    let (server, _) = Server::start_product(2).await;
    Server::ok(&server.post("/v1/tenants", r#"{"name": "shop"}"#).await, 201);
    let headers = format!("{JSON}x-tenant: shop\r\n");
    let post = async |path: &str, body: Value| {
        server.send("POST", path, &headers, &body.to_string()).await
    };
    let quotas = async |quotas: Value| {
        let path = "/v1/tenants/shop/quotas";
        Server::ok(&server.send("PUT", path, JSON, &quotas.to_string()).await, 200);
    };
    let refused = |answer: &Answer, quota: &str, come_back: bool| {
        answer.problem(429, "quota-exceeded");
        assert_eq!(answer.json()["quota"], quota);
        assert_eq!(answer.head.contains("\r\nretry-after: "), come_back, "{answer:?}");
    };
    quotas(json!({"retentionSecondsMax": 3600})).await;
    for seconds in [json!(3601), Value::Null] {
        let body = json!({"name": "s", "retentionSeconds": seconds});
        refused(&post("/v1/streams", body).await, "retentionSecondsMax", false);
    }
    Server::ok(&post("/v1/streams", json!({"name": "s"})).await, 201);
    Server::ok(&post("/v1/streams", json!({"name": "s"})).await, 200);
    let view = server.send("GET", "/v1/streams/s", &headers, "").await;
    assert_eq!(Server::ok(&view, 200)["retentionSeconds"], 3600, "as much as there is");
    let longer = r#"{"retentionSeconds": null}"#;
    let longer = server.send("PATCH", "/v1/streams/s", &headers, longer).await;
    refused(&longer, "retentionSecondsMax", false);

    // Records are messages: a thousand are let in, and then nothing for a thousand seconds.
    quotas(json!({"publishPerSecond": 1})).await;
    let once = format!("{headers}idempotency-key: once\r\n");
    let many = json!({"records": numbers(1000)}).to_string();
    let append = async || server.send("POST", "/v1/streams/s/records", &once, &many).await;
    let first = Server::ok(&append().await, 200);
    let one = json!({"records": [{"value": 1}]});
    refused(&post("/v1/streams/s/records", one.clone()).await, "publishPerSecond", true);
    assert_eq!(Server::ok(&append().await, 200), first, "an answer is given again");

    quotas(json!({"bytesStored": 1})).await;
    refused(&post("/v1/streams/s/records", one.clone()).await, "bytesStored", false);
    quotas(json!({"entities": 1})).await;
    refused(&post("/v1/streams", json!({"name": "t"})).await, "entities", false);
    let fetch = json!({"member": "m"});
    refused(&post("/v1/streams/s/groups/g:fetch", fetch.clone()).await, "entities", false);
    let seek = json!({"to": "latest"});
    refused(&post("/v1/streams/s/groups/g:seek", seek).await, "entities", false);
    quotas(json!({"waiters": 0, "publishPerSecond": null})).await;
    Server::ok(&post("/v1/streams/s/groups/g:fetch", fetch).await, 200);
    Server::ok(&post("/v1/streams/s/groups/g:seek", json!({"to": "latest"})).await, 200);
    let wait = json!({"member": "m", "waitSeconds": 20});
    refused(&post("/v1/streams/s/groups/g:fetch", wait).await, "waiters", true);
    Server::ok(&post("/v1/streams/s/records", one).await, 200);
    server.stop().await;
}

#[tokio::test]
async fn bad_input_is_named() {
    let (server, _) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": 2})).await;
    server.append("s", numbers(2)).await;
    let epoch = server.fetch("s", "g", "m").await["epoch"].clone();
    let long = "x".repeat(81);
    let (create, records) = ("/v1/streams", "/v1/streams/s/records");
    let fetch = "/v1/streams/s/groups/g:fetch";
    let commit = "/v1/streams/s/groups/g:commit";
    let seek = "/v1/streams/s/groups/g:seek";
    let many: Value = numbers(1001);
    for (path, body, named) in [
        (create, json!({}), "name"),
        (create, json!({"name": "t", "partitions": 0}), "partitions"),
        (create, json!({"name": "t", "partitions": 1025}), "partitions"),
        (create, json!({"name": "t", "partitions": -1}), "partitions"),
        (create, json!({"name": "t", "partitions": "2"}), "partitions"),
        (create, json!({"name": "t", "retentionSeconds": 0}), "retentionSeconds"),
        (create, json!({"name": "t", "retentionSeconds": u64::MAX}), "retentionSeconds"),
        (create, json!({"name": "t", "retentionBytes": 0}), "retentionBytes"),
        (create, json!({"name": "t", "mode": "FIFO"}), "mode"),
        (records, json!({}), "records"),
        (records, json!({"records": []}), "records"),
        (records, json!({"records": many}), "records"),
        (fetch, json!({}), "member"),
        (fetch, json!({"member": ""}), "member"),
        (fetch, json!({"member": "a\nb"}), "member"),
        (fetch, json!({"member": "x".repeat(257)}), "member"),
        (fetch, json!({"member": "m", "maxRecords": 0}), "maxRecords"),
        (fetch, json!({"member": "m", "maxRecords": 1001}), "maxRecords"),
        (fetch, json!({"member": "m", "waitSeconds": 21}), "waitSeconds"),
        (fetch, json!({"member": "m", "sessionSeconds": 0}), "sessionSeconds"),
        (fetch, json!({"member": "m", "sessionSeconds": 3601}), "sessionSeconds"),
        (fetch, json!({"member": "m", "offsets": {"2": 0}}), "offsets.2"),
        (fetch, json!({"member": "m", "offsets": {"x": 0}}), "offsets"),
        (fetch, json!({"member": "m", "offsets": {"0": -1}}), "offsets.0"),
        (fetch, json!({"member": "m", "offsets": {"0": 0}}), "epoch"),
        (fetch, json!({"member": "m", "epoch": epoch, "offsets": {"0": 9}}), "offsets.0"),
        (commit, json!({}), "offsets"),
        (commit, json!({"offsets": {}}), "offsets"),
        (commit, json!({"offsets": {"2": 0}}), "offsets.2"),
        (commit, json!({"offsets": {"65536": 0}}), "offsets"),
        (commit, json!({"offsets": {"0": 9}}), "offsets.0"),
        (commit, json!({"member": "", "offsets": {"0": 0}}), "member"),
        (seek, json!({}), "to"),
        (seek, json!({"to": "middle"}), "to"),
        (seek, json!({"to": {"offset": 5}}), "to"),
        (seek, json!({"to": "time"}), "time"),
        (seek, json!({"to": "time", "time": "yesterday"}), "time"),
        (seek, json!({"to": "time", "time": 17}), "time"),
        (seek, json!({"to": "latest", "time": "2026-01-01T00:00:00Z"}), "time"),
        (seek, json!({"to": "earliest", "offset": 1}), "offset"),
        (seek, json!({"to": "earliest", "offsets": {"0": 1}}), "offsets"),
        (seek, json!({"to": "offset"}), "offset"),
        (seek, json!({"to": "offset", "offsets": {}}), "offsets"),
        (seek, json!({"to": "offset", "offsets": {"2": 0}}), "offsets.2"),
        (seek, json!({"to": "offset", "offset": 1, "offsets": {"0": 1}}), "offsets"),
        (seek, json!({"to": "offset", "partition": 0, "offsets": {"0": 1}}), "partition"),
        (seek, json!({"to": "offset", "partition": 2, "offset": 1}), "partition"),
        (seek, json!({"to": "offset", "partition": 70_000, "offset": 1}), "partition"),
    ] {
        let answer = server.post(path, &body.to_string()).await;
        let detail = answer.problem(400, "invalid-body");
        assert!(detail.contains(named), "{path} {body}: {detail}");
    }
    for (method, path, body) in [
        ("POST", "/v1/streams".to_owned(), json!({"name": long.clone()})),
        ("POST", "/v1/streams".to_owned(), json!({"name": "a b"})),
        ("GET", "/v1/streams/a%20b".to_owned(), Value::Null),
        ("GET", format!("/v1/streams/s/groups/{long}"), Value::Null),
        ("POST", format!("/v1/streams/s/groups/{long}:fetch"), json!({"member": "m"})),
        ("DELETE", "/v1/streams/s/groups/g/members/%0A".to_owned(), Value::Null),
        ("GET", "/v1/streams/s/partitions/x/records".to_owned(), Value::Null),
        ("GET", "/v1/streams/s/partitions/0/records?offset=x".to_owned(), Value::Null),
        ("GET", "/v1/streams/s/partitions/0/records?limit=1001".to_owned(), Value::Null),
        ("GET", "/v1/streams/s/partitions/0/records?from=1".to_owned(), Value::Null),
        ("GET", "/v1/streams?cursor=_w".to_owned(), Value::Null),
        ("GET", "/v1/streams/s/groups?cursor=_w".to_owned(), Value::Null),
    ] {
        let answer = server.send(method, &path, JSON, &body.to_string()).await;
        answer.problem(400, "invalid-parameter");
    }
    for (method, path, body) in [
        ("GET", "/v1/streams/none", Value::Null),
        ("POST", "/v1/streams/none/records", json!({"records": [{"value": 1}]})),
        ("POST", "/v1/streams/none/groups/g:fetch", json!({"member": "m"})),
        ("POST", "/v1/streams/s/groups/none:commit", json!({"offsets": {"0": 0}})),
        ("GET", "/v1/streams/s/groups/none", Value::Null),
        ("DELETE", "/v1/streams/s/groups/none/members/m", Value::Null),
        ("GET", "/v1/streams/s/partitions/2/records", Value::Null),
        ("GET", "/v1/streams/s/partitions/65536/records", Value::Null),
    ] {
        server.send(method, path, JSON, &body.to_string()).await.problem(404, "not-found");
    }
    let large = json!({"records": [{"value": "x".repeat(1 << 20)}]});
    server.post(records, &large.to_string()).await.problem(413, "payload-too-large");
    // Without a member, whoever commits is believed; with one, it must be the owner.
    Server::ok(&server.post(commit, r#"{"offsets": {"0": 1}}"#).await, 200);
    let stranger = r#"{"member": "stranger", "offsets": {"0": 1}}"#;
    server.post(commit, stranger).await.problem(409, "stale-member");
    let future = r#"{"member": "m", "epoch": 9007199254740991, "offsets": {"0": 1}}"#;
    server.post(commit, future).await.problem(409, "stale-member");
    server.is_alive().await;
    server.stop().await;
}

#[tokio::test]
async fn each_record_of_a_batch_is_answered_for() {
    let (server, _) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": 2})).await;
    let results = server
        .append(
            "s",
            json!([
                {"value": "x".repeat(256 << 10)},
                {"key": "", "value": 1},
                {"key": "k".repeat(1025), "value": 1},
                {"key": "a"},
                {"key": 5, "value": 1},
                {"value": 1, "partition": 3},
                7,
                {"key": "k".repeat(1024), "value": "x".repeat((256 << 10) - 2)},
            ]),
        )
        .await;
    let kinds: Vec<_> = results.iter().map(|result| &result["error"]["type"]).collect();
    let (large, bad) = (json!("payload-too-large"), json!("invalid-body"));
    assert_eq!(kinds, [&large, &bad, &bad, &bad, &bad, &bad, &bad, &Value::Null]);
    for (index, named) in [(3, "value"), (4, "at key"), (5, "partition")] {
        let detail = results[index]["error"]["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(named), "{index}: {detail}");
    }
    let none_good = server.append("s", json!([{"key": 5, "value": 1}])).await;
    assert_eq!(none_good[0]["error"]["type"], bad);
    assert_eq!(results[0]["error"]["limitBytes"], 256 << 10);
    server.stop().await;
}
