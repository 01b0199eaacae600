//! `stampede check`: what a data folder holds, and whether it is sound.

use std::path::Path;
use std::process::ExitCode;

use journal::inspect::{Report, Verdict, inspect};
use kernel::ShardId;

pub(crate) fn run(data_dir: &Path) -> anyhow::Result<ExitCode> {
    let shard_count = node::shard_count(data_dir)?;
    println!("{}: {shard_count} shards", data_dir.display());
    let mut sound = true;
    for shard in (0..shard_count).map(ShardId) {
        let folder = node::shard_folder(data_dir, shard);
        match inspect(&folder.join("log")) {
            Ok(report) => sound &= show(shard, &report),
            Err(error) => {
                sound = false;
                println!("shard {shard}: {error}");
            }
        }
    }
    println!("{}", if sound { "sound" } else { "NOT SOUND" });
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(shard: ShardId, report: &Report) -> bool {
    let Report { first, last, epoch, entry_count, payload_bytes, .. } = report;
    println!(
        "shard {shard}: entries {first} to {last} ({entry_count}, {payload_bytes} bytes), \
         epoch {epoch}, {} segments{}",
        report.segments.len(),
        if report.in_use { ", in use: its end is moving" } else { "" },
    );
    match &report.verdict {
        Verdict::Sound => true,
        Verdict::TornTail { file, offset, bytes } => {
            println!(
                "  {file}: {bytes} bytes at offset {offset} were in flight at a crash and never \
                 acknowledged; opening cuts them off"
            );
            true
        }
        Verdict::Corrupt { file, offset, what } => {
            println!("  CORRUPT {file} at offset {offset}: {what}");
            false
        }
        Verdict::Foreign { file, what } => {
            println!("  FOREIGN {file}: {what}");
            false
        }
    }
}
