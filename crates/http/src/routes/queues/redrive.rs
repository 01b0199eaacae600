//! Redrive: moving messages from a dead-letter queue back to where they died, as a job.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use queue::{Command, Definition, Job, JobState, Mode, Refusal, Reply, StartRedrive};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{check_name_at, find, no_queue, refused};
use crate::app::{Edge, EdgeState};
use crate::auth::Caller;
use crate::extract::{
    Cursor, FromTo, Idempotency, Json, Limit, Page, Path, Query, not_of_this_list,
};
use crate::problem::{Problem, ProblemKind, within};
use crate::queues::{filter, redrive, redrive_id, service};
use crate::route::{Routes, doc};
use crate::time::rfc3339;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .post(
            "/v1/queues/{queue}:redrive",
            "redrives.start",
            start,
            doc("Move messages to another queue")
                .text(
                    "As a job that survives a restart; one at a time for a queue. What comes after \
                     it began is left alone, and so is what somebody works on.",
                )
                .idempotent()
                .body::<RedriveAsk>()
                .example(r#"{"maxMessagesPerSecond": 100, "filter": {"kind": ["mail"]}}"#)
                .gives::<RedriveStarted>(202, "It has begun")
                .problems(&[
                    ProblemKind::NotFound,
                    ProblemKind::Conflict,
                    ProblemKind::Unprocessable,
                ]),
        )
        .get(
            "/v1/redrives",
            "redrives.list",
            list,
            doc("List the redrives of a queue")
                .scope("read")
                .query::<ListQuery>()
                .example("queue=email-send")
                .gives::<Page<RedriveView>>(200, "The latest first; a queue remembers its last ten")
                .problems(&[ProblemKind::NotFound]),
        )
        .get(
            "/v1/redrives/{redriveId}",
            "redrives.get",
            get,
            doc("How far a redrive is")
                .scope("read")
                .gives::<RedriveView>(200, "A queue remembers its last ten")
                .problems(&[ProblemKind::NotFound]),
        )
        .delete(
            "/v1/redrives/{redriveId}",
            "redrives.cancel",
            cancel,
            doc("Move no more")
                .gives_nothing(204, "It is at its end; what was moved stays moved")
                .problems(&[ProblemKind::NotFound]),
        )
}

/// What to move.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RedriveAsk {
    /// When not given, each dead letter goes back to the queue it died in.
    target_queue: Option<String>,
    /// 1 to 100000; as fast as can be when not given.
    #[schema(value_type = Option<u32>)]
    max_messages_per_second: Option<FromTo<u32, 1, 100_000>>,
    /// For each attribute a list of things, one of which must hold: a text, a number, a boolean,
    /// `{prefix}`, `{numeric: [">=", 1, "<", 5]}`, `{exists}`. A dead letter has `$originalQueue`,
    /// `$lastReason` and `$receiveCount` as well. The text "5" is not the number 5.
    #[schema(value_type = Option<Object>)]
    filter: Option<Value>,
    /// At most so many.
    limit: Option<u64>,
    /// Only count them.
    #[serde(default)]
    dry_run: bool,
}

/// A redrive that has begun.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RedriveStarted {
    redrive_id: String,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The queue that messages are moved out of.
    queue: String,
    #[serde(default)]
    limit: Limit,
    cursor: Option<Cursor>,
}

/// A redrive.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RedriveView {
    redrive_id: String,
    queue: String,
    target_queue: Option<String>,
    /// `running`, `done`, `cancelled` or `failed`.
    state: &'static str,
    /// Of one that failed: there is no queue where messages were to go, or it keeps order and this one
    /// does not, or the other way round. Those that were on their way are back in this queue. Without a
    /// `targetQueue` it has moved what died in other queues first.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<&'static str>,
    /// Messages that passed the filter and have somewhere to go.
    matched: u64,
    /// Of these, messages that are where they were to go; none in a `dryRun`. It is `done` when all of
    /// them are.
    moved: u64,
    /// Messages that were looked at and left: they did not pass the filter, or have nowhere to go.
    /// Without a `targetQueue` that is so of what did not die in another queue, and of what died in one
    /// that could not take others of this job.
    skipped: u64,
    /// Messages that could be received when it began; it does not change. What is too old, received
    /// before its turn, or left alone for the order of its group is neither matched nor skipped.
    waiting: u64,
    dry_run: bool,
    started_at: String,
    ended_at: Option<String>,
}

impl RedriveAsk {
    fn check(self, queue: &str) -> Result<StartRedrive, Problem> {
        let wrong = |detail: String| Err(ProblemKind::InvalidBody.because(detail));
        if let Some(target) = &self.target_queue {
            check_name_at("targetQueue", target)?;
        }
        within("limit", self.limit.unwrap_or(1), 1, u64::MAX)?;
        let filter = match self.filter.as_ref().map(filter::from_json) {
            Some(Err(why)) => return wrong(format!("at filter: {why}")),
            Some(Ok(filter)) => Some(filter),
            None => None,
        };
        Ok(StartRedrive {
            queue: queue.to_owned(),
            target: self.target_queue,
            per_second: self.max_messages_per_second.map(|rate| rate.0),
            limit: self.limit,
            filter,
            dry_run: self.dry_run,
        })
    }
}

