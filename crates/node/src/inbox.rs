//! The bounded way into a shard, fair by tenant, and among what is one tenant's.
//!
//! Each tenant has lanes of its own, one for each place that it asks something of, which is a
//! queue, a user or a stream. The shard takes one request from each tenant in turn, and of a
//! tenant one from each lane in turn. A tenant may have as many waiting as there is room left, and
//! a lane as many as its tenant has left: one busy queue gets a third of the inbox, all queues of
//! one tenant a half, and whoever comes next still finds room. A push never waits; it is taken or
//! refused at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kernel::limits::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX};
use kernel::{TenantId, VirtualShard};
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

/// What waits of one tenant. It is not empty, and neither is a lane.
struct Line<T> {
    lanes: BTreeMap<VirtualShard, VecDeque<Request<T>>>,
    /// Lanes in the order of their turns.
    turns: VecDeque<VirtualShard>,
    len: usize,
    bytes: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { lanes: BTreeMap::new(), turns: VecDeque::new(), len: 0, bytes: 0 }
    }
}

impl<T> Line<T> {
    fn waiting_in(&self, lane: VirtualShard) -> usize {
        self.lanes.get(&lane).map_or(0, VecDeque::len)
    }

    fn push(&mut self, lane: VirtualShard, request: Request<T>, size: usize) {
        let requests = self.lanes.entry(lane).or_default();
        if requests.is_empty() {
            self.turns.push_back(lane);
        }
        requests.push_back(request);
        self.len += 1;
        self.bytes += size;
    }

    /// The request whose turn it is.
    fn next(&self) -> &Request<T> {
        let lane = self.turns.front().expect("a line is not empty");
        self.lanes[lane].front().expect("nor is a lane")
    }

