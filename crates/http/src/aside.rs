//! Work that takes time by the byte, such as hashing. As much of it as a large body needs is done on a
//! thread that may block: the others of its thread would wait for milliseconds.

use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// Up to so many bytes are worked on at once: to hash them takes hardly longer than to hand them over and
/// to be woken again. What a queue holds itself is no larger.
const AT_ONCE_BYTES_MAX: usize = 256 << 10;

/// Does work on so many bytes.
pub(crate) async fn by_bytes<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= AT_ONCE_BYTES_MAX {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        // Nobody aborts it, so it has panicked: the request fails as if it had done so itself.
        Err(error) => resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn what_is_large_is_worked_on_elsewhere_and_what_is_small_at_once() {
        let here = thread::current().id();
        for (bytes, is_here) in [(0, true), (AT_ONCE_BYTES_MAX, true), (16 << 20, false)] {
            let worked = by_bytes(bytes, || thread::current().id()).await;
            assert_eq!(worked == here, is_here, "{bytes} bytes");
        }
    }

    #[tokio::test]
    #[should_panic(expected = "on purpose")]
    async fn a_panic_elsewhere_is_one_of_the_request() {
        by_bytes(usize::MAX, || panic!("on purpose")).await
    }
}
