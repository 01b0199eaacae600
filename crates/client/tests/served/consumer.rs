//! Handlers, their leases and their ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::{
    Client, Delivery, NewQueue, Outgoing, PeekState, Queue, QueueSettings, Receive, Retry, Stopper,
};
use serde_json::json;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::timeout;

use crate::harness::{Cut, HANG, Proxy, Server};
use crate::stub::{Say, Stub, settled};

pub(crate) async fn eventually<T>(what: impl Future<Output = T>) -> T {
    timeout(HANG, what).await.expect("it happens")
}

pub(crate) async fn send(queue: &Queue, count: usize) {
    let batch: Vec<_> = (0..count).map(|n| Outgoing::new(&n).expect("JSON")).collect();
    assert!(queue.send_batch(&batch).await.expect("sent").iter().all(Result::is_ok));
}

#[tokio::test]
async fn every_message_is_handled_and_acked_with_no_more_than_n_at_once() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 300).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, top) = (Arc::clone(&running), Arc::clone(&most));
    let consumer = queue.consumer().concurrency(7).until_empty().start(move |_: Delivery| {
        let (now, top) = (Arc::clone(&now), Arc::clone(&top));
        async move {
            top.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<(), String>(())
        }
    });
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.failed, summary.lost), (300, 0, 0));
    assert!(most.load(Ordering::SeqCst) <= 7);
    let info = server.client().queues().get("jobs").await.expect("there");
    assert_eq!((info.visible, info.inflight), (0, 0));
    server.stop().await;
}

/// A queue whose messages are dead when they were received once without an ack.
async fn with_one_try(server: &Server) -> Queue {
    let settings = QueueSettings {
        max_receive_count: Some(1),
        dead_letter_queue: Some("dead".to_owned()),
        ..QueueSettings::default()
    };
    let client = server.client();
    client.queues().create(&NewQueue::new("jobs").settings(settings)).await.expect("made");
    client.queue("jobs")
}

#[tokio::test]
async fn what_fails_or_panics_is_nacked_with_its_text() {
    let server = Server::start().await;
    let queue = with_one_try(&server).await;
    let client = server.client();
    client.queues().create(&NewQueue::new("dead")).await.expect("made");
    send(&queue, 2).await;
    let consumer = queue.consumer().until_empty().start(|delivery: Delivery| async move {
        match delivery.body::<u8>() {
            Ok(0) => Err("no such address".to_owned()),
            _ => panic!("number {}", 1),
        }
    });
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.failed), (0, 2));
    let ask = Receive::up_to(2).wait(Duration::from_secs(20));
    let mut reasons = Vec::new();
    while reasons.len() < 2 {
        for dead in client.queue("dead").receive(ask).await.expect("received") {
            reasons.push(dead.dead_letter.expect("a story").last_reason.expect("a reason"));
        }
    }
    reasons.sort();
    assert_eq!(reasons, ["no such address", "panicked: number 1"]);
    server.stop().await;
}

