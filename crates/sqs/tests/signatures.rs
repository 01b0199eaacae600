//! Signatures of real clients hold, and no other.

#[expect(dead_code, reason = "not every test needs all")]
mod common;

use common::{Golden, Recorded};
use http::{HeaderMap, HeaderValue, Method, Uri};
use sqs::{ErrorKind, SqsError, signature};

/// A request that can be changed before it is checked.
struct Request {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
    secret: String,
    now: u64,
}

impl Request {
    fn of(golden: &Golden, request: &Recorded) -> Request {
        Request {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            body: request.body.clone().into_bytes(),
            secret: golden.secret.clone(),
            now: golden.now,
        }
    }

    fn check(&self) -> Result<(), SqsError> {
        let presented = signature::parse(&self.headers, &self.uri)?;
        let (uri, headers, now_ms) = (&self.uri, &self.headers, self.now * 1000);
        presented.check(&self.secret, &self.method, uri, headers, &self.body, now_ms)
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.headers.insert(name, value.parse().expect("a value"));
    }

    fn replace(&mut self, name: &'static str, from: &str, to: &str) {
        let value = self.headers[name].to_str().expect("text");
        assert!(value.contains(from), "{value}");
        let value = value.replace(from, to);
        self.set(name, &value);
    }
}

#[test]
fn every_recorded_signature_holds() {
    for golden in [common::json(), common::query()] {
        assert!(golden.signatures.len() >= 5);
        for recorded in golden.requests.iter().chain(&golden.signatures) {
            let request = Request::of(&golden, recorded);
            let name = format!("{} {}", recorded.action, recorded.kind);
            request.check().unwrap_or_else(|error| panic!("{name}: {error}"));
            let presented = signature::parse(&request.headers, &request.uri).expect("present");
            assert_eq!(presented.access_key_id, golden.access_key_id);
            assert_eq!(presented.region, "eu-west-3");
        }
        assert!(golden.requests.iter().any(|request| request.kind == "session token"));
    }
}

fn tampered(name: &str, kind: ErrorKind, change: impl FnOnce(&mut Request)) {
    let golden = common::json();
    let recorded = golden.requests.iter().find(|r| r.action == "SendMessage").expect("recorded");
    let mut request = Request::of(&golden, recorded);
    change(&mut request);
    assert_eq!(request.check().expect_err(name).kind, kind, "{name}");
}

#[test]
fn every_signed_part_is_protected() {
    use ErrorKind::SignatureDoesNotMatch as Bad;
    tampered("method", Bad, |r| r.method = Method::GET);
    tampered("path", Bad, |r| r.uri = Uri::from_static("/other"));
    tampered("query", Bad, |r| r.uri = Uri::from_static("/sqs?a=b"));
    tampered("body", Bad, |r| r.body.push(b' '));
    tampered("host", Bad, |r| r.set("host", "other:8080"));
    tampered("target", Bad, |r| r.set("x-amz-target", "AmazonSQS.PurgeQueue"));
    tampered("content type", Bad, |r| r.set("content-type", "text/plain"));
    tampered("a value more", Bad, |r| {
        r.headers.append("content-type", HeaderValue::from_static("text/plain"));
    });
    tampered("a header less", Bad, |r| drop(r.headers.remove("content-type")));
    tampered("time", Bad, |r| r.set("x-amz-date", "20260102T030406Z"));
    tampered("region", Bad, |r| r.replace("authorization", "eu-west-3", "eu-west-1"));
    tampered("signature", Bad, |r| {
        let mut value = r.headers["authorization"].to_str().expect("text").to_owned();
        let last = value.pop().expect("not empty");
        value.push(if last == '0' { '1' } else { '0' });
        r.set("authorization", &value);
    });
    tampered("names", Bad, |r| r.replace("authorization", ";x-amzn-query-mode", ""));
    tampered("secret", Bad, |r| r.secret.push('x'));
    tampered("no secret", Bad, |r| r.secret.clear());
    tampered("payload", Bad, |r| r.set("x-amz-content-sha256", "00"));
    tampered("unsigned", Bad, |r| r.set("x-amz-content-sha256", "UNSIGNED-PAYLOAD"));
}

#[test]
fn a_scope_for_something_else_is_refused() {
    use ErrorKind::SignatureDoesNotMatch as Bad;
    tampered("service", Bad, |r| r.replace("authorization", "/sqs/", "/sns/"));
    tampered("terminator", Bad, |r| r.replace("authorization", "aws4_request", "aws5_request"));
    tampered("date", Bad, |r| r.replace("authorization", "20260102", "20260103"));
    tampered("host", Bad, |r| r.replace("authorization", "host;", ""));
    tampered("target", Bad, |r| r.replace("authorization", ";x-amz-target", ""));
}

