//! A shard whose checkpoint does not come to an end: it slows down, then waits, and loses nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::Instant;

use futures_util::future::join_all;
use kernel::base::BaseIter;
use kernel::limits::UNIQUE_BITS;
use kernel::{Base, BaseError, Index, Layer, ShardId};
use parking_lot::{Condvar, Mutex};

use super::*;
use crate::node::BaseResult;
use crate::pace::Pace;

const FLOOD: TenantId = TenantId(7);
const SMALL: TenantId = TenantId(8);
/// Rows in memory at which a checkpoint begins, and at which nothing more is taken.
const CHECKPOINT_BYTES: usize = 1 << 20;
const FULL_BYTES: usize = 8 << 20;
/// Half way from where it slows down to full.
const SLOW_BYTES: usize = FULL_BYTES / 4 * 3;
/// One command of the flood.
const FLOOD_BYTES: usize = 16 << 10;
/// Longer than any rest of a shard that slows down, and shorter than the naps of one that waits.
const SLEEP: Duration = Duration::from_millis(100);

/// A command as it was applied.
struct Applied {
    number: u64,
    entry: u64,
    bytes: usize,
    /// The checkpoint was held up.
    held: bool,
}

struct Noted {
    /// A checkpoint has begun.
    begun: bool,
    /// Checkpoints may end.
    open: bool,
    /// Rows in memory after the last command.
    active_bytes: usize,
    applied: Vec<Applied>,
    /// When the shard's thread last looked at the clock, as it does in every round.
    looked: Option<Instant>,
    /// How often it has slept in between: it does not, with requests that it wants.
    slept: u64,
}

impl Noted {
    fn look(&mut self, at: Instant) {
        let before = self.looked.replace(at).unwrap_or(at);
        self.slept += u64::from(at - before >= SLEEP);
    }
}

static NOTED: Mutex<Noted> = Mutex::new(Noted {
    begun: false,
    open: false,
    active_bytes: 0,
    applied: Vec::new(),
    looked: None,
    slept: 0,
});
static CHANGED: Condvar = Condvar::new();

/// Longer than anything takes on a slow machine.
const HANG: Duration = Duration::from_secs(60);

fn wait_until(what: &str, holds: impl Fn(&Noted) -> bool) {
    let waited = CHANGED.wait_while_for(&mut NOTED.lock(), |noted| !holds(noted), HANG);
    assert!(!waited.timed_out(), "never: {what}");
}

/// Keeps what it is sent in a row, under the number that it begins with.
#[derive(Default)]
struct Shelf;

const SHELF: MachineId = MachineId(902);

fn number(command: &[u8]) -> u64 {
    u64::from_be_bytes(command[..8].try_into().expect("eight bytes"))
}

fn row(tenant: TenantId, number: u64) -> Vec<u8> {
    let mut key = kernel::machine::machine_key(SHELF, b'r', tenant);
    key.extend(number.to_be_bytes());
    key
}

impl Machine for Shelf {
    fn id(&self) -> MachineId {
        SHELF
    }

    fn name(&self) -> &'static str {
        "shelf"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let (number, bytes) = (number(command), command.len());
        turn.put(row(turn.tenant(), number), command.clone());
        let entry = turn.unique() >> UNIQUE_BITS;
        let mut noted = NOTED.lock();
        let held = !noted.open;
        noted.applied.push(Applied { number, entry, bytes, held });
        noted.active_bytes = turn.rows().active_bytes();
        CHANGED.notify_all();
        Ok(command.slice(..8))
    }

    fn fire(&mut self, _turn: &mut Turn<'_>, _timer: &Due) {}

    fn receive(&mut self, _turn: &mut Turn<'_>, _letter: &Letter) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// The usual store, but that nothing goes into it before it is let in.
struct Held(Arc<dyn Base>);

impl Held {
    fn open(config: &NodeConfig, dir: PathBuf) -> BaseResult {
        Ok(Arc::new(Held((Parts::USUAL.open_base)(config, dir)?)))
    }
}

impl Base for Held {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        self.0.get(key)
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        self.0.range(from, to, reverse)
    }

    fn snapshot(&self) -> Arc<dyn Base> {
        self.0.snapshot()
    }

    fn applied(&self) -> Index {
        self.0.applied()
    }

    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        NOTED.lock().begun = true;
        CHANGED.notify_all();
        CHANGED.wait_while(&mut NOTED.lock(), |noted| !noted.open);
        self.0.ingest(layer, through, pace)
    }

    fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes()
    }
}

fn shelf() -> Machines {
    Machines::default().with(Box::<Shelf>::default()).with(Box::<recents::Recents>::default())
}

fn open_held(folder: &Path) -> World {
    let parts = Parts { machines: shelf, open_base: Held::open, overlay_bytes_max: FULL_BYTES };
    World::open_with(folder, 1_700_000_000_000, parts, |config| {
        config.shards = Some(1);
        config.checkpoint_bytes = CHECKPOINT_BYTES;
        // What has waited is one entry, once there is room for it.
        config.segment_bytes = 16 << 20;
        let clock = Arc::clone(&config.clock);
        config.clock = Arc::new(move || {
            if std::thread::current().name().is_some_and(|name| name.starts_with("shard-")) {
                NOTED.lock().look(Instant::now());
                CHANGED.notify_all();
            }
            clock()
        });
    })
}

