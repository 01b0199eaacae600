//! How the edge talks to streams: `append` puts records in, `fetch` gets them for a member of a
//! group, and waits for them.

pub(crate) mod append;
pub(crate) mod fetch;

use std::sync::atomic::Ordering;

use kernel::id::digest;
use kernel::{Envelope, IdempotencyKey, TenantId, VirtualShard};
use node::{Node, Refusal};
use streams::{Command, Definition, PartitionInfo, Reply, StreamId};

use crate::app::Edge;

/// Where to begin, of many: at another one each time, and without a pattern that those who take turns
/// could fall in step with.
fn anywhere(edge: &Edge) -> u64 {
    let turn = edge.turns.fetch_add(1, Ordering::Relaxed);
    first_of(digest(&[&turn.to_be_bytes()]))
}

fn first_of([a, b, c, d, e, f, g, h, ..]: [u8; 16]) -> u64 {
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Does a command at a place.
pub(crate) async fn submit_at(
    edge: &Edge,
    at: VirtualShard,
    tenant: TenantId,
    idempotency: Option<IdempotencyKey>,
    command: &Command,
) -> Result<Reply, Refusal> {
    let command = command.encode();
    let envelope = Envelope { machine: streams::MACHINE, tenant, idempotency, command };
    let reply = edge.node.submit(at, envelope).await?;
    Ok(Reply::decode(&reply).expect("streams answer with their replies"))
}

/// Does a command at the home of a stream.
pub(crate) async fn submit(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
    idempotency: Option<IdempotencyKey>,
    command: &Command,
) -> Result<Reply, Refusal> {
    submit_at(edge, streams::place(tenant, name), tenant, idempotency, command).await
}

/// What a stream is; `None` when there is none of this name.
pub(crate) async fn find(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
) -> Result<Option<Definition>, Refusal> {
    let key = streams::definition_row(tenant, name);
    let view = edge.node.view_or_row(streams::place(tenant, name), key).await?;
    Ok(view.map(|view| streams::definition(&view.value)))
}

/// Whether the stream of this name is still the one that was looked up.
pub(crate) async fn is_still(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
    id: StreamId,
) -> Result<bool, Refusal> {
    Ok(find(edge, tenant, name).await?.is_some_and(|now| now.id == id))
}

/// What a partition holds. Blocks.
pub(crate) fn partition(
    node: &Node,
    tenant: TenantId,
    id: StreamId,
    partition: u16,
) -> PartitionInfo {
    let rows = node.rows(streams::partition_place(tenant, id, partition));
    let row = rows.get(&streams::partition_row(tenant, id, partition));
    row.map_or_else(PartitionInfo::default, |row| streams::partition(&row))
}
