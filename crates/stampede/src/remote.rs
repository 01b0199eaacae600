//! Talking to a server from the command line.

use std::future::Future;
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use client::{Client, Error};

use crate::output::print;
use crate::values::in_units;

/// What `--help` says of them.
pub(crate) const EXIT_CODES: &str =
    "Exit codes: 0 done as asked, 1 failed or refused, 2 arguments that make no sense.";

/// The key, for those who do not give it as a flag, which others could see.
pub(crate) const KEY_VARIABLE: &str = "STAMPEDE_KEY";

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
    #[arg(long, env = KEY_VARIABLE, hide_env_values = true, value_name = "KEY", global = true)]
    key: Option<String>,
    /// Certificates to trust besides those that the machine trusts, as PEM: of a private authority
    #[arg(long, env = "STAMPEDE_CA_CERT", value_name = "FILE", global = true)]
    ca_cert: Option<PathBuf>,
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

/// What `--filter` says, if it is given.
pub(crate) fn filter(json: Option<&str>) -> Result<Option<serde_json::Value>, Usage> {
    let wrong = |error| Usage(format!("--filter is not JSON: {error}"));
    json.map(serde_json::from_str).transpose().map_err(wrong)
}

impl ServerFlags {
    pub(crate) fn key(&self) -> Option<String> {
        self.key.clone()
    }

    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let mut builder = Client::builder(&self.server);
        if let Some(key) = &self.key {
            builder = builder.key(key);
        }
        if let Some(tenant) = &self.tenant {
            builder = builder.tenant(tenant);
        }
        if let Some(path) = &self.ca_cert {
            let pem = std::fs::read(path)
                .map_err(|error| Usage(format!("--ca-cert {}: {error}", path.display())))?;
            builder = builder.root_certificates(pem);
        }
        builder.build().map_err(|error| match (error, &self.ca_cert) {
            (Error::Setting(what), Some(path)) if what.starts_with("certificate: ") => {
                Usage(format!("--ca-cert {}: {what}", path.display())).into()
            }
            (Error::Setting(what), _) => Usage(what).into(),
            (other, _) => other.into(),
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

/// Asks whoever sits there; nobody does when stdin is no terminal.
pub(crate) fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    // Not what is met when a reader has had enough: nothing was done.
    print(&format!("{question} [y/N] "))
        .map_err(|error| anyhow!("nobody can be asked on stdout: {error}; --yes asks nobody"))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Usage("nothing was removed".to_owned()).into()),
    }
}

/// What the API calls a thing, and the flag that says it here.
const FLAGS: &[(&str, &str)] = &[
    ("mode", "--fifo"),
    ("retentionSeconds", "--retention"),
    ("defaultVisibilityTimeoutSeconds", "--visibility"),
    ("visibilityTimeoutSeconds", "--visibility"),
    ("delaySeconds", "--delay"),
    ("receiveWaitSeconds", "--receive-wait"),
    ("deduplicationWindowSeconds", "--dedup-window"),
    ("maxReceiveCount", "--max-receives"),
    ("deadLetterQueue", "--dead-letter"),
    ("retryBackoff.baseSeconds", "--backoff"),
    ("retryBackoff.maxSeconds", "--backoff-max"),
    ("retryBackoff.jitter", "--no-jitter"),
    ("deduplicateByBody", "--dedup-by-body"),
    ("maxMessagesPerSecond", "--rate"),
    ("maxMessages", "--max-messages"),
    ("maxBytes", "--max-bytes"),
    ("maxPublishPerSecond", "--max-publish-per-second"),
    ("maxAgeSeconds", "--max-age"),
    ("maxInflight", "--max-inflight"),
    ("maxBodyBytes", "--max-body-bytes"),
    ("largeBodies", "--large-bodies"),
    ("tags", "--tag"),
    ("partitions", "--partitions"),
    ("retentionBytes", "--retention-bytes"),
    ("waitSeconds", "--wait"),
    ("messageGroupId", "--group"),
    ("deduplicationKey", "--dedup"),
    ("targetQueue", "--to"),
    ("attributes", "--attribute"),
    ("filter", "--filter"),
    ("limit", "--max"),
    ("cursor", "--cursor"),
];

/// A refusal in the words of the command line: names of fields become flags, where it speaks of
/// one.
pub(crate) fn in_flags(refusal: &str) -> String {
    if let Some((before, fields)) = refusal.split_once(OTHER_SETTINGS) {
        return format!("{before}{OTHER_SETTINGS}{}", each_in_flags(fields));
    }
    // A field's own name is no other word; short ones are, and count only where a place is told.
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let (at, rest) = match refusal.strip_prefix("at ") {
        Some(rest) => (true, rest),
        None => (false, refusal),
    };
    let place = rest.trim_start_matches('`');
    for (field, flag) in FLAGS {
        let named = place.strip_prefix(field).filter(|after| !after.starts_with(is_word));
        let queried = named.and_then(|after| after.strip_prefix("` in the query"));
        if let Some(after) = queried.or(named.filter(|_| at)) {
            let after = after.strip_prefix('.').map_or(after.to_owned(), |name| format!(" {name}"));
            let after = if field.ends_with("Seconds") { with_units(&after) } else { after };
            return format!("{flag}{}", in_words(&after));
        }
    }
    in_words(refusal)
}

