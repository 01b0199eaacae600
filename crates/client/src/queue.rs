//! One queue: sending, receiving, settling, looking.

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Call;
use crate::client::{Before, Client};
use crate::consumer::ConsumerBuilder;
use crate::error::{Error, Problem};
use crate::message::{Message, Outgoing, Sent, seconds};

/// Messages in one request.
const BATCH_MAX: usize = 1000;
/// Bytes in one request; the server takes 16 MiB.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// The server takes no longer reason.
const REASON_BYTES_MAX: usize = 1024;

/// A queue, by name. From [`Client::queue`]; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    name: String,
}

/// How to receive.
///
/// ```
/// use std::time::Duration;
/// use client::Receive;
///
/// let ask = Receive::up_to(10).wait(Duration::from_secs(20));
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Receive {
    max: Option<u16>,
    wait: Option<Duration>,
    visibility: Option<Duration>,
}

impl Receive {
    /// Up to so many messages, 100 at most.
    pub fn up_to(max: u16) -> Receive {
        Receive { max: Some(max), ..Receive::default() }
    }

    /// Waits so long for the first, up to 20 s.
    pub fn wait(mut self, wait: Duration) -> Receive {
        self.wait = Some(wait);
        self
    }

    /// Leases for so long, in whole seconds, up to 12 hours; as the queue says when not set.
    pub fn visibility(mut self, visibility: Duration) -> Receive {
        self.visibility = Some(visibility);
        self
    }
}

/// Which messages to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeekState {
    /// Those that can be received.
    #[default]
    Visible,
    /// Those whose time has not come.
    Delayed,
    /// Those that somebody works on.
    Inflight,
}

impl PeekState {
    fn name(self) -> &'static str {
        match self {
            PeekState::Visible => "visible",
            PeekState::Delayed => "delayed",
            PeekState::Inflight => "inflight",
        }
    }
}

/// Messages that were looked at.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PeekPage {
    /// In the order of the queue.
    pub messages: Vec<Message>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
pub(crate) struct Results<T> {
    pub(crate) results: Vec<Outcome<T>>,
}

#[derive(Deserialize)]
pub(crate) struct Outcome<T> {
    error: Option<Problem>,
    #[serde(flatten)]
    done: Option<T>,
}

/// The result of a lease that was settled: nothing.
#[derive(Deserialize)]
struct Settled {}

impl<T> Outcome<T> {
    pub(crate) fn into_result(self) -> Result<T, Error> {
        match (self.error, self.done) {
            (Some(problem), _) => Err(problem.into()),
            (None, Some(done)) => Ok(done),
            (None, None) => {
                let what = "a result without an error and without what was done";
                Err(Error::Answer(serde::de::Error::custom(what)))
            }
        }
    }
}

#[derive(Serialize)]
struct Batch<'a> {
    messages: &'a [Outgoing],
}

