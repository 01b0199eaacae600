//! Memory for what is large: requests and answers of more than a megabyte share one bound.
//!
//! A tenant may have as much as it leaves to the others, and is let in for one request more: one alone
//! gets about half of all of it, the next half of what is left, and whoever comes next still finds room.
//! A request that grows counts as if it had come with all that it has. Who waits for some stands in a line of its
//! tenant's, and what comes later of that tenant does not overtake it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use kernel::TenantId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::limits::Limits;
use crate::problem::{Problem, ProblemKind};

/// What is taken of [`Limits::large_bytes_max`].
#[derive(Default)]
pub(crate) struct LargeRoom {
    shares: Arc<Mutex<Shares>>,
}

#[derive(Default)]
struct Shares {
    taken: usize,
    /// None is without anything in it.
    of: BTreeMap<TenantId, Share>,
}

/// What one tenant has of it, and wants.
#[derive(Default)]
struct Share {
    taken: usize,
    /// Told when there may be enough for the first.
    line: VecDeque<Arc<Notify>>,
}

impl Shares {
    /// Takes so many for somebody who has some already, which count as a part of them.
    fn take(&mut self, max: usize, tenant: TenantId, had: usize, bytes: usize) -> bool {
        let of_tenant = self.of.get(&tenant).map_or(0, |share| share.taken) - had;
        let fits = of_tenant + bytes <= max.saturating_sub(self.taken - had);
        if fits && bytes > 0 {
            self.of.entry(tenant).or_default().taken += bytes - had;
            self.taken += bytes - had;
        }
        fits
    }

    fn give_back(&mut self, tenant: TenantId, bytes: usize) {
        if let Some(share) = self.of.get_mut(&tenant) {
            share.taken -= bytes;
            self.taken -= bytes;
        }
        self.tidy(tenant);
    }

    fn leave_line(&mut self, tenant: TenantId, place: &Arc<Notify>) {
        if let Some(share) = self.of.get_mut(&tenant) {
            share.line.retain(|other| !Arc::ptr_eq(other, place));
        }
        self.tidy(tenant);
    }

    /// After something has changed for this tenant: there may be enough for whoever is first.
    fn tidy(&mut self, tenant: TenantId) {
        if self.of.get(&tenant).is_some_and(|share| share.taken == 0 && share.line.is_empty()) {
            self.of.remove(&tenant);
        }
        self.of
            .values()
            .filter_map(|share| share.line.front())
            .for_each(|first| first.notify_one());
    }

    fn first_in_line(&self, tenant: TenantId) -> Option<&Arc<Notify>> {
        self.of.get(&tenant)?.line.front()
    }
}

/// A part of it, until it is dropped.
pub(crate) struct Taken {
    shares: Arc<Mutex<Shares>>,
    tenant: TenantId,
    bytes: usize,
}

impl Taken {
    /// Gives back what is more than so many.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        if more > 0 {
            self.shares.lock().give_back(self.tenant, more);
            self.bytes -= more;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// A place in a tenant's line, until it is dropped.
struct Place<'a> {
    shares: &'a Mutex<Shares>,
    tenant: TenantId,
    turn: Arc<Notify>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shares.lock().leave_line(self.tenant, &self.turn);
    }
}

fn full() -> Problem {
    ProblemKind::Overloaded
        .because("too many large requests and answers are in memory")
        .retry_after_ms(1000)
}

impl LargeRoom {
    fn taken(&self, tenant: TenantId, bytes: usize) -> Taken {
        Taken { shares: Arc::clone(&self.shares), tenant, bytes }
    }

    /// Takes so many at once, or refuses. What is larger than all of it takes all of it.
    pub(crate) fn take(
        &self,
        limits: &Limits,
        tenant: TenantId,
        bytes: usize,
    ) -> Result<Taken, Problem> {
        let mut taken = self.taken(tenant, 0);
        self.grow(limits, &mut taken, bytes).map(|()| taken)
    }

    /// Takes what is missing to so many, or refuses.
    pub(crate) fn grow(
        &self,
        limits: &Limits,
        taken: &mut Taken,
        bytes: usize,
    ) -> Result<(), Problem> {
        let bytes = bytes.min(limits.large_bytes_max);
        if bytes <= taken.bytes {
            return Ok(());
        }
        let mut shares = self.shares.lock();
        let is_next = shares.first_in_line(taken.tenant).is_none();
        if is_next && shares.take(limits.large_bytes_max, taken.tenant, taken.bytes, bytes) {
            taken.bytes = bytes;
            return Ok(());
        }
        Err(full())
    }

    /// As [`LargeRoom::take`], but waits for a while.
    pub(crate) async fn wait(
        &self,
        limits: &Limits,
        tenant: TenantId,
        bytes: usize,
    ) -> Result<Taken, Problem> {
        if let Ok(taken) = self.take(limits, tenant, bytes) {
            return Ok(taken);
        }
        let (max, deadline) = (limits.large_bytes_max, Instant::now() + limits.room_timeout);
        let bytes = bytes.min(max);
        let turn = Arc::new(Notify::new());
        self.shares.lock().of.entry(tenant).or_default().line.push_back(Arc::clone(&turn));
        let place = Place { shares: &self.shares, tenant, turn };
        loop {
            {
                let mut shares = self.shares.lock();
                let is_first =
                    shares.first_in_line(tenant).is_some_and(|f| Arc::ptr_eq(f, &place.turn));
                if is_first && shares.take(max, tenant, 0, bytes) {
                    return Ok(self.taken(tenant, bytes));
                }
            }
            timeout_at(deadline, place.turn.notified()).await.map_err(|_late| full())?;
        }
    }
}

