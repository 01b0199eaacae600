//! Every queue, one by one; when there are too many, those that have waited longest.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kernel::TenantId;
use node::Node;
use queue::{Counts, Found};

use super::super::page::{Kind, Page};

/// Queues that are read at a time.
const QUEUES_AT_ONCE: usize = 256;

/// What is told of a queue.
struct Shown {
    tenant: TenantId,
    tenant_name: String,
    name: String,
    oldest_visible_ms: Option<u64>,
    waiters: usize,
    counts: Counts,
}

impl Shown {
    /// What to tell first: of the queue whose oldest message has waited longest.
    fn order(&self) -> impl Ord + use<> {
        let oldest_ms = self.oldest_visible_ms.unwrap_or(u64::MAX);
        let held = self.counts.visible + self.counts.delayed + self.counts.leased;
        (oldest_ms, Reverse(held), self.tenant, self.name.clone())
    }
}

/// A number of a queue, besides the age of its oldest message.
struct Figure(Kind, &'static str, &'static str, fn(&Shown) -> u64);

const FIGURES: &[Figure] = {
    use Kind::{Counter, Gauge};
    &[
        Figure(Gauge, "stampede_queue_visible", "Messages that can be received", |queue| {
            queue.counts.visible
        }),
        Figure(Gauge, "stampede_queue_delayed", "Messages whose time has not come", |queue| {
            queue.counts.delayed
        }),
        Figure(Gauge, "stampede_queue_inflight", "Messages that somebody works on", |queue| {
            queue.counts.leased
        }),
        Figure(Gauge, "stampede_queue_bytes", "Bytes of all messages", |queue| queue.counts.bytes),
        Figure(Gauge, "stampede_queue_waiters", "Receives that wait for a message", |queue| {
            queue.waiters as u64
        }),
        Figure(Counter, "stampede_queue_sent_total", "Messages taken", |queue| {
            queue.counts.totals.sent
        }),
        Figure(Counter, "stampede_queue_received_total", "Leases given", |queue| {
            queue.counts.totals.received
        }),
        Figure(Counter, "stampede_queue_acked_total", "Messages acked", |queue| {
            queue.counts.totals.acked
        }),
        Figure(
            Counter,
            "stampede_queue_failed_total",
            "Leases that ended without an ack",
            |queue| queue.counts.totals.failed,
        ),
        Figure(
            Counter,
            "stampede_queue_dead_total",
            "Messages that became dead letters",
            |queue| queue.counts.totals.dead,
        ),
        Figure(Counter, "stampede_queue_expired_total", "Messages that became too old", |queue| {
            queue.counts.totals.expired
        }),
        Figure(Counter, "stampede_queue_moved_total", "Messages moved to another queue", |queue| {
            queue.counts.totals.moved
        }),
    ]
};

pub(super) fn write(page: &mut Page, node: &Node, max: usize) {
    let (mut shown, total) = find(node, max);
    name_tenants(node, &mut shown);
    let now_ms = node.now_ms();
    let help = "How long the oldest message has been visible; 0 without one";
    page.metric("stampede_queue_oldest_visible_age_seconds", Kind::Gauge, help);
    for queue in &shown {
        let age_ms = queue.oldest_visible_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        page.sample(&labels(queue), age_ms as f64 / 1000.0);
    }
    for Figure(kind, name, help, value) in FIGURES {
        page.metric(name, *kind, help);
        for queue in &shown {
            page.sample(&labels(queue), value(queue));
        }
    }
    page.metric("stampede_queues", Kind::Gauge, "Queues, of all tenants").sample(&[], total);
    let help = "Queues that are not told of one by one, because there are too many";
    page.metric("stampede_queues_omitted", Kind::Gauge, help).sample(&[], total - shown.len());
}

fn labels(queue: &Shown) -> [(&str, &str); 2] {
    [("tenant", &queue.tenant_name), ("queue", &queue.name)]
}

/// At most `max` queues, and how many there are.
fn find(node: &Node, max: usize) -> (Vec<Shown>, usize) {
    let mut shown = Vec::new();
    let mut total = 0;
    for rows in node.all_rows() {
        let mut after = None;
        loop {
            let (found, last) = queue::queues(&rows, after, QUEUES_AT_ONCE);
            total += found.len();
            shown.extend(found.into_iter().map(|found| look(node, found)));
            // Not with every page: sorting would be most of the work.
            if shown.len() > 2 * max + QUEUES_AT_ONCE {
                keep_first(&mut shown, max);
            }
            match last {
                Some(last) => after = Some(last),
                None => break,
            }
        }
    }
    keep_first(&mut shown, max);
    (shown, total)
}

fn keep_first(shown: &mut Vec<Shown>, max: usize) {
    shown.sort_by_cached_key(Shown::order);
    shown.truncate(max);
}

fn look(node: &Node, found: Found) -> Shown {
    let Found { tenant, name, described } = found;
    let line = queue::counts_row(tenant, described.definition.number);
    Shown {
        tenant,
        tenant_name: String::new(),
        waiters: node.waiting_for(queue::place(tenant, &name), &line),
        name,
        oldest_visible_ms: described.oldest_visible_ms,
        counts: described.counts,
    }
}

/// Only of those that are shown.
fn name_tenants(node: &Node, shown: &mut [Shown]) {
    let rows = node.rows(tenants::place());
    let mut names = BTreeMap::new();
    for queue in shown {
        let name = names.entry(queue.tenant).or_insert_with(|| match queue.tenant {
            // In `--dev` it may have no record.
            tenants::DEFAULT_TENANT => tenants::DEFAULT_NAME.to_owned(),
            // Its queues outlive a tenant until they are swept.
            tenant => tenants::tenant(&rows, tenant)
                .map_or_else(|| tenant.0.to_string(), |record| record.name),
        });
        queue.tenant_name.clone_from(name);
    }
}
