//! What a node knows without entering its shards: what they have published, and who waits for it.

use std::sync::Arc;

use bytes::Bytes;
use kernel::VirtualShard;

use crate::node::{Node, Refusal};
use crate::views::{View, Views};
use crate::waiters::{WaitingPlace, WaitingPlaces, line_key};

impl Node {
    fn views(&self, at: VirtualShard) -> &Views {
        &self.inner.boards.views[usize::from(self.shard_number(at))]
    }

    fn line(&self, at: VirtualShard, key: &[u8]) -> Bytes {
        line_key(self.shard_of(at), key)
    }

    /// What was published under this key, where `at` is placed; `None` when it is not in memory.
    #[must_use]
    pub fn view(&self, at: VirtualShard, key: &[u8]) -> Option<Arc<View>> {
        self.views(at).get(key)
    }

    /// Joins the line of those who wait for something to be published under this key,
    /// where `at` is placed.
    #[must_use]
    pub fn wait_in_line(&self, at: VirtualShard, key: &[u8]) -> WaitingPlace {
        WaitingPlace::join(&self.inner.boards.waiters, self.line(at, key))
    }

    /// Joins the lines of those who wait for something to be published under any of these keys, of
    /// which there is enough for everybody.
    #[must_use]
    pub fn wait_for_any(&self, keys: &[(VirtualShard, Vec<u8>)]) -> WaitingPlaces {
        let lines = keys.iter().map(|(at, key)| self.line(*at, key)).collect();
        WaitingPlaces::join(&self.inner.boards.waiters, lines)
    }

    /// Says to those who wait under this key that there was something for so many of them.
    pub fn call_line(&self, at: VirtualShard, key: &[u8], ready: u64) {
        self.inner.boards.waiters.call_at_least(&self.line(at, key), ready);
    }

    /// Whether somebody waits for what is published under this key.
    #[must_use]
    pub fn has_line(&self, at: VirtualShard, key: &[u8]) -> bool {
        self.inner.boards.waiters.has_line(&self.line(at, key))
    }

    /// Those who wait for what is published under this key.
    #[must_use]
    pub fn waiting_for(&self, at: VirtualShard, key: &[u8]) -> usize {
        self.inner.boards.waiters.count_of(&self.line(at, key))
    }

    /// Those who wait, for whatever it may be: who waits in several lines counts in each.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.boards.waiters.count()
    }

    /// As [`Node::view`], but a value that is not in memory is read from the row of the same key,
    /// where `at` is placed, and kept.
    /// `None` when there is no such row either.
    ///
    /// # Errors
    /// [`Refusal::Stopped`] when rows cannot be read.
    pub async fn view_or_row(
        &self,
        at: VirtualShard,
        key: Vec<u8>,
    ) -> Result<Option<Arc<View>>, Refusal> {
        if let Some(view) = self.view(at, &key) {
            return Ok(Some(view));
        }
        let gap = self.views(at).gap(&key);
        let reader = self.rows(at);
        let read = move || (reader.get(&key), key);
        let (value, key) = self.read(read).await?;
        Ok(value.map(|value| self.views(at).fill(key.into(), value, gap)))
    }

    /// Memory that read views take.
    #[must_use]
    pub fn views_bytes(&self) -> usize {
        self.inner.boards.views.iter().map(Views::bytes).sum()
    }
}
