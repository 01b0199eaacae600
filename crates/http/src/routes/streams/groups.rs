//! Looking at groups, and removing them.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use kernel::TenantId;
use node::Node;
use serde::Serialize;
use streams::{Command, Definition, PartitionInfo, Reply};
use utoipa::ToSchema;

use super::{check_name, find, find_with_group, group_refused, no_group};
use crate::app::EdgeState;
use crate::auth::Caller;
use crate::extract::{Cursor, Page, PageQuery, Path, Query, page_by_name};
use crate::problem::{Problem, ProblemKind};
use crate::route::{Routes, doc};
use crate::streams::{partition, submit};
use crate::time::{Rfc3339, rfc3339};

/// Groups on a page, whatever was asked for: of each, what it has committed of every partition is read.
const PAGE_GROUPS_MAX: usize = 50;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .get(
            "/v1/streams/{stream}/groups",
            "groups.list",
            list,
            doc("List the groups of a stream")
                .text("50 on a page at most, whatever `limit` says.")
                .scope("read")
                .query::<PageQuery>()
                .gives::<Page<GroupSummary>>(200, "By name")
                .problems(&[ProblemKind::NotFound]),
        )
        .get(
            "/v1/streams/{stream}/groups/{group}",
            "groups.get",
            get,
            doc("Look at a group: its members, who owns what, how far behind it is")
                .scope("read")
                .gives::<GroupView>(200, "The group")
                .problems(&[ProblemKind::NotFound]),
        )
        .delete(
            "/v1/streams/{stream}/groups/{group}",
            "groups.delete",
            delete,
            doc("Delete a group and its offsets")
                .text("Not while it has members.")
                .gives_nothing(204, "Gone")
                .problems(&[ProblemKind::NotFound, ProblemKind::Conflict]),
        )
}

/// A group, in a list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupSummary {
    group: String,
    epoch: u64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    members: usize,
    /// Records that it has before it.
    lag: u64,
}

/// A group.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupView {
    group: String,
    /// Grows whenever partitions get other owners, and with every seek.
    epoch: u64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    /// Records that it has before it, of all partitions.
    lag: u64,
    members: Vec<MemberView>,
    partitions: Vec<GroupPartitionView>,
}

/// A member of a group.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MemberView {
    member: String,
    partitions: Vec<u16>,
    #[schema(value_type = String, format = DateTime)]
    last_seen_at: Rfc3339,
    /// It is lost when it is not seen for so long and a third of it.
    session_seconds: u64,
}

/// A partition, as a group sees it.
#[derive(Serialize, ToSchema)]
struct GroupPartitionView {
    partition: u16,
    /// Whose it is, if there are members.
    member: Option<String>,
    /// The next offset; `null` when nothing was committed.
    committed: Option<u64>,
    /// The offset of the first record that is kept.
    start: u64,
    /// The offset of the next record to come.
    end: u64,
    /// Records that the group has before it.
    lag: u64,
}

/// What all partitions hold. Blocks.
fn partitions(node: &Node, tenant: TenantId, stream: &Definition) -> Vec<PartitionInfo> {
    let numbers = 0..stream.settings.partitions;
    numbers.map(|number| partition(node, tenant, stream.id, number)).collect()
}

/// A group as it is now. Blocks.
fn view(
    node: &Node,
    tenant: TenantId,
    (stream_name, stream): (&str, &Definition),
    name: &str,
) -> Option<GroupView> {
    let rows = node.rows(streams::place(tenant, stream_name));
    let group = streams::group(&rows.get(&streams::group_row(tenant, stream.id, name))?);
    let seen = streams::members(&rows, tenant, stream.id, name);
    let committed = streams::committed(&rows, tenant, stream.id, name);
    let mut owners = vec![None; usize::from(stream.settings.partitions)];
    let mut members = Vec::with_capacity(group.owners.len());
    for (member, owned) in &group.owners {
        for (partition, _) in owned {
            // The stream may have got more partitions since it was looked up.
            if let Some(owner) = owners.get_mut(usize::from(*partition)) {
                *owner = Some(member.clone());
            }
        }
        // A member that left between the two looks is not shown.
        if let Some(seen) = seen.get(member) {
            members.push(MemberView {
                member: member.clone(),
                partitions: owned.iter().map(|(partition, _)| *partition).collect(),
                last_seen_at: rfc3339(seen.seen_ms),
                session_seconds: seen.session_ms / 1000,
            });
        }
    }
    let infos = partitions(node, tenant, stream);
    let views = (0..).zip(infos.iter().zip(owners)).map(|(number, (info, member))| {
        let committed = committed.get(&number).copied();
        let (start, end, lag) = (info.start, info.next, info.lag(committed));
        GroupPartitionView { partition: number, member, committed, start, end, lag }
    });
    let partitions: Vec<_> = views.collect();
    Some(GroupView {
        group: name.to_owned(),
        epoch: group.epoch,
        created_at: rfc3339(group.created_ms),
        lag: partitions.iter().map(|partition| partition.lag).sum(),
        members,
        partitions,
    })
}

pub(super) async fn list(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Answer<Page<GroupSummary>>, Problem> {
    let stream = find(&edge, &caller, &name).await?;
    let after = Cursor::name_before(query.cursor)?;
    let (node, tenant, limit) = (edge.node.clone(), caller.tenant, query.limit.get());
    let limit = limit.min(PAGE_GROUPS_MAX);
    let page = move || {
        let rows = node.rows(streams::place(tenant, &name));
        let home = std::slice::from_ref(&rows);
        let (found, next_cursor) = page_by_name(home, limit, |rows, limit| {
            streams::group_names(rows, tenant, stream.id, &after, limit)
        });
        let infos = partitions(&node, tenant, &stream);
        let summary = |(group, _): (String, usize)| {
            let known = streams::group(&rows.get(&streams::group_row(tenant, stream.id, &group))?);
            let committed = streams::committed(&rows, tenant, stream.id, &group);
            let lag =
                |(number, info): (u16, &PartitionInfo)| info.lag(committed.get(&number).copied());
            Some(GroupSummary {
                epoch: known.epoch,
                created_at: rfc3339(known.created_ms),
                members: known.owners.len(),
                lag: (0..).zip(&infos).map(lag).sum(),
                group,
            })
        };
        Page { items: found.into_iter().filter_map(summary).collect(), next_cursor }
    };
    Ok(Answer(edge.node.read(page).await?))
}

pub(super) async fn get(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, group)): Path<(String, String)>,
) -> Result<Answer<GroupView>, Problem> {
    let stream = find_with_group(&edge, &caller, &name, &group).await?;
    let (node, tenant) = (edge.node.clone(), caller.tenant);
    let missing = no_group(&name, &group);
    let read = move || view(&node, tenant, (&name, &stream), &group);
    edge.node.read(read).await?.map(Answer).ok_or(missing)
}

pub(super) async fn delete(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((stream, group)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    check_name("stream", &stream)?;
    check_name("group", &group)?;
    let delete = Command::DeleteGroup { stream: stream.clone(), group: group.clone() };
    match submit(&edge, caller.tenant, &stream, None, &delete).await? {
        Reply::GroupDeleted => Ok(StatusCode::NO_CONTENT),
        Reply::Refused(refusal) => Err(group_refused(&stream, &group, refusal)),
        other => unreachable!("a DeleteGroup is answered with {other:?}"),
    }
}
