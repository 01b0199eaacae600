//! The time-outs of a connection, with one timer that is rarely touched.
//!
//! A request that arrives whole costs a few loads here, and no clock. The timer is only set
//! when a head stays open, when a write blocks, when a large answer is being read, or when it has
//! run out; what happened in between is told from [`Conn::progress`] and [`Conn::requests`]. So an idle
//! connection is closed between one and two idle times after its last request, and one of which an
//! answer is not read between one and two write times after it moved last.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::conn::Conn;
use crate::limits::Limits;

/// What to do with a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// A request has begun and does not come to its end: answer 408 and close.
    HeadTooSlow,
    /// Nothing happens on it: close it politely.
    Idle,
    /// It was to close, and does not; or its client does not read. Drop it.
    Hopeless,
}

/// What the timer was set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watching {
    FirstRequest,
    Head,
    Write,
    Idle,
    Leaving,
}

pin_project_lite::pin_project! {
    pub(super) struct Watchdog {
        watching: Watching,
        progress: u64,
        head_timeout: Duration,
        write_timeout: Duration,
        idle_timeout: Duration,
        registered: bool,
        #[pin]
        timer: Sleep,
    }
}

/// What grows when what is watched for happens.
fn progress(watching: Watching, conn: &Conn) -> u64 {
    match watching {
        Watching::FirstRequest | Watching::Idle => conn.requests(),
        Watching::Head | Watching::Write | Watching::Leaving => conn.progress(),
    }
}

impl Watchdog {
    pub(super) fn new(conn: &Conn, limits: &Limits) -> Watchdog {
        Watchdog {
            watching: Watching::FirstRequest,
            progress: progress(Watching::FirstRequest, conn),
            head_timeout: limits.head_timeout,
            write_timeout: limits.write_timeout,
            idle_timeout: limits.idle_timeout,
            registered: false,
            timer: sleep(limits.head_timeout),
        }
    }

    fn set(self: Pin<&mut Self>, watching: Watching, conn: &Conn) {
        let this = self.project();
        let after = match watching {
            Watching::FirstRequest | Watching::Head | Watching::Leaving => *this.head_timeout,
            Watching::Write => *this.write_timeout,
            Watching::Idle => *this.idle_timeout,
        };
        *this.watching = watching;
        *this.progress = progress(watching, conn);
        *this.registered = false;
        this.timer.reset(Instant::now() + after);
    }

    /// Called after the connection was polled.
    pub(super) fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>, conn: &Conn) -> Verdict {
        use Watching::{FirstRequest, Head, Idle, Leaving, Write};
        let wants = match self.watching {
            now if conn.is_reading() => (now != Write).then_some(Write),
            Leaving => None,
            now if conn.is_head_open() => {
                (now != Head || self.progress != conn.progress()).then_some(Head)
            }
            now if conn.is_write_blocked() => (now != Write).then_some(Write),
            _ => None,
        };
        if let Some(wants) = wants {
            self.as_mut().set(wants, conn);
        }
        loop {
            if self.registered && !self.timer.is_elapsed() {
                return Verdict::Fine;
            }
            let this = self.as_mut().project();
            *this.registered = true;
            if std::future::Future::poll(this.timer, cx).is_pending() {
                return Verdict::Fine;
            }
            let moved = self.progress != progress(self.watching, conn);
            if self.watching == Write && !conn.all_moved() {
                return Verdict::Hopeless;
            }
            match self.watching {
                Head if conn.is_head_open() && !moved => {
                    self.as_mut().set(Leaving, conn);
                    return Verdict::HeadTooSlow;
                }
                Write if conn.is_write_blocked() && !moved => return Verdict::Hopeless,
                Write if conn.is_write_blocked() || conn.is_reading() => {
                    self.as_mut().set(Write, conn);
                }
                // It has said that it is there.
                FirstRequest if conn.is_h2() => self.as_mut().set(Idle, conn),
                FirstRequest | Idle if !moved && !conn.is_busy() => {
                    self.as_mut().set(Leaving, conn);
                    return Verdict::Idle;
                }
                Leaving if !conn.is_busy() => return Verdict::Hopeless,
                Leaving => self.as_mut().set(Leaving, conn),
                FirstRequest | Head | Write | Idle => self.as_mut().set(Idle, conn),
            }
        }
    }
}
