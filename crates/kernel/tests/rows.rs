//! Rows over a base in memory.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kernel::base::{BaseIter, MemoryBase};
use kernel::rows::{Layer, RowsReader, Scan, Slot, prefix_end};
use kernel::{Base, BaseError, Index, Rows};
use parking_lot::RwLock;
use proptest::prelude::*;

mod rows_model;

use rows_model::{Checked, contents, events};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rows_are_what_a_plain_map_would_be(events in events(120)) {
        let base = MemoryBase::new();
        let mut checked = Checked::new(Arc::new(base.clone()));
        checked.run(events);
        checked.check_reopened(|| Arc::new(base));
    }
}

fn rows() -> (Arc<MemoryBase>, Rows) {
    let base = Arc::new(MemoryBase::new());
    (Arc::clone(&base), Rows::new(base))
}

/// Moves what is active to the base.
fn checkpoint(base: &MemoryBase, rows: &mut Rows) {
    let layer = rows.freeze();
    base.ingest(&layer, base.applied().next(), &|| {}).expect("memory takes it");
    rows.thaw();
}

fn keys(rows: &Rows, scan: &Scan) -> Vec<String> {
    rows.scan(scan).iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
}

#[test]
fn a_layer_is_freed_row_by_row_with_a_word_after_each() {
    let (_, mut rows) = rows();
    let values: Vec<Bytes> = (0..5_u8).map(|number| Bytes::from(vec![number; 100])).collect();
    for (number, value) in values.iter().enumerate() {
        rows.put(format!("k{number}"), value.clone());
    }
    let layer = rows.freeze();
    rows.thaw();
    let layer = Arc::into_inner(layer).expect("nobody else reads it");
    let mut held = Vec::new();
    layer.free(|| held.push(values.iter().filter(|value| !value.is_unique()).count()));
    assert_eq!(held, [4, 3, 2, 1, 0]);
}

#[test]
fn what_is_new_and_deleted_between_checkpoints_leaves_no_trace() {
    let (_, mut rows) = rows();
    rows.put_new(&b"a"[..], &b"1"[..]);
    rows.put(&b"a"[..], &b"2"[..]);
    rows.delete(b"a");
    assert!(rows.freeze().is_empty());
}

#[test]
fn a_deleted_row_stays_deleted_above_the_base() {
    let (base, mut rows) = rows();
    rows.put(&b"a"[..], &b"1"[..]);
    checkpoint(&base, &mut rows);
    rows.delete(b"a");
    assert_eq!(rows.get(b"a"), None);
    let layer = rows.freeze();
    assert_eq!(layer.iter().map(|(_, slot)| slot).collect::<Vec<_>>(), [&Slot::Gone]);
    assert_eq!(rows.get(b"a"), None);
}

#[test]
fn a_dropped_prefix_hides_older_layers_and_not_newer_rows() {
    let (base, mut rows) = rows();
    rows.put(&b"p1"[..], &b"old"[..]);
    rows.put(&b"q1"[..], &b"old"[..]);
    checkpoint(&base, &mut rows);
    rows.put(&b"p2"[..], &b"frozen"[..]);
    rows.freeze();
    rows.delete_prefix(b"p");
    rows.put(&b"p3"[..], &b"new"[..]);
    assert_eq!(keys(&rows, &Scan::all()), ["p3", "q1"]);
    assert_eq!(keys(&rows, &Scan::all().reversed().limit(1)), ["q1"]);
}

#[test]
fn nested_prefixes_are_kept_once() {
    let (_, mut rows) = rows();
    rows.delete_prefix(b"pa");
    rows.delete_prefix(b"pb");
    rows.delete_prefix(b"p");
    rows.delete_prefix(b"pc");
    let layer = rows.freeze();
    assert_eq!(layer.dropped().collect::<Vec<_>>(), [&b"p"[..]]);
}

#[test]
fn the_end_of_a_prefix_carries() {
    assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(prefix_end(&[1, 255, 255]), Some(vec![2]));
    assert_eq!(prefix_end(&[255, 255]), None);
    assert_eq!(prefix_end(&[]), None);
}

#[test]
fn a_scan_that_ends_before_it_begins_finds_nothing() {
    let (_, mut rows) = rows();
    rows.put(&b"a"[..], &b"1"[..]);
    assert!(rows.scan(&Scan::between(b"b", b"a")).is_empty());
    assert!(rows.scan(&Scan::prefix(b"a").after(b"a").before(b"a")).is_empty());
    assert!(rows.scan(&Scan::all().limit(0)).is_empty());
}

#[test]
fn the_layers_size_returns_to_nothing() {
    let (_, mut rows) = rows();
    rows.put_new(&b"a"[..], vec![0; 100]);
    rows.put(&b"a"[..], vec![0; 10]);
    assert!(rows.active_bytes() >= 11);
    rows.delete(b"a");
    assert_eq!(rows.active_bytes(), 0);
}

