//! Failures, as the kernel names them.

use std::io;

use kernel::BaseError;

/// What can be wrong besides what fjall and the operating system report.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// An earlier write failed, so that memory and disk may disagree.
    #[error("an earlier write failed; the store must be opened anew")]
    Poisoned,
    /// A snapshot was given something to take.
    #[error("a snapshot takes no checkpoint")]
    ReadOnly,
    /// The folder holds something, and it is not a store.
    #[error("the folder is neither empty nor a store")]
    NotAStore,
    /// The row that holds the applied index is not eight bytes long.
    #[error("the applied index is damaged")]
    AppliedDamaged,
}

/// A failure that only reopening can help.
pub(crate) fn failed(
    doing: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> BaseError {
    BaseError::Failed { doing, source: source.into() }
}

/// Whether the file system said that it, or the quota, is full.
pub(crate) fn is_full(error: &fjall::LsmError) -> bool {
    matches!(
        error,
        fjall::LsmError::Io(error)
            if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    )
}
