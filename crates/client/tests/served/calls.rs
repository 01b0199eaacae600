//! Every call, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Attribute, Backoff, Bound, Call, Client, Error, ListQueues, Method, Mode, NewQueue, Outgoing,
    PeekState, QueueSettings, QueueUpdate, Receive, Redrive, RedriveAsk, RedriveState, Redrives,
    Retry,
};
use http_edge::server::ServerOptions;
use http_edge::tls::Tls;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use tokio::time::timeout;

use crate::harness::{HANG, Server};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Mail {
    to: String,
    tries: u8,
}

#[tokio::test]
async fn queues_are_made_changed_listed_purged_and_deleted() {
    let server = Server::start().await;
    let queues = server.client().queues();
    let settings = QueueSettings {
        max_receive_count: Some(3),
        dead_letter_queue: Some("dead".to_owned()),
        retry_backoff: Some(Backoff { base_seconds: 1, max_seconds: 9, jitter: true }),
        max_messages: Some(100),
        tags: Some(BTreeMap::from([("team".to_owned(), "mail".to_owned())])),
        ..QueueSettings::default()
    };
    let orders = NewQueue::new("orders").fifo().settings(settings);
    let made = queues.create(&orders).await.expect("made");
    let there = queues.create(&orders).await.expect("there");
    assert_eq!((&there.queue_id, made.created, there.created), (&made.queue_id, true, false));
    let conflict = queues.create(&NewQueue::new("orders")).await.expect_err("other settings");
    assert!(conflict.is("conflict"), "{conflict}");
    for name in ["a1", "a2", "a3"] {
        queues.create(&NewQueue::new(name)).await.expect("made");
    }
    let first = ListQueues { prefix: Some("a".to_owned()), limit: Some(2), cursor: None };
    let page = queues.list(&first).await.expect("a page");
    assert_eq!((page.items.len(), page.next_cursor.is_some()), (2, true));
    let names: Vec<_> =
        queues.list_all("").await.expect("all").into_iter().map(|queue| queue.name).collect();
    assert_eq!(names, ["a1", "a2", "a3", "orders"]);

    let info = queues.get("orders").await.expect("there");
    assert_eq!((info.mode, info.max_receive_count), (Mode::Fifo, Some(3)));
    assert_eq!((info.retry_backoff.max_seconds, info.max_messages), (9, Some(100)));
    let change = QueueSettings { retention_seconds: Some(60), ..QueueSettings::default() };
    let change = QueueUpdate::set(change).clear(Bound::MaxMessages);
    let changed = queues.update("orders", &change).await.expect("changed");
    assert_eq!((changed.retention_seconds, changed.max_messages), (60, None));
    assert_eq!(changed.max_receive_count, Some(3), "what is left out stays");

    server.client().queue("a1").send(&1).await.expect("sent");
    queues.purge("a1").await.expect("purged");
    assert_eq!(queues.get("a1").await.expect("there").visible, 0);
    queues.delete("a1").await.expect("deleted");
    let gone = queues.delete("a1").await.expect_err("it is gone");
    assert_eq!(gone.problem().expect("a problem").status, 404);
    server.stop().await;
}

