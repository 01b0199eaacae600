//! Configuration, in two steps: what was written, and what it means.
//!
//! A flag wins over its `STAMPEDE_…` variable, and both over the file. The file has the flags'
//! names as keys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use http_edge::auth::AuthOptions;
use http_edge::telemetry::logs::{LogFormat, LogOptions};
use node::NodeConfig;
use serde::Deserialize;

/// The row store tells of every checkpoint and compaction; that is for finding its bugs.
const LOG_DEFAULT: &str = "info,fjall=warn,lsm_tree=warn";

/// What was written, on the command line, in the environment or in the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ServeFlags {
    /// The folder that everything is kept in [default: ./stampede-data]
    #[arg(long, env = "STAMPEDE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:7700]
    #[arg(long, env = "STAMPEDE_LISTEN", value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Shards of a new folder [default: one a core]; an old one keeps its number
    #[arg(long, env = "STAMPEDE_SHARDS", value_name = "N")]
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
    /// Where cold data goes, as file:///folder [default: archive in the data folder]
    #[arg(long, env = "STAMPEDE_ARCHIVE", value_name = "URL")]
    archive: Option<String>,
    /// Memory for what crowds read, in MiB [default: 256]
    #[arg(long, env = "STAMPEDE_VIEWS_MIB", value_name = "MIB")]
    views_mib: Option<u32>,
    /// Searches in a user's list, 1 to 1000 [default: 10]
    #[arg(long, env = "STAMPEDE_RECENTS_KEEP", value_name = "N")]
    recents_keep: Option<u16>,
    /// Days until searches move to the archive [default: 180]
    #[arg(long, env = "STAMPEDE_RECENTS_ARCHIVE_AFTER_DAYS", value_name = "DAYS")]
    recents_archive_after_days: Option<u16>,
    /// Days without a search until a user leaves memory [default: 30]
    #[arg(long, env = "STAMPEDE_RECENTS_IDLE_DAYS", value_name = "DAYS")]
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
    pub(crate) listen: SocketAddr,
    pub(crate) dev: bool,
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    pub(crate) log: LogOptions,
    pub(crate) otlp: Option<String>,
    pub(crate) auth: AuthOptions,
    pub(crate) node: NodeConfig,
}

impl ServeFlags {
    /// Reads the file, if one is named, and makes sense of everything together.
    pub(crate) fn resolve(self) -> anyhow::Result<ServeConfig> {
        let file = self.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let flags = self.over(file);
        let listen = flags.listen.unwrap_or_else(|| ([127, 0, 0, 1], 7700).into());
        let dev = flags.dev.unwrap_or(false);
        http_edge::auth::check_dev_address(dev, listen)?;
        let tls = match (flags.tls_cert, flags.tls_key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => bail!("--tls-cert and --tls-key go together"),
        };
        if flags.shards.is_some_and(|shards| !(1..=64).contains(&shards)) {
            bail!("--shards must be from 1 to 64");
        }
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
            archive_url: flags.archive,
            views_bytes_max: flags
                .views_mib
                .map_or(defaults.views_bytes_max, |mib| (mib as usize) << 20),
            ..defaults
        };
        let log = LogOptions { filter, format };
        let auth = AuthOptions { jwks_files: jwks_files(&flags.jwks)?, ..AuthOptions::default() };
        Ok(ServeConfig { listen, dev, tls, log, otlp: flags.otlp, auth, node })
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

fn jwks_files(written: &[String]) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((tenant, file)) => Ok((tenant.to_owned(), PathBuf::from(file))),
        None => bail!("--jwks must be TENANT=FILE, not {text}"),
    };
    written.iter().map(pair).collect()
}

fn read_file(path: &Path) -> anyhow::Result<ServeFlags> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}
