//! Making, changing and looking at queues.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::client::Client;
use crate::error::Error;

/// The queues of a tenant. From [`Client::queues`].
#[derive(Clone, Debug)]
pub struct Queues {
    client: Client,
}

/// Whether a queue keeps order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Mode {
    /// Any consumer gets any message.
    #[default]
    Standard,
    /// The messages of a group are handed out in the order of their sending.
    Fifo,
}

impl Mode {
    fn is_usual(&self) -> bool {
        *self == Mode::default()
    }
}

/// When a failed message is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// After the first failure; doubles with each further one.
    pub base_seconds: u64,
    /// At most.
    pub max_seconds: u64,
    /// Anything between half of it and all of it, so that failures spread.
    pub jitter: bool,
}

/// A setting that a queue can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No message dies. Goes with [`Bound::DeadLetterQueue`]: clear both.
    MaxReceiveCount,
    /// No message dies. Goes with [`Bound::MaxReceiveCount`]: clear both.
    DeadLetterQueue,
    /// Failed messages are tried again at once.
    RetryBackoff,
    /// As many messages as there is room for.
    MaxMessages,
    /// As many bytes as there is room for.
    MaxBytes,
    /// As many messages a second as the tenant may send.
    MaxPublishPerSecond,
    /// Messages are taken however old the oldest is.
    MaxAgeSeconds,
}

impl Bound {
    fn field(self) -> &'static str {
        match self {
            Bound::MaxReceiveCount => "maxReceiveCount",
            Bound::DeadLetterQueue => "deadLetterQueue",
            Bound::RetryBackoff => "retryBackoff",
            Bound::MaxMessages => "maxMessages",
            Bound::MaxBytes => "maxBytes",
            Bound::MaxPublishPerSecond => "maxPublishPerSecond",
            Bound::MaxAgeSeconds => "maxAgeSeconds",
        }
    }
}

/// Settings of a queue. What is `None` is as it usually is, or as it was.
///
/// ```
/// use client::{NewQueue, QueueSettings};
///
/// let settings = QueueSettings {
///     max_receive_count: Some(5),
///     dead_letter_queue: Some("dead".to_owned()),
///     ..QueueSettings::default()
/// };
/// let queue = NewQueue::new("orders").fifo().settings(settings);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueSettings {
    /// A message older than this is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_seconds: Option<u64>,
    /// How long a lease lasts when the receiver does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_visibility_timeout_seconds: Option<u64>,
    /// How long a message is hidden at first when the sender does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<u64>,
    /// How long a receive waits when the receiver does not say, up to 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_wait_seconds: Option<u64>,
    /// Receives after which a message is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_receive_count: Option<u32>,
    /// Where dead messages go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_queue: Option<String>,
    /// When failed messages are tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_backoff: Option<Backoff>,
    /// How long a deduplication key is remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deduplication_window_seconds: Option<u64>,
    /// Whether a message without a deduplication key has that of its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deduplicate_by_body: Option<bool>,
    /// Messages in the queue, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    /// Bytes in the queue, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Messages sent in a second, at most. What topics publish is not bound by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_publish_per_second: Option<u32>,
    /// Nothing is taken while the oldest message that can be received has been visible for longer; in
    /// a FIFO queue also one that waits behind another of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_seconds: Option<u64>,
    /// Messages leased at the same time, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_inflight: Option<u64>,
    /// Bytes of a body and its attributes, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
    /// Whether bodies of more than 256 KiB are taken, up to 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_bodies: Option<bool>,
    /// Notes on the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
}

/// A change of a queue: settings to set, and bounds to take away.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct QueueUpdate {
    #[serde(flatten)]
    settings: QueueSettings,
    #[serde(flatten)]
    cleared: BTreeMap<&'static str, ()>,
}

impl QueueUpdate {
    /// Sets what is `Some`.
    pub fn set(settings: QueueSettings) -> QueueUpdate {
        QueueUpdate { settings, cleared: BTreeMap::new() }
    }

    /// Takes a bound away.
    pub fn clear(mut self, bound: Bound) -> QueueUpdate {
        self.cleared.insert(bound.field(), ());
        self
    }
}

/// A queue to be made.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct NewQueue {
    name: String,
    /// Left out when it is the usual one: who names no setting subscribes a queue of any.
    #[serde(skip_serializing_if = "Mode::is_usual")]
    mode: Mode,
    #[serde(flatten)]
    settings: QueueSettings,
}

impl NewQueue {
    /// A standard queue with the usual settings. Names have 1 to 80 of `A-Z a-z 0-9 - _ .`
    pub fn new(name: impl Into<String>) -> NewQueue {
        let (mode, settings) = (Mode::Standard, QueueSettings::default());
        NewQueue { name: name.into(), mode, settings }
    }

    /// Keeps the order of each group. It never changes.
    pub fn fifo(mut self) -> NewQueue {
        self.mode = Mode::Fifo;
        self
    }

    /// With these settings.
    pub fn settings(mut self, settings: QueueSettings) -> NewQueue {
        self.settings = settings;
        self
    }
}

/// A queue that is there now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QueueMade {
    /// Never used again, even if the name is.
    pub queue_id: String,
    /// As asked for.
    pub name: String,
    /// Whether this call made it. Of a subscription, whether it subscribed it.
    #[serde(default)]
    pub created: bool,
}

