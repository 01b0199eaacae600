//! What concerns one lease is tried until its outcome is known, or until it is too late.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::error::Error;

/// How long tries go on when somebody wants an end, and at least when a lease is over already: the
/// server's clock may be behind.
pub(super) const LAST_TRY: Duration = Duration::from_secs(2);

/// Tries for one lease.
pub(super) struct Tries<'a> {
    client: &'a Client,
    /// Somebody wants an end.
    abort: &'a CancellationToken,
    /// No try goes on for longer.
    ends: Instant,
}

impl<'a> Tries<'a> {
    pub(super) fn until(
        ends: Instant,
        client: &'a Client,
        abort: &'a CancellationToken,
    ) -> Tries<'a> {
        Tries { client, abort, ends }
    }

    /// Tries to end the lease. Refused after a try that may have done it, nobody knows.
    pub(super) async fn settle<F>(self, once: impl Fn(Duration) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let outcome = self.run(once).await;
        outcome.map_err(|(error, cut)| if cut { error.after_a_cut() } else { error })
    }

    /// Tries to make it longer. Whatever an earlier try did, one that is refused says that it is over.
    pub(super) async fn renew<F>(self, once: impl Fn(Duration) -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        self.run(once).await.map_err(|(error, _)| error)
    }

    /// The last error, and whether an earlier try may have been carried out.
    async fn run<F>(mut self, once: impl Fn(Duration) -> F) -> Result<(), (Error, bool)>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let (mut failures, mut cut) = (0, false);
        loop {
            let limit = self.limit();
            let Err(error) = self.within(limit, once(limit)).await else { return Ok(()) };
            failures += 1;
            if !error.is_passing() {
                return Err((error, cut));
            }
            cut |= error.may_be_done();
            let Some(pause) = self.client.pause_in_lease(failures, &error, self.left()) else {
                return Err((error, cut));
            };
            self.pause(pause).await;
        }
    }

    fn left(&mut self) -> Duration {
        let now = Instant::now();
        if self.abort.is_cancelled() {
            // Only the first look after it counts.
            self.ends = self.ends.min(now + LAST_TRY);
        }
        self.ends.saturating_duration_since(now)
    }

    /// How long a try that begins now may take.
    fn limit(&mut self) -> Duration {
        let left = self.left();
        self.client.try_in_lease(left)
    }

    async fn within(
        &mut self,
        limit: Duration,
        once: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let began = Instant::now();
        tokio::pin!(once);
        if !self.abort.is_cancelled() {
            tokio::select! {
                biased;
                done = timeout(limit, &mut once) => {
                    return done.unwrap_or_else(|_late| Err(self.client.no_answer(limit)));
                }
                () = self.abort.cancelled() => {}
            }
        }
        // What is under way may well be answered; to ask again would tell less.
        let rest = self.limit().min(limit.saturating_sub(began.elapsed()));
        let done = timeout(rest, once).await;
        done.unwrap_or_else(|_late| Err(self.client.no_answer(began.elapsed())))
    }

    /// Cut short when somebody wants an end: there is little time for what is left to do.
    async fn pause(&self, pause: Duration) {
        let aborted = self.abort.is_cancelled();
        tokio::select! {
            () = sleep(pause) => {}
            () = self.abort.cancelled(), if !aborted => {}
        }
    }
}
