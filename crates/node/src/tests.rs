//! What must hold of a node, with real files and threads.

mod fairness;
mod held_up;
mod streams;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kernel::mail::Letter;
use kernel::timers::Due;
use kernel::{
    Envelope, IdempotencyKey, Machine, MachineId, TenantId, Turn, Unreadable, VirtualShard,
};
use recents::{Add, Clear, Command, List, Remove, Reply};
use shard::Machines;

use crate::node::Parts;
use crate::{FolderError, Node, NodeConfig, Refusal, StartError};

const TENANT: TenantId = TenantId(1);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// How often something is looked at that happens in the background, and for how long.
const POLL: Duration = Duration::from_millis(5);
const POLLS_MAX: u32 = 6000;

struct Travel(AtomicU64);

/// A node in a folder, and the clock it goes by.
struct World {
    node: Node,
    clock: Arc<Travel>,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn open(folder: &Path) -> World {
        World::open_at(folder, 1_700_000_000_000)
    }

    fn open_at(folder: &Path, now_ms: u64) -> World {
        World::open_with(folder, now_ms, Parts::USUAL, |_| {})
    }

    fn open_with(
        folder: &Path,
        now_ms: u64,
        parts: Parts,
        change: impl FnOnce(&mut NodeConfig),
    ) -> World {
        let clock = Arc::new(Travel(AtomicU64::new(now_ms)));
        let ticking = Arc::clone(&clock);
        let mut config = NodeConfig {
            data_dir: folder.to_owned(),
            shards: Some(2),
            segment_bytes: 1 << 20,
            clock: Arc::new(move || ticking.0.load(Ordering::SeqCst)),
            ..NodeConfig::default()
        };
        change(&mut config);
        let node = Node::start_with(config, parts).expect("it starts");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        World { node, clock, runtime }
    }

    fn advance(&self, ms: u64) {
        self.clock.0.fetch_add(ms, Ordering::SeqCst);
    }

    fn ask(
        &self,
        user: &str,
        idempotency: Option<IdempotencyKey>,
        command: &Command,
    ) -> Result<Reply, Refusal> {
        let command = command.encode();
        let envelope = Envelope { machine: recents::MACHINE, tenant: TENANT, idempotency, command };
        let reply = self.runtime.block_on(self.node.submit(recents::place(TENANT, user), envelope));
        reply.map(|reply| Reply::decode(&reply).expect("a reply"))
    }

    fn search(&self, user: &str, query: &str) {
        let (query, folded) = (query.to_owned(), recents::fold(query));
        let add = Command::Add(Add { user: user.to_owned(), query, folded });
        assert!(matches!(self.ask(user, None, &add), Ok(Reply::Added { .. })));
    }

    fn list(&self, user: &str) -> Vec<String> {
        let row = recents::list_row(TENANT, user);
        let place = recents::place(TENANT, user);
        let view = self.node.view_or_row(place, row);
        let Some(view) = self.runtime.block_on(view).expect("rows are read") else {
            return Vec::new();
        };
        List::decode(&view.value).items().map(|item| item.query.to_owned()).collect()
    }

    fn history(&self, user: &str, page: usize) -> Vec<String> {
        let mut before = u64::MAX;
        let mut all = Vec::new();
        loop {
            let read = self.node.recents_history(TENANT, user, before, page);
            let entries = self.runtime.block_on(read).expect("history is read");
            let Some(last) = entries.last() else { return all };
            before = last.number;
            all.extend(entries.into_iter().map(|entry| entry.query));
        }
    }

    /// Looks until it holds; fails the test when it never does.
    fn until(&self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        for _ in 0..POLLS_MAX {
            if holds(self) {
                return;
            }
            // sleeps because executors work in the background and nothing tells when they are done
            std::thread::sleep(POLL);
        }
        panic!("never: {what}");
    }
}

