//! `stampede topic`: what is published goes to the queues that subscribe.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use client::Client;
use serde_json::json;

use crate::output::print;
use crate::queues::send::MessageFlags;
use crate::queues::settings::NewQueueFlags;
use crate::remote::{EXIT_CODES, ServerFlags, block_on, confirm, filter};
use crate::show;

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct TopicFlags {
    #[command(flatten)]
    server: ServerFlags,
    /// Machine-readable: a line of JSON for each thing
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Subcommand)]
enum TopicCommand {
    /// List topics
    Ls,
    /// Make a topic; one that is there is no error
    Create {
        /// 1 to 80 of A-Z a-z 0-9 . - _
        name: String,
    },
    /// Make a queue that gets what is published from now on
    ///
    /// Again with another filter changes it, and again without --filter takes the filter away.
    Subscribe(Box<SubscribeFlags>),
    /// Have a queue get no more; it stays, with what is in it
    Unsubscribe {
        /// The topic
        topic: String,
        /// The queue
        queue: String,
    },
    /// List the subscriptions of a topic, and their filters
    Subscriptions {
        /// The topic
        topic: String,
    },
    /// Publish a message
    ///
    /// The body is the argument, the file, or else stdin (without its last line break). What is
    /// JSON is sent as JSON, and anything else as text.
    Publish(PublishFlags),
    /// Delete a topic; the queues of its subscriptions stay, with what is in them
    Delete {
        /// The topic
        topic: String,
        /// Without asking; nobody is asked when stdin is no terminal
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Args)]
struct SubscribeFlags {
    /// The topic
    topic: String,
    /// The queue, which is made if it is not there; one that is there stays as it is
    queue: String,
    /// Only messages that it matches, as JSON: {"kind": ["mail", {"prefix": "sms."}]}; without,
    /// all that is published, also when there was a filter before
    #[arg(long, value_name = "JSON")]
    filter: Option<String>,
    #[command(flatten)]
    settings: NewQueueFlags,
}

#[derive(Args)]
struct PublishFlags {
    /// The topic
    topic: String,
    #[command(flatten)]
    message: MessageFlags,
}

pub(crate) fn run(flags: TopicFlags) -> anyhow::Result<ExitCode> {
    let TopicFlags { server, json, command } = flags;
    let client = server.client()?;
    block_on(async move {
        let said = match command {
            TopicCommand::Ls => {
                let topics = client.topics().list_all().await?;
                if json { show::json_lines(&topics)? } else { show::topics(&topics) }
            }
            TopicCommand::Create { name } => {
                let made = client.topics().create(&name).await?;
                let said = show::made(&made.name, &made.topic_id, made.created);
                if json { show::json_lines(&[made])? } else { said }
            }
            TopicCommand::Subscribe(flags) => subscribe(&client, json, &flags).await?,
            TopicCommand::Unsubscribe { topic, queue } => {
                client.topics().unsubscribe(&topic, &queue).await?;
                let said = format!("{queue} gets no more of {topic}\n");
                let line = json!({"topic": topic, "name": queue, "subscribed": false});
                if json { format!("{line}\n") } else { said }
            }
            TopicCommand::Subscriptions { topic } => {
                let all = client.topics().subscriptions(&topic).await?;
                if json { show::json_lines(&all)? } else { show::subscriptions(&all) }
            }
            TopicCommand::Publish(flags) => publish(&client, json, &flags).await?,
            TopicCommand::Delete { topic, yes } => {
                confirm(&format!("Delete the topic {topic}, for good?"), yes)?;
                client.topics().delete(&topic).await?;
                let line = json!({"name": topic, "deleted": true});
                if json { format!("{line}\n") } else { format!("{topic} is gone\n") }
            }
        };
        print(&said)?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn subscribe(client: &Client, json: bool, flags: &SubscribeFlags) -> anyhow::Result<String> {
    let filter = filter(flags.filter.as_deref())?;
    let queue = flags.settings.queue(&flags.queue)?;
    let made = client.topics().subscribe(&flags.topic, &queue, filter.as_ref()).await?;
    let (all, which) =
        if filter.is_some() { ("what", " and matches the filter") } else { ("all that", "") };
    let said = format!("{} gets {all} is published to {}{which}\n", made.name, flags.topic);
    Ok(if json { show::json_lines(&[made])? } else { said })
}

async fn publish(client: &Client, json: bool, flags: &PublishFlags) -> anyhow::Result<String> {
    let message = flags.message.whole()?;
    let published = client.topics().publish(&flags.topic, &message).await?;
    let client::Published { message_id, sequence, subscriptions, .. } = &published;
    let s = if *subscriptions == 1 { "" } else { "s" };
    let said = format!("{message_id} is number {sequence}, for {subscriptions} subscription{s}\n");
    Ok(if json { show::json_lines(&[published])? } else { said })
}
