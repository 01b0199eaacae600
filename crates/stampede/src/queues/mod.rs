//! `stampede queue`: queues of a server, by hand and for scripts.

mod redrive;
pub(crate) mod send;
pub(crate) mod settings;
mod tail;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use client::{Client, PeekState, QueueInfo, Receive};

use crate::output::print;
use crate::remote::{EXIT_CODES, ServerFlags, block_on, confirm};
use crate::show;
use crate::values::{duration, number};

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
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
    /// Show a queue: its settings, what is in it, what happens in it
    Show {
        /// The queue
        queue: String,
    },
    /// Change settings of a queue; what is not given stays
    Update(Box<settings::UpdateFlags>),
    /// Delete a queue and everything in it
    Delete {
        /// The queue
        queue: String,
        /// Without asking; nobody is asked when stdin is no terminal
        #[arg(long, short)]
        yes: bool,
    },
    /// Send a message, or many with --lines
    ///
    /// The body is the argument, the file, or else stdin (without its last line break). What is
    /// JSON is sent as JSON, and anything else as text.
    Send(send::SendFlags),
    /// Receive messages: lease and print them
    ///
    /// Without --ack they come back when the lease ends, and it counts as a receive: to look only,
    /// `peek`. With --ack they are gone once they are printed, in a table with their bodies whole.
    Receive(ReceiveFlags),
    /// Look at messages without taking them
    Peek(PeekFlags),
    /// Bring dead letters back to the queues they died in, and follow it
    ///
    /// Its id is said on stderr at once. It goes on without anybody who follows it; --status ID
    /// shows it and --cancel ID ends it.
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
    /// 1 to 80 of A-Z a-z 0-9 . - _
    name: String,
    #[command(flatten)]
    queue: settings::NewQueueFlags,
}

#[derive(Args)]
struct ReceiveFlags {
    /// The queue
    queue: String,
    /// Messages at most, up to 100
    #[arg(long, short = 'n', default_value_t = 1, value_parser = number::<u16>(1..=100))]
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
    #[arg(long, short = 'n', default_value_t = 10, value_parser = number::<u16>(1..=1000))]
    max: u16,
    /// Which
    #[arg(long, value_enum, default_value_t = StateName::Visible)]
    state: StateName,
    /// Go on where an earlier look ended, which said so; with --json, in a last line of its own
    #[arg(long)]
    cursor: Option<String>,
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
            QueueCommand::Create(flags) => create(&client, json, &flags).await,
            QueueCommand::Show { queue } => print_queue(json, &client.queues().get(&queue).await?),
            QueueCommand::Update(flags) => update(&client, json, &flags).await,
            QueueCommand::Delete { queue, yes } => delete(&client, json, &queue, yes).await,
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

async fn create(client: &Client, json: bool, flags: &CreateFlags) -> anyhow::Result<ExitCode> {
    let made = client.queues().create(&flags.queue.queue(&flags.name)?).await?;
    print(&if json {
        show::json_lines(&[made])?
    } else {
        show::made(&made.name, &made.queue_id, made.created)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print_queue(json: bool, queue: &QueueInfo) -> anyhow::Result<ExitCode> {
    let lines = || show::json_lines(std::slice::from_ref(queue));
    print(&if json { lines()? } else { show::queue(queue) })?;
    Ok(ExitCode::SUCCESS)
}

async fn update(
    client: &Client,
    json: bool,
    flags: &settings::UpdateFlags,
) -> anyhow::Result<ExitCode> {
    let change = flags.change()?;
    print_queue(json, &client.queues().update(&flags.queue, &change).await?)
}

async fn delete(client: &Client, json: bool, name: &str, yes: bool) -> anyhow::Result<ExitCode> {
    confirm(&format!("Delete {name} and everything in it, for good?"), yes)?;
    client.queues().delete(name).await?;
    let said = serde_json::json!({"name": name, "deleted": true});
    print(&if json { format!("{said}\n") } else { format!("{name} is gone\n") })?;
    Ok(ExitCode::SUCCESS)
}

async fn receive(client: &Client, json: bool, flags: &ReceiveFlags) -> anyhow::Result<ExitCode> {
    let queue = client.queue(&flags.queue);
    let mut ask = Receive::up_to(flags.max).wait(flags.wait);
    if let Some(visibility) = flags.visibility {
        ask = ask.visibility(visibility);
    }
    let messages = queue.receive(ask).await?;
    // What is gone afterwards is shown whole.
    let table = if flags.ack { show::whole_messages } else { show::messages };
    let printed = print(&if json { show::json_lines(&messages)? } else { table(&messages) });
    if flags.ack && !messages.is_empty() {
        printed.map_err(|error| anyhow!("not acked, because it cannot be printed: {error}"))?;
        let handles: Vec<_> = messages.iter().map(|m| m.receipt_handle.clone()).collect();
        for result in queue.ack_batch(&handles).await? {
            result?;
        }
    } else {
        printed?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn peek(client: &Client, json: bool, flags: &PeekFlags) -> anyhow::Result<ExitCode> {
    let state = match flags.state {
        StateName::Visible => PeekState::Visible,
        StateName::Delayed => PeekState::Delayed,
        StateName::Inflight => PeekState::Inflight,
    };
    let queue = client.queue(&flags.queue);
    let page = queue.peek_page(state, flags.max.into(), flags.cursor.as_deref()).await?;
    let messages = &page.messages;
    print(&if json { show::json_lines(messages)? } else { show::messages(messages) })?;
    if let Some(next) = page.next_cursor {
        let line = serde_json::json!({"nextCursor": next});
        print(&if json { format!("{line}\n") } else { format!("more with --cursor {next}\n") })?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn purge(client: &Client, json: bool, name: &str, yes: bool) -> anyhow::Result<ExitCode> {
    confirm(&format!("Remove everything in {name}, for good?"), yes)?;
    client.queues().purge(name).await?;
    let said = serde_json::json!({"name": name, "purged": true});
    print(&if json { format!("{said}\n") } else { format!("{name} is empty\n") })?;
    Ok(ExitCode::SUCCESS)
}
