//! Ours, over HTTP as anybody would.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::peer::{Consumer, Later, NotInstalled, Peer, Producer, Received, Subject};
use super::wire::Wire;
use crate::http1::{Client, Head, parse_head, write_request};
use crate::proc::Setup;
use crate::server::{self, Server};

pub(crate) const SUBJECT: Subject = Subject {
    name: "stampede",
    usual: true,
    peer: false,
    settings: "stampede serve with its usual settings and a key; JSON over HTTP/1.1: messages or \
               messages:batch, messages:receive, messages:ack",
    find,
    start,
};

/// Built if it is not there.
fn find(setup: &Setup) -> Result<Result<PathBuf, NotInstalled>> {
    server::binary(setup).map(Ok)
}

/// A running server, asked as one tenant.
pub(crate) struct Stampede {
    /// Of every request.
    pub(crate) headers: String,
    pub(crate) server: Server,
}

fn start(program: &Path, folder: &Path) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Stampede::start(program, folder)?))
}

/// A connection that asks for one queue.
pub(crate) struct Conn {
    wire: Wire,
    headers: String,
    queue: String,
    batch: usize,
    /// Of the next request.
    body: String,
    out: Vec<u8>,
}

impl Conn {
    async fn connect(addr: SocketAddr, headers: &str, queue: &str, batch: usize) -> Result<Conn> {
        let wire = Wire::connect(addr).await?;
        let (headers, queue) = (headers.to_owned(), queue.to_owned());
        Ok(Conn { wire, headers, queue, batch, body: String::new(), out: Vec::new() })
    }

    /// Makes the queue.
    pub(crate) async fn create(&mut self) -> Result<()> {
        let settings = json!({"name": self.queue, "mode": "STANDARD"}).to_string();
        self.ask("POST", "/v1/queues", &settings, 201).await?;
        Ok(())
    }

    /// From now on asks for another queue.
    pub(crate) fn turn_to(&mut self, queue: &str) {
        queue.clone_into(&mut self.queue);
    }

    /// Asks, and gives the body of the answer, which must have this status.
    async fn ask(&mut self, method: &str, path: &str, body: &str, expected: u16) -> Result<&[u8]> {
        write_request(&mut self.out, method, path, &self.headers, body);
        self.answer(method, path, expected).await
    }

    /// Sends what is to go out, and gives the body of the answer.
    async fn answer(&mut self, method: &str, path: &str, expected: u16) -> Result<&[u8]> {
        self.wire.send(&self.out).await?;
        let Head { status, head, body } = loop {
            let head = parse_head(self.wire.unused())?;
            if let Some(head) = head {
                break head;
            }
            self.wire.more().await?;
        };
        let bytes = &self.wire.take(head + body).await?[head..];
        let text = || String::from_utf8_lossy(bytes).into_owned();
        ensure!(status == expected, "{method} {path}: {status} instead of {expected}: {}", text());
        Ok(bytes)
    }

    /// Asks something of the queue's messages; what, is in `self.body`.
    async fn messages(&mut self, verb: &str, expected: u16) -> Result<&[u8]> {
        let path = format!("/v1/queues/{}/messages{verb}", self.queue);
        let body = std::mem::take(&mut self.body);
        write_request(&mut self.out, "POST", &path, &self.headers, &body);
        self.body = body;
        self.answer("POST", &path, expected).await
    }
}

impl Stampede {
    /// Starts it in an empty folder, for a tenant without limits.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Stampede> {
        let server = Server::start(program, folder, &[])?;
        let headers = format!("Authorization: Bearer {}\r\n", server.admin_key()?);
        let ours = Stampede { headers, server };
        ours.lift_quotas("default")?;
        Ok(ours)
    }

    /// From now on a tenant is held back by nothing but the machine.
    fn lift_quotas(&self, tenant: &str) -> Result<()> {
        let path = format!("/v1/tenants/{tenant}/quotas");
        let unlimited = json!({
            "requestsPerSecond": null, "burst": null, "bytesStored": null, "entities": null,
            "connections": null, "publishPerSecond": null, "queues": null, "inflight": null,
            "retentionSecondsMax": null, "waiters": null,
        });
        self.client()?.ask("PUT", &path, &unlimited.to_string())?.json(200)?;
        Ok(())
    }

    /// A new tenant without limits: the headers of its requests.
    pub(crate) fn new_tenant(&self, name: &str) -> Result<String> {
        let mut client = self.client()?;
        client.ask("POST", "/v1/tenants", &json!({"name": name}).to_string())?.json(201)?;
        let key = json!({"name": "bench", "scopes": ["admin"], "tenant": name}).to_string();
        let key = client.ask("POST", "/v1/keys", &key)?.json(201)?;
        self.lift_quotas(name)?;
        let key = key["key"].as_str().context("a key has a key")?;
        Ok(format!("Authorization: Bearer {key}\r\n"))
    }

    fn client(&self) -> Result<Client> {
        Client::connect(self.server.addr, &self.headers)
    }

    /// A connection of this tenant, or, by its headers, of another.
    pub(crate) async fn conn(&self, queue: &str, batch: usize) -> Result<Conn> {
        self.conn_of(&self.headers, queue, batch).await
    }

    pub(crate) async fn conn_of(&self, headers: &str, queue: &str, batch: usize) -> Result<Conn> {
        Conn::connect(self.server.addr, headers, queue, batch).await
    }
}

