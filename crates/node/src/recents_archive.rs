//! Recents in the archive: old history as gzip NDJSON, one line a search, oldest first.
//!
//! ```text
//!   recents/{tenant}/{digest of the user}/{first number}-{last number}.ndjson.gz
//!   {"n":17,"f":"00c3…","at":"2026-01-02T03:04:05.678Z","q":"flights to Paris"}
//! ```

use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures_util::TryStreamExt;
use kernel::id::digest;
use kernel::machine::Effect;
use kernel::{Envelope, ShardId, TenantId};
use object_store::path::Path;
use recents::{
    ArchiveEffect, Archived, Command, Entry, Manifest, PurgeEffect, RecentsEffect, Reply,
};
use serde::{Deserialize, Serialize};

use crate::effects::EffectError;
use crate::node::{Inner, Node, Refusal};

/// Searches in one object.
const OBJECT_ENTRIES_MAX: usize = 4096;

#[derive(Serialize, Deserialize)]
struct Line {
    n: u64,
    f: String,
    at: String,
    q: String,
}

fn folder(tenant: TenantId, user: &str) -> String {
    let digest = u128::from_be_bytes(digest(&[user.as_bytes()]));
    format!("recents/{tenant}/{digest:032x}")
}

fn object_name(tenant: TenantId, user: &str, first: u64, last: u64) -> String {
    format!("{}/{first:020}-{last:020}.ndjson.gz", folder(tenant, user))
}

/// The last number in an object, by its name.
fn last_number(path: &Path) -> Option<u64> {
    path.filename()?.strip_suffix(".ndjson.gz")?.split_once('-')?.1.parse().ok()
}

fn encode(entries: &[&Entry]) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    for entry in entries {
        let line = Line {
            n: entry.number,
            f: format!("{:016x}", entry.folded),
            at: rfc3339(entry.at_ms),
            q: entry.query.clone(),
        };
        serde_json::to_writer(&mut gzip, &line).expect("memory takes everything");
        gzip.write_all(b"\n").expect("memory takes everything");
    }
    gzip.finish().expect("memory takes everything").into()
}

fn rfc3339(at_ms: u64) -> String {
    let millis = i64::try_from(at_ms).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

fn decode(object: &[u8]) -> Result<Vec<Entry>, Refusal> {
    let corrupt = |what: String| Refusal::Archive { what };
    let mut text = String::new();
    GzDecoder::new(object).read_to_string(&mut text).map_err(|e| corrupt(e.to_string()))?;
    let mut entries = Vec::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).map_err(|e| corrupt(e.to_string()))?;
        let at: jiff::Timestamp = line.at.parse().map_err(|_| corrupt("a bad time".into()))?;
        entries.push(Entry {
            number: line.n,
            at_ms: u64::try_from(at.as_millisecond()).unwrap_or(0),
            folded: u64::from_str_radix(&line.f, 16).map_err(|e| corrupt(e.to_string()))?,
            query: line.q,
            row_bytes: 0,
        });
    }
    Ok(entries)
}

/// Does what recents asks for.
pub(crate) async fn execute(
    node: &Arc<Inner>,
    shard: ShardId,
    effect: &Effect,
) -> Result<(), EffectError> {
    match RecentsEffect::decode(&effect.payload)? {
        RecentsEffect::Archive(archive) => upload(node, shard, effect, archive).await,
        RecentsEffect::Purge(purge) => delete(node, shard, effect, purge).await,
    }
}

async fn report(
    node: &Arc<Inner>,
    shard: ShardId,
    tenant: TenantId,
    command: Command,
) -> Result<Reply, EffectError> {
    let command = command.encode();
    let envelope = Envelope { machine: recents::MACHINE, tenant, idempotency: None, command };
    Ok(Reply::decode(&node.submit_to(shard, envelope).await?)?)
}

