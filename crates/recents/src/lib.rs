//! Recent searches: what a user typed last, instantly, and everything they ever typed, in time.
//!
//! The smallest machine, and the one to copy when writing another: `command.rs` says what can be
//! asked and answered, `state.rs` how it lies in rows, `apply.rs` what each command does,
//! `query.rs` how it is read without entering the shard, `tests.rs` what must hold.
//!
//! ```text
//!            add                     180 days                    clear
//!   query ────────▶ recent list ──────────────▶ gone from it ───────────▶ forgotten
//!              └──▶ history row ──────────────▶ archive object ─────────▶ deleted
//!                     (every search)            (gzip NDJSON)
//! ```
//!
//! Invariants:
//! - The list holds each query once (case and space folded, the latest spelling), newest first,
//!   and at most [`Settings::keep`] of them.
//! - The history holds every search, in the order of the log, until removed; what is older than
//!   [`Settings::archive_after_days`] moves to the archive and is paged through the same call.
//! - A removed query never shows again, neither in the list nor in rows nor from the archive,
//!   unless it is searched again.
//! - A user who has not searched for [`Settings::idle_days`] takes no memory.
//!
//! Deliberately absent: folding of case. It depends on Unicode's tables, which change with the
//! compiler, so the edge folds and the command carries a digest: replay never folds again.

mod apply;
mod command;
mod query;
mod state;
#[cfg(test)]
mod tests;

pub use apply::Recents;
pub use command::{
    Add, ArchiveEffect, Archived, Clear, Command, PurgeEffect, RecentsEffect, Remove, Reply,
    Settings, fold,
};
pub use query::{
    Entry, HistoryPage, Removals, history, list_row, manifests, oldest, place, removals, settings,
    user_key,
};
pub use state::{Item, Items, List, Manifest};

use kernel::MachineId;

/// This machine's number in every log.
pub const MACHINE: MachineId = MachineId(3);
