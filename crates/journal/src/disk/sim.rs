//! A disk in memory, which forgets like a real one.
//!
//! What a real disk promises, and no more: a write is durable after a sync of its file, a name
//! after a sync of its folder. [`SimDisk::crash`] decides for every 512-byte sector that was
//! written and not synced which of its versions survives, in any order, and for every change
//! of a name whether it happened. A sync that fails drops what it should have written *and still
//! shows it to readers*, as Linux does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Access, Disk, DiskFile, Lock};

const SECTOR_BYTES: usize = 512;

/// What goes wrong, and when. Counts go down with each call; at 0 the call fails.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Fails the write after this many.
    pub write_in: Option<u64>,
    /// Fails the sync after this many.
    pub sync_in: Option<u64>,
    /// Every write takes at most this many bytes.
    pub short_write_bytes: Option<usize>,
    /// After this many changes to the disk the power is gone: everything fails until
    /// [`SimDisk::crash`].
    pub power_lost_in: Option<u64>,
}

/// A disk in memory. Clones are the same disk, so a log opened again after [`SimDisk::crash`]
/// finds what survived.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    random: Random,
    faults: Faults,
    free_bytes: u64,
    /// Grows with each crash; files and locks of an earlier life are dead.
    life: u64,
    powered: bool,
    files: BTreeMap<u64, File>,
    file_next: u64,
    names: BTreeMap<PathBuf, u64>,
    names_durable: BTreeMap<PathBuf, u64>,
    names_pending: Vec<NameChange>,
    locks: BTreeSet<PathBuf>,
    changes: u64,
}

#[derive(Clone)]
enum NameChange {
    Add(PathBuf, u64),
    Rename(PathBuf, PathBuf, u64),
    Remove(PathBuf, u64),
}

#[derive(Default)]
struct File {
    /// What readers see.
    shown: Vec<u8>,
    /// What a crash cannot take.
    durable: Vec<u8>,
    /// Written since the last sync, in order.
    pending: Vec<(usize, Vec<u8>)>,
}

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        usize::try_from(self.next() % bound).expect("less than a usize")
    }
}

impl SimDisk {
    /// An empty disk with a lot of room. The seed decides the numbers of [`Disk::random`].
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(State {
                random: Random(seed),
                faults: Faults::default(),
                free_bytes: 1 << 40,
                life: 0,
                powered: true,
                files: BTreeMap::new(),
                file_next: 0,
                names: BTreeMap::new(),
                names_durable: BTreeMap::new(),
                names_pending: Vec::new(),
                locks: BTreeSet::new(),
                changes: 0,
            })),
        }
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Sets how many bytes files may still grow by.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.state.lock().free_bytes = bytes;
    }

    /// How many changes were made so far: writes, syncs, changes of names.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        self.state.lock().changes
    }

    /// The machine loses power and starts again: what was not synced may be lost, kept or torn,
    /// as the seed decides. Open files and locks are dead. Faults are cleared.
    pub fn crash(&self, seed: u64) {
        let mut random = Random(seed);
        let mut state = self.state.lock();
        state.life += 1;
        state.powered = true;
        state.faults = Faults::default();
        state.locks.clear();
        state.crash_names(&mut random);
        for file in state.files.values_mut() {
            file.crash(&mut random);
        }
    }

    /// The process is killed and starts again: everything written is still there, synced or not.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.life += 1;
        state.powered = true;
        state.faults = Faults::default();
        state.locks.clear();
    }

    /// Flips one bit of a file, on the disk and for readers.
    ///
    /// # Panics
    /// If there is no such file or it is shorter.
    pub fn flip_bit(&self, path: &Path, offset: usize, bit: u8) {
        let mut state = self.state.lock();
        let id = state.names[path];
        let file = state.files.get_mut(&id).expect("named files exist");
        file.shown[offset] ^= 1 << (bit % 8);
        if let Some(byte) = file.durable.get_mut(offset) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Puts a file there, durably, whatever was there before.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state.lock();
        let id = state.file_next;
        state.file_next += 1;
        let file = File { shown: bytes.to_vec(), durable: bytes.to_vec(), pending: Vec::new() };
        state.files.insert(id, file);
        state.names.insert(path.to_owned(), id);
        state.names_durable.insert(path.to_owned(), id);
    }

    /// What readers of a file see.
    #[must_use]
    pub fn get(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let id = state.names.get(path)?;
        Some(state.files[id].shown.clone())
    }

    /// Takes a file away, durably.
    pub fn take(&self, path: &Path) {
        let mut state = self.state.lock();
        state.names.remove(path);
        state.names_durable.remove(path);
    }
}