impl Queue {
    pub(crate) fn new(client: Client, name: String) -> Queue {
        Queue { client, name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A consumer of it, to be set up and started.
    pub fn consumer(&self) -> ConsumerBuilder {
        ConsumerBuilder::new(self.clone())
    }

    fn messages(&self, method: Method) -> Call {
        Call::new(method, ["v1", "queues", &self.name, "messages"])
    }

    /// Sends a body, as JSON, and returns when it is on disk.
    ///
    /// # Errors
    /// `not-found` when there is no such queue; any other [`Error`]. After [`Error::Cut`] it may
    /// have been sent.
    pub async fn send<T: Serialize + ?Sized>(&self, body: &T) -> Result<Sent, Error> {
        self.send_message(&Outgoing::new(body)?).await
    }

    /// Sends a message with all that belongs to it.
    ///
    /// # Errors
    /// As [`Queue::send`].
    pub async fn send_message(&self, message: &Outgoing) -> Result<Sent, Error> {
        self.client.call(self.messages(Method::POST).json(message)?.keyed()).await
    }

    /// Sends many, in their order, in as many requests as they need. Each is taken or refused by
    /// itself; the results are in the same order.
    ///
    /// # Errors
    /// What befalls a whole request. Of more than one request, those before it were carried out;
    /// their results are lost with the error, so send in smaller parts where that matters.
    pub async fn send_batch(
        &self,
        messages: &[Outgoing],
    ) -> Result<Vec<Result<Sent, Error>>, Error> {
        let mut results = Vec::with_capacity(messages.len());
        let mut rest = messages;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(BATCH_MAX).take_while(|message| {
                bytes += message.bytes();
                bytes <= BATCH_BYTES_MAX
            });
            let (part, after) = rest.split_at(fits.count().max(1));
            rest = after;
            let call = self.messages(Method::POST).verb("batch").json(&Batch { messages: part })?;
            let answer: Results<Sent> = self.client.call(call.keyed()).await?;
            results.extend(answer.results.into_iter().map(Outcome::into_result));
        }
        Ok(results)
    }

    /// Leases messages; perhaps none.
    ///
    /// It is tried again when its answer is lost: messages of that answer come back when their
    /// lease ends.
    ///
    /// # Errors
    /// `not-found` when there is no such queue; any other [`Error`].
    pub async fn receive(&self, how: Receive) -> Result<Vec<Message>, Error> {
        let mut ask = json!({});
        if let Some(max) = how.max {
            ask["maxMessages"] = max.into();
        }
        if let Some(wait) = how.wait {
            ask["waitSeconds"] = seconds(wait).into();
        }
        if let Some(visibility) = how.visibility {
            ask["visibilityTimeoutSeconds"] = seconds(visibility).into();
        }
        // A queue of its own wait may wait as long as any.
        let wait = how.wait.unwrap_or(Duration::from_secs(20));
        let call = self.messages(Method::POST).verb("receive").json(&ask)?.repeatable().wait(wait);
        let answer: Messages = self.client.call(call).await?;
        Ok(answer.messages)
    }

    /// Looks at messages without taking them: the first of them, up to 1000.
    ///
    /// # Errors
    /// `not-found` when there is no such queue; any other [`Error`].
    pub async fn peek(&self, state: PeekState, limit: u32) -> Result<Vec<Message>, Error> {
        Ok(self.peek_page(state, limit, None).await?.messages)
    }

    /// Looks at a page of messages, up to 1000, from where the page before ended. What comes and
    /// goes meanwhile may be seen or not.
    ///
    /// # Errors
    /// As [`Queue::peek`].
    pub async fn peek_page(
        &self,
        state: PeekState,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<PeekPage, Error> {
        let query = [
            ("state", Some(state.name().to_owned())),
            ("limit", Some(limit.to_string())),
            ("cursor", cursor.map(str::to_owned)),
        ];
        self.client.call(self.messages(Method::GET).query(&query)).await
    }

    /// The work on a message is done: it is gone.
    ///
    /// # Errors
    /// `conflict` when the lease had ended; [`Error::Unknown`] when an answer was lost and the lease
    /// has ended since, perhaps by that very ack; any other [`Error`].
    pub async fn ack(&self, message: &Message) -> Result<(), Error> {
        self.client.done(self.lease(&message.receipt_handle, "ack").settling()).await
    }

    /// The work on a message is not done. It is tried again after `delay`, or as the queue says; the
    /// reason, cut to 1024 bytes, is for whoever looks at it later.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    pub async fn nack(
        &self,
        message: &Message,
        delay: Option<Duration>,
        reason: &str,
    ) -> Result<(), Error> {
        self.nack_handle(&message.receipt_handle, delay, reason, None).await
    }

    pub(crate) async fn nack_handle(
        &self,
        handle: &str,
        delay: Option<Duration>,
        reason: &str,
        lease_ends: Option<Instant>,
    ) -> Result<(), Error> {
        let mut ask = json!({});
        if !reason.is_empty() {
            ask["reason"] = cut_to(reason, REASON_BYTES_MAX).into();
        }
        if let Some(delay) = delay {
            ask["delaySeconds"] = seconds(delay).into();
        }
        let call = self.lease(handle, "nack").json(&ask)?.settling();
        self.client.done(call.within(lease_ends)).await
    }

    /// The lease lasts `visibility` from now, in whole seconds.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    pub async fn extend(&self, message: &Message, visibility: Duration) -> Result<(), Error> {
        self.extend_until(&message.receipt_handle, visibility, None).await
    }

    pub(crate) async fn extend_until(
        &self,
        handle: &str,
        visibility: Duration,
        lease_ends: Option<Instant>,
    ) -> Result<(), Error> {
        let ask = json!({"visibilityTimeoutSeconds": seconds(visibility)});
        let call = self.lease(handle, "change-visibility").json(&ask)?;
        // To hold it twice is to hold it; only giving it back is an end.
        let call = if visibility.is_zero() { call.settling() } else { call.repeatable() };
        self.client.done(call.within(lease_ends)).await
    }

    fn lease(&self, handle: &str, verb: &str) -> Call {
        Call::new(Method::POST, ["v1", "queues", &self.name, "messages", handle]).verb(verb)
    }

    /// Acks many by their receipt handles, up to 1000; there is a result for each, in the same order.
    /// Those that the server refuses for now are tried again, as a whole request is.
    ///
    /// # Errors
    /// What befalls the whole request; see [`Queue::ack`] for each.
    pub async fn ack_batch(&self, handles: &[String]) -> Result<Vec<Result<(), Error>>, Error> {
        self.settle_batch("ack", json!({}), handles).await
    }

    /// Gives messages back that nobody began to work on: the next receive gets them.
    ///
    /// # Errors
    /// As [`Queue::ack_batch`].
    pub async fn give_back(&self, handles: &[String]) -> Result<Vec<Result<(), Error>>, Error> {
        let ask = json!({"visibilityTimeoutSeconds": 0});
        self.settle_batch("change-visibility", ask, handles).await
    }

