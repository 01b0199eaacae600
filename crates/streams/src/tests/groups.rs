//! Members, epochs and offsets.

use super::*;

const READERS: &str = "readers";
const SESSION_MS: u64 = 30_000;
/// Who was last heard of so long ago is lost.
const LOST_MS: u64 = SESSION_MS + SESSION_MS / 3;

/// The epochs of a group that was made at the start of the test, counted from one.
fn epoch(number: u64) -> u64 {
    START_MS + number
}

impl Bench {
    /// Of the stream that has the name now.
    fn id(&self) -> Option<StreamId> {
        stream(&self.rig.rows, TENANT, CLICKS).map(|definition| definition.id)
    }

    fn try_join(&mut self, member: &str) -> Reply {
        self.join_from(READERS, member, &[])
    }

    fn join_from(&mut self, group: &str, member: &str, start: &[(u16, u64)]) -> Reply {
        self.join_with(group, (member, SESSION_MS), start)
    }

    fn join_with(&mut self, group: &str, member: (&str, u64), start: &[(u16, u64)]) -> Reply {
        self.apply(&Command::Join(Join {
            stream: CLICKS.into(),
            group: group.into(),
            member: member.0.into(),
            session_ms: member.1,
            start: start.iter().copied().collect(),
            id: self.id(),
        }))
    }

    fn join(&mut self, member: &str) -> Standing {
        self.join_for(member, SESSION_MS)
    }

    fn join_for(&mut self, member: &str, session_ms: u64) -> Standing {
        match self.join_with(READERS, (member, session_ms), &[]) {
            Reply::Joined(standing) => standing,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, member: &str, epoch: u64, offsets: &[(u16, u64)]) -> Reply {
        self.commit_as(Some(member), Some(epoch), offsets)
    }

    fn commit_as(
        &mut self,
        member: Option<&str>,
        epoch: Option<u64>,
        offsets: &[(u16, u64)],
    ) -> Reply {
        self.apply(&Command::Commit(Commit {
            stream: CLICKS.into(),
            group: READERS.into(),
            member: member.map(str::to_owned),
            epoch,
            offsets: offsets.iter().copied().collect(),
            id: self.id(),
        }))
    }

    fn seek(&mut self, offsets: &[(u16, u64)]) -> Reply {
        let (stream, group, id) = (CLICKS.into(), READERS.into(), self.id());
        let offsets = offsets.iter().copied().collect();
        self.apply(&Command::Seek(Seek { stream, group, offsets, id }))
    }

    fn leave(&mut self, member: &str) -> Reply {
        let (stream, group, member) = (CLICKS.into(), READERS.into(), member.into());
        self.apply(&Command::Leave { stream, group, member })
    }

    fn group(&self) -> Group {
        let row = self.rig.rows.get(&group_row(TENANT, self.definition().id, READERS));
        group(&row.expect("it is there"))
    }

    fn committed(&self) -> Vec<(u16, u64)> {
        committed(&self.rig.rows, TENANT, self.definition().id, READERS).into_iter().collect()
    }

    fn standing(&self, member: &str) -> Option<Standing> {
        self.standing_at(member, SESSION_MS, self.rig.now_ms)
    }

    fn standing_at(&self, member: &str, session_ms: u64, at_ms: u64) -> Option<Standing> {
        let definition = self.definition();
        standing(&self.rig.rows, TENANT, &definition, READERS, (member, session_ms), at_ms)
    }
}

fn partitions(standing: &Standing) -> Vec<u16> {
    standing.owned.iter().map(|owned| owned.partition).collect()
}

fn done(offsets: &[(u16, u64)]) -> Reply {
    Reply::Committed(offsets.iter().copied().collect())
}

fn stale(epoch: u64) -> Reply {
    Reply::Refused(Refusal::StaleMember { epoch })
}

#[test]
fn members_share_the_partitions_and_as_few_as_can_be_move() {
    let mut bench = bench(5);
    let ann = bench.join("ann");
    assert_eq!((ann.epoch, partitions(&ann)), (epoch(1), vec![0, 1, 2, 3, 4]));
    let bob = bench.join("bob");
    assert_eq!((bob.epoch, partitions(&bob)), (epoch(2), vec![3, 4]));
    let ann = bench.join("ann");
    assert_eq!((ann.epoch, partitions(&ann)), (epoch(2), vec![0, 1, 2]));
    let since = |standing: &Standing| standing.owned.iter().map(|o| o.since).collect::<Vec<_>>();
    assert_eq!((since(&ann), since(&bob)), (vec![epoch(1); 3], vec![epoch(2); 2]));
    bench.join("cid");
    bench.leave("ann");
    let owners = bench.group().owners;
    assert_eq!(owners["bob"], [(0, epoch(4)), (3, epoch(2)), (4, epoch(2))]);
    assert_eq!(owners["cid"], [(1, epoch(4)), (2, epoch(3))]);
}

#[test]
fn a_member_too_many_has_nothing_to_do_and_takes_over_when_another_is_gone() {
    let mut bench = bench(1);
    bench.join("ann");
    assert_eq!(partitions(&bench.join("bob")), [0_u16; 0]);
    assert_eq!(bench.leave("ann"), Reply::Left);
    assert_eq!(bench.leave("ann"), Reply::Left);
    let bob = bench.join("bob");
    assert_eq!((bob.epoch, partitions(&bob)), (epoch(3), vec![0]));
}

#[test]
fn a_member_who_is_not_heard_of_is_lost_and_one_who_is_stays() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.join("bob");
    for _ in 0..5 {
        bench.advance(SESSION_MS / 2);
        bench.join("ann");
    }
    assert_eq!(partitions(&bench.join("ann")), [0, 1]);
    assert_eq!(bench.commit("bob", epoch(2), &[(1, 1)]), stale(epoch(3)));
    bench.advance(LOST_MS - 1);
    assert_eq!(bench.group().owners.len(), 1);
    bench.advance(1);
    assert_eq!((bench.group().owners.len(), bench.group().epoch), (0, epoch(4)));
    assert_eq!(bench.rig.ground.timers.in_memory(), 0);
    // The group stays, and the next member goes on where it was.
    assert_eq!(bench.join("ann").epoch, epoch(5));
}

