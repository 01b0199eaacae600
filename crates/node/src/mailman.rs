//! Carries letters between shards; see `kernel::mail` for why each arrives once and in order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kernel::codec::Reader;
use kernel::machine::KERNEL;
use kernel::mail::{MailCommand, uncollected};
use kernel::{Envelope, ShardId, TenantId};

use crate::node::{Inner, Refusal};

/// Letters on the way between two shards at a time.
const LETTERS_MAX: usize = 256;
/// After a shard refused a letter.
const RETRY: Duration = Duration::from_millis(200);

fn envelope(command: &MailCommand) -> Envelope {
    let command = command.encode();
    Envelope { machine: KERNEL, tenant: TenantId::SYSTEM, idempotency: None, command }
}

/// Carries everything from one shard to another, for ever.
pub(crate) async fn carry(node: Arc<Inner>, from: ShardId, to: ShardId) {
    let slot = usize::from(from.0) * usize::from(node.shard_count()) + usize::from(to.0);
    loop {
        match deliver_some(&node, from, to).await {
            Ok(0) => node.boards.mail[slot].notified().await,
            Ok(_) => {}
            Err(refusal) => {
                tracing::debug!(%refusal, %from, %to, "mail is put off");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Delivers the letters that wait, and tells the sender. Returns how many there were.
async fn deliver_some(node: &Arc<Inner>, from: ShardId, to: ShardId) -> Result<usize, Refusal> {
    let reader = node.reader(from);
    let letters = tokio::task::spawn_blocking(move || uncollected(&reader, to, LETTERS_MAX))
        .await
        .map_err(|error| Refusal::Stopped { why: error.to_string() })?;
    if letters.is_empty() {
        return Ok(0);
    }
    let count = letters.len();
    // Pushed in order into one lane of one inbox, so they are applied in order.
    let deliveries: Vec<_> = letters
        .into_iter()
        .map(|(number, letter)| {
            node.submit_to(to, envelope(&MailCommand::Deliver { from, number, letter }))
        })
        .collect();
    let mut through = 0;
    for reply in join_all(deliveries).await {
        through = through.max(Reader::new(reply?).u64().expect("mail answers with a number"));
    }
    node.submit_to(from, envelope(&MailCommand::Collected { to, through })).await?;
    Ok(count)
}
