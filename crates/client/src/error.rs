//! What can go wrong, in one enum.

use std::fmt;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// A refusal by the server, as `application/problem+json` says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Problem {
    /// The stable slug that programs match on: `not-found`, `quota-exceeded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One line for people, the same for every problem of the kind.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Which field, which limit, which thing.
    #[serde(default)]
    pub detail: String,
    /// When trying again can help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The quota that is used up, if it is one: `maxInflight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
}

impl Problem {
    /// Whether it is of this kind.
    #[must_use]
    pub fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// Whether what it refuses may have been carried out all the same: a server that stops, or whose
    /// disk fails, may have written what it was sent. One that is busy has not.
    pub(crate) fn may_be_done(&self) -> bool {
        self.status >= 500 && self.status != 507 && !self.is("overloaded")
    }

    /// Whether the same is worth another try in a while.
    pub(crate) fn is_tried_again(&self) -> bool {
        matches!(self.status, 429 | 503 | 507)
    }

    /// What an answer that is no problem, but no success either, amounts to: something between us
    /// and the server gave it.
    pub(crate) fn of_status(status: StatusCode, text: &str) -> Problem {
        const SHOWN_CHARS_MAX: usize = 200;
        Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("unknown status").to_owned(),
            status: status.as_u16(),
            detail: text.trim().chars().take(SHOWN_CHARS_MAX).collect(),
            retry_after_ms: None,
            quota: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.detail.is_empty() { &self.title } else { &self.detail };
        write!(f, "{what} ({}, {})", self.status, self.kind)
    }
}

impl std::error::Error for Problem {}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused, and says why.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The server was not reached: nothing was done.
    #[error("cannot reach {server}: {why}")]
    Unreachable {
        /// Whom we tried to reach.
        server: String,
        /// The innermost cause.
        why: String,
    },
    /// The connection broke, or the answer did not come in time. The call may have been carried
    /// out or not; it was tried again as far as that is safe.
    #[error("no answer from {server}: {why}")]
    Cut {
        /// Whom we waited for.
        server: String,
        /// The innermost cause.
        why: String,
    },
    /// A lease was settled, the answer got lost, and the second try was refused: either the first
    /// one did it, or the lease had ended before. Nobody can say which.
    #[error("whether the lease was settled is not known: {0}")]
    Unknown(Box<Problem>),
    /// The answer is not what the API promises.
    #[error("the server's answer makes no sense: {0}")]
    Answer(#[source] serde_json::Error),
    /// A body could not be written as JSON, or read as the type that was asked for.
    #[error("body: {0}")]
    Body(#[source] serde_json::Error),
    /// A setting of the client cannot be: its URL, its key, its certificates.
    #[error("{0}")]
    Setting(String),
}

impl Error {
    /// The server's refusal, if that is what it is.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Problem(problem) | Error::Unknown(problem) => Some(problem),
            _ => None,
        }
    }

    /// Whether it is a refusal of this kind: `not-found`, `conflict`.
    #[must_use]
    pub fn is(&self, kind: &str) -> bool {
        matches!(self, Error::Problem(problem) if problem.is(kind))
    }

    /// Whether the same call may do better later: the server was away, busy or full.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Error::Problem(problem) => {
                matches!(problem.status, 408 | 425 | 429) || problem.status >= 500
            }
            Error::Unreachable { .. } | Error::Cut { .. } => true,
            _ => false,
        }
    }
}

impl Error {
    /// Whether the call may have been carried out all the same.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Error::Cut { .. } => true,
            error => error.problem().is_some_and(Problem::may_be_done),
        }
    }

    /// What it says of a lease that an earlier try may have settled.
    pub(crate) fn after_a_cut(self) -> Error {
        match self {
            Error::Problem(problem) if problem.status == 409 => Error::Unknown(problem),
            other => other,
        }
    }

    /// Whether a receive was refused because as many messages as may be are leased.
    pub(crate) fn is_of_inflight(&self) -> bool {
        let quota = self.problem().and_then(|problem| problem.quota.as_deref());
        quota == Some("maxInflight")
    }

    /// For how long the server asks to be left alone.
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        self.problem().and_then(|problem| problem.retry_after_ms)
    }

    /// The same error for another caller of the same request.
    pub(crate) fn for_another(&self) -> Error {
        let same = |error: &serde_json::Error| serde::de::Error::custom(error);
        match self {
            Error::Problem(problem) => Error::Problem(problem.clone()),
            Error::Unreachable { server, why } => {
                Error::Unreachable { server: server.clone(), why: why.clone() }
            }
            Error::Cut { server, why } => Error::Cut { server: server.clone(), why: why.clone() },
            Error::Unknown(problem) => Error::Unknown(problem.clone()),
            Error::Answer(error) => Error::Answer(same(error)),
            Error::Body(error) => Error::Body(same(error)),
            Error::Setting(what) => Error::Setting(what.clone()),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        Error::Problem(Box::new(problem))
    }
}

/// The end of a chain of causes: "connection refused" rather than "client error (Connect)".
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_with_what_it_has() {
        let text = r#"{"type":"overloaded","title":"busy","status":503,"detail":"full","retryAfterMs":5,"extra":1}"#;
        let problem: Problem = serde_json::from_str(text).expect("a problem");
        assert_eq!((problem.status, problem.retry_after_ms), (503, Some(5)));
        assert_eq!(problem.to_string(), "full (503, overloaded)");
        assert!(Error::from(problem).is_passing());
    }

    #[test]
    fn an_answer_of_something_else_is_shown_shortened() {
        let problem = Problem::of_status(StatusCode::BAD_GATEWAY, &"x".repeat(999));
        assert_eq!((problem.status, problem.detail.len()), (502, 200));
    }
}
