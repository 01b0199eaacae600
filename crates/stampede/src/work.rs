//! `stampede work`: a command run for each message of a queue.

mod program;
mod relay;
mod signals;
mod stderr;

use std::io;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use client::{Client, Delivery, Stopper};
use http_edge::telemetry::logs::{self, LogFormat, LogOptions};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use self::relay::{Lines, Relay, STALLED};
use self::signals::{Asked, Signals};
use self::stderr::{LastLine, pass_on};
use crate::remote::{EXIT_CODES, KEY_VARIABLE, ServerFlags, block_on};
use crate::values::{lease, number};

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
/// A command that cannot be started ends the worker: its message goes back, uncounted, and the exit
/// code is 1. What a command that failed has started and left behind is killed.
///
/// On SIGTERM, ctrl-c or the end of the terminal no more messages are received, and running commands
/// are waited for. A second SIGTERM or ctrl-c kills them, and their messages go back; then the exit
/// code is 1.
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
    let relay = Relay::start(io::stderr());
    // Leases that are lost and servers that are away are told there.
    let log = LogOptions { filter: flags.log.clone(), format: LogFormat::Auto };
    let lines = Arc::clone(&relay);
    logs::init_to(&log, move || Lines(Arc::clone(&lines)))?;
    block_on(async move {
        // Listened to before there is a message to lose.
        let signals = Signals::listen()?;
        let (stopper, asked) = (Stopper::default(), Asked::default());
        tokio::spawn(signals.obey(stopper.clone(), asked.clone(), Arc::clone(&relay)));
        let code = match work(&client, flags, stopper, &asked, &relay).await {
            Ok(code) => code,
            Err(error) => {
                let (line, code) = crate::told(&error);
                relay.pass(format!("{line}\n").into_bytes()).await;
                code
            }
        };
        // Whoever reads it slowly sees it all, unless somebody wants an end.
        tokio::select! {
            () = relay.flush() => {}
            () = async {
                asked.to_stop.cancelled().await;
                tokio::time::sleep(STALLED).await;
            } => {}
        }
        Ok(code)
    })
}

async fn work(
    client: &Client,
    flags: WorkFlags,
    stopper: Stopper,
    asked: &Asked,
    relay: &Arc<Relay>,
) -> anyhow::Result<ExitCode> {
    let builder = client.queue(&flags.queue).consumer();
    let builder = builder.concurrency(flags.concurrency).visibility(flags.visibility);
    let mut builder = builder.grace(None).must_connect().stopper(stopper.clone());
    if flags.once {
        builder = builder.until_empty();
    }
    let errand = Arc::new(Errand {
        command: flags.command,
        queue: flags.queue,
        key: flags.server.key().filter(|_| flags.pass_key),
        stopper,
        relay: Arc::clone(relay),
        cannot_start: OnceLock::new(),
    });
    let handler = Arc::clone(&errand);
    let consumer = builder.start(move |delivery| {
        let errand = Arc::clone(&handler);
        async move { errand.handle(&delivery).await }
    });
    let summary = consumer.ended().await?;
    let client::Summary { done, failed, given_back, lost, .. } = summary;
    let counts =
        format!("{done} done, {failed} failed, {given_back} given back, {lost} not known acked");
    relay.pass(format!("stampede: {counts}\n").into_bytes()).await;
    if let Some(why) = errand.cannot_start.get() {
        bail!("cannot start {why}; its message went back");
    }
    let graceful = !asked.to_kill.is_cancelled();
    let well = graceful && (failed == 0 || !flags.once);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is run, for which queue.
struct Errand {
    command: Vec<String>,
    queue: String,
    /// That the command is to have.
    key: Option<String>,
    stopper: Stopper,
    relay: Arc<Relay>,
    /// Why no message can be worked on: the program is not there.
    cannot_start: OnceLock<String>,
}

impl Errand {
    async fn handle(&self, delivery: &Delivery) -> Result<(), String> {
        let started = self.start(delivery);
        let mut running = Running::new(started.map_err(|e| self.cannot_start(delivery, &e))?);
        let mut stdin = running.child.stdin.take().expect("piped");
        let stderr = running.child.stderr.take().expect("piped");
        let body = delivery.plain_body();
        let last = Arc::new(Mutex::new(LastLine::default()));
        let passing = pass_on(stderr, Arc::clone(&self.relay), Arc::clone(&last));
        let mut passing = tokio::spawn(passing);
        let feed = async {
            // A command may well not read its body.
            let _ = stdin.write_all(&body).await;
            drop(stdin);
            std::future::pending().await
        };
        let status = tokio::select! {
            status = running.child.wait() => status,
            never = feed => never,
            () = delivery.lease_lost().cancelled() => {
                return Err("the lease was lost; the command was killed".to_owned());
            }
        };
        if status.as_ref().is_ok_and(ExitStatus::success) {
            running.leave();
        }
        drop(running);
        // What the command has left behind may hold its stderr open for ever.
        let _ = tokio::time::timeout(STDERR_LINGER, &mut passing).await;
        let status = status.map_err(|error| format!("{}: {error}", self.command[0]))?;
        if status.success() {
            return Ok(());
        }
        let reason = said(status);
        let last = last.lock().expect("nothing panics with it held").shown();
        Err(if last.is_empty() { reason } else { format!("{reason}: {last}") })
    }

    /// Why not.
    fn cannot_start(&self, delivery: &Delivery, error: &io::Error) -> String {
        let why = format!("{}: {error}", self.command[0]);
        if program::is_fault_of(error) {
            // The next message would fare no better, and this one was not begun.
            delivery.give_back();
            let _ = self.cannot_start.set(why.clone());
            self.stopper.stop();
        }
        why
    }

    fn start(&self, delivery: &Delivery) -> io::Result<Child> {
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

/// A command that does not outlive its handler, nor does what it has started, unless all went well.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    fn new(child: Child) -> Running {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Running { child, group: id.and_then(Pid::from_raw) }
    }

    /// What it has left behind may go on.
    fn leave(&mut self) {
        self.group = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // It may be empty: the number is nobody else's yet, a moment after the command has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
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
