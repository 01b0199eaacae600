//! What a shard measures, named by the five verbs.

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

/// Handles made once: looking a metric up by name for each command would cost more than the
/// command.
pub(crate) struct Meters {
    pub(crate) commands: Counter,
    pub(crate) entries: Counter,
    pub(crate) append_seconds: Histogram,
    pub(crate) apply_seconds: Histogram,
    pub(crate) publish_seconds: Histogram,
    pub(crate) checkpoint_seconds: Histogram,
    pub(crate) checkpoint_failures: Counter,
    pub(crate) inbox: Gauge,
    pub(crate) overlay_bytes: Gauge,
    pub(crate) log_bytes: Gauge,
    pub(crate) timers_in_memory: Gauge,
}

impl Meters {
    pub(crate) fn new(shard: u16) -> Meters {
        describe();
        let label = [("shard", shard.to_string())];
        Meters {
            commands: counter!("stampede_stamp_commands_total", &label),
            entries: counter!("stampede_append_entries_total", &label),
            append_seconds: histogram!("stampede_append_seconds", &label),
            apply_seconds: histogram!("stampede_apply_seconds", &label),
            publish_seconds: histogram!("stampede_publish_seconds", &label),
            checkpoint_seconds: histogram!("stampede_checkpoint_seconds", &label),
            checkpoint_failures: counter!("stampede_checkpoint_failures_total", &label),
            inbox: gauge!("stampede_inbox_requests", &label),
            overlay_bytes: gauge!("stampede_overlay_bytes", &label),
            log_bytes: gauge!("stampede_log_bytes", &label),
            timers_in_memory: gauge!("stampede_timers_in_memory", &label),
        }
    }
}

/// To be said again for each shard makes no difference.
fn describe() {
    describe_counter!("stampede_stamp_commands_total", "Commands put into log entries");
    describe_counter!("stampede_append_entries_total", "Entries appended to the log");
    describe_histogram!("stampede_append_seconds", "From appending an entry to its durability");
    describe_histogram!("stampede_apply_seconds", "Applying what has become durable");
    describe_histogram!("stampede_publish_seconds", "Publishing views and answers of entries");
    describe_histogram!("stampede_checkpoint_seconds", "Writing a checkpoint");
    describe_counter!("stampede_checkpoint_failures_total", "Checkpoints that were not taken");
    describe_gauge!("stampede_inbox_requests", "Requests waiting to be taken by the shard");
    describe_gauge!("stampede_overlay_bytes", "Rows in memory since the last checkpoint");
    describe_gauge!("stampede_log_bytes", "Bytes of the shard's log on disk");
    describe_gauge!("stampede_timers_in_memory", "Timers that are due soon");
}
