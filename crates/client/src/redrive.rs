//! Dead letters on their way back to where they came from.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;
use crate::streams::all_pages;

/// Redrives of a tenant. From [`Client::redrives`].
#[derive(Clone, Debug)]
pub struct Redrives {
    client: Client,
}

/// What to bring back, where to and how fast.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedriveAsk {
    /// Where to; the queue that each message died in when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_queue: Option<String>,
    /// So that the target is not overrun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages_per_second: Option<u32>,
    /// Only messages that it matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Value>,
    /// Messages at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Counts what it would move, and moves nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Where a redrive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RedriveState {
    /// It moves messages.
    Running,
    /// It has seen all of them.
    Done,
    /// Somebody ended it.
    Cancelled,
    /// It could not go on: see [`Redrive::failure_reason`].
    Failed,
}

/// A redrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Redrive {
    /// Its name.
    pub redrive_id: String,
    /// The queue that messages are moved out of.
    #[serde(default)]
    pub queue: String,
    /// Where to; `None` for the queue that each message died in.
    #[serde(default)]
    pub target_queue: Option<String>,
    /// Whether it goes on.
    pub state: RedriveState,
    /// Why it does not, when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Messages that were moved.
    #[serde(default)]
    pub moved: u64,
    /// Messages that the filter matched.
    #[serde(default)]
    pub matched: u64,
    /// Messages that were left where they are.
    #[serde(default)]
    pub skipped: u64,
    /// Messages that could be received when it began; it does not change.
    #[serde(default)]
    pub waiting: u64,
    /// Whether it only counts.
    #[serde(default)]
    pub dry_run: bool,
    /// RFC 3339.
    #[serde(default)]
    pub started_at: String,
    /// RFC 3339; `None` while it goes on.
    #[serde(default)]
    pub ended_at: Option<String>,
}

impl Redrive {
    /// About so many messages that it has not come to, or that came back to it. What was received meanwhile,
    /// or is left alone for the order of its group, is among them.
    #[must_use]
    pub fn left(&self) -> u64 {
        let done = if self.dry_run { self.matched } else { self.moved };
        self.waiting.saturating_sub(done.saturating_add(self.skipped))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    redrive_id: String,
}

impl Redrives {
    pub(crate) fn new(client: Client) -> Redrives {
        Redrives { client }
    }

    /// Begins one, and gives its name.
    ///
    /// # Errors
    /// `not-found` when there is no such queue; any other [`Error`].
    pub async fn begin(&self, dead_letter_queue: &str, ask: &RedriveAsk) -> Result<String, Error> {
        let call = Call::new(Method::POST, ["v1", "queues", dead_letter_queue]).verb("redrive");
        let begun: Begun = self.client.call(call.json(ask)?.keyed()).await?;
        Ok(begun.redrive_id)
    }

    /// Where it stands.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn get(&self, id: &str) -> Result<Redrive, Error> {
        self.client.call(Call::new(Method::GET, ["v1", "redrives", id])).await
    }

    /// Those that a queue remembers, its last ten, the latest first.
    ///
    /// # Errors
    /// `not-found` when there is no such queue; any other [`Error`].
    pub async fn list(&self, dead_letter_queue: &str) -> Result<Vec<Redrive>, Error> {
        let of = [("queue", Some(dead_letter_queue.to_owned()))];
        let call = || Call::new(Method::GET, ["v1", "redrives"]).query(&of);
        all_pages(&self.client, call, None).await
    }

    /// Ends it; what was moved stays moved.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn cancel(&self, id: &str) -> Result<(), Error> {
        self.client.done(Call::new(Method::DELETE, ["v1", "redrives", id])).await
    }
}
