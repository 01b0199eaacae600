//! Sending.

use axum::Json as Answer;
use axum::extract::{FromRequest, Request, State};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use queue::parcel::{Body, Parcel};
use queue::{BODY_BYTES_MAX, Definition, LARGE_BODY_BYTES_MAX, Mode, SendRefusal, Sent, Settings};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::batch::BatchResults;
use super::settings::SECONDS_MAX;
use super::{find, refused};
use crate::app::{Ctx, EdgeState};
use crate::aside::by_bytes;
use crate::auth::Caller;
use crate::extract::{
    FromTo, Idempotency, Json, Path, Unread, check_depth, deserialize_batch, parse, read_batch,
    read_json,
};
use crate::problem::{Problem, ProblemKind};
use crate::queues::large::{Outgoing, REQUEST_BYTES_MAX, TooLarge};
use crate::queues::message_id;
use crate::queues::parcel::{Attributes, dedup_in, dedup_of_body, dedup_of_key, deserialize_body};
use crate::queues::service::{self, NotSent};
use crate::route::{Routes, doc};
use crate::telemetry::trace;

/// Bytes of a request with many.
pub(super) const BATCH_BODY_BYTES_MAX: usize = 16 << 20;
/// Bytes of a group's name or a deduplication key.
const WORD_BYTES_MAX: usize = 256;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    table
        .post(
            "/v1/queues/{queue}/messages",
            "messages.send",
            one,
            doc("Send a message")
                .scope("produce")
                .idempotent()
                .body_bytes_max(REQUEST_BYTES_MAX)
                .body::<NewMessage>()
                .example(r#"{"body": {"to": "a@b.example"}, "delaySeconds": 5}"#)
                .gives::<MessageSent>(202, "It is in the queue, and stays")
                .problems(&[
                    ProblemKind::NotFound,
                    ProblemKind::PayloadTooLarge,
                    ProblemKind::QuotaExceeded,
                ]),
        )
        .post(
            "/v1/queues/{queue}/messages:batch",
            "messages.sendBatch",
            batch,
            doc("Send messages")
                .text("Each is taken or refused by itself, in this order.")
                .scope("produce")
                .idempotent()
                .body_bytes_max(BATCH_BODY_BYTES_MAX)
                .body::<NewMessages>()
                .example(r#"{"messages": [{"clientMessageId": "m1", "body": "hello"}]}"#)
                .gives::<BatchResults<MessageSent>>(200, "What came of each")
                .problems(&[ProblemKind::NotFound, ProblemKind::QuotaExceeded]),
        )
}

/// A message to be sent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewMessage {
    /// In a batch: comes back with the result.
    client_message_id: Option<String>,
    /// Any JSON, nested 100 levels deep at most. It comes back as it is spelt here.
    #[serde(deserialize_with = "deserialize_body")]
    #[schema(value_type = Object)]
    body: Body,
    /// Strings, numbers, booleans, or `{"type": "Binary", "value": base64}`.
    #[serde(default)]
    #[schema(value_type = Object)]
    attributes: Attributes,
    /// Hidden for so long; up to ten years.
    #[schema(value_type = Option<u64>, maximum = 315360000)]
    delay_seconds: Option<FromTo<u64, 0, SECONDS_MAX>>,
    /// The group in which order is kept. Needed by a FIFO queue, and by no other.
    message_group_id: Option<String>,
    /// A second message with this key within the queue's window is not sent again.
    deduplication_key: Option<String>,
    /// 0 to 9; higher goes first, but a minute of waiting counts as one priority.
    #[serde(default)]
    #[schema(value_type = u8, maximum = 9)]
    priority: FromTo<u8, 0, 9>,
}

/// Messages to be sent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMessages {
    /// 1 to 1000, in this order.
    #[serde(deserialize_with = "deserialize_batch")]
    messages: Vec<NewMessage>,
}

/// The same, when something in it is wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LooseMessages {
    #[serde(deserialize_with = "deserialize_batch")]
    messages: Vec<Box<RawValue>>,
}

/// What can be said of a message that cannot be read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    client_message_id: Option<String>,
}

/// A request with many messages, each of which is good or bad by itself.
pub(super) struct Batch {
    pub(super) messages: Vec<Result<NewMessage, Problem>>,
    /// What their sender calls each.
    pub(super) client_message_ids: Vec<Option<String>>,
    /// As it came, for digests.
    pub(super) raw: Bytes,
}

impl FromRequest<Ctx> for Batch {
    type Rejection = Problem;

    async fn from_request(request: Request, ctx: &Ctx) -> Result<Batch, Problem> {
        let raw = read_json(request, ctx).await?;
        let bytes = raw.len();
        let of_whole = |whole: NewMessages| whole.messages;
        let of_loose = |loose: LooseMessages| loose.messages;
        let read = move || {
            let messages = read_batch(&raw, of_whole, of_loose)?;
            let (client_message_ids, messages) = messages.into_iter().map(named).unzip();
            Ok(Batch { messages, client_message_ids, raw })
        };
        by_bytes(bytes, read).await
    }
}

