//! One tenant's flood does not starve another.

use parking_lot::{Condvar, Mutex};

use super::*;

/// Keeps the shard busy with `[b'w']` until it is let go, and notes whose commands came after it.
#[derive(Default)]
struct Gate;

const GATE: MachineId = MachineId(901);

struct Noted {
    is_held: bool,
    is_open: bool,
    tenants: Vec<TenantId>,
}

static NOTED: Mutex<Noted> =
    Mutex::new(Noted { is_held: false, is_open: false, tenants: Vec::new() });
static CHANGED: Condvar = Condvar::new();

impl Machine for Gate {
    fn id(&self) -> MachineId {
        GATE
    }

    fn name(&self) -> &'static str {
        "gate"
    }

    fn apply(&mut self, turn: &mut Turn<'_>, command: &Bytes) -> Result<Bytes, Unreadable> {
        let mut noted = NOTED.lock();
        if command[..] == [b'w'] {
            noted.is_held = true;
            CHANGED.notify_all();
            CHANGED.wait_while(&mut noted, |noted| !noted.is_open);
        } else {
            noted.tenants.push(turn.tenant());
        }
        Ok(Bytes::new())
    }

    fn fire(&mut self, _turn: &mut Turn<'_>, _timer: &Due) {}

    fn receive(&mut self, _turn: &mut Turn<'_>, _letter: &Letter) -> Result<(), Unreadable> {
        Ok(())
    }
}

#[test]
fn whoever_comes_after_a_flood_is_served_as_if_it_were_one_request() {
    const FLOOD: TenantId = TenantId(7);
    const SMALL: TenantId = TenantId(8);
    let folder = tempfile::tempdir().expect("a folder");
    let machines = || {
        Machines::default().with(Box::<Gate>::default()).with(Box::<recents::Recents>::default())
    };
    let one = |config: &mut NodeConfig| config.shards = Some(1);
    let parts = Parts { machines, ..Parts::USUAL };
    let world = World::open_with(folder.path(), 1_700_000_000_000, parts, one);
    let submit = |tenant, command: &'static [u8]| {
        let command = Bytes::from_static(command);
        let envelope = Envelope { machine: GATE, tenant, idempotency: None, command };
        world.node.inner.submit_to(kernel::ShardId(0), envelope)
    };
    let held = submit(FLOOD, b"w");
    CHANGED.wait_while(&mut NOTED.lock(), |noted| !noted.is_held);
    // As much as the inbox takes of one tenant, and as much again that is refused at once.
    let flood: Vec<_> =
        (0..crate::inbox::INBOX_REQUESTS_MAX).map(|_| submit(FLOOD, b"f")).collect();
    let small: Vec<_> = (0..3).map(|_| submit(SMALL, b"s")).collect();
    NOTED.lock().is_open = true;
    CHANGED.notify_all();
    world.runtime.block_on(async {
        held.await.expect("it was let go");
        for small in small {
            small.await.expect("a flood of another leaves room");
        }
        let mut refused = 0;
        for flood in flood {
            match flood.await {
                Ok(_) => {}
                Err(Refusal::Overloaded { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused >= crate::inbox::INBOX_REQUESTS_MAX / 2, "{refused}");
    });
    let order = std::mem::take(&mut NOTED.lock().tenants);
    let last = order.iter().rposition(|tenant| *tenant == SMALL).expect("all three were served");
    assert!(last <= 5, "one of each in turn: {last}");
    world.node.shutdown_blocking();
}