async fn upload(
    node: &Arc<Inner>,
    shard: ShardId,
    effect: &Effect,
    archive: ArchiveEffect,
) -> Result<(), EffectError> {
    let ArchiveEffect { user, before_ms } = archive;
    let tenant = effect.tenant;
    let (reader, whose) = (node.reader(shard), user.clone());
    let (entries, removals) = tokio::task::spawn_blocking(move || {
        let entries = recents::oldest(&reader, tenant, &whose, before_ms, OBJECT_ENTRIES_MAX);
        (entries, recents::removals(&reader, tenant, &whose))
    })
    .await?;
    // What was removed goes no further than here, but its row is taken away with the others.
    let kept: Vec<&Entry> =
        entries.iter().filter(|entry| !removals.hide(entry.folded, entry.number)).collect();
    let mut object = String::new();
    if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
        object = object_name(tenant, &user, first.number, last.number);
        node.archive.put(&Path::from(object.as_str()), encode(&kept).into()).await?;
    }
    let whose = user.clone();
    let archived = Archived {
        user,
        effect: effect.number,
        object: object.clone(),
        numbers: entries.iter().map(|entry| entry.number).collect(),
        row_bytes: entries.iter().map(|entry| entry.row_bytes).sum(),
    };
    let reply = report(node, shard, tenant, Command::Archived(archived)).await?;
    if reply == Reply::Stale && !object.is_empty() {
        delete_unless_named(node, shard, tenant, &whose, &object).await?;
    }
    Ok(())
}

/// The user was cleared while we uploaded, and nothing points to the object; or the report was
/// sent twice, and a manifest of the first does.
async fn delete_unless_named(
    node: &Arc<Inner>,
    shard: ShardId,
    tenant: TenantId,
    user: &str,
    object: &str,
) -> Result<(), EffectError> {
    let (reader, user) = (node.reader(shard), user.to_owned());
    let read = move || recents::manifests(&reader, tenant, &user, u64::MAX, usize::MAX);
    let named = tokio::task::spawn_blocking(read).await?;
    if named.iter().all(|manifest| manifest.object != object) {
        node.archive.delete(&Path::from(object)).await?;
    }
    Ok(())
}

async fn delete(
    node: &Arc<Inner>,
    shard: ShardId,
    effect: &Effect,
    purge: PurgeEffect,
) -> Result<(), EffectError> {
    let folder = Path::from(folder(effect.tenant, &purge.user));
    let objects: Vec<_> = node.archive.list(&folder).await?.try_collect().await?;
    for object in objects {
        if last_number(&object.location).is_some_and(|last| last <= purge.through) {
            node.archive.delete(&object.location).await?;
        }
    }
    report(node, shard, effect.tenant, Command::Purged { effect: effect.number }).await?;
    Ok(())
}

impl Node {
    /// A page of a user's whole history, newest first: searches with numbers before `before`, from
    /// rows and then from the archive.
    ///
    /// # Errors
    /// [`Refusal`] when rows or archive cannot be read.
    pub async fn recents_history(
        &self,
        tenant: TenantId,
        user: &str,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Entry>, Refusal> {
        let reader = self.rows(recents::place(tenant, user));
        let whose = user.to_owned();
        let read = move || {
            let removals = recents::removals(&reader, tenant, &whose);
            let page = recents::history(&reader, tenant, &whose, before, limit, &removals);
            // After the rows: what moves from one to the other meanwhile is seen in either.
            let manifests = recents::manifests(&reader, tenant, &whose, before, usize::MAX);
            (removals, page, manifests)
        };
        let (removals, page, manifests) = tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| Refusal::Stopped { why: error.to_string() })?;
        let mut entries = page.entries;
        for manifest in manifests {
            if entries.len() >= limit {
                break;
            }
            let before = entries.last().map_or(before, |entry| entry.number);
            let archived = self.fetch(&manifest).await?;
            let older = archived.into_iter().rev().filter(|entry| {
                entry.number < before && !removals.hide(entry.folded, entry.number)
            });
            entries.extend(older.take(limit - entries.len()));
        }
        Ok(entries)
    }

    async fn fetch(&self, manifest: &Manifest) -> Result<Vec<Entry>, Refusal> {
        let failed = |error: object_store::Error| Refusal::Archive { what: error.to_string() };
        let path = Path::from(manifest.object.as_str());
        let object = self.inner.archive.get(&path).await.map_err(failed)?;
        decode(&object.bytes().await.map_err(failed)?)
    }
}
