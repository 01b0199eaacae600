//! `stampede stream`: streams of a server, by hand and for scripts.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use client::{
    Client, GroupSummary, NewRecord, NewStream, PartitionInfo, Placed, Record, SeekTo, StreamInfo,
};
use serde_json::value::RawValue;
use streams::PARTITIONS_MAX;

use crate::lines;
use crate::output::{Report, print, tell};
use crate::remote::{ServerFlags, Usage, block_on, confirm};
use crate::show::{self, json_lines, one_line, table};
use crate::values::{duration, number};

#[derive(Args)]
pub(crate) struct StreamFlags {
    #[command(flatten)]
    server: ServerFlags,
    /// Machine-readable: a line of JSON for each thing
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: StreamCommand,
}

#[derive(Subcommand)]
enum StreamCommand {
    /// List streams
    Ls {
        /// Only those whose names begin so
        prefix: Option<String>,
    },
    /// Show a stream: its settings, what is in it, where its partitions begin and end
    Show {
        /// The stream
        stream: String,
    },
    /// Make a stream; the same name with the same settings is no error
    Create(CreateFlags),
    /// Append a record, or one for each line of stdin
    ///
    /// What is JSON is appended as JSON, and anything else as text. Lines that are refused are named, and
    /// keep no others out.
    Append(AppendFlags),
    /// Read without a group: one partition, or all of them in turn
    Read(ReadFlags),
    /// List the groups of a stream, and how far behind they are
    Groups {
        /// The stream
        stream: String,
    },
    /// Have a group go on from elsewhere
    Seek(SeekFlags),
    /// Delete a stream, its records and its groups
    Delete {
        /// The stream
        stream: String,
        /// Without asking; nobody is asked when stdin is no terminal
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Args)]
struct CreateFlags {
    /// 1 to 80 of A-Z a-z 0-9 . - _
    name: String,
    /// So many members of a group can share the work
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = number::<u16>(1..=PARTITIONS_MAX.into()))]
    partitions: u16,
    /// Drop records that are older, like 7d, which is usual; `forever` keeps them
    #[arg(long, value_name = "TIME", value_parser = retention, allow_hyphen_values = true)]
    retention: Option<Retention>,
    /// Keep the newest so many bytes of each partition
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    retention_bytes: Option<u64>,
}

#[derive(Clone, Copy)]
enum Retention {
    ForEver,
    For(Duration),
}

fn retention(text: &str) -> Result<Retention, String> {
    match text {
        "forever" => Ok(Retention::ForEver),
        _ => duration(text)
            .map(Retention::For)
            .map_err(|why| format!("{why}; forever keeps them all")),
    }
}

#[derive(Args)]
struct AppendFlags {
    /// The stream
    stream: String,
    /// The value; a line of stdin each when not given, but for empty ones
    value: Option<String>,
    /// What it is about: records of a key are in one partition, in order
    #[arg(long, short = 'k', value_name = "KEY")]
    record_key: Option<String>,
}

#[derive(Args)]
struct ReadFlags {
    /// The stream
    stream: String,
    /// The partition; one after the other when not given
    #[arg(long, short, value_parser = number::<u16>(0..=u64::from(PARTITIONS_MAX) - 1))]
    partition: Option<u16>,
    /// Where to begin in a partition; at the first that is kept when not given
    #[arg(long, default_value_t = 0, value_parser = number::<u64>(0..=u64::MAX))]
    offset: u64,
    /// Records at most, up to 1000
    #[arg(long, short = 'n', default_value_t = 10, value_parser = number::<u32>(1..=1000))]
    max: u32,
}

#[derive(Args)]
struct SeekFlags {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// `earliest`, `latest`, a time like 2026-01-31T12:00:00Z, or offsets like 0=5,1=7
    to: String,
}

pub(crate) fn run(flags: StreamFlags) -> anyhow::Result<ExitCode> {
    let StreamFlags { server, json, command } = flags;
    let client = server.client()?;
    block_on(async move {
        match command {
            StreamCommand::Ls { prefix } => ls(&client, json, prefix.as_deref()).await,
            StreamCommand::Show { stream } => show(&client, json, &stream).await,
            StreamCommand::Create(flags) => create(&client, json, flags).await,
            StreamCommand::Append(flags) => append(&client, json, flags).await,
            StreamCommand::Read(flags) => read(&client, json, &flags).await,
            StreamCommand::Groups { stream } => groups(&client, json, &stream).await,
            StreamCommand::Seek(flags) => seek(&client, json, &flags).await,
            StreamCommand::Delete { stream, yes } => delete(&client, json, &stream, yes).await,
        }
    })
}

