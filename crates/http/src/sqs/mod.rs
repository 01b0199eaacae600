//! The SQS dialect over the same queues.
//!
//! ```text
//!   POST / ─▶ protocol ─▶ signature ─▶ caller, quota, scope ─▶ action ─▶ queues::service
//! ```
//!
//! The access key id is the tenant's key, and so is the secret: keys are hashed at rest, so what
//! checks a signature must come with the request. The `sqs` crate holds the wire; here is what the
//! 23 actions do: `queues` to queues, `attributes` between their settings and AWS's, `messages` to
//! messages, `receive` for who takes them, `tasks` between queues.

mod attributes;
mod messages;
mod queues;
mod receive;
mod tasks;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri};
use queue::Definition;
use sqs::output::Message;
use sqs::signature::{self, Presented};
use sqs::{Action, ActionName, ErrorKind, Output, Protocol, QueueArn, QueuePath, SqsError};
use tenants::Scope;

use crate::app::{Ctx, Edge};
use crate::aside::by_bytes;
use crate::auth::{Caller, begins_as_key, host_of, key_id_text};
use crate::extract::RawBody;
use crate::problem::{Problem, ProblemKind};
use crate::queues::large::REQUEST_BYTES_MAX;
use crate::queues::service;
use crate::room::{Taken, keep};
use crate::route::{Routes, doc};
use crate::telemetry::trace;

/// Of a request that is not signed, and so names none.
const REGION: &str = "us-east-1";

/// The table.
#[must_use]
pub(crate) fn routes() -> Routes {
    let endpoint = |summary| {
        doc(summary)
            .text(
                "The AWS JSON 1.0 and the older query protocol, signature version 4. The tenant\'s \
                 key is the access key id and the secret access key.",
            )
            .public()
            .body_bytes_max(REQUEST_BYTES_MAX)
            // It would do what nobody sees.
            .without_head()
            .gives_other(200, "application/x-amz-json-1.0", "As AWS documents it")
    };
    let listed = |summary| endpoint(summary).example("Action=ListQueues");
    let looked =
        |summary| endpoint(summary).example("Action=GetQueueAttributes&AttributeName.1=All");
    Routes::new("sqs", "The same queues, for clients of AWS SQS.")
        .post("/", "sqs.root", call, listed("Any SQS action"))
        .post("/sqs", "sqs.call", call, listed("Any SQS action, under a path of its own"))
        // Some clients end the path of an endpoint with a slash.
        .post("/sqs/", "sqs.call_slash", call, listed("The same"))
        .post("/sqs/{account}/{queue}", "sqs.queue", call, looked("Any SQS action on a queue"))
        .get("/sqs", "sqs.presigned", call, listed("Any SQS action, by a presigned URL"))
        .get("/sqs/", "sqs.presigned_slash", call, listed("The same, by a presigned URL"))
        .get(
            "/sqs/{account}/{queue}",
            "sqs.queue_presigned",
            call,
            looked("Any SQS action on a queue, by a presigned URL"),
        )
}

/// What a handler's other extractors see.
pub(crate) struct Here(Ctx);

impl FromRequestParts<Ctx> for Here {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, ctx: &Ctx) -> Result<Here, Problem> {
        Ok(Here(ctx.clone()))
    }
}

/// The answer to a GET of the root, where its query names an action; else somebody just looks.
pub(crate) async fn at_root(here: Here, request: Request) -> Option<Response> {
    let is_action = request.method() == Method::GET && Protocol::names_action(request.uri());
    if is_action { Some(call(here, request).await) } else { None }
}

async fn call(Here(ctx): Here, request: Request) -> Response {
    let head = Arc::new(Head {
        method: request.method().clone(),
        uri: request.uri().clone(),
        headers: request.headers().clone(),
    });
    let most = request.body().size_hint().upper();
    let Some(protocol) = Protocol::of(&head.headers, &head.uri) else {
        let detail = "no SQS action is named here; see /docs for the other operations";
        return ProblemKind::UnknownPath.because(detail).into_response();
    };
    let mut request_id = [0; 16];
    getrandom::fill(&mut request_id).expect("the system has randomness");
    let request_id = format!("{:032x}", u128::from_be_bytes(request_id));
    if let Err(error) = check_sender(&ctx, &head, most).await {
        return unread(protocol, &error, &request_id);
    }
    let body = match RawBody::from_request(request, &ctx).await {
        Ok(RawBody(body)) => body,
        Err(problem) if problem.kind == ProblemKind::PayloadTooLarge => {
            return unread(protocol, &refusal(problem), &request_id);
        }
        Err(problem) => return problem.into_response(),
    };
    let room = OnceLock::new();
    let asked = Asked { ctx: &ctx, head, body, room: &room };
    let answer = match asked.answer(protocol).await {
        Ok(output) => {
            let bytes = bytes_of(&output);
            by_bytes(bytes, move || protocol.answer(&output, &request_id)).await
        }
        Err(error) => protocol.refuse(&error, &request_id),
    };
    answer.map(|answer| Body::from(keep(answer, room.into_inner())))
}

