//! Appending.

use axum::Json as Answer;
use axum::extract::{FromRequest, Request, State};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use streams::NewRecord;
use utoipa::ToSchema;

use super::{find, refused};
use crate::app::{Ctx, EdgeState};
use crate::aside::by_bytes;
use crate::auth::Caller;
use crate::extract::{
    BATCH_MAX, Idempotency, Path, Unread, check_depth, deserialize_batch, read_batch, read_json,
};
use crate::problem::{Problem, ProblemKind};
use crate::route::{Routes, doc};
use crate::streams::append::{Missed, Placed, append};
use crate::time::{Rfc3339, rfc3339};

/// Bytes of a request.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of a record's key.
const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a record's value, as it is spelt.
const VALUE_BYTES_MAX: usize = 256 << 10;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table.post(
        "/v1/streams/{stream}/records",
        "streams.append",
        append_records,
        doc("Append records")
            .text(
                "Records of one key go to one partition, in this order; those without a key are \
                spread. What goes to one partition is appended as a whole or not at all, and each \
                record is answered for. When nothing at all was appended for a reason that is not \
                in the request, that is the answer.",
            )
            .scope("produce")
            .idempotent()
            .body_bytes_max(BODY_BYTES_MAX)
            .body::<NewRecords>()
            .example(r#"{"records": [{"key": "user-17", "value": {"clicked": "buy"}}]}"#)
            .gives::<AppendResults>(200, "What came of each; what has an offset stays")
            .problems(&[ProblemKind::NotFound, ProblemKind::QuotaExceeded]),
    )
}

/// JSON as it is spelt, read out of a request without a copy in between.
fn spelt<'de, D: Deserializer<'de>>(json: D) -> Result<Bytes, D::Error> {
    <&RawValue>::deserialize(json).map(|raw| Bytes::copy_from_slice(raw.get().as_bytes()))
}

/// A record to be appended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RecordAsk {
    /// What it is about, 1 to 1024 bytes: records of a key are in one partition, in order.
    key: Option<String>,
    /// Any JSON, up to 256 KiB, nested 100 levels deep at most. It comes back as it is spelt here.
    #[serde(deserialize_with = "spelt")]
    #[schema(value_type = Object)]
    value: Bytes,
}

/// Records to be appended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRecords {
    /// 1 to 1000, each taken or refused by itself.
    #[serde(deserialize_with = "deserialize_batch")]
    records: Vec<RecordAsk>,
}

/// The same, when something in it is wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LooseRecords {
    #[serde(deserialize_with = "deserialize_batch")]
    records: Vec<Box<RawValue>>,
}

/// A request with many records, each of which is good or bad by itself.
pub(super) struct Records {
    records: Vec<Result<NewRecord, Problem>>,
    /// As it came, for digests.
    raw: Bytes,
}

impl FromRequest<Ctx> for Records {
    type Rejection = Problem;

    async fn from_request(request: Request, ctx: &Ctx) -> Result<Records, Problem> {
        let raw = read_json(request, ctx).await?;
        let bytes = raw.len();
        let of_whole = |whole: NewRecords| whole.records;
        let of_loose = |loose: LooseRecords| loose.records;
        let checked = |record: Result<RecordAsk, Unread>| match record {
            Ok(record) => record.check(),
            Err(unread) => Err(unread.problem),
        };
        let read = move || {
            let records = read_batch(&raw, of_whole, of_loose)?.into_iter();
            Ok(Records { records: records.map(checked).collect(), raw })
        };
        by_bytes(bytes, read).await
    }
}

/// What is appended at once fits into a command.
const _: () = assert!(BATCH_MAX <= streams::APPEND_RECORDS_MAX);

impl RecordAsk {
    fn check(self) -> Result<NewRecord, Problem> {
        if self.key.as_ref().is_some_and(|key| !(1..=KEY_BYTES_MAX).contains(&key.len())) {
            let detail = format!("at key: it must have from 1 to {KEY_BYTES_MAX} bytes");
            return Err(ProblemKind::InvalidBody.because(detail));
        }
        if self.value.len() > VALUE_BYTES_MAX {
            let detail = format!("at value: it has more than {VALUE_BYTES_MAX} bytes");
            return Err(ProblemKind::PayloadTooLarge
                .because(detail)
                .with("limitBytes", VALUE_BYTES_MAX));
        }
        check_depth("value", &self.value)?;
        Ok(NewRecord { key: self.key.map(Bytes::from), value: self.value })
    }
}

/// What came of each record, in the order of the request.
#[derive(Serialize, ToSchema)]
pub(super) struct AppendResults {
    results: Vec<AppendResult>,
}

/// What came of a record: where it is, or why it is nowhere.
#[derive(Serialize, ToSchema)]
struct AppendResult {
    index: usize,
    #[serde(flatten)]
    #[schema(value_type = Option<RecordPlaced>)]
    placed: Option<RecordPlaced>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    error: Option<Problem>,
}

/// Where a record is.
#[derive(Serialize, ToSchema)]
struct RecordPlaced {
    partition: u16,
    offset: u64,
    #[schema(value_type = String, format = DateTime)]
    timestamp: Rfc3339,
}

impl From<Placed> for RecordPlaced {
    fn from(Placed { partition, offset, at_ms }: Placed) -> RecordPlaced {
        RecordPlaced { partition, offset, timestamp: rfc3339(at_ms) }
    }
}

/// Why the stream of this name did not take a record.
fn why(name: &str, missed: Missed) -> Problem {
    match missed {
        Missed::Refused(refusal) => refused(name, refusal),
        Missed::Unanswered(refusal) => refusal.into(),
    }
}

pub(super) async fn append_records(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Records,
) -> Result<Answer<AppendResults>, Problem> {
    let stream = find(&edge, &caller, &name).await?;
    let records = body.records;
    let mut results: Vec<Option<Result<Placed, Problem>>> = Vec::with_capacity(records.len());
    let mut good = Vec::with_capacity(records.len());
    for (index, record) in records.into_iter().enumerate() {
        match record {
            Ok(record) => {
                good.push((index, record));
                results.push(None);
            }
            Err(problem) => results.push(Some(Err(problem))),
        }
    }
    let key = idempotency.with_large(caller.tenant, &body.raw).await;
    let outcomes = append(&edge, &caller, &stream, key, good).await?;
    if outcomes.iter().all(|(_, outcome)| outcome.is_err())
        && let Some((_, Err(missed))) = outcomes.first()
    {
        return Err(why(&name, missed.clone()));
    }
    for (index, outcome) in outcomes {
        results[index] = Some(outcome.map_err(|missed| why(&name, missed)));
    }
    let result = |(index, result): (usize, Option<Result<Placed, Problem>>)| match result
        .expect("a good record has an outcome")
    {
        Ok(placed) => AppendResult { index, placed: Some(placed.into()), error: None },
        Err(error) => AppendResult { index, placed: None, error: Some(error) },
    };
    let results = results.into_iter().enumerate().map(result).collect();
    Ok(Answer(AppendResults { results }))
}
