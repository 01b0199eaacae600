//! Every error the edge can give, in one table.
//!
//! A refusal anywhere becomes a [`Problem`] of a [`ProblemKind`]; the kind decides the status and
//! the `type` slug that clients may match on. Slugs never change; details are for people.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// The media type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

macro_rules! problems {
    ($($(#[doc = $doc:literal])+ $kind:ident $slug:literal $status:literal $title:literal $retry:ident;)+) => {
        /// What went wrong, as far as a program needs to know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemKind { $($(#[doc = $doc])+ $kind,)+ }

        impl ProblemKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [ProblemKind] = &[$(ProblemKind::$kind,)+];

            const fn row(self) -> Row {
                match self {
                    $(ProblemKind::$kind => Row {
                        slug: $slug,
                        status: $status,
                        title: $title,
                        meaning: concat!($($doc,)+),
                        retry: Retry::$retry,
                    },)+
                }
            }
        }
    };
}

/// Whether `retryAfterMs` makes sense with a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// The same request will be refused again.
    No,
    /// Waiting helps.
    After,
}

struct Row {
    slug: &'static str,
    status: u16,
    title: &'static str,
    meaning: &'static str,
    retry: Retry,
}

problems! {
    /// The body is not the JSON that this operation takes; the detail says where.
    InvalidBody "invalid-body" 400 "The body is not what this operation takes" No;
    /// A path or query parameter is unknown, missing or has a value it cannot have.
    InvalidParameter "invalid-parameter" 400 "A parameter has a value it cannot have" No;
    /// A header has a value it cannot have.
    InvalidHeader "invalid-header" 400 "A header has a value it cannot have" No;
    /// The request breaks HTTP itself.
    BadRequest "bad-request" 400 "The request is not well formed" No;
    /// No key or token, or one that does not open anything.
    Unauthenticated "unauthenticated" 401 "A valid key or token is needed" No;
    /// The key or token is good, but not for this.
    Forbidden "forbidden" 403 "The caller may not do this" No;
    /// The thing named by the path does not exist.
    NotFound "not-found" 404 "There is no such thing" No;
    /// No operation has this path.
    UnknownPath "unknown-path" 404 "No operation has this path" No;
    /// The path exists, the method does not; `Allow` lists those that do.
    MethodNotAllowed "method-not-allowed" 405 "The path does not have this method" No;
    /// The request did not arrive in time; the connection is closed.
    Timeout "timeout" 408 "The request did not arrive in time" After;
    /// It exists already, or is not in the state that this needs.
    Conflict "conflict" 409 "The state of the thing does not allow this" No;
    /// A partition has got another owner, or the group was sent elsewhere, since the records were fetched
    /// that a commit is of: fetch again. `epoch` is the present one.
    StaleMember "stale-member" 409 "The commit does not fit the group as it is now" No;
    /// It existed, and never will again.
    Gone "gone" 410 "The thing is gone" No;
    /// The body is larger than this operation takes.
    PayloadTooLarge "payload-too-large" 413 "The body is too large" No;
    /// The request line is longer than the server takes.
    UriTooLong "uri-too-long" 414 "The path and query are too long" No;
    /// The body is not sent as a media type that this operation takes.
    UnsupportedMediaType "unsupported-media-type" 415 "The body has the wrong media type" No;
    /// The same `Idempotency-Key` came with another body within 24 hours.
    IdempotencyConflict "idempotency-conflict" 422 "The idempotency key was used with another body" No;
    /// The request is well formed, and asks for something that cannot be.
    Unprocessable "unprocessable" 422 "The request cannot be carried out as it is" No;
    /// It has not begun yet.
    TooEarly "too-early" 425 "It is too early for this" After;
    /// The tenant has used up its rate or its room.
    QuotaExceeded "quota-exceeded" 429 "The quota is used up" After;
    /// The headers are larger or more than the server takes.
    HeaderTooLarge "header-too-large" 431 "The headers are too large" No;
    /// A defect of the server. It is logged with the trace id.
    Internal "internal" 500 "The server has a defect" No;
    /// More work has arrived than can be queued; nothing was done.
    Overloaded "overloaded" 503 "The server is busy" After;
    /// The shard has stopped after a failed write, until it is reopened; see `/readyz`.
    Stopped "stopped" 503 "A shard has stopped" After;
    /// The server is starting up or going down.
    Unavailable "unavailable" 503 "The server is starting or stopping" After;
    /// Cold data or a large body cannot be read or written for now; everything else is served.
    ArchiveUnavailable "archive-unavailable" 503 "The archive cannot be used" After;
    /// The disk is full: writes are refused, reads are served.
    DiskFull "disk-full" 507 "The disk is full" After;
}

