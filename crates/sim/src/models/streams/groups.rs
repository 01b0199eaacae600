//! Groups, plainly: for each partition its owner.

use std::collections::BTreeMap;

use streams::{
    Command, Commit, GROUPS_MAX, Join, MEMBERS_MAX, Owned, Refusal, Reply, Seek, Standing,
};

use super::StreamsModel;
use super::ledger::Heard;
use crate::subject::Difference;

/// A member, as it was last heard of.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) seen_ms: u64,
    pub(super) session_ms: u64,
    /// The epoch that it was told then.
    told: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) created_ms: u64,
    pub(super) epoch: u64,
    /// No commit of an epoch before this one counts where nobody is owner.
    sought: u64,
    /// The last epoch that any member was told.
    told: Option<u64>,
    pub(super) members: Vec<Member>,
    /// The owner of each partition, and since which epoch; none while there are no members.
    pub(super) owners: Vec<Option<(String, u64)>>,
    pub(super) offsets: BTreeMap<u16, u64>,
}

impl Group {
    fn count(&self, member: &str) -> usize {
        self.owners.iter().flatten().filter(|(owner, _)| owner == member).count()
    }

    /// Deals the partitions out anew.
    fn rebalance(&mut self, partitions: u16) {
        self.epoch += 1;
        self.owners.resize(usize::from(partitions), None);
        let is_member = |name: &String| self.members.iter().any(|member| member.name == *name);
        for owner in &mut self.owners {
            if owner.as_ref().is_some_and(|(name, _)| !is_member(name)) {
                *owner = None;
            }
        }
        let mut names: Vec<String> = self.members.iter().map(|m| m.name.clone()).collect();
        names.sort();
        // A stable sort: of those who hold as much, the first by name comes first.
        let mut by_count = names.clone();
        by_count.sort_by_key(|name| std::cmp::Reverse(self.count(name)));
        let share = |name: &String| {
            let place = by_count.iter().position(|other| other == name).expect("one of them");
            let all = usize::from(partitions);
            all / by_count.len() + usize::from(place < all % by_count.len())
        };
        for name in &names {
            while self.count(name) > share(name) {
                let last = self.owners.iter().rposition(|owner| owner_is(owner, name));
                self.owners[last.expect("it holds some")] = None;
            }
        }
        for name in &names {
            while self.count(name) < share(name) {
                let free = self.owners.iter().position(Option::is_none).expect("shares add up");
                self.owners[free] = Some((name.clone(), self.epoch));
            }
        }
    }

    /// Members who were not heard of for too long are lost. Whether any was.
    pub(super) fn lose(&mut self, now_ms: u64, partitions: u16) -> bool {
        let before = self.members.len();
        let lost_ms = |m: &Member| m.seen_ms + m.session_ms + m.session_ms.div_ceil(3);
        self.members.retain(|member| lost_ms(member) > now_ms);
        let lost = self.members.len() < before;
        if lost {
            self.rebalance(partitions);
        }
        lost
    }

    pub(super) fn owned_by(&self, member: &str) -> Vec<(u16, u64)> {
        let of_all = (0..).zip(&self.owners);
        let mine = of_all.filter(|(_, owner)| owner_is(owner, member));
        mine.map(|(partition, owner)| (partition, owner.as_ref().expect("it is mine").1)).collect()
    }

    fn standing(&self, member: &str) -> Standing {
        let owned = self.owned_by(member).into_iter().map(|(partition, since)| Owned {
            partition,
            since,
            committed: self.offsets.get(&partition).copied(),
        });
        Standing { epoch: self.epoch, owned: owned.collect() }
    }

    fn told(&self, member: &str) -> Option<u64> {
        self.members.iter().find(|known| known.name == member).map(|known| known.told)
    }

    fn may_commit(&self, commit: &Commit) -> bool {
        let may = |partition: &u16| {
            let owner = self.owners.get(usize::from(*partition)).and_then(Option::as_ref);
            match (&commit.member, owner, commit.epoch) {
                (None, None, Some(epoch)) => self.sought <= epoch,
                (None, Some((_, since)), Some(epoch)) => *since <= epoch,
                // Nobody who has fetched is without news of a seek, as far as one can tell.
                (None, None, None) => self.told.is_none_or(|told| self.sought <= told),
                (None, Some((owner, since)), None) => {
                    let told = self.told(owner).expect("an owner is a member");
                    self.sought <= told || *since <= told
                }
                (Some(_), None, _) => false,
                (Some(member), Some((owner, since)), epoch) => {
                    member == owner && epoch.or(self.told(member)).is_some_and(|at| *since <= at)
                }
            }
        };
        let is_there = |name: &String| self.told(name).is_some();
        commit.epoch.is_none_or(|epoch| epoch <= self.epoch)
            && commit.member.as_ref().is_none_or(is_there)
            && commit.offsets.keys().all(may)
    }
}

fn owner_is(owner: &Option<(String, u64)>, member: &str) -> bool {
    owner.as_ref().is_some_and(|(owner, _)| owner == member)
}

impl StreamsModel {
    fn group(&mut self, at: usize, name: &str) -> Result<usize, Reply> {
        let found = self.streams[at].groups.iter().position(|group| group.name == name);
        found.ok_or(Reply::Refused(Refusal::NoGroup))
    }

