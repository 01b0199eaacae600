//! What AWS documents as a limit is one, at its very edge.

use serde_json::{Value, json};
use sqs::input::{SendMessageBatch, SendMessageBatchRequestEntry};
use sqs::protocol::TARGET;
use sqs::value::{Blob, MessageAttributeValue};
use sqs::{Action, ErrorKind, Protocol, validate};

fn action(name: &str, input: &Value) -> Action {
    let mut headers = http::HeaderMap::new();
    headers.insert(TARGET, format!("AmazonSQS.{name}").parse().expect("a value"));
    let body = input.to_string();
    Protocol::Json.decode(&headers, &http::Uri::from_static("/"), body.as_bytes()).expect(name)
}

/// Checks an action on the queue `/a/q`.
fn check(name: &str, mut input: Value, expected: Option<ErrorKind>) {
    if !["CreateQueue", "ListQueues", "GetQueueUrl"].contains(&name) {
        input["QueueUrl"] = json!("/a/q");
    }
    let found = validate::action(&action(name, &input)).err();
    let shown: String = input.to_string().chars().take(200).collect();
    assert_eq!(found.as_ref().map(|error| error.kind), expected, "{name} {shown} {found:?}");
}

fn good(name: &str, input: Value) {
    check(name, input, None);
}

fn value(name: &str, input: Value) {
    check(name, input, Some(ErrorKind::InvalidParameterValue));
}

fn send(mut input: Value) -> Value {
    if input.get("MessageBody").is_none() {
        input["MessageBody"] = json!("x");
    }
    input
}

#[test]
fn names_of_queues() {
    for name in ["a", "A-z_0", &"q".repeat(80), &format!("{}.fifo", "q".repeat(75))] {
        let is_fifo = name.ends_with(".fifo");
        let attributes = if is_fifo { json!({"FifoQueue": "true"}) } else { json!({}) };
        good("CreateQueue", json!({"QueueName": name, "Attributes": attributes}));
    }
    for name in ["a b", "a.b", "ä", "a/b", ".fifo", &"q".repeat(81), "q.FIFO"] {
        value("CreateQueue", json!({"QueueName": name}));
    }
    let long = format!("{}.fifo", "q".repeat(76));
    value("CreateQueue", json!({"QueueName": long, "Attributes": {"FifoQueue": "true"}}));
    check("CreateQueue", json!({"QueueName": ""}), Some(ErrorKind::MissingParameter));
    // A name and the attribute go together.
    value("CreateQueue", json!({"QueueName": "q.fifo"}));
    value("CreateQueue", json!({"QueueName": "q", "Attributes": {"FifoQueue": "true"}}));
    good("CreateQueue", json!({"QueueName": "q", "Attributes": {"FifoQueue": "false"}}));
}

#[test]
fn numbers_of_requests() {
    for (name, member, low, high) in [
        ("SendMessage", "DelaySeconds", 0, 900),
        ("ReceiveMessage", "VisibilityTimeout", 0, 43_200),
        ("ReceiveMessage", "WaitTimeSeconds", 0, 20),
        ("ReceiveMessage", "MaxNumberOfMessages", 1, 10),
        ("ListQueues", "MaxResults", 1, 1000),
        ("ListDeadLetterSourceQueues", "MaxResults", 1, 1000),
    ] {
        let input = |number: i32| match name {
            "SendMessage" => send(json!({ member: number })),
            _ => json!({ member: number }),
        };
        good(name, input(low));
        good(name, input(high));
        value(name, input(low - 1));
        value(name, input(high + 1));
    }
    let change = |seconds: i32| json!({"ReceiptHandle": "h", "VisibilityTimeout": seconds});
    good("ChangeMessageVisibility", change(43_200));
    value("ChangeMessageVisibility", change(43_201));
    let arn = "arn:aws:sqs:us-east-1:acme:dead";
    good("ListMessageMoveTasks", json!({"SourceArn": arn, "MaxResults": 10}));
    value("ListMessageMoveTasks", json!({"SourceArn": arn, "MaxResults": 11}));
    value("ListMessageMoveTasks", json!({"SourceArn": "dead"}));
    let rate = |rate: i32| json!({"SourceArn": arn, "MaxNumberOfMessagesPerSecond": rate});
    good("StartMessageMoveTask", rate(500));
    value("StartMessageMoveTask", rate(501));
}

