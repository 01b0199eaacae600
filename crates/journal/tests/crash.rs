//! Crashes at every change of the disk, with every outcome a disk may have.

mod common;

use bytes::Bytes;
use common::Rig;
use journal::Log;
use journal::disk::Faults;
use kernel::Index;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Append(usize, u8),
    Complete(usize),
    Upkeep,
    Trim(u64),
    /// Power goes after so many changes of a commit; then the seed decides what survives.
    Crash {
        changes: u64,
        seed: u64,
    },
    /// The same while the log is being opened.
    CrashInOpen {
        changes: u64,
        seed: u64,
    },
    /// The process is killed; what it wrote is there, synced or not.
    Kill,
    FailWrite(u64),
    FailSync(u64),
    /// A sync fails, and power goes while the log is opened after it.
    FailSyncAndOpen {
        syncs: u64,
        changes: u64,
        seed: u64,
    },
    ShortWrites(usize),
    DiskFull(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (prop_oneof![Just(0usize), 0usize..200, 0usize..3000], any::<u8>())
            .prop_map(|(length, fill)| Step::Append(length, fill)),
        4 => (1usize..6).prop_map(Step::Complete),
        2 => Just(Step::Upkeep),
        1 => (0u64..40).prop_map(Step::Trim),
        1 => (0u64..8, any::<u64>()).prop_map(|(changes, seed)| Step::Crash { changes, seed }),
        1 => (0u64..20, any::<u64>())
            .prop_map(|(changes, seed)| Step::CrashInOpen { changes, seed }),
        1 => Just(Step::Kill),
        1 => (0u64..4).prop_map(Step::FailWrite),
        1 => (0u64..4).prop_map(Step::FailSync),
        1 => (0u64..2, 0u64..5, any::<u64>()).prop_map(|(syncs, changes, seed)| {
            Step::FailSyncAndOpen { syncs, changes, seed }
        }),
        1 => (1usize..700).prop_map(Step::ShortWrites),
        1 => any::<bool>().prop_map(Step::DiskFull),
    ]
}

fn run(rig: &mut Rig, step: Step, n: usize) {
    match step {
        Step::Append(length, fill) => {
            let mut payload = vec![fill; length];
            let stamp = n.to_le_bytes();
            let stamped = length.min(stamp.len());
            payload[..stamped].copy_from_slice(&stamp[..stamped]);
            rig.append(payload.into());
        }
        Step::Complete(count) => rig.complete(count),
        Step::Upkeep => rig.handle().upkeep(),
        Step::Trim(back) => {
            let before = Index(rig.log().next_index().0.saturating_sub(back));
            rig.trim(before);
        }
        Step::Crash { changes, seed } => {
            let power_lost_in = Some(changes);
            rig.step_with(Faults { power_lost_in, ..Faults::default() });
            rig.crash(seed);
            rig.reopen();
        }
        Step::CrashInOpen { changes, seed } => {
            rig.kill();
            rig.disk.set_faults(Faults { power_lost_in: Some(changes), ..Faults::default() });
            // Whether it opens or not, and what it saw if it did, the power goes.
            let _ = rig.try_open();
            rig.crash(seed);
            rig.reopen();
        }
        Step::Kill => {
            rig.kill();
            rig.reopen();
        }
        Step::FailWrite(n) => {
            if rig.step_with(Faults { write_in: Some(n), ..Faults::default() }) {
                rig.kill();
                rig.reopen();
            }
        }
        Step::FailSync(n) => {
            if rig.step_with(Faults { sync_in: Some(n), ..Faults::default() }) {
                rig.kill();
                rig.reopen();
            }
        }
        Step::FailSyncAndOpen { syncs, changes, seed } => {
            rig.step_with(Faults { sync_in: Some(syncs), ..Faults::default() });
            run(rig, Step::CrashInOpen { changes, seed }, n);
        }
        Step::ShortWrites(bytes) => {
            rig.disk.set_faults(Faults { short_write_bytes: Some(bytes), ..Faults::default() });
        }
        Step::DiskFull(full) => rig.disk.set_free_bytes(if full { 0 } else { 1 << 30 }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_entries_survive_everything_a_disk_may_do(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut rig = Rig::new(seed);
        rig.reopen();
        for (n, step) in steps.into_iter().enumerate() {
            run(&mut rig, step, n);
        }
        rig.disk.set_free_bytes(1 << 30);
        rig.crash(seed);
        rig.reopen();
    }
}

/// Fills, switches and recycles segments, with several entries in flight at each commit.
fn script(rig: &mut Rig) -> Result<(), journal::OpenError> {
    rig.try_open()?;
    for round in 0..12u8 {
        for n in 0..5u8 {
            rig.append(Bytes::from(vec![round * 8 + n; 100 + usize::from(n) * 170]));
        }
        rig.complete(3);
        rig.handle().step();
        rig.note_durable();
        if round % 4 == 3 {
            let before = rig.log().next_index();
            rig.trim(before);
            rig.handle().upkeep();
        }
        if round == 6 {
            rig.kill();
            rig.try_open()?;
        }
    }
    Ok(())
}

#[test]
fn a_crash_at_any_change_of_the_disk_loses_nothing_acknowledged() {
    let mut whole = Rig::new(1);
    script(&mut whole).expect("nothing fails");
    let changes = whole.disk.change_count();
    assert!(changes > 100, "the script does something");
    for at in 0..changes {
        for seed in 0..12 {
            let mut rig = Rig::new(1);
            let power_lost_in = Some(at);
            rig.disk.set_faults(Faults { power_lost_in, ..Faults::default() });
            // The kill in the middle clears the fault; those rounds run to the end.
            let _ = script(&mut rig);
            if rig.open.is_some() {
                rig.note_durable();
            }
            rig.crash(seed);
            rig.reopen();
            rig.append(Bytes::from_static(b"after"));
            rig.handle().step();
            rig.note_durable();
            rig.crash(seed);
            rig.reopen();
        }
    }
}

#[test]
fn a_crash_at_any_change_of_an_opening_can_be_opened_again() {
    for base in 0..40 {
        let mut rig = Rig::new(3);
        script(&mut rig).expect("nothing fails");
        rig.append(Bytes::from(vec![1; 500]));
        rig.append(Bytes::from(vec![2; 500]));
        rig.append(Bytes::from(vec![3; 2500]));
        rig.step_with(Faults { power_lost_in: Some(base % 4), ..Faults::default() });
        rig.crash(base);
        for at in 0..16 {
            rig.disk.set_faults(Faults { power_lost_in: Some(at), ..Faults::default() });
            let _ = rig.try_open();
            rig.crash(base * 100 + at);
        }
        rig.reopen();
    }
}

#[test]
fn what_an_owner_saw_after_a_failed_sync_outlives_a_crash() {
    for seed in 0..20 {
        let mut rig = Rig::new(4);
        rig.reopen();
        rig.append(Bytes::from_static(b"acknowledged"));
        rig.complete(1);
        rig.append(Bytes::from(vec![5; 1500]));
        assert!(rig.step_with(Faults { sync_in: Some(0), ..Faults::default() }));
        // The page cache still shows the entry, so the next owner acts on it.
        rig.kill();
        rig.reopen();
        assert_eq!(rig.sure.len(), 2);
        rig.crash(seed);
        rig.reopen();
    }
}
