//! Messages whose bodies are too large for a queue to hold itself.
//!
//! ```text
//!   send      reserve ─▶ put into the archive ─▶ send where it lies
//!   receive   take room ─▶ lease ─▶ read from the archive, look whether it is the same ─▶ answer
//!                                          ├── cannot be read ─▶ give back, as if not received
//!                                          └── the client hangs up ─▶ give back all of them
//! ```
//!
//! A crash on the way in leaves a reservation, which ends by itself and takes the object with it.

#[cfg(test)]
mod tests;
mod unseen;

use bytes::Bytes;
use kernel::{IdempotencyKey, TenantId};
use node::{BodyError, Refusal};
use queue::parcel::{ArchivedBody, Parcel};
use queue::{
    BODY_BYTES_MAX, Command, Definition, Delivery, LARGE_BODY_BYTES_MAX, Looked, NewMessage,
    Release, Reply, ReserveBody, Settings, message_bytes,
};
use sha2::{Digest, Sha256};

use self::unseen::Unseen;
use super::service::{self, Leased};
use crate::app::Edge;
use crate::problem::Problem;
use crate::room::Taken;
use crate::telemetry::metrics::body_lost;

/// Bytes of a request with one large body: it may be escaped.
pub(crate) const REQUEST_BYTES_MAX: usize = 32 << 20;

/// How long a message rests that was leased and could not be handed out.
const GIVEN_BACK_MS: u64 = 1000;

/// A message to be sent, and what of it goes to the archive.
#[derive(Clone)]
pub(crate) struct Outgoing {
    /// As the queue takes it, but that it does not know yet where a large body lies.
    pub(crate) message: NewMessage,
    large: Option<Large>,
}

/// A body, and the parcel it was taken out of.
#[derive(Clone)]
struct Large {
    parcel: Parcel,
    body: Bytes,
}

/// Of a body that lies nowhere yet. As long as any other: how a batch is cut into commands must not
/// depend on it.
const NOWHERE: ArchivedBody = ArchivedBody { shard: 0, number: 0, sha256: [0; 32], bytes: 0 };

/// Why a parcel cannot be sent.
pub(crate) enum TooLarge {
    /// It has more than its queue takes.
    Whole,
    /// Its attributes have: they stay in the queue in any case.
    Attributes,
    /// It counts so many bytes, which is more than all that may be in the queue.
    ForQueue(u64),
}

impl Outgoing {
    /// A parcel on its way to a queue with these settings.
    pub(crate) fn new(parcel: Parcel, settings: &Settings) -> Result<Outgoing, TooLarge> {
        let outgoing = Outgoing::within(parcel, settings.max_body_bytes)?;
        let bytes = outgoing.bytes();
        match settings.max_bytes {
            // To wait until the queue is empty would not help.
            Some(max) if bytes > max => Err(TooLarge::ForQueue(bytes)),
            _ => Ok(outgoing),
        }
    }

    fn within(parcel: Parcel, bytes_max: u64) -> Result<Outgoing, TooLarge> {
        let counted = parcel.counted_bytes() as u64;
        if counted > bytes_max {
            return Err(TooLarge::Whole);
        }
        if counted <= BODY_BYTES_MAX {
            return Ok(Outgoing { message: bare(parcel.encode()), large: None });
        }
        if counted - parcel.body.bytes().len() as u64 > BODY_BYTES_MAX {
            return Err(TooLarge::Attributes);
        }
        let mut parcel = parcel;
        let body = parcel.body.take();
        let message = bare(parcel.encode_archived(&NOWHERE));
        Ok(Outgoing { message, large: Some(Large { parcel, body }) })
    }

    /// What it will count in its queue.
    fn bytes(&self) -> u64 {
        let archived = self.large.as_ref().map_or(0, |large| large.body.len() as u64);
        message_bytes(&self.message.parcel) + archived
    }

    pub(crate) fn is_large(&self) -> bool {
        self.large.is_some()
    }
}

fn bare(parcel: Bytes) -> NewMessage {
    NewMessage { delay_ms: None, priority: 0, group: None, dedup: None, parcel }
}

