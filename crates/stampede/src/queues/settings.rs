//! Settings of a queue, as flags: of one to be made, and of one that is there.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use client::{Backoff, Bound, NewQueue, QueueSettings, QueueUpdate};

use crate::remote::Usage;
use crate::values::{duration, number};

/// The longest pause when only the first is given.
const BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Args)]
pub(crate) struct SettingsFlags {
    /// Drop messages that are older, like 4d
    #[arg(long, value_parser = duration, value_name = "TIME")]
    retention: Option<Duration>,
    /// How long a lease lasts, like 30s
    #[arg(long, value_parser = duration, value_name = "TIME")]
    visibility: Option<Duration>,
    /// Hide messages at first, like 5m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    delay: Option<Duration>,
    /// How long a receive waits that does not say, up to 20s
    #[arg(long, value_parser = duration, value_name = "TIME")]
    receive_wait: Option<Duration>,
    /// Receives after which a message is dead; goes with --dead-letter
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=1000))]
    max_receives: Option<u32>,
    /// Where dead messages go; goes with --max-receives
    #[arg(long, value_name = "QUEUE")]
    dead_letter: Option<String>,
    /// The first pause after a failure, which doubles with each; at once when not given
    #[arg(long, value_parser = duration, value_name = "TIME")]
    backoff: Option<Duration>,
    /// The longest pause after a failure; goes with --backoff [default: 15m]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    backoff_max: Option<Duration>,
    /// Pauses are as long as they are told, not anything from half of it on; goes with --backoff
    #[arg(long)]
    no_jitter: bool,
    /// How long a message sent twice is known, like 5m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    dedup_window: Option<Duration>,
    /// Refuse messages beyond this number
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    max_messages: Option<u64>,
    /// Refuse messages beyond this number of bytes in the queue
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    max_bytes: Option<u64>,
    /// Refuse messages beyond this number in a second
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=1_000_000))]
    max_publish_per_second: Option<u32>,
    /// Refuse messages while the oldest that can be received has waited for longer, like 10m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    max_age: Option<Duration>,
    /// Lease no more than this number of messages at a time
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    max_inflight: Option<u64>,
    /// Refuse bodies of more bytes, with their attributes
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    max_body_bytes: Option<u64>,
    /// A note on the queue; may be given more than once, and those that were there go
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is like team=mail")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl SettingsFlags {
    fn settings(&self) -> Result<QueueSettings, Usage> {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
        // Not clap's `requires`: that holds nothing against `--no-backoff --backoff-max 60`.
        if self.backoff.is_none() && (self.backoff_max.is_some() || self.no_jitter) {
            let flag = if self.no_jitter { "--no-jitter" } else { "--backoff-max" };
            return Err(Usage(format!("{flag} needs --backoff: the first pause after a failure")));
        }
        if let Some(name) = self.tag_given_twice() {
            return Err(Usage(format!("--tag {name}: it is given twice")));
        }
        Ok(QueueSettings {
            retention_seconds: seconds(self.retention),
            default_visibility_timeout_seconds: seconds(self.visibility),
            delay_seconds: seconds(self.delay),
            receive_wait_seconds: seconds(self.receive_wait),
            max_receive_count: self.max_receives,
            dead_letter_queue: self.dead_letter.clone(),
            retry_backoff: self.backoff.map(|base| Backoff {
                base_seconds: base.as_secs(),
                max_seconds: self.backoff_max.unwrap_or(BACKOFF_MAX.max(base)).as_secs(),
                jitter: !self.no_jitter,
            }),
            deduplication_window_seconds: seconds(self.dedup_window),
            max_messages: self.max_messages,
            max_bytes: self.max_bytes,
            max_publish_per_second: self.max_publish_per_second,
            max_age_seconds: seconds(self.max_age),
            max_inflight: self.max_inflight,
            max_body_bytes: self.max_body_bytes,
            tags: (!self.tags.is_empty()).then(|| self.tags.iter().cloned().collect()),
            ..QueueSettings::default()
        })
    }

    fn tag_given_twice(&self) -> Option<&str> {
        let mut names = BTreeSet::new();
        self.tags.iter().map(|(name, _)| name.as_str()).find(|name| !names.insert(*name))
    }
}