#[tokio::test]
async fn topics_are_made_subscribed_to_published_to_and_deleted() {
    let server = Server::start().await;
    let client = server.client();
    let topics = client.topics();
    let made = topics.create("news").await.expect("made");
    let there = topics.create("news").await.expect("there");
    assert_eq!((&there.topic_id, made.created, there.created), (&made.topic_id, true, false));
    let mails = json!({"kind": ["mail"]});
    topics.subscribe("news", &NewQueue::new("all"), None).await.expect("subscribed");
    topics.subscribe("news", &NewQueue::new("mails"), Some(&mails)).await.expect("subscribed");
    let listed = topics.subscriptions("news").await.expect("listed");
    assert_eq!(listed, topics.get("news").await.expect("there").subscriptions);
    assert_eq!((listed[0].filter.as_ref(), listed[1].filter.as_ref()), (None, Some(&mails)));
    let message = Outgoing::new("x").expect("JSON").attribute("kind", "mail");
    let published = topics.publish("news", &message).await.expect("published");
    assert_eq!((published.sequence, published.subscriptions), (1, 2));
    let ask = Receive::up_to(1).wait(Duration::from_secs(20));
    let got = client.queue("mails").receive(ask).await.expect("received");
    assert_eq!(got[0].message_id, published.message_id);
    let mut batch: Vec<_> = (0..1100).map(|n| Outgoing::new(&n).expect("JSON")).collect();
    batch[7] = Outgoing::new("x").expect("JSON").attribute("big", "x".repeat(300_000));
    let results = topics.publish_batch("news", &batch).await.expect("two requests");
    let refused: Vec<_> = (0..1100).filter(|&n| results[n].is_err()).collect();
    assert_eq!((results.len(), refused), (1100, vec![7]));
    let last = results[1099].as_ref().expect("published");
    assert_eq!((last.sequence, last.subscriptions), (1100, 1));
    topics.unsubscribe("news", "mails").await.expect("unsubscribed");
    assert_eq!(topics.list_all().await.expect("all")[0].subscriptions.len(), 1);
    topics.delete("news").await.expect("deleted");
    assert!(topics.publish("news", &message).await.expect_err("gone").is("not-found"));
    server.stop().await;
}

#[tokio::test]
async fn messages_are_looked_at_in_pages() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    for n in 0..5 {
        queue.send(&n).await.expect("sent");
    }
    let (mut sequences, mut cursor) = (Vec::new(), None);
    loop {
        let page = queue.peek_page(PeekState::Visible, 2, cursor.as_deref()).await.expect("looked");
        sequences.extend(page.messages.iter().map(|message| message.sequence));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sequences, [1, 2, 3, 4, 5]);
    server.stop().await;
}

#[tokio::test]
async fn a_message_is_typed_from_end_to_end() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let mail = Mail { to: "a@b.example".to_owned(), tries: 2 };
    let message = Outgoing::new(&mail)
        .expect("JSON")
        .attribute("kind", "mail")
        .attribute("size", 3)
        .attribute("urgent", true)
        .attribute("digest", vec![0, 255]);
    let sent = queue.send_message(&message).await.expect("sent");
    let seen = queue.peek(PeekState::Visible, 10).await.expect("looked");
    assert_eq!((seen.len(), seen[0].receipt_handle.as_str()), (1, ""));
    let got = queue.receive(Receive::up_to(10)).await.expect("received").remove(0);
    assert_eq!((&got.message_id, got.sequence, got.receive_count), (&sent.message_id, 1, 1));
    assert_eq!(got.body::<Mail>().expect("a mail"), mail);
    assert!(matches!(got.body::<Vec<u8>>(), Err(Error::Body(_))));
    assert_eq!(got.attributes["digest"], Attribute::Binary(vec![0, 255]));
    assert_eq!(got.attributes["urgent"], Attribute::Bool(true));

    queue.extend(&got, Duration::from_secs(120)).await.expect("longer");
    server.advance(Duration::from_secs(100));
    queue.nack(&got, None, &"why ".repeat(1000)).await.expect("a long reason is cut");
    let again = queue.receive(Receive::default()).await.expect("received").remove(0);
    assert_eq!(again.receive_count, 2);
    queue.ack(&again).await.expect("done");
    let stale = queue.ack(&again).await.expect_err("done already");
    assert!(stale.is("conflict"), "{stale}: no answer was lost, so it is known");
    server.stop().await;
}

