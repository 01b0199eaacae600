//! Talking to a server from the command line.

use std::future::Future;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use client::{Client, Error};

/// Which server, and as whom.
#[derive(Args, Clone)]
pub(crate) struct ServerFlags {
    /// The server
    #[arg(
        long,
        env = "STAMPEDE_SERVER",
        default_value = "http://127.0.0.1:7700",
        value_name = "URL",
        global = true
    )]
    server: String,
    /// The key, sk_…; a server with --dev needs none
    #[arg(long, env = "STAMPEDE_KEY", hide_env_values = true, value_name = "KEY", global = true)]
    key: Option<String>,
    /// The tenant, for a server with --dev
    #[arg(long, env = "STAMPEDE_TENANT", value_name = "TENANT", global = true)]
    tenant: Option<String>,
}

/// Arguments that make no sense together: exit code 2, like those that cannot be parsed.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl ServerFlags {
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let mut builder = Client::builder(&self.server);
        if let Some(key) = &self.key {
            builder = builder.key(key);
        }
        if let Some(tenant) = &self.tenant {
            builder = builder.tenant(tenant);
        }
        builder.build().map_err(|error| match error {
            Error::Setting(what) => Usage(what).into(),
            other => other.into(),
        })
    }
}

/// Runs to the end on a runtime of its own.
pub(crate) fn block_on(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(work);
    // A thread that reads stdin cannot be interrupted, and must not be waited for.
    runtime.shutdown_background();
    outcome
}

/// Prints lines at once: a reader in a pipe sees them now.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// `30`, `30s`, `5m`, `2h` or `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, "s"),
    };
    let factor = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 1,
    };
    let number: u64 = number.parse().map_err(|_| "it is like 30, 30s, 5m, 2h or 1d".to_owned())?;
    number.checked_mul(factor).map(Duration::from_secs).ok_or_else(|| "too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_units() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs());
        assert_eq!([seconds("7"), seconds("7s"), seconds("2m")], [Ok(7), Ok(7), Ok(120)]);
        assert_eq!([seconds("1h"), seconds("1d"), seconds("0")], [Ok(3600), Ok(86_400), Ok(0)]);
        for bad in ["", "s", "-1", "1.5", "1w", "99999999999999999999", "999999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