    /// Takes the request whose turn it is.
    fn pop(&mut self) -> Request<T> {
        let lane = self.turns.pop_front().expect("a line is not empty");
        let requests = self.lanes.get_mut(&lane).expect("a turn has a lane");
        let request = requests.pop_front().expect("which is not empty");
        if requests.is_empty() {
            self.lanes.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
        self.len -= 1;
        self.bytes -= request.envelope.encoded_len();
        request
    }
}

struct State<T, N> {
    /// Those that the log had no room for: they go first.
    put_back: VecDeque<Request<T>>,
    lines: BTreeMap<TenantId, Line<T>>,
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

impl<T, N> State<T, N> {
    /// Takes the request whose turn it is, if there is one and it weighs no more than this, or must be
    /// taken whatever it weighs.
    fn next(&mut self, weight_max: usize, any_weight: bool) -> Option<Request<T>> {
        let fits = |request: &Request<T>| any_weight || request.weight <= weight_max;
        let request = if let Some(first) = self.put_back.front() {
            if !fits(first) {
                return None;
            }
            self.put_back.pop_front().expect("there is a first")
        } else {
            let tenant = *self.turns.front()?;
            let line = self.lines.get_mut(&tenant).expect("a tenant with a turn has a line");
            if !fits(line.next()) {
                return None;
            }
            let request = line.pop();
            self.turns.pop_front();
            if line.len == 0 {
                self.lines.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
            request
        };
        self.len -= 1;
        self.bytes -= request.envelope.encoded_len();
        Some(request)
    }
}

/// See the module.
pub(crate) struct Inbox<T, N> {
    /// The system's own lock: ours elsewhere yields before it sleeps, and on a machine whose
    /// processors are all busy a shard that yields waits for a whole slice of somebody else.
    state: Mutex<State<T, N>>,
    wake: Condvar,
}

impl<T, N> Inbox<T, N> {
    pub(crate) fn new() -> Inbox<T, N> {
        let state = State {
            put_back: VecDeque::new(),
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

    /// Whoever panicked with it has left nothing half done: nothing here can.
    fn lock(&self) -> MutexGuard<'_, State<T, N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request at the end of its lane. Somebody must wake the shard's thread for it.
    pub(crate) fn push(
        &self,
        lane: VirtualShard,
        request: Request<T>,
    ) -> Result<(), (PushError, Request<T>)> {
        let mut state = self.lock();
        if state.closed {
            return Err((PushError::Closed, request));
        }
        let tenant = request.envelope.tenant;
        let size = request.envelope.encoded_len();
        // What was put back, and the system's own, may have gone over the bounds.
        let room = INBOX_REQUESTS_MAX.saturating_sub(state.len);
        let room_bytes = INBOX_BYTES_MAX.saturating_sub(state.bytes);
        let (waiting, waiting_bytes, in_lane) = state
            .lines
            .get(&tenant)
            .map_or((0, 0, 0), |line| (line.len, line.bytes, line.waiting_in(lane)));
        // The system's own commands, which are mail, are bounded by who sends them and must not
        // starve behind the crowd.
        let exempt = tenant == TenantId::SYSTEM;
        let fits = in_lane < room.saturating_sub(waiting) && waiting_bytes + size <= room_bytes;
        if !exempt && !fits {
            return Err((PushError::Full, request));
        }
        if waiting == 0 {
            state.turns.push_back(tenant);
        }
        state.lines.entry(tenant).or_default().push(lane, request, size);
        state.len += 1;
        state.bytes += size;
        Ok(())
    }

    /// Wakes the shard's thread if it sleeps, wants requests, and there are some.
    pub(crate) fn wake_for_requests(&self) {
        let mut state = self.lock();
        let wake = state.asleep && state.wants_requests && state.len > 0;
        if wake {
            state.asleep = false;
        }
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Leaves a note. Notes are never refused: there is at most one for each thing under way.
    pub(crate) fn note(&self, note: Note<N>) {
        let mut state = self.lock();
        state.notes.push_back(note);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Takes no more requests. Those inside are still served.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.asleep = false;
        drop(state);
        self.wake.notify_one();
    }

    /// Waits until there is a note, or a request if those are wanted, or `timeout` has passed;
    /// then takes all notes.
    pub(crate) fn wait(&self, wants_requests: bool, timeout: Duration) -> VecDeque<Note<N>> {
        let mut state = self.lock();
        let deadline = Instant::now() + timeout;
        loop {
            let ready = !state.notes.is_empty() || (wants_requests && state.len > 0);
            let ended = wants_requests && state.closed && state.len == 0;
            if ready || ended || Instant::now() >= deadline {
                return std::mem::take(&mut state.notes);
            }
            state.asleep = true;
            state.wants_requests = wants_requests;
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = self.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.asleep = false;
        }
    }

    /// Takes requests for one entry: those that were put back, then one of each tenant in turn. They
    /// weigh so much at most, unless the first alone weighs more: what an entry makes is in memory at
    /// once, and everybody waits for all of it.
    pub(crate) fn take(&self, weight_max: usize) -> Vec<Request<T>> {
        let weight_max = weight_max.min(BATCH_BYTES_MAX);
        let mut state = self.lock();
        let mut batch = Vec::with_capacity(state.len.min(ENTRY_COMMANDS_MAX));
        let mut weight = 0;
        while batch.len() < ENTRY_COMMANDS_MAX {
            let Some(request) = state.next(weight_max.saturating_sub(weight), batch.is_empty())
            else {
                break;
            };
            weight += request.weight;
            batch.push(request);
        }
        batch
    }

    /// Puts requests back to the front, in their order: the log had no room for them yet.
    pub(crate) fn put_back(&self, requests: Vec<Request<T>>) {
        let mut state = self.lock();
        for request in requests.into_iter().rev() {
            state.len += 1;
            state.bytes += request.envelope.encoded_len();
            state.put_back.push_front(request);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len
    }

    pub(crate) fn is_closed_and_empty(&self) -> bool {
        let state = self.lock();
        state.closed && state.len == 0
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kernel::{Envelope, MachineId};

    use super::*;

    fn request(tenant: u32, ticket: u32) -> Request<u32> {
        let envelope = Envelope {
            machine: MachineId(3),
            tenant: TenantId(tenant),
            idempotency: None,
            command: Bytes::from_static(b"command"),
        };
        Request::new(envelope, ticket)
    }

    fn inbox() -> Inbox<u32, ()> {
        Inbox::new()
    }

    const LANE: VirtualShard = VirtualShard(0);

    fn push_until_full(inbox: &Inbox<u32, ()>, tenant: u32) -> usize {
        // As many queues as a tenant's requests may be for.
        let lane = |n: u32| VirtualShard(u16::try_from(n % 4096).expect("4095 fits"));
        (0..).take_while(|n| inbox.push(lane(*n), request(tenant, *n)).is_ok()).count()
    }

    fn push_to_lane_until_full(inbox: &Inbox<u32, ()>, tenant: u32, lane: u16) -> usize {
        let lane = VirtualShard(lane);
        (0..).take_while(|n| inbox.push(lane, request(tenant, *n)).is_ok()).count()
    }

    fn taken(inbox: &Inbox<u32, ()>) -> Vec<(u32, u32)> {
        let batch = inbox.take(usize::MAX);
        batch.into_iter().map(|r| (r.envelope.tenant.0, r.ticket)).collect()
    }

    #[test]
    fn tenants_take_turns_and_each_keeps_its_order() {
        let inbox = inbox();
        for (tenant, ticket) in [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1)] {
            inbox.push(LANE, request(tenant, ticket)).expect("there is room");
        }
        assert_eq!(taken(&inbox), [(1, 0), (2, 0), (3, 0), (1, 1), (3, 1), (1, 2)]);
        assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn flood_of_one_tenant_leaves_room_for_the_next() {
        let inbox = inbox();
        let first = push_until_full(&inbox, 1);
        assert!((INBOX_REQUESTS_MAX / 2 - 8..=INBOX_REQUESTS_MAX / 2).contains(&first), "{first}");
        let second = push_until_full(&inbox, 2);
        assert!((INBOX_REQUESTS_MAX / 5..INBOX_REQUESTS_MAX / 3).contains(&second), "{second}");
        assert!(push_until_full(&inbox, 3) > 0, "a third finds room");
    }

    #[test]
    fn flood_of_one_tenant_delays_another_by_its_share_only() {
        let inbox = inbox();
        push_until_full(&inbox, 1);
        inbox.push(LANE, request(2, 7)).expect("there is room");
        assert!(taken(&inbox).iter().position(|r| *r == (2, 7)).is_some_and(|at| at <= 1));
    }

    #[test]
    fn lanes_of_a_tenant_take_turns_and_do_not_add_to_its_own() {
        let inbox = inbox();
        for (tenant, lane, ticket) in
            [(1, 7, 0), (1, 7, 1), (1, 8, 2), (1, 7, 3), (2, 7, 4), (2, 7, 5)]
        {
            inbox.push(VirtualShard(lane), request(tenant, ticket)).expect("there is room");
        }
        assert_eq!(taken(&inbox), [(1, 0), (2, 4), (1, 2), (2, 5), (1, 1), (1, 3)]);
    }

    #[test]
    fn flood_of_one_lane_leaves_room_for_the_next_and_delays_it_by_one() {
        let inbox = inbox();
        let first = push_to_lane_until_full(&inbox, 1, 7);
        assert!(first.abs_diff(INBOX_REQUESTS_MAX / 3) <= 1, "{first}");
        assert!(push_to_lane_until_full(&inbox, 1, 8) > 1000, "a second lane finds room");
        inbox.push(VirtualShard(9), request(1, 777_777)).expect("and a third");
        assert_eq!(taken(&inbox)[2], (1, 777_777));
    }

    #[test]
    fn system_commands_are_not_refused_by_a_crowd() {
        let inbox = inbox();
        for tenant in 1..40_000 {
            push_until_full(&inbox, tenant);
        }
        assert_eq!(inbox.len(), INBOX_REQUESTS_MAX, "there is no room for anybody");
        inbox.push(LANE, request(0, 1)).expect("the system always finds room");
    }

    #[test]
    fn bound_holds_when_requests_were_put_back_over_it() {
        let inbox = inbox();
        let flood = || -> usize { (1..=12).map(|tenant| push_until_full(&inbox, tenant)).sum() };
        assert!(flood() > 0);
        let batch = inbox.take(usize::MAX);
        assert!(flood() > 0);
        inbox.put_back(batch);
        assert!(inbox.len() > INBOX_REQUESTS_MAX);
        assert_eq!(inbox.push(LANE, request(1, 0)).err().map(|(e, _)| e), Some(PushError::Full));
    }

    #[test]
    fn large_requests_of_one_tenant_leave_room_for_another() {
        let inbox = inbox();
        let large = |tenant| {
            let mut request = request(tenant, 0);
            request.envelope.command = Bytes::from(vec![0; 1 << 20]);
            request
        };
        while inbox.push(LANE, large(1)).is_ok() {}
        inbox.push(LANE, large(2)).expect("half of the bytes are left");
    }

    #[test]
    fn a_bound_in_bytes_leaves_each_tenant_its_turn() {
        let inbox = inbox();
        for (tenant, ticket) in [(1, 0), (1, 1), (1, 2), (2, 0)] {
            inbox.push(LANE, request(tenant, ticket)).expect("there is room");
        }
        let size = request(1, 0).envelope.encoded_len();
        let take = |bytes: usize| -> Vec<_> {
            inbox.take(bytes).into_iter().map(|r| (r.envelope.tenant.0, r.ticket)).collect()
        };
        assert_eq!(take(2 * size), [(1, 0), (2, 0)]);
        assert_eq!(take(1), [(1, 1)], "there is always one");
        assert_eq!(take(2 * size), [(1, 2)]);
    }

    #[test]
    fn what_makes_many_rows_fills_an_entry_by_what_it_makes() {
        let inbox = inbox();
        for ticket in 0..3 {
            let heavy = request(1, ticket).weighing(BATCH_BYTES_MAX / 2 - 100);
            inbox.push(LANE, heavy).expect("there is room");
        }
        inbox.push(LANE, request(1, 3).weighing(usize::MAX)).expect("there is room");
        inbox.push(LANE, request(1, 4)).expect("there is room");
        assert_eq!(taken(&inbox), [(1, 0), (1, 1)]);
        assert_eq!(taken(&inbox), [(1, 2)]);
        assert_eq!(taken(&inbox), [(1, 3)], "there is always one");
        assert_eq!(taken(&inbox), [(1, 4)]);
        assert_eq!(inbox.lock().bytes, 0);
    }

    /// Longer than anything takes on a slow machine.
    const HANG: Duration = Duration::from_secs(60);

    /// Waits on a thread, has `wake` wake it once it sleeps, and gives the notes that it found.
    fn woken(wants_requests: bool, wake: impl FnOnce(&Inbox<u32, u8>)) -> usize {
        let inbox = &Inbox::<u32, u8>::new();
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let notes = inbox.wait(wants_requests, HANG * 60);
                tell.send(notes.len()).expect("it is waited for");
            });
            while !inbox.lock().asleep {
                std::thread::yield_now();
            }
            wake(inbox);
            let notes = told.recv_timeout(HANG);
            // Whatever came of it, the thread must end.
            inbox.note(Note::Node(0));
            notes.expect("it is woken")
        })
    }

    #[test]
    fn whoever_sleeps_is_woken_by_what_it_waits_for() {
        let push = |inbox: &Inbox<u32, u8>| {
            inbox.push(LANE, request(1, 0)).expect("there is room");
            inbox.wake_for_requests();
        };
        assert_eq!(woken(true, push), 0);
        assert_eq!(woken(true, |inbox| inbox.note(Note::Node(7))), 1);
        assert_eq!(woken(false, |inbox| inbox.note(Note::Node(7))), 1);
        assert_eq!(woken(true, Inbox::close), 0);
    }

    #[test]
    fn whoever_wants_no_requests_sleeps_on_when_one_comes() {
        let notes = woken(false, |inbox| {
            inbox.push(LANE, request(1, 0)).expect("there is room");
            inbox.wake_for_requests();
            assert!(inbox.lock().asleep);
            inbox.note(Note::Node(7));
        });
        assert_eq!(notes, 1);
    }

    #[test]
    fn requests_put_back_come_out_first_and_in_order() {
        let inbox = inbox();
        for ticket in 0..3 {
            inbox.push(LANE, request(1, ticket)).expect("there is room");
        }
        let batch = inbox.take(usize::MAX);
        inbox.push(LANE, request(1, 3)).expect("there is room");
        inbox.put_back(batch);
        assert_eq!(taken(&inbox), [(1, 0), (1, 1), (1, 2), (1, 3)]);
    }

    #[test]
    fn closed_inbox_refuses_and_still_gives_what_it_has() {
        let inbox = inbox();
        inbox.push(LANE, request(1, 0)).expect("there is room");
        inbox.close();
        assert_eq!(inbox.push(LANE, request(1, 1)).err().map(|(e, _)| e), Some(PushError::Closed));
        assert!(!inbox.is_closed_and_empty());
        assert_eq!(taken(&inbox), [(1, 0)]);
        assert!(inbox.is_closed_and_empty());
    }
}
