//! The settings of a queue, as they are asked for.

use std::collections::BTreeMap;

use queue::{BODY_BYTES_MAX, Backoff, LARGE_BODY_BYTES_MAX, Settings};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::check_name_at;
use crate::extract::FromTo;
use crate::extract::body::{Given, given};
use crate::problem::{Problem, ProblemKind, not_null, within};

/// Ten years: longer than anything waits on purpose.
pub(super) const SECONDS_MAX: u64 = 10 * 365 * 24 * 60 * 60;
/// Twelve hours.
pub(super) const VISIBILITY_SECONDS_MAX: u64 = 12 * 60 * 60;
/// A long poll.
pub(super) const WAIT_SECONDS_MAX: u64 = 20;

/// When a failed message is tried again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct BackoffView {
    /// After the first failure; doubles with each further one.
    pub(super) base_seconds: u64,
    /// At most.
    pub(super) max_seconds: u64,
    /// Anything between half of it and all of it, so that failures spread.
    #[serde(default)]
    pub(super) jitter: bool,
}

/// Settings of a queue: what is left out is as it is, or as it usually is.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct QueueChange {
    /// A message older than this is dropped. 345600 (four days) when not given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    retention_seconds: Given<FromTo<u64, 1, SECONDS_MAX>>,
    /// How long a lease lasts when the receiver does not say. 30 when not given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    default_visibility_timeout_seconds: Given<FromTo<u64, 0, VISIBILITY_SECONDS_MAX>>,
    /// How long a message is hidden at first when the sender does not say.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    delay_seconds: Given<FromTo<u64, 0, SECONDS_MAX>>,
    /// How long a receive waits when the receiver does not say, up to 20.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    receive_wait_seconds: Given<FromTo<u64, 0, WAIT_SECONDS_MAX>>,
    /// Receives after which a message is dead; goes with `deadLetterQueue`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    max_receive_count: Given<FromTo<u32, 1, 1000>>,
    /// Where dead messages go, which is another queue; goes with `maxReceiveCount`. It is made when
    /// the first arrives, if it is not there.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    dead_letter_queue: Given<String>,
    /// When failed messages are tried again: at once when not given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BackoffView>)]
    retry_backoff: Given<BackoffView>,
    /// How long a deduplication key is remembered. 300 when not given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    deduplication_window_seconds: Given<FromTo<u64, 1, SECONDS_MAX>>,
    /// Whether a message without a deduplication key has that of its body.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    deduplicate_by_body: Given<bool>,
    /// Messages in the queue, at most.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_messages: Given<u64>,
    /// Bytes in the queue, at most.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_bytes: Given<u64>,
    /// Messages sent in a second, at most; a second's worth at once. What topics publish is not bound
    /// by it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    max_publish_per_second: Given<FromTo<u32, 1, 1_000_000>>,
    /// Nothing is taken while the oldest message that can be received has been visible for longer than
    /// this; in a FIFO queue also one that waits behind another of its group.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    max_age_seconds: Given<FromTo<u64, 1, SECONDS_MAX>>,
    /// Messages leased at the same time, at most.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    max_inflight: Given<u64>,
    /// Bytes of a body and its attributes, at most: 262144 when not given, 16777216 with
    /// `largeBodies`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, nullable = false)]
    max_body_bytes: Given<u64>,
    /// Whether bodies of more than 262144 bytes are taken. They lie in the archive until their
    /// message is gone; who sends and receives sees no difference.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<bool>, nullable = false)]
    large_bodies: Given<bool>,
    /// Notes on the queue.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BTreeMap<String, String>>, nullable = false)]
    tags: Given<BTreeMap<String, String>>,
}

/// What is given in seconds and kept in milliseconds.
fn put_ms<const FROM: u64, const TO: u64>(value: Given<FromTo<u64, FROM, TO>>, ms: &mut u64) {
    if let Some(seconds) = value.flatten() {
        *ms = seconds.0 * 1000;
    }
}

impl QueueChange {
    /// Whether it says how long messages are kept.
    pub(super) fn says_retention(&self) -> bool {
        self.retention_seconds.flatten().is_some()
    }