#[test]
fn sizes_of_messages() {
    let limit = 256 * 1024;
    check("SendMessage", json!({"MessageBody": ""}), Some(ErrorKind::MissingParameter));
    // Their queue says how large they may be.
    good("SendMessage", json!({"MessageBody": "x".repeat(limit + 1)}));
    assert!(validate::size(limit, limit).is_ok());
    let refused = validate::size(limit + 1, limit).expect_err("too large");
    assert_eq!(refused.kind, ErrorKind::InvalidParameterValue);
    // Name, type and value of attributes count: 1 + 6 + 2.
    let value = MessageAttributeValue {
        data_type: "Binary".to_owned(),
        binary_value: Some(Blob(vec![0, 1].into())),
        ..MessageAttributeValue::default()
    };
    let attributes = [("a".to_owned(), value)].into_iter().collect();
    assert_eq!(validate::message_bytes("xyz", &attributes), 3 + 9);
    let batch = |bytes: usize, bytes_max: usize| {
        let entry = |id: &str, bytes: usize| SendMessageBatchRequestEntry {
            id: id.to_owned(),
            message_body: "x".repeat(bytes),
            ..SendMessageBatchRequestEntry::default()
        };
        let entries = vec![entry("a", limit / 2), entry("b", bytes)];
        let batch = SendMessageBatch { entries, ..SendMessageBatch::default() };
        validate::batch_size(&batch, bytes_max).map_err(|error| error.kind)
    };
    assert_eq!(batch(limit / 2, limit), Ok(()));
    // A queue of smaller messages takes many of them.
    assert_eq!(batch(limit / 2, 1024), Ok(()));
    assert_eq!(batch(limit / 2 + 1, limit), Err(ErrorKind::BatchRequestTooLong));
    assert_eq!(batch(limit / 2 + 1, limit + 1), Ok(()));
}

#[test]
fn characters_of_messages() {
    let allowed = "\t\n\r \u{D7FF}\u{E000}\u{FFFD}\u{10000}\u{10FFFF}";
    good("SendMessage", json!({ "MessageBody": allowed }));
    for c in ['\0', '\u{8}', '\u{B}', '\u{1F}', '\u{FFFE}', '\u{FFFF}'] {
        let body = json!({"MessageBody": format!("a{c}")});
        check("SendMessage", body, Some(ErrorKind::InvalidMessageContents));
    }
}

#[test]
fn attributes_of_messages() {
    let with = |name: &str, attribute: Value| send(json!({"MessageAttributes": {name: attribute}}));
    let text = |data_type: &str, text: &str| json!({"DataType": data_type, "StringValue": text});
    for name in ["a", "a.b-c_D", &"ø".repeat(256), "attr.1øßä", "名前", "awsome", "Amazonas"]
    {
        good("SendMessage", with(name, text("String", "x")));
    }
    for name in [
        "",
        ".a",
        "a.",
        "a..b",
        "a b",
        "a:b",
        "a\u{1}",
        "AWS.a",
        "aws.a",
        "aMaZoN.a",
        &"ø".repeat(257),
    ] {
        value("SendMessage", with(name, text("String", "x")));
    }
    good("SendMessage", with("a", text("Number.float", "-1.5e3")));
    good("SendMessage", with("a", json!({"DataType": "Binary.gif", "BinaryValue": "AA=="})));
    let both = json!({"DataType": "String", "StringValue": "x", "BinaryValue": ""});
    good("SendMessage", with("a", both));
    for bad in [
        text("String", ""),
        text("Number", "one"),
        text("Text", "x"),
        text("string", "x"),
        text("", "x"),
        text("Binary", "x"),
        text(&format!("String.{}", "x".repeat(250)), "x"),
        json!({"DataType": "String"}),
        json!({"DataType": "Binary"}),
        json!({"DataType": "String", "StringValue": "x", "BinaryValue": "AA=="}),
    ] {
        value("SendMessage", with("a", bad));
    }
    let list = json!({"DataType": "String", "StringListValues": ["x"]});
    check("SendMessage", with("a", list), Some(ErrorKind::UnsupportedOperation));
    let control = with("a", text("String", "\0"));
    value("SendMessage", control);
    let many = |count: usize| {
        let all: serde_json::Map<String, Value> =
            (0..count).map(|n| (format!("a{n}"), text("String", "x"))).collect();
        send(json!({"MessageAttributes": all}))
    };
    good("SendMessage", many(10));
    value("SendMessage", many(11));
}

#[test]
fn system_attributes_of_messages() {
    let with = |name: &str, data_type: &str| {
        let attribute = json!({"DataType": data_type, "StringValue": "Root=1"});
        send(json!({"MessageSystemAttributes": {name: attribute}}))
    };
    good("SendMessage", with("AWSTraceHeader", "String"));
    value("SendMessage", with("AWSTraceHeader", "Number"));
    value("SendMessage", with("SenderId", "String"));
}

#[test]
fn ids_of_groups_duplicates_and_attempts() {
    for member in ["MessageGroupId", "MessageDeduplicationId"] {
        good("SendMessage", send(json!({ member: "x".repeat(128) })));
        good("SendMessage", send(json!({ member: "a!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" })));
        for bad in ["", "a b", "é", "a\n", &"x".repeat(129)] {
            value("SendMessage", send(json!({ member: bad })));
        }
    }
    good("ReceiveMessage", json!({"ReceiveRequestAttemptId": "try"}));
    value("ReceiveMessage", json!({"ReceiveRequestAttemptId": "try again"}));
}

