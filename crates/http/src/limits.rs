//! Every bound of the edge, in one place. Those a deployment may want to change are fields of
//! [`Limits`]; the rest are constants.

use std::time::Duration;

/// Bounds that a deployment may change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections open at once; further ones wait in the listen queue of the system.
    pub connections_max: usize,
    /// Bytes of a body, unless its route says otherwise.
    pub body_bytes_max: usize,
    /// From the first byte of a request to the end of its headers, and from the opening of a
    /// connection to its first request.
    pub head_timeout: Duration,
    /// Between two pieces of a body.
    pub body_stall_timeout: Duration,
    /// From the headers to the end of a body.
    pub body_timeout: Duration,
    /// How long a client may go on sending what nobody will read: over HTTP/2 before it gets its
    /// answer, over HTTP/1 after it.
    pub unread_timeout: Duration,
    /// A client that reads nothing for this long is dropped, and one that in this time reads less
    /// than [`ANSWER_BYTES_MIN`] of an answer.
    pub write_timeout: Duration,
    /// A connection without a request in flight is closed after this.
    pub idle_timeout: Duration,
    /// Bytes of requests with more than `body_bytes_max`, and of large bodies in answers, in memory
    /// at once; further ones are 503. A request is in memory about three times.
    pub large_bytes_max: usize,
    /// How long an answer with large bodies waits for others to have been read.
    pub room_timeout: Duration,
    /// Receives and fetches that wait at once, of all tenants; further ones are 503. A fetch counts
    /// for its group and for each of its partitions.
    pub waiters_max: usize,
    /// Queues, streams, and groups of streams that `/metrics` tells of one by one, of each so many.
    pub metrics_queues_max: usize,
    /// Requests in flight get this long to finish when the server goes down.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 65_536,
            body_bytes_max: 1 << 20,
            large_bytes_max: 256 << 20,
            room_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(15),
            body_stall_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            unread_timeout: Duration::from_secs(1),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            waiters_max: 100_000,
            metrics_queues_max: 1000,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Bytes of all headers of a request.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// As [`HEAD_BYTES_MAX`], for HTTP/2.
pub const H2_HEAD_BYTES_MAX: u32 = 64 << 10;
/// Headers of a request.
pub const HEADER_COUNT_MAX: usize = 100;
/// Bytes of path and query.
pub const URI_BYTES_MAX: usize = 8 << 10;
/// `{parameters}` in a path.
pub const PATH_PARAMS_MAX: usize = 4;
/// As [`Limits::unread_timeout`], in bytes.
pub const UNREAD_BYTES_MAX: usize = 16 << 20;
/// What a client reads of a large answer in each [`Limits::write_timeout`]: so many bytes, or the rest of
/// it; over HTTP/2 a quarter of that of any, because there may be many on one connection. It need not hurry, but the answer is in memory meanwhile.
pub const ANSWER_BYTES_MIN: usize = 256 << 10;
/// Requests at once on one HTTP/2 connection.
pub const H2_STREAMS_MAX: u32 = 256;
/// Items on a page of a list.
pub const PAGE_ITEMS_MAX: u32 = 1000;
/// Items on a page of a list, when the client does not say.
pub const PAGE_ITEMS_DEFAULT: u32 = 100;
/// Bytes of an opaque cursor, before base64.
pub const CURSOR_BYTES_MAX: usize = 1024;
/// Characters of an `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_MAX: usize = 255;
/// A client that goes through with a TLS handshake does so in this time.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