    /// Of a queue that is there, `null` takes away what a queue can be without. It says nothing of
    /// anything else; who makes a queue may well write it for what is as usual.
    pub(super) fn check_nulls(&self) -> Result<(), Problem> {
        let range = |from: u64, to: u64| format!("a whole number from {from} to {to}");
        let (number, boolean) =
            (|| "a whole number, 0 or more".to_owned(), || "a boolean".to_owned());
        let visibility = self.default_visibility_timeout_seconds;
        let hours = range(0, VISIBILITY_SECONDS_MAX);
        let window = self.deduplication_window_seconds;
        let wait = self.receive_wait_seconds;
        let fields = [
            ("retentionSeconds", range(1, SECONDS_MAX), self.retention_seconds == Some(None)),
            ("defaultVisibilityTimeoutSeconds", hours, visibility == Some(None)),
            ("delaySeconds", range(0, SECONDS_MAX), self.delay_seconds == Some(None)),
            ("receiveWaitSeconds", range(0, WAIT_SECONDS_MAX), wait == Some(None)),
            ("deduplicationWindowSeconds", range(1, SECONDS_MAX), window == Some(None)),
            ("deduplicateByBody", boolean(), self.deduplicate_by_body == Some(None)),
            ("maxInflight", number(), self.max_inflight == Some(None)),
            ("maxBodyBytes", number(), self.max_body_bytes == Some(None)),
            ("largeBodies", boolean(), self.large_bodies == Some(None)),
            ("tags", "an object".to_owned(), self.tags == Some(None)),
        ];
        let null = fields.into_iter().find(|(_, _, is_null)| *is_null);
        null.map_or(Ok(()), |(field, expected, _)| Err(not_null(field, &expected)))
    }

    /// Makes the change of the queue of this name, or says what is wrong with it.
    pub(super) fn apply_to(&self, name: &str, settings: &mut Settings) -> Result<(), Problem> {
        put_ms(self.retention_seconds, &mut settings.retention_ms);
        put_ms(self.default_visibility_timeout_seconds, &mut settings.visibility_ms);
        put_ms(self.delay_seconds, &mut settings.delay_ms);
        put_ms(self.receive_wait_seconds, &mut settings.wait_ms);
        put_ms(self.deduplication_window_seconds, &mut settings.dedup_ms);
        self.apply_failures(settings)?;
        self.check_dead_letters(name, settings)?;
        self.apply_bounds(settings)?;
        if let Some(by_body) = self.deduplicate_by_body.flatten() {
            settings.dedup_by_body = by_body;
        }
        if let Some(Some(tags)) = &self.tags {
            check_tags(tags)?;
            settings.tags.clone_from(tags);
        }
        Ok(())
    }

    fn apply_failures(&self, settings: &mut Settings) -> Result<(), Problem> {
        if let Some(count) = self.max_receive_count {
            settings.max_receive_count = count.map(|count| count.0);
        }
        if let Some(name) = &self.dead_letter_queue {
            name.as_deref().map_or(Ok(()), |name| check_name_at("deadLetterQueue", name))?;
            settings.dead_letter_queue.clone_from(name);
        }
        if let Some(backoff) = self.retry_backoff {
            settings.backoff = match backoff {
                None => Backoff::default(),
                Some(BackoffView { base_seconds, max_seconds, jitter }) => {
                    let base = within("retryBackoff.baseSeconds", base_seconds, 0, SECONDS_MAX)?;
                    let max = within("retryBackoff.maxSeconds", max_seconds, base, SECONDS_MAX)?;
                    Backoff { base_ms: base * 1000, max_ms: max * 1000, jitter }
                }
            };
        }
        Ok(())
    }

    /// What the change makes of dead letters must be whole. A queue that is not asked about them
    /// stays as it is, however it was made.
    fn check_dead_letters(&self, name: &str, settings: &Settings) -> Result<(), Problem> {
        if self.max_receive_count.is_none() && self.dead_letter_queue.is_none() {
            return Ok(());
        }
        let detail = match (settings.max_receive_count, settings.dead_letter_queue.as_deref()) {
            (_, Some(dead)) if dead == name => "at deadLetterQueue: it is the queue itself",
            (Some(_), None) => {
                "maxReceiveCount needs deadLetterQueue as well: where dead messages go"
            }
            (None, Some(_)) => {
                "deadLetterQueue needs maxReceiveCount as well: receives after which a message is dead"
            }
            _ => return Ok(()),
        };
        Err(ProblemKind::Unprocessable.because(detail))
    }

