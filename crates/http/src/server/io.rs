//! The stream under hyper: it tells the watchdog what happens, turns the answers that hyper gives
//! by itself into problems, and closes so that the last answer arrives.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::conn::Conn;
use crate::limits::{Limits, UNREAD_BYTES_MAX};
use crate::problem::ProblemKind;

/// Plain or encrypted.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self {
            Stream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Stream::Tls($stream) => {
                let $stream = Pin::new($stream.as_mut());
                $call
            }
        }
    };
}

impl Stream {
    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, s => s.poll_read(cx, buf))
    }

    fn write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, s => s.poll_write(cx, buf))
    }
}

pub(super) struct ConnIo {
    stream: Stream,
    conn: Arc<Conn>,
    /// Our words in place of hyper's, as far as they are still to be written.
    instead: Option<Bytes>,
    unread_timeout: Duration,
    linger: Option<Pin<Box<Sleep>>>,
    lingered_bytes: usize,
    read_ended: bool,
    write_ended: bool,
}

impl ConnIo {
    pub(super) fn new(stream: Stream, conn: Arc<Conn>, limits: &Limits) -> ConnIo {
        ConnIo {
            stream,
            conn,
            instead: None,
            unread_timeout: limits.unread_timeout,
            linger: None,
            lingered_bytes: 0,
            read_ended: false,
            write_ended: false,
        }
    }

    /// Ends a head that takes too long: the client gets a 408, hyper an end of file.
    fn refuse_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let instead = self.instead.get_or_insert_with(|| raw_answer(408));
        while instead.has_remaining() {
            let n = ready!(self.stream.write(cx, instead))?;
            instead.advance(n);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads on for a while after the last answer. A socket closed with unread bytes is reset,
    /// and a reset makes the other side forget the answer it has not read yet.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let timer = self.linger.get_or_insert_with(|| Box::pin(sleep(self.unread_timeout)));
        let mut space = [0; 16 << 10];
        while !self.read_ended && self.lingered_bytes < UNREAD_BYTES_MAX {
            if timer.as_mut().poll(cx).is_ready() {
                break;
            }
            let mut buf = ReadBuf::new(&mut space);
            match self.stream.read(cx, &mut buf) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.lingered_bytes += buf.filled().len();
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ConnIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.conn.is_head_refused() {
            return this.refuse_head(cx);
        }
        let before = buf.filled().len();
        ready!(this.stream.read(cx, buf))?;
        match &buf.filled()[before..] {
            [] => this.read_ended = true,
            bytes => this.conn.has_come(bytes),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ConnIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        // Before the first request only hyper itself has something to say in HTTP/1.
        if this.conn.begun() == 0
            && let Some(status) = own_refusal(buf)
        {
            let instead = this.instead.get_or_insert_with(|| raw_answer(status));
            while instead.has_remaining() {
                let n = ready!(this.stream.write(cx, instead))?;
                instead.advance(n);
            }
            return Poll::Ready(Ok(buf.len()));
        }
        let written = this.stream.write(cx, buf);
        note(&this.conn, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.conn.begun() == 0 {
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| &**buf);
            return self.poll_write(cx, first);
        }
        let this = &mut *self;
        let written = either!(&mut this.stream, s => s.poll_write_vectored(cx, bufs));
        note(&this.conn, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut self.stream, s => s.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.write_ended {
            ready!(either!(&mut this.stream, s => s.poll_shutdown(cx)))?;
            this.write_ended = true;
        }
        if this.conn.lingers() { this.linger(cx) } else { Poll::Ready(Ok(())) }
    }
}

fn note(conn: &Conn, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    match &written {
        Poll::Ready(Ok(n)) => conn.write_went(Some(*n)),
        Poll::Ready(Err(_)) => {}
        Poll::Pending => conn.write_went(None),
    }
    written
}

/// The status of an answer that hyper gives by itself.
fn own_refusal(answer: &[u8]) -> Option<u16> {
    let status = answer.strip_prefix(b"HTTP/1.1 ")?.first_chunk::<3>()?;
    std::str::from_utf8(status).ok()?.parse().ok().filter(|status| (400..500).contains(status))
}

/// A whole HTTP/1.1 answer for a request that could not be read.
pub(crate) fn raw_answer(status: u16) -> Bytes {
    let problem = match status {
        408 => ProblemKind::Timeout.because("the headers did not arrive in time"),
        414 => ProblemKind::UriTooLong.because("the path and query are too long"),
        431 => ProblemKind::HeaderTooLarge.because("the headers are too large or too many"),
        _ => ProblemKind::BadRequest.because("the request is not well-formed HTTP"),
    };
    raw_problem(&problem)
}

/// A problem as a whole HTTP/1.1 answer, after which the connection closes.
pub(crate) fn raw_problem(problem: &crate::Problem) -> Bytes {
    let body = serde_json::to_string(problem).expect("strings and numbers serialize");
    let status = problem.kind.status();
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        status.as_u16(),
        status.canonical_reason().unwrap_or("Error"),
        crate::problem::PROBLEM_JSON,
        body.len(),
    )
    .into()
}