#[tokio::test]
async fn attributes_with_types_of_their_own_are_received_as_they_were_sent() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let typed = |data_type: &str, value: &str| Attribute::Typed {
        data_type: data_type.to_owned(),
        value: value.to_owned(),
    };
    let notes = [
        ("id", typed("Number.id", "1.50")),
        ("agent", typed("Number", "007")),
        ("word", typed("String.x", "abcd")),
        ("picture", typed("Binary.png", "AAE=")),
    ];
    let with = |message: Outgoing, (name, value): &(&str, Attribute)| {
        message.attribute(*name, value.clone())
    };
    let message = notes.iter().fold(Outgoing::new("x").expect("JSON"), with);
    queue.send_message(&message).await.expect("sent");
    queue.send("plain").await.expect("sent");
    let got = queue.receive(Receive::up_to(10)).await.expect("received");
    assert_eq!((got.len(), got[0].attributes.len()), (2, 4));
    for (name, value) in notes {
        assert_eq!(got[0].attributes[name], value, "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_may_try_for_ever() {
    let server = Server::start().await;
    let retry = Retry { deadline: Duration::MAX, ..Retry::default() };
    let builder = Client::builder(format!("http://{}", server.addr)).retry(retry);
    let client = builder.build().expect("a URL");
    client.queues().create(&NewQueue::new("jobs")).await.expect("made");
    let queue = client.queue("jobs");
    queue.send(&1).await.expect("sent");
    let got = queue.receive(Receive::up_to(1)).await.expect("received").remove(0);
    let acked = queue.ack_batch(&[got.receipt_handle]).await.expect("answered");
    assert!(acked[0].is_ok(), "{acked:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_batch_has_a_result_for_each_whatever_its_size() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let mut batch: Vec<_> = (0..1500).map(|n| Outgoing::new(&n).expect("JSON")).collect();
    batch[7] = Outgoing::new("x").expect("JSON").group("none here");
    let results = queue.send_batch(&batch).await.expect("answered");
    assert_eq!(results.len(), 1500);
    let refused: Vec<_> = (0..1500).filter(|&n| results[n].is_err()).collect();
    assert_eq!(refused, [7]);
    assert_eq!(results[1499].as_ref().expect("sent").sequence, 1499);
    let got = queue.receive(Receive::up_to(3)).await.expect("received");
    let mut handles: Vec<_> = got.iter().map(|message| message.receipt_handle.clone()).collect();
    assert!(queue.give_back(&handles[2..]).await.expect("answered")[0].is_ok());
    handles[1] = "forged".to_owned();
    let acked = queue.ack_batch(&handles).await.expect("answered");
    let kinds: Vec<_> = acked
        .iter()
        .map(|r| r.as_ref().map_or_else(|e| e.problem().unwrap().status, |()| 0))
        .collect();
    assert_eq!(kinds, [0, 400, 409]);
    server.stop().await;
}

#[tokio::test]
async fn many_leases_are_made_longer_at_once() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    for n in 0..3 {
        queue.send(&n).await.expect("sent");
    }
    let ask = Receive::up_to(3).visibility(Duration::from_secs(10));
    let got = queue.receive(ask).await.expect("received");
    let mut handles: Vec<_> = got.iter().map(|message| message.receipt_handle.clone()).collect();
    handles.push("forged".to_owned());
    let longer = Duration::from_secs(600);
    let results = queue.extend_batch(&handles[1..], longer).await.expect("answered");
    assert!(results[0].is_ok() && results[1].is_ok(), "{results:?}");
    assert!(results[2].as_ref().is_err_and(|error| error.is("invalid-parameter")), "{results:?}");
    server.advance(Duration::from_secs(100));
    let ask = Receive::up_to(3).wait(Duration::from_secs(20));
    let again = queue.receive(ask).await.expect("received");
    assert_eq!((again.len(), &again[0].message_id), (1, &got[0].message_id));
    let late = queue.extend_batch(&handles[..1], longer).await.expect("answered");
    assert!(late[0].as_ref().is_err_and(|error| error.is("conflict")), "{late:?}");
    server.stop().await;
}

async fn end_of(redrives: &Redrives, id: &str) -> Redrive {
    let end = async {
        loop {
            let now = redrives.get(id).await.expect("there");
            if now.state != RedriveState::Running {
                return now;
            }
        }
    };
    timeout(HANG, end).await.expect("it ends")
}

#[tokio::test]
async fn redrives_are_begun_looked_at_listed_and_ended() {
    let server = Server::start().await;
    let (dead, jobs) = (server.queue("dead").await, server.queue("jobs").await);
    for n in 0..5 {
        let kind = if n == 0 { "odd" } else { "usual" };
        let message = Outgoing::new(&n).expect("JSON").attribute("kind", kind);
        dead.send_message(&message).await.expect("sent");
    }
    let redrives = server.client().redrives();
    let all = RedriveAsk {
        target_queue: Some("jobs".to_owned()),
        filter: Some(json!({"kind": ["usual"]})),
        ..RedriveAsk::default()
    };
    let ask = RedriveAsk { limit: Some(3), dry_run: true, ..all.clone() };
    let counted = redrives.begin("dead", &ask).await.expect("begun");
    let end = end_of(&redrives, &counted).await;
    assert_eq!((end.state, end.dry_run, end.waiting), (RedriveState::Done, true, 5));
    assert_eq!((end.matched, end.moved, end.skipped, end.left()), (3, 0, 1, 1));
    assert_eq!((end.queue.as_str(), end.target_queue.as_deref()), ("dead", Some("jobs")));
    assert!(end.ended_at.is_some());

    // One a second: it is not through before somebody ends it.
    let ask = RedriveAsk { max_messages_per_second: Some(1), ..all.clone() };
    let slow = redrives.begin("dead", &ask).await.expect("begun");
    let two = redrives.begin("dead", &all).await.expect_err("one at a time");
    assert!(two.is("conflict"), "{two}");
    redrives.cancel(&slow).await.expect("ended");
    let end = redrives.get(&slow).await.expect("there");
    assert_eq!(end.state, RedriveState::Cancelled);
    assert!(end.moved < 4, "{end:?}");

    let whole = redrives.begin("dead", &all).await.expect("begun");
    assert_eq!(end_of(&redrives, &whole).await.state, RedriveState::Done);
    let moved = jobs.peek(PeekState::Visible, 10).await.expect("looked");
    let left = dead.peek(PeekState::Visible, 10).await.expect("looked");
    assert_eq!((moved.len(), left.len()), (4, 1));

    let listed = redrives.list("dead").await.expect("listed");
    let ids: Vec<_> = listed.iter().map(|redrive| redrive.redrive_id.as_str()).collect();
    assert_eq!(ids, [&whole, &slow, &counted]);
    assert_eq!(listed[2], redrives.get(&counted).await.expect("there"));
    assert!(redrives.list("none").await.expect_err("no such queue").is("not-found"));
    assert!(redrives.cancel("none").await.expect_err("no such redrive").is("not-found"));
    server.stop().await;
}

#[tokio::test]
async fn a_long_poll_ends_with_the_first_message() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let waiting = queue.clone();
    let ask = Receive::up_to(5).wait(Duration::from_secs(20));
    let waiting = tokio::spawn(async move { waiting.receive(ask).await });
    while server.node.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    queue.send("now").await.expect("sent");
    let got = waiting.await.expect("no panic").expect("received");
    assert_eq!(&*got[0].plain_body(), b"now");
    server.stop().await;
}