#[test]
fn a_member_has_its_session_after_it_was_last_there_without_a_join() {
    for session_ms in [1, 2, 3, 1000, 30_000] {
        let mut bench = bench(1);
        bench.join_for("ann", session_ms);
        let is_there = |at_ms: &u64| bench.standing_at("ann", session_ms, *at_ms).is_some();
        let last_ms = (START_MS..).take_while(is_there).last().unwrap_or(START_MS);
        assert_eq!(last_ms > START_MS, session_ms > 5, "{session_ms}");
        bench.advance(last_ms - START_MS + session_ms);
        assert_eq!(bench.commit("ann", epoch(1), &[(0, 1)]), done(&[(0, 1)]), "{session_ms}");
    }
}

#[test]
fn who_has_another_session_says_so() {
    let mut bench = bench(1);
    bench.join_for("ann", SESSION_MS);
    assert_eq!(bench.standing_at("ann", 2 * SESSION_MS, START_MS), None);
    let joined = bench.join_for("ann", 2 * SESSION_MS);
    assert_eq!(bench.standing_at("ann", 2 * SESSION_MS, START_MS), Some(joined));
    bench.advance(2 * LOST_MS - 1);
    assert_eq!(bench.group().owners.len(), 1);
    // And a shorter one.
    bench.join_for("ann", SESSION_MS);
    bench.advance(LOST_MS);
    assert_eq!(bench.group().owners.len(), 0);
}

