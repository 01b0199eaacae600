//! Watches a node through the metrics that it publishes: when checkpoints ran, and how much of
//! rows is in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use metrics::{
    Counter, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

/// From when to when something ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

/// What has been seen.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    checkpoints: Arc<Windows>,
    overlay: Arc<Level>,
}

#[derive(Default)]
struct Windows(Mutex<Vec<Window>>);

impl HistogramFn for Windows {
    /// Recorded at the end of what took so long.
    fn record(&self, seconds: f64) {
        let to = Instant::now();
        let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let from = to.checked_sub(took).unwrap_or(to);
        self.0.lock().push(Window { from, to });
    }
}

/// A gauge's value, as the bits of a float.
#[derive(Default)]
struct Level(AtomicU64);

impl GaugeFn for Level {
    fn increment(&self, _value: f64) {}

    fn decrement(&self, _value: f64) {}

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Watch {
    /// Watches everything in this process from now on.
    pub(crate) fn install() -> Result<Watch> {
        let watch = Watch::default();
        metrics::set_global_recorder(watch.clone())
            .map_err(|_| anyhow!("this process is watched already"))?;
        Ok(watch)
    }

    /// Checkpoints that have ended.
    pub(crate) fn checkpoints(&self) -> Vec<Window> {
        self.checkpoints.0.lock().clone()
    }

    /// Bytes of rows in memory, half a second ago at most.
    pub(crate) fn overlay_bytes(&self) -> f64 {
        f64::from_bits(self.overlay.0.load(Ordering::Relaxed))
    }
}

impl Recorder for Watch {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match key.name() {
            "stampede_overlay_bytes" => Gauge::from_arc(Arc::clone(&self.overlay)),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "stampede_checkpoint_seconds" => Histogram::from_arc(Arc::clone(&self.checkpoints)),
            _ => Histogram::noop(),
        }
    }
}
