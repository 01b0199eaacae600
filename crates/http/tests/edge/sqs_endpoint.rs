//! Where requests of SQS go, and how they are refused before they are read.

use serde_json::json;
use sqs::value::MessageAttributeValue;

use crate::harness::Server;

#[tokio::test]
async fn a_get_that_names_an_action_is_of_sqs_at_every_endpoint() {
    let (server, _) = Server::start_product(1).await;
    for path in ["/", "/sqs", "/sqs/"] {
        let answer = server.get(&format!("{path}?Action=ListQueues&Version=2012-11-05")).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(answer.body.contains("<ListQueuesResponse"), "{path}: {answer:?}");
    }
    for path in ["/", "/?Actions=ListQueues"] {
        let greeting = server.get(path).await;
        assert!(greeting.body.starts_with("This is Stampede."), "{greeting:?}");
    }
    // What an action does is not done for who asks for the head alone.
    let create = "Action=CreateQueue&QueueName=unseen";
    assert_eq!(server.send("HEAD", &format!("/?{create}"), "", "").await.status, 200);
    assert_eq!(server.send("HEAD", &format!("/sqs?{create}"), "", "").await.status, 405);
    assert_eq!(server.get("/v1/queues/unseen").await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_in_the_words_of_its_protocol() {
    let (server, _) = Server::start_product(1).await;
    for (head, words) in [
        (
            "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.SendMessage",
            r#""__type":"com.amazon.coral.service#RequestEntityTooLargeException""#,
        ),
        ("content-type: application/x-www-form-urlencoded", "<Code>RequestEntityTooLarge</Code>"),
    ] {
        let bytes = (32 << 20) + 1;
        let head =
            format!("POST /sqs HTTP/1.1\r\nhost: x\r\ncontent-length: {bytes}\r\n{head}\r\n\r\n");
        // That it ends says that the connection is closed: the body is not waited for.
        let answer = server.raw(head).await;
        assert_eq!(answer.status, 413, "{answer:?}");
        assert!(answer.body.contains(words), "{answer:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_checksum_of_what_xml_cannot_say_is_of_what_is_shown() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let text = "a\u{0}\u{1}\u{FFFE}b";
    server.send_to("jobs", json!({"body": text, "attributes": {"kind": text, "size": 5}})).await;
    let value = |data_type: &str, text: &str| MessageAttributeValue {
        data_type: data_type.to_owned(),
        string_value: Some(text.to_owned()),
        ..Default::default()
    };
    let sums = |text: &str| {
        let attributes = [("kind", value("String", text)), ("size", value("Number", "5"))];
        (sqs::digest::body(text), sqs::digest::attributes(attributes).expect("there are some"))
    };

    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let ask = "Action=ReceiveMessage&Version=2012-11-05&VisibilityTimeout=0\
        &MessageAttributeName.1=All";
    let answer = server.send("POST", "/sqs/default/jobs", form, ask).await;
    let shown = "a\u{FFFD}\u{FFFD}\u{FFFD}b";
    let (of_body, of_attributes) = sums(shown);
    for part in [
        format!("<Body>{shown}</Body>"),
        format!("<StringValue>{shown}</StringValue>"),
        format!("<MD5OfBody>{of_body}</MD5OfBody>"),
        format!("<MD5OfMessageAttributes>{of_attributes}</MD5OfMessageAttributes>"),
    ] {
        assert!(answer.body.contains(&part), "{part}: {answer:?}");
    }

    let ask = json!({
        "QueueUrl": "http://x/sqs/default/jobs",
        "MessageAttributeNames": ["All"],
        "WaitTimeSeconds": 20,
    });
    let got = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    let got = &got["Messages"][0];
    let (of_body, of_attributes) = sums(text);
    assert_eq!((&got["Body"], &got["MD5OfBody"]), (&json!(text), &json!(of_body)));
    assert_eq!(got["MD5OfMessageAttributes"], of_attributes);
    server.stop().await;
}

#[tokio::test]
async fn an_attribute_whose_name_xml_cannot_say_is_left_out_there_and_no_other() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    let odd = json!({"type": "String.\u{1}", "value": "x"});
    let attributes = json!({"a\u{1}": 1, "a\u{2}": 2, "kind": "mail", "odd": odd});
    server.send_to("jobs", json!({"body": 1, "attributes": attributes})).await;
    let sum = |attributes: &[(&str, &str, &str)]| {
        let value = |data_type: &str, text: &str| MessageAttributeValue {
            data_type: data_type.to_owned(),
            string_value: Some(text.to_owned()),
            ..Default::default()
        };
        let pairs = attributes.iter().map(|(name, kind, text)| (*name, value(kind, text)));
        sqs::digest::attributes(pairs.collect::<Vec<_>>()).expect("there are some")
    };

    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let ask = "Action=ReceiveMessage&Version=2012-11-05&VisibilityTimeout=0\
        &MessageAttributeName.1=All";
    let answer = server.send("POST", "/sqs/default/jobs", form, ask).await;
    assert_eq!(answer.body.matches("<MessageAttribute>").count(), 2, "{answer:?}");
    let of_two = sum(&[("kind", "String", "mail"), ("odd", "String.\u{FFFD}", "x")]);
    assert!(answer.body.contains(&of_two), "{answer:?}");

    let ask = json!({"QueueUrl": "jobs", "MessageAttributeNames": ["All"], "WaitTimeSeconds": 20});
    let got = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    let got = &got["Messages"][0];
    let names: Vec<_> = got["MessageAttributes"].as_object().expect("some").keys().collect();
    assert_eq!(names, ["a\u{1}", "a\u{2}", "kind", "odd"]);
    let of_all = sum(&[
        ("a\u{1}", "Number", "1"),
        ("a\u{2}", "Number", "2"),
        ("kind", "String", "mail"),
        ("odd", "String.\u{1}", "x"),
    ]);
    assert_eq!(got["MD5OfMessageAttributes"], of_all);
    server.stop().await;
}

#[tokio::test]
async fn the_type_of_an_attribute_says_which_of_its_values_counts() {
    let (server, _) = Server::start_product(1).await;
    server.make(json!({"name": "jobs"})).await;
    // Some clients write the value of the other kind too, but empty.
    let attributes = json!({
        "kind": {"DataType": "String", "StringValue": "mail", "BinaryValue": ""},
        "size": {"DataType": "Number.int", "StringValue": "5", "BinaryValue": ""},
        "icon": {"DataType": "Binary", "BinaryValue": "AAE=", "StringValue": ""},
    });
    let trace = json!({"DataType": "String", "StringValue": "Root=1", "BinaryValue": ""});
    let send = json!({"QueueUrl": "jobs", "MessageBody": "x", "MessageAttributes": attributes,
        "MessageSystemAttributes": {"AWSTraceHeader": trace}});
    let sent = Server::ok(&server.sqs_call("SendMessage", &send).await, 200);
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let send = "Action=SendMessage&MessageBody=x\
        &MessageAttribute.1.Name=kind&MessageAttribute.1.Value.DataType=String\
        &MessageAttribute.1.Value.StringValue=mail&MessageAttribute.1.Value.BinaryValue=\
        &MessageAttribute.2.Name=size&MessageAttribute.2.Value.DataType=Number.int\
        &MessageAttribute.2.Value.StringValue=5&MessageAttribute.2.Value.BinaryValue=\
        &MessageAttribute.3.Name=icon&MessageAttribute.3.Value.DataType=Binary\
        &MessageAttribute.3.Value.StringValue=&MessageAttribute.3.Value.BinaryValue=AAE%3D\
        &MessageSystemAttribute.1.Name=AWSTraceHeader\
        &MessageSystemAttribute.1.Value.DataType=String\
        &MessageSystemAttribute.1.Value.StringValue=Root%3D1\
        &MessageSystemAttribute.1.Value.BinaryValue=";
    let answer = server.send("POST", "/sqs/default/jobs", form, send).await;
    assert_eq!(answer.status, 200, "{answer:?}");

    let ask = json!({"QueueUrl": "jobs", "MessageAttributeNames": ["All"],
        "MessageSystemAttributeNames": ["AWSTraceHeader"]});
    let got = Server::ok(&server.sqs_call("ReceiveMessage", &ask).await, 200);
    let got = &got["Messages"][0];
    let shown = json!({
        "kind": {"DataType": "String", "StringValue": "mail"},
        "size": {"DataType": "Number.int", "StringValue": "5"},
        "icon": {"DataType": "Binary", "BinaryValue": "AAE="},
    });
    assert_eq!(got["MessageAttributes"], shown);
    assert_eq!(got["Attributes"], json!({"AWSTraceHeader": "Root=1"}));
    let sum = sent["MD5OfMessageAttributes"].as_str().expect("a checksum");
    assert_eq!(got["MD5OfMessageAttributes"], sum);
    let ask = "Action=ReceiveMessage&MessageAttributeName.1=All&MessageSystemAttributeName.1=All";
    let answer = server.send("POST", "/sqs/default/jobs", form, ask).await;
    for part in [
        "<StringValue>mail</StringValue>",
        "<StringValue>5</StringValue>",
        "<BinaryValue>AAE=</BinaryValue>",
        "<Value>Root=1</Value>",
        sum,
    ] {
        assert!(answer.body.contains(part), "{part}: {answer:?}");
    }
    server.stop().await;
}