#[test]
fn the_owner_commits_and_a_stale_member_is_refused() {
    let mut bench = bench(2);
    bench.join("ann");
    assert_eq!(bench.commit("ann", epoch(1), &[(0, 5), (1, 7)]), done(&[(0, 5), (1, 7)]));
    bench.join("bob");
    // Partition 0 stayed with ann, and so do her older commits of it; partition 1 moved.
    assert_eq!(bench.commit("ann", epoch(1), &[(0, 6)]), done(&[(0, 6)]));
    assert_eq!(bench.commit("ann", epoch(1), &[(1, 8)]), stale(epoch(2)));
    assert_eq!(bench.commit("ann", epoch(2), &[(1, 8)]), stale(epoch(2)));
    assert_eq!(bench.commit("bob", epoch(1), &[(1, 8)]), stale(epoch(2)));
    assert_eq!(bench.commit("bob", epoch(3), &[(1, 8)]), stale(epoch(2)));
    assert_eq!(bench.commit("cid", epoch(2), &[(1, 8)]), stale(epoch(2)));
    assert_eq!(bench.commit("cid", epoch(2), &[]), stale(epoch(2)));
    // All of it or nothing.
    assert_eq!(bench.commit("bob", epoch(2), &[(0, 9), (1, 9)]), stale(epoch(2)));
    assert_eq!(bench.committed(), [(0, 6), (1, 7)]);
    assert_eq!(bench.commit("bob", epoch(2), &[(1, 8)]), done(&[(1, 8)]));
    assert_eq!(bench.commit("bob", epoch(2), &[(2, 8)]), Reply::Refused(Refusal::NoPartition));
    // Having left and come back, a member owns anew.
    bench.leave("bob");
    bench.leave("ann");
    bench.join("ann");
    assert_eq!(bench.commit("ann", epoch(2), &[(0, 9)]), stale(epoch(5)));
}

#[test]
fn a_commit_that_is_behind_changes_nothing() {
    let mut bench = bench(1);
    bench.join("ann");
    bench.commit("ann", epoch(1), &[(0, 5)]);
    assert_eq!(bench.commit("ann", epoch(1), &[(0, 3)]), done(&[(0, 5)]));
    assert_eq!(bench.committed(), [(0, 5)]);
}

#[test]
fn who_names_no_member_is_not_asked_and_who_names_no_epoch_must_own_it_now() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.join("bob");
    assert_eq!(bench.commit_as(None, None, &[(0, 1), (1, 1)]), done(&[(0, 1), (1, 1)]));
    assert_eq!(bench.commit_as(None, Some(epoch(1)), &[(0, 2)]), done(&[(0, 2)]));
    assert_eq!(bench.commit_as(None, Some(epoch(1)), &[(1, 2)]), stale(epoch(2)));
    assert_eq!(bench.commit_as(Some("bob"), None, &[(1, 2)]), done(&[(1, 2)]));
    assert_eq!(bench.commit_as(Some("bob"), None, &[(0, 3)]), stale(epoch(2)));
}

#[test]
fn a_seek_moves_the_group_and_makes_earlier_commits_stale() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.commit("ann", epoch(1), &[(0, 5), (1, 5)]);
    assert_eq!(bench.seek(&[(0, 2)]), Reply::Sought { epoch: epoch(2) });
    assert_eq!(bench.committed(), [(0, 2), (1, 5)]);
    assert_eq!(bench.commit("ann", epoch(1), &[(0, 6)]), stale(epoch(2)));
    assert_eq!(bench.commit("ann", epoch(1), &[(1, 6)]), done(&[(1, 6)]));
    assert_eq!(bench.commit("ann", epoch(2), &[(0, 3)]), done(&[(0, 3)]));
    assert_eq!(bench.seek(&[(2, 2)]), Reply::Refused(Refusal::NoPartition));
    let key = group_row(TENANT, bench.definition().id, READERS);
    assert!(wakes(&key) && bench.rig.views.contains_key(key.as_slice()));
}