#[tokio::test]
async fn messages_of_a_group_are_handled_one_after_the_other_also_when_one_fails() {
    let server = Server::start().await;
    let client = server.client();
    client.queues().create(&NewQueue::new("jobs").fifo()).await.expect("made");
    let queue = client.queue("jobs");
    let (groups, each) = (["a", "b"], 4);
    let outgoing = |group: &str, n: usize| Outgoing::new(&(group, n)).expect("JSON").group(group);
    let batch: Vec<_> =
        groups.iter().flat_map(|group| (0..each).map(|n| outgoing(group, n))).collect();
    assert!(queue.send_batch(&batch).await.expect("sent").iter().all(Result::is_ok));
    let (said, mut heard) = mpsc::unbounded_channel();
    let consumer = queue.consumer().concurrency(4).start(move |delivery: Delivery| {
        let said = said.clone();
        async move {
            let (group, n) = delivery.body::<(String, usize)>().expect("as it was sent");
            let fails = n == 1 && delivery.receive_count == 1;
            said.send((group.clone(), n, "begins")).expect("heard");
            // Whoever may run beside this one does now.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let how = if fails { "fails" } else { "is done" };
            said.send((group, n, how)).expect("heard");
            if fails { Err("not yet") } else { Ok(()) }
        }
    });
    let mut events = Vec::new();
    let done =
        |events: &[(String, usize, &str)]| events.iter().filter(|e| e.2 == "is done").count();
    while done(&events) < groups.len() * each {
        events.push(eventually(heard.recv()).await.expect("it goes on"));
    }
    eventually(consumer.shutdown()).await.expect("it ends well");
    for group in groups {
        let seen = events.iter().filter(|event| event.0 == group).map(|event| (event.1, event.2));
        let tries = [(0, "is done"), (1, "fails"), (1, "is done"), (2, "is done"), (3, "is done")];
        let expected = tries.into_iter().flat_map(|(n, how)| [(n, "begins"), (n, how)]);
        assert_eq!(seen.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
    server.stop().await;
}

#[tokio::test]
async fn until_empty_tries_each_message_once() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 5).await;
    let handler = |_: Delivery| async { Err::<(), _>("not today") };
    let consumer = queue.consumer().concurrency(2).until_empty().start(handler);
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!(summary.failed, 5);
    let left = queue.peek(PeekState::Visible, 10).await.expect("looked");
    let seen: Vec<_> = left.iter().map(|m| (m.receive_count, m.last_reason.as_deref())).collect();
    assert_eq!(seen, [(1, Some("not today")); 5]);
    server.stop().await;
}

#[tokio::test]
async fn until_empty_ends_when_failures_fill_up_what_may_be_inflight() {
    let server = Server::start().await;
    let settings = QueueSettings { max_inflight: Some(3), ..QueueSettings::default() };
    let made = server.client().queues();
    made.create(&NewQueue::new("jobs").settings(settings)).await.expect("made");
    send(&server.client().queue("jobs"), 5).await;
    let url = format!("http://{}", server.addr);
    let builder = Client::builder(url).retry(Retry::none());
    let queue = builder.build().expect("a URL").queue("jobs");
    let handler = |_: Delivery| async { Err::<(), _>("not today") };
    let consumer = queue.consumer().concurrency(2).until_empty().start(handler);
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.failed), (0, 3));
    let left = queue.peek(PeekState::Visible, 10).await.expect("looked");
    let tried = left.iter().filter(|message| message.receive_count == 1).count();
    assert_eq!((left.len(), tried), (5, 3), "those that were not tried are there as well");
    server.stop().await;
}

