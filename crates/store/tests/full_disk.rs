//! The store on a disk that fills up.
//!
//! Needs a small file system to fill, which `cargo xtask test` mounts where it may; by hand, as root:
//!
//! ```text
//! mount -t tmpfs -o size=400m tmpfs /mnt/small
//! STORE_SMALL_DISK=/mnt/small cargo test -p store --test full_disk -- --ignored
//! ```

use std::fs::File;
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::base::MemoryBase;
use kernel::{Base, BaseError, Index, Layer, Rows};
use store::{FjallBase, StoreOptions};

const MIB: usize = 1024 * 1024;

fn small_disk() -> PathBuf {
    std::env::var("STORE_SMALL_DISK").expect("a small file system is named").into()
}

fn open(dir: &Path) -> FjallBase {
    let options = StoreOptions { reserve_bytes: 0, ..StoreOptions::default() };
    FjallBase::open(dir, options).expect("opened")
}

/// Rows of 1 KiB that do not compress.
fn layer(from: u64, count: u64) -> Arc<Layer> {
    let mut rows = Rows::new(Arc::new(MemoryBase::new()));
    let mut seed = from + 1;
    for number in from..from + count {
        let value: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56).to_le_bytes()[0]
        })
        .take(1024)
        .collect();
        // Reversed, so that layers overlap.
        rows.put([&[0, 1][..], &number.reverse_bits().to_be_bytes()].concat(), value);
    }
    rows.freeze()
}

/// Writes to the disk until it has `left` bytes, or none.
fn fill(path: &Path, left: u64) {
    let mut file = File::create(path).expect("created");
    let block = vec![7; MIB];
    while rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_bavail * disk.f_frsize > left) {
        if file.write_all(&block).is_err() {
            return;
        }
    }
}

fn count(base: &dyn Base) -> usize {
    base.range(Bound::Unbounded, Bound::Unbounded, false).filter(|row| row.is_ok()).count()
}

#[test]
#[ignore = "needs STORE_SMALL_DISK: run by cargo xtask test"]
fn a_disk_that_fills_up_in_the_middle_of_a_checkpoint_fails_it_until_reopened() {
    let disk = small_disk();
    let (dir, filler) = (disk.join("middle"), disk.join("filler"));
    let base = open(&dir);
    base.ingest(&layer(0, 1_000), Index(1), &|| {}).expect("taken");
    let large = layer(1_000, 20_000);
    let failed = base.ingest(&large, Index(2), &|| fill(&filler, 0));
    assert!(matches!(failed, Err(BaseError::Failed { .. })), "{failed:?}");
    assert_eq!((count(&base), base.applied()), (1_000, Index(1)), "reads go on");
    std::fs::remove_file(&filler).expect("removed");
    let again = base.ingest(&large, Index(2), &|| {});
    assert!(matches!(again, Err(BaseError::Failed { .. })), "{again:?}");
    drop(base);
    let base = open(&dir);
    assert_eq!((count(&base), base.applied()), (1_000, Index(1)));
    assert!(base.disk_bytes() < 3 * MIB as u64, "half-written tables are gone");
    base.ingest(&large, Index(2), &|| {}).expect("taken");
    assert_eq!((count(&base), base.applied()), (21_000, Index(2)));
    drop(base);
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
#[ignore = "needs STORE_SMALL_DISK: run by cargo xtask test"]
fn no_room_to_compact_refuses_checkpoints_until_there_is() {
    let disk = small_disk();
    let (dir, filler) = (disk.join("cramped"), disk.join("filler-2"));
    let base = open(&dir);
    base.ingest(&layer(0, 60_000), Index(1), &|| {}).expect("taken");
    fill(&filler, 55 * MIB as u64);
    let mut taken = 1;
    let refused = loop {
        match base.ingest(&layer(60_000 + taken * 100, 100), Index(taken + 1), &|| {}) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 200, "level 0 is bounded");
    };
    assert!(matches!(refused, BaseError::Full { .. }), "{refused:?}");
    assert_eq!(base.applied(), Index(taken));
    std::fs::remove_file(&filler).expect("removed");
    for _ in 0..20 {
        let next = layer(60_000 + taken * 100, 100);
        base.ingest(&next, Index(taken + 1), &|| {}).expect("there is room again");
        taken += 1;
    }
    assert_eq!(count(&base), 60_000 + (usize::try_from(taken).expect("few") - 1) * 100);
    drop(base);
    std::fs::remove_dir_all(&dir).expect("removed");
}