#[test]
fn where_nobody_is_owner_a_commit_of_before_a_seek_or_of_another_group_is_stale() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.leave("ann");
    // Nothing was sought yet.
    assert_eq!(bench.commit_as(None, Some(epoch(1)), &[(0, 5)]), done(&[(0, 5)]));
    assert_eq!(bench.seek(&[(0, 2)]), Reply::Sought { epoch: epoch(3) });
    for before in [0, epoch(1), epoch(2)] {
        assert_eq!(bench.commit_as(None, Some(before), &[(0, 6)]), stale(epoch(3)));
    }
    assert_eq!(bench.commit_as(None, Some(epoch(3)), &[(0, 3)]), done(&[(0, 3)]));
    // Who fetched before the seek may not know of it, until somebody has fetched after it.
    assert_eq!(bench.commit_as(None, None, &[(0, 4)]), stale(epoch(3)));
    bench.join("ann");
    bench.leave("ann");
    assert_eq!(bench.commit_as(None, None, &[(0, 4)]), done(&[(0, 4)]));
    // A group of that name that is made later knows nothing of this one.
    let delete = Command::DeleteGroup { stream: CLICKS.into(), group: READERS.into() };
    assert_eq!(bench.apply(&delete), Reply::GroupDeleted);
    bench.join("ann");
    bench.leave("ann");
    assert_eq!(bench.commit_as(None, Some(epoch(5)), &[(0, 6)]), stale(epoch(7)));
    assert_eq!(bench.commit_as(None, Some(epoch(6)), &[(0, 1)]), done(&[(0, 1)]));
}

#[test]
fn a_seek_that_makes_a_group_anew_is_not_undone_by_who_was_in_the_one_before() {
    let mut bench = bench(1);
    bench.join("ann");
    bench.leave("ann");
    let delete = Command::DeleteGroup { stream: CLICKS.into(), group: READERS.into() };
    assert_eq!(bench.apply(&delete), Reply::GroupDeleted);
    bench.seek(&[(0, 2)]);
    assert!(matches!(
        bench.commit_as(None, None, &[(0, 6)]),
        Reply::Refused(Refusal::StaleMember { .. })
    ));
}

#[test]
fn a_seek_is_not_undone_by_who_fetched_before_it_and_names_no_epoch() {
    let mut bench = bench(2);
    bench.join("ann");
    assert_eq!(bench.commit_as(Some("ann"), None, &[(0, 5), (1, 5)]), done(&[(0, 5), (1, 5)]));
    bench.seek(&[(0, 2)]);
    assert_eq!(bench.standing("ann"), None, "she is to be told of it");
    for member in [Some("ann"), None] {
        assert_eq!(bench.commit_as(member, None, &[(0, 6)]), stale(epoch(2)));
        assert_eq!(bench.commit_as(member, None, &[(0, 6), (1, 6)]), stale(epoch(2)));
        assert_eq!(bench.commit_as(member, None, &[(1, 6)]), done(&[(1, 6)]), "it stayed");
    }
    assert_eq!(bench.committed(), [(0, 2), (1, 6)]);
    let told = bench.join("ann");
    assert_eq!(bench.standing("ann"), Some(told));
    assert_eq!(bench.commit_as(Some("ann"), None, &[(0, 3)]), done(&[(0, 3)]));
    assert_eq!(bench.commit_as(None, None, &[(0, 4)]), done(&[(0, 4)]));
}

#[test]
fn that_another_was_told_of_a_seek_does_not_help_who_was_not() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.join("bob");
    bench.seek(&[(0, 0), (1, 0)]);
    bench.join("bob");
    assert_eq!(bench.commit_as(None, None, &[(1, 1)]), done(&[(1, 1)]));
    assert_eq!(bench.commit_as(None, None, &[(0, 9)]), stale(epoch(3)));
    // Nor does it that the partition of who was told is hers now.
    bench.leave("bob");
    for partition in [0, 1] {
        for member in [Some("ann"), None] {
            assert_eq!(bench.commit_as(member, None, &[(partition, 9)]), stale(epoch(4)));
        }
    }
    bench.join("ann");
    assert_eq!(bench.commit_as(Some("ann"), None, &[(0, 1), (1, 2)]), done(&[(0, 1), (1, 2)]));
}

#[test]
fn who_names_nothing_is_not_in_the_way_of_other_members() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.join("bob");
    bench.leave("bob");
    // Nobody has sought, so whoever fetched it may have done it.
    assert_eq!(bench.commit_as(None, None, &[(1, 3)]), done(&[(1, 3)]));
    assert_eq!(bench.commit_as(Some("ann"), None, &[(1, 4)]), stale(epoch(3)));
    bench.join("ann");
    assert_eq!(bench.commit_as(Some("ann"), None, &[(1, 4)]), done(&[(1, 4)]));
}

