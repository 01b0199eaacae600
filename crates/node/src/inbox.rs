//! The bounded way into a shard, fair by tenant.
//!
//! Each tenant has a line of its own, and the shard takes one from each in turn. A tenant may
//! have as many waiting as there is room left: one that floods gets half of the inbox, two get a
//! third each, and whoever comes next still finds room. A push never waits; it is taken or
//! refused at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use kernel::TenantId;
use kernel::limits::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX};
use parking_lot::{Condvar, Mutex};
use shard::Request;

/// Requests waiting in one shard, of all tenants.
pub(crate) const INBOX_REQUESTS_MAX: usize = 32 * 1024;
/// Bytes of requests waiting in one shard.
const INBOX_BYTES_MAX: usize = 128 << 20;
/// The entry's own header and the envelopes' leave this much for commands.
const BATCH_BYTES_MAX: usize = ENTRY_BYTES_MAX - 4096;

/// Why a push was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// There is no room for this tenant now.
    Full,
    /// The shard takes no more.
    Closed,
}

/// What the shard's thread finds in its inbox besides requests.
#[derive(Debug)]
pub(crate) enum Note<N> {
    /// From the log.
    Log(journal::Event),
    /// From the node's own threads.
    Node(N),
}

struct State<T, N> {
    lines: BTreeMap<TenantId, VecDeque<Request<T>>>,
    /// Tenants with a line, in the order of their turns.
    turns: VecDeque<TenantId>,
    len: usize,
    bytes: usize,
    notes: VecDeque<Note<N>>,
    closed: bool,
    /// The shard's thread sleeps, and must be woken.
    asleep: bool,
    /// While asleep: requests are reason to wake up, too.
    wants_requests: bool,
}

/// See the module.
pub(crate) struct Inbox<T, N> {
    state: Mutex<State<T, N>>,
    wake: Condvar,
}

impl<T, N> Inbox<T, N> {
    pub(crate) fn new() -> Inbox<T, N> {
        let state = State {
            lines: BTreeMap::new(),
            turns: VecDeque::new(),
            len: 0,
            bytes: 0,
            notes: VecDeque::new(),
            closed: false,
            asleep: false,
            wants_requests: false,
        };
        Inbox { state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Puts a request at the end of its tenant's line.
    pub(crate) fn push(&self, request: Request<T>) -> Result<(), (PushError, Request<T>)> {
        let mut state = self.state.lock();
        if state.closed {
            return Err((PushError::Closed, request));
        }
        let tenant = request.envelope.tenant;
        let size = request.envelope.encoded_len();
        let room = INBOX_REQUESTS_MAX - state.len;
        let waiting = state.lines.get(&tenant).map_or(0, VecDeque::len);
        // The system's own commands (mail, reports of executors) are bounded by who sends them
        // and must not starve behind the crowd.
        let exempt = tenant == TenantId::SYSTEM;
        if !exempt && (waiting >= room || state.bytes + size > INBOX_BYTES_MAX) {
            return Err((PushError::Full, request));
        }
        if waiting == 0 {
            state.turns.push_back(tenant);
        }
        state.lines.entry(tenant).or_default().push_back(request);
        state.len += 1;
        state.bytes += size;
        let wake = state.asleep && state.wants_requests;
        if wake {
            state.asleep = false;
        }
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Leaves a note. Notes are never refused: there is at most one for each thing under way.
    pub(crate) fn note(&self, note: Note<N>) {
        let mut state = self.state.lock();
        state.notes.push_back(note);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Takes no more requests. Those inside are still served.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.asleep = false;
        drop(state);
        self.wake.notify_one();
    }

    /// Waits until there is a note, or a request if those are wanted, or `timeout` has passed;
    /// then takes all notes.
    pub(crate) fn wait(&self, wants_requests: bool, timeout: Duration) -> VecDeque<Note<N>> {
        let mut state = self.state.lock();
        let deadline = Instant::now() + timeout;
        loop {
            let ready = !state.notes.is_empty() || (wants_requests && state.len > 0);
            if ready || Instant::now() >= deadline || (state.closed && state.len == 0) {
                return std::mem::take(&mut state.notes);
            }
            state.asleep = true;
            state.wants_requests = wants_requests;
            self.wake.wait_until(&mut state, deadline);
            state.asleep = false;
        }
    }

    /// Takes requests for one entry, one from each tenant in turn.
    pub(crate) fn take(&self) -> Vec<Request<T>> {
        let mut state = self.state.lock();
        let mut batch = Vec::with_capacity(state.len.min(ENTRY_COMMANDS_MAX));
        let mut bytes = 0;
        while batch.len() < ENTRY_COMMANDS_MAX {
            let Some(tenant) = state.turns.pop_front() else { break };
            let line = state.lines.get_mut(&tenant).expect("a tenant with a turn has a line");
            let size = line.front().expect("and is not empty").envelope.encoded_len();
            if bytes + size > BATCH_BYTES_MAX && !batch.is_empty() {
                state.turns.push_front(tenant);
                break;
            }
            batch.push(line.pop_front().expect("as above"));
            if line.is_empty() {
                state.lines.remove(&tenant);
            } else {
                state.turns.push_back(tenant);
            }
            bytes += size;
            state.len -= 1;
            state.bytes -= size;
        }
        batch
    }

    /// Puts requests back to the front, in their order: the log had no room for them yet.
    pub(crate) fn put_back(&self, requests: Vec<Request<T>>) {
        let mut state = self.state.lock();
        for request in requests.into_iter().rev() {
            let tenant = request.envelope.tenant;
            state.len += 1;
            state.bytes += request.envelope.encoded_len();
            let line = state.lines.entry(tenant).or_default();
            let was_empty = line.is_empty();
            line.push_front(request);
            if was_empty {
                state.turns.push_front(tenant);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().len
    }

    pub(crate) fn is_closed_and_empty(&self) -> bool {
        let state = self.state.lock();
        state.closed && state.len == 0
    }
}
