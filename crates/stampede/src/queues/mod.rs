//! `stampede queue`: queues of a server, by hand and for scripts.

mod redrive;
mod send;
mod tail;

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use client::{Backoff, Client, NewQueue, PeekState, QueueSettings, Receive};

use crate::remote::{ServerFlags, Usage, block_on, duration, print};
use crate::show;

#[derive(Args)]
pub(crate) struct QueueFlags {
    #[command(flatten)]
    server: ServerFlags,
    /// Machine-readable: a line of JSON for each thing
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand)]
enum QueueCommand {
    /// List queues and what is in them
    Ls {
        /// Only those whose names begin so
        prefix: Option<String>,
    },
    /// Make a queue; the same name with the same settings is no error
    Create(Box<CreateFlags>),
    /// Send a message, or many with --lines
    ///
    /// The body is the argument, the file, or else stdin (without its last line break). What is
    /// JSON is sent as JSON, and anything else as text.
    Send(send::SendFlags),
    /// Receive messages: lease and print them
    ///
    /// Without --ack they come back when the lease ends, and it counts as a receive: to look only,
    /// `peek`. With --ack they are gone once they are printed.
    Receive(ReceiveFlags),
    /// Look at messages without taking them
    Peek(PeekFlags),
    /// Bring dead letters back to the queues they died in, and follow it
    Redrive(redrive::RedriveFlags),
    /// Remove everything in a queue, what is leased included
    Purge {
        /// The queue
        queue: String,
        /// Without asking; nobody is asked when stdin is no terminal
        #[arg(long, short)]
        yes: bool,
    },
    /// Print messages as they arrive, and leave them where they are
    ///
    /// It looks at the queue every half a second and prints what it has not seen: what can be
    /// received, and what somebody is working on. A message that comes and is done in between is
    /// missed, and so is what lies behind the first thousand. It counts as no receive.
    Tail(tail::TailFlags),
}

#[derive(Args)]
struct CreateFlags {
    /// 1 to 80 of A-Z a-z 0-9 - _ .
    name: String,
    /// Keep the order of each group
    #[arg(long)]
    fifo: bool,
    /// Drop messages that are older, like 4d
    #[arg(long, value_parser = duration, value_name = "TIME")]
    retention: Option<Duration>,
    /// How long a lease lasts, like 30s
    #[arg(long, value_parser = duration, value_name = "TIME")]
    visibility: Option<Duration>,
    /// Hide messages at first, like 5m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    delay: Option<Duration>,
    /// Receives after which a message is dead; needs --dead-letter
    #[arg(long, value_name = "N", requires = "dead_letter")]
    max_receives: Option<u32>,
    /// Where dead messages go; needs --max-receives
    #[arg(long, value_name = "QUEUE", requires = "max_receives")]
    dead_letter: Option<String>,
    /// The first pause after a failure, which doubles with each; at once when not given
    #[arg(long, value_parser = duration, value_name = "TIME")]
    backoff: Option<Duration>,
    /// The longest pause after a failure
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "15m")]
    backoff_max: Duration,
    /// Do not send the same body twice within the queue's window
    #[arg(long)]
    dedup_by_body: bool,
    /// Refuse messages beyond this number
    #[arg(long, value_name = "N")]
    max_messages: Option<u64>,
}

#[derive(Args)]
struct ReceiveFlags {
    /// The queue
    queue: String,
    /// Messages at most, up to 100
    #[arg(long, short = 'n', default_value_t = 1)]
    max: u16,
    /// Wait so long for the first, up to 20s
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "0")]
    wait: Duration,
    /// Lease for so long; as the queue says when not given
    #[arg(long, value_parser = duration, value_name = "TIME")]
    visibility: Option<Duration>,
    /// Take them for good, once they are printed
    #[arg(long)]
    ack: bool,
}

#[derive(Args)]
struct PeekFlags {
    /// The queue
    queue: String,
    /// Messages at most, up to 1000
    #[arg(long, short = 'n', default_value_t = 10)]
    max: u32,
    /// Which
    #[arg(long, value_enum, default_value_t = StateName::Visible)]
    state: StateName,
}

