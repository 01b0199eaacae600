//! Checkpoints: what they hide, what survives a reopening, and what they refuse.

use std::cell::Cell;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use kernel::base::MemoryBase;
use kernel::{Base, BaseError, Index, Layer, Rows};
use store::{FjallBase, StoreOptions};

fn open(dir: &Path) -> FjallBase {
    FjallBase::open(dir, StoreOptions::default()).expect("opened")
}

/// The layer that these changes make.
fn layer(change: impl FnOnce(&mut Rows)) -> Arc<Layer> {
    let mut rows = Rows::new(Arc::new(MemoryBase::new()));
    change(&mut rows);
    rows.freeze()
}

fn take(base: &FjallBase, change: impl FnOnce(&mut Rows)) {
    base.ingest(&layer(change), base.applied().next(), &|| {}).expect("taken");
}

/// Machine 1's key of this number.
fn key(number: u32) -> Vec<u8> {
    [&[0, 1][..], &number.to_be_bytes()].concat()
}

fn count(base: &dyn Base) -> usize {
    base.range(Bound::Unbounded, Bound::Unbounded, false).filter(|row| row.is_ok()).count()
}

#[test]
fn a_new_checkpoint_hides_the_old_across_reopenings_and_compactions() {
    const ROUNDS: u32 = 40;
    const KEYS: u32 = 50;
    let dir = tempfile::tempdir().expect("a temporary folder");
    for round in 1..=ROUNDS {
        let base = open(dir.path());
        assert_eq!(base.applied(), Index(u64::from(round - 1)));
        take(&base, |rows| {
            for number in 0..KEYS {
                // Every key is deleted in some rounds, and comes back.
                if (number + round).is_multiple_of(5) {
                    rows.delete(&key(number));
                } else {
                    rows.put(key(number), round.to_be_bytes().to_vec());
                }
            }
        });
        drop(base);
        let base = open(dir.path());
        for number in 0..KEYS {
            let expected = (!(number + round).is_multiple_of(5)).then_some(round.to_be_bytes());
            let found = base.get(&key(number)).expect("readable");
            assert_eq!(found.as_deref(), expected.as_ref().map(|value| &value[..]), "{round}");
        }
        assert_eq!(count(&base), (KEYS - KEYS / 5) as usize);
    }
}

#[test]
fn compaction_keeps_level_0_short_and_forgets_nothing() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = StoreOptions { level0_runs_max: 9, ..StoreOptions::default() };
    let base = FjallBase::open(dir.path(), options).expect("opened");
    for round in 0..60u32 {
        take(&base, |rows| {
            rows.put(key(round), vec![1; 100]);
            if round >= 10 {
                rows.delete(&key(round - 10));
            }
        });
        assert!(base.level0_runs() <= 9);
    }
    assert_eq!(count(&base), 10);
}

#[test]
fn a_dropped_prefix_takes_every_row_beneath_it_but_those_written_since() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    take(&base, |rows| {
        for number in 0..20_000 {
            rows.put(key(number), vec![0; 20]);
        }
        rows.put(vec![0, 2, 9], vec![1]);
    });
    take(&base, |rows| {
        rows.delete_prefix(&[0, 1]);
        rows.put(key(7), vec![7]);
        rows.put(key(30_000), vec![8]);
    });
    assert_eq!(count(&base), 3);
    assert_eq!(base.get(&key(7)).expect("readable").as_deref(), Some(&[7][..]));
    assert_eq!(base.get(&[0, 2, 9]).expect("readable").as_deref(), Some(&[1][..]));
}

#[test]
fn the_stores_own_rows_are_out_of_sight() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    take(&base, |rows| rows.put(key(1), vec![1]));
    take(&base, |rows| rows.delete_prefix(&[0]));
    assert_eq!((count(&base), base.applied()), (0, Index(2)));
    assert_eq!(base.get(&[0, 0, b'a']).expect("readable"), None);
    drop(base);
    assert_eq!(open(dir.path()).applied(), Index(2));
}

