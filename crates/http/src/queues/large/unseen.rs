//! What was leased for somebody who may go away before the answer is made.

use queue::{Command, Delivery, Receipt, Release};

use super::{GIVEN_BACK_MS, Source};
use crate::app::Edge;
use crate::queues::service;

/// Leases that go back when this is dropped, and count as no receive. Reading from the archive takes
/// its time, and a handler whose client hangs up is dropped in the middle of it: nobody has seen these
/// messages, and without this they would be dead letters in the end.
pub(super) struct Unseen<'a> {
    edge: &'a Edge,
    source: Source<'a>,
    receipts: Vec<Receipt>,
}

impl<'a> Unseen<'a> {
    /// Watches over these; over none it costs nothing.
    pub(super) fn new(edge: &'a Edge, source: Source<'a>, messages: &[Delivery]) -> Unseen<'a> {
        let receipts = messages.iter().map(|message| message.receipt).collect();
        Unseen { edge, source, receipts }
    }

    /// Others see to these from now on.
    pub(super) fn leave_out(&mut self, messages: &[Delivery]) {
        let is_other = |held: &Receipt| !messages.iter().any(|message| message.receipt == *held);
        self.receipts.retain(is_other);
    }

    /// There is nothing left to wait for: the answer leaves with them.
    pub(super) fn seen(mut self) {
        self.receipts.clear();
    }
}

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        if self.receipts.is_empty() {
            return;
        }
        let Source { tenant, name, .. } = self.source;
        let receipts = std::mem::take(&mut self.receipts);
        // After a moment: clients that give up on a slow archive would take them again and again.
        let delay_ms = GIVEN_BACK_MS;
        let command = Command::Release(Release { queue: name.to_owned(), receipts, delay_ms });
        // Only put into the inbox, which has a bound. Nobody is there to wait for the answer, and what
        // drops this may be the end of the runtime, which takes no more tasks.
        if let Err(error) = service::submit_unheard(self.edge, tenant, name, &command) {
            tracing::warn!(%error, "messages whose receiver hung up count as received");
        }
    }
}
