//! `stampede queue send`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use client::{Attribute, Client, Outgoing, Queue};
use serde_json::value::RawValue;

use crate::lines::{self, Tally};
use crate::output::{Report, print};
use crate::remote::Usage;
use crate::show;
use crate::values::{duration, number};

#[derive(Args)]
pub(super) struct SendFlags {
    /// The queue
    queue: String,
    #[command(flatten)]
    message: MessageFlags,
    /// Each line is a message, sent in batches; blank lines are none
    #[arg(long, conflicts_with_all = ["body", "dedup"])]
    lines: bool,
}

/// A message, to be sent or published.
#[derive(Args)]
pub(crate) struct MessageFlags {
    /// The body
    #[arg(conflicts_with = "file")]
    body: Option<String>,
    /// Read the body from a file; - is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send as text what looks like JSON too
    #[arg(long)]
    text: bool,
    /// A note: NAME=TEXT, or NAME:=JSON for numbers, true and false; may be given more than once
    #[arg(long = "attribute", short = 'a', value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, Attribute)>,
    /// Hide it for so long, like 30s, 5m, 2h or 1d
    #[arg(long, value_parser = duration, value_name = "TIME")]
    delay: Option<Duration>,
    /// The group in which order is kept, in a FIFO queue
    #[arg(long)]
    group: Option<String>,
    /// Not sent again with the same key, within the queue's window
    #[arg(long, value_name = "KEY")]
    dedup: Option<String>,
    /// 0 to 9; higher goes first
    #[arg(long, value_parser = number::<u8>(0..=9))]
    priority: Option<u8>,
}

fn attribute(text: &str) -> Result<(String, Attribute), String> {
    let wrong = || "it is NAME=TEXT or NAME:=JSON".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    match name.strip_suffix(':') {
        Some(name) => {
            let value = serde_json::from_str(value)
                .map_err(|_| "after := comes a number, true, false or a quoted text".to_owned())?;
            Ok((name.to_owned(), value))
        }
        None if name.is_empty() => Err(wrong()),
        None => Ok((name.to_owned(), value.into())),
    }
}

impl MessageFlags {
    /// The message that was asked for; its body may be read from a file or stdin.
    pub(crate) fn whole(&self) -> anyhow::Result<Outgoing> {
        self.with_body(&self.whole_body()?)
    }

    fn with_body(&self, body: &str) -> anyhow::Result<Outgoing> {
        let json = if self.text { None } else { serde_json::from_str::<Box<RawValue>>(body).ok() };
        let mut message = json.map_or_else(|| Outgoing::new(body), |raw| Ok(Outgoing::raw(raw)))?;
        for (name, value) in &self.attributes {
            message = message.attribute(name, value.clone());
        }
        if let Some(delay) = self.delay {
            message = message.delay(delay);
        }
        if let Some(group) = &self.group {
            message = message.group(group);
        }
        if let Some(key) = &self.dedup {
            message = message.deduplication_key(key);
        }
        if let Some(priority) = self.priority {
            message = message.priority(priority);
        }
        Ok(message)
    }

    /// The file to be read; stdin when there is none.
    fn path(&self) -> Option<&Path> {
        self.file.as_deref().filter(|path| path.as_os_str() != "-")
    }

    fn input_name(&self) -> String {
        self.path().map_or("stdin".into(), Path::to_string_lossy).into_owned()
    }

    fn input(&self) -> anyhow::Result<Box<dyn Read + Send>> {
        match self.path() {
            Some(path) => {
                let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
                Ok(Box::new(file))
            }
            None => Ok(Box::new(std::io::stdin())),
        }
    }

    fn whole_body(&self) -> anyhow::Result<String> {
        if let Some(body) = &self.body {
            return Ok(body.clone());
        }
        let mut bytes = Vec::new();
        self.input()?.read_to_end(&mut bytes)?;
        let mut text = String::from_utf8(bytes).map_err(|_| {
            Usage("the body is not text: send bytes with curl -T FILE SERVER/q/QUEUE".to_owned())
        })?;
        // `echo hello | stampede queue send jobs` sends hello. A file is sent as it is.
        if self.file.is_none() && text.ends_with('\n') {
            text.pop();
        }
        // Mostly the command that was to write it has failed, and nobody meant a message.
        if text.is_empty() {
            let input = self.input_name();
            let why = "is empty, so nothing was sent; \"\" as the body sends an empty text";
            return Err(Usage(format!("{input} {why}")).into());
        }
        Ok(text)
    }
}

pub(super) async fn run(client: &Client, json: bool, flags: SendFlags) -> anyhow::Result<ExitCode> {
    let queue = client.queue(&flags.queue);
    if flags.lines {
        return each_line(&queue, json, &flags).await;
    }
    let sent = queue.send_message(&flags.message.whole()?).await?;
    let again = if sent.duplicate { ", as it was before" } else { "" };
    print(&if json {
        show::json_lines(&[sent])?
    } else {
        format!("{} is number {}{again}\n", sent.message_id, sent.sequence)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Sends the lines as they come. Those that are refused are named, and the rest is sent.
async fn each_line(queue: &Queue, json: bool, flags: &SendFlags) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let make = |line: &str| match line.trim() {
        "" => Ok(None),
        _ => flags.message.with_body(line).map(Some),
    };
    let send = async |messages: &[Outgoing]| queue.send_batch(messages).await;
    let shown = |one| if json { show::json_lines(&[one]) } else { Ok(String::new()) };
    let input = flags.message.input()?;
    let tally = lines::each(input, "sent", make, send, shown, &mut report).await?;
    let Tally { done: sent, refused, read } = tally;
    if sent + refused == 0 {
        // Mostly the command that was to write it has failed.
        let input = flags.message.input_name();
        let what = if read == 0 { "is empty" } else { "has no line that is not blank" };
        return Err(Usage(format!("{input} {what}, so nothing was sent")).into());
    }
    if !json {
        report.print(&format!("{sent} sent, {refused} refused\n"));
    }
    report.end()?;
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_text_unless_they_say_otherwise() {
        assert_eq!(attribute("a=1"), Ok(("a".to_owned(), Attribute::from("1"))));
        assert_eq!(attribute("a:=1"), Ok(("a".to_owned(), Attribute::from(1))));
        assert_eq!(attribute("a=b=c"), Ok(("a".to_owned(), Attribute::from("b=c"))));
        for bad in ["a", "=b", "a:=[1]", "a:=x"] {
            assert!(attribute(bad).is_err(), "{bad}");
        }
    }
}