#[test]
fn a_group_that_never_had_members_is_sought_and_committed_by_whoever_keeps_order() {
    let mut bench = bench(1);
    for to in [5, 2] {
        bench.seek(&[(0, to)]);
        assert_eq!(bench.commit_as(None, None, &[(0, to + 1)]), done(&[(0, to + 1)]));
    }
}

#[test]
fn a_seek_makes_a_group_that_is_not_there_and_the_first_to_join_says_where_it_starts() {
    let mut bench = bench(2);
    assert_eq!(bench.seek(&[(1, 4)]), Reply::Sought { epoch: epoch(1) });
    let started = bench.join("ann").owned;
    assert_eq!(started.iter().map(|o| o.committed).collect::<Vec<_>>(), [None, Some(4)]);
    let Reply::Joined(first) = bench.join_from("others", "ann", &[(0, 3)]) else { panic!() };
    let Reply::Joined(second) = bench.join_from("others", "bob", &[(1, 9)]) else { panic!() };
    assert_eq!(first.owned[0].committed, Some(3));
    assert_eq!((second.owned[0].partition, second.owned[0].committed), (1, None));
    let wrong = bench.join_from("third", "ann", &[(2, 3)]);
    assert_eq!(wrong, Reply::Refused(Refusal::NoPartition));
    let id = bench.definition().id;
    assert_eq!(group_names(&bench.rig.rows, TENANT, id, "", 9), ["others", READERS]);
    assert_eq!(bench.definition().groups, 2);
}

#[test]
fn who_was_heard_of_lately_need_not_join_again() {
    let mut bench = bench(2);
    assert_eq!(bench.standing("ann"), None);
    let joined = bench.join("ann");
    bench.advance(SESSION_MS / 3 - 1);
    assert_eq!(bench.standing("ann"), Some(joined));
    assert_eq!(bench.standing("bob"), None);
    bench.advance(1);
    assert_eq!(bench.standing("ann"), None);
    bench.join("ann");
    // What others do shows at once.
    bench.join("bob");
    bench.commit("ann", epoch(2), &[(0, 1)]);
    let standing = bench.standing("ann").expect("heard of lately");
    let owned = Owned { partition: 0, since: epoch(1), committed: Some(1) };
    assert_eq!((standing.epoch, standing.owned), (epoch(2), vec![owned]));
    bench.leave("ann");
    assert_eq!(bench.standing("ann"), None);
}

#[test]
fn new_partitions_are_dealt_out_when_a_member_is_next_heard_of() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.join("bob");
    bench.update(settings(5));
    assert_eq!(bench.standing("ann"), None, "there is something new to do");
    let ann = bench.join("ann");
    assert_eq!((ann.epoch, partitions(&ann)), (epoch(3), vec![0, 2, 3]));
    assert_eq!(bench.standing("bob"), None, "there is for bob, too");
    let bob = bench.join("bob");
    assert_eq!((bob.epoch, partitions(&bob)), (epoch(3), vec![1, 4]));
}

#[test]
fn who_waits_in_any_group_is_called_when_there_are_more_partitions() {
    let mut bench = bench(2);
    bench.join("ann");
    bench.join_from("others", "bob", &[]);
    let id = bench.definition().id;
    let keys = [READERS, "others"].map(|group| group_row(TENANT, id, group));
    let mut is_called = |settings| {
        for key in &keys {
            bench.rig.views.remove(key.as_slice());
        }
        bench.update(settings);
        keys.each_ref().map(|key| wakes(key) && bench.rig.views.contains_key(key.as_slice()))
    };
    assert_eq!(is_called(settings(3)), [true, true]);
    // Who would look again without need is not.
    assert_eq!(is_called(settings(3)), [false, false]);
}

