//! The data folder.
//!
//! ```text
//!   DATA_DIR/
//!     node.json          format, number of shards, random id; written once
//!     secret             32 bytes, mode 0600; tokens are derived from it
//!     lock               held while a process serves from here
//!     shard-00/log/      the shard's log
//!     shard-00/rows/     its rows, as of the last checkpoint
//!     archive/           cold data, unless the configuration names a URL
//!     archive-marked     the archive has its mark, and is away where it has none
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kernel::ShardId;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

/// The only format there has been.
const FORMAT: u32 = 1;

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process serves from it.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// It was made with another number of shards. Data does not move between shards yet.
    #[error(
        "{path} was created with {found} shards, not {wanted}: leave --shards out, or start anew"
    )]
    Shards {
        /// The folder.
        path: PathBuf,
        /// What it was made with.
        found: u16,
        /// What was asked for.
        wanted: u16,
    },
    /// It is of a newer version, or not ours.
    #[error("{path} cannot be read: {what}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The operating system said no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    format: u32,
    shards: u16,
    id: String,
}

/// An opened data folder. The lock goes with it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    pub(crate) shard_count: u16,
    pub(crate) secret: [u8; 32],
    _lock: File,
}

fn io<'a>(path: &'a Path) -> impl Fn(std::io::Error) -> FolderError + 'a {
    move |source| FolderError::Io { path: path.to_owned(), source }
}

/// The shard folders' names.
#[must_use]
pub fn shard_folder(data_dir: &Path, shard: ShardId) -> PathBuf {
    data_dir.join(format!("shard-{:02}", shard.0))
}

impl Folder {
    /// Opens the folder, making it if it is not there. `wanted` shards count only then.
    pub(crate) fn open(path: &Path, wanted: Option<u16>) -> Result<Folder, FolderError> {
        // What is kept here is the tenants' own: nobody else on the machine may read it.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io(path))?;
        let lock_path = path.join("lock");
        let lock = File::create(&lock_path).map_err(io(&lock_path))?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(FolderError::InUse(path.to_owned()));
        }
        let secret = open_secret(path)?;
        let meta = match read_meta(path)? {
            Some(meta) => meta,
            None => {
                let shards = wanted.unwrap_or_else(cores);
                make_shard_folders(path, shards)?;
                write_meta(path, shards)?
            }
        };
        for log in (0..meta.shards).map(|shard| shard_folder(path, ShardId(shard)).join("log")) {
            if !log.is_dir() {
                // A new one would be an empty shard, and the loss would go unseen.
                let what = "it is missing, though the folder has this shard".into();
                return Err(FolderError::Unreadable { path: log, what });
            }
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != meta.shards) {
            let path = path.to_owned();
            return Err(FolderError::Shards { path, found: meta.shards, wanted });
        }
        Ok(Folder { path: path.to_owned(), shard_count: meta.shards, secret, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn log_dir(&self, shard: ShardId) -> PathBuf {
        shard_folder(&self.path, shard).join("log")
    }

    pub(crate) fn rows_dir(&self, shard: ShardId) -> PathBuf {
        shard_folder(&self.path, shard).join("rows")
    }

    pub(crate) fn archive_dir(&self) -> PathBuf {
        self.path.join("archive")
    }
}

/// Makes the shards' folders, durably, before `node.json` says that they are there.
fn make_shard_folders(path: &Path, shards: u16) -> Result<(), FolderError> {
    for shard in (0..shards).map(|shard| shard_folder(path, ShardId(shard))) {
        fs::create_dir_all(shard.join("log")).map_err(io(&shard))?;
        sync_folder(&shard)?;
    }
    sync_folder(path)?;
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => sync_folder(parent),
        None => sync_folder(Path::new(".")),
    }
}

pub(crate) fn sync_folder(path: &Path) -> Result<(), FolderError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(io(path))
}

fn cores() -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u16::try_from(cores).unwrap_or(u16::MAX).min(64)
}

fn read_meta(folder: &Path) -> Result<Option<Meta>, FolderError> {
    let path = folder.join("node.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(&path)(error)),
    };
    let unreadable = |what: String| FolderError::Unreadable { path: path.clone(), what };
    let meta: Meta = serde_json::from_slice(&text).map_err(|e| unreadable(e.to_string()))?;
    if meta.format != FORMAT || meta.shards == 0 {
        return Err(unreadable(format!("format {}, {} shards", meta.format, meta.shards)));
    }
    Ok(Some(meta))
}

/// The number of shards, or how many a folder was made with; for tools that only look.
///
/// # Errors
/// [`FolderError`] when it is not a data folder.
pub fn shard_count(folder: &Path) -> Result<u16, FolderError> {
    read_meta(folder)?.map(|meta| meta.shards).ok_or_else(|| FolderError::Unreadable {
        path: folder.join("node.json"),
        what: "it is not there; this is not a data folder".into(),
    })
}

fn write_meta(folder: &Path, shards: u16) -> Result<Meta, FolderError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).expect("the system has randomness");
    let id = u128::from_be_bytes(id);
    let meta = Meta { format: FORMAT, shards, id: format!("{id:032x}") };
    let text = serde_json::to_vec_pretty(&meta).expect("plain data");
    write_durably(&folder.join("node.json"), &text, 0o644)?;
    Ok(meta)
}

fn open_secret(folder: &Path) -> Result<[u8; 32], FolderError> {
    let path = folder.join("secret");
    let mut secret = [0; 32];
    match File::open(&path) {
        Ok(mut file) => file.read_exact(&mut secret).map_err(io(&path))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            getrandom::fill(&mut secret).expect("the system has randomness");
            write_durably(&path, &secret, 0o600)?;
        }
        Err(error) => return Err(io(&path)(error)),
    }
    Ok(secret)
}

/// Writes beside, syncs, renames, syncs the folder: whole or not at all.
pub(crate) fn write_durably(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FolderError> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.open(&beside).map_err(io(&beside))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io(&beside))?;
    fs::rename(&beside, path).map_err(io(path))?;
    sync_folder(path.parent().expect("a file in a folder"))
}