#[test]
fn a_snapshot_of_a_memory_base_is_not_moved_by_checkpoints() {
    let (base, mut rows) = rows();
    rows.put(&b"a"[..], &b"1"[..]);
    checkpoint(&base, &mut rows);
    let before = base.snapshot();
    rows.delete(b"a");
    checkpoint(&base, &mut rows);
    assert_eq!(contents(&*before).len(), 1);
    assert_eq!((contents(&*base).len(), base.applied()), (0, Index(2)));
    assert_eq!(before.applied(), Index(1));
    let nothing = before.range(Bound::Excluded(b"a"), Bound::Excluded(b"a"), true).count();
    assert_eq!(nothing, 0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a reader is another thread by its nature")]
fn a_reader_sees_whole_entries_while_checkpoints_come_and_go() {
    const ENTRIES: u64 = 2_000;
    let (base, rows) = rows();
    let rows = Arc::new(RwLock::new(rows));
    let reader = RowsReader::new(Arc::clone(&rows));
    let watcher = std::thread::spawn(move || {
        loop {
            let pair = reader.scan(&Scan::prefix(b"pair"));
            if let [(_, left), (_, right)] = &pair[..] {
                assert_eq!(left, right, "half an entry was seen");
                if left[..] == ENTRIES.to_be_bytes() {
                    return;
                }
            }
        }
    });
    for entry in 1..=ENTRIES {
        {
            let mut rows = rows.write();
            rows.put(&b"pair-left"[..], entry.to_be_bytes().to_vec());
            rows.put(&b"pair-right"[..], entry.to_be_bytes().to_vec());
        }
        if entry % 7 == 0 {
            let layer = rows.write().freeze();
            base.ingest(&layer, Index(entry), &|| {}).expect("memory takes it");
            rows.write().thaw();
        }
    }
    watcher.join().expect("the watcher saw only whole entries");
}

#[test]
fn a_scan_ends_with_the_row_that_reaches_its_bytes() {
    let (base, mut rows) = rows();
    rows.put(&b"a"[..], &b"1234"[..]);
    checkpoint(&base, &mut rows);
    for (key, value) in [("b", ""), ("c", "1"), ("d", "12345678"), ("e", "1")] {
        rows.put(key.as_bytes(), value.as_bytes());
    }
    rows.delete(b"c");
    for (bytes, expected, cut) in [
        (0, &["a"][..], true),
        (4, &["a"], true),
        (5, &["a", "b", "d"], true),
        (12, &["a", "b", "d"], true),
        (13, &["a", "b", "d", "e"], true),
        (14, &["a", "b", "d", "e"], false),
    ] {
        let scan = Scan::all().bytes(bytes);
        assert_eq!(keys(&rows, &scan), expected, "{bytes}");
        assert_eq!(scan.is_cut(&rows.scan(&scan)), cut, "{bytes}");
    }
    assert_eq!(keys(&rows, &Scan::all().bytes(5).limit(2)), ["a", "b"]);
    assert_eq!(keys(&rows, &Scan::all().bytes(5).reversed()), ["e", "d"]);
}

#[test]
fn a_cursor_from_elsewhere_never_widens_a_scan() {
    let mut rows = Rows::new(Arc::new(MemoryBase::new()));
    for key in ["a1", "b1", "b2", "c1"] {
        rows.put(key.as_bytes(), "v");
    }
    let keys =
        |scan: Scan| -> Vec<Bytes> { rows.scan(&scan).into_iter().map(|(key, _)| key).collect() };
    assert_eq!(keys(Scan::prefix(b"b").after(b"a0")), ["b1", "b2"]);
    assert_eq!(keys(Scan::prefix(b"b").before(b"d")), ["b1", "b2"]);
    assert_eq!(keys(Scan::prefix(b"b").after(b"b1")), ["b2"]);
    assert_eq!(keys(Scan::prefix(b"b").before(b"b2")), ["b1"]);
    assert_eq!(keys(Scan::prefix(b"b").after(b"c0")), [] as [&str; 0]);
}

/// Counts the rows that are read from it.
struct Counting {
    base: MemoryBase,
    read: std::sync::atomic::AtomicUsize,
}

impl Base for Counting {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        self.base.get(key)
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        let rows = self.base.range(from, to, reverse);
        Box::new(rows.inspect(|_| {
            self.read.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }))
    }

    fn snapshot(&self) -> Arc<dyn Base> {
        self.base.snapshot()
    }

    fn applied(&self) -> Index {
        self.base.applied()
    }

    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        self.base.ingest(layer, through, pace)
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn a_scan_does_not_walk_through_what_a_dropped_prefix_hides() {
    let base = Arc::new(Counting { base: MemoryBase::new(), read: 0.into() });
    let mut rows = Rows::new(Arc::clone(&base) as Arc<dyn Base>);
    for prefix in ["b", "c", "\u{7f}"] {
        for number in 0..1000 {
            rows.put(format!("{prefix}{number:04}"), &b"old"[..]);
        }
    }
    for key in ["a", "bb", "c0500x", "d", "e"] {
        rows.put(key.as_bytes(), &b"kept"[..]);
    }
    checkpoint(&base.base, &mut rows);
    rows.delete_prefix(b"b0");
    rows.delete_prefix(b"c");
    rows.delete_prefix(b"\x7f");
    rows.put(&b"c0700"[..], &b"new"[..]);
    let all = ["a", "bb", "c0700", "d", "e"];
    assert_eq!(keys(&rows, &Scan::all()), all);
    assert_eq!(keys(&rows, &Scan::all().reversed()), all.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(keys(&rows, &Scan::prefix(b"c")), ["c0700"]);
    assert_eq!(keys(&rows, &Scan::prefix(b"c").reversed()), ["c0700"]);
    assert_eq!(keys(&rows, &Scan::between(b"b0500", b"bbb")), ["bb"]);
    let read = base.read.load(std::sync::atomic::Ordering::Relaxed);
    assert!(read < 300, "{read} rows were read for {} that there are", 5 + 5 + 1 + 1 + 1);
}
