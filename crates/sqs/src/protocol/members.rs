//! How the query protocol spells the lists and maps of the model.
//!
//! Scalars have the same name in both protocols. A list of the model is flattened into members
//! with the name of its element, a map into elements with a key and a value:
//!
//! ```text
//!   TagKeys: ["a", "b"]         TagKey.1=a&TagKey.2=b
//!   Attributes: {"Policy": ""}  Attribute.1.Name=Policy&Attribute.1.Value=
//! ```

/// How a member of the model is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    List,
    /// With the names of key and value.
    Map(&'static str, &'static str),
    /// A number; everything else is text.
    Number,
}

use Shape::{List, Map, Number};

const NAME: Shape = Map("Name", "Value");
const KEY: Shape = Map("Key", "Value");

/// Of inputs: name on the wire, name in the model, shape.
pub(super) const INPUTS: &[(&str, &str, Shape)] = &[
    ("AWSAccountId", "AWSAccountIds", List),
    ("ActionName", "Actions", List),
    ("Attribute", "Attributes", NAME),
    ("AttributeName", "AttributeNames", List),
    ("BinaryListValue", "BinaryListValues", List),
    ("ChangeMessageVisibilityBatchRequestEntry", "Entries", List),
    ("DelaySeconds", "DelaySeconds", Number),
    ("DeleteMessageBatchRequestEntry", "Entries", List),
    ("MaxNumberOfMessages", "MaxNumberOfMessages", Number),
    ("MaxNumberOfMessagesPerSecond", "MaxNumberOfMessagesPerSecond", Number),
    ("MaxResults", "MaxResults", Number),
    ("MessageAttribute", "MessageAttributes", NAME),
    ("MessageAttributeName", "MessageAttributeNames", List),
    ("MessageSystemAttribute", "MessageSystemAttributes", NAME),
    ("MessageSystemAttributeName", "MessageSystemAttributeNames", List),
    ("SendMessageBatchRequestEntry", "Entries", List),
    ("StringListValue", "StringListValues", List),
    ("Tag", "Tags", KEY),
    ("TagKey", "TagKeys", List),
    ("VisibilityTimeout", "VisibilityTimeout", Number),
    ("WaitTimeSeconds", "WaitTimeSeconds", Number),
];

/// Of outputs: name on the wire, name in the model, shape. `Successful` is not here, because the
/// name of its elements is that of the action.
pub(super) const OUTPUTS: &[(&str, &str, Shape)] = &[
    ("Attribute", "Attributes", NAME),
    ("BatchResultErrorEntry", "Failed", List),
    ("BinaryListValue", "BinaryListValues", List),
    ("ListMessageMoveTasksResultEntry", "Results", List),
    ("Message", "Messages", List),
    ("MessageAttribute", "MessageAttributes", NAME),
    ("QueueUrl", "QueueUrls", List),
    ("QueueUrl", "queueUrls", List),
    ("StringListValue", "StringListValues", List),
    ("Tag", "Tags", KEY),
];
