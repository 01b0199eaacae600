//! The allocator of our programs, and how it treats freed memory.
//!
//! A shard's rows grow in memory and are freed by the checkpoint that moves them to the store, again
//! and again. Giving that memory back to the system and taking it anew costs a page fault for every
//! 4 KiB: enough to show in latency as pauses of tens of milliseconds. What our programs need at
//! their busiest is bounded, so they keep it.
//!
//! This is the only crate with unsafe code: the allocator's settings have no other door.

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};

/// A third faster than the system's under many small rows from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The place of `mi_option_purge_delay` in the allocator's table of settings: milliseconds until
/// freed memory goes back to the system.
const PURGE_DELAY: mi_option_t = 15;
/// What it is when nobody has set it. No setting next to it has this value, so it also shows that
/// the place is the right one, whatever version of the allocator is linked.
const PURGE_DELAY_USUAL: i64 = 1000;
/// What it takes for never.
const NEVER: i64 = -1;

/// Makes this process keep the memory that it frees. Whoever sets `MIMALLOC_PURGE_DELAY` has it
/// their way instead.
pub fn keep_freed() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
        return;
    }
    #[expect(unsafe_code, reason = "the allocator's settings have no other door")]
    // SAFETY: both functions take plain numbers and may be called at any time from any thread. They
    // read and write one number of a static table, and refuse a place outside it.
    unsafe {
        if mi_option_get(PURGE_DELAY) == PURGE_DELAY_USUAL {
            mi_option_set(PURGE_DELAY, NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_where_we_look_for_it() {
        keep_freed();
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: as above.
        let delay = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay, NEVER, "another version of the allocator has its settings elsewhere");
    }
}