impl ProblemKind {
    /// The stable `type` that clients match on.
    #[must_use]
    pub const fn slug(self) -> &'static str {
        self.row().slug
    }

    /// One line for people, the same for every problem of the kind.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// What it means and what to do, for the documentation.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.row().meaning.trim()
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().status).expect("the table holds valid statuses")
    }

    /// Whether trying again later can help, so that `retryAfterMs` may be given.
    #[must_use]
    pub fn can_retry(self) -> bool {
        self.row().retry == Retry::After
    }

    /// A problem of this kind.
    pub fn because(self, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(self, detail)
    }
}

/// The number of a field of a body, if it is one from `from` to `to`.
pub(crate) fn within(field: &str, value: u64, from: u64, to: u64) -> Result<u64, Problem> {
    if (from..=to).contains(&value) {
        return Ok(value);
    }
    let detail = match to {
        // What has no bound but that of its type is not told as if it had one.
        u64::MAX => format!("at {field}: it must be {from} or more"),
        to => format!("at {field}: it must be from {from} to {to}"),
    };
    Err(ProblemKind::InvalidBody.because(detail))
}

/// A change that takes away what is always there, in the words of the reader of bodies, for which `null`
/// is no such thing either.
pub(crate) fn not_null(field: &str, expected: &str) -> Problem {
    let detail = format!("at {field}: it must be {expected}, not null");
    ProblemKind::InvalidBody.because(detail)
}

/// What is there under a name is not what is wanted, because of these fields. None of them when it was
/// changed or deleted since.
pub(crate) fn other_settings(what: &str, name: &str, fields: &[&str]) -> Problem {
    let fields = fields.join(", ");
    let colon = if fields.is_empty() { "" } else { ": " };
    let detail = format!("there is a {what} `{name}`, with other settings{colon}{fields}");
    ProblemKind::Conflict.because(detail)
}

