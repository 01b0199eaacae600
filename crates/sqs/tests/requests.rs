//! Requests of real clients are understood, and bad ones refused.

#[expect(dead_code, reason = "not every test needs all")]
mod common;

use std::collections::BTreeSet;

use common::Golden;
use http::{HeaderMap, Uri};
use sqs::protocol::{AMZ_JSON, TARGET};
use sqs::{Action, ActionName, ErrorKind, Protocol, SqsError, validate};

fn check(golden: &Golden, protocol: Protocol) {
    let mut seen = BTreeSet::new();
    for request in &golden.requests {
        let (headers, uri) = (request.headers(), request.uri());
        let name = &request.action;
        assert_eq!(Protocol::of(&headers, &uri), Some(protocol), "{name}");
        let action = protocol.decode(&headers, &uri, request.body.as_bytes()).expect(name);
        assert_eq!(action.name().as_str(), name);
        assert_eq!(serde_json::to_value(&action).expect("serializes"), request.input, "{name}");
        validate::action(&action).expect(name);
        seen.insert(name.clone());
    }
    let all: BTreeSet<String> = ActionName::ALL.iter().map(|n| n.as_str().to_owned()).collect();
    assert_eq!(seen, all, "every action is recorded");
    assert_eq!(all.len(), 23);
}

#[test]
fn every_action_is_decoded_from_json() {
    check(&common::json(), Protocol::Json);
}

#[test]
fn every_action_is_decoded_from_a_query() {
    check(&common::query(), Protocol::Query);
}

fn json(target: &str, body: &str) -> Result<Action, SqsError> {
    let mut headers = HeaderMap::new();
    headers.insert(TARGET, target.parse().expect("a value"));
    Protocol::Json.decode(&headers, &Uri::from_static("/sqs"), body.as_bytes())
}

fn query(uri: &'static str, form: &str) -> Result<Action, SqsError> {
    Protocol::Query.decode(&HeaderMap::new(), &Uri::from_static(uri), form.as_bytes())
}

#[test]
fn the_protocol_is_told_by_the_head() {
    let of = |name: &'static str, value: &str, uri: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("a value"));
        Protocol::of(&headers, &Uri::from_static(uri))
    };
    assert_eq!(of("content-type", AMZ_JSON, "/"), Some(Protocol::Json));
    assert_eq!(of("content-type", "Application/X-Amz-Json-1.0; a=b", "/"), Some(Protocol::Json));
    assert_eq!(of("x-amz-target", "AmazonSQS.ListQueues", "/"), Some(Protocol::Json));
    let form = "application/x-www-form-urlencoded; charset=utf-8";
    assert_eq!(of("content-type", form, "/"), Some(Protocol::Query));
    assert_eq!(of("accept", "*/*", "/?Version=1&Action=ListQueues"), Some(Protocol::Query));
    assert_eq!(of("accept", "*/*", "/?NotAction=ListQueues"), None);
    assert_eq!(of("content-type", "application/json", "/"), None);
}

#[test]
fn a_path_names_the_queue_when_no_parameter_does() {
    let action = query("/sqs/acme/orders?Action=PurgeQueue", "").expect("well-formed");
    let Action::PurgeQueue(input) = action else { panic!("{action:?}") };
    assert_eq!(input.queue_url, "/sqs/acme/orders");
    let error = query("/sqs?Action=PurgeQueue", "").expect_err("no queue");
    assert_eq!(error, SqsError::missing("QueueUrl"));
}

#[test]
fn elements_come_in_the_order_of_their_numbers_or_alone() {
    let form = "Action=UntagQueue&QueueUrl=/a/b&TagKey.10=c&TagKey.2=b&TagKey.1=a";
    let Action::UntagQueue(input) = query("/", form).expect("good") else { panic!() };
    assert_eq!(input.tag_keys, ["a", "b", "c"]);
    let form = "Action=SetQueueAttributes&Attribute.Name=Policy&Attribute.Value=";
    let Action::SetQueueAttributes(input) = query("/a/b", form).expect("good") else { panic!() };
    assert_eq!(input.attributes["Policy"], "");
    let form = "Action=GetQueueAttributes&AttributeName=All";
    let Action::GetQueueAttributes(input) = query("/a/b", form).expect("good") else { panic!() };
    assert_eq!(input.attribute_names, ["All"]);
}

#[test]
fn list_without_elements_is_a_parameter_without_a_value() {
    for form in ["AttributeNames=&MessageAttributeNames=", "AttributeName=&MessageAttributeName="] {
        let action = query("/a/b", &format!("Action=ReceiveMessage&{form}")).expect(form);
        let Action::ReceiveMessage(input) = action else { panic!("{action:?}") };
        assert!(input.attribute_names.is_empty() && input.message_attribute_names.is_empty());
    }
    let action = query("/a/b", "Action=SendMessageBatch&Entries=").expect("it can be read");
    let error = validate::action(&action).expect_err("no entries");
    assert_eq!(error.kind, ErrorKind::EmptyBatchRequest);
}

