//! Queues by URL: `{endpoint}/{account}/{queue}`. The account is the tenant's name.

use crate::error::{ErrorKind, SqsError};
use crate::validate::is_queue_name;

/// The two last segments of a queue's URL, which name the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePath<'a> {
    /// The tenant's name.
    pub account: &'a str,
    /// The queue's name.
    pub queue: &'a str,
}

impl<'a> QueuePath<'a> {
    /// Reads a URL or a path. Scheme, host and what is before the two segments are not looked at:
    /// one server has many names, and clients send back the URL that they were given.
    #[must_use]
    pub fn parse(url: &'a str) -> Option<QueuePath<'a>> {
        let path = match url.split_once("://") {
            Some((_, rest)) => rest.split_once('/')?.1,
            None => url.strip_prefix('/')?,
        };
        let path = path.split(['?', '#']).next().unwrap_or(path);
        let (before, queue) = path.strip_suffix('/').unwrap_or(path).rsplit_once('/')?;
        let account = before.rsplit('/').next().unwrap_or(before);
        let is_good = !account.is_empty() && is_queue_name(queue);
        is_good.then_some(QueuePath { account, queue })
    }

    /// The same, as a refusal when it names no queue.
    pub fn of_queue_url(url: &'a str) -> Result<QueuePath<'a>, SqsError> {
        if url.is_empty() {
            return Err(SqsError::missing("QueueUrl"));
        }
        QueuePath::parse(url).ok_or_else(|| {
            ErrorKind::InvalidAddress.because("The address is not valid for this endpoint.")
        })
    }

    /// The URL under an endpoint.
    #[must_use]
    pub fn url(&self, endpoint: &str) -> String {
        format!("{}/{}/{}", endpoint.trim_end_matches('/'), self.account, self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_is_accepted() {
        for url in [
            "http://localhost:8080/acme/orders",
            "https://a.b/sqs/acme/orders",
            "https://a.b/sqs/acme/orders/",
            "/acme/orders",
            "/sqs/acme/orders?Action=PurgeQueue",
        ] {
            let path = QueuePath::parse(url).expect(url);
            assert_eq!((path.account, path.queue), ("acme", "orders"), "{url}");
        }
    }

    #[test]
    fn what_names_no_queue_is_refused() {
        for url in ["", "/", "/sqs", "orders", "http://a", "http://a/orders", "//orders", "/a/o o"]
        {
            assert_eq!(QueuePath::parse(url), None, "{url}");
        }
        let kind = |url| QueuePath::of_queue_url(url).expect_err(url).kind;
        assert_eq!(kind(""), ErrorKind::MissingParameter);
        assert_eq!(kind("/sqs"), ErrorKind::InvalidAddress);
    }

    #[test]
    fn a_url_is_read_as_it_is_written() {
        // Periods also where this dialect makes no queue with them.
        for queue in ["orders.fifo", "orders.v2", ".fifo"] {
            let path = QueuePath { account: "acme", queue };
            let url = path.url("http://localhost:8080/sqs/");
            assert_eq!(url, format!("http://localhost:8080/sqs/acme/{queue}"));
            assert_eq!(QueuePath::parse(&url), Some(path));
        }
    }
}
