//! What ends a lease, or makes it longer, one by one and in bulk.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use queue::{Ack, Command, Extend, Nack, Receipt, Release, Reply, Settled};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::settings::{SECONDS_MAX, VISIBILITY_SECONDS_MAX};
use super::{check_name, refused};
use crate::app::{Edge, EdgeState};
use crate::auth::Caller;
use crate::extract::{FromTo, Json, Path};
use crate::problem::{Problem, ProblemKind};
use crate::queues::{receipt, service};
use crate::route::{Routes, doc};

/// Handles in bulk.
const HANDLES_MAX: usize = 1000;
/// Handles in one command. It bounds the work of one apply, for which everybody else at the shard
/// waits: the row of each message is read, one after the other, and a parcel may have 512 KiB.
const HANDLES_AT_ONCE: usize = 64;
/// Bytes of a reason.
const REASON_BYTES_MAX: usize = 1024;

const RELEASED: &str = "For a consumer that ends with messages in hand: they do not count as received, \
    so that none of them is dead for it.";

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    of_many(of_one(table))
}

fn of_one(table: Routes) -> Routes {
    const HANDLE: &str = "A handle of an earlier receive, or of a lease that has ended, is a \
        `conflict`; one that this queue never gave is an `invalid-parameter`.";
    const NOT_HELD: &[ProblemKind] = &[ProblemKind::NotFound, ProblemKind::Conflict];
    table
        .post(
            "/v1/queues/{queue}/messages/{receiptHandle}:ack",
            "messages.ack",
            ack,
            doc("The work is done")
                .text(HANDLE)
                .scope("consume")
                .gives_nothing(204, "The message is gone")
                .problems(NOT_HELD),
        )
        .post(
            "/v1/queues/{queue}/messages/{receiptHandle}:nack",
            "messages.nack",
            nack,
            doc("The work is not done")
                .text(HANDLE)
                .scope("consume")
                .body::<NackAsk>()
                .example(r#"{"delaySeconds": 30, "reason": "third_party_timeout"}"#)
                .gives_nothing(204, "The message is tried again, or is dead")
                .problems(NOT_HELD),
        )
        .post(
            "/v1/queues/{queue}/messages/{receiptHandle}:change-visibility",
            "messages.extend",
            extend,
            doc("The work takes longer")
                .text("Counted from now; 0 gives the message back.")
                .scope("consume")
                .body::<ExtendAsk>()
                .example(r#"{"visibilityTimeoutSeconds": 120}"#)
                .gives_nothing(204, "The lease lasts so long")
                .problems(NOT_HELD),
        )
        .post(
            "/v1/queues/{queue}/messages/{receiptHandle}:release",
            "messages.release",
            release,
            doc("The work was not begun")
                .text(RELEASED)
                .scope("consume")
                .gives_nothing(204, "The next receive gets the message")
                .problems(NOT_HELD),
        )
}

fn of_many(table: Routes) -> Routes {
    const NOT_THERE: &[ProblemKind] = &[ProblemKind::NotFound];
    table
        .post(
            "/v1/queues/{queue}/messages:ack",
            "messages.ackBatch",
            ack_many,
            doc("The work on many is done")
                .scope("consume")
                .body::<Handles>()
                .gives::<SettledResults>(200, "What came of each")
                .problems(NOT_THERE),
        )
        .post(
            "/v1/queues/{queue}/messages:nack",
            "messages.nackBatch",
            nack_many,
            doc("The work on many is not done")
                .scope("consume")
                .body::<NackMany>()
                .gives::<SettledResults>(200, "What came of each")
                .problems(NOT_THERE),
        )
        .post(
            "/v1/queues/{queue}/messages:change-visibility",
            "messages.extendBatch",
            extend_many,
            doc("The work on many takes longer")
                .scope("consume")
                .body::<ExtendMany>()
                .gives::<SettledResults>(200, "What came of each")
                .problems(NOT_THERE),
        )
        .post(
            "/v1/queues/{queue}/messages:release",
            "messages.releaseBatch",
            release_many,
            doc("The work on many was not begun")
                .text(RELEASED)
                .scope("consume")
                .body::<Handles>()
                .gives::<SettledResults>(200, "What came of each")
                .problems(NOT_THERE),
        )
}

/// Of a message that is tried again.
type Delay = FromTo<u64, 0, SECONDS_MAX>;
/// Of a lease.
type Visibility = FromTo<u64, 0, VISIBILITY_SECONDS_MAX>;

/// Why and when again.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NackAsk {
    /// When it may be tried again; as the queue's `retryBackoff` says when not given.
    #[schema(value_type = Option<u64>)]
    delay_seconds: Option<Delay>,
    /// For whoever looks at it later; 1024 bytes at most.
    reason: Option<String>,
}

/// How much longer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExtendAsk {
    /// Counted from now, 0 to 43200.
    #[schema(value_type = u64)]
    visibility_timeout_seconds: Visibility,
}

