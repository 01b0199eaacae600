//! Groups of streams over HTTP: members, where they go, and how they wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kernel::{Envelope, TenantId};
use node::Node;
use serde_json::{Value, json};
use streams::{Command, Create, Reply, Retention, Settings};

use crate::harness::{Answer, Server};
use crate::streams::{JSON, numbers, values};

/// When the first of these was appended: partitions keep time by themselves.
fn earliest(results: &[Value]) -> &Value {
    let times = results.iter().map(|result| &result["timestamp"]);
    times.min_by_key(|time| time.as_str()).expect("there is one")
}

#[tokio::test]
async fn members_share_partitions_and_who_lost_one_cannot_commit_it() {
    let (server, ahead_ms) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": 4})).await;
    server.append("s", numbers(40)).await;
    let alone = server.fetch("s", "g", "a").await;
    assert_eq!(alone["partitions"], json!([0, 1, 2, 3]));
    let joined = server.fetch("s", "g", "b").await;
    assert_eq!(joined["partitions"].as_array().map(Vec::len), Some(2), "{joined}");
    // What a fetched when it had all of them includes what is b's now.
    let refused = server.commit("s", "g", "a", &alone).await;
    refused.problem(409, "stale-member");
    assert_eq!(refused.json()["epoch"], joined["epoch"]);
    // Without an epoch that of its last fetch counts, and who never fetched owns none.
    let commit = async |member: &str, partition: &Value| {
        let offsets = json!({partition.to_string(): 0});
        let ask = json!({"member": member, "offsets": offsets}).to_string();
        server.post("/v1/streams/s/groups/g:commit", &ask).await
    };
    Server::ok(&commit("b", &joined["partitions"][0]).await, 200);
    let detail = commit("c", &json!(0)).await.problem(409, "stale-member");
    assert!(detail.contains("fetches before it commits"), "{detail}");
    assert_eq!(server.lag("s", "g").await, 40, "all of it or nothing");
    let kept = server.fetch("s", "g", "a").await;
    assert_eq!(kept["epoch"], joined["epoch"]);
    // What it has had all the time it may commit, whenever that was fetched.
    let mut still = alone.clone();
    let owned = kept["partitions"].as_array().expect("numbers");
    let offsets = still["nextOffsets"].as_object_mut().expect("offsets");
    offsets
        .retain(|partition, _| owned.contains(&json!(partition.parse::<u16>().expect("a number"))));
    Server::ok(&server.commit("s", "g", "a", &still).await, 200);
    assert_eq!(server.lag("s", "g").await, 20);
    Server::ok(&server.commit("s", "g", "a", &kept).await, 200);
    Server::ok(&server.commit("s", "g", "b", &joined).await, 200);
    assert_eq!(server.lag("s", "g").await, 0);
    let view = server.look_at("/v1/streams/s/groups/g").await;
    assert_eq!(view["members"].as_array().map(Vec::len), Some(2), "{view}");
    assert_eq!(view["members"][0]["partitions"], kept["partitions"]);
    for partition in view["partitions"].as_array().expect("partitions") {
        let owner =
            if kept["partitions"].as_array().expect("numbers").contains(&partition["partition"]) {
                "a"
            } else {
                "b"
            };
        assert_eq!((&partition["member"], &partition["lag"]), (&json!(owner), &json!(0)));
        assert_eq!(partition["committed"], partition["end"], "{partition}");
    }
    // One who leaves is gone at once, and may leave again.
    for _ in 0..2 {
        let left = server.send("DELETE", "/v1/streams/s/groups/g/members/b", "", "").await;
        assert_eq!(left.status, 204, "{left:?}");
    }
    let all = server.fetch("s", "g", "a").await;
    assert_eq!(all["partitions"], json!([0, 1, 2, 3]));
    assert!(all["epoch"].as_u64() > joined["epoch"].as_u64());
    server.commit("s", "g", "b", &joined).await.problem(409, "stale-member");

    // Whatever it calls itself.
    let odd = "host:1/ü";
    assert_eq!(server.fetch("s", "g", odd).await["partitions"].as_array().map(Vec::len), Some(2));
    let path = "/v1/streams/s/groups/g/members/host%3A1%2F%C3%BC";
    assert_eq!(server.send("DELETE", path, "", "").await.status, 204);
    assert_eq!(server.fetch("s", "g", "a").await["partitions"], json!([0, 1, 2, 3]));

    // One who is silent for a session, and a third of it, is lost.
    let ask = json!({"member": "c", "sessionSeconds": 60});
    Server::ok(&server.group("s", "g", "fetch", ask).await, 200);
    ahead_ms.fetch_add(41_000, Ordering::SeqCst);
    let half = server.fetch("s", "g", "c").await;
    assert_eq!(half["partitions"], json!([0, 1, 2, 3]), "a has a session of 30 s");
    server.stop().await;
}