#[derive(Clone, Copy, ValueEnum)]
enum StateName {
    /// Those that can be received
    Visible,
    /// Those whose time has not come
    Delayed,
    /// Those that somebody works on
    Inflight,
}

pub(crate) fn run(flags: QueueFlags) -> anyhow::Result<ExitCode> {
    let QueueFlags { server, json, command } = flags;
    let client = server.client()?;
    block_on(async move {
        match command {
            QueueCommand::Ls { prefix } => ls(&client, json, prefix.as_deref()).await,
            QueueCommand::Create(flags) => create(&client, json, *flags).await,
            QueueCommand::Send(flags) => send::run(&client, json, flags).await,
            QueueCommand::Receive(flags) => receive(&client, json, &flags).await,
            QueueCommand::Peek(flags) => peek(&client, json, &flags).await,
            QueueCommand::Redrive(flags) => redrive::run(&client, json, flags).await,
            QueueCommand::Purge { queue, yes } => purge(&client, json, &queue, yes).await,
            QueueCommand::Tail(flags) => tail::run(&client, json, &flags).await,
        }
    })
}

async fn ls(client: &Client, json: bool, prefix: Option<&str>) -> anyhow::Result<ExitCode> {
    let queues = client.queues().list_all(prefix.unwrap_or_default()).await?;
    print(&if json { show::json_lines(&queues)? } else { show::queues(&queues) })?;
    Ok(ExitCode::SUCCESS)
}

async fn create(client: &Client, json: bool, flags: CreateFlags) -> anyhow::Result<ExitCode> {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
    let settings = QueueSettings {
        retention_seconds: seconds(flags.retention),
        default_visibility_timeout_seconds: seconds(flags.visibility),
        delay_seconds: seconds(flags.delay),
        max_receive_count: flags.max_receives,
        dead_letter_queue: flags.dead_letter,
        retry_backoff: flags.backoff.map(|base| Backoff {
            base_seconds: base.as_secs(),
            max_seconds: flags.backoff_max.max(base).as_secs(),
            jitter: true,
        }),
        deduplicate_by_body: flags.dedup_by_body.then_some(true),
        max_messages: flags.max_messages,
        ..QueueSettings::default()
    };
    let mut queue = NewQueue::new(flags.name).settings(settings);
    if flags.fifo {
        queue = queue.fifo();
    }
    let made = client.queues().create(&queue).await?;
    print(&if json {
        show::json_lines(&[made])?
    } else {
        format!("{} is there, as {}\n", made.name, made.queue_id)
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn receive(client: &Client, json: bool, flags: &ReceiveFlags) -> anyhow::Result<ExitCode> {
    let queue = client.queue(&flags.queue);
    let mut ask = Receive::up_to(flags.max).wait(flags.wait);
    if let Some(visibility) = flags.visibility {
        ask = ask.visibility(visibility);
    }
    let messages = queue.receive(ask).await?;
    print(&if json { show::json_lines(&messages)? } else { show::messages(&messages) })?;
    if flags.ack && !messages.is_empty() {
        let handles: Vec<_> = messages.iter().map(|m| m.receipt_handle.clone()).collect();
        for result in queue.ack_batch(&handles).await? {
            result?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn peek(client: &Client, json: bool, flags: &PeekFlags) -> anyhow::Result<ExitCode> {
    let state = match flags.state {
        StateName::Visible => PeekState::Visible,
        StateName::Delayed => PeekState::Delayed,
        StateName::Inflight => PeekState::Inflight,
    };
    let messages = client.queue(&flags.queue).peek(state, flags.max).await?;
    print(&if json { show::json_lines(&messages)? } else { show::messages(&messages) })?;
    Ok(ExitCode::SUCCESS)
}

async fn purge(client: &Client, json: bool, name: &str, yes: bool) -> anyhow::Result<ExitCode> {
    if !yes && std::io::stdin().is_terminal() {
        print(&format!("Remove everything in {name}, for good? [y/N] "))?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(Usage("nothing was removed".to_owned()).into());
        }
    }
    client.queues().purge(name).await?;
    let said = serde_json::json!({"name": name, "purged": true});
    print(&if json { format!("{said}\n") } else { format!("{name} is empty\n") })?;
    Ok(ExitCode::SUCCESS)
}
