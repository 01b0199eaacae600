//! Which attributes a caller asks for.

use crate::error::{ErrorKind, SqsError};

const ALL: &str = "All";

macro_rules! names {
    ($(#[doc = $doc:literal])+ $name:ident: $($(#[doc = $item:literal])+ $variant:ident,)+) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $item])+ $variant,)+ }

        impl $name {
            /// Every one.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// As it is sent.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)+ }
            }

            /// The one that is sent so.
            #[must_use]
            pub fn parse(text: &str) -> Option<$name> {
                match text { $(stringify!($variant) => Some($name::$variant),)+ _ => None }
            }
        }
    };
}

names! {
    /// An attribute of a queue.
    QueueAttributeName:
    /// Messages that can be received.
    ApproximateNumberOfMessages,
    /// Messages that cannot be received yet.
    ApproximateNumberOfMessagesDelayed,
    /// Messages in flight.
    ApproximateNumberOfMessagesNotVisible,
    /// Whether the body stands for a missing deduplication id.
    ContentBasedDeduplication,
    /// When it was made, in seconds since 1970.
    CreatedTimestamp,
    /// `queue` or `messageGroup`.
    DeduplicationScope,
    /// Seconds before a new message can be received.
    DelaySeconds,
    /// Whether it is a FIFO queue.
    FifoQueue,
    /// `perQueue` or `perMessageGroupId`.
    FifoThroughputLimit,
    /// Seconds that a data key is used again.
    KmsDataKeyReusePeriodSeconds,
    /// The key that messages are encrypted with.
    KmsMasterKeyId,
    /// When it was last changed, in seconds since 1970.
    LastModifiedTimestamp,
    /// Bytes of the largest message.
    MaximumMessageSize,
    /// Seconds that a message is kept.
    MessageRetentionPeriod,
    /// Who may do what, as JSON.
    Policy,
    /// See [`crate::QueueArn`].
    QueueArn,
    /// Seconds that receiving waits.
    ReceiveMessageWaitTimeSeconds,
    /// Whose dead letters may come here.
    RedriveAllowPolicy,
    /// Where dead letters go.
    RedrivePolicy,
    /// Whether messages are encrypted with a key of the service.
    SqsManagedSseEnabled,
    /// Seconds that a received message stays hidden.
    VisibilityTimeout,
}

names! {
    /// A system attribute of a message.
    MessageSystemName:
    /// The trace that it was sent with.
    AWSTraceHeader,
    /// When it was first received, in milliseconds since 1970.
    ApproximateFirstReceiveTimestamp,
    /// How often it was received.
    ApproximateReceiveCount,
    /// The queue whose dead letter it is.
    DeadLetterQueueSourceArn,
    /// As it was sent.
    MessageDeduplicationId,
    /// As it was sent.
    MessageGroupId,
    /// Who sent it.
    SenderId,
    /// When it was sent, in milliseconds since 1970.
    SentTimestamp,
    /// Its place in a FIFO queue.
    SequenceNumber,
}

/// The attributes that `GetQueueAttributes` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueAttributeSelection(Vec<QueueAttributeName>);

impl QueueAttributeSelection {
    /// From `AttributeNames`. No names ask for nothing.
    pub fn parse(names: &[String]) -> Result<QueueAttributeSelection, SqsError> {
        if names.iter().any(|name| name == ALL) {
            return Ok(QueueAttributeSelection(QueueAttributeName::ALL.to_vec()));
        }
        let parse = |name: &String| QueueAttributeName::parse(name).ok_or_else(|| unknown(name));
        names.iter().map(parse).collect::<Result<_, _>>().map(QueueAttributeSelection)
    }

    /// Whether this one is asked for.
    #[must_use]
    pub fn has(&self, name: QueueAttributeName) -> bool {
        self.0.contains(&name)
    }
}

/// The system attributes that `ReceiveMessage` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageSystemSelection(Vec<MessageSystemName>);

impl MessageSystemSelection {
    /// From `AttributeNames` and its newer name `MessageSystemAttributeNames`, together.
    ///
    /// The model of `AttributeNames` has the attributes of queues: they are accepted and give
    /// nothing.
    pub fn parse(older: &[String], newer: &[String]) -> Result<MessageSystemSelection, SqsError> {
        let mut names = Vec::new();
        for name in older.iter().chain(newer) {
            match MessageSystemName::parse(name) {
                _ if name == ALL => names.extend(MessageSystemName::ALL),
                Some(name) => names.push(name),
                None if QueueAttributeName::parse(name).is_some() => {}
                None => return Err(unknown(name)),
            }
        }
        Ok(MessageSystemSelection(names))
    }

    /// Whether this one is asked for.
    #[must_use]
    pub fn has(&self, name: MessageSystemName) -> bool {
        self.0.contains(&name)
    }
}

pub(crate) fn unknown(name: &str) -> SqsError {
    let shown: String = name.chars().take(100).collect();
    ErrorKind::InvalidAttributeName.because(format!("Unknown Attribute {shown}."))
}

/// Whether `MessageAttributeNames` ask for an attribute: `All`, `*`, `.*`, a name, or a beginning
/// followed by `.*`. AWS takes `bar.*` for all names that begin with `bar`, period or not.
#[must_use]
pub fn wants_message_attribute(names: &[String], attribute: &str) -> bool {
    names.iter().any(|name| match name.strip_suffix(".*") {
        Some(beginning) => attribute.starts_with(beginning),
        None => name == ALL || name == "*" || name == attribute,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn message_attributes_are_chosen_by_name_beginning_or_all() {
        let check = |filter: &[&str], expected: &[&str]| {
            let all = ["General", "Hello", "Help.Me"];
            let filter = names(filter);
            let found = all.into_iter().filter(|name| wants_message_attribute(&filter, name));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{filter:?}");
        };
        check(&[], &[]);
        check(&["All"], &["General", "Hello", "Help.Me"]);
        check(&[".*"], &["General", "Hello", "Help.Me"]);
        check(&["*"], &["General", "Hello", "Help.Me"]);
        check(&["Hel.*"], &["Hello", "Help.Me"]);
        check(&["Help.*"], &["Help.Me"]);
        check(&["Hello", "Foo", "Help"], &["Hello"]);
    }

    #[test]
    fn system_attributes_come_under_both_names() {
        let older = names(&["SentTimestamp", "VisibilityTimeout"]);
        let selection = MessageSystemSelection::parse(&older, &names(&["SenderId"])).expect("good");
        assert!(selection.has(MessageSystemName::SentTimestamp));
        assert!(selection.has(MessageSystemName::SenderId));
        assert!(!selection.has(MessageSystemName::SequenceNumber));
        let all = MessageSystemSelection::parse(&[], &names(&["All"])).expect("good");
        assert!(MessageSystemName::ALL.iter().all(|name| all.has(*name)));
        let error = MessageSystemSelection::parse(&names(&["Nope"]), &[]).expect_err("unknown");
        assert_eq!(error.kind, ErrorKind::InvalidAttributeName);
    }

    #[test]
    fn queue_attributes_are_known_or_refused() {
        let selection = QueueAttributeSelection::parse(&names(&["QueueArn"])).expect("good");
        assert!(selection.has(QueueAttributeName::QueueArn));
        assert!(!selection.has(QueueAttributeName::Policy));
        assert!(QueueAttributeSelection::parse(&names(&["queuearn"])).is_err());
        assert!(
            !QueueAttributeSelection::parse(&[]).expect("good").has(QueueAttributeName::Policy)
        );
    }
}