#[tokio::test]
async fn a_member_has_its_session_after_each_answer() {
    let (server, ahead_ms) = Server::start_product(2).await;
    let server = Arc::new(server);
    server.stream(json!({"name": "s"})).await;
    server.append("s", numbers(2)).await;
    let later = |ms: u64| ahead_ms.fetch_add(ms, Ordering::SeqCst);
    server.fetch("s", "g", "m").await;
    // So soon after the last one a fetch is not written down.
    later(9_000);
    let got = server.fetch("s", "g", "m").await;
    later(25_000);
    Server::ok(&server.commit("s", "g", "m", &got).await, 200);
    // Nor is it how long a fetch waits, until it is answered.
    let server_too = Arc::clone(&server);
    let fetch = tokio::spawn(async move {
        let ask = json!({"member": "m", "waitSeconds": 1});
        let answer = server_too.group("s", "g", "fetch", ask).await;
        drop(server_too);
        answer
    });
    until_waiting(&server, 2).await;
    later(20_000);
    let nothing = answer(fetch).await;
    assert_eq!((values(&nothing).len(), &nothing["epoch"]), (0, &got["epoch"]));
    later(29_000);
    Server::ok(&server.commit("s", "g", "m", &got).await, 200);
    Arc::into_inner(server).expect("nobody else has it").stop().await;
}

#[tokio::test]
async fn a_group_goes_where_it_is_sent() {
    let (server, ahead_ms) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": 2})).await;
    let keyed = |from: u64| -> Value {
        (from..from + 20).map(|n| json!({"key": n.to_string(), "value": n})).collect()
    };
    let first = server.append("s", keyed(0)).await;
    ahead_ms.fetch_add(60_000, Ordering::SeqCst);
    let later = server.append("s", keyed(20)).await;
    let got = server.fetch("s", "g", "m").await;
    assert_eq!(values(&got).len(), 40);
    let seek = async |body: Value| Server::ok(&server.group("s", "g", "seek", body).await, 200);
    let sought = seek(json!({"to": "latest"})).await;
    assert_eq!(sought["epoch"].as_u64(), got["epoch"].as_u64().map(|epoch| epoch + 1));
    assert_eq!(
        (server.lag("s", "g").await, values(&server.fetch("s", "g", "m").await).len()),
        (json!(0), 0)
    );
    server.commit("s", "g", "m", &got).await.problem(409, "stale-member");
    seek(json!({"to": "earliest"})).await;
    assert_eq!(server.lag("s", "g").await, 40);
    seek(json!({"to": "time", "time": earliest(&later)})).await;
    let since = server.fetch("s", "g", "m").await;
    let mut seen: Vec<_> = values(&since).iter().filter_map(Value::as_u64).collect();
    seen.sort_unstable();
    assert_eq!(seen, (20..40).collect::<Vec<_>>());
    seek(json!({"to": "time", "time": earliest(&first)})).await;
    assert_eq!(server.lag("s", "g").await, 40);
    seek(json!({"to": "time", "time": "9999-01-01T00:00:00Z"})).await;
    assert_eq!(server.lag("s", "g").await, 0);

    let sought = seek(json!({"to": "offset", "offsets": {"1": 3}})).await;
    assert_eq!(sought["offsets"], json!({"1": 3}));
    let group = server.look_at("/v1/streams/s/groups/g").await;
    assert_eq!(
        (&group["partitions"][0]["lag"], &group["partitions"][1]["committed"]),
        (&json!(0), &json!(3))
    );
    let sought = seek(json!({"to": "offset", "partition": 0, "offset": 1})).await;
    assert_eq!(sought["offsets"], json!({"0": 1}));
    let sought = seek(json!({"to": "offset", "offset": 1_000_000})).await;
    let ends = [&group["partitions"][0]["end"], &group["partitions"][1]["end"]];
    assert_eq!(sought["offsets"], json!({"0": ends[0], "1": ends[1]}), "no further than there is");
    // A position from before a seek is no place to go on from.
    seek(json!({"to": "earliest"})).await;
    let ask = json!({"member": "m", "maxRecords": 1000, "epoch": since["epoch"], "offsets": since["nextOffsets"]});
    let got = Server::ok(&server.group("s", "g", "fetch", ask).await, 200);
    assert_eq!(values(&got).len(), 40);
    // A group that is not there is made there.
    let made = server.group("s", "new", "seek", json!({"to": "latest"})).await;
    let epoch = Server::ok(&made, 200)["epoch"].clone();
    assert_eq!(server.look_at("/v1/streams/s/groups/new").await["epoch"], epoch);
    server.append("s", numbers(1)).await;
    assert_eq!(values(&server.fetch("s", "new", "m").await), [0]);
    server.stop().await;
}

