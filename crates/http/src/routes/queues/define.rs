//! Making, changing and looking at queues.

use std::collections::BTreeMap;

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use kernel::TenantId;
use queue::{Command, Create, Definition, Described, Mode, Refusal, Reply, Settings, Update};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::settings::{BackoffView, QueueChange, differing};
use super::{check_name, find, no_queue, refused};
use crate::app::{Edge, EdgeState};
use crate::auth::Caller;
use crate::extract::{
    Cursor, Fields, Idempotency, Json, NamesQuery, Page, Path, Query, page_by_name, read_part,
};
use crate::problem::{Problem, ProblemKind, other_settings};
use crate::queues::service;
use crate::route::{Routes, doc};
use crate::time::rfc3339;

/// Tries of a change that meets others.
const UPDATE_TRIES: usize = 10;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .post("/v1/queues", "queues.create", create,
            doc("Create a queue")
                .text("The same name with the same settings is the same queue, and 200.")
                .idempotent().body::<NewQueue>()
                .example(r#"{"name": "email-send", "maxReceiveCount": 8, "deadLetterQueue": "email-dead"}"#)
                .gives::<QueueMade>(201, "Created")
                .gives::<QueueMade>(200, "It was there, with these settings")
                .problems(&[ProblemKind::Conflict, ProblemKind::QuotaExceeded, ProblemKind::Unprocessable]))
        .get("/v1/queues", "queues.list", list,
            doc("List queues").scope("read").query::<NamesQuery>()
                .gives::<Page<QueueView>>(200, "By name"))
        .get("/v1/queues/{queue}", "queues.get", get,
            doc("Look at a queue: its settings, what is in it, what happens in it").scope("read")
                .gives::<QueueView>(200, "The queue").problems(&[ProblemKind::NotFound]))
        .patch("/v1/queues/{queue}", "queues.update", update,
            doc("Change a queue").text("What is left out stays; `null` takes away `maxMessages`, `maxBytes`, \
                `maxPublishPerSecond`, `maxAgeSeconds`, `maxReceiveCount` with `deadLetterQueue`, or `retryBackoff`. The mode never changes.")
                .body::<QueueChange>().gives::<QueueView>(200, "As it is now")
                .example(r#"{"maxReceiveCount": 5}"#)
                .problems(&[ProblemKind::NotFound, ProblemKind::Conflict, ProblemKind::QuotaExceeded,
                    ProblemKind::Unprocessable]))
        .delete("/v1/queues/{queue}", "queues.delete", delete,
            doc("Delete a queue and everything in it").gives_nothing(204, "Gone")
                .problems(&[ProblemKind::NotFound]))
        .post("/v1/queues/{queue}:purge", "queues.purge", purge,
            doc("Remove everything in a queue, what is leased included").gives_nothing(204, "Empty")
                .problems(&[ProblemKind::NotFound]))
}

/// Whether a queue keeps order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum ModeName {
    /// Any consumer gets any message.
    #[default]
    Standard,
    /// The messages of a group are handed out in the order of their sending.
    Fifo,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Mode {
        match name {
            ModeName::Standard => Mode::Standard,
            ModeName::Fifo => Mode::Fifo,
        }
    }
}

/// A queue to be made.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", try_from = "Fields")]
pub(super) struct NewQueue {
    /// 1 to 80 of `A-Z a-z 0-9 . - _`
    name: String,
    /// `STANDARD` when not given.
    #[serde(default)]
    mode: ModeName,
    #[serde(flatten)]
    change: QueueChange,
    /// Whether nothing but the name was given.
    #[serde(skip)]
    is_name_only: bool,
}

/// The fields that a list of expected ones does not have, because they were read before.
fn with_own_fields(why: &str, own: &[&str]) -> String {
    const FIRST: &str = "`retentionSeconds`";
    // From the end: the field that is not known may be called anything.
    match why.rsplit_once(&format!(", expected one of {FIRST}")) {
        Some((what, rest)) => {
            let own: String = own.iter().map(|field| format!("`{field}`, ")).collect();
            format!("{what}, expected one of {own}{FIRST}{rest}")
        }
        None => why.to_owned(),
    }
}

/// Read in two parts: a reader of flattened fields does not know which of them was wrong.
impl TryFrom<Fields> for NewQueue {
    type Error = String;

    fn try_from(Fields(fields): Fields) -> Result<NewQueue, String> {
        NewQueue::with_fields(fields, &["name", "mode"])
    }
}

