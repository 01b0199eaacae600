//! Making, changing and looking at streams.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use kernel::TenantId;
use node::Node;
use serde::{Deserialize, Serialize};
use streams::{
    Command, Create, Definition, PARTITIONS_MAX, Reply, Retention, Settings, StreamId, Update,
};
use utoipa::ToSchema;

use super::{check_name, find, refused};
use crate::app::EdgeState;
use crate::auth::Caller;
use crate::extract::body::{Given, given};
use crate::extract::{Cursor, Idempotency, Json, NamesQuery, Page, Path, Query, page_by_name};
use crate::problem::{Problem, ProblemKind, not_null, other_settings, within};
use crate::route::{Routes, doc};
use crate::streams::{find as find_stream, partition, submit};
use crate::time::{Rfc3339, rfc3339};

/// Tries of a change that meets others.
const UPDATE_TRIES: usize = 10;
/// Ten years: who wants more wants all of it.
const RETENTION_SECONDS_MAX: u64 = 10 * 365 * 24 * 60 * 60;
/// A week.
const RETENTION_SECONDS_DEFAULT: u64 = 7 * 24 * 60 * 60;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .post(
            "/v1/streams",
            "streams.create",
            create,
            doc("Create a stream")
                .text("The same name with the same settings is the same stream, and 200.")
                .idempotent()
                .body::<NewStream>()
                .example(r#"{"name": "clicks", "partitions": 8, "retentionSeconds": 604800}"#)
                .gives::<StreamMade>(201, "Created")
                .gives::<StreamMade>(200, "It was there, with these settings")
                .problems(&[ProblemKind::Conflict, ProblemKind::QuotaExceeded]),
        )
        .get(
            "/v1/streams",
            "streams.list",
            list,
            doc("List streams")
                .scope("read")
                .query::<NamesQuery>()
                .gives::<Page<StreamSummary>>(200, "By name"),
        )
        .get(
            "/v1/streams/{stream}",
            "streams.get",
            get,
            doc("Look at a stream: its settings, and what is in it")
                .scope("read")
                .gives::<StreamView>(200, "The stream")
                .problems(&[ProblemKind::NotFound]),
        )
        .patch(
            "/v1/streams/{stream}",
            "streams.update",
            update,
            doc("Change a stream")
                .text(
                    "What is left out stays; `null` takes a bound away. With more partitions, keys \
                    go to other partitions than before: what was appended stays where it is.",
                )
                .body::<StreamChange>()
                .example(r#"{"retentionSeconds": 86400}"#)
                .gives::<StreamView>(200, "As it is now")
                .problems(&[
                    ProblemKind::NotFound,
                    ProblemKind::Conflict,
                    ProblemKind::Unprocessable,
                    ProblemKind::QuotaExceeded,
                ]),
        )
        .delete(
            "/v1/streams/{stream}",
            "streams.delete",
            delete,
            doc("Delete a stream, its records and its groups")
                .gives_nothing(204, "Gone")
                .problems(&[ProblemKind::NotFound]),
        )
}

/// A stream to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewStream {
    /// 1 to 80 of `A-Z a-z 0-9 . - _`
    name: String,
    /// 1 to 1024; 1 when not given. So many members of a group can share the work.
    partitions: Option<u64>,
    /// A record older than this is dropped. 604800 (a week) when not given; `null` for never.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    retention_seconds: Given<u64>,
    /// Of each partition the newest so many bytes are kept, as they are stored. All when not given.
    retention_bytes: Option<u64>,
}

/// What is to change.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct StreamChange {
    /// As many as before, or more.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    partitions: Given<u64>,
    /// A record older than this is dropped.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    retention_seconds: Given<u64>,
    /// Of each partition the newest so many bytes are kept.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    retention_bytes: Given<u64>,
}