    fn make_group(&mut self, at: usize, name: &str) -> Result<usize, Reply> {
        let stream = &mut self.streams[at];
        if stream.groups.len() >= GROUPS_MAX as usize {
            return Err(Reply::Refused(Refusal::Groups));
        }
        let epoch = self.now_ms.max(stream.last_epoch);
        stream.groups.push(Group {
            name: name.to_owned(),
            created_ms: self.now_ms,
            epoch,
            sought: epoch + 1,
            // Who was in a group that is gone may have been in one of this name.
            told: (stream.last_epoch > stream.created_ms).then_some(0),
            members: Vec::new(),
            owners: vec![None; usize::from(stream.settings.partitions)],
            offsets: BTreeMap::new(),
        });
        Ok(stream.groups.len() - 1)
    }

    /// Of a command about groups of a stream.
    pub(super) fn at_group(&mut self, at: usize, command: &Command) -> Result<Reply, Difference> {
        let looked_up = match command {
            Command::Join(Join { id, .. })
            | Command::Commit(Commit { id, .. })
            | Command::Seek(Seek { id, .. }) => *id,
            _ => None,
        };
        if looked_up.is_some_and(|id| id != self.streams[at].id) {
            return Ok(Reply::Refused(Refusal::Gone));
        }
        let partitions = self.streams[at].settings.partitions;
        let known = |offsets: &BTreeMap<u16, u64>| offsets.keys().all(|p| *p < partitions);
        let reply = match command {
            Command::Join(join) => self.join(at, join, known(&join.start)),
            Command::Leave { group, member, .. } => self.leave(at, group, member),
            Command::Commit(commit) => return self.commit(at, commit, known(&commit.offsets)),
            Command::Seek(seek) => self.seek(at, seek, known(&seek.offsets)),
            Command::DeleteGroup { group, .. } => self.delete_group(at, group),
            other => return Err(format!("not of groups: {other:?}")),
        };
        Ok(reply.unwrap_or_else(|refused| refused))
    }

    fn join(&mut self, at: usize, join: &Join, known: bool) -> Result<Reply, Reply> {
        let place = match self.group(at, &join.group) {
            Ok(place) => place,
            Err(_) if !known => return Err(Reply::Refused(Refusal::NoPartition)),
            Err(_) => {
                let place = self.make_group(at, &join.group)?;
                self.streams[at].groups[place].offsets = join.start.clone();
                place
            }
        };
        let now_ms = self.now_ms;
        let stream = &mut self.streams[at];
        let group = &mut stream.groups[place];
        let found = group.members.iter().position(|member| member.name == join.member);
        if found.is_none() && group.members.len() >= MEMBERS_MAX {
            return Err(Reply::Refused(Refusal::Members));
        }
        if let Some(found) = found {
            group.members.remove(found);
        }
        let (name, session_ms) = (join.member.clone(), join.session_ms);
        group.members.push(Member { name, seen_ms: now_ms, session_ms, told: 0 });
        let partitions = stream.settings.partitions;
        if found.is_none() || group.owners.len() != usize::from(partitions) {
            group.rebalance(partitions);
        }
        let epoch = group.epoch;
        group.members.last_mut().expect("just put there").told = epoch;
        group.told = Some(epoch);
        let standing = group.standing(&join.member);
        self.ledger.borrow_mut().heard.push(Heard {
            name: stream.name.clone(),
            group: join.group.clone(),
            member: join.member.clone(),
            standing: standing.clone(),
        });
        Ok(Reply::Joined(standing))
    }

    fn leave(&mut self, at: usize, group: &str, member: &str) -> Result<Reply, Reply> {
        let place = self.group(at, group)?;
        let stream = &mut self.streams[at];
        let group = &mut stream.groups[place];
        let before = group.members.len();
        group.members.retain(|other| other.name != member);
        if group.members.len() < before {
            group.rebalance(stream.settings.partitions);
        }
        Ok(Reply::Left)
    }

    fn commit(&mut self, at: usize, commit: &Commit, known: bool) -> Result<Reply, Difference> {
        let place = match self.group(at, &commit.group) {
            Ok(place) => place,
            Err(refused) => return Ok(refused),
        };
        let stream = &mut self.streams[at];
        let group = &mut stream.groups[place];
        if !known {
            return Ok(Reply::Refused(Refusal::NoPartition));
        }
        if !group.may_commit(commit) {
            return Ok(Reply::Refused(Refusal::StaleMember { epoch: group.epoch }));
        }
        self.ledger.borrow_mut().committed(&stream.name, commit)?;
        let mut now = BTreeMap::new();
        for (partition, offset) in &commit.offsets {
            let known = group.offsets.get(partition).copied().unwrap_or(0);
            group.offsets.insert(*partition, known.max(*offset));
            now.insert(*partition, known.max(*offset));
        }
        Ok(Reply::Committed(now))
    }

    fn seek(&mut self, at: usize, seek: &Seek, known: bool) -> Result<Reply, Reply> {
        if !known {
            return Err(Reply::Refused(Refusal::NoPartition));
        }
        let place = match self.group(at, &seek.group) {
            Ok(place) => place,
            Err(_) => self.make_group(at, &seek.group)?,
        };
        let group = &mut self.streams[at].groups[place];
        group.epoch += 1;
        group.sought = group.epoch;
        for (partition, offset) in &seek.offsets {
            group.offsets.insert(*partition, *offset);
            if let Some(Some((_, since))) = group.owners.get_mut(usize::from(*partition)) {
                *since = group.epoch;
            }
        }
        Ok(Reply::Sought { epoch: group.epoch })
    }

    fn delete_group(&mut self, at: usize, group: &str) -> Result<Reply, Reply> {
        let place = self.group(at, group)?;
        let stream = &mut self.streams[at];
        if !stream.groups[place].members.is_empty() {
            return Err(Reply::Refused(Refusal::GroupInUse));
        }
        let group = stream.groups.remove(place);
        stream.last_epoch = stream.last_epoch.max(group.epoch);
        Ok(Reply::GroupDeleted)
    }
}