/// An error on its way to a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What, for programs.
    pub kind: ProblemKind,
    /// What, for people: which field, which limit, which thing.
    pub detail: Cow<'static, str>,
    /// When trying again can help.
    pub retry_after_ms: Option<u64>,
    /// Members of the answer beyond the five that all problems have.
    pub extra: Vec<(&'static str, serde_json::Value)>,
    /// Headers of the answer: `Allow`, `WWW-Authenticate`, `Connection`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem of a kind.
    pub fn new(kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> Problem {
        let mut headers = Vec::new();
        if kind == ProblemKind::Unauthenticated {
            headers.push((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        Problem { kind, detail: detail.into(), retry_after_ms: None, extra: Vec::new(), headers }
    }

    /// Says when trying again can help.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Problem {
        debug_assert!(self.kind.can_retry(), "{} cannot be retried", self.kind.slug());
        self.retry_after_ms = Some(ms);
        self
    }

    /// Adds a member to the answer.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<serde_json::Value>) -> Problem {
        self.extra.push((name, value.into()));
        self
    }

    /// The quota that is used up, if it is one.
    #[must_use]
    pub fn quota(&self) -> Option<&str> {
        let (_, quota) = self.extra.iter().find(|(name, _)| *name == "quota")?;
        quota.as_str()
    }

    /// Closes the connection after the answer: what follows on it cannot be trusted.
    #[must_use]
    pub fn closing(mut self) -> Problem {
        self.headers.push((CONNECTION, HeaderValue::from_static("close")));
        self
    }

    /// Lists the methods that the path has.
    #[must_use]
    pub fn allowing(mut self, methods: HeaderValue) -> Problem {
        self.headers.push((ALLOW, methods));
        self
    }
}

/// The JSON of a problem, also for the `error` of an item in a batch.
impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind.slug())?;
        map.serialize_entry("title", self.kind.title())?;
        map.serialize_entry("status", &self.kind.status().as_u16())?;
        map.serialize_entry("detail", &self.detail)?;
        if let Some(ms) = self.retry_after_ms {
            map.serialize_entry("retryAfterMs", &ms)?;
        }
        for (name, value) in &self.extra {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("strings and numbers serialize");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.kind.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(ms) = self.retry_after_ms {
            // Rounded up: a client that waits this long must not come too early.
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

/// What is told in the log once a second at most: how often it happens is up to clients.
struct Seldom {
    /// The second in which it was told, since 1970.
    told: AtomicU64,
}

static ARCHIVE_READ: Seldom = Seldom::new();
static ARCHIVE_WRITE: Seldom = Seldom::new();

impl Seldom {
    const fn new() -> Seldom {
        Seldom { told: AtomicU64::new(0) }
    }

    /// Whether it is to be told now. Who asks is taken to do so.
    fn is_due(&self) -> bool {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.is_due_at(since.map_or(0, |since| since.as_secs()))
    }

    fn is_due_at(&self, second: u64) -> bool {
        self.told.swap(second, Ordering::Relaxed) != second
    }
}

impl From<node::Refusal> for Problem {
    fn from(refusal: node::Refusal) -> Problem {
        use node::Refusal;
        // How soon a stopped shard or a full disk is looked after: a person does it.
        const BY_HAND_MS: u64 = 10_000;
        let detail = refusal.to_string();
        match refusal {
            Refusal::Overloaded { retry_after_ms } => {
                ProblemKind::Overloaded.because(detail).retry_after_ms(retry_after_ms)
            }
            Refusal::DiskFull => ProblemKind::DiskFull.because(detail).retry_after_ms(BY_HAND_MS),
            Refusal::Stopped { .. } => {
                ProblemKind::Stopped.because(detail).retry_after_ms(BY_HAND_MS)
            }
            Refusal::ShuttingDown => ProblemKind::Unavailable.because(detail).retry_after_ms(1000),
            Refusal::IdempotencyConflict => ProblemKind::IdempotencyConflict.because(detail),
            Refusal::TooLarge { limit_bytes } => {
                ProblemKind::PayloadTooLarge.because(detail).with("limitBytes", limit_bytes)
            }
            Refusal::Archive { .. } | Refusal::ArchiveWrite { .. } => {
                let (does, told) = match refusal {
                    Refusal::Archive { .. } => ("read", &ARCHIVE_READ),
                    _ => ("written to", &ARCHIVE_WRITE),
                };
                // What the archive says is for the operator: it may name files of the server.
                if told.is_due() {
                    tracing::warn!("{detail}");
                }
                let detail = format!("the archive cannot be {does}; the server's log says why");
                ProblemKind::ArchiveUnavailable.because(detail).retry_after_ms(BY_HAND_MS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn slugs_are_unique_and_slugs() {
        let mut seen = HashSet::new();
        for kind in ProblemKind::ALL {
            let slug = kind.slug();
            assert!(seen.insert(slug), "{slug} is there twice");
            assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{slug}");
            assert!(kind.status().is_client_error() || kind.status().is_server_error(), "{slug}");
            assert!(!kind.title().is_empty() && kind.meaning().ends_with('.'), "{slug}");
        }
    }

    #[test]
    fn retry_after_is_in_seconds_rounded_up() {
        let response = ProblemKind::Overloaded.because("full").retry_after_ms(1001).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON);
    }

    #[test]
    fn what_is_told_seldom_is_told_once_in_each_second() {
        let seldom = Seldom::new();
        let told = [5, 5, 5, 6, 6, 9].map(|second| seldom.is_due_at(second));
        assert_eq!(told, [true, false, false, true, false, true]);
    }

    #[test]
    fn extra_members_follow_the_five() {
        let problem = ProblemKind::TooEarly.because("soon").retry_after_ms(5).with("opensAt", "x");
        let text = serde_json::to_string(&problem).expect("serializes");
        assert_eq!(
            text,
            r#"{"type":"too-early","title":"It is too early for this","status":425,"detail":"soon","retryAfterMs":5,"opensAt":"x"}"#
        );
    }
}