impl StreamChange {
    /// Makes the change, or says what is wrong with it.
    fn apply_to(&self, settings: &mut Settings) -> Result<(), Problem> {
        if let Some(count) = self.partitions.flatten() {
            let count = within("partitions", count, 1, PARTITIONS_MAX.into())?;
            settings.partitions = u16::try_from(count).expect("1024 at most");
        }
        if let Some(seconds) = self.retention_seconds {
            let checked = |seconds| within("retentionSeconds", seconds, 1, RETENTION_SECONDS_MAX);
            settings.retention.age_ms = seconds.map(checked).transpose()?.map(|s| s * 1000);
        }
        if let Some(bytes) = self.retention_bytes {
            let checked = |bytes| within("retentionBytes", bytes, 1, u64::MAX);
            settings.retention.bytes = bytes.map(checked).transpose()?;
        }
        Ok(())
    }
}

/// A stream that is there now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamMade {
    /// Never used again, even if the name is.
    stream_id: String,
    name: String,
}

/// What a stream is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamSummary {
    stream_id: String,
    name: String,
    partitions: u16,
    /// `null`: for ever.
    retention_seconds: Option<u64>,
    /// Of each partition; `null`: all.
    retention_bytes: Option<u64>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Rfc3339,
    groups: u32,
}

/// A stream.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamView {
    #[serde(flatten)]
    summary: StreamSummary,
    /// Records that are kept.
    records: u64,
    /// What they take, as they are stored.
    bytes: u64,
    /// What each partition holds.
    per_partition: Vec<PartitionView>,
}

/// What a partition holds.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PartitionView {
    partition: u16,
    /// The offset of the first record that is kept.
    start: u64,
    /// The offset of the next record to come.
    end: u64,
    bytes: u64,
    /// When the last record came, if one did.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_record_at: Option<Rfc3339>,
}

fn stream_id(id: StreamId) -> String {
    format!("s_{:x}_{:x}", id.shard, id.number)
}

fn summary(name: String, stream: &Definition) -> StreamSummary {
    let Settings { partitions, retention } = stream.settings;
    StreamSummary {
        stream_id: stream_id(stream.id),
        name,
        partitions,
        retention_seconds: retention.age_ms.map(|ms| ms / 1000),
        retention_bytes: retention.bytes,
        created_at: rfc3339(stream.created_ms),
        updated_at: rfc3339(stream.updated_ms),
        groups: stream.groups,
    }
}

/// A stream as it is now. Blocks.
fn view(node: &Node, tenant: TenantId, name: String, stream: &Definition) -> StreamView {
    let (mut records, mut bytes) = (0, 0);
    let mut per_partition = Vec::new();
    for number in 0..stream.settings.partitions {
        let info = partition(node, tenant, stream.id, number);
        records += info.next - info.start;
        bytes += info.bytes;
        per_partition.push(PartitionView {
            partition: number,
            start: info.start,
            end: info.next,
            bytes: info.bytes,
            last_record_at: (info.last_ms > 0).then(|| rfc3339(info.last_ms)),
        });
    }
    StreamView { summary: summary(name, stream), records, bytes, per_partition }
}

pub(super) async fn create(
    State(edge): State<EdgeState>,
    caller: Caller,
    idempotency: Idempotency,
    body: Json<NewStream>,
) -> Result<(StatusCode, Answer<StreamMade>), Problem> {
    let NewStream { name, partitions, retention_seconds, retention_bytes } = body.value;
    check_name("stream", &name)?;
    let retention = Retention { age_ms: Some(RETENTION_SECONDS_DEFAULT * 1000), bytes: None };
    let mut settings = Settings { partitions: 1, retention };
    let (partitions, retention_bytes) = (partitions.map(Some), retention_bytes.map(Some));
    let wanted = StreamChange { partitions, retention_seconds, retention_bytes };
    wanted.apply_to(&mut settings)?;
    let there = find_stream(&edge, caller.tenant, &name).await?;
    if let Some(max_ms) = caller.retention_ms_max().filter(|_| retention_seconds.is_none()) {
        // What is usual may be more than the tenant has. What is there stays as it is.
        let usual = settings.retention.age_ms.map(|usual_ms| usual_ms.min(max_ms));
        settings.retention.age_ms =
            there.as_ref().map_or(usual, |there| there.settings.retention.age_ms);
    }
    let key = idempotency.with(caller.tenant, &body.raw);
    let home = streams::place(caller.tenant, &name);
    let allowed = caller.check_room(true).and_then(|()| check_retention(&caller, &settings));
    if let Err(full) = allowed {
        let answered = edge.node.is_answered(home, key).await?;
        if there.is_none() && !answered {
            return Err(full);
        }
    }
    let command = Command::Create(Create { stream: name.clone(), settings });
    match submit(&edge, caller.tenant, &name, key, &command).await? {
        Reply::Created { id, new } => {
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, Answer(StreamMade { stream_id: stream_id(id), name })))
        }
        Reply::Refused(streams::Refusal::Exists) => {
            let there = find_stream(&edge, caller.tenant, &name).await?;
            Err(is_other(&name, &settings, there.as_ref()))
        }
        Reply::Refused(refusal) => Err(refused(&name, refusal)),
        other => unreachable!("a Create is answered with {other:?}"),
    }
}