async fn start(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Option<Json<RedriveAsk>>,
) -> Result<(StatusCode, Answer<RedriveStarted>), Problem> {
    let definition = find(&edge, &caller, &name).await?;
    let (ask, raw) = body.map_or_else(Default::default, |body| (body.value, body.raw));
    let start = ask.check(&name)?;
    if let Some(target) = &start.target {
        let Some(known) = service::find(&edge, caller.tenant, target).await? else {
            let detail = format!("at targetQueue: there is no queue `{target}`");
            return Err(ProblemKind::NotFound.because(detail));
        };
        if known.settings.mode != definition.settings.mode {
            let (from, to) = match definition.settings.mode {
                Mode::Fifo => ("FIFO", "standard"),
                Mode::Standard => ("standard", "FIFO"),
            };
            let detail = format!(
                "at targetQueue: `{name}` is a {from} queue and `{target}` a {to} queue: messages move \
                 between queues of one mode"
            );
            return Err(ProblemKind::Unprocessable.because(detail));
        }
    }
    let key = idempotency.with(caller.tenant, &raw);
    let command = Command::StartRedrive(start);
    match service::submit(&edge, caller.tenant, &name, key, &command).await? {
        Reply::Redriving { job } => {
            let redrive_id = redrive_id(&name, job);
            Ok((StatusCode::ACCEPTED, Answer(RedriveStarted { redrive_id })))
        }
        Reply::Refused(Refusal::Redriving) => {
            let jobs = jobs_of(&edge, &caller, &name, &definition).await?;
            Err(already(&name, &jobs))
        }
        Reply::Refused(refusal) => Err(refused(&name, refusal)),
        other => unreachable!("a StartRedrive is answered with {other:?}"),
    }
}

/// The queue has a job already. Named, so that whoever did not begin it can watch and end it; it
/// may have ended since.
fn already(name: &str, jobs: &[Job]) -> Problem {
    let problem = refused(name, Refusal::Redriving);
    let running = jobs.iter().find(|job| job.state == JobState::Running);
    let Some(id) = running.map(|job| redrive_id(name, job.number)) else { return problem };
    let detail = format!("messages of this queue are being moved already, by the redrive `{id}`");
    ProblemKind::Conflict.because(detail).with("redriveId", id)
}

/// The jobs that a queue remembers, the latest first.
async fn jobs_of(
    edge: &Edge,
    caller: &Caller,
    name: &str,
    definition: &Definition,
) -> Result<Vec<Job>, Problem> {
    let (tenant, number) = (caller.tenant, definition.number);
    let rows = edge.node.rows(queue::place(tenant, name));
    let mut jobs = edge.node.read(move || queue::jobs(&rows, tenant, number)).await?;
    jobs.reverse();
    Ok(jobs)
}

fn no_redrive(id: &str) -> Problem {
    ProblemKind::NotFound.because(format!("there is no redrive `{id}`"))
}

fn shown(id: String, job: Job) -> RedriveView {
    RedriveView {
        redrive_id: id,
        queue: job.asked.queue,
        target_queue: job.asked.target,
        state: match job.state {
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Cancelled => "cancelled",
            JobState::NoQueue | JobState::OtherMode => "failed",
        },
        failure_reason: match job.state {
            JobState::Running | JobState::Done | JobState::Cancelled => None,
            JobState::NoQueue => Some("queue-not-found"),
            JobState::OtherMode => Some("other-mode"),
        },
        matched: job.matched,
        moved: job.arrived,
        skipped: job.skipped,
        waiting: job.waiting,
        dry_run: job.asked.dry_run,
        started_at: rfc3339(job.started_ms).to_string(),
        ended_at: job.ended_ms.map(|ms| rfc3339(ms).to_string()),
    }
}

/// The job of an id; `None` when there is none.
async fn job_of(edge: &Edge, caller: &Caller, id: &str) -> Result<Option<Job>, Problem> {
    let Some((name, number)) = redrive(id) else { return Ok(None) };
    let Some(definition) = service::find(edge, caller.tenant, name).await? else {
        return Ok(None);
    };
    let tenant = caller.tenant;
    let rows = edge.node.rows(queue::place(tenant, name));
    let read = move || queue::job(&rows, tenant, definition.number, number);
    Ok(edge.node.read(read).await?)
}

async fn list(
    State(edge): State<EdgeState>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Answer<Page<RedriveView>>, Problem> {
    let ListQuery { queue: name, limit, cursor } = query;
    // The job that the page before ended with: those that come later have greater numbers.
    let before = match cursor.map(|Cursor(bytes)| bytes.try_into()) {
        None => u64::MAX,
        Some(Ok(number)) => u64::from_be_bytes(number),
        Some(Err(_)) => return Err(not_of_this_list()),
    };
    let definition = find(&edge, &caller, &name).await?;
    let jobs = jobs_of(&edge, &caller, &name, &definition).await?;
    let mut rest = jobs.into_iter().filter(|job| job.number < before);
    let page: Vec<Job> = rest.by_ref().take(limit.get()).collect();
    let last = page.last().map(|job| Cursor(job.number.to_be_bytes().to_vec()));
    let next_cursor = rest.next().and(last);
    let items = page.into_iter().map(|job| shown(redrive_id(&name, job.number), job)).collect();
    Ok(Answer(Page { items, next_cursor }))
}

async fn get(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Answer<RedriveView>, Problem> {
    let job = job_of(&edge, &caller, &id).await?.ok_or_else(|| no_redrive(&id))?;
    Ok(Answer(shown(id, job)))
}

async fn cancel(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (name, job) = redrive(&id).ok_or_else(|| no_redrive(&id))?;
    let command = Command::CancelRedrive { queue: name.to_owned(), job };
    match service::submit(&edge, caller.tenant, name, None, &command).await? {
        Reply::RedriveEnded => Ok(StatusCode::NO_CONTENT),
        Reply::Refused(Refusal::NoJob) => Err(no_redrive(&id)),
        Reply::Refused(Refusal::NoQueue) => Err(no_queue(name)),
        other => unreachable!("a CancelRedrive is answered with {other:?}"),
    }
}
