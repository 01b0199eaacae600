//! `stampede queue redrive`: begins one, and follows it to its end.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::{Client, Redrive, RedriveAsk, RedriveState};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::remote::print;
use crate::show;

/// Between looks at how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(super) struct RedriveFlags {
    /// The dead-letter queue
    queue: String,
    /// Where to; the queue that each message died in when not given
    #[arg(long, value_name = "QUEUE")]
    to: Option<String>,
    /// Messages a second, at most
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Only messages that it matches: JSON, or else text
    #[arg(long)]
    filter: Option<String>,
    /// Messages, at most
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Count what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for its end
    #[arg(long)]
    detach: bool,
}

pub(super) async fn run(
    client: &Client,
    json: bool,
    flags: RedriveFlags,
) -> anyhow::Result<ExitCode> {
    let as_json = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    let ask = RedriveAsk {
        target_queue: flags.to,
        max_messages_per_second: flags.rate,
        filter: flags.filter.map(as_json),
        limit: flags.limit,
        dry_run: flags.dry_run,
    };
    let redrives = client.redrives();
    let id = redrives.begin(&flags.queue, &ask).await?;
    if flags.detach {
        let said = serde_json::json!({"redriveId": id});
        print(&if json { format!("{said}\n") } else { format!("{id}\n") })?;
        return Ok(ExitCode::SUCCESS);
    }
    let bar =
        if std::io::stderr().is_terminal() && !json { spinner() } else { ProgressBar::hidden() };
    let mut last = None;
    let end = loop {
        let now = redrives.get(&id).await?;
        bar.set_message(said(&now, flags.dry_run));
        bar.tick();
        if json && last.as_ref() != Some(&now) {
            print(&show::json_lines(std::slice::from_ref(&now))?)?;
        }
        if now.state != RedriveState::Running {
            break now;
        }
        last = Some(now);
        tokio::time::sleep(LOOK_EVERY).await;
    };
    bar.finish_and_clear();
    if !json {
        print(&format!("{}\n", said(&end, flags.dry_run)))?;
    }
    Ok(if end.state == RedriveState::Done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template that is tested");
    ProgressBar::new_spinner().with_style(style)
}

fn said(redrive: &Redrive, dry_run: bool) -> String {
    let state = match redrive.state {
        RedriveState::Running => "moving",
        RedriveState::Done => "done",
        _ => "cancelled",
    };
    let Redrive { moved, matched, skipped, .. } = redrive;
    if dry_run {
        return format!("{state}: {matched} match, {skipped} do not; none was moved");
    }
    format!("{state}: {moved} moved, {matched} matched, {skipped} skipped")
}
