//! One book for all shards of a run: which streams there are, and what clients have heard.

use std::collections::{BTreeMap, BTreeSet};

use kernel::TenantId;
use streams::{Commit, Retention, Settings, Standing, StreamId};

use crate::subject::{Difference, same};

/// A stream: names are a tenant's own.
pub(super) type Name = (TenantId, String);

/// A stream as clients know it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: StreamId,
    pub(super) version: u64,
    pub(super) settings: Settings,
    /// Every version there was, for those who looked long ago.
    pub(super) versions: Vec<(u64, Retention)>,
}

/// What a member has heard.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) name: Name,
    pub(super) group: String,
    pub(super) member: String,
    pub(super) standing: Standing,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) streams: BTreeMap<Name, Known>,
    /// Those that are deleted, the latest last.
    pub(super) dead: Vec<(TenantId, Known)>,
    ids: BTreeSet<StreamId>,
    /// Streams that were deleted so long ago that an append has opened them again.
    pub(super) reopened: BTreeSet<StreamId>,
    pub(super) heard: Vec<Heard>,
    /// Who has committed a partition in an epoch.
    commits: BTreeMap<(Name, String, u16, u64), String>,
}

impl Ledger {
    pub(super) fn made(
        &mut self,
        name: &Name,
        id: StreamId,
        settings: Settings,
    ) -> Result<(), Difference> {
        same("a new stream's id is new", &true, &self.ids.insert(id))?;
        let versions = vec![(1, settings.retention)];
        self.streams.insert(name.clone(), Known { id, version: 1, settings, versions });
        Ok(())
    }

    pub(super) fn changed(&mut self, name: &Name, version: u64, settings: Settings) {
        let known = self.streams.get_mut(name).expect("it was made");
        (known.version, known.settings) = (version, settings);
        known.versions.push((version, settings.retention));
    }

    pub(super) fn deleted(&mut self, name: &Name) {
        let known = self.streams.remove(name).expect("it was made");
        self.dead.push((name.0, known));
    }

    pub(super) fn is_live(&self, tenant: TenantId, id: StreamId) -> bool {
        self.streams.iter().any(|(name, known)| name.0 == tenant && known.id == id)
    }

    /// In one epoch no two members commit the same partition, even if their group or its stream was
    /// deleted and made anew between.
    pub(super) fn committed(&mut self, name: &Name, commit: &Commit) -> Result<(), Difference> {
        let (Some(member), Some(epoch)) = (&commit.member, commit.epoch) else { return Ok(()) };
        for partition in commit.offsets.keys() {
            let key = (name.clone(), commit.group.clone(), *partition, epoch);
            let first = self.commits.entry(key).or_insert_with(|| member.clone());
            same("who commits a partition in an epoch", &*first, member)?;
        }
        Ok(())
    }
}
