//! What the log has no room for.

use std::sync::Arc;

use bytes::Bytes;
use journal::{AppendError, Log, LogError, Record};
use kernel::base::MemoryBase;
use kernel::machine::Place;
use kernel::{Envelope, Epoch, Index, MachineId, ShardId, TenantId};
use shard::{Machines, Request, Shard, SubmitError};

/// A log that is empty and always makes room.
struct Full;

impl Log for Full {
    fn epoch(&self) -> Epoch {
        Epoch(0)
    }

    fn next_index(&self) -> Index {
        Index(1)
    }

    fn first_index(&self) -> Index {
        Index(1)
    }

    fn append(&mut self, _payload: Bytes) -> Result<Index, AppendError> {
        Err(AppendError::NoRoom)
    }

    fn commit(&mut self) {}

    fn replay(&self, _: Index, _: &mut dyn FnMut(Record) -> bool) -> Result<(), LogError> {
        Ok(())
    }

    fn trim(&mut self, _before: Index) -> Result<(), LogError> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn a_request_comes_back_as_heavy_as_it_was() {
    let place = Place { shard: ShardId(0), shard_count: 1 };
    let base = Arc::new(MemoryBase::new());
    let opened =
        Shard::open(place, Box::new(Full), base, Machines::default(), 1 << 20, &mut |_| {});
    let mut shard = opened.expect("it is empty").shard;
    let request = |ticket: u8, weight| {
        let envelope = Envelope {
            machine: MachineId(3),
            tenant: TenantId(1),
            idempotency: None,
            command: Bytes::from_static(b"command"),
        };
        Request::new(envelope, ticket).weighing(weight)
    };
    let light = request(0, 0).weight;
    let refused = shard.submit(1, [0; 16], vec![request(0, 0), request(1, 5 << 20)]);
    let (error, requests) = refused.expect_err("there is no room");
    assert!(matches!(error, SubmitError::NoRoom), "{error:?}");
    let back: Vec<_> = requests.iter().map(|request| (request.ticket, request.weight)).collect();
    assert_eq!(back, [(0, light), (1, 5 << 20)]);
}
