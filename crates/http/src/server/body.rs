//! The bodies of answers, as hyper takes them.
//!
//! What is small is handed over as it is. Of what is large hyper gets a slice at a time: over HTTP/1 it
//! copies what it is given, and over HTTP/2 it keeps it until the client gives it leave to send. So the
//! memory of a large answer is given back with its last slice, and what the client has read is seen.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::conn::{InFlight, Reading};
use crate::limits::ANSWER_BYTES_MIN;

/// Of an answer at a time. Larger ones are read in parts by the fastest of clients.
const SLICE_BYTES: usize = 64 << 10;

/// The body of an answer, which keeps its request in flight.
pub(crate) struct ConnBody(Kind);

enum Kind {
    /// It is hyper's as soon as hyper asks for it.
    AtOnce { body: Body, _in_flight: InFlight },
    /// The watchdog sees to it that it is read.
    InSlices(Slices),
}

struct Slices {
    body: Body,
    /// Taken out of it.
    rest: Bytes,
    /// What hyper got since the answer moved, and what it gets until it has moved again.
    since_moved: usize,
    moves_by: usize,
    reading: Arc<Reading>,
}

/// A slice, and the answer that is being read until it is written.
struct Slice {
    bytes: Bytes,
    _reading: Arc<Reading>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ConnBody {
    pub(crate) fn new(body: Body, in_flight: InFlight, is_h2: bool) -> ConnBody {
        let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= SLICE_BYTES as u64);
        // Over HTTP/2 there may be many on one connection, and the client says when each is sent.
        if is_small && !is_h2 || body.is_end_stream() {
            return ConnBody(Kind::AtOnce { body, _in_flight: in_flight });
        }
        let reading = Arc::new(Reading::new(in_flight));
        // Many over HTTP/2 share what one client reads: each must move, but not by much.
        let moves_by = if is_h2 { SLICE_BYTES } else { ANSWER_BYTES_MIN };
        let rest = Bytes::new();
        ConnBody(Kind::InSlices(Slices { body, rest, since_moved: 0, moves_by, reading }))
    }
}

impl Slices {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = self.rest.split_to(self.rest.len().min(SLICE_BYTES));
        self.since_moved += bytes.len();
        if self.since_moved >= self.moves_by {
            self.since_moved = 0;
            self.reading.moves();
        }
        let slice = Slice { bytes, _reading: Arc::clone(&self.reading) };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(slice)))))
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut whole = SizeHint::new();
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole.set_lower(hint.lower() + rest);
        whole
    }
}

impl HttpBody for ConnBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.get_mut().0 {
            Kind::AtOnce { body, .. } => Pin::new(body).poll_frame(cx),
            Kind::InSlices(slices) => slices.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::AtOnce { body, .. } => body.is_end_stream(),
            Kind::InSlices(slices) => slices.rest.is_empty() && slices.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::AtOnce { body, .. } => body.size_hint(),
            Kind::InSlices(slices) => slices.size_hint(),
        }
    }
}