/// Bytes of what can be large in an answer.
fn bytes_of(output: &Output) -> usize {
    let Output::ReceiveMessage(received) = output else { return 0 };
    let of_message = |message: &Message| {
        let body = message.body.as_deref().unwrap_or_default();
        sqs::validate::message_bytes(body, &message.message_attributes)
    };
    received.messages.iter().map(of_message).sum()
}

/// The answer to a request whose body is still to come.
fn unread(protocol: Protocol, error: &SqsError, request_id: &str) -> Response {
    let mut refused = protocol.refuse(error, request_id).map(Body::from);
    refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    refused
}

/// Refuses a large body, before any of it is read, unless it names a key that there is: the signature
/// is over the body, and memory for large ones is not for everybody.
async fn check_sender(ctx: &Ctx, head: &Head, most: Option<u64>) -> Result<(), SqsError> {
    let is_small = most.is_some_and(|bytes| bytes <= ctx.edge().limits.body_bytes_max as u64);
    if is_small {
        return Ok(());
    }
    let presented = signature::parse(&head.headers, &head.uri);
    if is_developer(ctx, &presented) {
        return Ok(());
    }
    let presented = presented?;
    Caller::check_key(ctx, &presented.access_key_id).await.map_err(refusal)
}

/// Whether who signs so needs no key: in `--dev`, anybody who does not show one of ours.
fn is_developer(ctx: &Ctx, presented: &Result<Presented, SqsError>) -> bool {
    let shows_key = |presented: &Presented| begins_as_key(&presented.access_key_id);
    ctx.edge().dev && !presented.as_ref().is_ok_and(shows_key)
}

/// A request without its body.
struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

struct Asked<'a> {
    ctx: &'a Ctx,
    head: Arc<Head>,
    body: Bytes,
    room: &'a OnceLock<Taken>,
}

impl Asked<'_> {
    async fn answer(&self, protocol: Protocol) -> Result<Output, SqsError> {
        let (caller, region) = self.caller().await?;
        let (head, body) = (Arc::clone(&self.head), self.body.clone());
        let read = move || {
            let action = protocol.decode(&head.headers, &head.uri, &body)?;
            Ok((sqs::validate::action(&action), action))
        };
        let (valid, action) = by_bytes(self.body.len(), read).await?;
        let tried = scopes(action.name()).iter().map(|scope| caller.require(*scope));
        tried.reduce(Result::or).expect("every action has a scope").map_err(refusal)?;
        valid?;
        let Head { uri, headers, .. } = &*self.head;
        let scheme = if self.ctx.conn().tls { "https" } else { "http" };
        let endpoint = format!("{scheme}://{}/sqs", host_of(uri, headers).unwrap_or("localhost"));
        let (edge, room) = (self.ctx.edge(), self.room);
        let trace_id = trace::id_of(headers);
        let session = Session { edge, caller, protocol, region, endpoint, trace_id, room };
        session.act(action).await
    }

    /// Whoever signed this, and the region they believe to be in.
    async fn caller(&self) -> Result<(Caller, String), SqsError> {
        let Head { uri, headers, .. } = &*self.head;
        let presented = signature::parse(headers, uri);
        if is_developer(self.ctx, &presented) {
            let region = presented.map_or_else(|_| REGION.to_owned(), |presented| presented.region);
            let caller = Caller::of_key(self.ctx, None, uri, headers).await;
            return Ok((caller.map_err(refusal)?, region));
        }
        let presented = presented?;
        let (head, body) = (Arc::clone(&self.head), self.body.clone());
        let now_ms = crate::auth::now_ms();
        // The signature first: a good one costs no look-up, and says that the sender has the whole key.
        let check = move || {
            let (key, Head { method, uri, headers }) = (&presented.access_key_id, &*head);
            let checked = presented.check(key, method, uri, headers, &body, now_ms);
            (presented, checked)
        };
        let (presented, checked) = by_bytes(self.body.len(), check).await;
        let key = &presented.access_key_id;
        if let Err(wrong) = checked {
            if wrong.kind == ErrorKind::SignatureDoesNotMatch {
                // Who has another key than one of ours is told of that, as by AWS. It gives nothing
                // away: an id is the whole secret, and whoever has it could have signed with it.
                Caller::check_key(self.ctx, key).await.map_err(refusal)?;
            }
            return Err(wrong);
        }
        let caller = Caller::of_key(self.ctx, Some(key), uri, headers).await;
        Ok((caller.map_err(refusal)?, presented.region))
    }
}

