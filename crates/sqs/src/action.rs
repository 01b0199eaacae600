//! The table of actions.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{input, output};

macro_rules! actions {
    ($($name:ident $(-> $output:ident)?;)+) => {
        /// The name of an action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ActionName { $(
            #[doc = concat!("See [`input::", stringify!($name), "`].")]
            $name,
        )+ }

        impl ActionName {
            /// Every name, in the order of the alphabet.
            pub const ALL: &'static [ActionName] = &[$(ActionName::$name,)+];

            /// As it is sent.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(ActionName::$name => stringify!($name),)+ }
            }

            /// The action that is sent so. Case matters.
            #[must_use]
            pub fn parse(text: &str) -> Option<ActionName> {
                match text { $(stringify!($name) => Some(ActionName::$name),)+ _ => None }
            }

            pub(crate) fn read(self, json: &[u8]) -> serde_json::Result<Action> {
                // A list would be read as the fields, one after the other.
                if json.trim_ascii_start().first() == Some(&b'[') {
                    return Err(serde::de::Error::custom("the body is an array, not an object"));
                }
                match self {
                    $(ActionName::$name => serde_json::from_slice(json).map(Action::$name),)+
                }
            }

            pub(crate) fn read_value(self, value: Value) -> serde_json::Result<Action> {
                match self {
                    $(ActionName::$name => serde_json::from_value(value).map(Action::$name),)+
                }
            }
        }

        /// An action with its input.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Action { $(
            #[doc = concat!("See [`input::", stringify!($name), "`].")]
            $name(input::$name),
        )+ }

        impl Action {
            /// Which one.
            #[must_use]
            pub const fn name(&self) -> ActionName {
                match self { $(Action::$name(_) => ActionName::$name,)+ }
            }
        }

        $($(impl From<output::$output> for Output {
            fn from(output: output::$output) -> Output {
                Output::$name(output)
            }
        })?)+
    };
}

actions! {
    AddPermission;
    CancelMessageMoveTask -> CancelMessageMoveTaskResult;
    ChangeMessageVisibility;
    ChangeMessageVisibilityBatch -> ChangeMessageVisibilityBatchResult;
    CreateQueue -> CreateQueueResult;
    DeleteMessage;
    DeleteMessageBatch -> DeleteMessageBatchResult;
    DeleteQueue;
    GetQueueAttributes -> GetQueueAttributesResult;
    GetQueueUrl -> GetQueueUrlResult;
    ListDeadLetterSourceQueues -> ListDeadLetterSourceQueuesResult;
    ListMessageMoveTasks -> ListMessageMoveTasksResult;
    ListQueueTags -> ListQueueTagsResult;
    ListQueues -> ListQueuesResult;
    PurgeQueue;
    ReceiveMessage -> ReceiveMessageResult;
    RemovePermission;
    SendMessage -> SendMessageResult;
    SendMessageBatch -> SendMessageBatchResult;
    SetQueueAttributes;
    StartMessageMoveTask -> StartMessageMoveTaskResult;
    TagQueue;
    UntagQueue;
}

/// What an action gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Output {
    /// Of an action without output.
    Nothing(#[serde(serialize_with = "nothing")] ActionName),
    /// Messages moved until it was stopped.
    CancelMessageMoveTask(output::CancelMessageMoveTaskResult),
    /// Entry by entry.
    ChangeMessageVisibilityBatch(output::ChangeMessageVisibilityBatchResult),
    /// The queue's URL.
    CreateQueue(output::CreateQueueResult),
    /// Entry by entry.
    DeleteMessageBatch(output::DeleteMessageBatchResult),
    /// Those that were asked for.
    GetQueueAttributes(output::GetQueueAttributesResult),
    /// The queue's URL.
    GetQueueUrl(output::GetQueueUrlResult),
    /// A page of URLs.
    ListDeadLetterSourceQueues(output::ListDeadLetterSourceQueuesResult),
    /// The latest tasks.
    ListMessageMoveTasks(output::ListMessageMoveTasksResult),
    /// All tags.
    ListQueueTags(output::ListQueueTagsResult),
    /// A page of URLs.
    ListQueues(output::ListQueuesResult),
    /// The messages.
    ReceiveMessage(output::ReceiveMessageResult),
    /// Id and checksums.
    SendMessage(output::SendMessageResult),
    /// Entry by entry.
    SendMessageBatch(output::SendMessageBatchResult),
    /// The task's handle.
    StartMessageMoveTask(output::StartMessageMoveTaskResult),
}

fn nothing<S: Serializer>(_: &ActionName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_map(Some(0))?.end()
}

impl Output {
    /// The action that gave it.
    #[must_use]
    pub const fn action(&self) -> ActionName {
        match self {
            Output::Nothing(name) => *name,
            Output::CancelMessageMoveTask(_) => ActionName::CancelMessageMoveTask,
            Output::ChangeMessageVisibilityBatch(_) => ActionName::ChangeMessageVisibilityBatch,
            Output::CreateQueue(_) => ActionName::CreateQueue,
            Output::DeleteMessageBatch(_) => ActionName::DeleteMessageBatch,
            Output::GetQueueAttributes(_) => ActionName::GetQueueAttributes,
            Output::GetQueueUrl(_) => ActionName::GetQueueUrl,
            Output::ListDeadLetterSourceQueues(_) => ActionName::ListDeadLetterSourceQueues,
            Output::ListMessageMoveTasks(_) => ActionName::ListMessageMoveTasks,
            Output::ListQueueTags(_) => ActionName::ListQueueTags,
            Output::ListQueues(_) => ActionName::ListQueues,
            Output::ReceiveMessage(_) => ActionName::ReceiveMessage,
            Output::SendMessage(_) => ActionName::SendMessage,
            Output::SendMessageBatch(_) => ActionName::SendMessageBatch,
            Output::StartMessageMoveTask(_) => ActionName::StartMessageMoveTask,
        }
    }
}