    /// Tries once to ack leases; what came of it is in each.
    pub(crate) async fn try_acks(&self, leases: &mut [&mut Lease], ends: Instant) {
        let handles: Vec<_> = leases.iter().map(|lease| lease.handle.as_str()).collect();
        let ask = json!({"receiptHandles": handles});
        let call = self.messages(Method::POST).verb("ack").json(&ask).map(Call::settling);
        let answer: Result<Results<Settled>, Error> = match call {
            Ok(call) => self.client.call(call.once(ends)).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => {
                let mut outcomes = answer.results.into_iter();
                leases.iter_mut().for_each(|lease| lease.judge(outcomes.next(), false));
            }
            Err(error) => leases.iter_mut().for_each(|lease| lease.fail(&error)),
        }
    }

    /// Waits before another try of what concerns a lease; `false` if there is none any more.
    pub(crate) async fn pause(&self, failures: u32, error: &Error, ends: Instant) -> bool {
        self.client.pause_in_lease(failures, error, ends).await
    }

    /// Settles many. Of an answer that refuses some of them for now, those are asked for again, and no
    /// others: a second try of what is settled would be told that its lease has ended.
    async fn settle_batch(
        &self,
        verb: &str,
        mut ask: Value,
        handles: &[String],
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let deadline = self.client.deadline();
        let mut failures = 0;
        let mut leases: Vec<_> = handles.iter().cloned().map(Lease::new).collect();
        loop {
            let mut open: Vec<_> = leases.iter_mut().filter(|lease| lease.is_open()).collect();
            ask["receiptHandles"] = open.iter().map(|lease| lease.handle.as_str()).collect();
            let call = self.messages(Method::POST).verb(verb).json(&ask)?.settling();
            let answer = self.client.call_told(call.until(deadline).after(failures)).await;
            let (answer, before): (Results<Settled>, Before) = match answer {
                Ok(answer) => answer,
                Err(error) if failures == 0 => return Err(error),
                Err(error) => {
                    // What was settled before stays so.
                    open.iter_mut().for_each(|lease| lease.result = Err(error.for_another()));
                    break;
                }
            };
            let mut outcomes = answer.results.into_iter();
            for lease in &mut open {
                lease.judge(outcomes.next(), before.cut);
            }
            failures = before.failures + 1;
            let refused = leases.iter().filter(|lease| lease.is_open());
            let errors = refused.filter_map(|lease| lease.result.as_ref().err());
            let Some(error) = errors.max_by_key(|error| error.retry_after_ms()) else { break };
            if !self.client.pause(failures, error, deadline).await {
                break;
            }
        }
        Ok(leases.into_iter().map(|lease| lease.result).collect())
    }
}

/// A lease that is being settled with others.
pub(crate) struct Lease {
    handle: String,
    /// A try may have settled it whose result does not say so.
    cut: bool,
    asked: bool,
    pub(crate) result: Result<(), Error>,
}

impl Lease {
    pub(crate) fn new(handle: String) -> Lease {
        Lease { handle, cut: false, asked: false, result: Ok(()) }
    }

    /// Whether it is to be asked for, or asked for again.
    fn is_open(&self) -> bool {
        match &self.result {
            Ok(()) => !self.asked,
            Err(Error::Problem(problem)) => problem.is_tried_again(),
            Err(_) => false,
        }
    }

    /// A whole request failed.
    fn fail(&mut self, error: &Error) {
        self.asked = true;
        self.cut |= match error {
            Error::Cut { .. } => true,
            error => error.problem().is_some_and(Problem::may_be_done),
        };
        self.result = Err(error.for_another());
    }

    /// Takes what came of a try; `cut` when another before it was.
    fn judge(&mut self, outcome: Option<Outcome<Settled>>, cut: bool) {
        self.asked = true;
        self.cut |= cut;
        let short = || Err(Error::Answer(serde::de::Error::custom("too few results")));
        self.result = match outcome.map_or_else(short, Outcome::into_result) {
            Ok(Settled {}) => Ok(()),
            Err(Error::Problem(problem)) if self.cut && problem.status == 409 => {
                Err(Error::Unknown(problem))
            }
            Err(error) => {
                self.cut |= error.problem().is_some_and(Problem::may_be_done);
                Err(error)
            }
        };
    }
}

/// The beginning of a text, cut between two characters.
fn cut_to(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_told_apart() {
        let text = r#"{"results":[{"index":0,"messageId":"m","sequence":4},
            {"index":1,"error":{"type":"invalid-body","title":"t","status":400,"detail":"d"}},
            {"index":2}]}"#;
        let answer: Results<Sent> = serde_json::from_str(text).expect("results");
        let results: Vec<_> = answer.results.into_iter().map(Outcome::into_result).collect();
        assert_eq!(results[0].as_ref().expect("sent").sequence, 4);
        assert!(results[1].as_ref().expect_err("refused").is("invalid-body"));
        assert!(matches!(results[2], Err(Error::Answer(_))));
        let answer: Results<Settled> =
            serde_json::from_str(r#"{"results":[{"index":0}]}"#).expect("results");
        assert!(answer.results.into_iter().all(|outcome| outcome.into_result().is_ok()));
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(cut_to("aüb", 2), "a");
        assert_eq!(cut_to("aüb", 3), "aü");
        assert_eq!(cut_to("short", 1024), "short");
    }
}