fn archive_objects(folder: &Path) -> usize {
    fn count(dir: &Path) -> usize {
        let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
        entries
            .map(|entry| entry.expect("it can be read").path())
            .map(|path| if path.is_dir() { count(&path) } else { 1 })
            .sum()
    }
    count(&folder.join("archive")) - usize::from(folder.join("archive/stampede-archive").exists())
}

#[test]
fn answered_writes_are_read_at_once_and_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    for n in 0..30 {
        world.search("ann", &format!("query {n}"));
        assert_eq!(world.list("ann")[0], format!("query {n}"));
    }
    let (list, history) = (world.list("ann"), world.history("ann", 7));
    assert_eq!(list.len(), 10);
    assert_eq!(history.len(), 30);
    world.node.shutdown_blocking();
    drop(world);
    let world = World::open(folder.path());
    assert_eq!(world.list("ann"), list);
    assert_eq!(world.history("ann", 4), history);
}

#[test]
fn time_does_not_go_back_over_a_restart_with_a_slower_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open_at(folder.path(), 5_000_000);
    world.search("ann", "a");
    world.node.shutdown_blocking();
    drop(world);
    let world = World::open_at(folder.path(), 1_000_000);
    let add = Add { user: "ann".into(), query: "b".into(), folded: recents::fold("b") };
    let reply = world.ask("ann", None, &Command::Add(add)).expect("taken");
    assert_eq!(reply, Reply::Added { at_ms: 5_000_000 });
}

#[test]
fn same_idempotency_key_gives_the_same_answer_even_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = IdempotencyKey { key: [1; 16], body: [2; 16] };
    let other_body = IdempotencyKey { body: [3; 16], ..key };
    let add = |query: &str| {
        let folded = recents::fold(query);
        Command::Add(Add { user: "ann".into(), query: query.into(), folded })
    };
    let world = World::open(folder.path());
    let first = world.ask("ann", Some(key), &add("a")).expect("taken");
    world.advance(1000);
    assert_eq!(world.ask("ann", Some(key), &add("a")), Ok(first));
    assert_eq!(world.ask("ann", Some(other_body), &add("b")), Err(Refusal::IdempotencyConflict));
    world.node.shutdown_blocking();
    drop(world);
    let world = World::open(folder.path());
    assert_eq!(world.ask("ann", Some(key), &add("a")), Ok(first));
    assert_eq!(world.history("ann", 10), ["a"]);
    world.advance(DAY_MS + 1000);
    let later = world.ask("ann", Some(other_body), &add("b"));
    assert!(matches!(later, Ok(Reply::Added { .. })), "the key is free after a day: {later:?}");
}

#[test]
fn what_was_received_is_remembered_for_minutes_and_what_was_sent_for_a_day() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    let key = |n| IdempotencyKey { key: [n; 16], body: [n; 16] };
    let ask = |key: Option<IdempotencyKey>, command: queue::Command| {
        let (machine, tenant, idempotency) = (queue::MACHINE, TENANT, key);
        let envelope = Envelope { machine, tenant, idempotency, command: command.encode() };
        let reply = world.node.submit(queue::place(TENANT, "jobs"), envelope);
        world.runtime.block_on(reply).expect("taken")
    };
    let settings = queue::Settings::usual(queue::Mode::Standard);
    let queue = || "jobs".to_owned();
    ask(None, queue::Command::Create(queue::Create { queue: queue(), settings }));
    let parcel = queue::parcel::Parcel::new(queue::parcel::Body::Text("a".into())).encode();
    let message =
        queue::NewMessage { delay_ms: None, priority: 0, group: None, dedup: None, parcel };
    let messages = vec![message];
    ask(Some(key(1)), queue::Command::Send(queue::Send { queue: queue(), messages }));
    // What gets nothing is not remembered at all.
    let receive = queue::Receive { queue: queue(), max: 1, visibility_ms: None };
    ask(Some(key(2)), queue::Command::Receive(receive));
    let known = |n| {
        let answered = world.node.is_answered(queue::place(TENANT, "jobs"), Some(key(n)));
        world.runtime.block_on(answered).expect("rows are read")
    };
    world.advance(queue::RECEIVED_KEPT_MS - 1);
    assert!(known(1) && known(2));
    world.advance(1);
    world.until("the received is forgotten", |_| !known(2));
    assert!(known(1));
    world.advance(DAY_MS);
    world.until("the sent is forgotten", |_| !known(1));
    world.node.shutdown_blocking();
}

