//! Who owns which partition.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Deals partitions out anew: counts of members differ by one at most, and as few partitions as can
/// be get another owner. Those who hold most keep the one more that some have, of equals the first
/// by name; who holds too many gives up the last of them; what is free goes to the first by name who
/// has too few. *(frozen)*
pub(crate) fn deal(owners: &mut BTreeMap<String, Vec<(u16, u64)>>, partitions: u16, epoch: u64) {
    if owners.is_empty() {
        return;
    }
    let count = usize::from(partitions);
    let (each, more) = (count / owners.len(), count % owners.len());
    let mut by_count: Vec<(Reverse<usize>, String)> =
        owners.iter().map(|(name, owned)| (Reverse(owned.len()), name.clone())).collect();
    by_count.sort_unstable();
    let with_more: BTreeSet<String> = by_count.into_iter().take(more).map(|(_, n)| n).collect();
    let share = |name: &String| each + usize::from(with_more.contains(name));
    let mut free: BTreeSet<u16> = (0..partitions).collect();
    for (name, owned) in owners.iter_mut() {
        owned.truncate(share(name));
        for (partition, _) in owned {
            free.remove(partition);
        }
    }
    for (name, owned) in owners {
        while owned.len() < share(name) {
            owned.push((free.pop_first().expect("shares add up"), epoch));
        }
        owned.sort_unstable();
    }
}