/// Renewals follow the client's clock, which is the real one: the lease is two seconds, and
/// another waits five for the message in vain.
#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_its_handler_runs() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 1).await;
    let (go_on, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (until, tell) = (Arc::clone(&go_on), Arc::clone(&begun));
    let consumer =
        queue.consumer().visibility(Duration::from_secs(2)).start(move |delivery: Delivery| {
            let (until, tell) = (Arc::clone(&until), Arc::clone(&tell));
            async move {
                tell.notify_one();
                until.notified().await;
                if delivery.lease_lost().is_cancelled() { Err("lost") } else { Ok(()) }
            }
        });
    eventually(begun.notified()).await;
    let other = Receive::up_to(1).wait(Duration::from_secs(5));
    assert!(queue.receive(other).await.expect("received").is_empty());
    go_on.notify_one();
    let summary = eventually(consumer.shutdown()).await.expect("it ends well");
    assert_eq!((summary.done, summary.lost), (1, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_handler_is_told_when_its_lease_is_lost() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 1).await;
    let (tell, mut told) = mpsc::channel(1);
    let consumer = queue.consumer().visibility(Duration::from_secs(1)).concurrency(1).start(
        move |delivery: Delivery| {
            let tell = tell.clone();
            async move {
                tell.send("begun").await.map_err(|error| error.to_string())?;
                delivery.lease_lost().cancelled().await;
                tell.send("lost").await.map_err(|error| error.to_string())
            }
        },
    );
    assert_eq!(eventually(told.recv()).await, Some("begun"));
    // The server's clock leaps: the lease ends before it can be renewed, and another has it.
    server.advance(Duration::from_secs(10));
    let other = Receive::up_to(1).wait(Duration::from_secs(20)).visibility(Duration::from_secs(99));
    let other = queue.receive(other).await.expect("received").remove(0);
    assert_eq!(other.receive_count, 2);
    assert_eq!(eventually(told.recv()).await, Some("lost"));
    let summary = eventually(consumer.shutdown()).await.expect("it ends well");
    assert_eq!((summary.done, summary.lost), (0, 1), "its ack came too late");
    queue.ack(&other).await.expect("whoever has the lease settles it");
    server.stop().await;
}

#[tokio::test]
async fn shutdown_lets_handlers_finish_and_receives_no_more() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 5).await;
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (until, tell) = (Arc::clone(&gate), Arc::clone(&begun));
    let consumer = queue.consumer().concurrency(2).start(move |_: Delivery| {
        let (until, tell) = (Arc::clone(&until), Arc::clone(&tell));
        async move {
            tell.add_permits(1);
            until.acquire().await.expect("open").forget();
            Ok::<(), String>(())
        }
    });
    let both = eventually(begun.acquire_many(2)).await.expect("two begin");
    let stopper = consumer.stopper();
    stopper.stop();
    gate.add_permits(5);
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.given_back), (2, 0));
    drop(both);
    let info = server.client().queues().get("jobs").await.expect("there");
    assert_eq!((info.visible, info.inflight), (3, 0), "nothing is lost, nothing is held");
    server.stop().await;
}

#[tokio::test]
async fn shutdown_gives_back_what_is_not_done_within_the_grace_time() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 3).await;
    let (dropped, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    struct Told(Arc<AtomicUsize>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (count, tell) = (Arc::clone(&dropped), Arc::clone(&begun));
    let consumer = queue.consumer().concurrency(2).grace(Duration::from_millis(10)).start(
        move |_: Delivery| {
            let (held, tell) = (Told(Arc::clone(&count)), Arc::clone(&tell));
            async move {
                tell.add_permits(1);
                std::future::pending::<()>().await;
                drop(held);
                Ok::<(), String>(())
            }
        },
    );
    let both = eventually(begun.acquire_many(2)).await.expect("two begin");
    let summary = eventually(consumer.shutdown()).await.expect("it ends well");
    assert_eq!((summary.done, summary.given_back), (0, 2));
    assert_eq!(dropped.load(Ordering::SeqCst), 2, "handlers are gone before their messages are");
    drop(both);
    assert_eq!(queue.receive(Receive::up_to(10)).await.expect("received").len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn what_a_receive_brings_after_the_stop_is_given_back() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    let handler = |_: Delivery| async { Ok::<(), String>(()) };
    let consumer = queue.consumer().linger(HANG).start(handler);
    while server.node.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    consumer.stopper().stop();
    send(&queue, 1).await;
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.given_back), (0, 1));
    let got = queue.receive(Receive::up_to(10)).await.expect("received");
    assert_eq!((got.len(), got[0].receive_count), (1, 1), "it was not begun");
    server.stop().await;
}

