//! A small map from the hash of a credential to what was found out about it.
//!
//! It saves work, and decides nothing: whoever takes something out checks that it still holds.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use parking_lot::RwLock;
use tenants::KeyHash;

const SEGMENTS: usize = 16;
/// 65,536 credentials in all. A full segment starts over: what is still in use is found out
/// again once, which is cheaper than keeping account of use on every request.
const SEGMENT_ENTRIES_MAX: usize = 4096;

/// SHA-256 is as good a hash as any, so eight bytes of it are taken as they are.
#[derive(Default)]
struct TakeEight(u64);

impl Hasher for TakeEight {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // The length prefix of an array comes first and is shorter.
        if let Some(chunk) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*chunk);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

type Segment<T> = HashMap<KeyHash, Arc<T>, BuildHasherDefault<TakeEight>>;

/// See the module.
pub(crate) struct Cache<T>([RwLock<Segment<T>>; SEGMENTS]);

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache(std::array::from_fn(|_| RwLock::default()))
    }
}

impl<T> Cache<T> {
    fn segment(&self, hash: &KeyHash) -> &RwLock<Segment<T>> {
        // Another byte than the first eight, or each segment's map would use a part of its slots.
        &self.0[usize::from(hash.0[31]) % SEGMENTS]
    }

    pub(crate) fn get(&self, hash: &KeyHash) -> Option<Arc<T>> {
        self.segment(hash).read().get(hash).cloned()
    }

    pub(crate) fn put(&self, hash: KeyHash, value: Arc<T>) {
        let mut segment = self.segment(&hash).write();
        if segment.len() >= SEGMENT_ENTRIES_MAX && !segment.contains_key(&hash) {
            segment.clear();
        }
        segment.insert(hash, value);
    }

    pub(crate) fn remove(&self, hash: &KeyHash) {
        self.segment(hash).write().remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::secret::hash;

    #[test]
    fn what_was_put_is_found_until_removed() {
        let cache = Cache::default();
        for number in 0..1000_u32 {
            cache.put(hash(&number.to_be_bytes()), Arc::new(number));
        }
        for number in 0..1000_u32 {
            let key = hash(&number.to_be_bytes());
            assert_eq!(cache.get(&key).as_deref(), Some(&number));
            cache.remove(&key);
            assert_eq!(cache.get(&key), None);
        }
    }

    #[test]
    fn it_never_grows_past_its_bound() {
        let cache = Cache::default();
        for number in 0..100_000_u32 {
            cache.put(hash(&number.to_be_bytes()), Arc::new(number));
        }
        for segment in &cache.0 {
            assert!(segment.read().len() <= SEGMENT_ENTRIES_MAX);
        }
    }
}