/// A queue to be made.
#[derive(Args)]
pub(crate) struct NewQueueFlags {
    /// Keep the order of each group
    #[arg(long)]
    fifo: bool,
    /// Do not send the same body twice within the queue's window
    #[arg(long)]
    dedup_by_body: bool,
    /// Take bodies of more than 256 KiB, up to 16 MiB; they lie in the archive
    #[arg(long)]
    large_bodies: bool,
    #[command(flatten)]
    settings: SettingsFlags,
}

impl NewQueueFlags {
    pub(crate) fn queue(&self, name: &str) -> Result<NewQueue, Usage> {
        let mut settings = self.settings.settings()?;
        settings.deduplicate_by_body = self.dedup_by_body.then_some(true);
        settings.large_bodies = self.large_bodies.then_some(true);
        let wrong = |what: &str| Err(Usage(what.to_owned()));
        match (settings.max_receive_count, settings.dead_letter_queue.as_deref()) {
            (Some(_), None) => {
                return wrong("--max-receives needs --dead-letter: where dead messages go");
            }
            (None, Some(_)) => {
                return wrong("--dead-letter needs --max-receives: after how many one is dead");
            }
            _ => {}
        }
        let queue = NewQueue::new(name).settings(settings);
        Ok(if self.fifo { queue.fifo() } else { queue })
    }
}

/// A change of a queue: what is not given stays.
#[derive(Args)]
pub(super) struct UpdateFlags {
    /// The queue
    pub(super) queue: String,
    #[command(flatten)]
    settings: SettingsFlags,
    /// Whether the same body is not sent twice within the queue's window
    #[arg(long, value_name = "BOOL")]
    dedup_by_body: Option<bool>,
    /// Whether bodies of more than 256 KiB are taken, up to 16 MiB
    #[arg(long, value_name = "BOOL")]
    large_bodies: Option<bool>,
    /// No message dies any more
    #[arg(long, conflicts_with_all = ["max_receives", "dead_letter"])]
    no_dead_letter: bool,
    /// Failed messages are tried again at once
    #[arg(long, conflicts_with = "backoff")]
    no_backoff: bool,
    /// As many messages as there is room for
    #[arg(long, conflicts_with = "max_messages")]
    no_max_messages: bool,
    /// As many bytes as there is room for
    #[arg(long, conflicts_with = "max_bytes")]
    no_max_bytes: bool,
    /// As many messages a second as the tenant may send
    #[arg(long, conflicts_with = "max_publish_per_second")]
    no_max_publish_per_second: bool,
    /// Take messages however old the oldest is
    #[arg(long, conflicts_with = "max_age")]
    no_max_age: bool,
}

impl UpdateFlags {
    pub(super) fn change(&self) -> Result<QueueUpdate, Usage> {
        let mut settings = self.settings.settings()?;
        settings.deduplicate_by_body = self.dedup_by_body;
        settings.large_bodies = self.large_bodies;
        let clears: &[(bool, &[Bound])] = &[
            (self.no_dead_letter, &[Bound::MaxReceiveCount, Bound::DeadLetterQueue]),
            (self.no_backoff, &[Bound::RetryBackoff]),
            (self.no_max_messages, &[Bound::MaxMessages]),
            (self.no_max_bytes, &[Bound::MaxBytes]),
            (self.no_max_publish_per_second, &[Bound::MaxPublishPerSecond]),
            (self.no_max_age, &[Bound::MaxAgeSeconds]),
        ];
        if settings == QueueSettings::default() && clears.iter().all(|(asked, _)| !asked) {
            return Err(Usage("nothing to change was given; see --help".to_owned()));
        }
        let asked = clears.iter().filter(|(asked, _)| *asked).flat_map(|(_, bounds)| *bounds);
        Ok(asked.fold(QueueUpdate::set(settings), |change, bound| change.clear(*bound)))
    }
}
