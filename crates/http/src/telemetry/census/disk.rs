//! The disk of the data folder.

use node::Node;

use super::super::page::{Kind, Page};

pub(super) fn write(page: &mut Page, node: &Node) {
    let disk = match node.disk_use() {
        Ok(disk) => disk,
        Err(error) => return tracing::warn!(%error, "the data folder cannot be looked at"),
    };
    let mut gauge =
        |name, help, bytes: u64| page.metric(name, Kind::Gauge, help).sample(&[], bytes);
    let help = "Bytes that can still be written to the disk of the data folder";
    gauge("stampede_disk_free_bytes", help, disk.free_bytes);
    gauge("stampede_disk_size_bytes", "Bytes of the disk of the data folder", disk.size_bytes);
    let used = disk.shards.iter().map(|shard| shard.log_bytes + shard.store_bytes).sum();
    gauge("stampede_data_bytes", "Bytes that all logs and rows take, without the archive", used);
    let help = "Bytes that the rows of a shard take, as of its last checkpoint";
    page.metric("stampede_store_bytes", Kind::Gauge, help);
    for (number, shard) in disk.shards.iter().enumerate() {
        page.sample(&[("shard", &number.to_string())], shard.store_bytes);
    }
}
