//! Prometheus metrics that are counted as things happen. `docs/metrics.md` lists them all; what is
//! looked at only when somebody asks is in `census`.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use http::StatusCode;
use metrics::{Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;

/// Upper bounds of histograms, in seconds.
const BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0,
];

/// As [`BUCKETS`], of the age of messages: up to the retention that queues usually have.
const AGE_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0,
    43_200.0, 86_400.0, 345_600.0,
];

pub(super) const QUEUE_REQUEST: &str = "stampede_queue_request_seconds";
pub(super) const MESSAGE_AGE: &str = "stampede_queue_message_age_seconds";
const THROTTLED: &str = "stampede_throttled_total";
const BODIES_LOST: &str = "stampede_queue_bodies_lost_total";

/// How often samples are moved into their buckets: they wait in memory until then.
const UPKEEP: Duration = Duration::from_secs(1);

static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

/// Installs the recorder behind the `metrics` macros. Comes before [`app`](crate::app()), whose
/// handles would lead nowhere otherwise. A second call changes nothing.
///
/// # Panics
/// When another recorder is installed in this process.
pub fn install() {
    RECORDER.get_or_init(|| {
        let handle = PrometheusBuilder::new()
            .set_buckets(BUCKETS)
            .expect("there are buckets")
            .set_buckets_for_metric(Matcher::Full(MESSAGE_AGE.to_owned()), AGE_BUCKETS)
            .expect("there are buckets")
            .install_recorder()
            .expect("nothing else in this process installs a recorder");
        describe();
        begin();
        let upkeep = handle.clone();
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        thread
            .spawn(move || {
                loop {
                    std::thread::sleep(UPKEEP);
                    upkeep.run_upkeep();
                }
            })
            .expect("a thread can be started");
        handle
    });
}

fn describe() {
    describe_counter!("http_requests_total", "Requests answered");
    describe_histogram!("http_request_duration_seconds", "From the head to the answer's head");
    describe_gauge!("http_connections", "Connections open");
    describe_counter!("http_accept_errors_total", "Connections that could not be accepted");
    describe_counter!("http_tls_handshake_errors_total", "TLS handshakes that failed");
    describe_counter!("http_panics_total", "Defects that a request ran into");
    describe_counter!("otlp_spans_dropped_total", "Spans that could not be exported");
    describe_histogram!(
        QUEUE_REQUEST,
        "From asking a shard to its answer, without waiting in line"
    );
    describe_histogram!(MESSAGE_AGE, "From sending a message to receiving it");
    describe_counter!(BODIES_LOST, "Large bodies that were not in the archive as they were sent");
    describe_counter!(
        THROTTLED,
        "Refusals because a quota or a bound was reached, by tenant and its name"
    );
}

/// Shows at 0 what should never happen: an alarm on a counter that is not there yet misses the first
/// time.
fn begin() {
    for name in [
        "http_accept_errors_total",
        "http_tls_handshake_errors_total",
        "http_panics_total",
        "otlp_spans_dropped_total",
        BODIES_LOST,
    ] {
        counter!(name).absolute(0);
    }
}

/// Tenants whose refusals are told apart: a counter stays until the process ends, its tenant need not.
const TENANTS_MAX: usize = 1000;
/// No tenant has this name.
const OTHERS: &str = "(others)";
/// Those that are told apart.
static THROTTLED_TENANTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// So many refusals of a tenant because a quota or a bound was reached.
pub(crate) fn throttled(tenant: &str, quota: &str, count: u64) {
    let tenant = told_apart(&mut THROTTLED_TENANTS.lock(), tenant).to_owned();
    counter!(THROTTLED, "tenant" => tenant, "quota" => quota.to_owned()).increment(count);
}

fn told_apart<'a>(known: &mut BTreeSet<String>, tenant: &'a str) -> &'a str {
    if !known.contains(tenant) {
        if known.len() >= TENANTS_MAX {
            return OTHERS;
        }
        known.insert(tenant.to_owned());
    }
    tenant
}

/// A large body is not in the archive, or is another there.
pub(crate) fn body_lost() {
    counter!(BODIES_LOST).increment(1);
}

/// Everything measured so far, as text.
#[must_use]
pub fn render() -> String {
    RECORDER.get().map(PrometheusHandle::render).unwrap_or_default()
}

/// The handles of one operation.
pub(crate) struct Meter {
    by_class: [Counter; 5],
    duration: Histogram,
}

impl Meter {
    pub(crate) fn new(operation: &'static str) -> Meter {
        let by_class = ["1xx", "2xx", "3xx", "4xx", "5xx"].map(
            |class| counter!("http_requests_total", "operation" => operation, "status" => class),
        );
        let duration =
            metrics::histogram!("http_request_duration_seconds", "operation" => operation);
        Meter { by_class, duration }
    }

    pub(crate) fn record(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5);
        self.by_class[class - 1].increment(1);
        self.duration.record(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_told_apart_until_there_are_too_many() {
        let mut known = BTreeSet::new();
        for number in 0..TENANTS_MAX {
            let tenant = format!("t{number}");
            assert_eq!(told_apart(&mut known, &tenant), tenant);
        }
        assert_eq!(told_apart(&mut known, "one-more"), OTHERS);
        assert_eq!(told_apart(&mut known, "t7"), "t7");
        assert_eq!(known.len(), TENANTS_MAX);
    }
}