#[tokio::test]
async fn a_seek_is_not_undone_by_who_fetched_before_it() {
    let (server, ahead_ms) = Server::start_product(2).await;
    server.stream(json!({"name": "s", "partitions": 2})).await;
    server.append("s", numbers(20)).await;
    let commit = async |ask: Value| server.group("s", "g", "commit", ask).await;
    let seek =
        async |to: &str| Server::ok(&server.group("s", "g", "seek", json!({"to": to})).await, 200);
    // Whoever says no more than how far it is may do so.
    let got = server.fetch("s", "g", "m").await;
    let plain = json!({"offsets": got["nextOffsets"]});
    let by_name = json!({"member": "m", "offsets": got["nextOffsets"]});
    Server::ok(&commit(by_name.clone()).await, 200);
    Server::ok(&commit(plain.clone()).await, 200);
    assert_eq!(server.lag("s", "g").await, 0);

    let sought = seek("earliest").await;
    for (late, said) in
        [(&plain, "the group was sought since"), (&by_name, "is not this member's, or")]
    {
        let answer = commit(late.clone()).await;
        let detail = answer.problem(409, "stale-member");
        assert!(detail.contains(said), "{detail}");
        assert_eq!(answer.json()["epoch"], sought["epoch"]);
    }
    assert_eq!(server.lag("s", "g").await, 20);
    // It fetches from there, and commits as before.
    let got = server.fetch("s", "g", "m").await;
    assert_eq!((&got["epoch"], values(&got).len()), (&sought["epoch"], 20));
    Server::ok(&commit(by_name).await, 200);
    assert_eq!(server.lag("s", "g").await, 0);

    // Nor by a member who was lost meanwhile.
    seek("earliest").await;
    server.fetch("s", "g", "m").await;
    ahead_ms.fetch_add(41_000, Ordering::SeqCst);
    let sought = seek("earliest").await;
    commit(plain.clone()).await.problem(409, "stale-member");
    assert_eq!(server.lag("s", "g").await, 20);
    // Who has sought says so.
    let own = json!({"epoch": sought["epoch"], "offsets": plain["offsets"]});
    Server::ok(&commit(own).await, 200);
    assert_eq!(server.lag("s", "g").await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_stale_commit_is_told_in_words_that_fit_what_it_names() {
    let (server, _) = Server::start_product(1).await;
    server.stream(json!({"name": "s"})).await;
    server.append("s", numbers(5)).await;
    let epoch = server.fetch("s", "g", "m").await["epoch"].clone();
    Server::ok(&server.group("s", "g", "seek", json!({"to": "earliest"})).await, 200);
    let offsets = json!({"0": 1});
    for (ask, said) in [
        (
            json!({"member": "m", "epoch": epoch, "offsets": offsets}),
            "not this member's, or was not in",
        ),
        (json!({"member": "m", "offsets": offsets}), "not this member's, or has come to it"),
        (
            json!({"epoch": epoch, "offsets": offsets}),
            "another owner, or was sought, after the epoch",
        ),
        (json!({"offsets": offsets}), "the group was sought since it last fetched"),
    ] {
        let answer = server.group("s", "g", "commit", ask.clone()).await;
        let detail = answer.problem(409, "stale-member");
        assert!(detail.contains(said), "{ask}: {detail}");
        assert_eq!(detail.contains("member"), ask.get("member").is_some(), "{ask}: {detail}");
        // Of all of them the same, so it is nothing that is true only of those with a member.
        assert_eq!(answer.json()["title"], "The commit does not fit the group as it is now");
    }
    server.stop().await;
}

async fn until_waiting(server: &Server, count: usize) {
    while server.node.waiting() != count {
        tokio::task::yield_now().await;
    }
}

/// A fetch that waits until something happens, or for longer than a test may take.
fn waiting(
    server: &Arc<Server>,
    group: &'static str,
    member: &'static str,
) -> tokio::task::JoinHandle<Answer> {
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let ask = json!({"member": member, "waitSeconds": 20});
        let answer = server.group("s", group, "fetch", ask).await;
        drop(server);
        answer
    })
}