#[tokio::test]
async fn other_calls_use_the_same_ground() {
    let server = Server::start().await;
    let call = Call::new(Method::POST, ["v1", "users", "ann/b", "searches"]);
    let call = call.json(&json!({"q": "rome"})).expect("JSON").keyed();
    let made: Value = server.client().call(call).await.expect("made");
    assert_eq!(made["q"], "rome");
    let list = Call::new(Method::GET, ["v1", "users", "ann/b", "searches"]);
    let list: Value = server.client().call(list).await.expect("listed");
    assert_eq!(list["items"][0]["q"], "rome");
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_is_believed_only_when_it_is_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let tls = Arc::new(Tls::load(cert, key).expect("a certificate and its key"));
    let server = Server::start_with(ServerOptions { tls: Some(tls) }).await;
    let builder = Client::builder(format!("https://localhost:{}", server.addr.port()));
    let trusting = builder.clone().root_certificates(made.cert.pem()).build().expect("settings");
    trusting.queues().create(&NewQueue::new("jobs")).await.expect("made");
    let none = builder.clone().root_certificates("no PEM at all").build();
    assert!(matches!(none, Err(Error::Setting(_))));
    let wary = builder.retry(client::Retry::none()).build().expect("settings");
    let refused = wary.queues().get("jobs").await.expect_err("nobody vouches for it");
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    server.stop().await;
}
