//! Answers are, byte for byte, those that real clients were seen to understand.
//!
//! `UPDATE_GOLDEN=1` writes the file again; see `golden/README.md` for what to run after that.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqs::error::Fault;
use sqs::output as out;
use sqs::{ActionName, ErrorKind, Output, Protocol};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/answers.json");
const REQUEST_ID: &str = "request-1";

#[derive(Serialize, Deserialize)]
struct Row {
    action: String,
    output: Value,
}

#[derive(Serialize)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn of(response: &Response<Bytes>) -> Answer {
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().expect("text").to_owned())
        };
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().iter().map(header).collect(),
            body: String::from_utf8(response.body().to_vec()).expect("UTF-8"),
        }
    }
}

#[derive(Serialize)]
struct OutputAnswer {
    action: String,
    output: Value,
    json: Answer,
    query: Answer,
}

#[derive(Serialize)]
struct ErrorAnswer {
    code: &'static str,
    shape: &'static str,
    fault: &'static str,
    message: &'static str,
    json: Answer,
    query: Answer,
}

#[derive(Serialize)]
struct Document {
    outputs: Vec<OutputAnswer>,
    errors: Vec<ErrorAnswer>,
}

fn output(row: &Row) -> Output {
    fn read<T: for<'de> Deserialize<'de> + Into<Output>>(row: &Row) -> Output {
        serde_json::from_value::<T>(row.output.clone()).expect(&row.action).into()
    }
    let name = ActionName::parse(&row.action).expect("an action");
    match name {
        ActionName::CancelMessageMoveTask => read::<out::CancelMessageMoveTaskResult>(row),
        ActionName::ChangeMessageVisibilityBatch => {
            read::<out::ChangeMessageVisibilityBatchResult>(row)
        }
        ActionName::CreateQueue => read::<out::CreateQueueResult>(row),
        ActionName::DeleteMessageBatch => read::<out::DeleteMessageBatchResult>(row),
        ActionName::GetQueueAttributes => read::<out::GetQueueAttributesResult>(row),
        ActionName::GetQueueUrl => read::<out::GetQueueUrlResult>(row),
        ActionName::ListDeadLetterSourceQueues => {
            read::<out::ListDeadLetterSourceQueuesResult>(row)
        }
        ActionName::ListMessageMoveTasks => read::<out::ListMessageMoveTasksResult>(row),
        ActionName::ListQueueTags => read::<out::ListQueueTagsResult>(row),
        ActionName::ListQueues => read::<out::ListQueuesResult>(row),
        ActionName::ReceiveMessage => read::<out::ReceiveMessageResult>(row),
        ActionName::SendMessage => read::<out::SendMessageResult>(row),
        ActionName::SendMessageBatch => read::<out::SendMessageBatchResult>(row),
        ActionName::StartMessageMoveTask => read::<out::StartMessageMoveTaskResult>(row),
        other => Output::Nothing(other),
    }
}

fn output_answer(row: Row) -> OutputAnswer {
    let output = output(&row);
    assert_eq!(output.action().as_str(), row.action);
    let json = Answer::of(&Protocol::Json.answer(&output, REQUEST_ID));
    let body: Value = serde_json::from_str(&json.body).expect("JSON");
    assert_eq!(body, row.output, "{}", row.action);
    let query = Answer::of(&Protocol::Query.answer(&output, REQUEST_ID));
    OutputAnswer { action: row.action, output: row.output, json, query }
}

fn error_answer(kind: ErrorKind) -> ErrorAnswer {
    let message = "What is <wrong> & why: \"é\"";
    let error = kind.because(message);
    ErrorAnswer {
        code: kind.code(),
        shape: kind.shape(),
        fault: if kind.fault() == Fault::Sender { "Sender" } else { "Receiver" },
        message,
        json: Answer::of(&Protocol::Json.refuse(&error, REQUEST_ID)),
        query: Answer::of(&Protocol::Query.refuse(&error, REQUEST_ID)),
    }
}

#[test]
fn answers_are_those_that_clients_understand() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("golden/outputs.json")).expect("well-formed");
    let document = Document {
        outputs: rows.into_iter().map(output_answer).collect(),
        errors: ErrorKind::ALL.iter().copied().map(error_answer).collect(),
    };
    let text = serde_json::to_string_pretty(&document).expect("serializes") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PATH, &text).expect("written");
    }
    let golden = std::fs::read_to_string(PATH).expect("is there");
    assert!(text == golden, "answers have changed: see tests/golden/README.md");
}

#[test]
fn an_error_names_itself_in_both_protocols() {
    let error = sqs::SqsError::no_queue();
    let response = Protocol::Json.refuse(&error, REQUEST_ID);
    assert_eq!(response.status(), 400);
    let code = &response.headers()["x-amzn-query-error"];
    assert_eq!(code, "AWS.SimpleQueueService.NonExistentQueue;Sender");
    assert_eq!(
        response.body(),
        r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}"#
    );
    let response = Protocol::Query.refuse(&error, REQUEST_ID);
    let body = std::str::from_utf8(response.body()).expect("UTF-8");
    assert!(body.contains("<Code>AWS.SimpleQueueService.NonExistentQueue</Code>"), "{body}");
    let words = "<Message>The specified queue does not exist for this wsdl version.</Message>";
    assert!(body.contains(words), "{body}");
}

#[test]
fn a_status_is_the_same_in_both_protocols() {
    for (kind, status) in [
        (ErrorKind::PurgeQueueInProgress, 403),
        (ErrorKind::OverLimit, 403),
        (ErrorKind::ReceiptHandleIsInvalid, 404),
        (ErrorKind::QueueDoesNotExist, 400),
    ] {
        for protocol in [Protocol::Json, Protocol::Query] {
            assert_eq!(protocol.refuse(&kind.because(""), REQUEST_ID).status(), status, "{kind:?}");
        }
    }
}

#[test]
fn a_request_id_that_no_header_holds_is_left_out() {
    let response = Protocol::Json.answer(&Output::Nothing(ActionName::DeleteQueue), "a\nb");
    assert_eq!(response.headers().get("x-amzn-requestid"), None);
    assert_eq!(response.body(), "{}");
}