#[test]
fn groups_go_when_nobody_is_in_them_and_with_their_stream() {
    let mut bench = bench(2);
    let delete = Command::DeleteGroup { stream: CLICKS.into(), group: READERS.into() };
    assert_eq!(bench.apply(&delete), Reply::Refused(Refusal::NoGroup));
    assert_eq!(bench.leave("ann"), Reply::Refused(Refusal::NoGroup));
    assert_eq!(bench.commit("ann", epoch(1), &[]), Reply::Refused(Refusal::NoGroup));
    bench.join("ann");
    bench.commit("ann", epoch(1), &[(0, 5)]);
    assert_eq!(bench.apply(&delete), Reply::Refused(Refusal::GroupInUse));
    bench.leave("ann");
    assert_eq!(bench.apply(&delete), Reply::GroupDeleted);
    assert_eq!((bench.committed(), bench.definition().groups), (vec![], 0));
    // A group of that name begins anew, and the old one's timer does nothing to it.
    assert_eq!(bench.join("bob").owned[0].committed, None);
    bench.delete();
    assert_eq!(bench.try_join("ann"), Reply::Refused(Refusal::NoStream));
    assert_eq!(bench.seek(&[]), Reply::Refused(Refusal::NoStream));
    assert_eq!(bench.leave("ann"), Reply::Refused(Refusal::NoStream));
    assert_eq!(bench.commit("ann", epoch(1), &[]), Reply::Refused(Refusal::NoStream));
    assert_eq!(bench.apply(&delete), Reply::Refused(Refusal::NoStream));
}

#[test]
fn a_commit_of_a_group_that_was_deleted_does_nothing_to_one_of_its_name() {
    let delete = Command::DeleteGroup { stream: CLICKS.into(), group: READERS.into() };
    for later_ms in [0, 1, SESSION_MS] {
        let mut bench = bench(1);
        // More epochs than milliseconds.
        for _ in 0..5 {
            bench.join("ann");
            bench.leave("ann");
        }
        let old = bench.join("ann");
        bench.leave("ann");
        bench.advance(later_ms);
        assert_eq!(bench.apply(&delete), Reply::GroupDeleted);
        let new = bench.join("ann");
        assert!(new.epoch > old.epoch + 1, "{new:?} after {old:?}");
        assert_eq!(bench.commit("ann", old.epoch, &[(0, 9)]), stale(new.epoch));
        assert_eq!(bench.commit("ann", new.epoch, &[(0, 2)]), done(&[(0, 2)]));
    }
}

#[test]
fn a_commit_of_a_stream_that_was_deleted_does_nothing_to_one_of_its_name() {
    // Within the millisecond, before time has caught up with the epochs, and after.
    for later_ms in [0, 1, SESSION_MS] {
        let mut bench = bench(1);
        for _ in 0..5 {
            bench.join("ann");
            bench.leave("ann");
        }
        let old = bench.join("ann");
        bench.advance(later_ms);
        bench.delete();
        // What is known of it outlives a stream without a group.
        bench.create(CLICKS, settings(1));
        bench.delete();
        bench.create(CLICKS, settings(1));
        let new = bench.join("ann");
        assert!(new.epoch > old.epoch, "{new:?} after {old:?}");
        assert_eq!(bench.commit("ann", old.epoch, &[(0, 9)]), stale(new.epoch));
        assert_eq!(bench.commit("ann", new.epoch, &[(0, 2)]), done(&[(0, 2)]));
    }
}

#[test]
fn what_was_looked_up_in_a_stream_that_was_deleted_is_refused_in_one_of_its_name() {
    let (stream, group) = (|| CLICKS.to_owned(), || READERS.to_owned());
    let offsets = BTreeMap::from([(0, 9)]);
    let of = |id| {
        let (member, epoch) = (None, None);
        let (start, session_ms) = (BTreeMap::new(), SESSION_MS);
        let join =
            Join { stream: stream(), group: group(), member: "ann".into(), session_ms, start, id };
        let commit = Commit {
            stream: stream(),
            group: group(),
            member,
            epoch,
            offsets: offsets.clone(),
            id,
        };
        let seek = Seek { stream: stream(), group: group(), offsets: offsets.clone(), id };
        [Command::Join(join), Command::Commit(commit), Command::Seek(seek)]
    };
    let mut bench = bench(1);
    let old = bench.id();
    bench.delete();
    for command in of(old) {
        assert_eq!(bench.apply(&command), Reply::Refused(Refusal::NoStream));
    }
    bench.create(CLICKS, settings(1));
    for command in of(old) {
        assert_eq!(bench.apply(&command), Reply::Refused(Refusal::Gone));
    }
    assert_eq!(bench.definition().groups, 0, "nor was a group made");
    // The end of the new stream is nearer, and there a commit without an epoch would be taken.
    bench.seek(&[(0, 0)]);
    for command in of(old) {
        assert_eq!(bench.apply(&command), Reply::Refused(Refusal::Gone));
    }
    assert_eq!((bench.committed(), bench.group().owners.len()), (vec![(0, 0)], 0));
    for command in of(bench.id()) {
        assert!(!matches!(bench.apply(&command), Reply::Refused(_)), "{command:?}");
    }
    assert_eq!(bench.committed(), [(0, 9)]);
}