impl Peer for Stampede {
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn create<'a>(&'a self, queue: &'a str) -> Later<'a, ()> {
        Box::pin(async move { self.conn(queue, 1).await?.create().await })
    }

    fn producer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Producer>> {
        Box::pin(async move { Ok(Box::new(self.conn(queue, batch).await?) as _) })
    }

    fn consumer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Consumer>> {
        Box::pin(async move { Ok(Box::new(self.conn(queue, batch).await?) as _) })
    }

    fn left<'a>(&'a self, queue: &'a str) -> Later<'a, u64> {
        Box::pin(async move {
            let mut conn = self.conn(queue, 1).await?;
            let path = format!("/v1/queues/{queue}");
            let shown = conn.ask("GET", &path, "", 200).await?;
            let shown: Value = serde_json::from_slice(shown).context("a queue")?;
            let count = |field: &str| {
                shown[field].as_u64().with_context(|| format!("no {field} in {shown}"))
            };
            Ok(count("visible")? + count("delayed")? + count("inflight")?)
        })
    }
}

/// What a batch answers; whatever else a result holds is not of interest.
#[derive(Deserialize)]
struct Results {
    results: Vec<OneResult>,
}

#[derive(Deserialize)]
struct OneResult {
    error: Option<Value>,
}

fn check(answer: &[u8], count: usize) -> Result<()> {
    let Results { results } = serde_json::from_slice(answer).context("the answer to a batch")?;
    let refused = results.iter().find_map(|result| result.error.as_ref());
    ensure!(refused.is_none(), "refused: {}", refused.unwrap_or(&Value::Null));
    ensure!(results.len() == count, "{} results for {count}", results.len());
    Ok(())
}

impl Producer for Conn {
    fn publish<'a>(&'a mut self, bodies: &'a [String]) -> Later<'a, ()> {
        Box::pin(async move {
            // Bodies are letters and digits, which JSON takes as they are.
            self.body.clear();
            if let [body] = bodies {
                self.body.extend(["{\"body\":\"", body, "\"}"]);
                self.messages("", 202).await?;
                return Ok(());
            }
            self.body.push_str("{\"messages\":[");
            for (number, body) in bodies.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                // Writing to a string does not fail.
                let _ = write!(self.body, "{comma}{{\"clientMessageId\":\"{number}\",\"body\":\"");
                self.body.extend([body, "\"}"]);
            }
            self.body.push_str("]}");
            check(self.messages(":batch", 200).await?, bodies.len())
        })
    }
}

#[derive(Deserialize)]
struct Messages<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    receipt_handle: &'a str,
    body: &'a str,
}

impl Consumer for Conn {
    fn receive(&mut self) -> Later<'_, Vec<Received>> {
        Box::pin(async move {
            self.body.clear();
            // Writing to a string does not fail.
            let _ = write!(
                self.body,
                "{{\"maxMessages\":{},\"waitSeconds\":20,\"visibilityTimeoutSeconds\":120}}",
                self.batch
            );
            let answer = self.messages(":receive", 200).await?;
            let Messages { messages } = serde_json::from_slice(answer).context("messages")?;
            let received = messages.into_iter();
            received.map(|m| Received::new(m.body.as_bytes(), m.receipt_handle)).collect()
        })
    }

    fn ack<'a>(&'a mut self, received: &'a [Received]) -> Later<'a, ()> {
        Box::pin(async move {
            // Handles are base64, which JSON takes as it is.
            self.body.clear();
            for (number, Received { handle, .. }) in received.iter().enumerate() {
                let before = if number == 0 { "{\"receiptHandles\":[\"" } else { "\",\"" };
                self.body.extend([before, handle]);
            }
            self.body.push_str("\"]}");
            check(self.messages(":ack", 200).await?, received.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_refusal_in_a_batch_is_found() {
        assert!(check(br#"{"results":[{"index":0},{"index":1}]}"#, 2).is_ok());
        assert!(check(br#"{"results":[{"index":0}]}"#, 2).is_err());
        let refused = br#"{"results":[{"index":0,"error":{"status":409}}]}"#;
        assert!(format!("{:#}", check(refused, 1).unwrap_err()).contains("409"));
    }
}