#[test]
fn a_snapshot_outlives_checkpoints_and_compactions() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    take(&base, |rows| rows.put(key(0), vec![0]));
    let before = base.snapshot();
    for round in 1..=40u8 {
        take(&base, |rows| {
            rows.put(key(0), vec![round]);
            rows.put(key(u32::from(round)), vec![round]);
        });
        let now = base.snapshot();
        assert_eq!(now.applied(), Index(u64::from(round) + 1));
        assert_eq!(count(&*now), usize::from(round) + 1);
    }
    assert_eq!((count(&*before), before.applied()), (1, Index(1)));
    assert_eq!(before.get(&key(0)).expect("readable").as_deref(), Some(&[0][..]));
    assert_eq!(base.get(&key(0)).expect("readable").as_deref(), Some(&[40][..]));
}

#[test]
fn an_empty_layer_moves_the_index_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    base.ingest(&Layer::default(), Index(9), &|| {}).expect("taken");
    drop(base);
    let base = open(dir.path());
    assert_eq!((count(&base), base.applied()), (0, Index(9)));
}

#[test]
fn too_little_room_refuses_the_checkpoint_and_takes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let greedy = StoreOptions { reserve_bytes: u64::MAX / 4, ..StoreOptions::default() };
    let base = FjallBase::open(dir.path(), greedy).expect("opened");
    let wanted = layer(|rows| rows.put(key(1), vec![1]));
    let refused = base.ingest(&wanted, Index(1), &|| {});
    assert!(matches!(refused, Err(BaseError::Full { .. })), "{refused:?}");
    assert_eq!((count(&base), base.applied()), (0, Index(0)));
    drop(base);
    let base = open(dir.path());
    base.ingest(&wanted, Index(1), &|| {}).expect("there is room for it after all");
    assert_eq!((count(&base), base.applied()), (1, Index(1)));
}

#[test]
fn a_checkpoint_paces_itself() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    let wanted = layer(|rows| (0..10_000).for_each(|number| rows.put(key(number), vec![1])));
    let paced = Cell::new(0);
    base.ingest(&wanted, Index(1), &|| paced.set(paced.get() + 1)).expect("taken");
    assert_eq!(paced.get(), 10_000 / 16);
}

#[test]
fn a_snapshot_takes_no_checkpoint() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    let refused = base.snapshot().ingest(&Layer::default(), Index(1), &|| {});
    assert!(matches!(refused, Err(BaseError::Failed { .. })));
    base.ingest(&Layer::default(), Index(1), &|| {}).expect("the store itself is sound");
}

#[test]
fn a_store_is_opened_by_one_at_a_time() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let _base = open(dir.path());
    let second = FjallBase::open(dir.path(), StoreOptions::default());
    assert!(matches!(second, Err(BaseError::Failed { .. })));
}

#[test]
fn leftovers_of_a_crash_are_removed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    take(&base, |rows| rows.put(key(1), vec![1]));
    drop(base);
    let orphan = dir.path().join("keyspaces/1/tables/4711");
    std::fs::write(&orphan, b"half a table").expect("written");
    let base = open(dir.path());
    assert!(!orphan.exists());
    assert_eq!(count(&base), 1);
    take(&base, |rows| rows.put(key(2), vec![2]));
    assert_eq!(count(&base), 2);
}

#[test]
fn disk_bytes_counts_what_is_there() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let base = open(dir.path());
    let before = base.disk_bytes();
    take(&base, |rows| {
        // Not to be compressed.
        let mut seed = 1u64;
        for number in 0..1_000 {
            let value: Vec<u8> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56).to_le_bytes()[0]
            })
            .take(1_000)
            .collect();
            rows.put(key(number), value);
        }
    });
    let grown = base.disk_bytes() - before;
    assert!((1_000_000..1_500_000).contains(&grown), "{grown}");
}
