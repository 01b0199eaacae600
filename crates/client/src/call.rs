//! A request, before it is sent.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Serialize;
use tokio::time::Instant;

use crate::error::Error;
use crate::retry::Repeat;

/// A request, before it is sent.
#[derive(Clone, Debug)]
#[must_use]
pub struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) keyed: bool,
    pub(crate) repeat: Repeat,
    pub(crate) wait: Duration,
    pub(crate) deadline: Option<Instant>,
    /// It is tried once, for so long, whatever the settings of the client say.
    pub(crate) once: Option<Duration>,
    /// Tries that failed before, which count.
    pub(crate) failures: u32,
}

impl Call {
    /// A call of a path, given in segments: each is escaped as it must be.
    ///
    /// GET, PUT and DELETE may be carried out twice, so they are tried again freely.
    pub fn new<'a>(method: Method, segments: impl IntoIterator<Item = &'a str>) -> Call {
        let mut path = String::new();
        for segment in segments {
            path.push('/');
            escape(segment, &mut path);
        }
        let repeat = match method {
            Method::DELETE => Repeat::Removing,
            _ if method.is_idempotent() => Repeat::Freely,
            _ => Repeat::IfNotDone,
        };
        Call {
            method,
            path,
            body: None,
            keyed: false,
            repeat,
            wait: Duration::ZERO,
            deadline: None,
            once: None,
            failures: 0,
        }
    }

    /// Adds a verb: `:ack`. It is no part of a segment, where a colon is escaped.
    pub fn verb(mut self, verb: &str) -> Call {
        self.path.push(':');
        escape(verb, &mut self.path);
        self
    }

    /// Adds parameters; those without a value are left out.
    pub fn query(mut self, pairs: &[(&str, Option<String>)]) -> Call {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in pairs {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let query = query.finish();
        if !query.is_empty() {
            self.path.push(if self.path.contains('?') { '&' } else { '?' });
            self.path.push_str(&query);
        }
        self
    }

    /// Sends this as JSON.
    ///
    /// # Errors
    /// [`Error::Body`] for what cannot be JSON.
    pub fn json<T: Serialize + ?Sized>(mut self, body: &T) -> Result<Call, Error> {
        self.body = Some(serde_json::to_vec(body).map_err(Error::Body)?.into());
        Ok(self)
    }

    /// Carries an `Idempotency-Key`, the same in each try: it is done once however often it is
    /// tried. Only for calls whose description says that they take one.
    pub fn keyed(mut self) -> Call {
        self.keyed = true;
        self.repeat = Repeat::Freely;
        self
    }

    /// May be carried out twice, so it is tried again after a lost answer.
    pub fn repeatable(mut self) -> Call {
        self.repeat = Repeat::Freely;
        self
    }

    pub(crate) fn settling(mut self) -> Call {
        self.repeat = Repeat::Settling;
        self
    }

    /// The server may take so much longer to answer.
    pub fn wait(mut self, wait: Duration) -> Call {
        self.wait = wait;
        self
    }

    pub(crate) fn until(mut self, deadline: Instant) -> Call {
        self.deadline = Some(deadline);
        self
    }

    /// Is tried once, for so long.
    pub(crate) fn once(mut self, limit: Duration) -> Call {
        self.once = Some(limit);
        self
    }

    pub(crate) fn after(mut self, failures: u32) -> Call {
        self.failures = failures;
        self
    }
}

/// Escapes a segment of a path: all but what RFC 3986 lets stand everywhere.
fn escape(segment: &str, into: &mut String) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            into.push(char::from(byte));
        } else {
            into.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_escaped() {
        let call = Call::new(Method::GET, ["v1", "queues", "a/b:ü", "messages"])
            .verb("ack")
            .query(&[("prefix", Some("a&b".to_owned())), ("cursor", None)]);
        assert_eq!(call.path, "/v1/queues/a%2Fb%3A%C3%BC/messages:ack?prefix=a%26b");
    }
}
