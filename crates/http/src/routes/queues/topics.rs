//! Topics: what is published goes to every subscription, and a subscription is a queue.

use axum::Json as Answer;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use kernel::IdempotencyKey;
use queue::{
    Command, FAN_OUT_BYTES_MAX, FAN_OUT_LETTERS_MAX, Publish, Published, Refusal, Reply,
    SUBSCRIPTIONS_MAX, Settings, Subscribe, Topic,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::batch::BatchResults;
use super::define::NewQueue;
use super::send::{BATCH_BODY_BYTES_MAX, Batch, NewMessage, NewMessages, good_of};
use super::{check_name_of, refused};
use crate::app::{Edge, EdgeState};
use crate::auth::Caller;
use crate::extract::{
    Cursor, Fields, Idempotency, Json, Page, PageQuery, Path, Query, page_by_name,
};
use crate::problem::{Problem, ProblemKind};
use crate::queues::admission::admit;
use crate::queues::large::{Outgoing, TooLarge};
use crate::queues::service::{self, SEND_BYTES_MAX, content_of, part_of, parts};
use crate::queues::{filter, message_id};
use crate::route::{Routes, doc};
use crate::telemetry::trace;
use crate::time::rfc3339;

/// Its part of the table.
pub(super) fn routes(table: Routes) -> Routes {
    const NOT_THERE: &[ProblemKind] = &[ProblemKind::NotFound];
    table
        .post("/v1/topics", "topics.create", create,
            doc("Create a topic").text("It keeps nothing itself. 200 when it was there.")
                .idempotent().body::<NewTopic>().example(r#"{"name": "orders"}"#)
                .gives::<TopicMade>(201, "Created").gives::<TopicMade>(200, "It was there")
                .problems(&[ProblemKind::QuotaExceeded]))
        .get("/v1/topics", "topics.list", list,
            doc("List topics").scope("read").query::<PageQuery>()
                .gives::<Page<TopicView>>(200, "By name"))
        .get("/v1/topics/{topic}", "topics.get", get,
            doc("Look at a topic and its subscriptions").scope("read")
                .gives::<TopicView>(200, "The topic").problems(NOT_THERE))
        .delete("/v1/topics/{topic}", "topics.delete", delete,
            doc("Delete a topic").text("The queues of its subscriptions stay, with what is in them.")
                .gives_nothing(204, "Gone").problems(NOT_THERE))
        .post("/v1/topics/{topic}/subscriptions", "topics.subscribe", subscribe,
            doc("Subscribe")
                .text("Makes a queue of this name, with these settings, that gets what is published \
                    from now on and passes the filter. Again with another filter changes it, and without one takes it away. A queue that is \
                    there stays as it is: without settings any will do, with other settings it is 409.")
                .idempotent().body::<NewSubscription>()
                .example(r#"{"name": "mailer", "filter": {"kind": [{"prefix": "mail."}]}, "maxReceiveCount": 5, "deadLetterQueue": "mailer-dead"}"#)
                .gives::<SubscriptionMade>(201, "It gets what is published")
                .gives::<SubscriptionMade>(200, "It was there, and has this filter now")
                .problems(&[ProblemKind::NotFound, ProblemKind::Conflict, ProblemKind::QuotaExceeded,
                    ProblemKind::Unprocessable]))
        .get("/v1/topics/{topic}/subscriptions", "topics.subscriptions", subscriptions,
            doc("List the subscriptions of a topic").scope("read").query::<PageQuery>()
                .gives::<Page<SubscriptionView>>(200, "By name").problems(NOT_THERE))
        .delete("/v1/topics/{topic}/subscriptions/{name}", "topics.unsubscribe", unsubscribe,
            doc("Unsubscribe").text("The queue stays, with what is in it.")
                .gives_nothing(204, "It gets no more").problems(NOT_THERE))
        .post("/v1/topics/{topic}/messages", "topics.publish", publish,
            doc("Publish a message").scope("produce").idempotent().body::<NewMessage>()
                .example(r#"{"body": {"order": 17}, "attributes": {"kind": "mail.receipt"}}"#)
                .gives::<MessagePublished>(202, "It is on its way to every subscription that wants it")
                .problems(&[ProblemKind::NotFound, ProblemKind::PayloadTooLarge, ProblemKind::QuotaExceeded]))
        .post("/v1/topics/{topic}/messages:batch", "topics.publishBatch", publish_batch,
            doc("Publish messages").scope("produce").idempotent().body_bytes_max(BATCH_BODY_BYTES_MAX).body::<NewMessages>()
                .example(r#"{"messages": [{"clientMessageId": "m1", "body": "hello"}]}"#)
                .gives::<BatchResults<MessagePublished>>(200, "What came of each, in order")
                .problems(&[ProblemKind::NotFound, ProblemKind::PayloadTooLarge, ProblemKind::QuotaExceeded]))
}

/// A topic to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTopic {
    /// 1 to 80 of `A-Z a-z 0-9 . - _`
    name: String,
}

/// A topic that is there now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TopicMade {
    topic_id: String,
    name: String,
}

/// A topic.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct TopicView {
    topic_id: String,
    name: String,
    created_at: String,
    /// The queues that get what is published.
    subscriptions: Vec<SubscriptionView>,
}

/// A subscription.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SubscriptionView {
    /// Of its queue.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    filter: Option<Value>,
}

/// A subscription to be made: a queue's name and settings, and a filter.
#[derive(Deserialize, ToSchema)]
#[serde(try_from = "Fields")]
struct NewSubscription {
    /// Which messages; all when not given, also of a subscription that had a filter. See redrives,
    /// without what only dead letters have.
    #[schema(value_type = Option<Object>)]
    filter: Option<Value>,
    #[serde(flatten)]
    queue: NewQueue,
}

/// A reader of flattened fields does not know which there are.
impl TryFrom<Fields> for NewSubscription {
    type Error = String;

    fn try_from(Fields(mut fields): Fields) -> Result<NewSubscription, String> {
        let filter = fields.remove("filter").filter(|filter| !filter.is_null());
        let queue = NewQueue::with_fields(fields, &["name", "filter", "mode"])?;
        Ok(NewSubscription { filter, queue })
    }
}

/// A subscription that is there now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SubscriptionMade {
    name: String,
    queue_id: String,
}