impl NewQueue {
    /// Reads it; `known` are the fields that whoever asks has besides the settings.
    pub(super) fn with_fields(
        mut fields: Map<String, Value>,
        known: &[&str],
    ) -> Result<NewQueue, String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
            #[serde(default)]
            mode: ModeName,
        }
        let own = ["name", "mode"].map(|field| fields.remove_entry(field));
        let is_name_only = own[1].is_none() && fields.is_empty();
        // First: a name that is missing may be there, under a name that is misspelt.
        let change =
            read_part(Value::Object(fields)).map_err(|why| with_own_fields(&why, known))?;
        let Named { name, mode } = read_part(Value::Object(own.into_iter().flatten().collect()))?;
        Ok(NewQueue { name, mode, change, is_name_only })
    }
}

/// A change of a queue that is there, which may not be of everything.
#[derive(Deserialize)]
#[serde(try_from = "Fields")]
pub(super) struct ChangeAsked(QueueChange);

impl TryFrom<Fields> for ChangeAsked {
    type Error = String;

    fn try_from(Fields(fields): Fields) -> Result<ChangeAsked, String> {
        match ["name", "mode"].into_iter().find(|field| fields.contains_key(*field)) {
            Some(field) => Err(format!("at {field}: the {field} of a queue never changes")),
            None => read_part(Value::Object(fields)).map(ChangeAsked),
        }
    }
}

/// What a queue is to be like.
pub(super) struct Wanted {
    settings: Settings,
    says_retention: bool,
}

impl NewQueue {
    /// Its name and its settings.
    pub(super) fn check(&self) -> Result<(&str, Wanted), Problem> {
        let NewQueue { name, mode, change, .. } = self;
        check_name(name)?;
        let mut settings = Settings::usual((*mode).into());
        change.apply_to(name, &mut settings)?;
        Ok((name, Wanted { settings, says_retention: change.says_retention() }))
    }

    /// The id of the queue that is there, or is made now. One that is there may be as it likes if
    /// nothing is asked of it.
    pub(super) async fn found_or_made(
        &self,
        edge: &Edge,
        caller: &Caller,
        key: Option<kernel::IdempotencyKey>,
    ) -> Result<String, Problem> {
        let (name, wanted) = self.check()?;
        if self.is_name_only
            && !edge.node.is_answered(queue::place(caller.tenant, name), key).await?
            && let Some(there) = service::find(edge, caller.tenant, name).await?
        {
            let shard = edge.node.shard_number(queue::place(caller.tenant, name));
            return Ok(queue_id(shard, there.number));
        }
        let (_, Answer(made)) = make(edge, caller, name, wanted, key).await?;
        Ok(made.queue_id)
    }

    /// Its name, which [`NewQueue::check`] looks at.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// A queue that is there now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueMade {
    /// Never used again, even if the name is.
    queue_id: String,
    name: String,
}

/// A queue.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueView {
    queue_id: String,
    name: String,
    mode: ModeName,
    created_at: String,
    retention_seconds: u64,
    default_visibility_timeout_seconds: u64,
    delay_seconds: u64,
    receive_wait_seconds: u64,
    max_receive_count: Option<u32>,
    dead_letter_queue: Option<String>,
    retry_backoff: BackoffView,
    deduplication_window_seconds: u64,
    deduplicate_by_body: bool,
    max_messages: Option<u64>,
    max_bytes: Option<u64>,
    max_publish_per_second: Option<u32>,
    max_age_seconds: Option<u64>,
    max_inflight: u64,
    max_body_bytes: u64,
    large_bodies: bool,
    tags: BTreeMap<String, String>,
    /// Messages that can be received.
    visible: u64,
    /// Messages whose time has not come: delayed, or to be tried again.
    delayed: u64,
    /// Messages that somebody works on.
    inflight: u64,
    /// Messages that have gone to the dead-letter queue since this queue was made. How many lie there
    /// now is what that queue shows.
    dead: u64,
    /// Of all messages in the queue.
    bytes: u64,
    /// How long the oldest message has been visible, also one behind another of its group.
    oldest_visible_age_seconds: Option<u64>,
    rates: RatesView,
}

/// What happens in a queue, over the last minute or two.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RatesView {
    publish_per_second: f64,
    receive_per_second: f64,
    ack_per_second: f64,
    retry_per_second: f64,
}

/// A number is a queue's own in its shard only.
fn queue_id(shard: u16, number: u64) -> String {
    format!("q_{shard:x}_{number:x}")
}

/// A rate of a minute or two says no more than that.
fn thousandths(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}

