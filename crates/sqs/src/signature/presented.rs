//! What a client presents: whose key, over what, when.

use std::collections::HashMap;
use std::fmt;

use http::header::{AUTHORIZATION, DATE, HOST};
use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

use super::{ALGORITHM, Form, SERVICE, TERMINATOR, time};
use crate::error::{ErrorKind, SqsError};
use crate::limits::PRESIGNED_SECONDS;
use crate::protocol::TARGET;

const AMZ_DATE: &str = "x-amz-date";

/// A signature that is not checked yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Presented {
    /// Whose key.
    pub access_key_id: String,
    /// The region that the client believes in; any will do.
    pub region: String,
    /// `20150830`, as in the scope.
    pub(super) date: String,
    /// `20150830T123600Z`, as in the text that is signed.
    pub(super) amz_date: String,
    /// The same, in seconds since 1970.
    pub(super) signed_at: i64,
    pub(super) signed_headers: Vec<String>,
    pub(super) signature: [u8; 32],
    pub(super) form: Form,
}

/// Without the key: whoever uses a key as its own secret would find it in the log.
impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented")
            .field("region", &self.region)
            .field("amz_date", &self.amz_date)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

/// Finds the signature of a request, in its headers or in its query.
pub fn parse(headers: &HeaderMap, uri: &Uri) -> Result<Presented, SqsError> {
    let query = uri.query().unwrap_or_default();
    let presigned = query.split('&').any(|pair| pair.starts_with("X-Amz-Algorithm="));
    match headers.get(AUTHORIZATION) {
        Some(_) if presigned => Err(ErrorKind::SignatureDoesNotMatch
            .because("The request is signed in its headers and in its query.")),
        Some(value) => {
            let text = value.to_str().map_err(|_| incomplete("Authorization is not text."))?;
            of_header(text, headers)
        }
        None if presigned => of_query(query, headers),
        None => Err(missing()),
    }
}

fn of_header(authorization: &str, headers: &HeaderMap) -> Result<Presented, SqsError> {
    let (scheme, rest) = authorization.trim().split_once(' ').unwrap_or((authorization, ""));
    if scheme != ALGORITHM {
        return Err(missing());
    }
    let parts: HashMap<&str, &str> =
        rest.split(',').filter_map(|part| part.trim().split_once('=')).collect();
    let part = |name: &str| {
        let what = || incomplete(&format!("Authorization header requires '{name}' parameter."));
        parts.get(name).copied().ok_or_else(what)
    };
    let (signed_at, amz_date) = date_of(headers)?;
    let parts = Parts {
        credential: part("Credential")?,
        signed_headers: part("SignedHeaders")?,
        signature: part("Signature")?,
        amz_date,
        signed_at,
        form: Form::Header,
    };
    parts.read(headers)
}

/// When a request was signed: `X-Amz-Date`, or else `Date`.
fn date_of(headers: &HeaderMap) -> Result<(i64, String), SqsError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(date) = text(AMZ_DATE) {
        let seconds = time::basic(date).ok_or_else(|| bad_date(date))?;
        return Ok((seconds, date.to_owned()));
    }
    let date = text(DATE.as_str()).ok_or_else(|| {
        incomplete("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date'.")
    })?;
    match time::basic(date) {
        Some(seconds) => Ok((seconds, date.to_owned())),
        None => time::http_date(date).ok_or_else(|| bad_date(date)),
    }
}

fn of_query(query: &str, headers: &HeaderMap) -> Result<Presented, SqsError> {
    let mut parts = HashMap::new();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
        if parts.insert(name, value).is_some() && name.starts_with("X-Amz-") {
            return Err(incomplete(&format!("{name} is there twice.")));
        }
    }
    let part = |name: &str| {
        let what = || incomplete(&format!("AWS query-string parameters must include '{name}'."));
        parts.get(name).map(String::as_str).ok_or_else(what)
    };
    if part("X-Amz-Algorithm")? != ALGORITHM {
        return Err(incomplete("X-Amz-Algorithm must be AWS4-HMAC-SHA256."));
    }
    let date = part("X-Amz-Date")?;
    let seconds = part("X-Amz-Expires")?.parse().ok();
    let seconds = seconds.filter(|seconds| PRESIGNED_SECONDS.contains(seconds));
    let parts = Parts {
        credential: part("X-Amz-Credential")?,
        signed_headers: part("X-Amz-SignedHeaders")?,
        signature: part("X-Amz-Signature")?,
        amz_date: date.to_owned(),
        signed_at: time::basic(date).ok_or_else(|| bad_date(date))?,
        form: Form::Presigned {
            seconds: seconds.ok_or_else(|| incomplete("X-Amz-Expires must be 1 to 604800."))?,
        },
    };
    parts.read(headers)
}

/// The parts of a signature, wherever they were found.
struct Parts<'a> {
    credential: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
    amz_date: String,
    signed_at: i64,
    form: Form,
}

impl Parts<'_> {
    fn read(self, headers: &HeaderMap) -> Result<Presented, SqsError> {
        let (access_key_id, date, region) = scope(self.credential)?;
        if !self.amz_date.starts_with(date) {
            return Err(ErrorKind::SignatureDoesNotMatch
                .because("Date in Credential scope does not match that of the request."));
        }
        let signed_headers: Vec<String> =
            self.signed_headers.split(';').map(str::to_ascii_lowercase).collect();
        let is_signed = |name: &str| signed_headers.iter().any(|signed| signed == name);
        if !is_signed(HOST.as_str()) {
            return Err(ErrorKind::SignatureDoesNotMatch
                .because("'Host' or ':authority' must be a 'SignedHeader'."));
        }
        // Else a signed body could be sent again as the input of another action.
        if headers.contains_key(TARGET) && !is_signed(TARGET.as_str()) {
            return Err(ErrorKind::SignatureDoesNotMatch
                .because("'X-Amz-Target' must be a 'SignedHeader'."));
        }
        Ok(Presented {
            access_key_id: access_key_id.to_owned(),
            region: region.to_owned(),
            date: date.to_owned(),
            amz_date: self.amz_date,
            signed_at: self.signed_at,
            signed_headers,
            signature: unhex(self.signature)
                .ok_or_else(|| incomplete("The signature must be 64 hexadecimal digits."))?,
            form: self.form,
        })
    }
}

/// Key, date and region of `key/20150830/us-east-1/sqs/aws4_request`.
fn scope(credential: &str) -> Result<(&str, &str, &str), SqsError> {
    let malformed = || incomplete("Credential must be key/date/region/sqs/aws4_request.");
    let mut parts = credential.rsplitn(5, '/');
    let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or_else(malformed);
    let (terminator, service, region) = (next()?, next()?, next()?);
    let (date, key) = (next()?, next()?);
    let wrong = |what| Err(ErrorKind::SignatureDoesNotMatch.because(what));
    if terminator != TERMINATOR {
        return wrong("Credential should be scoped with a valid terminator: 'aws4_request'.");
    }
    if service != SERVICE {
        return wrong("Credential should be scoped to correct service: 'sqs'.");
    }
    if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    Ok((key, date, region))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

fn missing() -> SqsError {
    ErrorKind::MissingAuthenticationToken.because("Request is missing Authentication Token")
}

fn incomplete(what: &str) -> SqsError {
    ErrorKind::IncompleteSignature.because(what.to_owned())
}

fn bad_date(date: &str) -> SqsError {
    let date: String = date.chars().take(40).collect();
    incomplete(&format!("Date must be in ISO-8601 'basic format'. Got '{date}'."))
}
