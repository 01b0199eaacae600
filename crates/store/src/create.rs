//! The first opening of a store.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fjall::Database;
use kernel::BaseError;

use crate::failure::{StoreFault, failed};
use crate::options::layout;

/// Written by fjall into each of its folders.
const MARKER: &str = "version";

/// The one keyspace.
pub(crate) const KEYSPACE: &str = "rows";

/// Makes sure that `dir` holds a store.
///
/// fjall cannot reopen a folder whose creation was cut short, so a new store is made beside its
/// place and moved there whole.
pub(crate) fn ensure_created(dir: &Path) -> Result<(), BaseError> {
    create(dir).map_err(|source| failed("creating the store", source))
}

fn create(dir: &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if dir.join(MARKER).try_exists()? {
        return Ok(());
    }
    let dir = std::path::absolute(dir)?;
    let parent = dir.parent().ok_or(StoreFault::NotAStore)?;
    std::fs::create_dir_all(parent)?;
    if dir.try_exists()? && std::fs::read_dir(&dir)?.next().is_some() {
        return Err(StoreFault::NotAStore.into());
    }
    let building = building_path(&dir);
    match std::fs::remove_dir_all(&building) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    {
        let db = Database::builder(&building).worker_threads_unchecked(0).open()?;
        db.keyspace(KEYSPACE, layout)?;
    }
    sync_folder(&building.join("keyspaces"))?;
    sync_folder(&building)?;
    std::fs::rename(&building, &dir)?;
    sync_folder(parent)?;
    Ok(())
}

fn building_path(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".building");
    dir.with_file_name(name)
}

fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_cut_short_is_begun_again() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let dir = parent.path().join("shard-1");
        let building = building_path(&dir);
        std::fs::create_dir_all(&building).expect("made");
        std::fs::write(building.join(MARKER), b"").expect("written");
        ensure_created(&dir).expect("created");
        assert!(dir.join(MARKER).exists() && !building.exists());
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("letter.txt"), b"dear").expect("written");
        assert!(matches!(ensure_created(dir.path()), Err(BaseError::Failed { .. })));
    }
}
