//! What concerns a lease is tried until it ends, or until somebody wants an end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Consumer, Delivery, PeekState, Queue, Receive, Retry, Stopper};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::consumer::{eventually, send};
use crate::harness::{Proxy, Server};
use crate::stub::{LONG, Say, Stub, busy, count, outcomes, settled};

/// One try of the client ends at once; so do five in the other tests, with their pauses.
const LONGER_THAN_THE_TRIES: Duration = Duration::from_millis(500);

/// A queue behind a proxy, of a client that gives up after one try where it is asked.
fn impatient(proxy: &Proxy) -> Queue {
    let builder = Client::builder(format!("http://{}", proxy.addr)).retry(Retry::none());
    builder.build().expect("a URL").queue("jobs")
}

/// A consumer behind a proxy that goes down while a handler runs, which then returns this; or goes on
/// for ever.
async fn down_while_handled(
    proxy: &Proxy,
    visibility: Duration,
    outcome: Option<Result<(), &'static str>>,
) -> Consumer {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, until) = (Arc::clone(&begun), Arc::clone(&go_on));
    let builder = impatient(proxy).consumer().visibility(visibility);
    let consumer = builder.start(move |_: Delivery| {
        let (tell, until) = (Arc::clone(&tell), Arc::clone(&until));
        async move {
            tell.notify_one();
            until.notified().await;
            match outcome {
                Some(outcome) => outcome,
                None => std::future::pending().await,
            }
        }
    });
    eventually(begun.notified()).await;
    proxy.down(true);
    go_on.notify_one();
    consumer
}

#[tokio::test]
async fn what_is_done_is_acked_when_the_server_is_back_within_the_lease() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let proxy = Proxy::start(server.addr, &[]).await;
    for outcome in [Ok(()), Err("not today")] {
        send(&queue, 1).await;
        let consumer = down_while_handled(&proxy, Duration::from_secs(30), Some(outcome)).await;
        // Stopping gives nothing up either.
        let stopper = consumer.stopper();
        stopper.stop();
        // sleeps because the tries follow the client's clock, which is the real one
        tokio::time::sleep(LONGER_THAN_THE_TRIES).await;
        proxy.down(false);
        let summary = eventually(consumer.ended()).await.expect("it ends well");
        let done = u64::from(outcome.is_ok());
        assert_eq!((summary.done, summary.failed, summary.lost), (done, 1 - done, 0));
        let left = queue.peek(PeekState::Visible, 10).await.expect("looked");
        let reasons: Vec<_> = left.iter().map(|left| left.last_reason.as_deref()).collect();
        assert_eq!(reasons, if outcome.is_ok() { vec![] } else { vec![Some("not today")] });
        let info = server.client().queues().get("jobs").await.expect("there");
        assert_eq!(info.inflight, 0);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_ack_is_given_up_when_its_lease_has_ended_and_not_before() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let proxy = Proxy::start(server.addr, &[]).await;
    send(&queue, 1).await;
    let (before, lease) = (Instant::now(), Duration::from_secs(6));
    let consumer = down_while_handled(&proxy, lease, Some(Ok(()))).await;
    let summary = eventually(consumer.shutdown()).await.expect("it ends well");
    assert_eq!((summary.done, summary.lost), (0, 1));
    // What has ended is tried for two seconds more: that alone would be over long before.
    let took = before.elapsed();
    assert!(took > lease - LONGER_THAN_THE_TRIES, "{took:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_lease_is_renewed_when_the_server_is_back_before_it_ends() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let proxy = Proxy::start(server.addr, &[]).await;
    send(&queue, 1).await;
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, until) = (Arc::clone(&begun), Arc::clone(&go_on));
    let builder = impatient(&proxy).consumer().visibility(Duration::from_secs(4));
    let consumer = builder.start(move |delivery: Delivery| {
        let (tell, until) = (Arc::clone(&tell), Arc::clone(&until));
        async move {
            tell.notify_one();
            until.notified().await;
            if delivery.lease_lost().is_cancelled() { Err("lost") } else { Ok(()) }
        }
    });
    eventually(begun.notified()).await;
    proxy.down(true);
    // sleeps because it is tried from half time on, by the client's clock
    tokio::time::sleep(Duration::from_secs(2) + LONGER_THAN_THE_TRIES).await;
    proxy.down(false);
    let other = Receive::up_to(1).wait(Duration::from_secs(4));
    assert!(queue.receive(other).await.expect("received").is_empty());
    go_on.notify_one();
    let summary = eventually(consumer.shutdown()).await.expect("it ends well");
    assert_eq!((summary.done, summary.lost), (1, 0));
    server.stop().await;
}

