//! What a command prints and says, also where nobody reads it.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::anyhow;

/// Prints lines at once: a reader in a pipe sees them now. For commands that only look: one whose
/// reader has had enough is done.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Says a line on stderr. That it cannot be written is no reason to fail, and still less to panic.
pub(crate) fn tell(line: impl Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// What a command prints that changes something, step by step: it goes on when nobody reads.
#[derive(Default)]
pub(crate) struct Report {
    failed: Option<io::Error>,
}

impl Report {
    /// As [`print()`], as long as that can be.
    pub(crate) fn print(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = print(text).err();
        }
    }

    /// Once everything is done: who has had enough knows that the rest is missing, and nobody else does.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        match self.failed {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(anyhow!("what was done could not all be printed: {error}"))
            }
            _ => Ok(()),
        }
    }
}
