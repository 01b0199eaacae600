//! The slow part of a checkpoint, on a thread that gives way to the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kernel::{BaseError, Layer, ShardId};
use metrics::Histogram;
use parking_lot::Mutex;
use shard::CheckpointJob;
use store::{BREATH, Breath};

use crate::inbox::Note;
use crate::node::panic_text;
use crate::runner::{NodeInbox, NodeNote};

/// A checkpoint rests this many times as long as it works, unless it is waited for: on a machine
/// whose cores are all busy serving, it may take a fourth of one.
const REST_FACTOR: u32 = 3;
/// A rest is never so long that the overlay fills up meanwhile.
const REST_MAX: Duration = Duration::from_millis(20);
/// What the scheduler calls "nice": the shard goes first when both want the core.
const NICE: i32 = 15;

/// Makes the calling thread, and those it starts, give way.
pub(crate) fn give_way() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICE) {
        tracing::debug!(%error, "cannot lower the priority of a background thread");
    }
}

/// Runs a job on a thread of its own and leaves a note in the shard's inbox. While it is told to hurry it
/// only takes breath.
pub(crate) fn start(
    shard: ShardId,
    job: CheckpointJob,
    inbox: Arc<NodeInbox>,
    hurry: Arc<AtomicBool>,
    histogram: Histogram,
) {
    let run = move || {
        give_way();
        let started = Instant::now();
        let breath = Mutex::new(Breath::default());
        let pace = || {
            breath.lock().breathe_for(|worked| {
                let rest = (worked * REST_FACTOR).min(REST_MAX);
                if hurry.load(Ordering::Relaxed) { BREATH } else { rest }
            });
        };
        // A panic in there must not leave the shard waiting for a word that never comes.
        let result = catch_unwind(AssertUnwindSafe(|| job.run(&pace))).unwrap_or_else(|panic| {
            Err(BaseError::Failed { doing: "checkpointing", source: panic_text(&*panic).into() })
        });
        histogram.record(started.elapsed());
        inbox.note(Note::Node(NodeNote::Checkpointed(job, result)));
    };
    std::thread::Builder::new()
        .name(format!("checkpoint-{shard}"))
        .spawn(run)
        .expect("the system has room for a thread");
}

/// Frees a layer elsewhere: a gigabyte of rows takes longer to free than a request may wait.
pub(crate) fn free(layer: Option<Arc<Layer>>) {
    let run = move || {
        give_way();
        // Somebody who still reads it frees it, later.
        if let Some(layer) = layer.and_then(Arc::into_inner) {
            let mut breath = Breath::default();
            layer.free(|| breath.breathe());
        }
    };
    let thread = std::thread::Builder::new().name("free-layer".into());
    if let Err(error) = thread.spawn(run) {
        // The closure, and the layer in it, were dropped here and now.
        tracing::debug!(%error, "a layer was freed on the shard's thread");
    }
}
