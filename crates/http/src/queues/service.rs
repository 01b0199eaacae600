//! How the edge talks to queues: finding them, sending, waiting, settling.

use std::sync::Arc;
use std::time::Duration;

use kernel::{Envelope, IdempotencyKey, TenantId, VirtualShard};
use node::{Refusal, View};
use queue::{Command, Counts, Definition, Delivery, Receive, Reply, Send, SendRefusal, Sent};
use tokio::time::Instant;

use super::admission::admit;
use super::large::{self, NotStored, Outgoing, Source};
use crate::app::Edge;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::room::Taken;
use crate::telemetry::metrics::throttled;

/// Bytes of parcels in one command, at most: a larger batch is several commands.
pub(crate) const SEND_BYTES_MAX: usize = 768 << 10;

/// Does a command where the queue is.
pub(crate) async fn submit(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
    idempotency: Option<IdempotencyKey>,
    command: &Command,
) -> Result<Reply, Refusal> {
    submit_at(edge, queue::place(tenant, name), tenant, idempotency, command, 0).await
}

/// Does a command at a place, which makes about so many bytes of rows if they are many more than it
/// has itself.
pub(crate) async fn submit_at(
    edge: &Edge,
    at: VirtualShard,
    tenant: TenantId,
    idempotency: Option<IdempotencyKey>,
    command: &Command,
    weight: usize,
) -> Result<Reply, Refusal> {
    let measured = edge.meters.begin(command);
    let command = command.encode();
    let envelope = Envelope { machine: queue::MACHINE, tenant, idempotency, command };
    let reply = edge.node.submit_heavy(at, envelope, weight).await?;
    measured.end();
    Ok(Reply::decode(&reply).expect("queues answer with their replies"))
}

/// Has a command done whose answer nobody waits for: it is on its way when this returns.
pub(crate) fn submit_unheard(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
    command: &Command,
) -> Result<(), Refusal> {
    let (machine, command) = (queue::MACHINE, command.encode());
    let envelope = Envelope { machine, tenant, idempotency: None, command };
    edge.node.submit_unheard(queue::place(tenant, name), envelope)
}

async fn view(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
    key: Vec<u8>,
) -> Result<Option<Arc<View>>, Refusal> {
    edge.node.view_or_row(queue::place(tenant, name), key).await
}

/// What a queue is; `None` when there is none of this name.
pub(crate) async fn find(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
) -> Result<Option<Definition>, Refusal> {
    let view = view(edge, tenant, name, queue::definition_row(tenant, name)).await?;
    Ok(view.map(|view| queue::definition(&view.value)))
}

/// What a message takes in a command besides its parcel and its group.
const MESSAGE_BYTES: usize = 64;