fn shown(shard: u16, name: String, described: Described, now_ms: u64) -> QueueView {
    let Described { definition, counts, oldest_visible_ms } = described;
    let settings = definition.settings;
    let rates = counts.rates(now_ms);
    QueueView {
        queue_id: queue_id(shard, definition.number),
        name,
        mode: match settings.mode {
            Mode::Standard => ModeName::Standard,
            Mode::Fifo => ModeName::Fifo,
        },
        created_at: rfc3339(definition.created_ms).to_string(),
        retention_seconds: settings.retention_ms / 1000,
        default_visibility_timeout_seconds: settings.visibility_ms / 1000,
        delay_seconds: settings.delay_ms / 1000,
        receive_wait_seconds: settings.wait_ms / 1000,
        max_receive_count: settings.max_receive_count,
        dead_letter_queue: settings.dead_letter_queue,
        retry_backoff: BackoffView {
            base_seconds: settings.backoff.base_ms / 1000,
            max_seconds: settings.backoff.max_ms / 1000,
            jitter: settings.backoff.jitter,
        },
        deduplication_window_seconds: settings.dedup_ms / 1000,
        deduplicate_by_body: settings.dedup_by_body,
        max_messages: settings.max_messages,
        max_bytes: settings.max_bytes,
        max_publish_per_second: settings.max_publish_per_second,
        max_age_seconds: settings.max_age_ms.map(|ms| ms / 1000),
        max_inflight: settings.max_inflight,
        max_body_bytes: settings.max_body_bytes,
        large_bodies: settings.large_bodies,
        tags: settings.tags,
        visible: counts.visible,
        delayed: counts.delayed,
        inflight: counts.leased,
        dead: counts.totals.dead,
        bytes: counts.bytes,
        oldest_visible_age_seconds: oldest_visible_ms.map(|ms| now_ms.saturating_sub(ms) / 1000),
        rates: RatesView {
            publish_per_second: thousandths(rates.sent),
            receive_per_second: thousandths(rates.received),
            ack_per_second: thousandths(rates.acked),
            retry_per_second: thousandths(rates.failed),
        },
    }
}

async fn view(edge: &Edge, tenant: TenantId, name: String) -> Result<QueueView, Problem> {
    let place = queue::place(tenant, &name);
    let (rows, shard) = (edge.node.rows(place), edge.node.shard_number(place));
    let now_ms = edge.node.now_ms();
    let of = name.clone();
    let read = move || {
        let described = queue::queue(&rows, tenant, &name)?;
        Some(shown(shard, name, described, now_ms))
    };
    edge.node.read(read).await?.ok_or_else(|| no_queue(&of))
}

pub(super) async fn create(
    State(edge): State<EdgeState>,
    caller: Caller,
    idempotency: Idempotency,
    body: Json<NewQueue>,
) -> Result<(StatusCode, Answer<QueueMade>), Problem> {
    let (name, wanted) = body.value.check()?;
    let key = idempotency.with(caller.tenant, &body.raw);
    make(&edge, &caller, name, wanted, key).await
}

/// Makes a queue, unless it is there.
pub(super) async fn make(
    edge: &Edge,
    caller: &Caller,
    name: &str,
    wanted: Wanted,
    key: Option<kernel::IdempotencyKey>,
) -> Result<(StatusCode, Answer<QueueMade>), Problem> {
    let Wanted { mut settings, says_retention } = wanted;
    if let Some(max_ms) = caller.retention_ms_max().filter(|_| !says_retention) {
        // What is usual may be more than the tenant has. What is there stays as it is.
        let there = service::find(edge, caller.tenant, name).await?;
        let usual = settings.retention_ms.min(max_ms);
        settings.retention_ms = there.map_or(usual, |there| there.settings.retention_ms);
    }
    let mut allowed = caller.check_new_queue(settings.retention_ms);
    if allowed.is_ok() {
        allowed = check_dead_letter_mode(edge, caller, &settings).await;
    }
    if let Err(refusal) = allowed {
        let there = service::find(edge, caller.tenant, name).await?.is_some();
        let answered = edge.node.is_answered(queue::place(caller.tenant, name), key).await?;
        if !there && !answered {
            return Err(refusal);
        }
    }
    let command = Command::Create(Create { queue: name.to_owned(), settings: settings.clone() });
    match service::submit(edge, caller.tenant, name, key, &command).await? {
        Reply::Created { number, new } => {
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            let shard = edge.node.shard_number(queue::place(caller.tenant, name));
            let queue_id = queue_id(shard, number);
            Ok((status, Answer(QueueMade { queue_id, name: name.to_owned() })))
        }
        Reply::Refused(Refusal::Exists) => {
            let there = service::find(edge, caller.tenant, name).await?;
            Err(is_other(name, &settings, there.as_ref()))
        }
        Reply::Refused(refusal) => Err(refused(name, refusal)),
        other => unreachable!("a Create is answered with {other:?}"),
    }
}