/// A message that was published.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MessagePublished {
    /// The same in every subscription.
    message_id: String,
    /// Its place in the topic's order.
    sequence: u64,
    /// Subscriptions that it goes to.
    subscriptions: u32,
}

impl From<Published> for MessagePublished {
    fn from(published: Published) -> MessagePublished {
        MessagePublished {
            message_id: message_id(published.id),
            sequence: published.sequence,
            subscriptions: published.subscriptions,
        }
    }
}

async fn submit(
    edge: &Edge,
    caller: &Caller,
    topic: &str,
    idempotency: Option<IdempotencyKey>,
    command: &Command,
) -> Result<Reply, Problem> {
    submit_heavy(edge, caller, topic, idempotency, command, 0).await
}

/// Does a command that makes about so many bytes of rows.
async fn submit_heavy(
    edge: &Edge,
    caller: &Caller,
    topic: &str,
    idempotency: Option<IdempotencyKey>,
    command: &Command,
    weight: usize,
) -> Result<Reply, Problem> {
    check_name_of("topic", topic)?;
    let place = queue::topic_place(caller.tenant, topic);
    match service::submit_at(edge, place, caller.tenant, idempotency, command, weight).await? {
        Reply::Refused(refusal) => Err(refused(topic, refusal)),
        reply => Ok(reply),
    }
}

/// A number is a topic's own in its shard only.
fn topic_id(shard: u16, number: u64) -> String {
    format!("t_{shard:x}_{number:x}")
}

/// The shard in which a topic is.
fn shard_of(edge: &Edge, caller: &Caller, topic: &str) -> u16 {
    edge.node.shard_number(queue::topic_place(caller.tenant, topic))
}

fn subscription((name, filter): (String, Option<queue::filter::Filter>)) -> SubscriptionView {
    SubscriptionView { name, filter: filter.as_ref().map(filter::to_json) }
}

fn shown(shard: u16, name: String, topic: Topic) -> TopicView {
    let subscriptions = topic.subscriptions.into_iter().map(subscription);
    TopicView {
        topic_id: topic_id(shard, topic.number),
        name,
        created_at: rfc3339(topic.created_ms).to_string(),
        subscriptions: subscriptions.collect(),
    }
}

async fn find(edge: &Edge, caller: &Caller, name: &str) -> Result<Topic, Problem> {
    check_name_of("topic", name)?;
    let row = queue::topic_row(caller.tenant, name);
    let place = queue::topic_place(caller.tenant, name);
    let view = edge.node.view_or_row(place, row).await?;
    view.map(|view| queue::topic(&view.value)).ok_or_else(|| refused(name, queue::Refusal::NoTopic))
}

