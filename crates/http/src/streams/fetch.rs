//! Getting records for a member of a group, and waiting for them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kernel::{TenantId, VirtualShard};
use node::Node;
use streams::{Command, Join, Owned, Record, Reply, Standing, StreamId};
use tokio::time::Instant;

use super::{anywhere, find, is_still, partition, submit};
use crate::app::Edge;
use crate::auth::Caller;
use crate::problem::Problem;

/// Bytes of keys and values after which an answer has enough.
pub(crate) const FETCH_BYTES: usize = 1 << 20;

/// What a member asks for.
pub(crate) struct Fetch {
    pub(crate) stream: String,
    /// That of the stream when it was asked for: another that has its name since is not meant.
    pub(crate) id: StreamId,
    pub(crate) group: String,
    pub(crate) member: String,
    pub(crate) max_records: usize,
    pub(crate) session: Duration,
    /// Where it reads on, instead of at what is committed.
    pub(crate) place: Option<Place>,
}

/// Where a member has read to.
pub(crate) struct Place {
    /// In which the offsets are good.
    pub(crate) epoch: u64,
    /// Of each partition, the next.
    pub(crate) offsets: BTreeMap<u16, u64>,
}

impl Fetch {
    fn session_ms(&self) -> u64 {
        u64::try_from(self.session.as_millis()).expect("bounded by the edge")
    }

    /// Where the member says that it is in a partition. What was known before the partition changed hands,
    /// or before a seek, is no place to go on from, nor is what will be known.
    fn own(&self, standing: &Standing, owned: &Owned) -> Option<u64> {
        let place = self.place.as_ref()?;
        let is_good = (owned.since..=standing.epoch).contains(&place.epoch);
        place.offsets.get(&owned.partition).copied().filter(|_| is_good)
    }

    /// Where to read in a partition.
    fn position(&self, standing: &Standing, owned: &Owned) -> u64 {
        self.own(standing, owned).or(owned.committed).unwrap_or(0)
    }
}

/// What a member gets.
pub(crate) struct Got {
    pub(crate) standing: Standing,
    /// With their partitions: those of one together, in order.
    pub(crate) records: Vec<(u16, Record)>,
}

/// Why there is nothing to get.
pub(crate) enum NoFetch {
    Refused(streams::Refusal),
    /// It reads on behind the end of this partition, which is there.
    BehindEnd(u16, u64),
    Problem(Problem),
}

impl<P: Into<Problem>> From<P> for NoFetch {
    fn from(problem: P) -> NoFetch {
        NoFetch::Problem(problem.into())
    }
}

/// Gets records; when there are none, waits for some, or for the group to change.
pub(crate) async fn fetch(
    edge: &Edge,
    caller: &Caller,
    fetch: &Fetch,
    wait: Duration,
) -> Result<Got, NoFetch> {
    let got = look(edge, caller, fetch).await?;
    if wait.is_zero() || !got.records.is_empty() {
        return Ok(got);
    }
    // They stay the same as long as it waits: who gets other partitions is answered.
    let lines = lines(caller.tenant, &got, fetch);
    let _counted = caller.wait(lines.len())?;
    let deadline = Instant::now() + wait;
    let mut leaving = edge.leaving.subscribe();
    let mut is_over = false;
    loop {
        let places = edge.node.wait_for_any(&lines);
        // What came between the last look and joining the lines called nobody.
        let again = look(edge, caller, fetch).await?;
        let changed = again.standing.epoch != got.standing.epoch;
        if is_over || changed || !again.records.is_empty() {
            return Ok(again);
        }
        tokio::select! {
            biased;
            () = places.called() => {}
            // The session of whoever is answered begins then: each answer follows a look.
            () = tokio::time::sleep_until(deadline) => is_over = true,
            _gone = leaving.wait_for(|leaving| *leaving) => return Ok(again),
            // Who waits is heard of.
            () = tokio::time::sleep(fetch.session / 3) => {}
        }
    }
}

/// The lines in which whoever waits for this is called: of the group, and of each partition.
fn lines(tenant: TenantId, got: &Got, fetch: &Fetch) -> Vec<(VirtualShard, Vec<u8>)> {
    let id = fetch.id;
    let partition = |owned: &Owned| {
        let place = streams::partition_place(tenant, id, owned.partition);
        (place, streams::partition_row(tenant, id, owned.partition))
    };
    let home = streams::place(tenant, &fetch.stream);
    let group = (home, streams::group_row(tenant, id, &fetch.group));
    std::iter::once(group).chain(got.standing.owned.iter().map(partition)).collect()
}

