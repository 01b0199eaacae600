//! `stampede queue redrive`: begins one and follows it to its end, shows one, lists them, or ends one.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::{Client, Redrive, RedriveAsk, RedriveState, Redrives};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::{Report, print, tell};
use crate::remote::filter;
use crate::show;
use crate::values::number;

/// Between looks at how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What a shell says of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// What is said of one that begins.
const BEGINNING: [&str; 6] = ["to", "rate", "filter", "limit", "dry_run", "detach"];

#[derive(Args)]
pub(super) struct RedriveFlags {
    /// The dead-letter queue
    #[arg(required_unless_present_any = ["status", "cancel"])]
    queue: Option<String>,
    /// Where to; the queue that each message died in when not given
    #[arg(long, alias = "target", value_name = "QUEUE")]
    to: Option<String>,
    /// Messages a second, at most
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=100_000))]
    rate: Option<u32>,
    /// Only messages that it matches, as JSON: {"$originalQueue": ["mail"]}
    #[arg(long, value_name = "JSON")]
    filter: Option<String>,
    /// Messages, at most
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    limit: Option<u64>,
    /// Count what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for its end
    #[arg(long)]
    detach: bool,
    /// List those that the queue remembers, the latest first, and begin none
    #[arg(long, requires = "queue", conflicts_with_all = BEGINNING)]
    list: bool,
    /// Show the redrive of this id, and begin none
    #[arg(long, value_name = "ID", conflicts_with_all = BEGINNING, conflicts_with_all = ["queue", "list"])]
    status: Option<String>,
    /// End the redrive of this id: what was moved stays moved
    #[arg(long, value_name = "ID", conflicts_with_all = BEGINNING, conflicts_with_all = ["queue", "list", "status"])]
    cancel: Option<String>,
}