#[test]
fn a_join_answers_as_many_offsets_as_a_stream_may_have_partitions() {
    let mut bench = bench(PARTITIONS_MAX);
    bench.join("ann");
    let all: Vec<(u16, u64)> = (0..PARTITIONS_MAX).map(|partition| (partition, 1)).collect();
    assert_eq!(bench.commit("ann", epoch(1), &all), done(&all));
    let owned = bench.join("ann").owned;
    assert_eq!(owned.len(), usize::from(PARTITIONS_MAX));
    assert!(owned.iter().all(|owned| owned.committed == Some(1)));
}

#[test]
fn no_stream_has_more_partitions_than_bound_what_a_join_does_nor_none() {
    let mut bench = bench(1);
    let refused = Reply::Refused(Refusal::Partitions);
    for partitions in [0, PARTITIONS_MAX + 1, u16::MAX] {
        assert_eq!(bench.create("another", settings(partitions)), refused);
        assert_eq!(bench.update(settings(partitions)), refused);
    }
    assert_eq!(names(&bench.rig.rows, TENANT, "", "", 10), [CLICKS]);
    assert_eq!(bench.definition().settings.partitions, 1);
}

#[test]
fn no_group_has_a_name_that_fits_into_no_key() {
    let mut bench = bench(1);
    let (stream, group) = (|| CLICKS.to_owned(), || "g".repeat(usize::from(u16::MAX) + 1));
    let join = Join {
        stream: stream(),
        group: group(),
        member: "ann".into(),
        session_ms: SESSION_MS,
        start: BTreeMap::from([(0, 1)]),
        id: None,
    };
    let offsets = BTreeMap::from([(0, 1)]);
    let commit = Commit {
        stream: stream(),
        group: group(),
        member: None,
        epoch: None,
        offsets: offsets.clone(),
        id: None,
    };
    for command in [
        Command::Join(join),
        Command::Seek(Seek { stream: stream(), group: group(), offsets, id: None }),
        Command::Commit(commit),
        Command::Leave { stream: stream(), group: group(), member: "ann".into() },
        Command::DeleteGroup { stream: stream(), group: group() },
    ] {
        assert_eq!(bench.apply(&command), Reply::Refused(Refusal::NoGroup));
    }
}

#[test]
fn there_are_no_more_groups_and_members_than_may_be() {
    let mut bench = bench(1);
    let join = |bench: &mut Bench, group: &str, member: &str| {
        let (stream, group, member) = (CLICKS.into(), group.into(), member.into());
        let (session_ms, start) = (SESSION_MS, BTreeMap::new());
        let command = Command::Join(Join { stream, group, member, session_ms, start, id: None });
        let reply = bench.rig.apply(TENANT, &command.encode()).expect("readable");
        Reply::decode(&reply).expect("a reply")
    };
    for n in 0..MEMBERS_MAX {
        join(&mut bench, READERS, &n.to_string());
    }
    assert_eq!(join(&mut bench, READERS, "more"), Reply::Refused(Refusal::Members));
    assert!(matches!(join(&mut bench, READERS, "7"), Reply::Joined(_)));
    for n in 1..GROUPS_MAX {
        join(&mut bench, &n.to_string(), "ann");
    }
    assert_eq!(join(&mut bench, "more", "ann"), Reply::Refused(Refusal::Groups));
    bench.check();
    assert_eq!(bench.seek(&[(0, 1)]), Reply::Sought { epoch: epoch(1001) });
}