async fn create(
    State(edge): State<EdgeState>,
    caller: Caller,
    idempotency: Idempotency,
    body: Json<NewTopic>,
) -> Result<(StatusCode, Answer<TopicMade>), Problem> {
    let name = &body.value.name;
    check_name_of("topic", name)?;
    let key = idempotency.with(caller.tenant, &body.raw);
    if let Err(full) = caller.check_room(true) {
        let place = queue::topic_place(caller.tenant, name);
        let answered = edge.node.is_answered(place, key).await?;
        if !answered && find(&edge, &caller, name).await.is_err() {
            return Err(full);
        }
    }
    let command = Command::CreateTopic { topic: name.clone() };
    let Reply::Created { number, new } = submit(&edge, &caller, name, key, &command).await? else {
        unreachable!("a CreateTopic is answered with Created");
    };
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    let topic_id = topic_id(shard_of(&edge, &caller, name), number);
    Ok((status, Answer(TopicMade { topic_id, name: name.clone() })))
}

async fn list(
    State(edge): State<EdgeState>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<Answer<Page<TopicView>>, Problem> {
    let after = Cursor::name_before(query.cursor)?;
    let (tenant, limit, shards) = (caller.tenant, query.limit.get(), edge.node.all_rows());
    let read = move || {
        page_by_name(&shards, limit, |rows, limit| queue::topic_names(rows, tenant, &after, limit))
    };
    let (found, next_cursor) = edge.node.read(read).await?;
    let mut items = Vec::with_capacity(found.len());
    for (name, _) in found {
        // Deleted meanwhile, perhaps.
        if let Ok(topic) = find(&edge, &caller, &name).await {
            items.push(shown(shard_of(&edge, &caller, &name), name, topic));
        }
    }
    Ok(Answer(Page { items, next_cursor }))
}

async fn get(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Answer<TopicView>, Problem> {
    let topic = find(&edge, &caller, &name).await?;
    Ok(Answer(shown(shard_of(&edge, &caller, &name), name, topic)))
}

async fn delete(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let command = Command::DeleteTopic { topic: name.clone() };
    submit(&edge, &caller, &name, None, &command).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn subscribe(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(topic): Path<String>,
    idempotency: Idempotency,
    body: Json<NewSubscription>,
) -> Result<(StatusCode, Answer<SubscriptionMade>), Problem> {
    let NewSubscription { filter, queue } = &body.value;
    let known = find(&edge, &caller, &topic).await?.subscriptions;
    let filter = match filter.as_ref().map(filter::of_topic) {
        Some(Err(why)) => return Err(ProblemKind::InvalidBody.because(format!("at filter: {why}"))),
        Some(Ok(filter)) => Some(filter),
        None => None,
    };
    check_name_of("subscription", queue.name())?;
    let name = queue.name().to_owned();
    let subscribe = Subscribe { topic: topic.clone(), queue: name.clone(), filter };
    let command = Command::Subscribe(subscribe);
    let key = idempotency.with(caller.tenant, &body.raw);
    if edge.node.is_answered(queue::topic_place(caller.tenant, &topic), key).await? {
        // A key that was used for something else makes no queue.
        submit(&edge, &caller, &topic, key, &command).await?;
    } else if known.len() >= SUBSCRIPTIONS_MAX && !known.contains_key(&name) {
        // Or a queue would be made for nothing.
        return Err(refused(&topic, Refusal::Subscriptions));
    }
    // The queue first: what is published meanwhile is not for it yet.
    let of_queue = key.map(|key| part_of(key, 1));
    let queue_id = queue.found_or_made(&edge, &caller, of_queue).await?;
    let Reply::Subscribed { new } = submit(&edge, &caller, &topic, key, &command).await? else {
        unreachable!("a Subscribe is answered with Subscribed");
    };
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Answer(SubscriptionMade { name, queue_id })))
}

async fn subscriptions(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Answer<Page<SubscriptionView>>, Problem> {
    let (after, limit) = (Cursor::name_before(query.cursor)?, query.limit.get());
    let mut names = find(&edge, &caller, &name).await?.subscriptions;
    // The empty name is none, so the first page begins with the first.
    let mut rest = names.split_off(&after).into_iter().filter(|(name, _)| *name != after);
    let items: Vec<_> = rest.by_ref().take(limit).map(subscription).collect();
    let last = items.last().map(|item| Cursor(item.name.clone().into_bytes()));
    let next_cursor = rest.next().and(last);
    Ok(Answer(Page { items, next_cursor }))
}

async fn unsubscribe(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path((topic, name)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let command = Command::Unsubscribe { topic: topic.clone(), queue: name };
    submit(&edge, &caller, &topic, None, &command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// There is no setting that would have a topic take more.
fn too_large(settings: &Settings, why: &TooLarge) -> Problem {
    let max = settings.max_body_bytes;
    let detail = match why {
        TooLarge::Attributes => format!("at attributes: they have more than {max} bytes"),
        // A topic has no such bound.
        TooLarge::Whole | TooLarge::ForQueue(_) => {
            format!(
                "at body: with its attributes it has more than the {max} bytes that topics take"
            )
        }
    };
    ProblemKind::PayloadTooLarge.because(detail).with("limitBytes", max)
}

/// What a letter makes of rows besides its parcel, about.
const LETTER_BYTES: usize = 512;

/// Publishes, with an outcome for each. The bounds of a body are those that a queue usually has.
async fn publish_all(
    edge: &Edge,
    caller: &Caller,
    topic: &str,
    key: Option<IdempotencyKey>,
    messages: Vec<Result<NewMessage, Problem>>,
    trace_id: Option<u128>,
) -> Result<Vec<Result<MessagePublished, Problem>>, Problem> {
    let subscriptions = find(edge, caller, topic).await?.subscriptions.len().max(1);
    let usual = Settings::usual(queue::Mode::Standard);
    let pack =
        |message: Result<NewMessage, Problem>| message?.packed_for(&usual, trace_id, too_large);
    let packed: Vec<_> = messages.into_iter().map(pack).collect();
    let good = good_of(&packed);
    let place = queue::topic_place(caller.tenant, topic);
    let admitted = admit(edge, caller, place, None, key, good.len()).await?;
    let published = publish_in_parts(edge, caller, (topic, subscriptions), key, good).await;
    admitted.settle(&published, |_| false);
    let mut published = published?.into_iter();
    let outcome = |packed: Result<Outgoing, Problem>| {
        packed?;
        published.next().expect("an answer for each that was published").map(MessagePublished::from)
    };
    Ok(packed.into_iter().map(outcome).collect())
}

/// Publishes messages, each with its place in the request, to a topic of so many subscriptions, in as many
/// commands as it takes.
async fn publish_in_parts(
    edge: &Edge,
    caller: &Caller,
    (topic, subscriptions): (&str, usize),
    key: Option<IdempotencyKey>,
    messages: Vec<(usize, Outgoing)>,
) -> Result<Vec<Result<Published, Problem>>, Problem> {
    let place = queue::topic_place(caller.tenant, topic);
    if service::is_idle(edge, place, key, &messages).await? {
        return Ok(Vec::new());
    }
    let count = messages.len();
    // Half of what a topic takes, because somebody may subscribe meanwhile.
    let bytes_max = SEND_BYTES_MAX.min(FAN_OUT_BYTES_MAX / 2 / subscriptions);
    let parts = parts(messages, bytes_max, FAN_OUT_LETTERS_MAX / 2 / subscriptions);
    let keyed = |(part, messages): (usize, Vec<(usize, Outgoing)>)| {
        // Never a large one: as a queue usually is, it takes none.
        let sent = messages.into_iter().map(|(place, outgoing)| (place, outgoing.message));
        let (places, messages): (Vec<usize>, Vec<_>) = sent.unzip();
        (key.map(|key| content_of(part_of(key, part), &places)), messages)
    };
    let parts = parts.into_iter().enumerate().map(keyed).collect();
    let publish = |(key, messages): (_, Vec<queue::NewMessage>)| async move {
        let letters = messages.iter().map(|message| message.parcel.len() + LETTER_BYTES);
        let weight = letters.sum::<usize>() * subscriptions;
        let publish = Command::Publish(Publish { topic: topic.to_owned(), messages });
        match submit_heavy(edge, caller, topic, key, &publish, weight).await? {
            Reply::Published(published) => Ok(published.into_iter().map(Ok).collect()),
            other => unreachable!("a Publish is answered with {other:?}"),
        }
    };
    service::part_by_part(parts, count, publish).await
}

async fn publish(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(topic): Path<String>,
    headers: HeaderMap,
    idempotency: Idempotency,
    body: Json<NewMessage>,
) -> Result<(StatusCode, Answer<MessagePublished>), Problem> {
    body.value.check_alone()?;
    let key = idempotency.with(caller.tenant, &body.raw);
    let messages = vec![Ok(body.value)];
    let trace_id = trace::id_of(&headers);
    let mut sent = publish_all(&edge, &caller, &topic, key, messages, trace_id).await?;
    Ok((StatusCode::ACCEPTED, Answer(sent.remove(0)?)))
}

async fn publish_batch(
    State(edge): State<EdgeState>,
    caller: Caller,
    Path(topic): Path<String>,
    headers: HeaderMap,
    idempotency: Idempotency,
    batch: Batch,
) -> Result<Answer<BatchResults<MessagePublished>>, Problem> {
    let key = idempotency.with(caller.tenant, &batch.raw);
    let trace_id = trace::id_of(&headers);
    let outcomes = publish_all(&edge, &caller, &topic, key, batch.messages, trace_id).await?;
    Ok(Answer(BatchResults::new(outcomes, batch.client_message_ids)))
}
