//! Signature version 4, as AWS documents it, checked.
//!
//! ```text
//!   canonical request = method, path, query, headers, names of headers, hash of the body
//!   text to sign      = "AWS4-HMAC-SHA256", time, scope, hash of the canonical request
//!   key               = HMAC chain over secret, date, region, "sqs", "aws4_request"
//! ```
//!
//! [`parse`] tells whose key it is; with its secret, [`Presented::check`] tells whether they signed
//! this request. A session token is not looked at: there are none here.

mod canonical;
mod presented;
mod time;

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method, Uri};
use sha2::{Digest, Sha256};

use crate::digest::hex;
use crate::error::{ErrorKind, SqsError};
use crate::limits::CLOCK_SKEW_SECONDS;
use canonical::Canonical;

pub use presented::{Presented, parse};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "sqs";
const TERMINATOR: &str = "aws4_request";
const CONTENT_SHA256: &str = "x-amz-content-sha256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Where a signature was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In the `Authorization` header.
    Header,
    /// In the query string, good for so many seconds.
    Presigned { seconds: i64 },
}

impl Presented {
    /// Checks that a request was signed with this secret, not too long ago.
    ///
    /// `uri` and `headers` must be those that came in: a path that a router has shortened, or a
    /// `Host` that a proxy has changed, was not signed. `now_ms` is in milliseconds since 1970.
    pub fn check(
        &self,
        secret: &str,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
        now_ms: u64,
    ) -> Result<(), SqsError> {
        self.check_time(now_ms)?;
        let payload = payload_hash(headers, body)?;
        let canonical =
            Canonical { method, uri, headers, signed: &self.signed_headers, payload: &payload };
        let request = canonical.to_bytes().ok_or_else(mismatch)?;
        let scope = [self.date.as_str(), &self.region, SERVICE, TERMINATOR];
        // Compares in constant time.
        sign(secret, scope, &self.amz_date, &request)
            .verify_slice(&self.signature)
            .map_err(|_| mismatch())
    }

    fn check_time(&self, now_ms: u64) -> Result<(), SqsError> {
        let now = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
        let age = now.saturating_sub(self.signed_at);
        let age_max = match self.form {
            Form::Header => CLOCK_SKEW_SECONDS,
            Form::Presigned { seconds } => seconds,
        };
        if age > age_max {
            let what = format!("Signature expired: {} is {age} seconds ago.", self.amz_date);
            return Err(ErrorKind::RequestExpired.because(what));
        }
        if age < -CLOCK_SKEW_SECONDS {
            let what = format!("Signature not yet current: {} is to come.", self.amz_date);
            return Err(ErrorKind::RequestExpired.because(what));
        }
        Ok(())
    }
}

/// The hash that was signed: that of the body, unless the client chose not to sign it.
fn payload_hash(headers: &HeaderMap, body: &[u8]) -> Result<String, SqsError> {
    let declared = headers.get(CONTENT_SHA256).map(|value| value.as_bytes());
    if declared == Some(UNSIGNED.as_bytes()) {
        return Ok(UNSIGNED.to_owned());
    }
    let hash = hex(&Sha256::digest(body));
    match declared {
        Some(declared) if declared != hash.as_bytes() => Err(ErrorKind::SignatureDoesNotMatch
            .because("The body is not what X-Amz-Content-Sha256 says.")),
        _ => Ok(hash),
    }
}

/// The signature of a canonical request, not yet taken out of its hasher.
fn sign(secret: &str, scope: [&str; 4], amz_date: &str, request: &[u8]) -> Hmac<Sha256> {
    let hash = hex(&Sha256::digest(request));
    let text = format!("{ALGORITHM}\n{amz_date}\n{}\n{hash}", scope.join("/"));
    let first = format!("AWS4{secret}").into_bytes();
    let key = scope.iter().fold(first, |key, part| {
        let mut mac = keyed(&key);
        mac.update(part.as_bytes());
        mac.finalize().into_bytes().to_vec()
    });
    let mut mac = keyed(&key);
    mac.update(text.as_bytes());
    mac
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("any length will do")
}

fn mismatch() -> SqsError {
    ErrorKind::SignatureDoesNotMatch.because(
        "The request signature we calculated does not match the signature you provided. Check \
         your AWS Secret Access Key and signing method. Consult the service documentation for \
         details.",
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const AT: &str = "20150830T123600Z";

    fn check(uri: &str, headers: &[(&'static str, &str)], service: &str, expected: [&str; 2]) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        let uri: Uri = uri.parse().expect("a URI");
        let signed: Vec<String> = headers.iter().map(|(name, _)| (*name).to_owned()).collect();
        let payload = payload_hash(&map, b"").expect("not declared");
        let (method, headers) = (&Method::GET, &map);
        let request =
            Canonical { method, uri: &uri, headers, signed: &signed, payload: &payload }.to_bytes();
        let request = request.expect("all headers are there");
        assert_eq!(hex(&Sha256::digest(&request)), expected[0], "canonical request");
        let scope = ["20150830", "us-east-1", service, TERMINATOR];
        let signature = sign(SECRET, scope, AT, &request).finalize().into_bytes();
        assert_eq!(hex(&signature), expected[1], "signature");
    }

    /// The example that AWS's guide goes through step by step.
    #[test]
    fn the_documented_example_is_signed_as_documented() {
        check(
            "/?Action=ListUsers&Version=2010-05-08",
            &[
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", AT),
            ],
            "iam",
            [
                "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59",
                "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
            ],
        );
    }

    /// `get-vanilla` of AWS's test suite.
    #[test]
    fn the_test_suite_is_signed_as_there() {
        check(
            "/",
            &[("host", "example.amazonaws.com"), ("x-amz-date", AT)],
            "service",
            [
                "bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ],
        );
    }
}