#[test]
fn a_folder_does_not_start_without_the_archive_that_it_had() {
    let folder = tempfile::tempdir().expect("a folder");
    let (archive, aside) = (folder.path().join("archive"), folder.path().join("aside"));
    World::open(folder.path()).node.shutdown_blocking();
    std::fs::rename(&archive, &aside).expect("it can be moved");
    let start = || {
        let data_dir = folder.path().to_owned();
        Node::start(NodeConfig { data_dir, ..NodeConfig::default() })
    };
    let refused = |started: Result<Node, StartError>| match started {
        Err(error @ StartError::Archive { .. }) => error.to_string(),
        other => panic!("{:?}", other.err()),
    };
    assert!(refused(start()).contains("no file stampede-archive"));
    std::fs::create_dir(&archive).expect("it can be made");
    assert!(refused(start()).contains("no file stampede-archive"));
    std::fs::remove_dir(&archive).expect("nothing was put there");
    std::fs::rename(&aside, &archive).expect("it can be moved");
    start().unwrap_or_else(|error| panic!("{error}")).shutdown_blocking();
}

#[test]
fn rows_that_cannot_be_read_are_said_to_be_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    let lost = || -> u8 {
        let source = "the disk is gone".into();
        let error = kernel::BaseError::Failed { doing: "reading", source };
        std::panic::panic_any(kernel::rows::RowsLost(error))
    };
    let Err(Refusal::Stopped { why }) = world.runtime.block_on(world.node.read(lost)) else {
        panic!("nothing can be read")
    };
    assert_eq!(why, "the row store failed while reading: the disk is gone");
    world.node.shutdown_blocking();
}

#[test]
fn the_disk_is_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    world.search("ann", "shoes");
    let disk = world.node.disk_use().expect("the folder is there");
    assert!(disk.free_bytes > 0 && disk.free_bytes <= disk.size_bytes, "{disk:?}");
    assert_eq!(disk.shards.len(), 2);
    assert!(disk.shards.iter().all(|shard| shard.log_bytes > 0), "{disk:?}");
    world.node.shutdown_blocking();
}

#[test]
fn old_history_moves_to_the_archive_and_is_paged_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    for n in 0..25 {
        world.search("ann", &format!("old {n}"));
    }
    world.advance(100 * DAY_MS);
    for n in 0..5 {
        world.search("ann", &format!("new {n}"));
    }
    let remove = Remove { user: "ann".into(), folded: recents::fold("OLD 3") };
    world.ask("ann", None, &Command::Remove(remove)).expect("taken");
    let before = world.history("ann", 4);
    assert_eq!(before.len(), 29);
    world.advance(82 * DAY_MS);
    world.until("the archive has an object", |_| archive_objects(folder.path()) == 1);
    world.until("the rows are gone", |world| {
        let rows = world.node.rows(recents::place(TENANT, "ann"));
        recents::oldest(&rows, TENANT, "ann", u64::MAX, 100).len() == 5
    });
    assert_eq!(world.history("ann", 4), before);
    assert_eq!(world.history("ann", 1000), before);
    let clear = Command::Clear(Clear { user: "ann".into() });
    world.ask("ann", None, &clear).expect("taken");
    assert_eq!(world.history("ann", 10), [] as [&str; 0]);
    world.until("the archive is empty", |_| archive_objects(folder.path()) == 0);
}