/// What its sender calls a message, whatever is wrong with the rest of it.
fn named(message: Result<NewMessage, Unread>) -> (Option<String>, Result<NewMessage, Problem>) {
    match message {
        Ok(mut message) => (message.client_message_id.take(), Ok(message)),
        Err(Unread { element, problem }) => {
            let named: Named = parse(element.get().as_bytes()).unwrap_or_default();
            (named.client_message_id, Err(problem))
        }
    }
}

/// A message that is in the queue.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageSent {
    message_id: String,
    /// Its place in the order of the queue.
    sequence: u64,
    /// Present when it had been sent before, under the same deduplication key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

fn shown(sent: Sent) -> MessageSent {
    MessageSent {
        message_id: message_id(sent.id),
        sequence: sent.sequence,
        duplicate: sent.duplicate,
    }
}

fn not_taken(refusal: SendRefusal) -> Problem {
    let full = |bound: &'static str, why: &'static str| {
        ProblemKind::QuotaExceeded.because(why).with("quota", bound).retry_after_ms(1000)
    };
    let wrong = |what: &'static str| ProblemKind::InvalidBody.because(what);
    match refusal {
        SendRefusal::Messages => {
            full("maxMessages", "the queue holds as many messages as its maxMessages allows")
        }
        SendRefusal::Bytes => {
            full("maxBytes", "the queue holds as many bytes as its maxBytes allows")
        }
        SendRefusal::Age => full(
            "maxAgeSeconds",
            "the queue's oldest message has waited for longer than its maxAgeSeconds allows",
        ),
        SendRefusal::GroupMissing => wrong("at messageGroupId: a FIFO queue needs it"),
        SendRefusal::GroupUnexpected => wrong("at messageGroupId: only a FIFO queue has groups"),
        SendRefusal::TooLarge => ProblemKind::PayloadTooLarge.because("the message is too large"),
        SendRefusal::NotReserved => ProblemKind::Overloaded
            .because("the body came to the archive too late: try again")
            .retry_after_ms(1000),
    }
}

/// Why a message is not in its queue.
fn not_sent(name: &str, why: NotSent) -> Problem {
    match why {
        NotSent::NotTaken(refusal) => not_taken(refusal),
        NotSent::Refused(refusal) => refused(name, refusal),
        NotSent::Failed(problem) => problem,
    }
}

fn check_word(field: &str, word: Option<&str>) -> Result<(), Problem> {
    match word {
        Some(word) if !(1..=WORD_BYTES_MAX).contains(&word.len()) => {
            let detail = format!("at {field}: it must have from 1 to {WORD_BYTES_MAX} bytes");
            Err(ProblemKind::InvalidBody.because(detail))
        }
        _ => Ok(()),
    }
}

/// The parcel and the rest of a message, checked against its queue. Hashes the body, if that stands for its
/// deduplication key.
pub(super) fn packed(
    settings: &Settings,
    parcel: Parcel,
    too_large: SayTooLarge,
) -> Result<Outgoing, Problem> {
    let dedup = settings.dedup_by_body.then(|| dedup_of_body(&parcel.body));
    let mut packed = Outgoing::new(parcel, settings).map_err(|why| too_large(settings, &why))?;
    packed.message.dedup = dedup;
    Ok(packed)
}

/// How it is said that a message is too large, of whoever has these settings.
pub(super) type SayTooLarge = fn(&Settings, &TooLarge) -> Problem;

/// As [`SayTooLarge`], of a queue.
pub(super) fn too_large(settings: &Settings, why: &TooLarge) -> Problem {
    let (max, large) = (settings.max_body_bytes, LARGE_BODY_BYTES_MAX);
    let (max, detail) = match why {
        TooLarge::Attributes => {
            (BODY_BYTES_MAX, format!("at attributes: they have more than {BODY_BYTES_MAX} bytes"))
        }
        TooLarge::ForQueue(bytes) => {
            let max = settings.max_bytes.unwrap_or(u64::MAX);
            let detail = format!(
                "the message counts {bytes} bytes, which is more than the queue's maxBytes of {max}"
            );
            (max, detail)
        }
        TooLarge::Whole if settings.large_bodies || max < BODY_BYTES_MAX => {
            (max, format!("at body: it has more than {max} bytes, with its attributes"))
        }
        TooLarge::Whole => {
            let detail = format!(
                "at body: it has more than {max} bytes, with its attributes; a queue with \
                 `largeBodies` takes up to {large}"
            );
            (max, detail)
        }
    };
    ProblemKind::PayloadTooLarge.because(detail).with("limitBytes", max)
}