/// What comes before the names of fields in which a thing is not what is wanted.
const OTHER_SETTINGS: &str = "with other settings: ";

/// Names of fields alone, of which all that have a flag become it, and the code of the refusal.
fn each_in_flags(fields: &str) -> String {
    let (fields, code) = fields.split_at(fields.find(" (").unwrap_or(fields.len()));
    let in_flags = |field: &str| {
        let found = FLAGS.iter().find(|(name, _)| *name == field);
        found.map_or(field, |(_, flag)| *flag).to_owned()
    };
    let flags: Vec<_> = fields.split(", ").map(in_flags).collect();
    format!("{}{code}", flags.join(", "))
}

/// `from 0 to 43200`, which are seconds, as `from 0 to 12h`.
fn with_units(text: &str) -> String {
    let unit = |word: &str| word.parse().map_or(word.to_owned(), in_units);
    text.split(' ').map(unit).collect::<Vec<_>>().join(" ")
}

fn in_words(text: &str) -> String {
    let camel = FLAGS.iter().filter(|(field, _)| field.contains(char::is_uppercase));
    camel.fold(text.to_owned(), |text, (field, flag)| {
        let parts: Vec<_> = text.split(field).collect();
        let mut said = parts[0].to_owned();
        for part in &parts[1..] {
            let inside = said.ends_with(|c: char| c.is_ascii_alphanumeric())
                || part.starts_with(|c: char| c.is_ascii_alphanumeric());
            said.push_str(if inside { field } else { flag });
            said.push_str(part);
        }
        said
    })
}

/// What a person at the command line can do about it, after what went wrong.
pub(crate) fn told(error: &Error) -> String {
    let said = error.to_string();
    match error {
        Error::Problem(problem) if problem.status == 401 => {
            format!("{said}; --key or STAMPEDE_KEY gives the key")
        }
        Error::Problem(_) => in_flags(&said),
        // What `openssl req -x509` makes unless it is told otherwise.
        Error::Unreachable { .. } if said.contains("CaUsedAsEndEntity") => format!(
            "{said}; the server's certificate says CA:TRUE: an authority may sign a server's \
             certificate but not be one (openssl: -addext basicConstraints=critical,CA:FALSE)"
        ),
        // What rustls says of an answer that is none of TLS.
        Error::Unreachable { .. } if said.contains("InvalidContentType") => {
            format!("{said}; the server does not speak TLS there: try http://")
        }
        Error::Unreachable { .. } if said.contains("certificate") => {
            format!("{said}; --ca-cert or STAMPEDE_CA_CERT names whom to trust")
        }
        Error::Unreachable { .. } => {
            format!("{said}; --server or STAMPEDE_SERVER says where the server is")
        }
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::in_flags;

    #[test]
    fn fields_are_told_as_flags() {
        for (said, told) in [
            (
                "at retentionSeconds: it must be from 1 to 9 (400)",
                "--retention: it must be from 1s to 9s (400)",
            ),
            (
                "at visibilityTimeoutSeconds: it must be from 0 to 43200 (400)",
                "--visibility: it must be from 0 to 12h (400)",
            ),
            (
                "there is a queue `mode`, with other settings: mode, retryBackoff.jitter, tags, \
                 attributes of SQS (409, conflict)",
                "there is a queue `mode`, with other settings: --fifo, --no-jitter, --tag, \
                 attributes of SQS (409, conflict)",
            ),
            ("with other settings: partitions", "with other settings: --partitions"),
            ("there is one with other settings (409)", "there is one with other settings (409)"),
            ("at attributes.kind: no", "--attribute kind: no"),
            ("at filter: a: no", "--filter: a: no"),
            ("`limit` in the query: it must be from 1 to 9", "--max: it must be from 1 to 9"),
            (
                "maxReceiveCount needs deadLetterQueue as well",
                "--max-receives needs --dead-letter as well",
            ),
            ("as its maxMessages allows", "as its --max-messages allows"),
            ("at maxMessagesPerSecond: x", "--rate: x"),
            ("the filter and the limit", "the filter and the limit"),
            ("there is no queue `maxMessagesX`", "there is no queue `maxMessagesX`"),
        ] {
            assert_eq!(in_flags(said), told);
        }
    }
}
