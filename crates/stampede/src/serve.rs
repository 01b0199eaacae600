//! `stampede serve`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use http_edge::auth::Auth;
use http_edge::telemetry::otlp::Tracer;
use http_edge::{Bound, Edge, ServerOptions, telemetry};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use node::{FolderError, Node, OnProgress, StartError};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{ServeConfig, ServeFlags};
use crate::listen;
use crate::remote::Usage;

/// Replay that is over sooner needs no bar.
const BAR_AFTER: Duration = Duration::from_millis(500);

pub(crate) fn run(flags: ServeFlags) -> anyhow::Result<ExitCode> {
    let mut config = flags.resolve()?;
    telemetry::logs::init(&config.log).map_err(|error| Usage(format!("--log: {error}")))?;
    telemetry::metrics::install();
    let bound = listen::bind(&config.listen)?;
    let bars = MultiProgress::new();
    if std::io::stderr().is_terminal() {
        config.node.on_progress = progress(bars.clone());
    }
    let node = Node::start(config.node.clone()).map_err(not_started)?;
    bars.clear().ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(config, node, bound))?;
    Ok(ExitCode::SUCCESS)
}

/// What the user wrote is told as such; of the rest, what to do about it.
fn not_started(error: StartError) -> anyhow::Error {
    match error {
        StartError::Setting(_) | StartError::Folder(FolderError::Shards { .. }) => {
            Usage(error.to_string()).into()
        }
        StartError::Folder(FolderError::InUse(_)) => {
            anyhow!("{error}: end that one, or --data names another folder")
        }
        StartError::Folder(FolderError::Io { .. }) => {
            anyhow!("the data folder cannot be used: {error}; --data names another")
        }
        other => other.into(),
    }
}

async fn serve(config: ServeConfig, node: Node, bound: Bound) -> anyhow::Result<()> {
    let tls = config.tls;
    let mut edge = Edge::new(node.clone());
    edge.auth = Auth::with_options(node.clone(), config.auth);
    edge.dev = config.dev;
    edge.tracer = config.otlp.map(Tracer::start);
    let address = bound.local_addr()?;
    let listener = bound
        .listen()
        .map_err(|error| anyhow!("cannot listen on {address}: {error}; --listen names another"))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    // After everything that can fail: a key that is made must be shown.
    let mut stdout = std::io::stdout();
    if let Some(key) = http_edge::auth::bootstrap(&node).await? {
        // Made with --dev as well: the folder may be served without it later.
        let needless = if config.dev { " (with --dev none is needed)" } else { "" };
        let shown = writeln!(stdout, "admin key, shown this once{needless}: {key}");
        shown.and_then(|()| stdout.flush()).map_err(|error| {
            anyhow!(
                "the admin key was made and cannot be shown: {error}; start with --dev on a loopback \
                 address, where POST /v1/keys needs no key and makes another"
            )
        })?;
    }
    let ready = writeln!(stdout, "stampede is ready on {scheme}://{address}");
    if let Err(error) = ready.and_then(|()| stdout.flush()) {
        // Whoever asks it finds out; that nobody reads this is no reason not to serve.
        tracing::warn!(%error, "standard output cannot be written to");
    }
    node.have_porter_here();
    let app = http_edge::app(Arc::new(edge));
    http_edge::serve(listener, app, ServerOptions { tls }, asked_to_stop()).await;
    node.shutdown().await;
    tracing::info!("stopped");
    Ok(())
}

/// Resolves on the first SIGTERM or SIGINT.
async fn asked_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be listened to");
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be listened to");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: no new connections, finishing what is under way");
}

/// A bar for each shard whose replay takes long enough to be waited for.
fn progress(bars: MultiProgress) -> OnProgress {
    let started = Instant::now();
    let by_shard = std::sync::Mutex::new(BTreeMap::<u16, ProgressBar>::new());
    Arc::new(move |shard, progress| {
        if started.elapsed() < BAR_AFTER {
            return;
        }
        let mut by_shard = by_shard.lock().expect("nothing panics with it held");
        let bar = by_shard.entry(shard.0).or_insert_with(|| {
            let template = "shard {msg} replay {bar:30} {pos}/{len} entries, {eta} left";
            let style = ProgressStyle::with_template(template).expect("a template that is tested");
            bars.add(ProgressBar::new(progress.last.0).with_style(style))
                .with_message(shard.to_string())
        });
        bar.set_position(progress.at.0);
    })
}
