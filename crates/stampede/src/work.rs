//! `stampede work`: a command run for each message of a queue.

mod program;

use std::io::Write;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use client::{Delivery, Stopper};
use http_edge::telemetry::logs::{self, LogFormat, LogOptions};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::remote::{EXIT_CODES, KEY_VARIABLE, ServerFlags, block_on};
use crate::values::{lease, number};

/// Bytes of the last line of stderr that become part of a reason.
const LAST_LINE_BYTES_MAX: usize = 900;
/// How long stderr is read after its command has ended.
const STDERR_LINGER: Duration = Duration::from_millis(500);

/// Run a command for each message of a queue
///
/// The command gets the body on stdin (text without its quotes, anything else as JSON) and these
/// variables: STAMPEDE_QUEUE, STAMPEDE_MESSAGE_ID, STAMPEDE_SEQUENCE, STAMPEDE_RECEIVE_COUNT,
/// STAMPEDE_GROUP, and STAMPEDE_ATTR_name for each attribute. Exit status 0 is done; any other is
/// tried again as the queue says, with the status and the last line of stderr as the reason. The
/// lease is renewed while the command runs; a command whose lease is lost is killed. The key is not
/// in its environment, unless --pass-key says so.
///
/// A command that cannot be started ends the worker: its message goes back, and the exit code is 1.
///
/// On SIGTERM or ctrl-c no more messages are received, and running commands are waited for. The
/// second one kills them, and their messages go back; then the exit code is 1.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = EXIT_CODES)]
pub(crate) struct WorkFlags {
    #[command(flatten)]
    server: ServerFlags,
    /// The queue
    #[arg(long, short)]
    queue: String,
    /// Commands that run at the same time
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1,
          value_parser = number::<u16>(1..=1000))]
    concurrency: u16,
    /// How long a worker that dies holds its messages; commands may take longer
    #[arg(long, value_parser = lease, value_name = "TIME", default_value = "30s")]
    visibility: Duration,
    /// End when the queue is empty; each message is tried once, and a failure makes the exit code 1
    #[arg(long)]
    once: bool,
    /// Let the command have the key, in STAMPEDE_KEY
    #[arg(long)]
    pass_key: bool,
    /// What to log of lost leases and servers that are away
    #[arg(long, env = "STAMPEDE_LOG", value_name = "FILTER", default_value = "warn")]
    log: String,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(flags: WorkFlags) -> anyhow::Result<ExitCode> {
    let client = flags.server.client()?;
    // Before a message is received, and its receive counted, for nothing.
    if let Some(why) = program::missing(&flags.command[0]) {
        bail!("cannot start {}: {why}", flags.command[0]);
    }
    // Leases that are lost and servers that are away are told there.
    logs::init(&LogOptions { filter: flags.log, format: LogFormat::Auto })?;
    block_on(async move {
        let stopper = Stopper::default();
        let mut builder = client
            .queue(&flags.queue)
            .consumer()
            .concurrency(flags.concurrency)
            .visibility(flags.visibility)
            .grace(None)
            .must_connect()
            .stopper(stopper.clone());
        if flags.once {
            builder = builder.until_empty();
        }
        // Listened to before there is a message to lose.
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let errand = Arc::new(Errand {
            command: flags.command,
            queue: flags.queue,
            key: flags.server.key().filter(|_| flags.pass_key),
            stopper: stopper.clone(),
            cannot_start: OnceLock::new(),
        });
        let handler = Arc::clone(&errand);
        let consumer = builder.start(move |delivery| {
            let errand = Arc::clone(&handler);
            async move { errand.handle(&delivery).await }
        });
        let killed = Arc::new(AtomicBool::new(false));
        tokio::spawn(obey_signals(terminate, interrupt, stopper, Arc::clone(&killed)));
        let summary = consumer.ended().await?;
        let client::Summary { done, failed, given_back, lost, .. } = summary;
        eprintln!(
            "stampede: {done} done, {failed} failed, {given_back} given back, {lost} not known acked"
        );
        if let Some(why) = errand.cannot_start.get() {
            bail!("cannot start {why}; its message went back");
        }
        let graceful = !killed.load(Ordering::Relaxed);
        let well = graceful && (failed == 0 || !flags.once);
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// The first signal stops, the second kills.
async fn obey_signals(
    mut terminate: Signals,
    mut interrupt: Signals,
    stopper: Stopper,
    killed: Arc<AtomicBool>,
) {
    for count in 0.. {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if count == 0 {
            eprintln!("stampede: waiting for running commands; once more kills them");
            stopper.stop();
        } else {
            killed.store(true, Ordering::Relaxed);
            stopper.abort();
        }
    }
}

/// What is run, for which queue.
struct Errand {
    command: Vec<String>,
    queue: String,
    /// That the command is to have.
    key: Option<String>,
    stopper: Stopper,
    /// Why no message can be worked on: the program is not there.
    cannot_start: OnceLock<String>,
}

impl Errand {
    async fn handle(&self, delivery: &Delivery) -> Result<(), String> {
        let cannot = |error: std::io::Error| format!("{}: {error}", self.command[0]);
        let started = self.start(delivery).map_err(|error| {
            let for_all = program::is_fault_of(&error);
            let why = cannot(error);
            if for_all {
                // The next message would fare no better.
                let _ = self.cannot_start.set(why.clone());
                self.stopper.stop();
            }
            why
        });
        let mut running = Running(started?);
        let mut stdin = running.0.stdin.take().expect("piped");
        let stderr = running.0.stderr.take().expect("piped");
        let body = delivery.plain_body();
        let last = Arc::new(Mutex::new(String::new()));
        let mut reading = tokio::spawn(pass_on(stderr, Arc::clone(&last)));
        let feed = async {
            // A command may well not read its body.
            let _ = stdin.write_all(&body).await;
            drop(stdin);
            std::future::pending().await
        };
        let status = tokio::select! {
            status = running.0.wait() => status,
            never = feed => never,
            () = delivery.lease_lost().cancelled() => {
                return Err("the lease was lost; the command was killed".to_owned());
            }
        };
        // What the command has left behind may hold its stderr open for ever.
        let _ = tokio::time::timeout(STDERR_LINGER, &mut reading).await;
        let last = last.lock().expect("nothing panics with it held").clone();
        let status = status.map_err(cannot)?;
        if status.success() {
            return Ok(());
        }
        let reason = said(status);
        Err(if last.is_empty() { reason } else { format!("{reason}: {last}") })
    }

    fn start(&self, delivery: &Delivery) -> std::io::Result<Child> {
        let mut process = Command::new(&self.command[0]);
        process.args(&self.command[1..]);
        process.env("STAMPEDE_QUEUE", &self.queue);
        process.env("STAMPEDE_MESSAGE_ID", &delivery.message_id);
        process.env("STAMPEDE_SEQUENCE", delivery.sequence.to_string());
        process.env("STAMPEDE_RECEIVE_COUNT", delivery.receive_count.to_string());
        // What a message makes a program do is not ours to trust with the tenant's key.
        match &self.key {
            Some(key) => process.env(KEY_VARIABLE, key),
            None => process.env_remove(KEY_VARIABLE),
        };
        // A worker may run in a worker: what describes another message is not passed on.
        process.env_remove("STAMPEDE_GROUP");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"STAMPEDE_ATTR_") {
                process.env_remove(name);
            }
        }
        if let Some(group) = &delivery.message_group_id {
            process.env("STAMPEDE_GROUP", group);
        }
        for (name, value) in &delivery.attributes {
            let value = value.to_string();
            // What no variable can be is not passed on; the command would not start.
            if !name.contains(['=', '\0']) && !value.contains('\0') {
                process.env(format!("STAMPEDE_ATTR_{name}"), value);
            }
        }
        process.stdin(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: ctrl-c at the terminal is for us, who let it finish, and a kill
        // reaches whatever the command has started.
        process.process_group(0).spawn()
    }
}

/// A command that does not outlive its handler.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // `None` once it was waited for.
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            // It may have ended by itself a moment ago.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

/// Passes stderr on, and keeps its last line that is not blank.
async fn pass_on(stderr: ChildStderr, last: Arc<Mutex<String>>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        // Our own stderr may be closed; the command is not to suffer for it.
        let _ = std::io::stderr().write_all(&line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !text.is_empty() {
            let text = &text[..text.floor_char_boundary(LAST_LINE_BYTES_MAX)];
            text.clone_into(&mut last.lock().expect("nothing panics with it held"));
        }
        line.clear();
    }
}

fn said(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(number)) => format!("killed by signal {number}"),
        (None, None) => status.to_string(),
    }
}
