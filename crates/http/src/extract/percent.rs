//! Percent-decoding that refuses instead of guessing.

use std::borrow::Cow;

/// Decodes `%xx`. `None` when an escape is cut short or the result is not UTF-8.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let byte =
            if byte == b'%' { nibble(bytes.next()?)? << 4 | nibble(bytes.next()?)? } else { byte };
        decoded.push(byte);
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn escapes_are_decoded_or_refused() {
        assert_eq!(decode("a+b").as_deref(), Some("a+b"));
        assert_eq!(decode("%C3%a9%2F").as_deref(), Some("é/"));
        for bad in ["%", "%4", "%zz", "%ff", "a%C3"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
