//! What ends a lease, or makes it longer: one by one, and many at once.

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::call::Call;
use crate::client::Before;
use crate::error::Error;
use crate::message::{Message, seconds};
use crate::queue::{Outcome, Queue, Results};
use crate::retry::Repeat;

/// The server takes no longer reason.
const REASON_BYTES_MAX: usize = 1024;

/// The result of a lease that was settled: nothing.
#[derive(Deserialize)]
struct Settled {}

impl Queue {
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
        self.client.done(self.nack_call(&message.receipt_handle, delay, reason)?).await
    }

    /// Tries once, for so long, to nack.
    pub(crate) async fn try_nack(
        &self,
        handle: &str,
        delay: Option<Duration>,
        reason: &str,
        limit: Duration,
    ) -> Result<(), Error> {
        self.client.done(self.nack_call(handle, delay, reason)?.once(limit)).await
    }

    fn nack_call(
        &self,
        handle: &str,
        delay: Option<Duration>,
        reason: &str,
    ) -> Result<Call, Error> {
        let mut ask = json!({});
        if !reason.is_empty() {
            ask["reason"] = cut_to(reason, REASON_BYTES_MAX).into();
        }
        if let Some(delay) = delay {
            ask["delaySeconds"] = seconds(delay).into();
        }
        Ok(self.lease(handle, "nack").json(&ask)?.settling())
    }

    /// Tries once, for so long, to give back what was not begun.
    pub(crate) async fn try_give_back(&self, handle: &str, limit: Duration) -> Result<(), Error> {
        self.client.done(self.lease(handle, "release").settling().once(limit)).await
    }

    /// The lease lasts `visibility` from now, in whole seconds.
    ///
    /// # Errors
    /// As [`Queue::ack`].
    pub async fn extend(&self, message: &Message, visibility: Duration) -> Result<(), Error> {
        self.client.done(self.extend_call(&message.receipt_handle, visibility)?).await
    }

    /// Tries once, for so long, to renew.
    pub(crate) async fn try_extend(
        &self,
        handle: &str,
        visibility: Duration,
        limit: Duration,
    ) -> Result<(), Error> {
        self.client.done(self.extend_call(handle, visibility)?.once(limit)).await
    }

    fn extend_call(&self, handle: &str, visibility: Duration) -> Result<Call, Error> {
        let ask = json!({"visibilityTimeoutSeconds": seconds(visibility)});
        Ok(held_or_given_back(self.lease(handle, "change-visibility").json(&ask)?, visibility))
    }

    fn lease(&self, handle: &str, verb: &str) -> Call {
        Call::new(Method::POST, ["v1", "queues", self.name(), "messages", handle]).verb(verb)
    }

    /// Acks many by their receipt handles, up to 1000; there is a result for each, in the same order.
    /// Those that the server refuses for now are tried again, as a whole request is.
    ///
    /// # Errors
    /// What befalls the whole request; see [`Queue::ack`] for each.
    pub async fn ack_batch(&self, handles: &[String]) -> Result<Vec<Result<(), Error>>, Error> {
        self.settle_batch(handles, |handles| self.handles_call("ack", handles)).await
    }

    /// The leases of many last `visibility` from now, in whole seconds.
    ///
    /// # Errors
    /// As [`Queue::ack_batch`].
    pub async fn extend_batch(
        &self,
        handles: &[String],
        visibility: Duration,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let call = |handles: &[&str]| {
            let seconds = seconds(visibility);
            let ask = json!({"receiptHandles": handles, "visibilityTimeoutSeconds": seconds});
            let call = self.messages(Method::POST).verb("change-visibility").json(&ask)?;
            Ok(held_or_given_back(call, visibility))
        };
        self.settle_batch(handles, call).await
    }

    /// Gives messages back that nobody began to work on: the next receive gets them, and they do not count
    /// as received.
    ///
    /// # Errors
    /// As [`Queue::ack_batch`].
    pub async fn give_back(&self, handles: &[String]) -> Result<Vec<Result<(), Error>>, Error> {
        self.settle_batch(handles, |handles| self.handles_call("release", handles)).await
    }

    fn handles_call(&self, verb: &str, handles: &[&str]) -> Result<Call, Error> {
        let ask = json!({"receiptHandles": handles});
        Ok(self.messages(Method::POST).verb(verb).json(&ask)?.settling())
    }

    /// Tries once, for so long, to ack many; there is a result for each.
    pub(crate) async fn try_acks(
        &self,
        handles: &[&str],
        limit: Duration,
    ) -> Vec<Result<(), Error>> {
        let answer: Result<Results<Settled>, Error> = match self.handles_call("ack", handles) {
            Ok(call) => self.client.call(call.once(limit)).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => {
                let mut outcomes = answer.results.into_iter();
                handles.iter().map(|_| result_of(outcomes.next())).collect()
            }
            Err(error) => handles.iter().map(|_| Err(error.for_another())).collect(),
        }
    }

    /// Settles many. Of an answer that refuses some of them for now, those are asked for again, and no
    /// others: a second try of what is settled would be told that its lease has ended.
    async fn settle_batch(
        &self,
        handles: &[String],
        call: impl Fn(&[&str]) -> Result<Call, Error>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let deadline = self.client.deadline();
        let mut failures = 0;
        let mut leases: Vec<_> = handles.iter().map(|handle| Lease::new(handle)).collect();
        loop {
            let mut open: Vec<_> = leases.iter_mut().filter(|lease| lease.is_open()).collect();
            let call = call(&open.iter().map(|lease| lease.handle).collect::<Vec<_>>())?;
            let settling = call.repeat == Repeat::Settling;
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
                lease.judge(outcomes.next(), settling, before.cut);
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

/// To hold it twice is to hold it; only giving it back is an end.
fn held_or_given_back(call: Call, visibility: Duration) -> Call {
    if visibility.is_zero() { call.settling() } else { call.repeatable() }
}

/// What came of one of many.
fn result_of(outcome: Option<Outcome<Settled>>) -> Result<(), Error> {
    let short = || Err(Error::Answer(serde::de::Error::custom("too few results")));
    outcome.map_or_else(short, Outcome::into_result).map(|Settled {}| ())
}

/// A lease that is being settled with others.
struct Lease<'a> {
    handle: &'a str,
    /// A try may have settled it whose result does not say so.
    cut: bool,
    asked: bool,
    result: Result<(), Error>,
}

impl<'a> Lease<'a> {
    fn new(handle: &'a str) -> Lease<'a> {
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

    /// Takes what came of a try: one that ends it if `settling`, and that came after one which was
    /// `cut`.
    fn judge(&mut self, outcome: Option<Outcome<Settled>>, settling: bool, cut: bool) {
        self.asked = true;
        self.cut |= settling && cut;
        let result = result_of(outcome);
        self.result = result.map_err(|error| if self.cut { error.after_a_cut() } else { error });
        self.cut |= settling && self.result.as_ref().is_err_and(Error::may_be_done);
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
    fn a_result_without_an_error_is_one_that_was_settled() {
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
