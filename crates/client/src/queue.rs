//! One queue: sending, receiving, looking.

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::call::Call;
use crate::client::Client;
use crate::consumer::ConsumerBuilder;
use crate::error::{Error, Problem};
use crate::message::{Message, Outgoing, Sent, seconds};

/// Messages in one request.
const BATCH_MAX: usize = 1000;
/// Bytes in one request. The server takes 16 MiB, but of more than these it may do a part and not the rest,
/// which no repetition under the same key is made for.
const BATCH_BYTES_MAX: usize = 512 << 10;

/// A queue, by name. From [`Client::queue`]; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) client: Client,
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
    #[serde(deserialize_with = "readable")]
    messages: Vec<Message>,
}

/// Those that can be read. One that cannot, because the server knows more than we do, keeps no other
/// out: it is told of, and comes back when its lease ends.
fn readable<'de, D: Deserializer<'de>>(json: D) -> Result<Vec<Message>, D::Error> {
    let mut messages = Vec::new();
    for raw in Vec::<&RawValue>::deserialize(json)? {
        match serde_json::from_str(raw.get()) {
            Ok(message) => messages.push(message),
            Err(error) => tracing::warn!(%error, "a message cannot be read; it is left out"),
        }
    }
    Ok(messages)
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
pub(crate) struct Batch<'a> {
    pub(crate) messages: &'a [Outgoing],
}

/// How many of these messages one request takes: the first at least.
pub(crate) fn fits_in_a_request(messages: &[Outgoing]) -> usize {
    let mut bytes = 0;
    let fits = messages.iter().take(BATCH_MAX).take_while(|message| {
        bytes += message.bytes();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
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

    pub(crate) fn messages(&self, method: Method) -> Call {
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
            let part;
            (part, rest) = rest.split_at(fits_in_a_request(rest));
            let call = self.messages(Method::POST).verb("batch").json(&Batch { messages: part })?;
            let answer: Results<Sent> = self.client.call(call.keyed()).await?;
            results.extend(answer.results.into_iter().map(Outcome::into_result));
        }
        Ok(results)
    }

    /// Leases messages; perhaps none.
    ///
    /// It is tried again when its answer is lost: messages of that answer come back when their
    /// lease ends. So does one that cannot be read, which is logged and left out.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_cannot_be_read_keeps_no_other_out() {
        let message = |id: &str, attribute: &str| {
            format!(
                r#"{{"messageId":"{id}","receiveCount":1,"sequence":2,"sentAt":"t","body":1,
                    "attributes":{{"a":{attribute}}}}}"#
            )
        };
        let all =
            [message("m1", "1"), message("m2", "[]"), message("m3", "{}"), message("m4", "2")];
        let text = format!(r#"{{"messages":[{}]}}"#, all.join(","));
        let answer: Messages = serde_json::from_slice(text.as_bytes()).expect("messages");
        let ids: Vec<_> = answer.messages.iter().map(|m| m.message_id.as_str()).collect();
        assert_eq!(ids, ["m1", "m4"]);
    }

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
    }
}
