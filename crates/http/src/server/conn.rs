//! What is known of a connection, shared by its stream, its requests and its watchdog.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use kernel::TenantId;
use parking_lot::Mutex;

use crate::auth::Memo;
use crate::limits::HEAD_BYTES_MAX;

/// A connection.
///
/// Its flags are only hints to the watchdog, and are read by the task that set them or a moment
/// later: relaxed order is enough.
pub struct Conn {
    /// The other end.
    pub peer: SocketAddr,
    /// Whether it is encrypted.
    pub tls: bool,
    in_flight: AtomicU32,
    begun: AtomicU64,
    h2: AtomicBool,
    /// Bytes have come that are not yet a request.
    head_open: AtomicBool,
    head_refused: AtomicBool,
    /// The client does not read what is written.
    write_blocked: AtomicBool,
    written: AtomicU64,
    /// Which of the watchdog's turns this is: the first or the second of two.
    turn: AtomicUsize,
    /// Answers that are being read, by the turn in which each moved last.
    reading: [AtomicU32; 2],
    no_linger: AtomicBool,
    /// The tenant that was let in last, plus one.
    last_tenant: AtomicU64,
    holds: Mutex<Vec<(TenantId, Box<dyn Any + Send>)>>,
    /// Who showed a credential last.
    pub(crate) memo: Mutex<Option<Memo>>,
    /// What has come since the last request, for [`Conn::names_a_length`].
    head: Mutex<Vec<u8>>,
}

impl Conn {
    pub(crate) fn new(peer: SocketAddr, tls: bool) -> Conn {
        Conn {
            peer,
            tls,
            in_flight: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            h2: AtomicBool::new(false),
            head_open: AtomicBool::new(false),
            head_refused: AtomicBool::new(false),
            write_blocked: AtomicBool::new(false),
            written: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            reading: Default::default(),
            no_linger: AtomicBool::new(false),
            last_tenant: AtomicU64::new(0),
            holds: Mutex::new(Vec::new()),
            memo: Mutex::new(None),
            head: Mutex::new(Vec::new()),
        }
    }

    /// Holds something (a permit of a quota on connections) for as long as the connection lasts,
    /// once for each tenant that uses it. `make` is called for a tenant's first request only.
    ///
    /// # Errors
    /// What `make` says.
    pub fn hold<E>(
        &self,
        tenant: TenantId,
        make: impl FnOnce() -> Result<Box<dyn Any + Send>, E>,
    ) -> Result<(), E> {
        let tag = u64::from(tenant.0) + 1;
        if self.last_tenant.load(Relaxed) == tag {
            return Ok(());
        }
        let mut holds = self.holds.lock();
        if holds.iter().all(|(holder, _)| *holder != tenant) {
            holds.push((tenant, make()?));
        }
        self.last_tenant.store(tag, Relaxed);
        Ok(())
    }

    /// Requests begun on it so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    pub(super) fn is_head_open(&self) -> bool {
        self.head_open.load(Relaxed) && !self.is_busy() && !self.h2.load(Relaxed)
    }

    pub(super) fn has_come(&self, bytes: &[u8]) {
        if self.begun() == 0 && bytes.starts_with(b"PRI * HTTP/2") {
            self.h2.store(true, Relaxed);
        }
        // While a request is in flight it is its body that comes.
        if !self.is_busy() {
            self.head_open.store(true, Relaxed);
            let mut head = self.head.lock();
            let room = HEAD_BYTES_MAX.saturating_sub(head.len());
            head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// Whether the head that has just come has a `Content-Length`. hyper drops it where there is
    /// a `Transfer-Encoding` as well, and then nobody else can tell.
    pub(crate) fn names_a_length(&self) -> bool {
        let head = self.head.lock();
        let lines = head.split(|byte| *byte == b'\n').skip(1);
        let mut lines = lines.take_while(|line| !matches!(line, [] | [b'\r']));
        let name = b"content-length:";
        lines.any(|line| line.get(..name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name)))
    }

    pub(super) fn write_went(&self, bytes: Option<usize>) {
        self.write_blocked.store(bytes.is_none(), Relaxed);
        self.written.fetch_add(bytes.unwrap_or(0) as u64, Relaxed);
    }

    pub(super) fn is_write_blocked(&self) -> bool {
        self.write_blocked.load(Relaxed)
    }

    pub(super) fn is_h2(&self) -> bool {
        self.h2.load(Relaxed)
    }

    /// Whether an answer that is watched waits for the client to read it.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.iter().any(|answers| answers.load(Relaxed) > 0)
    }

    /// Ends a turn, unless an answer has not moved in all of it: then the client does not read.
    pub(super) fn all_moved(&self) -> bool {
        let next = self.turn.load(Relaxed) ^ 1;
        if self.reading[next].load(Relaxed) > 0 {
            return false;
        }
        self.turn.store(next, Relaxed);
        true
    }

    /// Grows when a request begins, and when its answer is gone. What is written over HTTP/2 may be no
    /// more than the answers to pings.
    pub(super) fn requests(&self) -> u64 {
        self.begun().wrapping_mul(2).wrapping_sub(u64::from(self.in_flight.load(Relaxed)))
    }

    /// Grows with everything that shows the client to be alive.
    pub(super) fn progress(&self) -> u64 {
        self.begun().wrapping_add(self.written.load(Relaxed))
    }

    /// Answers an unfinished head with 408 at the next read, and closes.
    pub(super) fn refuse_head(&self) {
        self.head_refused.store(true, Relaxed);
    }

    pub(super) fn is_head_refused(&self) -> bool {
        self.head_refused.load(Relaxed)
    }

    /// Lets it close without waiting for what the client may still be sending.
    pub(super) fn never_linger(&self) {
        self.no_linger.store(true, Relaxed);
    }

    pub(super) fn lingers(&self) -> bool {
        !self.no_linger.load(Relaxed)
    }
}

/// Counts a request as in flight until its answer is written or given up.
pub(crate) struct InFlight(Arc<Conn>);

impl InFlight {
    pub(crate) fn new(conn: Arc<Conn>) -> InFlight {
        conn.in_flight.fetch_add(1, Relaxed);
        conn.begun.fetch_add(1, Relaxed);
        conn.head_open.store(false, Relaxed);
        conn.head.lock().clear();
        InFlight(conn)
    }

    pub(crate) fn conn(&self) -> &Arc<Conn> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// An answer that is being read, until the last of its bytes is given up: written, mostly.
pub(super) struct Reading {
    in_flight: InFlight,
    /// In which it moved last.
    turn: AtomicUsize,
}

impl Reading {
    pub(super) fn new(in_flight: InFlight) -> Reading {
        let turn = in_flight.conn().turn.load(Relaxed);
        in_flight.conn().reading[turn].fetch_add(1, Relaxed);
        Reading { in_flight, turn: AtomicUsize::new(turn) }
    }

    /// The client has read enough of it for this turn.
    pub(super) fn moves(&self) {
        let conn = self.in_flight.conn();
        let now = conn.turn.load(Relaxed);
        conn.reading[now].fetch_add(1, Relaxed);
        let before = self.turn.swap(now, Relaxed);
        conn.reading[before].fetch_sub(1, Relaxed);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.in_flight.conn().reading[self.turn.load(Relaxed)].fetch_sub(1, Relaxed);
    }
}