/// A queue: its settings, what is in it, what happens in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QueueInfo {
    /// Never used again, even if the name is.
    pub queue_id: String,
    /// The name.
    pub name: String,
    /// Whether it keeps order.
    pub mode: Mode,
    /// RFC 3339.
    pub created_at: String,
    /// See [`QueueSettings`], as of all that follow.
    pub retention_seconds: u64,
    /// How long a lease lasts.
    pub default_visibility_timeout_seconds: u64,
    /// How long a message is hidden at first.
    pub delay_seconds: u64,
    /// How long a receive waits.
    pub receive_wait_seconds: u64,
    /// Receives after which a message is dead.
    pub max_receive_count: Option<u32>,
    /// Where dead messages go.
    pub dead_letter_queue: Option<String>,
    /// When failed messages are tried again.
    pub retry_backoff: Backoff,
    /// How long a deduplication key is remembered.
    pub deduplication_window_seconds: u64,
    /// Whether a message without a deduplication key has that of its body.
    pub deduplicate_by_body: bool,
    /// Messages in the queue, at most.
    pub max_messages: Option<u64>,
    /// Bytes in the queue, at most.
    pub max_bytes: Option<u64>,
    /// Messages sent in a second, at most.
    pub max_publish_per_second: Option<u32>,
    /// Nothing is taken while the oldest message that can be received has been visible for longer; in
    /// a FIFO queue also one that waits behind another of its group.
    pub max_age_seconds: Option<u64>,
    /// Messages leased at the same time, at most.
    pub max_inflight: u64,
    /// Bytes of a body and its attributes, at most.
    pub max_body_bytes: u64,
    /// Whether bodies of more than 256 KiB are taken.
    #[serde(default)]
    pub large_bodies: bool,
    /// Notes on the queue.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Messages that can be received.
    pub visible: u64,
    /// Messages whose time has not come: delayed, or to be tried again.
    pub delayed: u64,
    /// Messages that somebody works on.
    pub inflight: u64,
    /// Messages that have gone to the dead-letter queue since this queue was made. How many lie there
    /// now is what that queue shows.
    pub dead: u64,
    /// Of all messages in the queue.
    pub bytes: u64,
    /// How long ago the oldest message that can be received was sent.
    pub oldest_visible_age_seconds: Option<u64>,
    /// What happens in it.
    pub rates: Rates,
}

/// What happens in a queue, over the last minute or two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Rates {
    /// Messages sent.
    pub publish_per_second: f64,
    /// Messages received.
    pub receive_per_second: f64,
    /// Messages done.
    pub ack_per_second: f64,
    /// Messages that failed.
    pub retry_per_second: f64,
}

/// Which queues to list.
#[derive(Clone, Debug, Default)]
pub struct ListQueues {
    /// Only those whose names begin so.
    pub prefix: Option<String>,
    /// How many, up to 1000.
    pub limit: Option<u32>,
    /// Where the page before ended: its [`Page::next_cursor`].
    pub cursor: Option<String>,
}

/// Part of a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Page<T> {
    /// In the order of the list.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
}

impl Queues {
    pub(crate) fn new(client: Client) -> Queues {
        Queues { client }
    }

    fn one(method: Method, name: &str) -> Call {
        Call::new(method, ["v1", "queues", name])
    }

    /// Makes a queue. The same name with the same settings is the same queue, and no error.
    ///
    /// # Errors
    /// `conflict` when it is there with other settings; any other [`Error`].
    pub async fn create(&self, queue: &NewQueue) -> Result<QueueMade, Error> {
        let call = Call::new(Method::POST, ["v1", "queues"]).json(queue)?.keyed();
        let (made, created) = self.client.make::<QueueMade>(call).await?;
        Ok(QueueMade { created, ..made })
    }

    /// Looks at a queue.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn get(&self, name: &str) -> Result<QueueInfo, Error> {
        self.client.call(Queues::one(Method::GET, name)).await
    }

    /// A page of queues, by name.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn list(&self, which: &ListQueues) -> Result<Page<QueueInfo>, Error> {
        let call = Call::new(Method::GET, ["v1", "queues"]).query(&[
            ("prefix", which.prefix.clone()),
            ("limit", which.limit.map(|limit| limit.to_string())),
            ("cursor", which.cursor.clone()),
        ]);
        self.client.call(call).await
    }

    /// All queues whose names begin so, page after page.
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn list_all(&self, prefix: &str) -> Result<Vec<QueueInfo>, Error> {
        let prefix = (!prefix.is_empty()).then(|| prefix.to_owned());
        let mut which = ListQueues { prefix, limit: Some(1000), cursor: None };
        let mut all = Vec::new();
        loop {
            let page = self.list(&which).await?;
            all.extend(page.items);
            which.cursor = page.next_cursor;
            if which.cursor.is_none() {
                return Ok(all);
            }
        }
    }

    /// Changes what is given, and gives the queue as it is then.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn update(&self, name: &str, change: &QueueUpdate) -> Result<QueueInfo, Error> {
        let call = Queues::one(Method::PATCH, name).json(change)?.repeatable();
        self.client.call(call).await
    }

    /// Deletes a queue and everything in it.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`].
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        self.client.done(Queues::one(Method::DELETE, name)).await
    }

    /// Removes everything in a queue, what is leased included.
    ///
    /// # Errors
    /// `not-found`; any other [`Error`]. After [`Error::Cut`] it is not known whether it was done:
    /// trying again could remove what was sent in the meantime.
    pub async fn purge(&self, name: &str) -> Result<(), Error> {
        self.client.done(Queues::one(Method::POST, name).verb("purge")).await
    }
}
