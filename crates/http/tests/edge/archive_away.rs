//! What the server's log says while the archive is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::harness::Server;
use crate::large_bodies::{Away, How, text};

/// Counts what is told in the log at a level.
#[derive(Clone, Default)]
struct Told {
    errors: Arc<AtomicUsize>,
    warnings: Arc<AtomicUsize>,
}

impl<S: Subscriber> Layer<S> for Told {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        match *event.metadata().level() {
            Level::ERROR => drop(self.errors.fetch_add(1, Ordering::SeqCst)),
            Level::WARN => drop(self.warnings.fetch_add(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

#[tokio::test]
async fn while_the_archive_is_away_the_log_tells_of_it_once_a_second_and_not_for_each_request() {
    let (server, _) = Server::start_product(1).await;
    server.large("jobs").await;
    server.send_to("jobs", json!({"body": text(300 << 10)})).await;
    server.send_to("jobs", json!({"body": "small"})).await;
    let away = Away::take(&server, How::Broken);
    let told = Told::default();
    // Requests are answered on this thread.
    let _default =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(told.clone()));
    let began = Instant::now();
    let large = json!({"body": text(300 << 10)}).to_string();
    for _ in 0..20 {
        // Some can be shown, and the one that cannot is told of nevertheless.
        let some = Server::ok(&server.get("/v1/queues/jobs/messages").await, 200);
        assert_eq!(some["messages"].as_array().map(Vec::len), Some(1));
        let first = server.get("/v1/queues/jobs/messages?limit=1").await;
        first.problem(503, "archive-unavailable");
        let sent = server.post("/v1/queues/jobs/messages", &large).await;
        sent.problem(503, "archive-unavailable");
    }
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("a few") + 2;
    let warnings = told.warnings.load(Ordering::SeqCst);
    assert_eq!(told.errors.load(Ordering::SeqCst), 0);
    assert!((2..=2 * seconds).contains(&warnings), "{warnings} in less than {seconds} s");
    away.put_back();
    server.stop().await;
}