fn gone() -> io::Error {
    io::Error::other("the simulated power is gone")
}

/// Counts down; true when it is time to fail.
fn due(count: &mut Option<u64>) -> bool {
    match count {
        Some(0) => {
            *count = None;
            true
        }
        Some(n) => {
            *n -= 1;
            false
        }
        None => false,
    }
}

impl State {
    /// Every change passes here, so that power can be lost before any of them.
    fn change(&mut self) -> io::Result<()> {
        if due(&mut self.faults.power_lost_in) {
            self.powered = false;
        }
        if !self.powered {
            return Err(gone());
        }
        self.changes += 1;
        Ok(())
    }

    fn crash_names(&mut self, random: &mut Random) {
        let mut names = std::mem::take(&mut self.names_durable);
        for change in std::mem::take(&mut self.names_pending) {
            if random.below(2) == 0 {
                continue;
            }
            match change {
                NameChange::Add(path, id) => {
                    names.insert(path, id);
                }
                // A file never has two names, whatever was lost before.
                NameChange::Rename(_, to, id) => {
                    names.retain(|_, held| *held != id);
                    names.insert(to, id);
                }
                NameChange::Remove(path, id) => {
                    if names.get(&path) == Some(&id) {
                        names.remove(&path);
                    }
                }
            }
        }
        let kept: BTreeSet<u64> = names.values().copied().collect();
        self.files.retain(|id, _| kept.contains(id));
        self.names_durable = names.clone();
        self.names = names;
    }
}

impl File {
    fn write(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        if into.len() < offset + bytes.len() {
            into.resize(offset + bytes.len(), 0);
        }
        into[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn crash(&mut self, random: &mut Random) {
        // The pieces of each write, sector by sector.
        let mut by_sector: BTreeMap<usize, Vec<(usize, Vec<u8>)>> = BTreeMap::new();
        for (offset, bytes) in std::mem::take(&mut self.pending) {
            let mut at = offset;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let room = SECTOR_BYTES - at % SECTOR_BYTES;
                let (piece, after) = rest.split_at(room.min(rest.len()));
                by_sector.entry(at / SECTOR_BYTES).or_default().push((at, piece.to_vec()));
                at += piece.len();
                rest = after;
            }
        }
        let habit = random.below(4);
        for pieces in by_sector.values() {
            let kept = match habit {
                0 => 0,
                1 => pieces.len(),
                _ => random.below(pieces.len() + 1),
            };
            for (at, piece) in &pieces[..kept] {
                File::write(&mut self.durable, *at, piece);
            }
        }
        self.shown = self.durable.clone();
    }
}

impl Disk for SimDisk {
    fn make_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        if !state.powered {
            return Err(gone());
        }
        let here = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.change()?;
        let id = state.file_next;
        state.file_next += 1;
        state.files.insert(id, File::default());
        state.names.insert(path.to_owned(), id);
        state.names_pending.push(NameChange::Add(path.to_owned(), id));
        Ok(Arc::new(SimFile { disk: self.clone(), id, life: state.life }))
    }

