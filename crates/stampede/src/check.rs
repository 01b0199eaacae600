//! `stampede check`: what a data folder holds, and whether it is sound.

use std::io::Write;
use std::ops::Bound;
use std::path::Path;
use std::process::ExitCode;

use journal::inspect::{Report, Verdict, inspect};
use kernel::{Base, Index, ShardId};
use store::{FjallBase, StoreOptions};

/// Says a line to whoever reads. One who has had enough (`stampede check DIR | head -1`) still gets the
/// exit code.
macro_rules! say {
    ($($line:tt)*) => {
        drop(writeln!(std::io::stdout(), $($line)*))
    };
}

pub(crate) fn run(data_dir: &Path) -> anyhow::Result<ExitCode> {
    let shard_count = node::shard_count(data_dir)?;
    say!("{}: {shard_count} shards", data_dir.display());
    let mut sound = true;
    for shard in (0..shard_count).map(ShardId) {
        let folder = node::shard_folder(data_dir, shard);
        match inspect(&folder.join("log")) {
            Ok(report) => {
                sound &= show(shard, &report);
                if report.in_use {
                    say!("  rows: in use, not looked at");
                } else {
                    sound &= rows_fit(shard, &folder.join("rows"), &report);
                }
            }
            Err(error) => {
                sound = false;
                say!("shard {shard}: {error}");
            }
        }
    }
    say!("{}", if sound { "sound" } else { "NOT SOUND" });
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads every row, and holds the point they stand at against the log.
fn rows_fit(shard: ShardId, folder: &Path, report: &Report) -> bool {
    if !folder.exists() {
        // Made at the first start, after the log.
        return report.last <= Index(1);
    }
    let base = match FjallBase::open(folder, StoreOptions::default()) {
        Ok(base) => base,
        Err(error) => {
            say!("  ROWS of shard {shard} cannot be opened, or not written to: {error}");
            return false;
        }
    };
    let applied = base.applied();
    let mut count = 0_u64;
    for row in base.range(Bound::Unbounded, Bound::Unbounded, false) {
        if let Err(error) = row {
            say!("  ROWS of shard {shard} cannot be read: {error}");
            return false;
        }
        count += 1;
    }
    say!("  rows: {count}, as of entry {applied}");
    let fits = report.first <= applied.next() && applied <= report.last;
    if !fits {
        say!("  ROWS of shard {shard} do not fit the log: entries are missing between them");
    }
    fits
}

fn show(shard: ShardId, report: &Report) -> bool {
    let Report { first, last, epoch, entry_count, payload_bytes, .. } = report;
    say!(
        "shard {shard}: entries {first} to {last} ({entry_count}, {payload_bytes} bytes), \
         epoch {epoch}, {} segments{}",
        report.segments.len(),
        if report.in_use { ", in use: its end is moving" } else { "" },
    );
    match &report.verdict {
        Verdict::Sound => true,
        Verdict::TornTail { file, offset, bytes } => {
            say!(
                "  {file}: {bytes} bytes at offset {offset} were in flight at a crash and never \
                 acknowledged; opening cuts them off"
            );
            true
        }
        Verdict::Corrupt { file, offset, what } => {
            say!("  CORRUPT {file} at offset {offset}: {what}");
            false
        }
        Verdict::Foreign { file, what } => {
            say!("  FOREIGN {file}: {what}");
            false
        }
    }
}