#[test]
fn batches() {
    let batch = |ids: &[&str]| {
        let entry = |id: &&str| json!({"Id": id, "ReceiptHandle": "h", "MessageBody": "x"});
        json!({"Entries": ids.iter().map(entry).collect::<Vec<_>>()})
    };
    for name in ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"] {
        good(name, batch(&["a", "B-_9", &"i".repeat(80)]));
        good(name, batch(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]));
        check(name, batch(&[]), Some(ErrorKind::EmptyBatchRequest));
        check(name, batch(&["a", "b", "a"]), Some(ErrorKind::BatchEntryIdsNotDistinct));
        let eleven = batch(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a"]);
        check(name, eleven, Some(ErrorKind::TooManyEntriesInBatchRequest));
        for id in ["", "a b", "a.b", "é", &"i".repeat(81)] {
            check(name, batch(&[id]), Some(ErrorKind::InvalidBatchEntryId));
        }
    }
}

#[test]
fn a_bad_entry_is_refused_alone() {
    let input = json!({"QueueUrl": "/a/q", "Entries": [
        {"Id": "good", "MessageBody": "x"},
        {"Id": "body", "MessageBody": "\u{0}"},
        {"Id": "delay", "MessageBody": "x", "DelaySeconds": 901},
        {"Id": "group", "MessageBody": "x", "MessageGroupId": " "},
    ]});
    let action = action("SendMessageBatch", &input);
    validate::action(&action).expect("the batch as a whole is good");
    let Action::SendMessageBatch(input) = action else { panic!() };
    let failed: Vec<_> = input
        .entries
        .iter()
        .filter_map(|entry| Some(validate::send_entry(entry).err()?.entry(&entry.id)))
        .map(|entry| (entry.id, entry.code))
        .collect();
    let expected = [
        ("body", "InvalidMessageContents"),
        ("delay", "InvalidParameterValue"),
        ("group", "InvalidParameterValue"),
    ];
    assert_eq!(failed, expected.map(|(id, code)| (id.to_owned(), code.to_owned())));
}

#[test]
fn a_batch_in_order_has_a_group_and_an_id_for_each() {
    let entry = |group: Option<&str>, id: Option<&str>| SendMessageBatchRequestEntry {
        message_group_id: group.map(str::to_owned),
        message_deduplication_id: id.map(str::to_owned),
        ..SendMessageBatchRequestEntry::default()
    };
    let kind = |entry, by_body| {
        validate::group(&entry, by_body).map(str::to_owned).map_err(|error| error.kind)
    };
    for (id, by_body) in [(Some("i"), false), (None, true), (Some("i"), true)] {
        assert_eq!(kind(entry(Some("g"), id), by_body).as_deref(), Ok("g"));
        assert_eq!(kind(entry(None, id), by_body), Err(ErrorKind::MissingParameter));
    }
    assert_eq!(kind(entry(Some("g"), None), false), Err(ErrorKind::InvalidParameterValue));
}

#[test]
fn tags() {
    let tags = |count: usize| {
        let all: serde_json::Map<String, Value> =
            (0..count).map(|n| (format!("k{n}"), json!(""))).collect();
        json!({"Tags": all})
    };
    good("TagQueue", tags(50));
    value("TagQueue", tags(51));
    check("TagQueue", tags(0), Some(ErrorKind::MissingParameter));
    let tag = |key: &str, text: &str| json!({"Tags": {key: text}});
    good("TagQueue", tag(&"ä".repeat(128), &"ö".repeat(256)));
    good("TagQueue", tag("a b_.:/=+-@", "ok"));
    for (key, text) in [("", "x"), ("aws:a", "x"), ("AWS:a", "x"), ("a#", "x"), ("a", "#")] {
        value("TagQueue", tag(key, text));
    }
    value("TagQueue", tag(&"k".repeat(129), ""));
    value("TagQueue", tag("k", &"v".repeat(257)));
    check("UntagQueue", json!({"TagKeys": []}), Some(ErrorKind::MissingParameter));
    value("CreateQueue", json!({"QueueName": "q", "tags": {"aws:a": "x"}}));
}

#[test]
fn permissions() {
    let permission = |label: &str, actions: Value| json!({"Label": label, "AWSAccountIds": ["1"], "Actions": actions});
    good("AddPermission", permission("a-B_1", json!(["*", "SendMessage"])));
    value("AddPermission", permission("a b", json!(["*"])));
    value("AddPermission", permission(&"l".repeat(81), json!(["*"])));
    value("AddPermission", permission("l", json!(["Everything"])));
    check("AddPermission", permission("l", json!([])), Some(ErrorKind::MissingParameter));
    check("AddPermission", permission("l", json!(vec!["*"; 8])), Some(ErrorKind::OverLimit));
    value("RemovePermission", json!({"Label": "a b"}));
}

#[test]
fn names_of_attributes() {
    good("GetQueueAttributes", json!({"AttributeNames": ["All", "QueueArn"]}));
    let unknown = Some(ErrorKind::InvalidAttributeName);
    check("GetQueueAttributes", json!({"AttributeNames": ["Colour"]}), unknown);
    check("ReceiveMessage", json!({"MessageSystemAttributeNames": ["Colour"]}), unknown);
    check("SetQueueAttributes", json!({"Attributes": {}}), Some(ErrorKind::MissingParameter));
    check("DeleteMessage", json!({"ReceiptHandle": ""}), Some(ErrorKind::MissingParameter));
}