/// What a key must open for an action: one of these.
fn scopes(action: ActionName) -> &'static [Scope] {
    match action {
        ActionName::SendMessage | ActionName::SendMessageBatch => &[Scope::Produce],
        ActionName::ReceiveMessage
        | ActionName::DeleteMessage
        | ActionName::DeleteMessageBatch
        | ActionName::ChangeMessageVisibility
        | ActionName::ChangeMessageVisibilityBatch => &[Scope::Consume],
        // A producer or a consumer finds its queue by name, before anything else.
        ActionName::GetQueueUrl => &[Scope::Produce, Scope::Consume, Scope::Read],
        ActionName::GetQueueAttributes
        | ActionName::ListQueues
        | ActionName::ListQueueTags
        | ActionName::ListDeadLetterSourceQueues
        | ActionName::ListMessageMoveTasks => &[Scope::Read],
        _ => &[Scope::Admin],
    }
}

/// What a client knows to wait for, or knows that waiting does not cure.
fn of_quota(quota: Option<&str>) -> ErrorKind {
    match quota {
        Some("bytesStored" | "entities" | "queues" | "inflight") => ErrorKind::OverLimit,
        Some("retentionSecondsMax") => ErrorKind::InvalidAttributeValue,
        _ => ErrorKind::RequestThrottled,
    }
}

/// A problem of the edge in the words of this dialect.
fn refusal(problem: Problem) -> SqsError {
    let kind = match problem.kind {
        ProblemKind::Unauthenticated => ErrorKind::InvalidClientTokenId,
        ProblemKind::Forbidden => ErrorKind::AccessDenied,
        ProblemKind::QuotaExceeded => of_quota(problem.quota()),
        ProblemKind::NotFound => ErrorKind::QueueDoesNotExist,
        ProblemKind::Internal => ErrorKind::InternalError,
        ProblemKind::PayloadTooLarge => ErrorKind::RequestTooLarge,
        kind if kind.status().is_server_error() => ErrorKind::ServiceUnavailable,
        _ => ErrorKind::InvalidParameterValue,
    };
    if kind == ErrorKind::InvalidClientTokenId {
        // What AWS says, for those who look for it, and then what it is here.
        let text = "The security token included in the request is invalid.";
        return kind.because(format!("{text} ({})", problem.detail));
    }
    match problem.retry_after_ms {
        Some(ms) => kind.because(format!("{}; try again in {ms} ms", problem.detail)),
        None => kind.because(problem.detail),
    }
}

fn unavailable(refusal: node::Refusal) -> SqsError {
    self::refusal(Problem::from(refusal))
}

/// One action of one caller.
struct Session<'a> {
    edge: &'a Edge,
    caller: Caller,
    protocol: Protocol,
    region: String,
    /// What the URLs of queues begin with.
    endpoint: String,
    /// Of the request.
    trace_id: Option<u128>,
    /// Of large bodies, until the answer is gone.
    room: &'a OnceLock<Taken>,
}

