//! Logs as earlier builds wrote them, whole and damaged: the format holds still.
//!
//! After a deliberate change of the format, with a new version number:
//! `UPDATE_GOLDEN=1 cargo test -p journal --test golden`, and keep the old files beside the new.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use common::{Rig, bytes_of, dir, segment, small};
use expect_test::{Expect, expect};
use journal::conformance::Heard;
use journal::inspect::{Verdict, entries};
use journal::{FileLog, Log, OpenError, RealDisk};

const NAMES: [&str; 5] = ["sound", "torn-tail", "zeroed-tail", "corrupt-middle", "foreign"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Two openings, eight entries, two segments. The last three entries were in flight together.
fn sound() -> Vec<Vec<u8>> {
    let mut rig = Rig::new(0x5374_616d);
    rig.reopen();
    for text in ["one", "two", "three"] {
        rig.append(Bytes::from(text));
        rig.complete(1);
    }
    rig.handle().upkeep();
    rig.append(Bytes::from(vec![b'x'; 3300]));
    rig.complete(1);
    rig.kill();
    rig.reopen();
    for text in ["four", "five", "six"] {
        rig.append(Bytes::from(text.repeat(50)));
        rig.handle().upkeep();
    }
    rig.complete(3);
    (1..=2).map(|number| bytes_of(&rig.disk, &segment(number))).collect()
}

fn make(name: &str) -> Vec<Vec<u8>> {
    let mut files = sound();
    let last = files.last_mut().expect("two segments");
    let second_at = 4096 + 248;
    match name {
        "sound" => {}
        // The middle of the three in flight has lost its payload.
        "torn-tail" => last[second_at + 60..second_at + 200].fill(0),
        // Everything from the middle one on is lost.
        "zeroed-tail" => last[second_at..].fill(0),
        "corrupt-middle" => files[0][4096 + 48 + 50] ^= 0x10,
        "foreign" => last[..8].copy_from_slice(b"NOTALOG!"),
        other => panic!("no golden log is called {other}"),
    }
    files
}

#[test]
fn the_format_holds_still() {
    for name in NAMES {
        let folder = golden(name);
        for (number, bytes) in (1..).zip(make(name)) {
            let path = folder.join(segment(number).strip_prefix(dir()).expect("in the folder"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::create_dir_all(&folder).expect("the folder can be made");
                fs::write(&path, &bytes).expect("the file can be written");
            }
            let held = fs::read(&path).expect("the golden file is there");
            assert!(held == bytes, "{} has changed", path.display());
        }
    }
}

fn check(name: &str, expected: &Expect) {
    let mut lines = Vec::new();
    let report = entries(&golden(name), &mut |entry| {
        let number = entry.file.trim_start_matches('0');
        lines.push(format!(
            "{number} {:>4}  index {} epoch {} durable {} {:?} {}",
            entry.offset, entry.index, entry.epoch, entry.durable, entry.kind, entry.payload_bytes
        ));
    })
    .expect("the folder can be read");
    lines.push(match report.verdict {
        Verdict::Sound => "sound".into(),
        Verdict::TornTail { offset, bytes, .. } => format!("torn at {offset}, {bytes} bytes"),
        Verdict::Corrupt { offset, what, .. } => format!("corrupt at {offset}: {what}"),
        Verdict::Foreign { what, .. } => format!("foreign: {what}"),
    });
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn golden_sound() {
    check(
        "sound",
        &expect![[r#"
        1.log 4096  index 1 epoch 1 durable 0 Barrier 0
        1.log 4144  index 2 epoch 1 durable 1 Data 3
        1.log 4200  index 3 epoch 1 durable 2 Data 3
        1.log 4256  index 4 epoch 1 durable 3 Data 5
        1.log 4312  index 5 epoch 1 durable 4 Data 3300
        1.log 7664  index 6 epoch 2 durable 5 Barrier 0
        2.log 4096  index 7 epoch 2 durable 6 Data 200
        2.log 4344  index 8 epoch 2 durable 6 Data 200
        2.log 4592  index 9 epoch 2 durable 6 Data 150
        sound"#]],
    );
}

#[test]
fn golden_torn_tail() {
    check(
        "torn-tail",
        &expect![[r#"
        1.log 4096  index 1 epoch 1 durable 0 Barrier 0
        1.log 4144  index 2 epoch 1 durable 1 Data 3
        1.log 4200  index 3 epoch 1 durable 2 Data 3
        1.log 4256  index 4 epoch 1 durable 3 Data 5
        1.log 4312  index 5 epoch 1 durable 4 Data 3300
        1.log 7664  index 6 epoch 2 durable 5 Barrier 0
        2.log 4096  index 7 epoch 2 durable 6 Data 200
        torn at 4344, 448 bytes"#]],
    );
}

#[test]
fn golden_zeroed_tail() {
    check(
        "zeroed-tail",
        &expect![[r#"
        1.log 4096  index 1 epoch 1 durable 0 Barrier 0
        1.log 4144  index 2 epoch 1 durable 1 Data 3
        1.log 4200  index 3 epoch 1 durable 2 Data 3
        1.log 4256  index 4 epoch 1 durable 3 Data 5
        1.log 4312  index 5 epoch 1 durable 4 Data 3300
        1.log 7664  index 6 epoch 2 durable 5 Barrier 0
        2.log 4096  index 7 epoch 2 durable 6 Data 200
        sound"#]],
    );
}

#[test]
fn golden_corrupt_middle() {
    check(
        "corrupt-middle",
        &expect![[r#"
        1.log 4096  index 1 epoch 1 durable 0 Barrier 0
        corrupt at 4144: the payload does not match its checksum"#]],
    );
}

#[test]
fn golden_foreign() {
    check("foreign", &expect!["foreign: it does not begin like a segment"]);
}

/// Opens a copy; the number of data entries, or what opening said.
fn open_copy(name: &str) -> Result<usize, OpenError> {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for file in fs::read_dir(golden(name)).expect("the golden log is there") {
        let file = file.expect("the folder can be read");
        fs::copy(file.path(), copy.path().join(file.file_name())).expect("it can be copied");
    }
    let disk = Arc::new(RealDisk);
    let log = FileLog::open(disk, copy.path(), &small(), Heard::new().sink())?;
    Ok(common::replay(&log).len() - usize::try_from(log.epoch().0).expect("few"))
}

#[test]
fn golden_logs_open_or_are_refused_as_they_should() {
    assert_eq!(open_copy("sound").expect("it opens"), 7);
    assert_eq!(open_copy("torn-tail").expect("it opens"), 5);
    assert_eq!(open_copy("zeroed-tail").expect("it opens"), 5);
    assert!(matches!(open_copy("corrupt-middle"), Err(OpenError::Corrupt { .. })));
    assert!(matches!(open_copy("foreign"), Err(OpenError::Foreign { .. })));
}
