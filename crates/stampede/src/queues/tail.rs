//! `stampede queue tail`: what arrives, seen by looking again and again.

use std::collections::{BTreeSet, VecDeque};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::{Client, Message, PeekState, Queue};

use crate::output::print;
use crate::show;
use crate::values::number;

/// Messages of one look.
const LOOK_MAX: u32 = 1000;
/// Messages that are known after they have left the first thousand: a retry brings them back.
const REMEMBERED_MAX: usize = 10_000;

#[derive(Args)]
pub(super) struct TailFlags {
    /// The queue
    queue: String,
    /// Begin with so many of those that are there
    #[arg(long, short = 'n', default_value_t = 10, value_parser = number::<usize>(0..=u64::MAX))]
    lines: usize,
    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = number::<usize>(0..=u64::MAX))]
    max: Option<usize>,
    /// Milliseconds between looks
    #[arg(long, value_name = "MS", default_value_t = 500,
          value_parser = number::<u64>(0..=u64::MAX))]
    interval_ms: u64,
}

pub(super) async fn run(
    client: &Client,
    json: bool,
    flags: &TailFlags,
) -> anyhow::Result<ExitCode> {
    let queue = client.queue(&flags.queue);
    let mut seen = Seen::default();
    let mut left = flags.max.unwrap_or(usize::MAX);
    let mut first = true;
    loop {
        let mut new = seen.new_of(look(&queue).await?);
        if first {
            new.drain(..new.len().saturating_sub(flags.lines));
            if !json {
                print(&line(&show::MESSAGE_HEAD.map(str::to_owned)))?;
            }
        }
        first = false;
        new.truncate(left);
        left -= new.len();
        let text = match json {
            true => show::json_lines(&new)?,
            false => new.iter().map(|message| line(&show::message_row(message))).collect(),
        };
        print(&text)?;
        if left == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(Duration::from_millis(flags.interval_ms)).await;
    }
}

async fn look(queue: &Queue) -> Result<Vec<Message>, client::Error> {
    // Visible before leased: one that is received between the looks is seen twice, and not missed.
    let mut messages = queue.peek(PeekState::Visible, LOOK_MAX).await?;
    messages.extend(queue.peek(PeekState::Inflight, LOOK_MAX).await?);
    messages.sort_by_key(|message| message.sequence);
    messages.dedup_by_key(|message| message.sequence);
    Ok(messages)
}

/// A row whose columns do not depend on rows to come.
fn line(cells: &[String]) -> String {
    let [sequence, receives, sent, attributes, body] = cells else {
        unreachable!("messages have five columns")
    };
    format!("{sequence:>8}  {receives:>8}  {sent:<24}  {attributes:<10}  {body}\n")
}

type Name = (u64, String);

/// What was printed, or was there before.
#[derive(Default)]
struct Seen {
    /// Of the last look.
    present: BTreeSet<Name>,
    /// Of earlier ones, in the order of leaving.
    gone: VecDeque<Name>,
    gone_names: BTreeSet<Name>,
}

impl Seen {
    /// Those that were not there before, and remembers all.
    fn new_of(&mut self, messages: Vec<Message>) -> Vec<Message> {
        let name = |message: &Message| (message.sequence, message.message_id.clone());
        let present: BTreeSet<Name> = messages.iter().map(name).collect();
        let known = |name: &Name| self.present.contains(name) || self.gone_names.contains(name);
        let new = messages.into_iter().filter(|message| !known(&name(message))).collect();
        for left in self.present.difference(&present) {
            if self.gone_names.insert(left.clone()) {
                self.gone.push_back(left.clone());
            }
        }
        while self.gone.len() > REMEMBERED_MAX {
            let oldest = self.gone.pop_front().expect("it is not empty");
            self.gone_names.remove(&oldest);
        }
        self.present = present;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sequences: &[u64]) -> Vec<Message> {
        let one = |sequence: &u64| {
            let text = format!(
                r#"{{"messageId":"m{sequence}","receiveCount":0,"sequence":{sequence},"sentAt":"","body":1}}"#
            );
            serde_json::from_str(&text).expect("a message")
        };
        sequences.iter().map(one).collect()
    }

    #[test]
    fn each_message_is_new_once() {
        let mut seen = Seen::default();
        for (look, new) in [
            (&[1, 2][..], &[1, 2][..]),
            (&[1, 2, 3], &[3]),
            (&[3], &[]),
            (&[1, 3, 4], &[4]),
            (&[0, 4], &[0]),
        ] {
            let found = seen.new_of(messages(look));
            let found: Vec<_> = found.iter().map(|message| message.sequence).collect();
            assert_eq!(found, new, "{look:?}");
        }
    }
}