#[test]
fn null_is_as_good_as_nothing() {
    let body = r#"{"QueueUrl":"/a/b","AttributeNames":null,"WaitTimeSeconds":null,"Unknown":1}"#;
    let Action::ReceiveMessage(input) = json("AmazonSQS.ReceiveMessage", body).expect("good")
    else {
        panic!()
    };
    assert!(input.attribute_names.is_empty() && input.wait_time_seconds.is_none());
}

#[test]
fn malformed_json_is_refused() {
    let check = |target: &str, body: &str, kind: ErrorKind| {
        assert_eq!(json(target, body).expect_err(body).kind, kind, "{target} {body}");
    };
    check("", "{}", ErrorKind::MissingAction);
    check("AmazonSQS.Nothing", "{}", ErrorKind::InvalidAction);
    check("AmazonSNS.ListQueues", "{}", ErrorKind::InvalidAction);
    check("AmazonSQS.sendmessage", "{}", ErrorKind::InvalidAction);
    check("AmazonSQS.SendMessage", "", ErrorKind::MissingParameter);
    check("AmazonSQS.SendMessage", "{", ErrorKind::MalformedInput);
    check("AmazonSQS.SendMessage", "[]", ErrorKind::MalformedInput);
    check("AmazonSQS.SendMessage", r#"{"QueueUrl":"/a/b"}"#, ErrorKind::MissingParameter);
    check("AmazonSQS.SendMessage", r#"{"QueueUrl":1}"#, ErrorKind::MalformedInput);
    let wait = r#"{"QueueUrl":"/a/b","WaitTimeSeconds":"1"}"#;
    check("AmazonSQS.ReceiveMessage", wait, ErrorKind::MalformedInput);
    let blob = r#"{"QueueUrl":"","MessageBody":"x","MessageAttributes":
        {"a":{"DataType":"Binary","BinaryValue":"?"}}}"#;
    check("AmazonSQS.SendMessage", blob, ErrorKind::MalformedInput);
    let error = json("AmazonSQS.DeleteMessage", r#"{"QueueUrl":"/a/b"}"#).expect_err("missing");
    assert_eq!(error.message, "The request must contain the parameter ReceiptHandle.");
}

#[test]
fn what_is_of_no_queue_is_refused_where_a_queue_is() {
    for form in ["Action=ListQueues", "Action=CreateQueue&QueueName=jobs"] {
        for path in ["/", "/sqs", "/sqs/"] {
            query(path, form).expect(path);
        }
        let error = query("/sqs/acme/jobs", form).expect_err(form);
        assert_eq!(error.kind, ErrorKind::InvalidAction, "{form}");
    }
}

#[test]
fn malformed_queries_are_refused() {
    let check = |form: &str, kind: ErrorKind| {
        assert_eq!(query("/a/b", form).expect_err(form).kind, kind, "{form}");
    };
    check("", ErrorKind::MissingAction);
    check("Action=Nothing", ErrorKind::InvalidAction);
    check("Action=SendMessage", ErrorKind::MissingParameter);
    check("Action=ReceiveMessage&WaitTimeSeconds=soon", ErrorKind::InvalidParameterValue);
    check("Action=ReceiveMessage&WaitTimeSeconds=99999999999", ErrorKind::InvalidParameterValue);
    check("Action=SendMessage&MessageBody=%FF", ErrorKind::MalformedInput);
    check("Action=ListQueues&a.b.c.d.e.f.g.h=1", ErrorKind::MalformedInput);
    let many = |count: usize| {
        let names: String = (0..count).map(|n| format!("&{n}")).collect();
        format!("Action=ListQueues{names}")
    };
    query("/", &many(3999)).expect("as many as there may be");
    check(&many(4000), ErrorKind::MalformedInput);
    check("Action=SetQueueAttributes&Attribute.1.Name=Policy", ErrorKind::MissingParameter);
    check("Action=SetQueueAttributes&Attribute.1.Value=x", ErrorKind::MissingParameter);
    let typeless = "Action=SendMessage&MessageBody=x&MessageAttribute.1.Name=a\
        &MessageAttribute.1.Value.StringValue=b";
    check(typeless, ErrorKind::MissingParameter);
    let nested = "Action=SendMessage&MessageBody.1=x";
    check(nested, ErrorKind::InvalidParameterValue);
}

#[test]
fn a_body_that_is_an_array_is_no_object_with_its_fields_in_order() {
    let refused = json("AmazonSQS.CreateQueue", r#" ["jobs", null, null]"#).expect_err("refused");
    assert_eq!(refused.kind, ErrorKind::MalformedInput);
}
