//! Queues by ARN: `arn:aws:sqs:{region}:{account}:{queue}`. The account is the tenant's name.

use std::fmt;
use std::str::FromStr;

use crate::error::{ErrorKind, SqsError};
use crate::validate::is_queue_name;

/// The ARN of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueArn {
    /// Any; it says nothing here, but is given back as it came.
    pub region: String,
    /// The tenant's name.
    pub account: String,
    /// The queue's name.
    pub queue: String,
}

impl fmt::Display for QueueArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arn:aws:sqs:{}:{}:{}", self.region, self.account, self.queue)
    }
}

impl FromStr for QueueArn {
    type Err = SqsError;

    /// Any partition of AWS is accepted, as scripts made for them name it.
    fn from_str(text: &str) -> Result<QueueArn, SqsError> {
        let mut parts = text.splitn(6, ':');
        let mut next = || parts.next().unwrap_or_default();
        let (arn, partition, service) = (next(), next(), next());
        let (region, account, queue) = (next(), next(), next());
        let is_aws = arn == "arn" && service == "sqs";
        let is_partition = partition == "aws" || partition.starts_with("aws-");
        if !is_aws || !is_partition || account.is_empty() || !is_queue_name(queue) {
            return Err(ErrorKind::InvalidParameterValue
                .because("The ARN must be arn:aws:sqs:{region}:{account}:{queue}."));
        }
        Ok(QueueArn {
            region: region.to_owned(),
            account: account.to_owned(),
            queue: queue.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_is_read_as_it_is_written() {
        for text in [
            "arn:aws:sqs:us-east-1:acme:orders",
            "arn:aws:sqs::000000000000:o.fifo",
            "arn:aws:sqs:us-east-1:acme:orders.v2",
        ] {
            assert_eq!(text.parse::<QueueArn>().expect(text).to_string(), text);
        }
        assert!("arn:aws-cn:sqs:cn-north-1:acme:orders".parse::<QueueArn>().is_ok());
    }

    #[test]
    fn another_arn_is_refused() {
        for text in [
            "",
            "orders",
            "arn:aws:sns:us-east-1:acme:orders",
            "arn:aws:sqs:us-east-1::orders",
            "arn:aws:sqs:us-east-1:acme:",
            "arn:aws:sqs:us-east-1:acme:or:ders",
            "urn:aws:sqs:us-east-1:acme:orders",
        ] {
            assert!(text.parse::<QueueArn>().is_err(), "{text}");
        }
    }
}
