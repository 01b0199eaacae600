//! What members of a group do: fetch, commit, leave.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use streams::{Command, Commit, Refusal, Reply};
use utoipa::ToSchema;

use super::shown::{RecordView, next_offsets, with_records};
use super::{check_member, check_name, check_partitions, find_with_group, group_refused, refused};
use crate::app::EdgeState;
use crate::auth::Caller;
use crate::extract::{Json, Path};
use crate::problem::{Problem, ProblemKind, within};
use crate::route::{Routes, doc};
use crate::streams::fetch::{Fetch, NoFetch, Place, fetch as fetch_records};
use crate::streams::{is_still, partition, submit};

/// Records of one fetch.
const RECORDS_MAX: u64 = 1000;
/// Records of a fetch that does not say.
const RECORDS_DEFAULT: u64 = 100;
/// A long poll.
const WAIT_SECONDS_MAX: u64 = 20;
/// An hour.
const SESSION_SECONDS_MAX: u64 = 60 * 60;
const SESSION_SECONDS_DEFAULT: u64 = 30;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .post(
            "/v1/streams/{stream}/groups/{group}:fetch",
            "groups.fetch",
            fetch,
            doc("Fetch records as a member of a group")
                .text(
                    "The first to fetch makes the group, at the beginning of the stream. The \
                    partitions are dealt out to the members, each to one; a member who does not \
                    fetch for `sessionSeconds` is one no more. Reads from the committed offset of \
                    each of the member's partitions, however often: what is fetched and not \
                    committed is fetched again. `offsets` reads on without a commit. With \
                    `waitSeconds` the answer comes as soon as there is a record, or the epoch is \
                    another. About 1 MiB at most comes at once.",
                )
                .scope("consume")
                .body::<FetchAsk>()
                .example(r#"{"member": "w1", "maxRecords": 100, "waitSeconds": 20}"#)
                .gives::<Fetched>(200, "Perhaps none")
                .problems(&[
                    ProblemKind::NotFound,
                    ProblemKind::Unprocessable,
                    ProblemKind::QuotaExceeded,
                ]),
        )
        .post(
            "/v1/streams/{stream}/groups/{group}:commit",
            "groups.commit",
            commit,
            doc("What is before these offsets is done")
                .text(
                    "All of them or none. With `member` and `epoch`, as they were fetched, a member \
                    that lost a partition meanwhile is refused. Without `epoch`, that of the \
                    member's last fetch counts. Without `member`, nobody is asked who owns it; but \
                    where the group was sought since its owner last fetched, it is refused, unless \
                    `epoch` is later than that. An offset behind the committed one changes nothing, \
                    one past the end of its partition is refused.",
                )
                .scope("consume")
                .body::<CommitAsk>()
                .example(r#"{"member": "w1", "offsets": {"0": 0}}"#)
                .gives::<Committed>(200, "What is committed now, of the partitions named")
                .problems(&[ProblemKind::NotFound, ProblemKind::StaleMember]),
        )
        .delete(
            "/v1/streams/{stream}/groups/{group}/members/{member}",
            "groups.leave",
            leave,
            doc("Leave a group")
                .text("The member's partitions go to the others at once, not when its session ends.")
                .scope("consume")
                .gives_nothing(204, "It takes part no more")
                .problems(&[ProblemKind::NotFound]),
        )
}

/// How to fetch.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct FetchAsk {
    /// Who: 1 to 256 bytes, the same from one fetch to the next.
    member: String,
    /// 1 to 1000; 100 when not given.
    max_records: Option<u64>,
    /// 0 to 20; 0 when not given.
    wait_seconds: Option<u64>,
    /// A member who does not fetch for so long is one no more, then or up to a third later. 1 to
    /// 3600; 30 when not given.
    session_seconds: Option<u64>,
    /// Where to read on in these partitions, instead of at the committed offset: `nextOffsets` of
    /// what was fetched before. With `epoch`.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, u64>)]
    offsets: BTreeMap<u16, u64>,
    /// That of the fetch which `offsets` are from; not without it. In a partition that the member has
    /// got since, or that somebody has sought since, the committed offset counts.
    epoch: Option<u64>,
}

/// What a member gets.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Fetched {
    /// Grows whenever partitions get other owners, and with every seek.
    epoch: u64,
    /// Those that are the member's now.
    partitions: Vec<u16>,
    /// What to commit when all of these records are done.
    #[schema(value_type = BTreeMap<String, u64>)]
    next_offsets: BTreeMap<u16, u64>,
    /// Those of one partition together, in order.
    records: Vec<RecordView>,
}

impl IntoResponse for Fetched {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct About {
            epoch: u64,
            partitions: Vec<u16>,
            next_offsets: BTreeMap<u16, u64>,
        }
        let Fetched { epoch, partitions, next_offsets, records } = self;
        with_records(&About { epoch, partitions, next_offsets }, &records)
    }
}

fn checked_member(member: &str) -> Result<(), Problem> {
    let at = |why: String| ProblemKind::InvalidBody.because(format!("at member: {why}"));
    check_member(member).map_err(at)
}

fn behind_end(partition: u16, end: u64) -> Problem {
    let detail = format!("at offsets.{partition}: the next record of the partition is {end}");
    ProblemKind::InvalidBody.because(detail)
}