#[test]
fn idle_user_leaves_memory_and_comes_back_when_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    world.search("ann", "a");
    let row = recents::list_row(TENANT, "ann");
    let in_memory = |world: &World| world.node.view(recents::place(TENANT, "ann"), &row).is_some();
    assert!(in_memory(&world));
    world.advance(31 * DAY_MS);
    world.until("the list has left memory", |world| !in_memory(world));
    assert_eq!(world.list("ann"), ["a"]);
    assert!(in_memory(&world), "reading has brought it back");
}

/// A node that has one search of ann's, on a disk that must keep more free than it has, and has
/// been written to until it refused.
fn with_full_disk(folder: &Path) -> World {
    let world = World::open(folder);
    world.search("ann", "a");
    world.node.shutdown_blocking();
    drop(world);
    let full = |config: &mut NodeConfig| config.log_reserve_bytes = u64::MAX / 2;
    let world = World::open_with(folder, 1_700_000_000_000, Parts::USUAL, full);
    let big = "x".repeat(1000);
    let refused = (0..4000).find_map(|n| {
        let query = format!("{n} {big}");
        let folded = recents::fold(&query);
        let add = Command::Add(Add { user: "ann".into(), query, folded });
        world.ask("ann", None, &add).err()
    });
    assert_eq!(refused, Some(Refusal::DiskFull));
    world
}

#[test]
fn full_disk_refuses_writes_and_serves_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = with_full_disk(folder.path());
    assert!(!world.node.readiness().is_ready());
    assert_eq!(world.list("ann").len(), 10, "reads are served");
}

#[test]
fn folder_serves_one_process_and_keeps_its_number_of_shards() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    let again = |shards| {
        let config = NodeConfig {
            data_dir: folder.path().to_owned(),
            shards: Some(shards),
            ..NodeConfig::default()
        };
        Node::start(config).err()
    };
    assert!(matches!(again(2), Some(StartError::Folder(FolderError::InUse(_)))));
    world.node.shutdown_blocking();
    drop(world);
    let refused = again(3);
    assert!(
        matches!(refused, Some(StartError::Folder(FolderError::Shards { found: 2, .. }))),
        "{refused:?}"
    );
}

#[test]
fn commands_after_shutdown_are_refused_and_those_before_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    world.search("ann", "a");
    world.node.shutdown_blocking();
    let clear = Command::Clear(Clear { user: "ann".into() });
    assert_eq!(world.ask("ann", None, &clear), Err(Refusal::ShuttingDown));
    drop(world);
    assert_eq!(World::open(folder.path()).list("ann"), ["a"]);
}

#[test]
fn log_is_trimmed_even_when_rows_do_not_grow() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = |config: &mut NodeConfig| {
        config.shards = Some(1);
        config.checkpoint_log_bytes = 4 << 20;
    };
    let world = World::open_with(folder.path(), 1_700_000_000_000, Parts::USUAL, small);
    let user = "u".repeat(60_000);
    world.search(&user, "a");
    for _ in 0..400 {
        let remove = Remove { user: user.clone(), folded: 7 };
        world.ask(&user, None, &Command::Remove(remove)).expect("taken");
    }
    world.until("all but a few segments are gone", |_| {
        let log = std::fs::read_dir(folder.path().join("shard-00/log")).expect("a folder");
        let names = log.map(|entry| entry.expect("it can be read").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".log")).count() < 10
    });
}

#[test]
fn folder_without_one_of_its_shards_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    world.node.shutdown_blocking();
    drop(world);
    std::fs::remove_dir_all(folder.path().join("shard-01")).expect("removed");
    let config = NodeConfig { data_dir: folder.path().to_owned(), ..NodeConfig::default() };
    let refused = Node::start(config).err();
    assert!(
        matches!(refused, Some(StartError::Folder(FolderError::Unreadable { .. }))),
        "{refused:?}"
    );
}

/// Processor time that threads of shards have used in this process, in clock ticks.
fn shard_ticks() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let of_thread = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("it can be read").path().join("stat");
        // The thread may have ended meanwhile.
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let (name, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
        name.contains("(shard-").then(|| ticks(11) + ticks(12))
    };
    threads.filter_map(of_thread).sum()
}

