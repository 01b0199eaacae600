//! Every bound of the kernel and the shard, in one place.
//!
//! Those marked *(frozen)* decide what apply does and are therefore part of the log's meaning:
//! they may differ between entries only because the entry itself carries them.

/// Commands in one entry. Also the ordinals an entry's unique numbers leave room for.
pub const ENTRY_COMMANDS_MAX: usize = 4096;

/// Payload of one entry. The log's own limit is higher, so that one oversized command is refused
/// at the edge and never here.
pub const ENTRY_BYTES_MAX: usize = 8 << 20;

/// One command, encoded.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Timers that fire in one entry; the rest follow in the next. Carried by the entry.
pub const TIMERS_PER_ENTRY_MAX: u32 = 4096;

/// Timers in memory. Beyond it the latest are left to their rows.
pub const WHEEL_TIMERS_MAX: usize = 1 << 20;

/// Timers brought from rows at a time.
pub const WHEEL_LOAD_MAX: usize = 1024;

/// Timers of this bucket and the next are in memory.
pub const BUCKET_MS: u64 = 5 * 60 * 1000;

/// Letters that one command may send on within its own shard, before it is plainly a loop.
pub const LETTERS_PER_COMMAND_MAX: usize = 10_000;

/// How long an answer is remembered under its idempotency key. *(frozen)*
pub const IDEMPOTENCY_MS: u64 = 24 * 60 * 60 * 1000;

/// Unique numbers that one entry can give out: its index is shifted by this.
pub const UNIQUE_BITS: u32 = 24;

/// Entries in flight to the log, at most. One sync may cover all of them; with a log that syncs by
/// itself one is being synced and one on its way, and more would only be smaller.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 2;

/// Active rows in memory at which a checkpoint starts.
pub const CHECKPOINT_BYTES: usize = 64 << 20;

/// Bytes that the log grows by at which a checkpoint starts, however few rows it left.
pub const CHECKPOINT_LOG_BYTES: u64 = 512 << 20;

/// What a machine may write in one letter: with its envelope it is still a command.
pub const LETTER_BYTES_MAX: usize = COMMAND_BYTES_MAX;

/// Active rows in memory at which new commands wait until a checkpoint has finished.
///
/// A frozen layer of as much may be on its way to the base at the same time.
pub const OVERLAY_BYTES_MAX: usize = 256 << 20;
