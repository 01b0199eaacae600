//! No input makes it panic.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use proptest::collection::vec;
use proptest::prelude::*;
use sqs::protocol::TARGET;
use sqs::{ActionName, Protocol, QueueArn, QueueAttributes, QueuePath, signature, validate};

/// Names and signs that the dialect has a meaning for, so that chance gets somewhere.
const PIECES: &str = r#"Action= SendMessage SendMessageBatch CreateQueue ReceiveMessage & = . 1 2
    QueueUrl MessageBody Entries Attribute Name Value Tag Key MessageAttribute DataType StringValue
    BinaryValue Binary Number SendMessageBatchRequestEntry Id % %C3 + { } [ ] " : , null
    AWS4-HMAC-SHA256 Credential= SignedHeaders= Signature= / 20260102 sqs aws4_request host ;
    20260102T030405Z X-Amz-Algorithm= X-Amz-Date= X-Amz-Expires= X-Amz-Credential=
    X-Amz-SignedHeaders= X-Amz-Signature= arn:aws:sqs: http:// .. ? # - e9 é 999999999999"#;

fn pieces() -> impl Strategy<Value = String> {
    let known: Vec<&str> = PIECES.split_whitespace().chain([" "]).collect();
    let piece = prop_oneof![
        4 => proptest::sample::select(known).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..200), pieces().prop_map(String::into_bytes)]
}

fn uri(text: &str) -> Uri {
    let path = format!("/{text}");
    path.parse().unwrap_or_else(|_| Uri::from_static("/a/b?Action=SendMessage"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoding_never_panics(
        body in bytes(),
        path in pieces(),
        name in proptest::sample::select(ActionName::ALL),
    ) {
        let mut headers = HeaderMap::new();
        let target = format!("AmazonSQS.{}", name.as_str());
        headers.insert(TARGET, target.parse().expect("a value"));
        let uri = uri(&path);
        let mut named = format!("Action={}&", name.as_str()).into_bytes();
        named.extend_from_slice(&body);
        for (protocol, body) in [(Protocol::Json, &body), (Protocol::Query, &named)] {
            match protocol.decode(&headers, &uri, body) {
                Ok(action) => drop(validate::action(&action)),
                Err(error) => drop(protocol.refuse(&error, "id")),
            }
        }
    }

    #[test]
    fn signatures_never_panic(
        authorization in bytes(),
        date in bytes(),
        path in pieces(),
        body in bytes(),
        now_ms in any::<u64>(),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in [("authorization", authorization), ("x-amz-date", date)] {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        let uri = uri(&path);
        for headers in [headers, HeaderMap::new()] {
            if let Ok(presented) = signature::parse(&headers, &uri) {
                let checked = presented.check("s", &Method::POST, &uri, &headers, &body, now_ms);
                prop_assert!(checked.is_err());
            }
        }
    }

    #[test]
    fn names_and_attributes_never_panic(name in pieces(), value in pieces()) {
        if let Some(path) = QueuePath::parse(&name) {
            let url = path.url("http://a");
            prop_assert_eq!(QueuePath::parse(&url), Some(path));
        }
        if let Ok(arn) = name.parse::<QueueArn>() {
            prop_assert_eq!(arn.to_string().parse::<QueueArn>().ok(), Some(arn));
        }
        for known in ["RedrivePolicy", "RedriveAllowPolicy", "Policy", "DelaySeconds", &name] {
            let map = [(known.to_owned(), value.clone())].into();
            drop(QueueAttributes::parse(&map));
        }
    }
}