    fn apply_bounds(&self, settings: &mut Settings) -> Result<(), Problem> {
        let bound = |field, value: Given<u64>, bound: &mut Option<u64>| {
            if let Some(value) = value {
                value.map_or(Ok(0), |value| within(field, value, 1, u64::MAX))?;
                *bound = value;
            }
            Ok::<(), Problem>(())
        };
        bound("maxMessages", self.max_messages, &mut settings.max_messages)?;
        bound("maxBytes", self.max_bytes, &mut settings.max_bytes)?;
        if let Some(rate) = self.max_publish_per_second {
            settings.max_publish_per_second = rate.map(|rate| rate.0);
        }
        if let Some(age) = self.max_age_seconds {
            settings.max_age_ms = age.map(|seconds| seconds.0 * 1000);
        }
        if let Some(max) = self.max_inflight.flatten() {
            settings.max_inflight = within("maxInflight", max, 1, u64::MAX)?;
        }
        let large = self.large_bodies.flatten();
        if let Some(large) = large.filter(|large| *large != settings.large_bodies) {
            settings.large_bodies = large;
            let usual = if large { LARGE_BODY_BYTES_MAX } else { BODY_BYTES_MAX };
            // What was bounded more tightly stays so.
            let was_usual = settings.max_body_bytes >= BODY_BYTES_MAX;
            settings.max_body_bytes = if was_usual { usual } else { settings.max_body_bytes };
        }
        if let Some(max) = self.max_body_bytes.flatten() {
            settings.max_body_bytes = check_body_bytes(max, settings.large_bodies)?;
        }
        Ok(())
    }
}

/// In which settings two queues differ, by the names of the fields.
pub(super) fn differing(one: &Settings, other: &Settings) -> Vec<&'static str> {
    let (mine, its) = (&one.backoff, &other.backoff);
    let fields = [
        ("mode", one.mode == other.mode),
        ("retentionSeconds", one.retention_ms == other.retention_ms),
        ("defaultVisibilityTimeoutSeconds", one.visibility_ms == other.visibility_ms),
        ("delaySeconds", one.delay_ms == other.delay_ms),
        ("receiveWaitSeconds", one.wait_ms == other.wait_ms),
        ("maxReceiveCount", one.max_receive_count == other.max_receive_count),
        ("deadLetterQueue", one.dead_letter_queue == other.dead_letter_queue),
        ("retryBackoff.baseSeconds", mine.base_ms == its.base_ms),
        ("retryBackoff.maxSeconds", mine.max_ms == its.max_ms),
        ("retryBackoff.jitter", mine.jitter == its.jitter),
        ("deduplicationWindowSeconds", one.dedup_ms == other.dedup_ms),
        ("deduplicateByBody", one.dedup_by_body == other.dedup_by_body),
        ("maxMessages", one.max_messages == other.max_messages),
        ("maxBytes", one.max_bytes == other.max_bytes),
        ("maxPublishPerSecond", one.max_publish_per_second == other.max_publish_per_second),
        ("maxAgeSeconds", one.max_age_ms == other.max_age_ms),
        ("maxInflight", one.max_inflight == other.max_inflight),
        ("maxBodyBytes", one.max_body_bytes == other.max_body_bytes),
        ("largeBodies", one.large_bodies == other.large_bodies),
        ("tags", one.tags == other.tags),
        ("attributes of SQS", one.notes == other.notes),
    ];
    fields.into_iter().filter(|(_, same)| !same).map(|(field, _)| field).collect()
}

fn check_body_bytes(max: u64, large_bodies: bool) -> Result<u64, Problem> {
    if large_bodies || max <= BODY_BYTES_MAX {
        return within("maxBodyBytes", max, 1, LARGE_BODY_BYTES_MAX);
    }
    let detail =
        format!("at maxBodyBytes: it must be from 1 to {BODY_BYTES_MAX} without `largeBodies`");
    Err(ProblemKind::InvalidBody.because(detail))
}

fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), Problem> {
    let fits =
        |(name, value): (&String, &String)| (1..=128).contains(&name.len()) && value.len() <= 256;
    if tags.len() <= 50 && tags.iter().all(fits) {
        return Ok(());
    }
    let detail = "at tags: there must be from 0 to 50; a name must have from 1 to 128 bytes, a value \
        from 0 to 256";
    Err(ProblemKind::InvalidBody.because(detail))
}