/// A dead letter of a FIFO queue has a group, which a queue without order would drop. One that is not
/// there will be made as it must be.
async fn check_dead_letter_mode(
    edge: &Edge,
    caller: &Caller,
    settings: &Settings,
) -> Result<(), Problem> {
    let Some(dead) = &settings.dead_letter_queue else { return Ok(()) };
    let there = service::find(edge, caller.tenant, dead).await?;
    if there.is_none_or(|there| there.settings.mode == settings.mode) {
        return Ok(());
    }
    let detail = format!(
        "at deadLetterQueue: a FIFO queue and its dead-letter queue are both FIFO; one of this and \
         `{dead}` is not"
    );
    Err(ProblemKind::Unprocessable.because(detail))
}

/// The queue that is there is not the one that is wanted.
fn is_other(name: &str, wanted: &Settings, there: Option<&Definition>) -> Problem {
    let fields = there.map(|there| differing(wanted, &there.settings)).unwrap_or_default();
    other_settings("queue", name, &fields)
}

/// Makes a queue as it usually is, unless it is there.
pub(super) async fn make_usual(edge: &Edge, caller: &Caller, name: &str) -> Result<(), Problem> {
    let wanted = Wanted { settings: Settings::usual(Mode::Standard), says_retention: false };
    make(edge, caller, name, wanted, None).await.map(drop)
}

pub(super) async fn list(
    State(edge): State<EdgeState>,
    caller: Caller,
    Query(query): Query<NamesQuery>,
) -> Result<Answer<Page<QueueView>>, Problem> {
    let after = Cursor::name_before(query.cursor)?;
    let (prefix, limit) = (query.prefix.unwrap_or_default(), query.limit.get());
    let (tenant, now_ms) = (caller.tenant, edge.node.now_ms());
    let shards = edge.node.all_rows();
    let page = move || {
        let (found, next_cursor) = page_by_name(&shards, limit, |rows, limit| {
            queue::names(rows, tenant, &prefix, &after, limit, |_| true)
        });
        let view = |(name, shard): (String, usize)| {
            let described = queue::queue(&shards[shard], tenant, &name)?;
            let shard = u16::try_from(shard).expect("shards are few");
            Some(shown(shard, name, described, now_ms))
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
) -> Result<Answer<QueueView>, Problem> {
    check_name(&name)?;
    Ok(Answer(view(&edge, caller.tenant, name).await?))
}

pub(super) async fn update(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Json<ChangeAsked>,
) -> Result<Answer<QueueView>, Problem> {
    let ChangeAsked(change) = body.value;
    change.check_nulls()?;
    let mut last = Refusal::Version;
    for _ in 0..UPDATE_TRIES {
        let definition = find(&edge, &caller, &name).await?;
        let mut settings = definition.settings;
        let (before_ms, dead_before) = (settings.retention_ms, settings.dead_letter_queue.clone());
        change.apply_to(&name, &mut settings)?;
        if settings.retention_ms != before_ms {
            caller.check_retention(settings.retention_ms)?;
        }
        if settings.dead_letter_queue != dead_before {
            check_dead_letter_mode(&edge, &caller, &settings).await?;
        }
        let update = Update { queue: name.clone(), version: definition.version, settings };
        match service::submit(&edge, caller.tenant, &name, None, &Command::Update(update)).await? {
            Reply::Updated => return Ok(Answer(view(&edge, caller.tenant, name).await?)),
            Reply::Refused(Refusal::Version) => {}
            Reply::Refused(refusal) => {
                last = refusal;
                break;
            }
            other => unreachable!("an Update is answered with {other:?}"),
        }
    }
    Err(refused(&name, last))
}

async fn end(
    edge: &Edge,
    caller: &Caller,
    name: &str,
    end: Command,
) -> Result<StatusCode, Problem> {
    check_name(name)?;
    match service::submit(edge, caller.tenant, name, None, &end).await? {
        Reply::Refused(refusal) => Err(refused(name, refusal)),
        _done => Ok(StatusCode::NO_CONTENT),
    }
}

pub(super) async fn delete(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    end(&edge, &caller, &name, Command::Delete { queue: name.clone() }).await
}

pub(super) async fn purge(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    end(&edge, &caller, &name, Command::Purge { queue: name.clone() }).await
}