async fn ls(client: &Client, json: bool, prefix: Option<&str>) -> anyhow::Result<ExitCode> {
    let streams = client.streams().list_all(prefix.unwrap_or_default()).await?;
    let row = |stream: &StreamInfo| {
        let retention = stream.retention_seconds.map_or("-".to_owned(), |s| format!("{s}s"));
        let bytes = stream.retention_bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        let partitions = stream.partitions.to_string();
        vec![stream.name.clone(), partitions, stream.groups.to_string(), retention, bytes]
    };
    let head = ["NAME", "PARTITIONS", "GROUPS", "RETENTION", "KEEP BYTES"];
    let rows = || streams.iter().map(row).collect::<Vec<_>>();
    print(&if json { json_lines(&streams)? } else { table(&head, &[1, 2, 3, 4], &rows()) })?;
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &Client, json: bool, name: &str) -> anyhow::Result<ExitCode> {
    let info = client.streams().get(name).await?;
    if json {
        print(&json_lines(&[info])?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |partition: &PartitionInfo| {
        let PartitionInfo { partition, start, end, .. } = *partition;
        [u64::from(partition), start, end].map(|n| n.to_string()).to_vec()
    };
    let rows: Vec<_> = info.per_partition.iter().map(row).collect();
    let partitions = table(&["PARTITION", "FIRST", "NEXT"], &[0, 1, 2], &rows);
    print(&format!("{}\n{partitions}", show::stream(&info)))?;
    Ok(ExitCode::SUCCESS)
}

async fn create(client: &Client, json: bool, flags: CreateFlags) -> anyhow::Result<ExitCode> {
    let mut stream = NewStream::new(flags.name).partitions(flags.partitions);
    stream = match flags.retention {
        None => stream,
        Some(Retention::ForEver) => stream.keep_for_ever(),
        Some(Retention::For(time)) => stream.retention(time),
    };
    if let Some(bytes) = flags.retention_bytes {
        stream = stream.retention_bytes(bytes);
    }
    let made = client.streams().create(&stream).await?;
    print(&if json {
        json_lines(&[made])?
    } else {
        show::made(&made.name, &made.stream_id, made.created)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What is JSON as JSON, and anything else as text.
fn record(text: &str, key: Option<&String>) -> Result<NewRecord, client::Error> {
    let record = match serde_json::from_str::<&RawValue>(text) {
        Ok(json) => NewRecord::new(json),
        Err(_) => NewRecord::new(text),
    }?;
    Ok(match key {
        Some(key) => record.key(key),
        None => record,
    })
}

async fn append(client: &Client, json: bool, flags: AppendFlags) -> anyhow::Result<ExitCode> {
    let stream = client.stream(flags.stream);
    let key = flags.record_key.as_ref();
    let shown = |placed: Placed| match json {
        true => json_lines(&[placed]),
        false => Ok(format!("partition {} offset {}\n", placed.partition, placed.offset)),
    };
    if let Some(value) = flags.value {
        for result in stream.append(&[record(&value, key)?]).await? {
            print(&shown(result?)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::default();
    let make = |line: &str| match line {
        "" => Ok(None),
        _ => Ok(Some(record(line, key)?)),
    };
    let append = async |records: &[NewRecord]| stream.append(records).await;
    let input = std::io::stdin();
    let tally = lines::each(input, "appended", make, append, shown, &mut report).await?;
    if tally.done + tally.refused == 0 {
        // Mostly the command that was to write it has failed.
        let what = if tally.read == 0 { "is empty" } else { "has no line that is not empty" };
        let why = "so nothing was appended; \"\" as the value appends an empty text";
        return Err(Usage(format!("stdin {what}, {why}")).into());
    }
    report.end()?;
    Ok(if tally.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is said of an offset that there is not yet, where these partitions end: those that were read.
fn past_the_end(flags: &ReadFlags, ends: &[u64]) -> Option<String> {
    let from = flags.offset;
    if let (Some(partition), [end]) = (flags.partition, ends) {
        let note = || format!("partition {partition} has no offset {from} yet, its next is {end}");
        return (from > *end).then(note);
    }
    let (short, all) = (ends.iter().filter(|end| from > **end).count(), ends.len());
    (short > 0)
        .then(|| format!("{short} of {all} partitions that were read have no offset {from} yet"))
}

async fn read(client: &Client, json: bool, flags: &ReadFlags) -> anyhow::Result<ExitCode> {
    let stream = client.stream(&flags.stream);
    let partitions = match flags.partition {
        Some(partition) => partition..=partition,
        None => 0..=client.streams().get(&flags.stream).await?.partitions.saturating_sub(1),
    };
    let (mut records, mut left) = (Vec::new(), flags.max);
    let mut ends = Vec::new();
    for partition in partitions {
        let page = stream.read(partition, flags.offset, left).await?;
        ends.push(page.end);
        left = left.saturating_sub(u32::try_from(page.records.len()).unwrap_or(u32::MAX));
        records.extend(page.records);
        if left == 0 {
            break;
        }
    }
    if let Some(note) = past_the_end(flags, &ends) {
        tell(format_args!("stampede: {note}"));
    }
    let row = |record: &Record| {
        let key = record.key.as_deref().map_or("-".to_owned(), one_line);
        let (partition, offset) = (record.partition.to_string(), record.offset.to_string());
        vec![partition, offset, record.timestamp.clone(), key, one_line(record.raw.get())]
    };
    let head = ["PARTITION", "OFFSET", "TIMESTAMP", "KEY", "VALUE"];
    let rows = || records.iter().map(row).collect::<Vec<_>>();
    print(&if json { json_lines(&records)? } else { table(&head, &[0, 1], &rows()) })?;
    Ok(ExitCode::SUCCESS)
}

async fn groups(client: &Client, json: bool, stream: &str) -> anyhow::Result<ExitCode> {
    let groups = client.stream(stream).groups().await?;
    let row = |group: &GroupSummary| {
        let (members, lag) = (group.members.to_string(), group.lag.to_string());
        vec![group.group.clone(), group.epoch.to_string(), members, lag]
    };
    let head = ["GROUP", "EPOCH", "MEMBERS", "LAG"];
    let rows = || groups.iter().map(row).collect::<Vec<_>>();
    print(&if json { json_lines(&groups)? } else { table(&head, &[1, 2, 3], &rows()) })?;
    Ok(ExitCode::SUCCESS)
}

/// A word, offsets, or a time, which the server reads.
fn seek_to(text: &str) -> Result<SeekTo, Usage> {
    match text {
        "earliest" => return Ok(SeekTo::Earliest),
        "latest" => return Ok(SeekTo::Latest),
        // No number and no other word is a time, which has a date.
        _ if !text.contains('=') && text.contains('-') => return Ok(SeekTo::Time(text.to_owned())),
        _ => {}
    }
    let pair = |pair: &str| {
        let (partition, offset) = pair.split_once('=')?;
        Some((partition.parse().ok()?, offset.parse().ok()?))
    };
    let offsets = text.split(',').map(pair).collect::<Option<_>>();
    let wrong = || {
        let said =
            "it is earliest, latest, a time like 2026-01-31T12:00:00Z or offsets like 0=5,1=7";
        Usage(format!("{text}: {said}"))
    };
    offsets.map(SeekTo::Offsets).ok_or_else(wrong)
}

async fn seek(client: &Client, json: bool, flags: &SeekFlags) -> anyhow::Result<ExitCode> {
    let to = seek_to(&flags.to)?;
    let sought = client.stream(&flags.stream).seek(&flags.group, &to).await?;
    let row = |(partition, offset): (&u16, &u64)| vec![partition.to_string(), offset.to_string()];
    let rows = || sought.offsets.iter().map(row).collect::<Vec<_>>();
    let head = ["PARTITION", "OFFSET"];
    print(&if json { json_lines(&[&sought])? } else { table(&head, &[0, 1], &rows()) })?;
    Ok(ExitCode::SUCCESS)
}

async fn delete(client: &Client, json: bool, name: &str, yes: bool) -> anyhow::Result<ExitCode> {
    confirm(&format!("Delete {name} and everything in it, for good?"), yes)?;
    client.streams().delete(name).await?;
    let said = serde_json::json!({"name": name, "deleted": true});
    print(&if json { format!("{said}\n") } else { format!("{name} is gone\n") })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_seek_is_a_word_offsets_or_a_time() {
        let to = |text| seek_to(text).expect("a place");
        assert_eq!((to("earliest"), to("latest")), (SeekTo::Earliest, SeekTo::Latest));
        assert_eq!(to("0=5,12=7"), SeekTo::Offsets([(0, 5), (12, 7)].into()));
        let time = "2026-01-31T12:00:00Z";
        assert_eq!(to(time), SeekTo::Time(time.to_owned()));
        for bad in ["0=", "=5", "0=5,", "x=5", "0=-1", "70000=1", "5", "now", ""] {
            assert!(seek_to(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_json_is_appended_as_json() {
        let json = |text| serde_json::to_string(&record(text, None).expect("a record"));
        assert_eq!(json("{\"a\": 1.50}").expect("JSON"), "{\"value\":{\"a\": 1.50}}");
        assert_eq!(json("{a}").expect("JSON"), "{\"value\":\"{a}\"}");
    }
}
