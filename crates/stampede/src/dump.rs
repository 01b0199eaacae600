//! `stampede dump`: the entries of a data folder's logs, as JSON lines.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use journal::Kind;
use journal::inspect::{EntryReport, Verdict, entries, payload};
use kernel::machine::KERNEL;
use kernel::mail::MailCommand;
use kernel::{Entry, Envelope, ShardId};
use serde_json::{Value, json};

use crate::output::tell;
use crate::remote::Usage;

pub(crate) fn run(data_dir: &Path, only: Option<u16>, from: u64) -> anyhow::Result<ExitCode> {
    let shard_count = node::shard_count(data_dir)?;
    if let Some(only) = only.filter(|only| *only >= shard_count) {
        let there = match shard_count {
            1 => "only shard 0 is".to_owned(),
            count => format!("shards 0 to {} are", count - 1),
        };
        return Err(Usage(format!("--shard {only}: {there} in {}", data_dir.display())).into());
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut code = ExitCode::SUCCESS;
    for shard in (0..shard_count).filter(|shard| only.is_none_or(|only| only == *shard)) {
        let log = node::shard_folder(data_dir, ShardId(shard)).join("log");
        let mut result = Ok(());
        let report = entries(&log, &mut |entry| {
            if result.is_ok() && entry.index.0 >= from {
                result = line(&log, shard, entry)
                    .and_then(|line| writeln!(out, "{line}").map_err(Into::into));
            }
        })?;
        match result {
            // Whoever reads has had enough: `stampede dump | head`.
            Err(error) if is_broken_pipe(&error) => return Ok(code),
            other => other?,
        }
        if let Verdict::Corrupt { file, offset, what } = report.verdict {
            tell(format_args!("stampede: {file} is corrupt at offset {offset}: {what}"));
            code = ExitCode::FAILURE;
        }
    }
    match out.flush() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(code),
    }
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn line(log: &Path, shard: u16, entry: &EntryReport) -> anyhow::Result<Value> {
    let mut line = json!({
        "shard": shard,
        "index": entry.index.0,
        "epoch": entry.epoch.0,
        "file": entry.file,
        "offset": entry.offset,
    });
    match entry.kind {
        Kind::Barrier => line["kind"] = "barrier".into(),
        Kind::Data => {
            let body = Entry::decode(payload(log, entry)?)?;
            line["kind"] = "data".into();
            line["atMs"] = body.at_ms.into();
            line["commands"] = body.commands.iter().map(command).collect();
        }
    }
    Ok(line)
}

fn command(envelope: &Envelope) -> Value {
    let (machine, meaning) = match envelope.machine {
        KERNEL => ("kernel".to_owned(), shown(MailCommand::decode(envelope.command.clone()))),
        tenants::MACHINE => {
            ("tenants".to_owned(), shown(tenants::Command::decode(&envelope.command)))
        }
        queue::MACHINE => ("queue".to_owned(), shown(queue::Command::decode(&envelope.command))),
        recents::MACHINE => {
            ("recents".to_owned(), shown(recents::Command::decode(&envelope.command)))
        }
        streams::MACHINE => {
            ("streams".to_owned(), shown(streams::Command::decode(&envelope.command)))
        }
        other => (other.to_string(), "of a machine that this binary does not have".to_owned()),
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    json!({
        "machine": machine,
        "tenant": envelope.tenant.0,
        "idempotencyKey": envelope.idempotency.map(|given| hex(&given.key)),
        "command": meaning,
        // A tenant's commands hold secrets, which their description leaves out.
        "bytes": (envelope.machine != tenants::MACHINE).then(|| hex(&envelope.command)),
    })
}

fn shown<T: std::fmt::Debug, E: std::fmt::Display>(decoded: Result<T, E>) -> String {
    match decoded {
        Ok(command) => format!("{command:?}"),
        Err(error) => error.to_string(),
    }
}
