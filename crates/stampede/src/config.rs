//! Configuration, in two steps: what was written, and what it means.
//!
//! A flag wins over its `STAMPEDE_…` variable, and both over the file. The file has the flags'
//! names as keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use http_edge::auth::{AuthOptions, JwksFiles};
use http_edge::telemetry::logs::{LogFormat, LogOptions};
use http_edge::telemetry::otlp::OtlpOptions;
use http_edge::tls::{Tls, TlsError};
use node::NodeConfig;
use serde::Deserialize;

use crate::listen::Listen;
use crate::remote::Usage;
use crate::values::number;

/// The row store tells of every checkpoint and compaction; that is for finding its bugs.
const LOG_DEFAULT: &str = "info,fjall=warn,lsm_tree=warn";

/// The share of traces that begin here and are exported.
const TRACE_SAMPLE: f64 = 0.01;
/// How many shards a folder may have.
const SHARDS: RangeInclusive<u64> = 1..=64;
/// Days that something is kept.
const DAYS: RangeInclusive<u64> = 1..=u16::MAX as u64;
/// What `--help` says of them.
const EXIT_CODES: &str = "Exit codes: 0 ended as asked, 1 cannot start or go on (port taken, folder \
    in use), 2 flags, files or settings that make no sense: nothing has been made then.";

/// What was written, on the command line, in the environment or in the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ServeFlags {
    /// The folder that everything is kept in [default: ./stampede-data]
    #[arg(long, env = "STAMPEDE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to listen: an address, or a name like localhost:7700 [default: 127.0.0.1:7700]
    #[arg(long, env = "STAMPEDE_LISTEN", value_name = "ADDR:PORT")]
    listen: Option<Listen>,
    /// Shards of a new folder [default: one a core]; an old one keeps its number
    #[arg(long, env = "STAMPEDE_SHARDS", value_name = "N", value_parser = number::<u16>(SHARDS))]
    shards: Option<u16>,
    /// A TOML file with these options
    #[arg(long, env = "STAMPEDE_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// No keys needed, the user is X-User; on loopback addresses only
    #[arg(long, env = "STAMPEDE_DEV", num_args = 0..=1, default_missing_value = "true",
          value_parser = clap::builder::BoolishValueParser::new())]
    dev: Option<bool>,
    /// Certificates for TLS, as PEM; read again on SIGHUP
    #[arg(long, env = "STAMPEDE_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of the first certificate, as PEM
    #[arg(long, env = "STAMPEDE_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// What to log: info, or by module: info,http_edge=debug [default: info,fjall=warn,lsm_tree=warn]
    #[arg(long, env = "STAMPEDE_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How log lines look [default: auto, which is text on a terminal and JSON otherwise]
    #[arg(long, env = "STAMPEDE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<Format>,
    /// An OpenTelemetry collector for traces, as http://host:4318
    #[arg(long, env = "STAMPEDE_OTLP", value_name = "URL")]
    otlp: Option<String>,
    /// A JWKS document for the shoppers of a tenant, as TENANT=FILE; may be given more than once
    #[arg(long, env = "STAMPEDE_JWKS", value_name = "TENANT=FILE", value_delimiter = ',')]
    jwks: Vec<String>,
    /// Where cold data goes, as file:///absolute/path [default: archive in the data folder]
    #[arg(long, env = "STAMPEDE_ARCHIVE", value_name = "URL")]
    archive: Option<String>,
    /// Memory for what crowds read, in MiB; with 0 each read is made anew [default: 256]
    #[arg(long, env = "STAMPEDE_VIEWS_MIB", value_name = "MIB",
          value_parser = number::<u32>(0..=u32::MAX.into()))]
    views_mib: Option<u32>,
    /// Searches in a user's list, 1 to 1000 [default: 10]
    #[arg(long, env = "STAMPEDE_RECENTS_KEEP", value_name = "N",
          value_parser = number::<u16>(1..=1000))]
    recents_keep: Option<u16>,
    /// Days until searches move to the archive [default: 180]
    #[arg(long, env = "STAMPEDE_RECENTS_ARCHIVE_AFTER_DAYS", value_name = "DAYS",
          value_parser = number::<u16>(DAYS))]
    recents_archive_after_days: Option<u16>,
    /// Days without a search until a user leaves memory [default: 30]
    #[arg(long, env = "STAMPEDE_RECENTS_IDLE_DAYS", value_name = "DAYS",
          value_parser = number::<u16>(DAYS))]
    recents_idle_days: Option<u16>,
}

#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Format {
    Auto,
    Json,
    Text,
}

/// What it means.
#[derive(Clone)]
pub(crate) struct ServeConfig {
    /// The first of these that the machine has.
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) dev: bool,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) log: LogOptions,
    pub(crate) otlp: Option<OtlpOptions>,
    pub(crate) auth: AuthOptions,
    pub(crate) node: NodeConfig,
}