impl Session<'_> {
    async fn act(&self, action: Action) -> Result<Output, SqsError> {
        match action {
            Action::CreateQueue(ask) => self.create(ask).await,
            Action::DeleteQueue(ask) => self.delete(ask).await,
            Action::PurgeQueue(ask) => self.purge(ask).await,
            Action::GetQueueUrl(ask) => self.url_of(ask).await,
            Action::ListQueues(ask) => self.list(ask).await,
            Action::GetQueueAttributes(ask) => self.attributes(ask).await,
            Action::SetQueueAttributes(ask) => self.set_attributes(ask).await,
            Action::ListQueueTags(ask) => self.tags(ask).await,
            Action::TagQueue(ask) => self.tag(ask).await,
            Action::UntagQueue(ask) => self.untag(ask).await,
            Action::AddPermission(ask) => self.add_permission(ask).await,
            Action::RemovePermission(ask) => self.remove_permission(ask).await,
            Action::ListDeadLetterSourceQueues(ask) => self.sources(ask).await,
            Action::SendMessage(ask) => self.send(ask).await,
            Action::SendMessageBatch(ask) => self.send_batch(ask).await,
            Action::ReceiveMessage(ask) => self.receive(ask).await,
            Action::DeleteMessage(ask) => self.delete_message(ask).await,
            Action::DeleteMessageBatch(ask) => self.delete_batch(ask).await,
            Action::ChangeMessageVisibility(ask) => self.change_visibility(ask).await,
            Action::ChangeMessageVisibilityBatch(ask) => self.change_batch(ask).await,
            Action::StartMessageMoveTask(ask) => self.start_task(ask).await,
            Action::CancelMessageMoveTask(ask) => self.cancel_task(ask).await,
            Action::ListMessageMoveTasks(ask) => self.list_tasks(ask).await,
        }
    }

    fn url(&self, queue: &str) -> String {
        QueuePath { account: self.caller.tenant_name(), queue }.url(&self.endpoint)
    }

    fn arn(&self, queue: &str) -> String {
        let (region, account) = (self.region.clone(), self.caller.tenant_name().to_owned());
        QueueArn { region, account, queue: queue.to_owned() }.to_string()
    }

    /// An account is the tenant; twelve digits are an account of AWS, which says nothing here.
    fn is_ours(&self, account: &str) -> bool {
        account == self.caller.tenant_name() || account.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// A bare name will do for a URL, as at AWS.
    fn name_of<'u>(&self, url: &'u str) -> Result<&'u str, SqsError> {
        if sqs::validate::is_queue_name(url) {
            return Ok(url);
        }
        let path = QueuePath::of_queue_url(url)?;
        if self.is_ours(path.account) { Ok(path.queue) } else { Err(SqsError::no_queue()) }
    }

    fn name_of_arn(&self, arn: &str) -> Result<String, SqsError> {
        let arn: QueueArn = arn.parse()?;
        if self.is_ours(&arn.account) { Ok(arn.queue) } else { Err(SqsError::no_queue()) }
    }

    async fn find(&self, name: &str) -> Result<Option<Definition>, SqsError> {
        service::find(self.edge, self.caller.tenant, name).await.map_err(unavailable)
    }

    /// The queue of a URL: its name, and what it is.
    async fn queue<'u>(&self, url: &'u str) -> Result<(&'u str, Definition), SqsError> {
        let name = self.name_of(url)?;
        let definition = self.find(name).await?.ok_or_else(SqsError::no_queue)?;
        Ok((name, definition))
    }

    async fn submit(&self, name: &str, command: &queue::Command) -> Result<queue::Reply, SqsError> {
        let submitted = service::submit(self.edge, self.caller.tenant, name, None, command);
        match submitted.await.map_err(unavailable)? {
            queue::Reply::Refused(refusal) => Err(refused(refusal)),
            reply => Ok(reply),
        }
    }

    /// Who sent a message, for its receiver.
    fn sender(&self) -> Cow<'static, str> {
        self.caller
            .key_id
            .map_or(Cow::Borrowed("developer"), |id| key_id_text(self.caller.tenant, id).into())
    }
}

fn refused(refusal: queue::Refusal) -> SqsError {
    match refusal {
        queue::Refusal::NoQueue => SqsError::no_queue(),
        queue::Refusal::Exists => ErrorKind::QueueNameExists.because(
            "A queue already exists with the same name and a different value for an attribute",
        ),
        queue::Refusal::Inflight => ErrorKind::OverLimit
            .because("As many messages are in flight as the queue allows; try again in 1000 ms"),
        queue::Refusal::Version => {
            ErrorKind::ServiceUnavailable.because("Somebody else is changing the queue.")
        }
        queue::Refusal::Redriving => ErrorKind::InvalidParameterValue.because(
            "There is already a task running. Only one active task is allowed for a source queue \
             arn at a given time.",
        ),
        queue::Refusal::NoJob => ErrorKind::ResourceNotFound.because("The task does not exist."),
        queue::Refusal::SameQueue => ErrorKind::InvalidParameterValue
            .because("Source and destination must not be the same queue."),
        queue::Refusal::NoTopic
        | queue::Refusal::NoSubscription
        | queue::Refusal::FanOut
        | queue::Refusal::Subscriptions => unreachable!("this dialect knows no topics"),
        queue::Refusal::Mode => {
            ErrorKind::InvalidAttributeValue.because("A queue stays FIFO, or not, for ever.")
        }
    }
}