#[tokio::test]
async fn a_queue_that_is_not_there_ends_it() {
    let server = Server::start().await;
    let handler = |_: Delivery| async { Ok::<(), String>(()) };
    let consumer = server.client().queue("none").consumer().start(handler);
    let error = eventually(consumer.ended()).await.expect_err("there is none");
    assert!(error.is("not-found"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for_unless_it_must_be_there() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 1).await;
    for must_connect in [true, false] {
        let proxy = Proxy::start(server.addr, &[Cut::AtOnce]).await;
        let builder = Client::builder(format!("http://{}", proxy.addr)).retry(Retry::none());
        let queue = builder.build().expect("a URL").queue("jobs");
        let handler = |_: Delivery| async { Ok::<(), String>(()) };
        let consumer = queue.consumer().until_empty();
        let consumer = if must_connect { consumer.must_connect() } else { consumer };
        match eventually(consumer.start(handler).ended()).await {
            Err(error) => assert!(must_connect && error.is_passing(), "{error}"),
            Ok(summary) => assert_eq!((must_connect, summary.done), (false, 1)),
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_consumer_that_must_connect_has_connected_when_it_was_answered_once() {
    let mut receives = 0;
    let stub = Stub::start(move |asked, _| {
        receives += u32::from(asked.verb == "receive");
        match (asked.verb.as_str(), receives) {
            ("receive", 1) => Say::Answer(200, json!({"messages": []})),
            ("receive", 2) => Say::Nothing,
            ("receive", 3) => Say::Message("a"),
            ("receive", _) => Say::Never,
            _ => settled(asked),
        }
    });
    let stub = stub.await;
    let handler = |_: Delivery| async { Ok::<(), String>(()) };
    let builder = stub.client().queue("jobs").consumer().must_connect();
    let consumer = builder.linger(Duration::ZERO).start(handler);
    stub.until_asked("ack", "a").await;
    let waits: Vec<u64> = stub.seen().iter().filter_map(|asked| asked.wait).collect();
    assert_eq!((waits[0], waits[1] > 0), (0, true), "it is known at once, and then waited for");
    assert_eq!(eventually(consumer.shutdown()).await.expect("it ends well").done, 1);
}

#[tokio::test]
async fn what_a_consumer_gives_back_unbegun_does_not_count_as_received() {
    let server = Server::start().await;
    let queue = with_one_try(&server).await;
    send(&queue, 1).await;
    let held = queue.receive(Receive::default()).await.expect("received").remove(0);
    let given = queue.give_back(&[held.receipt_handle]).await.expect("answered");
    assert!(given[0].is_ok());
    let again = queue.receive(Receive::default()).await.expect("received").remove(0);
    assert_eq!(again.receive_count, 1);
    server.stop().await;
}

#[tokio::test]
async fn what_a_handler_gives_back_goes_to_another_and_does_not_count_as_received() {
    let server = Server::start().await;
    let queue = with_one_try(&server).await;
    send(&queue, 1).await;
    let stopper = Stopper::default();
    // One place: a receive that waits in another would get what goes back.
    let builder = queue.consumer().concurrency(1).stopper(stopper.clone());
    let consumer = builder.start(move |delivery: Delivery| {
        let stopper = stopper.clone();
        async move {
            delivery.give_back();
            stopper.stop();
            Err::<(), _>("the tools are not there")
        }
    });
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.failed, summary.given_back), (0, 0, 1));
    let left = queue.peek(PeekState::Visible, 10).await.expect("looked");
    let seen: Vec<_> = left.iter().map(|m| (m.receive_count, m.last_reason.as_deref())).collect();
    assert_eq!(seen, [(0, None)], "it is no dead letter");
    server.stop().await;
}

#[tokio::test]
async fn a_handler_that_stops_its_consumer_gets_no_more() {
    let server = Server::start().await;
    let queue = server.queue("jobs").await;
    send(&queue, 50).await;
    let stopper = Stopper::default();
    let builder = queue.consumer().concurrency(1).stopper(stopper.clone());
    let consumer = builder.start(move |_: Delivery| {
        let stopper = stopper.clone();
        async move {
            stopper.stop();
            Err::<(), _>("none can succeed")
        }
    });
    let summary = eventually(consumer.ended()).await.expect("it ends well");
    assert_eq!((summary.done, summary.failed, summary.given_back), (0, 1, 0));
    let peeked = queue.peek(PeekState::Visible, 100).await.expect("looked");
    assert_eq!(peeked.iter().filter(|message| message.receive_count > 0).count(), 1);
    server.stop().await;
}