/// The stream that is there is not the one that is wanted.
fn is_other(name: &str, wanted: &Settings, there: Option<&Definition>) -> Problem {
    let fields = there.map_or(Vec::new(), |there| {
        let (mine, its) = (wanted.retention, there.settings.retention);
        let fields = [
            ("partitions", wanted.partitions == there.settings.partitions),
            ("retentionSeconds", mine.age_ms == its.age_ms),
            ("retentionBytes", mine.bytes == its.bytes),
        ];
        fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect()
    });
    other_settings("stream", name, &fields)
}

/// Whether the tenant may keep records for so long.
fn check_retention(caller: &Caller, settings: &Settings) -> Result<(), Problem> {
    caller.check_retention(settings.retention.age_ms.unwrap_or(u64::MAX))
}

pub(super) async fn list(
    State(edge): State<EdgeState>,
    caller: Caller,
    Query(query): Query<NamesQuery>,
) -> Result<Answer<Page<StreamSummary>>, Problem> {
    let after = Cursor::name_before(query.cursor)?;
    let (prefix, limit) = (query.prefix.unwrap_or_default(), query.limit.get());
    let (tenant, shards) = (caller.tenant, edge.node.all_rows());
    let page = move || {
        let (found, next_cursor) = page_by_name(&shards, limit, |rows, limit| {
            streams::names(rows, tenant, &prefix, &after, limit)
        });
        let view = |(name, shard): (String, usize)| {
            let stream = streams::stream(&shards[shard], tenant, &name)?;
            Some(summary(name, &stream))
        };
        let items = found.into_iter().filter_map(view).collect();
        Page { items, next_cursor }
    };
    Ok(Answer(edge.node.read(page).await?))
}

pub(super) async fn get(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Answer<StreamView>, Problem> {
    let stream = find(&edge, &caller, &name).await?;
    let (node, tenant) = (edge.node.clone(), caller.tenant);
    let read = move || view(&node, tenant, name, &stream);
    Ok(Answer(edge.node.read(read).await?))
}

pub(super) async fn update(
    state: State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Json<StreamChange>,
) -> Result<Answer<StreamView>, Problem> {
    let edge = &state.0;
    if body.value.partitions == Some(None) {
        return Err(not_null("partitions", "a whole number, 0 or more"));
    }
    let mut last = streams::Refusal::Version;
    for _ in 0..UPDATE_TRIES {
        let stream = find(edge, &caller, &name).await?;
        let mut settings = stream.settings;
        body.value.apply_to(&mut settings)?;
        if settings.retention.age_ms != stream.settings.retention.age_ms {
            check_retention(&caller, &settings)?;
        }
        let update = Update { stream: name.clone(), version: stream.version, settings };
        match submit(edge, caller.tenant, &name, None, &Command::Update(update)).await? {
            Reply::Updated { .. } => return get(state, caller, Path(name)).await,
            Reply::Refused(streams::Refusal::Version) => {}
            Reply::Refused(refusal) => {
                last = refusal;
                break;
            }
            other => unreachable!("an Update is answered with {other:?}"),
        }
    }
    Err(refused(&name, last))
}

pub(super) async fn delete(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    check_name("stream", &name)?;
    let delete = Command::Delete { stream: name.clone() };
    match submit(&edge, caller.tenant, &name, None, &delete).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT),
        Reply::Refused(refusal) => Err(refused(&name, refusal)),
        other => unreachable!("a Delete is answered with {other:?}"),
    }
}
