//! What a caller's tenant may do with queues. Each refusal names its quota.

use tenants::Quotas;

use super::quota::{self, Held, RETRY_MS};
use super::{Caller, Tenant};
use crate::problem::{Problem, ProblemKind};
use crate::telemetry::metrics::throttled;

impl Tenant {
    /// Counts a refusal by a quota, so that it can be watched who is refused by what.
    pub(crate) fn counted<T>(&self, tried: Result<T, Problem>) -> Result<T, Problem> {
        tried.inspect_err(|problem| {
            if let Some(quota) = problem.quota() {
                throttled(&self.name, quota, 1);
            }
        })
    }
}

impl Caller {
    fn tenant_known(&self) -> &Tenant {
        &self.known.tenant
    }

    fn quotas(&self) -> &Quotas {
        &self.tenant_known().record.quotas
    }

    /// Charges messages that are to be sent together: all of them or none.
    pub(crate) fn charge_messages(&self, count: usize) -> Result<(), Problem> {
        let tenant = self.tenant_known();
        if tenant.message_rate.is_none() || count == 0 {
            return Ok(());
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let now_ns = self.auth().now_ns();
        tenant.counted(tenant.gauge.charge_messages(now_ns, tenant.message_rate, count))
    }

    /// Takes back that charge: the messages are not sent after all.
    pub(crate) fn give_back_messages(&self, count: usize) {
        let tenant = self.tenant_known();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        tenant.gauge.give_back_messages(tenant.message_rate, count);
    }

    /// Charges messages that are to be sent to a queue, which may be sent so many in a second: all of
    /// them or none.
    pub(crate) fn charge_queue(
        &self,
        queue: &str,
        per_second: u32,
        count: usize,
    ) -> Result<(), Problem> {
        if count == 0 {
            return Ok(());
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let auth = self.auth();
        let rates = &auth.0.queue_rates;
        let charged = rates.charge(auth.now_ns(), (self.tenant, queue), per_second, count);
        self.tenant_known().counted(charged)
    }

    /// Takes back that charge, if the queue has such a bound.
    pub(crate) fn give_back_to_queue(&self, queue: Option<(&str, u32)>, count: usize) {
        let Some((queue, per_second)) = queue else { return };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.auth().0.queue_rates.give_back((self.tenant, queue), per_second, count);
    }

    /// Whether one queue more may be made, which keeps messages for so long.
    pub(crate) fn check_new_queue(&self, retention_ms: u64) -> Result<(), Problem> {
        self.check_room(true)?;
        let usage = self.auth().node().usage(self.tenant);
        self.tenant_known().counted(quota::check_queues(self.quotas(), usage))?;
        self.check_retention(retention_ms)
    }

    /// Whether a queue may keep messages for so long.
    pub(crate) fn check_retention(&self, retention_ms: u64) -> Result<(), Problem> {
        self.tenant_known().counted(quota::check_retention(self.quotas(), retention_ms))
    }

    /// How long a queue may keep messages, if there is a bound.
    pub(crate) fn retention_ms_max(&self) -> Option<u64> {
        self.quotas().retention_seconds_max.map(|seconds| seconds.saturating_mul(1000))
    }

    /// Messages that may be leased besides those that are, at least one.
    pub(crate) fn leases_left(&self) -> Result<u64, Problem> {
        let usage = self.auth().node().usage(self.tenant);
        self.tenant_known().counted(quota::leases_left(self.quotas(), usage))
    }

    /// Counts a receive or fetch that waits in so many lines, until what is given is dropped: each
    /// line takes memory.
    pub(crate) fn wait(&self, lines: usize) -> Result<Held, Problem> {
        let (edge, tenant) = (&self.app.edge, self.tenant_known());
        // Of all tenants together. Those who come at the same moment may be a few more.
        if edge.node.waiting().saturating_add(lines) > edge.limits.waiters_max {
            throttled(&tenant.name, "waitersMax", 1);
            let why = "as many receives and fetches wait as this server lets wait";
            return Err(ProblemKind::Overloaded.because(why).retry_after_ms(RETRY_MS));
        }
        let lines = u32::try_from(lines).unwrap_or(u32::MAX);
        tenant.counted(Held::waiter(&tenant.gauge, lines, self.quotas().waiters))
    }
}
