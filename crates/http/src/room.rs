//! Memory for what is large: requests and answers of more than a megabyte share one bound.

use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::Limits;
use crate::problem::{Problem, ProblemKind};

/// What is left of [`Limits::large_bytes_max`].
#[derive(Default)]
pub(crate) struct LargeRoom {
    bytes: OnceLock<Arc<Semaphore>>,
}

/// A part of it, until it is dropped.
pub(crate) struct Taken {
    permit: OwnedSemaphorePermit,
}

impl Taken {
    /// Gives back what is more than so many.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let more = self.permit.num_permits().saturating_sub(bytes);
        drop(self.permit.split(more));
    }
}

fn full() -> Problem {
    ProblemKind::Overloaded
        .because("too many large requests and answers are in memory")
        .retry_after_ms(1000)
}

impl LargeRoom {
    fn bytes(&self, limits: &Limits) -> (Arc<Semaphore>, usize) {
        let max = limits.large_bytes_max.min(Semaphore::MAX_PERMITS);
        (Arc::clone(self.bytes.get_or_init(|| Arc::new(Semaphore::new(max)))), max)
    }

    /// Takes so many at once, or refuses. What is larger than all of it takes all of it.
    pub(crate) fn take(&self, limits: &Limits, bytes: usize) -> Result<Taken, Problem> {
        let (room, max) = self.bytes(limits);
        let count = u32::try_from(bytes.min(max)).unwrap_or(u32::MAX);
        let permit = room.try_acquire_many_owned(count).map_err(|_| full())?;
        Ok(Taken { permit })
    }

    /// Takes what is missing to so many, or refuses.
    pub(crate) fn grow(
        &self,
        limits: &Limits,
        taken: &mut Taken,
        bytes: usize,
    ) -> Result<(), Problem> {
        let (_, max) = self.bytes(limits);
        let missing = bytes.min(max).saturating_sub(taken.permit.num_permits());
        if missing > 0 {
            taken.permit.merge(self.take(limits, missing)?.permit);
        }
        Ok(())
    }

    /// As [`LargeRoom::take`], but waits for a while.
    pub(crate) async fn wait(&self, limits: &Limits, bytes: usize) -> Result<Taken, Problem> {
        let (room, max) = self.bytes(limits);
        let count = u32::try_from(bytes.min(max)).unwrap_or(u32::MAX);
        match tokio::time::timeout(limits.room_timeout, room.acquire_many_owned(count)).await {
            Ok(permit) => Ok(Taken { permit: permit.expect("it is never closed") }),
            Err(_late) => Err(full()),
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

    fn limits() -> Limits {
        Limits { large_bytes_max: 100, ..Limits::default() }
    }

    #[test]
    fn what_is_taken_comes_back_with_the_last_of_its_bytes() {
        let room = LargeRoom::default();
        let all = room.take(&limits(), 1000).expect("all of it");
        assert_eq!(room.take(&limits(), 1).map(drop).unwrap_err().kind, ProblemKind::Overloaded);
        let bytes = keep(vec![1, 2, 3], Some(all));
        let part = bytes.slice(1..);
        drop(bytes);
        assert!(room.take(&limits(), 1).is_err());
        assert_eq!(part, [2, 3][..]);
        drop(part);
        let both = [room.take(&limits(), 60), room.take(&limits(), 40)];
        assert!(both.iter().all(Result::is_ok));
        assert!(room.take(&limits(), 1).is_err());
    }

    #[test]
    fn what_is_taken_grows_and_shrinks() {
        let (room, limits) = (LargeRoom::default(), limits());
        let mut taken = room.take(&limits, 10).expect("a tenth");
        let other = room.take(&limits, 50).expect("half");
        room.grow(&limits, &mut taken, 50).expect("the other half");
        assert!(room.grow(&limits, &mut taken, 51).is_err());
        drop(other);
        room.grow(&limits, &mut taken, 1000).expect("all of it");
        assert!(room.take(&limits, 1).is_err());
        taken.shrink(30);
        taken.shrink(40);
        assert!(room.take(&limits, 71).is_err() && room.take(&limits, 70).is_ok());
        drop(taken);
        assert!(room.take(&limits, 100).is_ok());
    }

    #[tokio::test]
    async fn who_waits_gets_it_when_it_is_given_back() {
        let (room, limits) = (LargeRoom::default(), limits());
        let taken = room.take(&limits, 50).expect("half");
        let waits = room.wait(&limits, 51);
        let frees = async { drop(taken) };
        assert!(tokio::join!(waits, frees).0.is_ok());
    }
}
