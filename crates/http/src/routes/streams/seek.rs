//! Sending a group elsewhere.

use std::collections::BTreeMap;

use axum::Json as Answer;
use axum::extract::State;
use kernel::TenantId;
use node::Node;
use serde::{Deserialize, Serialize};
use streams::{Command, Definition, Reply, Seek};
use utoipa::ToSchema;

use super::{check_partitions, find_with_group, group_refused};
use crate::app::EdgeState;
use crate::auth::Caller;
use crate::extract::{Json, Path};
use crate::problem::{Problem, ProblemKind};
use crate::route::{Routes, doc};
use crate::streams::{partition, submit};
use crate::time;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table.post(
        "/v1/streams/{stream}/groups/{group}:seek",
        "groups.seek",
        seek,
        doc("Have a group go on from elsewhere")
            .text(
                "`{\"to\": \"earliest\"}`: what is kept, from the beginning. `{\"to\": \
                \"latest\"}`: what comes from now on. `{\"to\": \"time\", \"time\": …}`: the first \
                record of that time or later. `{\"to\": \"offset\", \"offset\": 5}` or `{\"to\": \
                \"offset\", \"offsets\": {\"0\": 5}}`: these; one that is kept no more, or not there \
                yet, is the nearest that is. Of every partition, or of the one that `partition` \
                names. The epoch grows, and what was fetched before can be committed no more. Makes \
                the group if it is not there.",
            )
            .scope("consume")
            .body::<SeekAsk>()
            .example(r#"{"to": "time", "time": "2026-01-31T12:00:00.000Z"}"#)
            .gives::<Sought>(200, "Where it goes on")
            .problems(&[
                ProblemKind::NotFound,
                ProblemKind::Unprocessable,
                ProblemKind::QuotaExceeded,
            ]),
    )
}

/// Where to go.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum To {
    /// The first record that is kept.
    Earliest,
    /// The next record to come.
    Latest,
    /// The first record of `time` or later.
    Time,
    /// `offset`, or `offsets`.
    Offset,
}

/// Where a group is to go on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SeekAsk {
    to: To,
    /// RFC 3339; only to a time.
    time: Option<String>,
    /// Only to an offset.
    offset: Option<u64>,
    /// Only to an offset: of each partition its own.
    #[schema(value_type = Option<BTreeMap<String, u64>>)]
    offsets: Option<BTreeMap<u16, u64>>,
    /// Only this one; all when not given.
    partition: Option<u16>,
}

/// Where a group goes on.
#[derive(Serialize, ToSchema)]
pub(super) struct Sought {
    /// Commits of earlier ones are refused.
    epoch: u64,
    /// The next offset of each partition.
    #[schema(value_type = BTreeMap<String, u64>)]
    offsets: BTreeMap<u16, u64>,
}

/// What to look up in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Earliest,
    Latest,
    Time { ms: u64 },
    Offset(u64),
}

impl SeekAsk {
    /// What is looked up in which partition, or what is wrong.
    fn targets(&self, stream: &Definition) -> Result<Vec<(u16, Target)>, Problem> {
        let wrong = |detail: &str| Err(ProblemKind::InvalidBody.because(detail.to_owned()));
        let count = stream.settings.partitions;
        if self.time.is_some() && self.to != To::Time {
            return wrong("at time: it is only for to: \"time\"");
        }
        if self.offset.is_some() && self.to != To::Offset {
            return wrong("at offset: it is only for to: \"offset\"");
        }
        if self.offsets.is_some() && self.to != To::Offset {
            return wrong("at offsets: they are only for to: \"offset\"");
        }
        if self.partition.is_some_and(|partition| partition >= count) {
            return wrong(&format!("at partition: the stream has {count}, from 0 on"));
        }
        let target = match (self.to, &self.time, self.offset, &self.offsets) {
            (To::Earliest, ..) => Target::Earliest,
            (To::Latest, ..) => Target::Latest,
            (To::Time, None, ..) => return wrong("at time: it is needed"),
            (To::Time, Some(time), ..) => match time::parse(time) {
                Some(ms) => Target::Time { ms },
                None => return wrong("at time: it is RFC 3339, from 1970 to 9999"),
            },
            (To::Offset, _, Some(offset), None) => Target::Offset(offset),
            (To::Offset, _, None, Some(offsets)) => {
                if self.partition.is_some() {
                    return wrong("at partition: offsets name their partitions themselves");
                }
                if offsets.is_empty() {
                    return wrong("at offsets: there is one at least");
                }
                check_partitions(stream, offsets)?;
                let target = |(number, offset): (&u16, &u64)| (*number, Target::Offset(*offset));
                return Ok(offsets.iter().map(target).collect());
            }
            (To::Offset, _, None, None) => return wrong("at offset: it is needed, or offsets"),
            (To::Offset, _, Some(_), Some(_)) => {
                return wrong("at offsets: either these or offset");
            }
        };
        let which = self.partition.map_or(0..count, |partition| partition..partition + 1);
        Ok(which.map(|partition| (partition, target)).collect())
    }
}

/// Where targets are now. Blocks.
fn look_up(
    node: &Node,
    tenant: TenantId,
    stream: &Definition,
    targets: &[(u16, Target)],
) -> BTreeMap<u16, u64> {
    let look = |&(number, target): &(u16, Target)| {
        let info = partition(node, tenant, stream.id, number);
        let offset = match target {
            Target::Earliest => info.start,
            Target::Latest => info.next,
            Target::Offset(offset) => offset.clamp(info.start, info.next),
            Target::Time { ms } => {
                let rows = node.rows(streams::partition_place(tenant, stream.id, number));
                streams::offset_at(&rows, tenant, stream.id, number, ms)
            }
        };
        (number, offset)
    };
    targets.iter().map(look).collect()
}

pub(super) async fn seek(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, group)): Path<(String, String)>,
    body: Json<SeekAsk>,
) -> Result<Answer<Sought>, Problem> {
    let stream = find_with_group(&edge, &caller, &name, &group).await?;
    let targets = body.value.targets(&stream)?;
    let tenant = caller.tenant;
    let home = streams::place(tenant, &name);
    let row = streams::group_row(tenant, stream.id, &group);
    if edge.node.view_or_row(home, row).await?.is_none() {
        caller.check_room(true)?;
    }
    let (node, id) = (edge.node.clone(), Some(stream.id));
    let offsets = edge.node.read(move || look_up(&node, tenant, &stream, &targets)).await?;
    let seek = Seek { stream: name.clone(), group: group.clone(), offsets: offsets.clone(), id };
    match submit(&edge, tenant, &name, None, &Command::Seek(seek)).await? {
        Reply::Sought { epoch } => Ok(Answer(Sought { epoch, offsets })),
        Reply::Refused(refusal) => Err(group_refused(&name, &group, refusal)),
        other => unreachable!("a Seek is answered with {other:?}"),
    }
}
