//! Every error of the dialect, in one table.
//!
//! An error has a name in each protocol: the shape of the JSON model, and the older query code
//! that clients still match on. In JSON both are sent, the query code in a header.
//!
//! Names and statuses are those of the service models (`awsQueryCompatible` and the query model
//! before it) and of AWS's page of common errors.

use std::borrow::Cow;

use http::StatusCode;

use crate::output::BatchResultErrorEntry;

/// The namespace of errors that the service model declares.
const MODEL: &str = "com.amazonaws.sqs#";
/// The namespace of errors that every AWS service has.
const COMMON: &str = "com.amazon.coral.service#";

/// Who has to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client.
    Sender,
    /// The server.
    Receiver,
}

impl Fault {
    /// As both protocols spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::Sender => "Sender",
            Fault::Receiver => "Receiver",
        }
    }
}

struct Row {
    namespace: &'static str,
    shape: &'static str,
    code: &'static str,
    status: u16,
    fault: Fault,
}

macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $kind:ident $space:ident $shape:literal $code:literal $status:literal $fault:ident;)+) => {
        /// What went wrong, as far as a program needs to know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $($(#[doc = $doc])+ $kind,)+ }

        impl ErrorKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$kind,)+];

            const fn row(self) -> Row {
                match self {
                    $(ErrorKind::$kind => Row {
                        namespace: $space,
                        shape: $shape,
                        code: $code,
                        status: $status,
                        fault: Fault::$fault,
                    },)+
                }
            }
        }
    };
}

// Kind, namespace, shape in JSON, code in queries, status, whose fault.
errors! {
    /// Two entries of a batch have the same id.
    BatchEntryIdsNotDistinct MODEL "BatchEntryIdsNotDistinct" "AWS.SimpleQueueService.BatchEntryIdsNotDistinct" 400 Sender;
    /// The messages of a batch are too long together.
    BatchRequestTooLong MODEL "BatchRequestTooLong" "AWS.SimpleQueueService.BatchRequestTooLong" 400 Sender;
    /// A batch without entries.
    EmptyBatchRequest MODEL "EmptyBatchRequest" "AWS.SimpleQueueService.EmptyBatchRequest" 400 Sender;
    /// A URL that names no queue.
    InvalidAddress MODEL "InvalidAddress" "InvalidAddress" 404 Sender;
    /// An attribute that a queue does not have, or that cannot be set.
    InvalidAttributeName MODEL "InvalidAttributeName" "InvalidAttributeName" 400 Sender;
    /// A value that an attribute of a queue cannot have.
    InvalidAttributeValue MODEL "InvalidAttributeValue" "InvalidAttributeValue" 400 Sender;
    /// The id of an entry has other characters than it may.
    InvalidBatchEntryId MODEL "InvalidBatchEntryId" "AWS.SimpleQueueService.InvalidBatchEntryId" 400 Sender;
    /// A receipt handle of another version.
    InvalidIdFormat MODEL "InvalidIdFormat" "InvalidIdFormat" 400 Sender;
    /// A message with characters that no message may have.
    InvalidMessageContents MODEL "InvalidMessageContents" "InvalidMessageContents" 400 Sender;
    /// Not signed, or with an older version of signatures.
    InvalidSecurity MODEL "InvalidSecurity" "InvalidSecurity" 403 Sender;
    /// The message is not in flight.
    MessageNotInflight MODEL "MessageNotInflight" "AWS.SimpleQueueService.MessageNotInflight" 400 Sender;
    /// Too many messages in flight, or too many permissions.
    OverLimit MODEL "OverLimit" "OverLimit" 403 Sender;
    /// The queue was purged less than 60 seconds ago.
    PurgeQueueInProgress MODEL "PurgeQueueInProgress" "AWS.SimpleQueueService.PurgeQueueInProgress" 403 Sender;
    /// A queue of this name was deleted less than 60 seconds ago.
    QueueDeletedRecently MODEL "QueueDeletedRecently" "AWS.SimpleQueueService.QueueDeletedRecently" 400 Sender;
    /// There is no such queue.
    QueueDoesNotExist MODEL "QueueDoesNotExist" "AWS.SimpleQueueService.NonExistentQueue" 400 Sender;
    /// There is a queue of this name, with other attributes.
    QueueNameExists MODEL "QueueNameExists" "QueueAlreadyExists" 400 Sender;
    /// A receipt handle that was not given by this queue.
    ReceiptHandleIsInvalid MODEL "ReceiptHandleIsInvalid" "ReceiptHandleIsInvalid" 404 Sender;
    /// Too many requests: the tenant's quota, or the server's.
    RequestThrottled MODEL "RequestThrottled" "RequestThrottled" 403 Sender;
    /// There is no such task, or no such queue behind an ARN.
    ResourceNotFound MODEL "ResourceNotFoundException" "ResourceNotFoundException" 404 Sender;
    /// More entries than a batch may have.
    TooManyEntriesInBatchRequest MODEL "TooManyEntriesInBatchRequest" "AWS.SimpleQueueService.TooManyEntriesInBatchRequest" 400 Sender;
    /// The action does not exist for this kind of queue.
    UnsupportedOperation MODEL "UnsupportedOperation" "AWS.SimpleQueueService.UnsupportedOperation" 400 Sender;

    /// A parameter with a value it cannot have.
    InvalidParameterValue COMMON "InvalidParameterValueException" "InvalidParameterValue" 400 Sender;
    /// Parameters that do not go together.
    InvalidParameterCombination COMMON "InvalidParameterCombinationException" "InvalidParameterCombination" 400 Sender;
    /// A parameter that must be there is not.
    MissingParameter COMMON "MissingRequiredParameterException" "MissingParameter" 400 Sender;
    /// No such action.
    InvalidAction COMMON "UnknownOperationException" "InvalidAction" 400 Sender;
    /// No action is named at all.
    MissingAction COMMON "UnknownOperationException" "MissingAction" 400 Sender;
    /// The body cannot be read.
    MalformedInput COMMON "SerializationException" "MalformedInput" 400 Sender;
    /// The body is larger than the server takes.
    RequestTooLarge COMMON "RequestEntityTooLargeException" "RequestEntityTooLarge" 413 Sender;
    /// The key is good, but not for this.
    AccessDenied COMMON "AccessDeniedException" "AccessDenied" 403 Sender;
    /// The signature is not that of the request.
    SignatureDoesNotMatch COMMON "InvalidSignatureException" "SignatureDoesNotMatch" 403 Sender;
    /// No key has this id.
    InvalidClientTokenId COMMON "UnrecognizedClientException" "InvalidClientTokenId" 403 Sender;
    /// No signature.
    MissingAuthenticationToken COMMON "MissingAuthenticationTokenException" "MissingAuthenticationToken" 403 Sender;
    /// A signature with a part missing or not readable.
    IncompleteSignature COMMON "IncompleteSignatureException" "IncompleteSignature" 400 Sender;
    /// Signed too long ago, or in the future.
    RequestExpired COMMON "RequestExpired" "RequestExpired" 400 Sender;
    /// A defect of the server.
    InternalError COMMON "InternalFailure" "InternalError" 500 Receiver;
    /// The server cannot do it now; the same request may succeed later.
    ServiceUnavailable COMMON "ServiceUnavailableException" "ServiceUnavailable" 503 Receiver;
}

