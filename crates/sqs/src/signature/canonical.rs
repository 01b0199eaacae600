//! The canonical form of a request, over which the signature is.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// All but the characters that RFC 3986 does not reserve.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// In a path, slashes stay.
const ENCODED_IN_PATH: &AsciiSet = &ENCODED.remove(b'/');

/// The parameter that is not part of what it signs.
const SIGNATURE: &str = "X-Amz-Signature";

pub(super) struct Canonical<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    /// Names of headers, lower case, in the order of the client.
    pub(super) signed: &'a [String],
    pub(super) payload: &'a str,
}

impl Canonical<'_> {
    /// `None` when a header that was signed is not there.
    pub(super) fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(512);
        for part in [self.method.as_str(), &path(self.uri.path())] {
            bytes.extend_from_slice(part.as_bytes());
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(query(self.uri.query().unwrap_or_default()).as_bytes());
        bytes.push(b'\n');
        for name in self.signed {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b':');
            self.header(name, &mut bytes)?;
            bytes.push(b'\n');
        }
        bytes.push(b'\n');
        bytes.extend_from_slice(self.signed.join(";").as_bytes());
        bytes.push(b'\n');
        bytes.extend_from_slice(self.payload.as_bytes());
        Some(bytes)
    }

    fn header(&self, name: &str, bytes: &mut Vec<u8>) -> Option<()> {
        let mut values = self.headers.get_all(name).iter().peekable();
        if values.peek().is_none() {
            // HTTP/2 sends the host as part of the URI.
            let authority = self.uri.authority().filter(|_| name == HOST.as_str())?;
            bytes.extend_from_slice(authority.as_str().as_bytes());
            return Some(());
        }
        for (index, value) in values.enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            let words = value.as_bytes().split(|byte| *byte == b' ' || *byte == b'\t');
            let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
            bytes.extend_from_slice(&words.join(&b' '));
        }
        Some(())
    }
}

/// Without empty and dot segments, and encoded once more than it was sent.
fn path(sent: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in sent.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    let mut path = format!("/{}", segments.join("/"));
    if sent.ends_with('/') && !segments.is_empty() {
        path.push('/');
    }
    percent_encode(path.as_bytes(), ENCODED_IN_PATH).to_string()
}

/// Every name and value encoded in one way, in the order of the encoded names and values.
fn query(sent: &str) -> String {
    let encode = |text: &str| {
        let raw: Cow<'_, [u8]> = percent_decode_str(text).into();
        percent_encode(&raw, ENCODED).to_string()
    };
    let mut pairs: Vec<(String, String)> = sent
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (encode(name), encode(value)))
        .filter(|(name, _)| name != SIGNATURE)
        .collect();
    pairs.sort();
    let pairs: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_straightened_and_encoded_twice() {
        for (sent, expected) in [
            ("/", "/"),
            ("", "/"),
            ("/acme/orders", "/acme/orders"),
            ("/acme/orders/", "/acme/orders/"),
            ("/./acme//x/../orders", "/acme/orders"),
            ("/../..", "/"),
            ("/a%20b", "/a%2520b"),
        ] {
            assert_eq!(path(sent), expected, "{sent}");
        }
    }

    #[test]
    fn queries_are_sorted_and_encoded_alike() {
        for (sent, expected) in [
            ("", ""),
            ("b=2&a=1", "a=1&b=2"),
            ("a=2&a=1&a", "a=&a=1&a=2"),
            ("a=%7e%2f/*&X-Amz-Signature=00", "a=~%2F%2F%2A"),
            ("a=b=c", "a=b%3Dc"),
        ] {
            assert_eq!(query(sent), expected, "{sent}");
        }
    }
}
