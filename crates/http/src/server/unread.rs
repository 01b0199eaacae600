//! What a handler leaves of a body, over HTTP/2.
//!
//! An answer that leaves before its request has ended is followed by RST_STREAM(NO_ERROR), which
//! asks the client to stop sending. The client must not lose the answer over that (RFC 9113, 8.1), and
//! curl 7.88 does. So what is left is read first, as far as it is little and comes soon. HTTP/1 has
//! no need of it: there, what is left is read after the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::limits::UNREAD_BYTES_MAX;

/// A body that a handler may drop, and that is still there.
pub(crate) struct Unread(Arc<Mutex<Incoming>>);

impl Unread {
    pub(crate) fn new(incoming: Incoming) -> Unread {
        Unread(Arc::new(Mutex::new(incoming)))
    }

    /// The body, for its handler.
    pub(crate) fn lend(&self) -> Body {
        Body::new(Lent(self.0.clone()))
    }

    /// Reads what the handler has left, while it is no more than it may be.
    pub(crate) async fn drop_rest(self, time: Duration) {
        // Whoever still holds it reads it.
        let Some(rest) = Arc::into_inner(self.0).map(Mutex::into_inner) else { return };
        if rest.is_end_stream() || rest.size_hint().lower() > UNREAD_BYTES_MAX as u64 {
            return;
        }
        // A client that takes longer is answered all the same.
        let _ = timeout(time, read(rest)).await;
    }
}

async fn read(mut rest: Incoming) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = rest.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > UNREAD_BYTES_MAX {
            return;
        }
    }
}

/// Locked by one task only: the handler's, and then that of [`Unread`].
struct Lent(Arc<Mutex<Incoming>>);

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}