/// Handles of messages.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Handles {
    /// 1 to 1000.
    receipt_handles: Vec<String>,
}

/// Handles of messages that are not done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NackMany {
    /// 1 to 1000.
    receipt_handles: Vec<String>,
    /// See `:nack` of one.
    #[schema(value_type = Option<u64>)]
    delay_seconds: Option<Delay>,
    /// See `:nack` of one.
    reason: Option<String>,
}

/// Handles of messages that take longer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExtendMany {
    /// 1 to 1000.
    receipt_handles: Vec<String>,
    /// Counted from now, 0 to 43200.
    #[schema(value_type = u64)]
    visibility_timeout_seconds: Visibility,
}

/// What came of each handle, in their order.
#[derive(Serialize, ToSchema)]
pub(super) struct SettledResults {
    results: Vec<SettledResult>,
}

/// What came of a handle: as asked, unless there is an error.
#[derive(Serialize, ToSchema)]
struct SettledResult {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    error: Option<Problem>,
}

fn outcome(settled: Settled) -> Result<(), Problem> {
    match settled {
        Settled::Done => Ok(()),
        Settled::Stale => Err(ProblemKind::Conflict
            .because("the lease has ended: the message was settled, or is somebody else's now")),
        Settled::Forged => Err(forged()),
    }
}

fn forged() -> Problem {
    ProblemKind::InvalidParameter.because("receiptHandle: this queue never gave it")
}

fn nack_of(
    queue: &str,
    delay_seconds: Option<Delay>,
    reason: Option<&str>,
) -> Result<impl Fn(Vec<Receipt>) -> Command, Problem> {
    if reason.is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        let detail = format!("at reason: it must have from 0 to {REASON_BYTES_MAX} bytes");
        return Err(ProblemKind::InvalidBody.because(detail));
    }
    let (queue, reason) = (queue.to_owned(), reason.map(str::to_owned));
    let delay_ms = delay_seconds.map(|seconds| seconds.0 * 1000);
    Ok(move |receipts| {
        let (queue, reason) = (queue.clone(), reason.clone());
        Command::Nack(Nack { queue, receipts, delay_ms, reason })
    })
}

fn extend_of(queue: &str, seconds: Visibility) -> impl Fn(Vec<Receipt>) -> Command {
    let queue = queue.to_owned();
    move |receipts| {
        let queue = queue.clone();
        Command::Extend(Extend { queue, receipts, visibility_ms: seconds.0 * 1000 })
    }
}

fn release_of(queue: &str) -> impl Fn(Vec<Receipt>) -> Command {
    let queue = queue.to_owned();
    move |receipts| Command::Release(Release { queue: queue.clone(), receipts, delay_ms: 0 })
}

fn ack_of(queue: &str) -> impl Fn(Vec<Receipt>) -> Command {
    let queue = queue.to_owned();
    move |receipts| Command::Ack(Ack { queue: queue.clone(), receipts })
}

async fn settle(
    edge: &Edge,
    caller: &Caller,
    name: &str,
    command: &Command,
) -> Result<Vec<Settled>, Problem> {
    match service::submit(edge, caller.tenant, name, None, command).await? {
        Reply::Settled(settled) => Ok(settled),
        Reply::Refused(refusal) => Err(refused(name, refusal)),
        other => unreachable!("a settling is answered with {other:?}"),
    }
}

async fn settle_one(
    edge: &Edge,
    caller: &Caller,
    name: &str,
    handle: &str,
    command: impl Fn(Vec<Receipt>) -> Command,
) -> Result<StatusCode, Problem> {
    check_name(name)?;
    let receipt = receipt(handle).ok_or_else(forged)?;
    let settled = settle(edge, caller, name, &command(vec![receipt])).await?;
    outcome(settled[0])?;
    Ok(StatusCode::NO_CONTENT)
}