    fn open(&self, path: &Path, _access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state.lock();
        if !state.powered {
            return Err(gone());
        }
        let id = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: self.clone(), id, life: state.life }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.change()?;
        let id = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), id);
        state.names_pending.push(NameChange::Rename(from.to_owned(), to.to_owned(), id));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.change()?;
        let id = state.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        state.free_bytes += state.files[&id].shown.len() as u64;
        state.names_pending.push(NameChange::Remove(path.to_owned(), id));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.change()?;
        if due(&mut state.faults.sync_in) {
            return Err(io::Error::other("a simulated sync failed"));
        }
        let (here, elsewhere) = std::mem::take(&mut state.names_pending)
            .into_iter()
            .partition::<Vec<_>, _>(|change| match change {
                NameChange::Add(path, _)
                | NameChange::Remove(path, _)
                | NameChange::Rename(path, _, _) => path.parent() == Some(dir),
            });
        state.names_pending = elsewhere;
        for change in here {
            match change {
                NameChange::Add(path, id) => {
                    state.names_durable.insert(path, id);
                }
                NameChange::Rename(from, to, id) => {
                    state.names_durable.remove(&from);
                    state.names_durable.insert(to, id);
                }
                NameChange::Remove(path, _) => {
                    state.names_durable.remove(&path);
                }
            }
        }
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.state.lock().free_bytes)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.state.lock();
        if !state.powered {
            return Err(gone());
        }
        if !state.locks.insert(path.to_owned()) {
            return Ok(None);
        }
        let life = state.life;
        Ok(Some(Box::new(SimLock { disk: self.clone(), path: path.to_owned(), life })))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state.lock().locks.contains(path))
    }

    fn random(&self) -> io::Result<u64> {
        Ok(self.state.lock().random.next())
    }

    fn wall_ms(&self) -> u64 {
        0
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    id: u64,
    life: u64,
}

impl SimFile {
    fn with<T>(&self, run: impl FnOnce(&mut State, u64) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        if !state.powered || state.life != self.life || !state.files.contains_key(&self.id) {
            return Err(gone());
        }
        run(&mut state, self.id)
    }
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl DiskFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let offset = position(offset)?;
        self.with(|state, id| {
            state.change()?;
            if due(&mut state.faults.write_in) {
                return Err(io::Error::other("a simulated write failed"));
            }
            let taken = bytes.len().min(state.faults.short_write_bytes.unwrap_or(usize::MAX));
            let bytes = &bytes[..taken];
            let held = state.files[&id].shown.len();
            let growth = (offset + taken).saturating_sub(held) as u64;
            if growth > state.free_bytes {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.free_bytes -= growth;
            let file = state.files.get_mut(&id).expect("checked above");
            File::write(&mut file.shown, offset, bytes);
            file.pending.push((offset, bytes.to_vec()));
            Ok(taken)
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let offset = position(offset)?;
        self.with(|state, id| {
            let shown = &state.files[&id].shown;
            let from = offset.min(shown.len());
            let count = into.len().min(shown.len() - from);
            into[..count].copy_from_slice(&shown[from..from + count]);
            Ok(count)
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state, id| {
            state.change()?;
            let failed = due(&mut state.faults.sync_in);
            let file = state.files.get_mut(&id).expect("checked above");
            let pending = std::mem::take(&mut file.pending);
            if failed {
                return Err(io::Error::other("a simulated sync failed"));
            }
            for (offset, bytes) in pending {
                File::write(&mut file.durable, offset, &bytes);
            }
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let len_wanted = position(len)?;
        self.with(|state, id| {
            state.change()?;
            let held = state.files[&id].shown.len();
            let growth = len_wanted.saturating_sub(held);
            if growth as u64 > state.free_bytes {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.free_bytes -= growth as u64;
            let file = state.files.get_mut(&id).expect("checked above");
            file.shown.resize(held + growth, 0);
            file.pending.push((held, vec![0; growth]));
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state, id| Ok(state.files[&id].shown.len() as u64))
    }
}
