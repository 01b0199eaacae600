//! A server that answers consumers as a test says, and remembers what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Client, Retry};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::harness::{HANG, quick};

/// What a consumer asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// `receive`, `ack`, `nack`, `change-visibility`, `release`.
    pub(crate) verb: String,
    /// Of messages that it is about.
    pub(crate) handles: Vec<String>,
    /// For so many seconds, if it is a receive.
    pub(crate) wait: Option<u64>,
}

impl Asked {
    pub(crate) fn has(&self, handle: &str) -> bool {
        self.handles.iter().any(|other| other == handle)
    }
}

/// How often it was asked for this.
pub(crate) fn count(seen: &[Asked], verb: &str) -> usize {
    seen.iter().filter(|asked| asked.verb == verb).count()
}

/// What becomes of a request.
pub(crate) enum Say {
    /// The message of this handle, alone; its body is the handle.
    Message(&'static str),
    /// This, with this status.
    Answer(u16, Value),
    /// The connection is closed without an answer.
    Nothing,
    /// There never is one, and the connection stays.
    Never,
    /// The same, after so long.
    After(Duration, Box<Say>),
}

/// All handles are settled.
pub(crate) fn settled(asked: &Asked) -> Say {
    outcomes(asked, |_| None)
}

/// Of each handle, the problem that it meets, or none.
pub(crate) fn outcomes(
    asked: &Asked,
    mut problem: impl FnMut(&str) -> Option<(u16, &'static str)>,
) -> Say {
    let of = |(index, handle): (usize, &String)| match problem(handle) {
        None => json!({"index": index}),
        Some((status, kind)) => json!({"index": index, "error": refusal(status, kind)}),
    };
    let results: Vec<_> = asked.handles.iter().enumerate().map(of).collect();
    Say::Answer(200, json!({"results": results}))
}

fn refusal(status: u16, kind: &str) -> Value {
    json!({"type": kind, "title": "t", "status": status})
}

/// Nothing was done; it may be asked for again.
pub(crate) fn busy() -> Say {
    Say::Answer(503, refusal(503, "overloaded"))
}

pub(crate) struct Stub {
    url: String,
    seen: watch::Receiver<Vec<Asked>>,
    task: JoinHandle<()>,
}

impl Stub {
    /// Answers as `say` says, which is told how often the very same was asked before.
    pub(crate) async fn start(say: impl FnMut(&Asked, usize) -> Say + Send + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (tell, seen) = watch::channel(Vec::new());
        let (say, tell) = (Arc::new(Mutex::new(say)), Arc::new(tell));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                tokio::spawn(serve(stream, Arc::clone(&say), Arc::clone(&tell)));
            }
        });
        Stub { url, seen, task }
    }

    /// A client whose own tries end at once, and whose requests never take too long.
    pub(crate) fn client(&self) -> Client {
        let retry = Retry { attempts: 1, ..quick() };
        let builder = Client::builder(&self.url).retry(retry).timeout(10 * HANG);
        builder.build().expect("a URL")
    }

    pub(crate) fn seen(&self) -> Vec<Asked> {
        self.seen.borrow().clone()
    }

    /// Waits until it was asked for so much.
    pub(crate) async fn until(&self, enough: impl Fn(&[Asked]) -> bool) {
        let mut seen = self.seen.clone();
        let seen = seen.wait_for(|seen| enough(seen));
        tokio::time::timeout(HANG, seen).await.expect("it comes").expect("it serves");
    }

    /// Waits until it was asked to do this to a message, perhaps among others.
    pub(crate) async fn until_asked(&self, verb: &str, handle: &str) {
        self.until(|seen| seen.iter().any(|asked| asked.verb == verb && asked.has(handle))).await;
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    say: Arc<Mutex<impl FnMut(&Asked, usize) -> Say>>,
    tell: Arc<watch::Sender<Vec<Asked>>>,
) {
    let Some(asked) = read(&mut stream).await else { return };
    let before = tell.borrow().iter().filter(|before| **before == asked).count();
    let said = (say.lock().expect("no panic"))(&asked, before);
    tell.send_modify(|seen| seen.push(asked));
    let said = match said {
        Say::After(pause, said) => {
            // sleeps because the test says so, and why
            tokio::time::sleep(pause).await;
            *said
        }
        said => said,
    };
    let (status, body) = match said {
        Say::Message(handle) => (200, json!({"messages": [message(handle)]})),
        Say::Answer(status, body) => (status, body),
        Say::Nothing | Say::After(..) => return,
        // The client closes, or the test ends.
        Say::Never => return drop(stream.read(&mut [0; 1]).await),
    };
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\n");
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    // Nobody may wait for it any more.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A request as a whole; `None` when the client has gone.
async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(asked) = parse(&text) {
            return Some(asked);
        }
        match stream.read(&mut part).await {
            Ok(count) if count > 0 => text.extend_from_slice(&part[..count]),
            _ => return None,
        }
    }
}

fn parse(text: &[u8]) -> Option<Asked> {
    let text = std::str::from_utf8(text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    if body.len() < length.unwrap_or(0) {
        return None;
    }
    let (path, verb) = path.rsplit_once(':')?;
    let ask: Value = serde_json::from_str(body).unwrap_or_default();
    let handles = match (ask["receiptHandles"].as_array(), path.rsplit_once("/messages/")) {
        (Some(handles), _) => handles.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        (None, Some((_, handle))) => vec![handle.to_owned()],
        (None, None) => Vec::new(),
    };
    Some(Asked { verb: verb.to_owned(), handles, wait: ask["waitSeconds"].as_u64() })
}

fn message(handle: &str) -> Value {
    json!({"messageId": handle, "receiptHandle": handle, "receiveCount": 1, "sequence": 1,
        "sentAt": "2031-01-01T00:00:00.000Z", "body": handle, "attributes": {}})
}

/// So long that it does not end while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(12 * 60 * 60);