/// Settles so many at once, a part after the other, with an outcome for each.
async fn in_parts<F: Future<Output = Result<Vec<Settled>, Problem>>>(
    receipts: &[Receipt],
    settle: impl Fn(Vec<Receipt>) -> F,
) -> Result<Vec<Result<(), Problem>>, Problem> {
    // Even with none at all: a queue that is not there is said to be so.
    let (first, rest) = receipts.split_at(receipts.len().min(HANDLES_AT_ONCE));
    let parts = std::iter::once(first).chain(rest.chunks(HANDLES_AT_ONCE));
    let one = |part| {
        let settled = settle(part);
        async { Ok(settled.await?.into_iter().map(outcome).collect()) }
    };
    service::part_by_part(parts.map(<[_]>::to_vec).collect(), receipts.len(), one).await
}

async fn settle_many(
    edge: &Edge,
    caller: &Caller,
    name: &str,
    handles: &[String],
    command: impl Fn(Vec<Receipt>) -> Command,
) -> Result<Answer<SettledResults>, Problem> {
    check_name(name)?;
    if !(1..=HANDLES_MAX).contains(&handles.len()) {
        let detail = format!("at receiptHandles: there must be from 1 to {HANDLES_MAX}");
        return Err(ProblemKind::InvalidBody.because(detail));
    }
    let receipts: Vec<_> = handles.iter().map(|handle| receipt(handle)).collect();
    let good: Vec<_> = receipts.iter().flatten().copied().collect();
    let settle = |part| {
        let command = command(part);
        async move { settle(edge, caller, name, &command).await }
    };
    let mut outcomes = in_parts(&good, settle).await?.into_iter();
    let results = receipts.into_iter().enumerate().map(|(index, receipt)| {
        let outcome = match receipt {
            Some(_) => outcomes.next().expect("one for each"),
            None => Err(forged()),
        };
        SettledResult { index, error: outcome.err() }
    });
    Ok(Answer(SettledResults { results: results.collect() }))
}

pub(super) async fn ack(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, handle)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    settle_one(&edge, &caller, &name, &handle, ack_of(&name)).await
}

pub(super) async fn nack(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, handle)): Path<(String, String)>,
    body: Option<Json<NackAsk>>,
) -> Result<StatusCode, Problem> {
    let ask = body.map(|body| body.value).unwrap_or_default();
    let command = nack_of(&name, ask.delay_seconds, ask.reason.as_deref())?;
    settle_one(&edge, &caller, &name, &handle, command).await
}

pub(super) async fn extend(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, handle)): Path<(String, String)>,
    body: Json<ExtendAsk>,
) -> Result<StatusCode, Problem> {
    let command = extend_of(&name, body.value.visibility_timeout_seconds);
    settle_one(&edge, &caller, &name, &handle, command).await
}

pub(super) async fn release(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((name, handle)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    settle_one(&edge, &caller, &name, &handle, release_of(&name)).await
}

pub(super) async fn release_many(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Json<Handles>,
) -> Result<Answer<SettledResults>, Problem> {
    settle_many(&edge, &caller, &name, &body.value.receipt_handles, release_of(&name)).await
}

pub(super) async fn ack_many(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Json<Handles>,
) -> Result<Answer<SettledResults>, Problem> {
    settle_many(&edge, &caller, &name, &body.value.receipt_handles, ack_of(&name)).await
}

pub(super) async fn nack_many(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Json<NackMany>,
) -> Result<Answer<SettledResults>, Problem> {
    let ask = &body.value;
    let command = nack_of(&name, ask.delay_seconds, ask.reason.as_deref())?;
    settle_many(&edge, &caller, &name, &ask.receipt_handles, command).await
}

pub(super) async fn extend_many(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    body: Json<ExtendMany>,
) -> Result<Answer<SettledResults>, Problem> {
    let command = extend_of(&name, body.value.visibility_timeout_seconds);
    settle_many(&edge, &caller, &name, &body.value.receipt_handles, command).await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn after_a_part_that_fails_no_other_is_tried() {
        let receipt = Receipt::from_bytes(&[0; 36]).expect("it has the form of one");
        let (asked, busy) = (Cell::new(0), ProblemKind::Overloaded.because("busy"));
        let settle = |part: Vec<Receipt>| {
            asked.set(asked.get() + 1);
            let settled = vec![Settled::Done; part.len()];
            ready(if asked.get() == 2 { Err(busy.clone()) } else { Ok(settled) })
        };
        let outcomes = in_parts(&[receipt; 4 * HANDLES_AT_ONCE], settle).await;
        let outcomes = outcomes.expect("the first were settled");
        assert_eq!((asked.get(), outcomes.len()), (2, 4 * HANDLES_AT_ONCE));
        let (settled, others) = outcomes.split_at(HANDLES_AT_ONCE);
        assert!(settled.iter().all(Result::is_ok));
        assert!(others.iter().all(|outcome| *outcome == Err(busy.clone())));
    }
}
