//! Prometheus metrics.
//!
//! | name | labels |
//! |---|---|
//! | `http_requests_total` | `operation`, `status` (`2xx`, …) |
//! | `http_request_duration_seconds` | `operation` |
//! | `http_connections` | |
//! | `http_accept_errors_total`, `http_tls_handshake_errors_total`, `http_panics_total` | |

use std::sync::OnceLock;
use std::time::Duration;

use http::StatusCode;
use metrics::{Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Upper bounds of histograms, in seconds.
const BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0,
];

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
            .install_recorder()
            .expect("nothing else in this process installs a recorder");
        describe();
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
