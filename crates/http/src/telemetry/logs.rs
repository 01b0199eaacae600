//! Structured logs on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// What is logged, and how.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// `info`, or by module: `info,http_edge=debug` also logs every request.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { filter: "info".to_owned(), format: LogFormat::Auto }
    }
}

/// Why logging could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter makes no sense.
    #[error("the log filter: {0}")]
    Filter(#[from] ParseError),
    /// Something else in this process logs already.
    #[error("logging was begun twice")]
    Twice,
}

/// Begins logging.
///
/// # Errors
/// [`LogError`].
pub fn init(options: &LogOptions) -> Result<(), LogError> {
    init_to(options, io::stderr)
}

/// The same by way of `out`, which may bring lines to standard error later.
///
/// # Errors
/// [`LogError`].
pub fn init_to<W: io::Write>(
    options: &LogOptions,
    out: impl Fn() -> W + Send + Sync + 'static,
) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&options.filter)?;
    let terminal = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(out)
        // A line that cannot be written is lost. Telling of that on the same stream would panic.
        .log_internal_errors(false)
        .with_ansi(terminal);
    let json = match options.format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let begun = if json { lines.json().flatten_event(true).try_init() } else { lines.try_init() };
    begun.map_err(|_| LogError::Twice)
}