async fn answer(fetch: tokio::task::JoinHandle<Answer>) -> Value {
    Server::ok(&fetch.await.expect("no panic"), 200)
}

#[tokio::test]
async fn who_waits_gets_what_comes_and_hears_of_changes() {
    let (server, _) = Server::start_product(2).await;
    let server = Arc::new(server);
    server.stream(json!({"name": "s", "partitions": 2})).await;
    let fetch = waiting(&server, "g", "a");
    until_waiting(&server, 3).await;
    let placed = server.append("s", json!([{"key": "k", "value": "here"}])).await;
    let got = answer(fetch).await;
    assert_eq!(values(&got), ["here"]);
    assert_eq!(got["records"][0]["partition"], placed[0]["partition"]);
    Server::ok(&server.commit("s", "g", "a", &got).await, 200);

    // Another member comes: a hears at once that it has fewer.
    let fetch = waiting(&server, "g", "a");
    until_waiting(&server, 3).await;
    let b = server.fetch("s", "g", "b").await;
    let a = answer(fetch).await;
    assert_eq!(
        (a["epoch"].clone(), a["partitions"].as_array().map(Vec::len)),
        (b["epoch"].clone(), Some(1))
    );
    assert_ne!(a["partitions"], b["partitions"]);
    // And of a seek, with what is there then.
    let fetch = waiting(&server, "g", "a");
    let other = waiting(&server, "g", "b");
    until_waiting(&server, 4).await;
    Server::ok(&server.group("s", "g", "seek", json!({"to": "earliest"})).await, 200);
    let seen = values(&answer(fetch).await).len() + values(&answer(other).await).len();
    assert_eq!(seen, 1);

    // Who waits for a stream that is deleted is told.
    Server::ok(&server.group("s", "h", "seek", json!({"to": "latest"})).await, 200);
    let gone = waiting(&server, "h", "m");
    until_waiting(&server, 3).await;
    assert_eq!(server.send("DELETE", "/v1/streams/s", "", "").await.status, 204);
    gone.await.expect("no panic").problem(404, "not-found");
    until_waiting(&server, 0).await;
    Arc::into_inner(server).expect("nobody else has it").stop().await;
}

#[tokio::test]
async fn who_waits_has_nothing_to_do_with_another_stream_of_the_name() {
    let (server, _) = Server::start_product(2).await;
    let server = Arc::new(server);
    server.stream(json!({"name": "s"})).await;
    let fetch = waiting(&server, "g", "m");
    until_waiting(&server, 2).await;
    // Whoever waits is on this thread, and sees nothing of what happens between the two.
    let node = server.node.clone();
    std::thread::scope(|scope| scope.spawn(|| make_anew(&node)).join().expect("no panic"));
    let detail = fetch.await.expect("no panic").problem(404, "not-found");
    assert!(detail.contains("deleted meanwhile"), "{detail}");
    // Nor has it joined a group of that.
    server.get("/v1/streams/s/groups/g").await.problem(404, "not-found");
    until_waiting(&server, 0).await;
    Arc::into_inner(server).expect("nobody else has it").stop().await;
}

/// Deletes the stream `s`, and makes another of its name. Blocks.
fn make_anew(node: &Node) {
    let settings = Settings { partitions: 1, retention: Retention::default() };
    let submit = async |command: Command| {
        let (machine, tenant) = (streams::MACHINE, TenantId(1));
        let (idempotency, command) = (None, command.encode());
        let envelope = Envelope { machine, tenant, idempotency, command };
        let reply = node.submit(streams::place(tenant, "s"), envelope).await.expect("taken");
        Reply::decode(&reply).expect("a reply")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        assert_eq!(submit(Command::Delete { stream: "s".into() }).await, Reply::Deleted);
        let made = submit(Command::Create(Create { stream: "s".into(), settings })).await;
        assert!(matches!(made, Reply::Created { new: true, .. }), "{made:?}");
    });
}