pub(super) async fn run(
    client: &Client,
    json: bool,
    flags: RedriveFlags,
) -> anyhow::Result<ExitCode> {
    let redrives = client.redrives();
    if let Some(id) = &flags.status {
        show_one(json, &redrives.get(id).await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(id) = &flags.cancel {
        redrives.cancel(id).await?;
        show_one(json, &redrives.get(id).await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let queue = flags.queue.expect("asked for unless there is an id");
    if flags.list {
        let listed = redrives.list(&queue).await?;
        print(&if json { show::json_lines(&listed)? } else { table_of(&listed) })?;
        return Ok(ExitCode::SUCCESS);
    }
    let ask = RedriveAsk {
        target_queue: flags.to,
        max_messages_per_second: flags.rate,
        filter: filter(flags.filter.as_deref())?,
        limit: flags.limit,
        dry_run: flags.dry_run,
    };
    let follow_as = Follow {
        json,
        dry_run: flags.dry_run,
        // Of what is skipped then, the reason is known.
        only_the_dead: ask.target_queue.is_none() && ask.filter.is_none(),
    };
    let id = redrives.begin(&queue, &ask).await?;
    if flags.detach {
        let said = serde_json::json!({"redriveId": id});
        print(&if json { format!("{said}\n") } else { format!("{id}\n") })?;
        return Ok(ExitCode::SUCCESS);
    }
    // From here on it goes on without us, and whoever interrupts is told so.
    let mut interrupt = signal(SignalKind::interrupt())?;
    tell(format_args!("redrive {id}"));
    tokio::select! {
        end = follow(&redrives, &id, &follow_as) => end,
        _ = interrupt.recv() => {
            tell(format_args!("{id} goes on; to end it: stampede queue redrive --cancel {id}"));
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// How to follow one.
struct Follow {
    json: bool,
    dry_run: bool,
    /// All are asked for that died in another queue, and no others.
    only_the_dead: bool,
}

/// Until it is at its end.
async fn follow(redrives: &Redrives, id: &str, how: &Follow) -> anyhow::Result<ExitCode> {
    let &Follow { json, dry_run, only_the_dead } = how;
    let bar =
        if std::io::stderr().is_terminal() && !json { spinner() } else { ProgressBar::hidden() };
    let mut report = Report::default();
    let mut last = None;
    let end = loop {
        let now = redrives.get(id).await?;
        bar.set_message(said(&now, dry_run));
        bar.tick();
        if json && last.as_ref() != Some(&now) {
            report.print(&show::json_lines(std::slice::from_ref(&now))?);
        }
        if now.state != RedriveState::Running {
            break now;
        }
        last = Some(now);
        tokio::time::sleep(LOOK_EVERY).await;
    };
    bar.finish_and_clear();
    if !json {
        report.print(&format!("{}\n", said(&end, dry_run)));
    }
    report.end()?;
    if only_the_dead && end.skipped > 0 {
        tell(format_args!(
            "stampede: without --to only messages that died in another queue are moved, and {} did not",
            end.skipped
        ));
    }
    Ok(if end.state == RedriveState::Done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table_of(redrives: &[Redrive]) -> String {
    let head = ["ID", "STATE", "MOVED", "MATCHED", "SKIPPED", "TO", "STARTED"];
    let row = |redrive: &Redrive| {
        let Redrive { moved, matched, skipped, .. } = redrive;
        let counts = [moved, matched, skipped].map(u64::to_string);
        let to = redrive.target_queue.clone().unwrap_or_else(|| "-".to_owned());
        let state = state_of(redrive).to_owned();
        let before = [redrive.redrive_id.clone(), state].into_iter();
        before.chain(counts).chain([to, redrive.started_at.clone()]).collect()
    };
    show::table(&head, &[2, 3, 4], &redrives.iter().map(row).collect::<Vec<_>>())
}

fn show_one(json: bool, redrive: &Redrive) -> anyhow::Result<()> {
    print(&if json {
        show::json_lines(std::slice::from_ref(redrive))?
    } else {
        format!("{}; {}\n", said(redrive, redrive.dry_run), where_and_when(redrive))
    })?;
    Ok(())
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a template that is tested");
    ProgressBar::new_spinner().with_style(style)
}

fn state_of(redrive: &Redrive) -> &'static str {
    match redrive.state {
        RedriveState::Running => "moving",
        RedriveState::Done => "done",
        RedriveState::Failed => "failed",
        _ => "cancelled",
    }
}

fn said(redrive: &Redrive, dry_run: bool) -> String {
    let state = state_of(redrive);
    let Redrive { moved, matched, skipped, .. } = redrive;
    let mut said = if dry_run {
        format!("{state}: {matched} match, {skipped} do not; none was moved")
    } else {
        format!("{state}: {moved} moved, {matched} matched, {skipped} skipped")
    };
    if redrive.state != RedriveState::Done && redrive.waiting > 0 {
        said.push_str(&format!(", about {} left", redrive.left()));
    }
    if let Some(why) = &redrive.failure_reason {
        said.push_str(&format!(": {}", what_to_do(redrive, why)));
    }
    said
}

/// Why it has failed, and what to do about it.
fn what_to_do(redrive: &Redrive, why: &str) -> String {
    let target = redrive.target_queue.as_ref();
    let queue = target.map_or("the queue they died in".to_owned(), |name| format!("`{name}`"));
    let from = &redrive.queue;
    match why {
        "queue-not-found" => {
            format!("{why}: {queue} is not there: make it, or name another with --to")
        }
        "other-mode" => format!(
            "{why}: of {queue} and `{from}` only one is FIFO: name one like `{from}` with --to"
        ),
        other => other.to_owned(),
    }
}

fn where_and_when(redrive: &Redrive) -> String {
    let Redrive { queue, target_queue, started_at, ended_at, .. } = redrive;
    let to = target_queue.as_deref().unwrap_or("where each message died");
    let until = ended_at.as_ref().map_or(String::new(), |at| format!(" until {at}"));
    format!("{queue} to {to}, from {started_at}{until}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redrive(more: serde_json::Value) -> Redrive {
        let mut all = json!({"redriveId": "r", "queue": "dead", "targetQueue": null, "moved": 3,
            "matched": 3, "skipped": 2, "waiting": 100, "dryRun": false,
            "startedAt": "2031-01-01T00:00:00.000Z", "endedAt": null});
        let more = more.as_object().expect("an object").clone();
        all.as_object_mut().expect("an object").extend(more);
        serde_json::from_value(all).expect("a redrive")
    }

    #[test]
    fn who_looks_at_a_redrive_is_told_how_much_is_left() {
        let running = redrive(json!({"state": "running"}));
        assert_eq!(said(&running, false), "moving: 3 moved, 3 matched, 2 skipped, about 95 left");
        let told = "dead to where each message died, from 2031-01-01T00:00:00.000Z";
        assert_eq!(where_and_when(&running), told);
        let done = redrive(json!({"state": "done", "targetQueue": "jobs", "endedAt": "then"}));
        assert_eq!(said(&done, false), "done: 3 moved, 3 matched, 2 skipped");
        let told = "dead to jobs, from 2031-01-01T00:00:00.000Z until then";
        assert_eq!(where_and_when(&done), told);
    }

    #[test]
    fn redrives_of_a_queue_are_a_table() {
        let done = redrive(json!({"state": "done", "targetQueue": "jobs"}));
        let table = table_of(&[redrive(json!({"state": "running"})), done]);
        let lines: Vec<Vec<_>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["ID", "STATE", "MOVED", "MATCHED", "SKIPPED", "TO", "STARTED"]);
        let started = "2031-01-01T00:00:00.000Z";
        assert_eq!(lines[1], ["r", "moving", "3", "3", "2", "-", started]);
        assert_eq!(lines[2], ["r", "done", "3", "3", "2", "jobs", started]);
    }

    #[test]
    fn a_redrive_that_failed_says_why() {
        let failed = redrive(json!({"state": "failed", "failureReason": "no queue `jobs`"}));
        let told = "failed: 3 moved, 3 matched, 2 skipped, about 95 left: no queue `jobs`";
        assert_eq!(said(&failed, false), told);
    }

    #[test]
    fn a_redrive_that_failed_says_which_queue_it_is_and_what_to_do() {
        let failed = |why: &str, target: Option<&str>| {
            said(
                &redrive(
                    json!({"state": "failed", "failureReason": why, "targetQueue": target, "waiting": 0}),
                ),
                false,
            )
        };
        let first = "failed: 3 moved, 3 matched, 2 skipped";
        let lost = "is not there: make it, or name another with --to";
        for (target, queue) in [(Some("jobs"), "`jobs`"), (None, "the queue they died in")] {
            let told = failed("queue-not-found", target);
            assert_eq!(told, format!("{first}: queue-not-found: {queue} {lost}"));
            let told = failed("other-mode", target);
            let only = format!("of {queue} and `dead` only one is FIFO");
            assert_eq!(
                told,
                format!("{first}: other-mode: {only}: name one like `dead` with --to")
            );
        }
    }

    #[test]
    fn json_of_a_redrive_has_all_that_the_server_says() {
        let fields = json!({"redriveId": "r", "queue": "dead", "targetQueue": "jobs", "moved": 1,
            "state": "done", "matched": 1, "skipped": 0, "waiting": 7, "dryRun": true,
            "startedAt": "then", "endedAt": "later"});
        let read: Redrive = serde_json::from_value(fields.clone()).expect("a redrive");
        assert_eq!(serde_json::to_value(read).expect("JSON"), fields);
    }
}
