//! Every stream and every group, one by one; when there are too many, the largest streams and the
//! groups that are furthest behind.

use std::cmp::Reverse;

use kernel::TenantId;
use kernel::rows::RowsReader;
use node::Node;
use streams::PartitionInfo;

use super::super::page::{Kind, Page};
use crate::streams::partition;

/// Tenants, streams or groups that are read at a time.
const AT_ONCE: usize = 256;

/// What is told of a stream.
struct Stream {
    tenant: String,
    name: String,
    records: u64,
    bytes: u64,
    appended: u64,
}

/// What is told of a group.
struct Group {
    tenant: String,
    stream: String,
    name: String,
    members: usize,
    lag: u64,
}

/// Some of many: those that come first, and how many there are.
struct First<T, O> {
    kept: Vec<T>,
    total: usize,
    max: usize,
    order: fn(&T) -> O,
}

impl<T, O: Ord> First<T, O> {
    fn new(max: usize, order: fn(&T) -> O) -> First<T, O> {
        First { kept: Vec::new(), total: 0, max, order }
    }

    fn add(&mut self, one: T) {
        self.total += 1;
        self.kept.push(one);
        // Not with each: sorting would be most of the work.
        if self.kept.len() > 2 * self.max + AT_ONCE {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept.sort_by_cached_key(self.order);
        self.kept.truncate(self.max);
    }
}

fn largest(stream: &Stream) -> impl Ord + use<> {
    (Reverse(stream.bytes), stream.tenant.clone(), stream.name.clone())
}

fn furthest_behind(group: &Group) -> impl Ord + use<> {
    (Reverse(group.lag), group.tenant.clone(), group.stream.clone(), group.name.clone())
}

pub(super) fn write(page: &mut Page, node: &Node, max: usize) {
    let mut streams = First::new(max, largest);
    let mut groups = First::new(max, furthest_behind);
    for_each_tenant(node, |tenant, tenant_name| {
        for_each_stream(node, tenant, |rows, name| {
            let Some(stream) = streams::stream(rows, tenant, &name) else { return };
            let numbers = 0..stream.settings.partitions;
            let infos: Vec<PartitionInfo> =
                numbers.map(|number| partition(node, tenant, stream.id, number)).collect();
            let of_group = |group: String| {
                let key = streams::group_row(tenant, stream.id, &group);
                let known = streams::group(&rows.get(&key)?);
                let committed = streams::committed(rows, tenant, stream.id, &group);
                let lag = |(number, info): (u16, &PartitionInfo)| {
                    info.lag(committed.get(&number).copied())
                };
                Some(Group {
                    tenant: tenant_name.to_owned(),
                    stream: name.clone(),
                    members: known.owners.len(),
                    lag: (0..).zip(&infos).map(lag).sum(),
                    name: group,
                })
            };
            for_each_name(
                |after| streams::group_names(rows, tenant, stream.id, after, AT_ONCE),
                |group| of_group(group).into_iter().for_each(|group| groups.add(group)),
            );
            streams.add(Stream {
                tenant: tenant_name.to_owned(),
                records: infos.iter().map(|info| info.next - info.start).sum(),
                bytes: infos.iter().map(|info| info.bytes).sum(),
                appended: infos.iter().map(|info| info.next).sum(),
                name,
            });
        });
    });
    streams.cut();
    groups.cut();
    write_streams(page, &streams.kept, streams.total);
    write_groups(page, &groups.kept, groups.total);
}

fn write_streams(page: &mut Page, streams: &[Stream], total: usize) {
    type Figure = (Kind, &'static str, &'static str, fn(&Stream) -> u64);
    let figures: [Figure; 3] = [
        (Kind::Gauge, "stampede_stream_records", "Records that are kept", |stream| stream.records),
        (Kind::Gauge, "stampede_stream_bytes", "What they take", |stream| stream.bytes),
        (Kind::Counter, "stampede_stream_appended_total", "Records appended", |stream| {
            stream.appended
        }),
    ];
    for (kind, name, help, value) in figures {
        page.metric(name, kind, help);
        for stream in streams {
            page.sample(&[("tenant", &stream.tenant), ("stream", &stream.name)], value(stream));
        }
    }
    page.metric("stampede_streams", Kind::Gauge, "Streams, of all tenants").sample(&[], total);
    let help = "Streams that are not told of one by one, because there are too many";
    page.metric("stampede_streams_omitted", Kind::Gauge, help).sample(&[], total - streams.len());
}

fn write_groups(page: &mut Page, groups: &[Group], total: usize) {
    type Figure = (&'static str, &'static str, fn(&Group) -> u64);
    let figures: [Figure; 2] = [
        ("stampede_stream_group_lag", "Records that a group has before it", |group| group.lag),
        ("stampede_stream_group_members", "Members of a group", |group| group.members as u64),
    ];
    for (name, help, value) in figures {
        page.metric(name, Kind::Gauge, help);
        for group in groups {
            let labels =
                [("tenant", &*group.tenant), ("stream", &group.stream), ("group", &group.name)];
            page.sample(&labels, value(group));
        }
    }
    let help = "Groups, of all streams";
    page.metric("stampede_stream_groups", Kind::Gauge, help).sample(&[], total);
    let help = "Groups that are not told of one by one, because there are too many";
    let omitted = total - groups.len();
    page.metric("stampede_stream_groups_omitted", Kind::Gauge, help).sample(&[], omitted);
}

fn for_each_tenant(node: &Node, mut each: impl FnMut(TenantId, &str)) {
    let rows = node.rows(tenants::place());
    // In `--dev` it may have no record.
    each(tenants::DEFAULT_TENANT, tenants::DEFAULT_NAME);
    let mut after = TenantId::SYSTEM;
    loop {
        let page = tenants::tenants(&rows, after, AT_ONCE);
        let Some(last) = page.last() else { return };
        after = last.id;
        for tenant in &page {
            if tenant.id != tenants::DEFAULT_TENANT {
                each(tenant.id, &tenant.name);
            }
        }
    }
}

fn for_each_stream(node: &Node, tenant: TenantId, mut each: impl FnMut(&RowsReader, String)) {
    for rows in node.all_rows() {
        for_each_name(
            |after| streams::names(&rows, tenant, "", after, AT_ONCE),
            |name| each(&rows, name),
        );
    }
}

/// Goes through names, a page at a time.
fn for_each_name(page: impl Fn(&str) -> Vec<String>, mut each: impl FnMut(String)) {
    let mut after = String::new();
    loop {
        let names = page(&after);
        let Some(last) = names.last() else { return };
        after.clone_from(last);
        names.into_iter().for_each(&mut each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_are_kept_and_all_are_counted() {
        let mut first = First::new(3, |number: &usize| Reverse(*number));
        (0..1000).for_each(|number| first.add(number));
        first.cut();
        assert_eq!((first.kept, first.total), (vec![999, 998, 997], 1000));
    }

    #[test]
    fn names_are_gone_through_to_the_last() {
        let all: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let page = |after: &str| {
            all.iter().filter(|name| name.as_str() > after).take(3).cloned().collect()
        };
        let mut seen = Vec::new();
        for_each_name(page, |name| seen.push(name));
        assert_eq!(seen, all);
    }
}
