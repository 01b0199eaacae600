//! The durable log of a shard.
//!
//! [`Log`] is the contract; [`mod@file`] keeps it on a local disk, [`memory`] in memory, and the
//! simulated disk of [`disk`] lets the file log's own code be crashed at any write.
//! [`conformance`] is the suite that every provider passes.
//!
//! | module | what it holds |
//! |---|---|
//! | [`log`] | the contract: entries, events, errors |
//! | [`mod@file`] | the log in a folder: segments, group commit, recovery |
//! | [`simulated`] | the file log without threads, on a simulated disk |
//! | [`memory`] | the log in memory, which can have two owners |
//! | [`disk`] | the file-system calls that the file log makes, real and simulated |
//! | [`inspect`] | looks at a log without opening it |
//! | [`conformance`] | what every provider must do |

pub mod conformance;
pub mod disk;
pub mod file;
pub mod inspect;
pub mod log;
pub mod memory;
pub mod simulated;

pub use disk::{Disk, DiskFile, RealDisk, SimDisk};
pub use file::{FileLog, Options};
pub use log::{AppendError, Event, EventSink, Kind, Log, LogError, LostCause, OpenError, Record};
pub use memory::{MemoryLog, MemoryStore};
pub use simulated::{SimHandle, SimLog};