#[tokio::test]
async fn abort_ends_soon_though_the_server_is_away_and_leases_last_long() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    for (outcome, counts) in
        [(Some(Ok(())), (0, 0, 1)), (Some(Err("not today")), (1, 0, 0)), (None, (0, 1, 0))]
    {
        let proxy = Proxy::start(server.addr, &[]).await;
        send(&queue, 1).await;
        let consumer = down_while_handled(&proxy, LONG, outcome).await;
        // sleeps because the handler is to have returned, and its ack or nack to wait for a try
        tokio::time::sleep(LONGER_THAN_THE_TRIES).await;
        consumer.stopper().abort();
        let summary = eventually(consumer.ended()).await.expect("it ends well");
        assert_eq!((summary.failed, summary.given_back, summary.lost), counts);
        assert_eq!(summary.done, 0);
    }
    server.stop().await;
}

/// A consumer of a stub, of whose messages the handler says this.
fn consume(
    stub: &Stub,
    visibility: Duration,
    concurrency: usize,
    handler: impl Fn(String) -> Result<(), String> + Send + Sync + 'static,
) -> Consumer {
    let queue = stub.client().queue("jobs");
    let builder = queue.consumer().visibility(visibility).linger(Duration::ZERO);
    let builder = builder.concurrency(u16::try_from(concurrency).expect("not so many"));
    builder.start(move |delivery: Delivery| {
        std::future::ready(handler(delivery.body().expect("text")))
    })
}

fn all_done(_: String) -> Result<(), String> {
    Ok(())
}

/// Receives get these, one after the other, and then nothing.
fn messages(handles: &'static [&'static str]) -> impl FnMut() -> Say + Send {
    let mut rest = handles.iter();
    move || rest.next().map_or(Say::Never, |handle| Say::Message(handle))
}

#[tokio::test]
async fn an_ack_that_is_not_answered_holds_up_no_others() {
    let mut received = messages(&["a", "b", "c"]);
    let stub = Stub::start(move |asked, _| match asked.verb.as_str() {
        "receive" => received(),
        _ if asked.has("a") => Say::Never,
        _ => settled(asked),
    });
    let stub = stub.await;
    // What is behind it is not gathered together with it.
    let gate = Arc::new(Notify::new());
    let until = Arc::clone(&gate);
    let builder = stub.client().queue("jobs").consumer().visibility(LONG).linger(Duration::ZERO);
    let consumer = builder.start(move |delivery: Delivery| {
        let until = Arc::clone(&until);
        async move {
            if delivery.body::<String>().expect("text") != "a" {
                until.notified().await;
                until.notify_one();
            }
            Ok::<(), Infallible>(())
        }
    });
    stub.until_asked("ack", "a").await;
    gate.notify_one();
    for handle in ["b", "c"] {
        stub.until_asked("ack", handle).await;
    }
    consumer.stopper().abort();
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.lost), (2, 1));
}

#[tokio::test]
async fn an_ack_that_is_refused_after_an_answer_was_lost_is_not_known_to_be_done() {
    for lost in [true, false] {
        let mut received = messages(&["a"]);
        let stub = Stub::start(move |asked, before| match (asked.verb.as_str(), before) {
            ("receive", _) => received(),
            ("ack", 0) if lost => Say::Nothing,
            ("ack", _) if lost => outcomes(asked, |_| Some((409, "conflict"))),
            ("ack", 0) => busy(),
            _ => settled(asked),
        });
        let stub = stub.await;
        let consumer = consume(&stub, LONG, 1, all_done);
        stub.until_asked("ack", "a").await;
        let summary = eventually(consumer.shutdown()).await.expect("it ends well");
        assert_eq!((summary.done, summary.lost), if lost { (0, 1) } else { (1, 0) });
        assert_eq!(count(&stub.seen(), "ack"), 2, "it is asked for again, and then no more");
    }
}