/// What could not be put into the archive.
pub(crate) enum NotStored {
    /// The machine refuses.
    Refused(queue::Refusal),
    /// The node does.
    Failed(Refusal),
}

impl From<Refusal> for NotStored {
    fn from(refusal: Refusal) -> NotStored {
        NotStored::Failed(refusal)
    }
}

/// Puts the large bodies of one command into the archive. What was answered before under this key
/// is answered again, and needs none.
pub(crate) async fn store(
    edge: &Edge,
    tenant: TenantId,
    queue: &str,
    key: Option<IdempotencyKey>,
    messages: Vec<Outgoing>,
) -> Result<Vec<NewMessage>, NotStored> {
    let any = messages.iter().any(Outgoing::is_large);
    if !any || edge.node.is_answered(queue::place(tenant, queue), key).await? {
        return Ok(messages.into_iter().map(|outgoing| outgoing.message).collect());
    }
    let mut stored = Vec::with_capacity(messages.len());
    for Outgoing { mut message, large } in messages {
        if let Some(Large { parcel, body }) = large {
            let at = store_one(edge, tenant, queue, body).await?;
            message.parcel = parcel.encode_archived(&at);
        }
        stored.push(message);
    }
    Ok(stored)
}

async fn store_one(
    edge: &Edge,
    tenant: TenantId,
    queue: &str,
    body: Bytes,
) -> Result<ArchivedBody, NotStored> {
    let bytes = body.clone();
    let sha256 = edge.node.read(move || Sha256::digest(&bytes).into()).await?;
    let reserve = ReserveBody { queue: queue.to_owned(), sha256, bytes: body.len() as u64 };
    let command = Command::ReserveBody(reserve);
    let at = match service::submit(edge, tenant, queue, None, &command).await? {
        Reply::BodyReserved(at) => at,
        Reply::Refused(refusal) => return Err(NotStored::Refused(refusal)),
        other => unreachable!("a ReserveBody is answered with {other:?}"),
    };
    let put = edge.node.put_body(tenant, &at, body);
    // Long before the reservation ends: what is put afterwards would stay for ever.
    match tokio::time::timeout(edge.limits.body_timeout, put).await {
        Ok(put) => put?,
        Err(_late) => {
            let what = "it takes too long".to_owned();
            return Err(Refusal::ArchiveWrite { what }.into());
        }
    }
    Ok(at)
}

/// A message was not taken because its reservation had ended: nobody else deletes what was put
/// into the archive meanwhile.
pub(crate) async fn give_up(edge: &Edge, tenant: TenantId, parcel: &[u8]) {
    if let Some(at) = ArchivedBody::of(parcel).filter(|at| *at != NOWHERE) {
        edge.node.drop_body(tenant, &at).await;
    }
}

/// Something with a parcel.
pub(crate) trait Parcelled {
    /// As a queue holds it.
    fn parcel(&self) -> &[u8];
    /// What it is called in logs.
    fn id(&self) -> queue::MessageId;
    /// Its place in its queue.
    fn sequence(&self) -> u64;
}

impl Parcelled for Delivery {
    fn parcel(&self) -> &[u8] {
        &self.parcel
    }