/// Runs in a process of its own under nextest, so the only shards are this test's.
fn assert_shards_sleep() {
    let before = shard_ticks();
    // sleeps because it measures what is done meanwhile: nothing, or a whole core's worth
    std::thread::sleep(Duration::from_secs(1));
    let used = shard_ticks() - before;
    assert!(used < 30, "{used} of 100 ticks");
}

#[test]
fn stopped_shard_does_not_spin() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::open(folder.path());
    world.search("ann", "a");
    let command = Bytes::from_static(b"\xff\xff");
    let envelope =
        Envelope { machine: recents::MACHINE, tenant: TENANT, idempotency: None, command };
    let place = recents::place(TENANT, "ann");
    let answer = world.runtime.block_on(world.node.submit(place, envelope));
    assert!(matches!(answer, Err(Refusal::Stopped { .. })), "{answer:?}");
    assert!(!world.node.readiness().is_ready());
    world.advance(DAY_MS);
    assert_shards_sleep();
}

#[test]
fn full_disk_with_a_due_timer_does_not_spin() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = with_full_disk(folder.path());
    world.advance(31 * DAY_MS);
    assert_shards_sleep();
}

/// Counts what it is sent. `[b's', slot, n]` sends `n` letters to a slot; `[b'g']` answers with
/// the count; a letter must be one more than the one before.
#[derive(Default)]
struct Counter;

const COUNTER: MachineId = MachineId(900);

impl Counter {
    fn key() -> Vec<u8> {
        kernel::machine::machine_key(COUNTER, b'n', TENANT)
    }

    fn count(turn: &Turn<'_>) -> u64 {
        turn.rows()
            .get(&Counter::key())
            .map_or(0, |row| u64::from_be_bytes(row[..].try_into().expect("eight bytes")))
    }
}

impl Machine for Counter {
    fn id(&self) -> MachineId {
        COUNTER
    }

    fn name(&self) -> &'static str {
        "counter"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        if let [b's', high, low, count] = command[..] {
            for n in 0..count {
                let to = VirtualShard(u16::from_be_bytes([high, low]));
                turn.send(to, COUNTER, vec![n]);
            }
        }
        Ok(Bytes::copy_from_slice(&Counter::count(turn).to_be_bytes()))
    }

    fn fire(&mut self, _turn: &mut Turn<'_>, _timer: &Due) {}

    fn receive(&mut self, turn: &mut Turn<'_>, letter: &Letter) -> Result<(), Unreadable> {
        let count = Counter::count(turn);
        assert_eq!(u64::from(letter.body[0]), count % 100, "letters come in order, once");
        turn.put(Counter::key(), (count + 1).to_be_bytes().to_vec());
        Ok(())
    }
}

#[test]
fn letters_between_shards_arrive_once_and_in_order_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let machines = || {
        Machines::default().with(Box::<Counter>::default()).with(Box::<recents::Recents>::default())
    };
    let ask = |world: &World, at: u16, command: Vec<u8>| {
        let envelope = Envelope {
            machine: COUNTER,
            tenant: TENANT,
            idempotency: None,
            command: command.into(),
        };
        let reply = world.runtime.block_on(world.node.submit(VirtualShard(at), envelope));
        u64::from_be_bytes(reply.expect("taken")[..].try_into().expect("eight bytes"))
    };
    for round in 1..=3 {
        let parts = Parts { machines, ..Parts::USUAL };
        let world = World::open_with(folder.path(), 1_700_000_000_000, parts, |_| {});
        let [high, low] = 4095_u16.to_be_bytes();
        ask(&world, 0, vec![b's', high, low, 100]);
        if round == 2 {
            // Ended before the mail is all carried, perhaps: the next round finds out.
            world.node.shutdown_blocking();
            continue;
        }
        let expected = round * 100;
        world.until("all letters have arrived", |world| ask(world, 4095, vec![b'g']) == expected);
        world.node.shutdown_blocking();
    }
}
