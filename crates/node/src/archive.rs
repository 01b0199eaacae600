//! The archive, and whether it is there.
//!
//! A disk that is not mounted looks like an empty folder, in which nothing is found: every body would
//! be taken for lost, and whatever is put there would be out of sight once the disk is back. So an
//! archive has a mark, put there once. Where the mark is not, the archive is away.

use std::path::Path as FilePath;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};

use crate::folder::{Folder, sync_folder, write_durably};
use crate::node::StartError;

/// What an archive is known by.
const MARK: &str = "stampede-archive";
/// In the data folder: its archive has been marked.
const MARKED: &str = "archive-marked";

/// See the module.
#[derive(Clone)]
pub(crate) struct Archive {
    store: Arc<dyn ObjectStore>,
}

impl Archive {
    /// Opens the archive of a data folder; makes and marks it if the folder never had one.
    pub(crate) fn open(dir: &FilePath, folder: &Folder) -> Result<Archive, StartError> {
        let unusable = |what: String| StartError::Archive { url: dir.display().to_string(), what };
        let failed = |error: std::io::Error| unusable(error.to_string());
        let marked = folder.path().join(MARKED);
        if !marked.try_exists().map_err(failed)? {
            std::fs::create_dir_all(dir).map_err(failed)?;
            let why = b"Cold data of Stampede lies here. Without this file it counts as away.\n";
            write_durably(&dir.join(MARK), why, 0o644)?;
            sync_folder(dir.parent().unwrap_or(dir))?;
            write_durably(&marked, b"", 0o644)?;
        }
        if !dir.join(MARK).try_exists().map_err(failed)? {
            return Err(unusable(format!(
                "it is away, or another one: it has no file {MARK}; bring it back, or put an empty \
                 file of this name there to go on without what it held"
            )));
        }
        let store = LocalFileSystem::new_with_prefix(dir);
        let store = store.map_err(|error| unusable(error.to_string()))?.with_fsync(true);
        Ok(Archive { store: Arc::new(store) })
    }

    /// Fails while the archive is away.
    async fn check(&self) -> Result<(), Error> {
        match self.store.head(&Path::from(MARK)).await {
            Ok(_) => Ok(()),
            Err(Error::NotFound { .. }) => {
                let source = format!("it is away: it has no object {MARK}").into();
                Err(Error::Generic { store: "archive", source })
            }
            Err(error) => Err(error),
        }
    }

    /// [`Error::NotFound`] only of what is not there although the archive is: seen to be there before
    /// it was looked for, and after. It may have come back in between.
    async fn unless_away<T, F: Future<Output = Result<T, Error>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, Error> {
        let mut outcome = ask().await;
        if matches!(outcome, Err(Error::NotFound { .. })) {
            self.check().await?;
            outcome = ask().await;
        }
        if matches!(outcome, Err(Error::NotFound { .. })) {
            self.check().await?;
        }
        outcome
    }

    pub(crate) async fn get(&self, path: &Path) -> Result<GetResult, Error> {
        self.unless_away(|| self.store.get(path)).await
    }

    /// It is durable when this resolves.
    pub(crate) async fn put(&self, path: &Path, payload: PutPayload) -> Result<(), Error> {
        self.check().await?;
        self.store.put(path, payload).await.map(drop)
    }

    /// One that is not there is deleted.
    pub(crate) async fn delete(&self, path: &Path) -> Result<(), Error> {
        match self.unless_away(|| self.store.delete(path)).await {
            Err(Error::NotFound { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// What lies in a folder of it.
    pub(crate) async fn list(
        &self,
        folder: &Path,
    ) -> Result<BoxStream<'static, Result<ObjectMeta, Error>>, Error> {
        self.check().await?;
        Ok(self.store.list(Some(folder)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn what_is_missed_while_the_archive_comes_back_is_looked_for_again() {
        let store = Arc::new(object_store::memory::InMemory::new());
        store.put(&Path::from(MARK), PutPayload::new()).await.expect("memory takes it");
        let archive = Archive { store };
        let (path, asked) = (Path::from("body"), Cell::new(0));
        let missing = || Error::NotFound { path: path.to_string(), source: "away".into() };
        let outcome = archive.unless_away(async || {
            asked.set(asked.get() + 1);
            // The disk is mounted after the first look and before the mark is looked for.
            if asked.get() == 1 { Err(missing()) } else { Ok("found") }
        });
        assert_eq!(outcome.await.ok(), Some("found"));
        let outcome = archive.unless_away(async || Err::<(), _>(missing())).await;
        assert!(matches!(outcome, Err(Error::NotFound { .. })), "it is there, and the body is not");
    }
}