/// Cuts messages into commands of so many bytes and so many messages at most. Where it cuts depends
/// on nothing but what was asked for: the same request again is cut the same.
pub(crate) fn parts(
    messages: Vec<(usize, Outgoing)>,
    bytes_max: usize,
    messages_max: usize,
) -> Vec<Vec<(usize, Outgoing)>> {
    let mut parts: Vec<Vec<(usize, Outgoing)>> = vec![Vec::new()];
    let mut bytes = 0;
    for (place, outgoing) in messages {
        let message = &outgoing.message;
        let group = message.group.as_ref().map_or(0, String::len);
        let size = message.parcel.len() + group + MESSAGE_BYTES;
        let part = parts.last_mut().expect("there is always one");
        if !part.is_empty() && (bytes + size > bytes_max || part.len() == messages_max) {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        parts.last_mut().expect("there is always one").push((place, outgoing));
    }
    parts
}

/// The key of a command that holds these messages of the request, and no others: which of them are
/// good may have changed when the request comes again.
pub(crate) fn content_of(key: IdempotencyKey, places: &[usize]) -> IdempotencyKey {
    let places: Vec<u8> = places.iter().flat_map(|place| place.to_be_bytes()).collect();
    IdempotencyKey { body: kernel::id::digest(&[&key.body, &places]), ..key }
}

/// Whether there is nothing to do for these messages: an entry in the log for none of them would be
/// one that nobody is charged for. Under a key that was used there is: to find out whether it was for
/// the same.
pub(crate) async fn is_idle(
    edge: &Edge,
    at: VirtualShard,
    idempotency: Option<IdempotencyKey>,
    messages: &[(usize, Outgoing)],
) -> Result<bool, Refusal> {
    Ok(messages.is_empty() && !edge.node.is_answered(at, idempotency).await?)
}

/// Why a message is not sent, or a batch of them.
#[derive(Clone, Debug)]
pub(crate) enum NotSent {
    /// The queue does not take it.
    NotTaken(SendRefusal),
    /// There is no queue to take it.
    Refused(queue::Refusal),
    /// It may not be sent, or cannot be for now.
    Failed(Problem),
}

impl From<Problem> for NotSent {
    fn from(problem: Problem) -> NotSent {
        NotSent::Failed(problem)
    }
}

impl From<Refusal> for NotSent {
    fn from(refusal: Refusal) -> NotSent {
        NotSent::Failed(refusal.into())
    }
}

impl From<NotStored> for NotSent {
    fn from(not_stored: NotStored) -> NotSent {
        match not_stored {
            NotStored::Refused(refusal) => NotSent::Refused(refusal),
            NotStored::Failed(refusal) => refusal.into(),
        }
    }
}

/// Sends a caller's messages, each with its place in the request, to a queue that may be sent so many in
/// a second. The outcomes are in their order.
///
/// # Errors
/// When none of them was sent.
pub(crate) async fn send(
    edge: &Edge,
    caller: &Caller,
    (name, per_second): (&str, Option<u32>),
    idempotency: Option<IdempotencyKey>,
    messages: Vec<(usize, Outgoing)>,
) -> Result<Vec<Result<Sent, NotSent>>, NotSent> {
    let at = queue::place(caller.tenant, name);
    let queue = per_second.map(|per_second| (name, per_second));
    let admitted = admit(edge, caller, at, queue, idempotency, messages.len()).await?;
    let sent = send_in_parts(edge, caller.tenant, name, idempotency, messages).await;
    admitted.settle(&sent, |why| matches!(why, NotSent::NotTaken(_)));
    sent
}

/// As [`send`], whoever sends, in as many commands as it takes. Nothing is sent before all large bodies
/// are in the archive.
pub(super) async fn send_in_parts(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
    idempotency: Option<IdempotencyKey>,
    messages: Vec<(usize, Outgoing)>,
) -> Result<Vec<Result<Sent, NotSent>>, NotSent> {
    if is_idle(edge, queue::place(tenant, name), idempotency, &messages).await? {
        return Ok(Vec::new());
    }
    let (mut stored, count) = (Vec::new(), messages.len());
    for (part, messages) in parts(messages, SEND_BYTES_MAX, usize::MAX).into_iter().enumerate() {
        let (places, messages): (Vec<usize>, Vec<_>) = messages.into_iter().unzip();
        let key = idempotency.map(|key| content_of(part_of(key, part), &places));
        stored.push((key, large::store(edge, tenant, name, key, messages).await?));
    }
    let send = |(key, messages)| async move {
        let command = Command::Send(Send { queue: name.to_owned(), messages });
        let sent = match submit(edge, tenant, name, key, &command).await? {
            Reply::Sent(sent) => sent,
            Reply::Refused(refusal) => return Err(NotSent::Refused(refusal)),
            other => unreachable!("a Send is answered with {other:?}"),
        };
        let Command::Send(Send { messages, .. }) = &command else { unreachable!("made above") };
        for (message, sent) in messages.iter().zip(&sent) {
            if *sent == Err(SendRefusal::NotReserved) {
                large::give_up(edge, tenant, &message.parcel).await;
            }
        }
        count_full(edge, tenant, &sent);
        Ok(sent.into_iter().map(|sent| sent.map_err(NotSent::NotTaken)).collect())
    };
    // The order of a batch is the order of its messages.
    part_by_part(stored, count, send).await
}

/// Does a part after the other, with outcomes for so many elements of all of them. What was done before is
/// not undone by a part that fails, and none is tried after it: it would only be more for a shard that is
/// busy or has stopped, and whoever asks comes again with the rest.
///
/// # Errors
/// When the first part fails: nothing was done.
pub(crate) async fn part_by_part<P, T, E: Clone, F>(
    parts: Vec<P>,
    count: usize,
    mut act: impl FnMut(P) -> F,
) -> Result<Vec<Result<T, E>>, E>
where
    F: Future<Output = Result<Vec<Result<T, E>>, E>>,
{
    let mut outcomes = Vec::with_capacity(count);
    for (part, elements) in parts.into_iter().enumerate() {
        match act(elements).await {
            Ok(done) => outcomes.extend(done),
            Err(error) if part == 0 => return Err(error),
            Err(error) => {
                outcomes.resize_with(count, || Err(error.clone()));
                break;
            }
        }
    }
    Ok(outcomes)
}

/// Messages that a bound of their queue has kept out.
fn count_full(edge: &Edge, tenant: TenantId, sent: &[Result<Sent, SendRefusal>]) {
    let bounds = [
        (SendRefusal::Messages, "maxMessages"),
        (SendRefusal::Bytes, "maxBytes"),
        (SendRefusal::Age, "maxAgeSeconds"),
    ];
    for (refusal, bound) in bounds {
        let count = sent.iter().filter(|sent| **sent == Err(refusal)).count();
        if count > 0 {
            throttled(&edge.auth.name_of(tenant), bound, count as u64);
        }
    }
}

/// The key of a part of a request: each is a command of its own.
pub(crate) fn part_of(whole: IdempotencyKey, part: usize) -> IdempotencyKey {
    if part == 0 {
        return whole;
    }
    let key = kernel::id::digest(&[&whole.key, &part.to_be_bytes()]);
    IdempotencyKey { key, ..whole }
}

/// Messages, or groups of them, that a receiver would get now.
async fn ready(edge: &Edge, tenant: TenantId, name: &str, line: &[u8]) -> Result<u64, Refusal> {
    let view = view(edge, tenant, name, line.to_vec()).await?;
    Ok(view.map_or(0, |view| queue::ready(line, &view.value)))
}

/// What is in a queue; nothing when there is no such queue any more.
pub(crate) async fn counts(
    edge: &Edge,
    tenant: TenantId,
    name: &str,
    number: u64,
) -> Result<Counts, Refusal> {
    let view = view(edge, tenant, name, queue::counts_row(tenant, number)).await?;
    Ok(view.map_or_else(Counts::default, |view| queue::counts(&view.value)))
}

/// Messages that were leased.
pub(crate) struct Leased {
    pub(crate) deliveries: Vec<Delivery>,
    /// For their large bodies.
    pub(crate) room: Option<Taken>,
    /// They are an attempt's: who comes again with its id gets them again, and may have done so
    /// already.
    pub(crate) again: bool,
}

impl Leased {
    pub(crate) fn nothing() -> Leased {
        Leased { deliveries: Vec::new(), room: None, again: false }
    }
}

/// Leases messages; when there are none, waits for some, behind those who came before. The same
/// `attempt` again gets what it got, in whichever of its tries that was: one that gets nothing is not
/// remembered.
pub(crate) async fn receive(
    edge: &Edge,
    caller: &Caller,
    definition: &Definition,
    receive: Receive,
    wait: Duration,
    attempt: Option<IdempotencyKey>,
) -> Result<Result<Leased, queue::Refusal>, Problem> {
    let tenant = caller.tenant;
    let name = receive.queue.clone();
    let at = queue::place(tenant, &name);
    let line = queue::counts_row(tenant, definition.number);
    let try_once = async |repeated: bool| {
        let mut receive = receive.clone();
        if !repeated {
            let left = caller.leases_left()?;
            receive.max = receive.max.min(u16::try_from(left).unwrap_or(u16::MAX));
        }
        // Before anything is leased: what is refused afterwards has been received all the same, and
        // would be a dead letter in the end that nobody has seen.
        let source = Source { tenant, name: &name, definition };
        let room = large::room_to_receive(edge, source).await?;
        match submit(edge, tenant, &name, attempt, &Command::Receive(receive)).await? {
            Reply::Received(deliveries) => {
                edge.meters.received(&deliveries, edge.node.now_ms());
                let room = room.and_then(|room| large::room_needed(room, &deliveries));
                Ok::<_, Problem>(Ok(Leased { deliveries, room, again: attempt.is_some() }))
            }
            Reply::Refused(refusal) => {
                if refusal == queue::Refusal::Inflight && wait.is_zero() {
                    throttled(caller.tenant_name(), "maxInflight", 1);
                }
                Ok(Err(refusal))
            }
            other => unreachable!("a Receive is answered with {other:?}"),
        }
    };
    // Who waits is not told that too many are in flight: there is something when there is room.
    let nothing = |tried: &Result<Leased, queue::Refusal>| match tried {
        Ok(leased) => leased.deliveries.is_empty(),
        Err(refusal) => *refusal == queue::Refusal::Inflight,
    };
    let others_wait = !wait.is_zero() && edge.node.has_line(at, &line);
    let repeated = edge.node.is_answered(at, attempt).await?;
    let counts = counts(edge, tenant, &name, definition.number).await?;
    // What cannot give anything is known without asking the shard.
    let to_others = others_wait || counts.full && !wait.is_zero();
    if repeated || !to_others && counts.ready() > 0 {
        let tried = try_once(repeated).await?;
        if !nothing(&tried) || wait.is_zero() {
            return Ok(tried);
        }
    }
    if wait.is_zero() {
        return Ok(Ok(Leased::nothing()));
    }
    let _counted = caller.wait(1)?;
    let deadline = Instant::now() + wait;
    let mut place = edge.node.wait_in_line(at, &line);
    let mut leaving = edge.leaving.subscribe();
    loop {
        // What came between the last look and joining the line called nobody.
        edge.node.call_line(at, &line, ready(edge, tenant, &name, &line).await?);
        tokio::select! {
            biased;
            () = place.called() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(Ok(Leased::nothing())),
            _gone = leaving.wait_for(|leaving| *leaving) => return Ok(Ok(Leased::nothing())),
        }
        let tried = try_once(false).await?;
        if !nothing(&tried) {
            return Ok(tried);
        }
        place.back_in_line();
    }
}