/// What there is now. The member is heard of, if it was not lately.
async fn look(edge: &Edge, caller: &Caller, fetch: &Fetch) -> Result<Got, NoFetch> {
    let tenant = caller.tenant;
    let Some(stream) = find(edge, tenant, &fetch.stream).await? else {
        return Err(NoFetch::Refused(streams::Refusal::NoStream));
    };
    if stream.id != fetch.id {
        return Err(NoFetch::Refused(streams::Refusal::Gone));
    }
    let node = edge.node.clone();
    let rows = node.rows(streams::place(tenant, &fetch.stream));
    let (group, member) = (fetch.group.clone(), fetch.member.clone());
    let (now_ms, session_ms) = (node.now_ms(), fetch.session_ms());
    let standing =
        move || streams::standing(&rows, tenant, &stream, &group, (&member, session_ms), now_ms);
    let standing = match edge.node.read(standing).await? {
        Some(standing) => standing,
        None => join(edge, caller, fetch).await?,
    };
    let owned = standing.owned.iter();
    let own = |owned: &Owned| Some((owned.partition, fetch.own(&standing, owned)?));
    let own: Vec<(u16, u64)> = owned.clone().filter_map(own).collect();
    let from = owned.map(|owned| (owned.partition, fetch.position(&standing, owned)));
    let mut from: Vec<(u16, u64)> = from.collect();
    // Nobody's first partition is always read first: the others would have to wait for it.
    let first = anywhere(edge) % (from.len() as u64).max(1);
    from.rotate_left(usize::try_from(first).expect("less than there are"));
    let (id, max_records) = (fetch.id, fetch.max_records);
    let records = move || {
        behind_end(&node, tenant, id, &own).map_or_else(
            || Ok(read(&node, tenant, id, &from, max_records)),
            |(partition, end)| Err(NoFetch::BehindEnd(partition, end)),
        )
    };
    match edge.node.read(records).await? {
        Ok(records) => Ok(Got { standing, records }),
        Err(behind_end) => {
            // Of a stream that was deleted meanwhile there is no end.
            let is_there = is_still(edge, tenant, &fetch.stream, id).await?;
            Err(if is_there { behind_end } else { NoFetch::Refused(streams::Refusal::Gone) })
        }
    }
}

/// Says that the member takes part.
async fn join(edge: &Edge, caller: &Caller, fetch: &Fetch) -> Result<Standing, NoFetch> {
    let home = streams::place(caller.tenant, &fetch.stream);
    let group = streams::group_row(caller.tenant, fetch.id, &fetch.group);
    if edge.node.view_or_row(home, group).await?.is_none() {
        caller.check_room(true)?;
    }
    let join = Join {
        stream: fetch.stream.clone(),
        group: fetch.group.clone(),
        member: fetch.member.clone(),
        session_ms: fetch.session_ms(),
        start: BTreeMap::new(),
        id: Some(fetch.id),
    };
    let join = Command::Join(join);
    match submit(edge, caller.tenant, &fetch.stream, None, &join).await? {
        Reply::Joined(standing) => Ok(standing),
        Reply::Refused(refusal) => Err(NoFetch::Refused(refusal)),
        other => unreachable!("a Join is answered with {other:?}"),
    }
}

/// A partition whose offset is not there yet, with its end: who read on from there would leave out what
/// comes before it. Blocks.
fn behind_end(
    node: &Node,
    tenant: TenantId,
    id: StreamId,
    own: &[(u16, u64)],
) -> Option<(u16, u64)> {
    own.iter().find_map(|&(number, offset)| {
        let end = partition(node, tenant, id, number).next;
        (offset > end).then_some((number, end))
    })
}

/// Records of these partitions, each from its offset on, until there are enough. Blocks.
fn read(
    node: &Node,
    tenant: TenantId,
    id: StreamId,
    from: &[(u16, u64)],
    max_records: usize,
) -> Vec<(u16, Record)> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for &(partition, offset) in from {
        if found.len() >= max_records || bytes >= FETCH_BYTES {
            break;
        }
        let rows = node.rows(streams::partition_place(tenant, id, partition));
        let left = (max_records - found.len(), FETCH_BYTES - bytes);
        let fetched = streams::fetch(&rows, tenant, id, partition, offset, left);
        for record in fetched.records {
            bytes += record.value.len() + record.key.as_ref().map_or(0, Bytes::len);
            found.push((partition, record));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_positions_hold_until_the_partition_changes_hands() {
        let mut fetch = Fetch {
            stream: "s".into(),
            id: StreamId { shard: 0, number: 1 },
            group: "g".into(),
            member: "m".into(),
            max_records: 1,
            session: Duration::from_secs(30),
            place: Some(Place { epoch: 5, offsets: BTreeMap::from([(1, 70)]) }),
        };
        let standing = Standing { epoch: 6, owned: Vec::new() };
        let owned = |partition, since| Owned { partition, since, committed: Some(40) };
        assert_eq!(fetch.position(&standing, &owned(1, 5)), 70);
        assert_eq!(fetch.position(&standing, &owned(1, 6)), 40, "it was somebody else's meanwhile");
        assert_eq!(fetch.position(&standing, &owned(2, 1)), 40, "nothing is said of it");
        let nothing_done = Owned { partition: 2, since: 1, committed: None };
        assert_eq!(fetch.position(&standing, &nothing_done), 0);
        let earlier = Standing { epoch: 4, owned: Vec::new() };
        assert_eq!(fetch.position(&earlier, &owned(1, 1)), 40, "there was no such epoch yet");
        fetch.place = None;
        assert_eq!(fetch.position(&standing, &owned(1, 5)), 40, "nothing is said of any");
    }
}