impl ErrorKind {
    /// The `__type` of the JSON protocol.
    #[must_use]
    pub fn json_type(self) -> String {
        let row = self.row();
        format!("{}{}", row.namespace, row.shape)
    }

    /// The shape's name without its namespace, as clients of the JSON protocol know it.
    #[must_use]
    pub const fn shape(self) -> &'static str {
        self.row().shape
    }

    /// The code of the query protocol, also in the entries of a batch.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.row().code
    }

    /// The HTTP status, the same in both protocols.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().status).expect("the table holds valid statuses")
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn fault(self) -> Fault {
        self.row().fault
    }

    /// An error of this kind.
    pub fn because(self, message: impl Into<Cow<'static, str>>) -> SqsError {
        SqsError { kind: self, message: message.into() }
    }
}

/// An error on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .kind.code())]
pub struct SqsError {
    /// What, for programs.
    pub kind: ErrorKind,
    /// What, for people.
    pub message: Cow<'static, str>,
}

impl SqsError {
    /// The queue is not there, in the words that AWS uses.
    #[must_use]
    pub fn no_queue() -> SqsError {
        ErrorKind::QueueDoesNotExist.because("The specified queue does not exist.")
    }

    /// A parameter that must be there is not.
    #[must_use]
    pub fn missing(parameter: &str) -> SqsError {
        ErrorKind::MissingParameter
            .because(format!("The request must contain the parameter {parameter}."))
    }

    /// A parameter has a value it cannot have.
    #[must_use]
    pub fn value(value: impl std::fmt::Display, parameter: &str, reason: &str) -> SqsError {
        ErrorKind::InvalidParameterValue.because(format!(
            "Value {value} for parameter {parameter} is invalid. Reason: {reason}"
        ))
    }

    /// The error as that of one entry of a batch.
    #[must_use]
    pub fn entry(&self, id: impl Into<String>) -> BatchResultErrorEntry {
        BatchResultErrorEntry {
            id: id.into(),
            sender_fault: self.kind.fault() == Fault::Sender,
            code: self.kind.code().to_owned(),
            message: Some(self.message.clone().into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_statuses_are_errors() {
        let mut seen = HashSet::new();
        for kind in ErrorKind::ALL {
            assert!(seen.insert(kind.code()), "{} is there twice", kind.code());
            let (status, is_ours) = (kind.status(), kind.fault() == Fault::Receiver);
            assert_eq!(status.is_server_error(), is_ours, "{kind:?}");
            assert_eq!(status.is_client_error(), !is_ours, "{kind:?}");
        }
    }

    #[test]
    fn an_error_of_an_entry_carries_the_query_code() {
        let entry = SqsError::no_queue().entry("a");
        assert_eq!(entry.code, "AWS.SimpleQueueService.NonExistentQueue");
        assert!(entry.sender_fault);
    }
}