struct Kept {
    bytes: Bytes,
    _room: Taken,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, which hold on to their room until the last of them is dropped.
pub(crate) fn keep(bytes: impl Into<Bytes>, room: Option<Taken>) -> Bytes {
    match room {
        None => bytes.into(),
        Some(room) => Bytes::from_owner(Kept { bytes: bytes.into(), _room: room }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);
    const OTHER: TenantId = TenantId(2);

    fn limits() -> Limits {
        Limits { large_bytes_max: 100, ..Limits::default() }
    }

    #[test]
    fn what_is_taken_comes_back_with_the_last_of_its_bytes() {
        let room = LargeRoom::default();
        let all = room.take(&limits(), ONE, 1000).expect("all of it");
        let refused = room.take(&limits(), OTHER, 1).map(drop).unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Overloaded);
        let bytes = keep(vec![1, 2, 3], Some(all));
        let part = bytes.slice(1..);
        drop(bytes);
        assert!(room.take(&limits(), OTHER, 1).is_err());
        assert_eq!(part, [2, 3][..]);
        drop(part);
        let both = [room.take(&limits(), ONE, 60), room.take(&limits(), OTHER, 40)];
        assert!(both.iter().all(Result::is_ok));
        assert!(room.take(&limits(), OTHER, 1).is_err());
    }

    #[test]
    fn what_is_taken_grows_and_shrinks() {
        let (room, limits) = (LargeRoom::default(), limits());
        let mut taken = room.take(&limits, ONE, 10).expect("a tenth");
        let other = room.take(&limits, OTHER, 50).expect("half");
        room.grow(&limits, &mut taken, 50).expect("the other half");
        assert!(room.grow(&limits, &mut taken, 51).is_err());
        drop(other);
        room.grow(&limits, &mut taken, 1000).expect("all of it");
        assert!(room.take(&limits, OTHER, 1).is_err());
        taken.shrink(30);
        taken.shrink(40);
        assert!(room.take(&limits, OTHER, 71).is_err() && room.take(&limits, OTHER, 70).is_ok());
        drop(taken);
        assert!(room.take(&limits, ONE, 100).is_ok());
        assert!(room.shares.lock().of.is_empty(), "nothing is kept of who has nothing");
    }

    #[test]
    fn a_tenant_gets_half_of_what_is_left_to_the_others() {
        let (room, limits) = (LargeRoom::default(), limits());
        let all_of = |tenant: u32| -> Vec<Taken> {
            (0..).map_while(|_| room.take(&limits, TenantId(tenant), 1).ok()).collect()
        };
        let got: Vec<_> = (1..=5).map(all_of).collect();
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [50, 25, 13, 6, 3]);
        drop(got);
        // Also for what grows little by little.
        let mut first = room.take(&limits, ONE, 30).expect("there is room");
        let mut second = room.take(&limits, ONE, 1).expect("there is room");
        room.grow(&limits, &mut second, 40).expect("it could have had so many at once");
        assert!(room.grow(&limits, &mut second, 41).is_err());
        assert!(room.grow(&limits, &mut first, 31).is_err());
        assert!(room.take(&limits, ONE, 1).is_err() && room.take(&limits, OTHER, 30).is_ok());
    }

    #[tokio::test]
    async fn who_waits_gets_it_when_it_is_given_back() {
        let (room, limits) = (LargeRoom::default(), limits());
        let taken = room.take(&limits, ONE, 50).expect("half");
        let waits = room.wait(&limits, ONE, 51);
        let frees = async { drop(taken) };
        assert!(tokio::join!(waits, frees).0.is_ok());
    }

    #[tokio::test]
    async fn who_waits_is_overtaken_by_others_only() {
        let (room, limits) = (LargeRoom::default(), limits());
        let mut order = Vec::new();
        let taken = room.take(&limits, ONE, 40).expect("there is room");
        let order = &parking_lot::Mutex::new(&mut order);
        let wait = async |name: &'static str, bytes: usize| {
            let taken = room.wait(&limits, ONE, bytes).await;
            order.lock().push(name);
            drop(taken);
        };
        let frees = async {
            assert!(room.take(&limits, ONE, 1).is_err(), "it would overtake the first");
            assert!(room.take(&limits, OTHER, 1).is_ok());
            drop(taken);
        };
        tokio::join!(biased; wait("large", 90), wait("small", 1), frees);
        assert_eq!(**order.lock(), ["large", "small"]);
    }

    #[tokio::test]
    async fn who_waits_too_long_is_refused_and_holds_up_nobody() {
        let (room, mut limits) = (LargeRoom::default(), limits());
        let taken = room.take(&limits, ONE, 40).expect("there is room");
        limits.room_timeout = std::time::Duration::from_millis(1);
        let refused = room.wait(&limits, ONE, 90).await.map(drop).unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Overloaded);
        assert!(room.take(&limits, ONE, 20).is_ok());
        drop(taken);
        assert!(room.shares.lock().of.is_empty());
    }
}
