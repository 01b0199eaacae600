//! The store killed at any moment: what was said to be taken is there, and nothing in half.

use std::io::{BufRead, BufReader};
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kernel::base::MemoryBase;
use kernel::{Base, Index, Layer, Rows};
use store::{FjallBase, StoreOptions};

const FOLDER: &str = "STORE_CRASH_TEST_FOLDER";
const KEYS: u64 = 3_000;
const KILLS: u32 = 20;

fn key(number: u64) -> Vec<u8> {
    [&[0, 1][..], &number.to_be_bytes()].concat()
}

/// Round by round a third of the keys is deleted, and all others carry the round's number.
fn layer(round: u64) -> Arc<Layer> {
    let mut rows = Rows::new(Arc::new(MemoryBase::new()));
    for number in 0..KEYS {
        if (number + round).is_multiple_of(3) {
            rows.delete(&key(number));
        } else {
            rows.put(key(number), [round.to_be_bytes().to_vec(), vec![7; 100]].concat());
        }
    }
    rows.freeze()
}

fn check_whole(base: &FjallBase) {
    let round = base.applied().0;
    let mut rows = base.range(Bound::Unbounded, Bound::Unbounded, false);
    if round > 0 {
        for number in (0..KEYS).filter(|number| !(number + round).is_multiple_of(3)) {
            let (found, value) = rows.next().expect("a row is missing").expect("readable");
            assert_eq!((&found[..], &value[..8]), (&key(number)[..], &round.to_be_bytes()[..]));
        }
    }
    assert!(rows.next().is_none(), "a row too many");
}

/// Not a test but the process that is killed: it takes checkpoints until then.
#[test]
#[ignore = "run by the test below, in a process of its own"]
#[expect(clippy::print_stderr, reason = "this is how the parent learns of it")]
fn child_takes_checkpoints_for_ever() {
    let dir = std::env::var(FOLDER).expect("the parent names the folder");
    let base = FjallBase::open(Path::new(&dir), StoreOptions::default()).expect("opened");
    loop {
        let round = base.applied().0 + 1;
        base.ingest(&layer(round), Index(round), &|| {}).expect("taken");
        eprintln!("taken {round}");
    }
}

#[test]
fn a_killed_store_holds_whole_checkpoints_and_all_that_were_acknowledged() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let dir = parent.path().join("shard");
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().expect("we are a file"))
            .args(["--exact", "child_takes_checkpoints_for_ever", "--ignored", "--nocapture"])
            .env(FOLDER, &dir)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let reader = std::thread::spawn(move || {
            let taken = lines.map_while(Result::ok).filter_map(|line| {
                line.strip_prefix("taken ").and_then(|round| round.parse::<u64>().ok())
            });
            taken.last()
        });
        // Early kills meet the creation and the opening, late ones compaction.
        let moment_ms = u64::from(kill * kill) * 7 % 900;
        // sleeps because the kill must come at a moment that nothing in the child knows of
        std::thread::sleep(Duration::from_millis(moment_ms));
        child.kill().expect("killed");
        child.wait().expect("ended");
        acknowledged = acknowledged.max(reader.join().expect("read").unwrap_or(0));
        let base = FjallBase::open(&dir, StoreOptions::default()).expect("reopened");
        assert!(base.applied().0 >= acknowledged, "an acknowledged checkpoint is gone");
        check_whole(&base);
    }
    assert!(acknowledged > u64::from(KILLS), "too few checkpoints to mean anything");
}
