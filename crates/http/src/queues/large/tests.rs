use std::time::Duration;

use node::{Node, NodeConfig};
use queue::parcel::Body;
use queue::{Ack, Create, Mode, PeekState, Receive, Settings, Settled};

use super::*;

const TENANT: TenantId = TenantId(7);
const JOBS: &str = "jobs";
/// Longer than anything takes on a slow machine.
const HANG: Duration = Duration::from_secs(60);

/// An edge with a queue, in which is one message with a large body.
async fn edge_with_one(folder: &tempfile::TempDir) -> (Edge, Definition) {
    crate::telemetry::install();
    let (data_dir, shards) = (folder.path().to_owned(), Some(1));
    let node = Node::start(NodeConfig { data_dir, shards, ..NodeConfig::default() });
    let edge = Edge::new(node.expect("a node on an empty folder"));
    let settings = Settings {
        large_bodies: true,
        max_body_bytes: LARGE_BODY_BYTES_MAX,
        ..Settings::usual(Mode::Standard)
    };
    let parcel = Parcel::new(Body::Text("x".repeat(300 << 10)));
    let large = Outgoing::new(parcel, &settings).unwrap_or_else(|_| panic!("it fits"));
    ask(&edge, Command::Create(Create { queue: JOBS.into(), settings })).await;
    let sent = service::send_in_parts(&edge, TENANT, JOBS, None, vec![(0, large)]).await;
    assert!(sent.expect("it is taken")[0].is_ok());
    let definition = service::find(&edge, TENANT, JOBS).await.expect("it can be read");
    (edge, definition.expect("it was made"))
}

async fn ask(edge: &Edge, command: Command) -> Reply {
    service::submit(edge, TENANT, JOBS, None, &command).await.expect("the shard answers")
}

fn peek(edge: &Edge, definition: &Definition) -> Vec<Looked> {
    let rows = edge.node.rows(queue::place(TENANT, JOBS));
    let state = PeekState::Visible;
    queue::peek_after(&rows, TENANT, definition.number, state, None, 9).expect("a page").0
}

/// How many are left of what was looked at, when its bodies are read.
async fn opened(edge: &Edge, definition: &Definition, peeked: Vec<Looked>) -> usize {
    let source = Source { tenant: TENANT, name: JOBS, definition };
    whole(edge, source, peeked).await.expect("the archive can be read").messages.len()
}

fn lost() -> Option<u64> {
    let text = crate::telemetry::metrics::render();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("stampede_queue_bodies_lost"));
    lines.find_map(|line| line.strip_prefix("_total ")).and_then(|count| count.parse().ok())
}

/// One test, because metrics are one for all.
#[tokio::test]
async fn a_body_that_went_with_its_message_is_not_lost_and_one_that_went_without_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (edge, definition) = edge_with_one(&folder).await;
    let peeked = peek(&edge, &definition);
    let before = lost();
    let receive = Receive { queue: JOBS.into(), max: 1, visibility_ms: None };
    let Reply::Received(got) = ask(&edge, Command::Receive(receive)).await else { panic!() };
    assert_eq!(opened(&edge, &definition, peeked.clone()).await, 1);
    let ack = Ack { queue: JOBS.into(), receipts: vec![got[0].receipt] };
    assert_eq!(ask(&edge, Command::Ack(ack)).await, Reply::Settled(vec![Settled::Done]));
    let at = ArchivedBody::of(&got[0].parcel).expect("it is large");
    let gone = async {
        while edge.node.body(TENANT, &at).await.is_ok() {
            // sleeps because executors work in the background and nothing tells when they are done
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(HANG, gone).await.expect("its body is deleted");
    assert_eq!((opened(&edge, &definition, peeked).await, lost()), (0, before));
    edge.node.shutdown().await;

    let folder = tempfile::tempdir().expect("a folder");
    let (edge, definition) = edge_with_one(&folder).await;
    let peeked = peek(&edge, &definition);
    let at = ArchivedBody::of(&peeked[0].peeked.parcel).expect("it is large");
    edge.node.drop_body(TENANT, &at).await;
    assert_eq!(opened(&edge, &definition, peeked).await, 0);
    assert_eq!(lost(), Some(before.unwrap_or(0) + 1));
    edge.node.shutdown().await;
}
