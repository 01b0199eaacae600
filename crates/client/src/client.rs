//! The client: where the server is, who we are, and how calls are made and made again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::call::Call;
use crate::error::{Error, Problem};
use crate::queue::Queue;
use crate::queues::Queues;
use crate::redrive::Redrives;
use crate::retry::{Repeat, Retry, draw, new_key, try_in_lease};
use crate::stream::Stream;
use crate::streams::Streams;
use crate::topics::Topics;
use crate::transport::{self, Failed, Pool};

/// A client of one server. Cheap to clone: clones share their connections.
///
/// ```no_run
/// # async fn example() -> Result<(), client::Error> {
/// let client = client::Client::builder("https://queue.example:7700").key("sk_…").build()?;
/// let sent = client.queue("jobs").send(&serde_json::json!({"to": "a@b.example"})).await?;
/// println!("{} is number {}", sent.message_id, sent.sequence);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    /// Scheme, host and port, and a path if the server is behind one; no slash at the end.
    base: String,
    headers: HeaderMap,
    timeout: Duration,
    retry: Retry,
    pool: Pool,
}

/// Settings of a [`Client`].
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    url: String,
    key: Option<String>,
    tenant: Option<String>,
    root_pem: Option<Vec<u8>>,
    connect_timeout: Duration,
    timeout: Duration,
    retry: Retry,
}

impl ClientBuilder {
    /// The key of the tenant, `sk_…`. A server with `--dev` needs none.
    pub fn key(mut self, key: impl Into<String>) -> ClientBuilder {
        self.key = Some(key.into());
        self
    }

    /// The tenant, as `X-Tenant`: for a server with `--dev`, where no key names it.
    pub fn tenant(mut self, tenant: impl Into<String>) -> ClientBuilder {
        self.tenant = Some(tenant.into());
        self
    }

    /// Certificates to trust, as PEM, besides those that the machine trusts.
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> ClientBuilder {
        self.root_pem = Some(pem.into());
        self
    }

    /// How long making a connection may take; 5 s when not set.
    pub fn connect_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// How long one try of a call may take; 30 s when not set. A receive that waits has this on
    /// top of its wait.
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeout = timeout;
        self
    }

    /// How calls are tried again.
    pub fn retry(mut self, retry: Retry) -> ClientBuilder {
        self.retry = retry;
        self
    }

    /// The client. Nothing is connected yet.
    ///
    /// # Errors
    /// [`Error::Setting`] for a URL, key or certificate that cannot be one.
    pub fn build(self) -> Result<Client, Error> {
        let uri: Uri = self.url.parse().map_err(|_| not_a_url(&self.url))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(not_a_url(&self.url)),
        };
        if uri.authority().is_none() || uri.query().is_some() {
            return Err(not_a_url(&self.url));
        }
        let mut headers = HeaderMap::new();
        let agent = concat!("stampede-client/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        if let Some(key) = &self.key {
            headers.insert(AUTHORIZATION, header("key", &format!("Bearer {key}"))?);
        }
        if let Some(tenant) = &self.tenant {
            headers.insert("x-tenant", header("tenant", tenant)?);
        }
        let pool = transport::pool(self.connect_timeout, self.root_pem.as_deref(), tls)?;
        let base = self.url.trim_end_matches('/').to_owned();
        let (timeout, retry) = (self.timeout, self.retry);
        Ok(Client { shared: Arc::new(Shared { base, headers, timeout, retry, pool }) })
    }
}

fn not_a_url(text: &str) -> Error {
    Error::Setting(format!("a server is http://HOST:PORT or https://HOST:PORT, not {text}"))
}

fn header(what: &str, text: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Error::Setting(format!("the {what} has characters that it cannot have")))?;
    value.set_sensitive(what == "key");
    Ok(value)
}

impl Client {
    /// A client without a key, with the usual settings.
    ///
    /// ```
    /// # fn main() -> Result<(), client::Error> {
    /// let client = client::Client::new("http://127.0.0.1:7700")?;
    /// assert!(client::Client::new("127.0.0.1:7700").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`] for a URL that is none.
    pub fn new(url: impl Into<String>) -> Result<Client, Error> {
        Client::builder(url).build()
    }