/// Commands to one shard, each with a number of its own.
struct Senders<'a> {
    world: &'a World,
    sent: BTreeMap<u64, TenantId>,
}

impl Senders<'_> {
    /// It is in the inbox when this returns.
    fn submit(
        &mut self,
        tenant: TenantId,
        bytes: usize,
    ) -> impl Future<Output = Result<Bytes, Refusal>> + use<> {
        let number = self.sent.len() as u64;
        self.sent.insert(number, tenant);
        let mut command = number.to_be_bytes().to_vec();
        command.resize(bytes, b'x');
        let command = Bytes::from(command);
        let envelope = Envelope { machine: SHELF, tenant, idempotency: None, command };
        self.world.node.inner.submit_to(ShardId(0), envelope)
    }

    fn flood(&mut self, bytes: usize) -> impl Future<Output = ()> + use<> {
        let commands = (0..bytes / FLOOD_BYTES).map(|_| self.submit(FLOOD, FLOOD_BYTES));
        let answers = join_all(commands.collect::<Vec<_>>());
        async { answers.await.into_iter().for_each(|answer| drop(answer.expect("it is taken"))) }
    }

    fn small(&mut self) -> impl Future<Output = u64> + use<> {
        let answer = self.submit(SMALL, 8);
        async { number(&answer.await.expect("it is taken")) }
    }

    /// Floods until there is so much in memory, and waits until all of it is answered.
    fn fill(&mut self, active_bytes: usize) {
        while NOTED.lock().active_bytes < active_bytes {
            let flood = self.flood(CHECKPOINT_BYTES / 4);
            self.world.runtime.block_on(flood);
        }
    }
}

#[test]
fn while_a_checkpoint_is_held_up_others_are_served_until_memory_is_full_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = open_held(folder.path());
    let mut senders = Senders { world: &world, sent: BTreeMap::new() };

    senders.fill(CHECKPOINT_BYTES);
    wait_until("a checkpoint begins", |noted| noted.begun);
    senders.fill(SLOW_BYTES);
    let slow_from = NOTED.lock().applied.last().expect("there are some").entry + 1;
    // Half of what there is room for, so that it is not full yet however late the other comes.
    let flood = senders.flood((FULL_BYTES - SLOW_BYTES) / 2);
    let small = senders.small();
    let small = world.runtime.block_on(async { tokio::time::timeout(HANG, small).await });
    small.expect("it is answered while the checkpoint is held up");

    let more_flood = senders.flood(FULL_BYTES);
    wait_until("memory is full", |noted| noted.active_bytes > FULL_BYTES);
    let late = senders.small();
    let slept = NOTED.lock().slept;
    wait_until("the shard sleeps", |noted| noted.slept > slept);
    let entries_held = bytes_of_entries(slow_from);
    let at_once_max = Pace::of(SLOW_BYTES, FULL_BYTES).bytes_at_once();
    assert!(entries_held.values().all(|bytes| *bytes <= at_once_max), "{entries_held:?}");
    let over = NOTED.lock().active_bytes - FULL_BYTES;
    assert!(over < 4 * at_once_max, "{over} more than there may be");

    NOTED.lock().open = true;
    CHANGED.notify_all();
    let late = world.runtime.block_on(async { tokio::join!(late, flood, more_flood).0 });
    let noted = NOTED.lock();
    let of_late = noted.applied.iter().find(|applied| applied.number == late);
    assert!(!of_late.expect("it was answered").held, "nothing is taken when memory is full");
    let mut numbers: Vec<u64> = noted.applied.iter().map(|applied| applied.number).collect();
    drop(noted);
    numbers.sort_unstable();
    let sent = senders.sent;
    assert!(numbers.iter().eq(sent.keys()), "each is applied, and once");
    world.node.shutdown_blocking();
    drop(world);

    let parts = Parts { machines: shelf, ..Parts::USUAL };
    let one = |config: &mut NodeConfig| config.shards = Some(1);
    let world = World::open_with(folder.path(), 1_700_000_000_000, parts, one);
    let rows = world.node.inner.reader(ShardId(0));
    let missing =
        sent.iter().filter(|(number, tenant)| rows.get(&row(**tenant, **number)).is_none());
    assert_eq!(missing.count(), 0);
}

/// Of commands that were applied since an entry, while the checkpoint was held up.
fn bytes_of_entries(since: u64) -> BTreeMap<u64, usize> {
    let noted = NOTED.lock();
    let mut entries = BTreeMap::new();
    for applied in noted.applied.iter().filter(|applied| applied.entry >= since && applied.held) {
        *entries.entry(applied.entry).or_default() += applied.bytes;
    }
    entries
}