#[tokio::test]
async fn who_waits_goes_when_the_server_does() {
    let (server, _) = Server::start_product(1).await;
    let mut server = server;
    server.stream(json!({"name": "s", "partitions": 1})).await;
    let mut waiter = server.connect().await;
    let body = r#"{"member": "m", "waitSeconds": 20}"#;
    let request = format!(
        "POST /v1/streams/s/groups/g:fetch HTTP/1.1\r\nhost: x\r\n{JSON}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut waiter, request.as_bytes()).await.expect("sent");
    until_waiting(&server, 2).await;
    server.begin_stop();
    server.ended().await;
    let mut text = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut waiter, &mut text).await.expect("an answer");
    let answer = Answer::parse(&text);
    assert_eq!((answer.status, answer.json()["records"].clone()), (200, json!([])));
}

#[tokio::test]
async fn groups_are_listed_in_pages_with_their_lag() {
    let (server, _) = Server::start_product(1).await;
    server.stream(json!({"name": "s", "partitions": 2})).await;
    server.append("s", numbers(10)).await;
    for group in ["a", "b", "c"] {
        let got = server.fetch("s", group, "m").await;
        if group == "b" {
            Server::ok(&server.commit("s", group, "m", &got).await, 200);
        }
    }
    let page = server.look_at("/v1/streams/s/groups?limit=2").await;
    let of =
        |group: &Value| (group["group"].clone(), group["members"].clone(), group["lag"].clone());
    assert_eq!(of(&page["items"][0]), (json!("a"), json!(1), json!(10)));
    assert_eq!(of(&page["items"][1]), (json!("b"), json!(1), json!(0)));
    let cursor = page["nextCursor"].as_str().expect("there is more");
    let page = server.look_at(&format!("/v1/streams/s/groups?limit=2&cursor={cursor}")).await;
    assert_eq!(
        (page["items"].as_array().map(Vec::len), &page["nextCursor"]),
        (Some(1), &Value::Null)
    );
    for group in 0..48 {
        let group = format!("more-{group}");
        Server::ok(&server.group("s", &group, "seek", json!({"to": "latest"})).await, 200);
    }
    // Whatever was asked for: each of them is looked at in every partition.
    let page = server.look_at("/v1/streams/s/groups?limit=1000").await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(50));
    let cursor = page["nextCursor"].as_str().expect("there is more");
    let page = server.look_at(&format!("/v1/streams/s/groups?cursor={cursor}")).await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));
    server.stop().await;
}

#[tokio::test]
async fn a_fetch_that_waits_counts_in_all_its_lines() {
    let (server, _) = Server::start_product_with(2, |edge| edge.limits.waiters_max = 8).await;
    let server = Arc::new(server);
    server.stream(json!({"name": "s", "partitions": 4})).await;
    let fetch = waiting(&server, "g", "m");
    until_waiting(&server, 5).await;
    let other = waiting(&server, "h", "m").await.expect("no panic");
    other.problem(503, "overloaded");
    server.append("s", numbers(1)).await;
    answer(fetch).await;
    until_waiting(&server, 0).await;
    Arc::into_inner(server).expect("nobody else has it").stop().await;
}

#[tokio::test]
async fn who_waits_is_heard_of() {
    let (server, _) = Server::start_product(1).await;
    let server = Arc::new(server);
    server.stream(json!({"name": "s", "partitions": 1})).await;
    let waiter = Arc::clone(&server);
    let fetch = tokio::spawn(async move {
        let ask = json!({"member": "m", "waitSeconds": 20, "sessionSeconds": 1});
        let answer = waiter.group("s", "g", "fetch", ask).await;
        drop(waiter);
        answer
    });
    until_waiting(&server, 2).await;
    let seen = async || {
        let group = server.look_at("/v1/streams/s/groups/g").await;
        (group["epoch"].clone(), group["members"][0]["lastSeenAt"].clone())
    };
    let (epoch, first) = seen().await;
    let mut heard = 0;
    let mut last = first;
    while heard < 4 {
        let (now_epoch, now) = seen().await;
        assert_eq!(now_epoch, epoch, "it is a member for longer than its session");
        heard += u32::from(now != last);
        last = now;
    }
    server.append("s", numbers(1)).await;
    assert_eq!(values(&answer(fetch).await), [0]);
    Arc::into_inner(server).expect("nobody else has it").stop().await;
}