    /// Settings to make a client from.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            url: url.into(),
            key: None,
            tenant: None,
            root_pem: None,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            retry: Retry::default(),
        }
    }

    /// The queues of the tenant: making, changing, looking.
    #[must_use]
    pub fn queues(&self) -> Queues {
        Queues::new(self.clone())
    }

    /// One queue: sending, receiving, settling.
    #[must_use]
    pub fn queue(&self, name: impl Into<String>) -> Queue {
        Queue::new(self.clone(), name.into())
    }

    /// The topics of the tenant, and their subscriptions.
    #[must_use]
    pub fn topics(&self) -> Topics {
        Topics::new(self.clone())
    }

    /// Dead letters on their way back.
    #[must_use]
    pub fn redrives(&self) -> Redrives {
        Redrives::new(self.clone())
    }

    /// The streams of the tenant: making, looking, deleting.
    #[must_use]
    pub fn streams(&self) -> Streams {
        Streams::new(self.clone())
    }

    /// One stream: appending, and reading in groups.
    #[must_use]
    pub fn stream(&self, name: impl Into<String>) -> Stream {
        Stream::new(self.clone(), name.into())
    }

    /// A call that this crate has no name for. It is tried again only when the server certainly
    /// did not carry it out, unless [`Call::keyed`] or [`Call::repeatable`] says more.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), client::Error> {
    /// use client::{Call, Client, Method};
    /// # let client = Client::new("http://127.0.0.1:7700")?;
    /// let search = serde_json::json!({"q": "rome"});
    /// let call = Call::new(Method::POST, ["v1", "users", "ann", "searches"]).json(&search)?.keyed();
    /// let made: serde_json::Value = client.call(call).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Any [`Error`].
    pub async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let answer = self.bytes(call).await?;
        // An answer without a body is `null`, so that `()` can be asked for.
        let text = if answer.is_empty() { &b"null"[..] } else { &answer };
        serde_json::from_slice(text).map_err(Error::Answer)
    }

    /// As [`Client::call`], for an answer that nobody reads.
    pub(crate) async fn done(&self, call: Call) -> Result<(), Error> {
        self.bytes(call).await.map(drop)
    }

    /// The same, and what came before the answer.
    pub(crate) async fn call_told<T: DeserializeOwned>(
        &self,
        call: Call,
    ) -> Result<(T, Before), Error> {
        let (answer, before) = self.tries(call).await?;
        Ok((serde_json::from_slice(answer.body()).map_err(Error::Answer)?, before))
    }

    /// The same, and whether it was made, or found as it was asked for.
    pub(crate) async fn make<T: DeserializeOwned>(&self, call: Call) -> Result<(T, bool), Error> {
        let (answer, _) = self.tries(call).await?;
        let made = serde_json::from_slice(answer.body()).map_err(Error::Answer)?;
        Ok((made, answer.status() == StatusCode::CREATED))
    }

    /// Until when a call that begins now, and does not wait for anything, is tried.
    pub(crate) fn deadline(&self) -> Instant {
        in_time(self.shared.retry.deadline)
    }

    /// Waits before another try; `false` if there is none any more.
    pub(crate) async fn pause(&self, failures: u32, error: &Error, deadline: Instant) -> bool {
        let retry = &self.shared.retry;
        let pause = retry.pause(failures, error.retry_after_ms(), draw());
        let may = failures < retry.attempts && Instant::now() + pause < deadline;
        if may {
            tracing::debug!(%error, ?pause, "tried again");
            tokio::time::sleep(pause).await;
        }
        may
    }

    /// How long to wait before another try of what concerns a lease that has `left`; `None` when it
    /// is too late for one.
    pub(crate) fn pause_in_lease(
        &self,
        failures: u32,
        error: &Error,
        left: Duration,
    ) -> Option<Duration> {
        let retry = &self.shared.retry;
        let pause = retry.pause_in_lease(failures, error.retry_after_ms(), draw(), left);
        if let Some(pause) = pause {
            tracing::debug!(%error, ?pause, "tried again");
        }
        pause
    }

    /// How long one try of what concerns a lease that has `left` may take.
    pub(crate) fn try_in_lease(&self, left: Duration) -> Duration {
        try_in_lease(self.shared.timeout, left)
    }

    /// What is said when no answer came within a time.
    pub(crate) fn no_answer(&self, within: Duration) -> Error {
        Error::Cut { server: self.shared.base.clone(), why: transport::nothing_within(within) }
    }

    async fn bytes(&self, call: Call) -> Result<Bytes, Error> {
        self.tries(call).await.map(|(answer, _)| answer.into_body())
    }

    async fn tries(&self, call: Call) -> Result<(Response<Bytes>, Before), Error> {
        let retry = &self.shared.retry;
        let deadline = in_time(retry.deadline.saturating_add(call.wait));
        let deadline = call.deadline.map_or(deadline, |earlier| earlier.min(deadline));
        let mut key = call.keyed.then(new_key);
        let mut cut = false;
        let mut failures = call.failures;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let usual = self.shared.timeout.saturating_add(call.wait).min(left);
            let timeout = call.once.unwrap_or(usual);
            let request = self.request(&call, key.as_deref())?;
            let outcome = transport::exchange(&self.shared.pool, request, timeout).await;
            let failure = match self.judge(outcome) {
                Ok(answer) => return Ok((answer, Before { cut, failures })),
                Err(failure) => failure,
            };
            failures += 1;
            cut |= failure.cut;
            if let (Repeat::Removing, true, true) = (call.repeat, cut, failure.status == 404) {
                return Ok((Response::new(Bytes::new()), Before { cut, failures }));
            }
            let Failure { error, passing, .. } = &failure;
            let may = *passing && call.once.is_none() && !(cut && call.repeat == Repeat::IfNotDone);
            if !(may && self.pause(failures, error, deadline).await) {
                let unclear = cut && call.repeat == Repeat::Settling;
                return Err(if unclear { failure.error.after_a_cut() } else { failure.error });
            }
            // A refusal is remembered under its key like any answer, so a refused call comes again
            // under a new one. Not once an answer was lost: the old key is what makes it once.
            if failure.status != 0 && !cut && key.is_some() {
                key = Some(new_key());
            }
        }
    }

    fn request(&self, call: &Call, key: Option<&str>) -> Result<Request<Full<Bytes>>, Error> {
        let uri = format!("{}{}", self.shared.base, call.path);
        let mut request = Request::new(Full::new(call.body.clone().unwrap_or_default()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri.parse().map_err(|_| not_a_url(&uri))?;
        *request.headers_mut() = self.shared.headers.clone();
        let headers = request.headers_mut();
        if call.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(key) = key {
            headers.insert("idempotency-key", header("idempotency key", key)?);
        }
        Ok(request)
    }

    fn judge(&self, outcome: Result<Response<Bytes>, Failed>) -> Result<Response<Bytes>, Failure> {
        let server = self.shared.base.clone();
        let lost = |cut, error| Failure { error, cut, status: 0, passing: true };
        let answer = match outcome {
            Ok(answer) => answer,
            Err(Failed::NotSent(why)) => {
                return Err(lost(false, Error::Unreachable { server, why }));
            }
            Err(Failed::Cut(why)) => return Err(lost(true, Error::Cut { server, why })),
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(Failure::refused(answer.status(), answer.body()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.shared.base).finish_non_exhaustive()
    }
}

/// The moment after this time; one that is longer than clocks go ends with no process of ours.
fn in_time(time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + FAR)
}

/// What came before an answer.
pub(crate) struct Before {
    /// An earlier try was cut: then refusals say less than they seem to.
    pub(crate) cut: bool,
    /// Tries that failed.
    pub(crate) failures: u32,
}

/// A try that failed, and what it means for the next.
struct Failure {
    error: Error,
    /// It may have been carried out all the same.
    cut: bool,
    /// Of the answer; 0 when there was none.
    status: u16,
    /// Worth another try.
    passing: bool,
}

impl Failure {
    fn refused(status: StatusCode, body: &[u8]) -> Failure {
        let problem: Problem = serde_json::from_slice(body)
            .unwrap_or_else(|_| Problem::of_status(status, &String::from_utf8_lossy(body)));
        // The status of the answer counts, whatever its body says.
        let problem = Problem { status: status.as_u16(), ..problem };
        Failure {
            cut: problem.may_be_done(),
            status: problem.status,
            passing: problem.is_tried_again(),
            error: problem.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_server_is_refused() {
        for url in ["", "localhost", "ftp://x", "http://", "http://a b", "http://x/?y"] {
            assert!(matches!(Client::new(url), Err(Error::Setting(_))), "{url}");
        }
        let builder = Client::builder("http://x").key("line\nbreak");
        assert!(matches!(builder.build(), Err(Error::Setting(_))));
    }
}