#[test]
fn a_signature_with_parts_missing_is_incomplete() {
    use ErrorKind::IncompleteSignature as Bad;
    tampered("credential", Bad, |r| r.replace("authorization", "Credential=", "C="));
    tampered("signed headers", Bad, |r| r.replace("authorization", "SignedHeaders=", "S="));
    tampered("signature", Bad, |r| r.replace("authorization", "Signature=", "S="));
    tampered("short", Bad, |r| r.replace("authorization", "sk_0f3a/20260102", "sk_0f3a"));
    tampered("no key", Bad, |r| r.replace("authorization", "sk_0f3a", ""));
    tampered("time", Bad, |r| r.set("x-amz-date", "today"));
    tampered("no time", Bad, |r| drop(r.headers.remove("x-amz-date")));
    tampered("digits", Bad, |r| {
        r.set(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=k/20260102/r/sqs/aws4_request,\
         SignedHeaders=host;x-amz-target,Signature=xyz",
        )
    });
}

#[test]
fn no_signature_is_told_from_a_bad_one() {
    use ErrorKind::MissingAuthenticationToken as Missing;
    tampered("none", Missing, |r| drop(r.headers.remove("authorization")));
    tampered("bearer", Missing, |r| r.set("authorization", "Bearer x"));
    tampered("empty", Missing, |r| r.set("authorization", ""));
    tampered("both", ErrorKind::SignatureDoesNotMatch, |r| {
        r.uri = Uri::from_static("/sqs?X-Amz-Algorithm=AWS4-HMAC-SHA256");
    });
}

#[test]
fn a_clock_may_be_fifteen_minutes_off() {
    let golden = common::json();
    for (offset, is_good) in [(-901, false), (-900, true), (900, true), (901, false)] {
        let mut request = Request::of(&golden, &golden.requests[0]);
        request.now = golden.now.checked_add_signed(offset).expect("not near the end");
        let kind = request.check().err().map(|error| error.kind);
        assert_eq!(kind, (!is_good).then_some(ErrorKind::RequestExpired), "{offset}");
    }
}

fn presigned(change: impl FnOnce(&mut Request)) -> Option<ErrorKind> {
    let golden = common::query();
    let recorded = golden.requests.iter().find(|r| r.kind == "presigned").expect("recorded");
    let mut request = Request::of(&golden, recorded);
    change(&mut request);
    request.check().err().map(|error| error.kind)
}

#[test]
fn a_presigned_request_holds_until_it_expires() {
    assert_eq!(presigned(|r| r.now += 3600), None);
    assert_eq!(presigned(|r| r.now += 3601), Some(ErrorKind::RequestExpired));
    assert_eq!(presigned(|r| r.now -= 901), Some(ErrorKind::RequestExpired));
    let replaced = |from: &str, to: &str| {
        presigned(|r| {
            let uri = r.uri.to_string();
            assert!(uri.contains(from), "{uri}");
            r.uri = uri.replace(from, to).parse().expect("a URI");
        })
    };
    let bad = Some(ErrorKind::SignatureDoesNotMatch);
    assert_eq!(replaced("Expires=3600", "Expires=3601"), bad);
    assert_eq!(replaced("MessageBody=a", "MessageBody=b"), bad);
    assert_eq!(replaced("eu-west-3", "eu-west-2"), bad);
    assert_eq!(replaced("SignedHeaders=host", "SignedHeaders=date"), bad);
    assert_eq!(replaced("Action=SendMessage&", ""), bad);
    let incomplete = Some(ErrorKind::IncompleteSignature);
    assert_eq!(replaced("Expires=3600", "Expires=604801"), incomplete);
    assert_eq!(replaced("X-Amz-Expires=", "X-Amz-Exp="), incomplete);
    assert_eq!(replaced("X-Amz-Date=", "X-Amz-Date=1&X-Amz-Date="), incomplete);
    // How a client encodes does not matter, what it encodes does.
    assert_eq!(replaced("%2F", "%2f"), None);
}

#[test]
fn an_unsigned_payload_can_be_any() {
    let golden = common::query();
    let mut kinds = golden.signatures.iter();
    let recorded = kinds.find(|r| r.kind == "unsigned payload").expect("recorded");
    let mut request = Request::of(&golden, recorded);
    request.body.push(b'x');
    request.check().expect("the client chose so");
    request.headers.remove("x-amz-content-sha256");
    assert!(request.check().is_err());
}

#[test]
fn http2_names_the_host_in_the_uri() {
    let golden = common::json();
    let mut request = Request::of(&golden, &golden.requests[0]);
    request.headers.remove("host");
    assert!(request.check().is_err());
    request.uri = Uri::from_static("http://localhost:8080/sqs");
    request.check().expect("the same host");
}