#[tokio::test]
async fn each_of_many_acks_has_its_own_outcome() {
    const HANDLES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut received = messages(&HANDLES);
    let mut was_busy = false;
    let stub = Stub::start(move |asked, before| match asked.verb.as_str() {
        "receive" => received(),
        // Whoever is alone: the others gather while it rests.
        _ if asked.handles == ["a"] && before == 0 => busy(),
        _ => outcomes(asked, |handle| match handle {
            "b" if !std::mem::replace(&mut was_busy, true) => Some((503, "overloaded")),
            "c" => Some((409, "conflict")),
            _ => None,
        }),
    });
    let stub = stub.await;
    let consumer = consume(&stub, LONG, 10, all_done);
    for handle in HANDLES {
        stub.until_asked("ack", handle).await;
    }
    let summary = eventually(consumer.shutdown()).await.expect("it ends well");
    assert_eq!((summary.done, summary.lost), (4, 1));
    let acks: Vec<_> = stub.seen().into_iter().filter(|asked| asked.verb == "ack").collect();
    let times = HANDLES.map(|handle| acks.iter().filter(|asked| asked.has(handle)).count());
    assert_eq!(times[1..], [2, 1, 1, 1], "those that are refused for now, and no others");
}

#[tokio::test]
async fn acks_that_are_refused_for_now_make_no_storm() {
    const COUNT: usize = 60;
    let mut left = COUNT;
    let stub = Stub::start(move |asked, _| match asked.verb.as_str() {
        "receive" if left > 0 => {
            left -= 1;
            // Leases that end one after the other.
            Say::After(Duration::from_millis(20), Box::new(Say::Message("a")))
        }
        "receive" => Say::Never,
        _ => busy(),
    });
    let stub = stub.await;
    let began = Instant::now();
    let consumer = consume(&stub, Duration::from_secs(3), COUNT, all_done);
    stub.until(|seen| count(seen, "receive") > COUNT).await;
    let summary = eventually(consumer.shutdown()).await.expect("it ends well");
    assert_eq!((summary.done, summary.lost), (0, 60));
    let (acks, tenths) = (count(&stub.seen(), "ack"), began.elapsed().as_millis() / 100);
    assert!(acks as u128 <= tenths / 2 + 3, "{acks} requests in {tenths} tenths of a second");
    assert!(acks > 5, "they are tried again: {acks}");
}

#[tokio::test]
async fn nothing_is_received_in_the_place_of_what_is_not_nacked_yet() {
    let mut received = messages(&["a", "b"]);
    let stub = Stub::start(move |asked, before| match asked.verb.as_str() {
        "receive" => received(),
        "nack" if before < 2 => busy(),
        _ => Say::Answer(204, Value::Null),
    });
    let stub = stub.await;
    let consumer = consume(&stub, LONG, 1, |_| Err("not today".to_owned()));
    stub.until_asked("nack", "b").await;
    let verbs: Vec<_> = stub.seen().into_iter().map(|asked| asked.verb).collect();
    assert_eq!(verbs[..6], ["receive", "nack", "nack", "nack", "receive", "nack"]);
    consumer.stopper().abort();
    eventually(consumer.ended()).await.expect("it ends well");
}

#[tokio::test]
async fn abort_waits_no_longer_for_what_is_given_back() {
    let stopper = Stopper::default();
    let stops = stopper.clone();
    let stub = Stub::start(move |asked, _| match asked.verb.as_str() {
        "receive" => {
            stops.stop();
            Say::Message("a")
        }
        _ => Say::Never,
    });
    let stub = stub.await;
    let builder = stub.client().queue("jobs").consumer().stopper(stopper.clone()).grace(None);
    let consumer =
        builder.linger(LONG).start(|_: Delivery| std::future::ready(Ok::<(), String>(())));
    stub.until_asked("release", "a").await;
    stopper.abort();
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.given_back), (0, 1));
}