pub(super) async fn fetch(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((stream, group)): Path<(String, String)>,
    body: Json<FetchAsk>,
) -> Result<Fetched, Problem> {
    let definition = find_with_group(&edge, &caller, &stream, &group).await?;
    let ask = body.value;
    checked_member(&ask.member)?;
    check_partitions(&definition, &ask.offsets)?;
    let max = within("maxRecords", ask.max_records.unwrap_or(RECORDS_DEFAULT), 1, RECORDS_MAX)?;
    let wait = within("waitSeconds", ask.wait_seconds.unwrap_or(0), 0, WAIT_SECONDS_MAX)?;
    let session = ask.session_seconds.unwrap_or(SESSION_SECONDS_DEFAULT);
    let session = within("sessionSeconds", session, 1, SESSION_SECONDS_MAX)?;
    let place = match (ask.epoch, ask.offsets) {
        (_, offsets) if offsets.is_empty() => None,
        (Some(epoch), offsets) => Some(Place { epoch, offsets }),
        (None, _) => {
            // Read on from before a seek, records would come with an epoch of after it.
            let detail = "at epoch: `offsets` are from a fetch, whose epoch goes with them";
            return Err(ProblemKind::InvalidBody.because(detail));
        }
    };
    let fetch = Fetch {
        stream,
        id: definition.id,
        group,
        member: ask.member,
        max_records: usize::try_from(max).expect("a thousand at most"),
        session: Duration::from_secs(session),
        place,
    };
    let got = fetch_records(&edge, &caller, &fetch, Duration::from_secs(wait)).await;
    let got = got.map_err(|why| match why {
        NoFetch::Refused(refusal) => group_refused(&fetch.stream, &fetch.group, refusal),
        NoFetch::BehindEnd(partition, end) => behind_end(partition, end),
        NoFetch::Problem(problem) => problem,
    })?;
    let records = got.records.into_iter();
    let records: Vec<_> = records.map(|(from, record)| RecordView::new(from, record)).collect();
    Ok(Fetched {
        epoch: got.standing.epoch,
        partitions: got.standing.owned.iter().map(|owned| owned.partition).collect(),
        next_offsets: next_offsets(&records),
        records,
    })
}

/// What is done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CommitAsk {
    /// Who says so; must own the partitions. Nobody is asked when not given.
    member: Option<String>,
    /// That of the fetch. When not given, that of the member's last fetch: who fetches on before it
    /// commits gives it.
    epoch: Option<u64>,
    /// The next offset of each partition: one more than that of the last record that is done.
    #[schema(value_type = BTreeMap<String, u64>)]
    offsets: BTreeMap<u16, u64>,
}

/// What is committed.
#[derive(Serialize, ToSchema)]
pub(super) struct Committed {
    /// The next offset of each partition.
    #[schema(value_type = BTreeMap<String, u64>)]
    offsets: BTreeMap<u16, u64>,
}

/// Why a commit was refused that names a member, or an epoch, or does not.
fn why_stale(names_member: bool, names_epoch: bool) -> &'static str {
    match (names_member, names_epoch) {
        (true, true) => "a partition is not this member's, or was not in the epoch that is named",
        (true, false) => {
            "a partition is not this member's, or has come to it or was sought since it last \
             fetched: it fetches before it commits"
        }
        (false, true) => {
            "a partition has got another owner, or was sought, after the epoch that is named, or there \
             was no such epoch yet"
        }
        (false, false) => {
            "the group was sought since it last fetched: it fetches before it commits, or names \
             the epoch"
        }
    }
}

pub(super) async fn commit(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, group)): Path<(String, String)>,
    body: Json<CommitAsk>,
) -> Result<Answer<Committed>, Problem> {
    let definition = find_with_group(&edge, &caller, &name, &group).await?;
    let CommitAsk { member, epoch, offsets } = body.value;
    member.as_deref().map_or(Ok(()), checked_member)?;
    if offsets.is_empty() {
        return Err(ProblemKind::InvalidBody.because("at offsets: there is one at least"));
    }
    check_partitions(&definition, &offsets)?;
    // What is not there yet cannot be done. The end only grows, so this holds when it is committed, in
    // the stream that was looked at: the command names it.
    let (node, tenant, id) = (edge.node.clone(), caller.tenant, definition.id);
    let asked = offsets.clone();
    let beyond = move || {
        let end = |number| partition(&node, tenant, id, number).next;
        let ends = asked.into_iter().map(|(number, offset)| (number, offset, end(number)));
        ends.into_iter().find(|(_, offset, end)| offset > end)
    };
    if let Some((number, _, end)) = edge.node.read(beyond).await? {
        // Of a stream that was deleted meanwhile there is no end.
        let is_there = is_still(&edge, tenant, &name, id).await?;
        return Err(if is_there { behind_end(number, end) } else { refused(&name, Refusal::Gone) });
    }
    let why = why_stale(member.is_some(), epoch.is_some());
    let (stream, id) = (name.clone(), Some(id));
    let commit = Commit { stream, group: group.clone(), member, epoch, offsets, id };
    match submit(&edge, tenant, &name, None, &Command::Commit(commit)).await? {
        Reply::Committed(offsets) => Ok(Answer(Committed { offsets })),
        Reply::Refused(Refusal::StaleMember { epoch: now }) => {
            Err(ProblemKind::StaleMember.because(why).with("epoch", now))
        }
        Reply::Refused(refusal) => Err(group_refused(&name, &group, refusal)),
        other => unreachable!("a Commit is answered with {other:?}"),
    }
}

pub(super) async fn leave(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((stream, group, member)): Path<(String, String, String)>,
) -> Result<StatusCode, Problem> {
    check_name("stream", &stream)?;
    check_name("group", &group)?;
    check_member(&member).map_err(|why| {
        ProblemKind::InvalidParameter.because(format!("`member` in the path: {why}"))
    })?;
    let leave = Command::Leave { stream: stream.clone(), group: group.clone(), member };
    match submit(&edge, caller.tenant, &stream, None, &leave).await? {
        Reply::Left => Ok(StatusCode::NO_CONTENT),
        Reply::Refused(refusal) => Err(group_refused(&stream, &group, refusal)),
        other => unreachable!("a Leave is answered with {other:?}"),
    }
}
