//! Bodies of messages in the archive: those too large for a queue to hold itself.
//!
//! ```text
//!   bodies/{tenant}/{first byte of the digest}/{sha256 of the body}-{shard}-{number}
//! ```
//!
//! The name has the digest of the body, and ends with a number that is never given twice: the same
//! body sent twice is two objects, each of which goes with its own message.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use kernel::machine::Effect;
use kernel::{Envelope, ShardId, TenantId};
use object_store::path::Path;
use queue::parcel::ArchivedBody;
use queue::{Command, QueueEffect};

use crate::archive::Archive;
use crate::effects::EffectError;
use crate::node::{Inner, Node, Refusal};

/// Bodies that are read at the same time; each may have 16 MiB.
pub(crate) const BODY_READS_MAX: usize = 16;

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The archive cannot be read for now.
    #[error("the archive cannot be read: {0}")]
    Unavailable(String),
    /// What is there is not what was put there, or nothing is.
    #[error("{0}")]
    Lost(String),
}

fn object(tenant: TenantId, body: &ArchivedBody) -> Path {
    let mut digest = String::with_capacity(64);
    for byte in body.sha256 {
        write!(digest, "{byte:02x}").expect("a string takes everything");
    }
    let ArchivedBody { shard, number, .. } = body;
    let folder = &digest[..2];
    Path::from(format!("bodies/{tenant}/{folder}/{digest}-{shard:04x}-{number:016x}"))
}

/// Does what queues ask for.
pub(crate) async fn execute(
    node: &Arc<Inner>,
    shard: ShardId,
    effect: &Effect,
) -> Result<(), EffectError> {
    let QueueEffect::DeleteBody(body) = QueueEffect::decode(&effect.payload)?;
    node.archive.delete(&object(effect.tenant, &body)).await?;
    let command = Command::BodyDeleted { effect: effect.number }.encode();
    let (machine, tenant) = (queue::MACHINE, effect.tenant);
    node.submit_to(shard, Envelope { machine, tenant, idempotency: None, command }).await?;
    Ok(())
}

impl Node {
    /// Puts a body where it was reserved. It is durable when this resolves.
    ///
    /// # Errors
    /// [`Refusal::ArchiveWrite`].
    pub async fn put_body(
        &self,
        tenant: TenantId,
        body: &ArchivedBody,
        bytes: Bytes,
    ) -> Result<(), Refusal> {
        let put = self.inner.archive.put(&object(tenant, body), bytes.into()).await;
        put.map_err(|error| Refusal::ArchiveWrite { what: error.to_string() })
    }

    /// Reads a body, as many bytes as it was put with.
    ///
    /// # Errors
    /// See [`BodyError`].
    pub async fn body(&self, tenant: TenantId, body: &ArchivedBody) -> Result<Bytes, BodyError> {
        let permit = Arc::clone(&self.inner.body_reads).acquire_owned().await;
        let permit = permit.expect("it is never closed");
        let (archive, body) = (self.inner.archive.clone(), *body);
        // A read of a file cannot be taken back: it goes on when whoever waited for it has gone, and
        // so does its permit, or a slow archive and clients that give up would fill the machine.
        let read = tokio::spawn(async move {
            let read = read_body(&archive, tenant, &body).await;
            drop(permit);
            read
        });
        let ended = read.await;
        ended.unwrap_or_else(|error| Err(BodyError::Unavailable(error.to_string())))
    }

    /// Deletes a body of which it is known that no queue holds it, as far as that can be done.
    pub async fn drop_body(&self, tenant: TenantId, body: &ArchivedBody) {
        let path = object(tenant, body);
        if let Err(error) = self.inner.archive.delete(&path).await {
            tracing::warn!(%error, %path, "a body that nobody has stays in the archive");
        }
    }
}

async fn read_body(
    archive: &Archive,
    tenant: TenantId,
    body: &ArchivedBody,
) -> Result<Bytes, BodyError> {
    let path = object(tenant, body);
    let failed = |error: object_store::Error| match error {
        object_store::Error::NotFound { .. } => {
            BodyError::Lost(format!("{path} is not in the archive"))
        }
        error => BodyError::Unavailable(error.to_string()),
    };
    let found = archive.get(&path).await.map_err(failed)?;
    // Before it is in memory: what was put there was bounded, and this may be anything.
    let size = found.meta.size;
    if size != body.bytes {
        let what = format!("{path} has {size} bytes, and had {}", body.bytes);
        return Err(BodyError::Lost(what));
    }
    found.bytes().await.map_err(failed)
}