impl ServeFlags {
    /// Reads the files that are named, and makes sense of everything together. Nothing is made
    /// before, so that a mistake leaves nothing behind.
    pub(crate) fn resolve(self) -> Result<ServeConfig, Usage> {
        self.understood().map_err(|error| Usage(crate::in_one_line(&error)))
    }

    fn understood(self) -> anyhow::Result<ServeConfig> {
        let file = self.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let flags = self.over(file);
        let listen = flags.listen.unwrap_or_default().addresses()?;
        let dev = flags.dev.unwrap_or(false);
        for address in &listen {
            http_edge::auth::check_dev_address(dev, *address)?;
        }
        let tls = match (flags.tls_cert, flags.tls_key) {
            (Some(cert), Some(key)) => Some(Arc::new(load_tls(cert, key)?)),
            (None, None) => None,
            _ => bail!("--tls-cert and --tls-key go together"),
        };
        if flags.shards.is_some_and(|shards| !SHARDS.contains(&shards.into())) {
            bail!("--shards must be from 1 to 64");
        }
        let archive_dir = flags.archive.as_deref().map(archive_dir).transpose()?;
        let defaults = NodeConfig::default();
        let recents = recents::Settings {
            keep: flags.recents_keep.unwrap_or(defaults.recents.keep),
            archive_after_days: flags
                .recents_archive_after_days
                .unwrap_or(defaults.recents.archive_after_days),
            idle_days: flags.recents_idle_days.unwrap_or(defaults.recents.idle_days),
        };
        let format = match flags.log_format {
            None | Some(Format::Auto) => LogFormat::Auto,
            Some(Format::Json) => LogFormat::Json,
            Some(Format::Text) => LogFormat::Text,
        };
        let filter = flags.log.unwrap_or_else(|| LOG_DEFAULT.to_owned());
        let node = NodeConfig {
            data_dir: flags.data.unwrap_or(defaults.data_dir.clone()),
            shards: flags.shards,
            recents,
            archive_dir,
            views_bytes_max: flags
                .views_mib
                .map_or(defaults.views_bytes_max, |mib| (mib as usize) << 20),
            ..defaults
        };
        let log = LogOptions { filter, format };
        let auth = AuthOptions { jwks: jwks(&flags.jwks)?, ..AuthOptions::default() };
        let otlp = flags.otlp.map(|url| OtlpOptions::new(&url, TRACE_SAMPLE)).transpose();
        let otlp = otlp.map_err(|error| anyhow!("--otlp {error}"))?;
        Ok(ServeConfig { listen, dev, tls, log, otlp, auth, node })
    }

    fn over(self, file: ServeFlags) -> ServeFlags {
        ServeFlags {
            data: self.data.or(file.data),
            listen: self.listen.or(file.listen),
            shards: self.shards.or(file.shards),
            config: self.config,
            dev: self.dev.or(file.dev),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
            otlp: self.otlp.or(file.otlp),
            jwks: if self.jwks.is_empty() { file.jwks } else { self.jwks },
            archive: self.archive.or(file.archive),
            views_mib: self.views_mib.or(file.views_mib),
            recents_keep: self.recents_keep.or(file.recents_keep),
            recents_archive_after_days: self
                .recents_archive_after_days
                .or(file.recents_archive_after_days),
            recents_idle_days: self.recents_idle_days.or(file.recents_idle_days),
        }
    }
}

/// The certificate of the flags, which an error names with their files.
fn load_tls(cert: PathBuf, key: PathBuf) -> anyhow::Result<Tls> {
    Tls::load(cert.clone(), key.clone()).map_err(|error| match error {
        TlsError::Certificates { .. } | TlsError::Empty { .. } => anyhow!("--tls-cert {error}"),
        TlsError::Key { .. } | TlsError::NoKey { .. } => anyhow!("--tls-key {error}"),
        TlsError::Rustls(why) => {
            let (cert, key) = (cert.display(), key.display());
            anyhow!("--tls-cert {cert} and --tls-key {key} do not go together: {why}")
        }
    })
}

/// The folder of a URL. There is no other archive yet.
fn archive_dir(url: &str) -> anyhow::Result<PathBuf> {
    match url.strip_prefix("file://").filter(|path| path.starts_with('/')) {
        Some(path) => Ok(PathBuf::from(path)),
        None => bail!("--archive {url}: it is like file:///absolute/path"),
    }
}

fn jwks(written: &[String]) -> anyhow::Result<JwksFiles> {
    let mut files = BTreeMap::new();
    for text in written {
        let Some((tenant, file)) = text.split_once('=') else {
            bail!("--jwks must be TENANT=FILE, not {text}");
        };
        files.insert(tenant.to_owned(), PathBuf::from(file));
    }
    JwksFiles::read(&files).map_err(|error| anyhow!("--jwks {error}"))
}

fn read_file(path: &Path) -> anyhow::Result<ServeFlags> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("--config {shown}"))?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let words: Vec<_> = error.message().split_whitespace().collect();
        anyhow!("--config {shown}, line {line}: {}", words.join(" "))
    })
}