    fn id(&self) -> queue::MessageId {
        self.id
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Parcelled for Looked {
    fn parcel(&self) -> &[u8] {
        &self.peeked.parcel
    }

    fn id(&self) -> queue::MessageId {
        self.peeked.id
    }

    fn sequence(&self) -> u64 {
        self.peeked.sequence
    }
}

/// Messages with what is in them, wherever it lay.
pub(crate) struct Whole<T> {
    pub(crate) messages: Vec<(T, Parcel)>,
    /// To be held until the answer is gone.
    pub(crate) room: Option<Taken>,
}

/// Messages whose parcels were opened, and those whose parcels could not be.
struct Opened<T> {
    messages: Vec<(T, Parcel)>,
    /// Their bodies are not lost, as far as anybody knows: the archive cannot be read.
    unavailable: Vec<T>,
    why: Option<String>,
    /// What lies in the archive is not what was put there, or nothing does.
    lost: Vec<T>,
}

impl<T> Opened<T> {
    fn new(messages: usize) -> Opened<T> {
        let messages = Vec::with_capacity(messages);
        Opened { messages, unavailable: Vec::new(), why: None, lost: Vec::new() }
    }

    /// Some of them are better than none, and none is no answer when there are some.
    fn or_unavailable(self, room: Option<Taken>) -> Result<Whole<T>, Problem> {
        // Made even when nobody gets it: that tells of it in the log.
        let unavailable = self.why.map(|what| Problem::from(Refusal::Archive { what }));
        match unavailable {
            Some(problem) if self.messages.is_empty() => Err(problem),
            _ => Ok(Whole { messages: self.messages, room }),
        }
    }
}

/// A queue that has messages.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) name: &'a str,
    pub(crate) definition: &'a Definition,
}

/// Room for the large bodies of one receive, whichever messages it gets: a few small ones, or one of
/// any size. A queue that takes none may have some: of before, or as dead letters.
pub(crate) async fn room_to_receive(
    edge: &Edge,
    source: Source<'_>,
) -> Result<Option<Taken>, Problem> {
    let Source { tenant, name, definition } = source;
    let may_come = definition.settings.large_bodies
        || service::counts(edge, tenant, name, definition.number).await?.archived > 0;
    if !may_come {
        return Ok(None);
    }
    let bytes = usize::try_from(LARGE_BODY_BYTES_MAX).expect("a few megabytes");
    edge.large.wait(&edge.limits, tenant, bytes).await.map(Some)
}

/// What of it these messages need.
pub(crate) fn room_needed<T: Parcelled>(mut room: Taken, messages: &[T]) -> Option<Taken> {
    let bytes = large_bytes(messages);
    room.shrink(bytes);
    (bytes > 0).then_some(room)
}

/// Bytes of messages that lie in the archive.
fn large_bytes<T: Parcelled>(messages: &[T]) -> usize {
    let bodies = messages.iter().filter_map(|message| ArchivedBody::of(message.parcel()));
    usize::try_from(bodies.map(|body| body.bytes).sum::<u64>()).unwrap_or(usize::MAX)
}

/// Opens the parcels of messages that were looked at, when there is room for them.
pub(crate) async fn whole(
    edge: &Edge,
    source: Source<'_>,
    messages: Vec<Looked>,
) -> Result<Whole<Looked>, Problem> {
    let room = room_for(edge, source.tenant, large_bytes(&messages), None).await?;
    open(edge, source, messages).await.or_unavailable(room)
}

/// Opens the parcels of messages that were leased, in room that was taken for them, or else waits for
/// some. What cannot be handed out for now is given back, and nobody has received it. So is everything
/// when this is dropped, because the client has gone.
pub(crate) async fn handed_out(
    edge: &Edge,
    source: Source<'_>,
    leased: Leased,
) -> Result<Whole<Delivery>, Problem> {
    let Leased { deliveries: messages, room, again } = leased;
    let bytes = large_bytes(&messages);
    // Without large bodies nothing is waited for. And an attempt that comes again gets what it has.
    let watched: &[Delivery] = if bytes == 0 || again { &[] } else { &messages };
    let mut unseen = Unseen::new(edge, source, watched);
    let room = match room_for(edge, source.tenant, bytes, room).await {
        Ok(room) => room,
        Err(problem) => {
            unseen.leave_out(&messages);
            give_back(edge, source, &messages).await;
            return Err(problem);
        }
    };
    let mut opened = open(edge, source, messages).await;
    // What is behind one of its group goes back, or it would overtake it.
    let overtakes = |message: &Delivery, before: &Delivery| {
        message.group.is_some()
            && message.group == before.group
            && message.sequence > before.sequence
    };
    let behind = opened.messages.extract_if(.., |(message, _)| {
        let mut left_out = opened.unavailable.iter().chain(&opened.lost);
        left_out.any(|before| overtakes(message, before))
    });
    let behind: Vec<Delivery> = behind.map(|(message, _)| message).collect();
    opened.unavailable.extend(behind);
    unseen.leave_out(&opened.unavailable);
    unseen.leave_out(&opened.lost);
    give_back(edge, source, &opened.unavailable).await;
    unseen.seen();
    opened.or_unavailable(room)
}

/// Room for large bodies of so many bytes, if none was taken for them.
async fn room_for(
    edge: &Edge,
    tenant: TenantId,
    bytes: usize,
    room: Option<Taken>,
) -> Result<Option<Taken>, Problem> {
    match (room, bytes) {
        (None, 0) => Ok(None),
        (None, bytes) => edge.large.wait(&edge.limits, tenant, bytes).await.map(Some),
        (room, _) => Ok(room),
    }
}

/// Gives back messages that were leased and not handed out: they have not been received. After a
/// moment, or whoever waits would come for them again and again.
async fn give_back(edge: &Edge, source: Source<'_>, messages: &[Delivery]) {
    if messages.is_empty() {
        return;
    }
    let receipts = messages.iter().map(|message| message.receipt).collect();
    let release = Release { queue: source.name.to_owned(), receipts, delay_ms: GIVEN_BACK_MS };
    let command = Command::Release(release);
    if let Err(error) = service::submit(edge, source.tenant, source.name, None, &command).await {
        // Others are handed out all the same, and the leases of these end by themselves.
        tracing::warn!(%error, "messages that were not handed out count as received");
    }
}

/// Opens the parcels of messages. One whose body is not what was sent is told of in the log: its lease
/// ends, and in the end it is a dead letter. One that is gone meanwhile, and its body with it, is
/// nothing to tell of.
async fn open<T: Parcelled>(edge: &Edge, source: Source<'_>, messages: Vec<T>) -> Opened<T> {
    let mut opened = Opened::new(messages.len());
    for message in messages {
        let mut parcel = Parcel::decode(message.parcel());
        let Some(at) = ArchivedBody::of(message.parcel()) else {
            opened.messages.push((message, parcel));
            continue;
        };
        let error = match fill(edge, source.tenant, at, &mut parcel).await {
            Ok(()) => {
                opened.messages.push((message, parcel));
                continue;
            }
            Err(BodyError::Lost(what)) => match is_held(edge, source, message.sequence()).await {
                Ok(true) => BodyError::Lost(what),
                Ok(false) => continue,
                Err(refusal) => BodyError::Unavailable(refusal.to_string()),
            },
            Err(error) => error,
        };
        match error {
            BodyError::Lost(_) => {
                let message_id = super::message_id(message.id());
                tracing::error!(%error, message_id, "a large body is not handed out");
                body_lost();
                opened.lost.push(message);
            }
            BodyError::Unavailable(what) => {
                opened.why = Some(what);
                opened.unavailable.push(message);
            }
        }
    }
    opened
}

/// Whether a message that was there is there still.
async fn is_held(edge: &Edge, source: Source<'_>, sequence: u64) -> Result<bool, Refusal> {
    let (tenant, number) = (source.tenant, source.definition.number);
    let rows = edge.node.rows(queue::place(tenant, source.name));
    edge.node.read(move || queue::holds_body(&rows, tenant, number, sequence)).await
}

async fn fill(
    edge: &Edge,
    tenant: TenantId,
    at: ArchivedBody,
    parcel: &mut Parcel,
) -> Result<(), BodyError> {
    let late = |_| BodyError::Unavailable("it takes too long".to_owned());
    let read = edge.node.body(tenant, &at);
    let bytes = tokio::time::timeout(edge.limits.body_timeout, read).await.map_err(late)??;
    let check = move || {
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        (digest == at.sha256).then(|| Vec::from(bytes))
    };
    let stopped = |refusal: Refusal| BodyError::Unavailable(refusal.to_string());
    let bytes = edge.node.read(check).await.map_err(stopped)?;
    let filled = bytes.is_some_and(|bytes| parcel.body.fill(bytes));
    filled.then_some(()).ok_or_else(|| BodyError::Lost("its digest is another".to_owned()))
}