impl NewMessage {
    /// Refuses what only a message of a batch has.
    pub(super) fn check_alone(&self) -> Result<(), Problem> {
        if self.client_message_id.is_none() {
            return Ok(());
        }
        let detail = "at clientMessageId: it tells the messages of a batch apart, and no others";
        Err(ProblemKind::InvalidBody.because(detail))
    }

    fn packed(self, definition: &Definition, trace_id: Option<u128>) -> Result<Outgoing, Problem> {
        let packed = self.packed_for(&definition.settings, trace_id, too_large)?;
        match (definition.settings.mode, &packed.message.group) {
            (Mode::Fifo, None) => Err(not_taken(SendRefusal::GroupMissing)),
            (Mode::Standard, Some(_)) => Err(not_taken(SendRefusal::GroupUnexpected)),
            _ => Ok(packed),
        }
    }

    /// As [`NewMessage::packed`], for whoever takes messages with and without a group.
    pub(super) fn packed_for(
        self,
        settings: &Settings,
        trace_id: Option<u128>,
        too_large: SayTooLarge,
    ) -> Result<Outgoing, Problem> {
        check_word("messageGroupId", self.message_group_id.as_deref())?;
        check_word("deduplicationKey", self.deduplication_key.as_deref())?;
        if let Body::Json(json) = &self.body {
            check_depth("body", json.as_bytes())?;
        }
        let mut parcel = Parcel::new(self.body).traced(trace_id);
        parcel.attributes = self.attributes.0;
        let mut packed = packed(settings, parcel, too_large)?;
        let message = &mut packed.message;
        message.delay_ms = self.delay_seconds.map(|seconds| seconds.0 * 1000);
        message.priority = self.priority.0;
        message.group = self.message_group_id;
        if let Some(key) = &self.deduplication_key {
            message.dedup = Some(dedup_of_key(key));
        }
        let group = message.group.as_deref();
        message.dedup = message.dedup.map(|own| dedup_in(settings, group, own));
        Ok(packed)
    }
}

/// Those that can be sent, each with its place in the request.
pub(super) fn good_of(packed: &[Result<Outgoing, Problem>]) -> Vec<(usize, Outgoing)> {
    let good =
        |(place, packed): (usize, &Result<_, _>)| Some((place, packed.as_ref().ok().cloned()?));
    packed.iter().enumerate().filter_map(good).collect()
}

/// Sends one message, to a queue that may be sent so many in a second.
pub(super) async fn send_one(
    edge: &EdgeState,
    caller: &Caller,
    (name, per_second): (&str, Option<u32>),
    key: Option<kernel::IdempotencyKey>,
    message: Outgoing,
) -> Result<(StatusCode, Answer<MessageSent>), Problem> {
    let sent = service::send(edge, caller, (name, per_second), key, vec![(0, message)]).await;
    let sent = sent.and_then(|mut sent| sent.remove(0)).map_err(|why| not_sent(name, why))?;
    Ok((StatusCode::ACCEPTED, Answer(shown(sent))))
}

pub(super) async fn one(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    idempotency: Idempotency,
    body: Json<NewMessage>,
) -> Result<(StatusCode, Answer<MessageSent>), Problem> {
    let definition = find(&edge, &caller, &name).await?;
    body.value.check_alone()?;
    let (message, trace_id) = (body.value, trace::id_of(&headers));
    let per_second = definition.settings.max_publish_per_second;
    let pack = move || message.packed(&definition, trace_id);
    let message = by_bytes(body.raw.len(), pack).await?;
    let key = idempotency.with_large(caller.tenant, &body.raw).await;
    send_one(&edge, &caller, (&name, per_second), key, message).await
}

pub(super) async fn batch(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    idempotency: Idempotency,
    batch: Batch,
) -> Result<Answer<BatchResults<MessageSent>>, Problem> {
    let definition = find(&edge, &caller, &name).await?;
    let trace_id = trace::id_of(&headers);
    let messages = batch.messages;
    let per_second = definition.settings.max_publish_per_second;
    let pack = move || -> Vec<_> {
        messages.into_iter().map(|message| message?.packed(&definition, trace_id)).collect()
    };
    let packed = by_bytes(batch.raw.len(), pack).await;
    let good = good_of(&packed);
    let key = idempotency.with_large(caller.tenant, &batch.raw).await;
    let why = |why| not_sent(&name, why);
    let sent = service::send(&edge, &caller, (&name, per_second), key, good).await;
    let mut sent = sent.map_err(why)?.into_iter();
    let outcomes = packed.into_iter().map(|packed| {
        packed?;
        let sent = sent.next().expect("an answer for each that was sent");
        sent.map(shown).map_err(why)
    });
    Ok(Answer(BatchResults::new(outcomes, batch.client_message_ids)))
}
