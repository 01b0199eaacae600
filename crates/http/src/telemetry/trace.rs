//! W3C trace context: `traceparent: 00-<trace id>-<span id>-<flags>`.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header's name.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const SAMPLED: u8 = 1;

/// The trace that a request is part of, and our span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Never 0.
    pub trace_id: u128,
    /// The caller's span; `None` when the trace begins here.
    pub parent: Option<u64>,
    /// Ours. Never 0.
    pub span_id: u64,
    /// Whether the trace is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// A trace that begins here.
    #[must_use]
    pub fn begin(sampled: bool) -> TraceContext {
        let trace_id = u128::from(random()) << 64 | u128::from(random());
        TraceContext { trace_id, parent: None, span_id: random(), sampled }
    }

    /// The trace of a request that brings one; a header that cannot be read begins a new one.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<TraceContext> {
        let value = headers.get(TRACEPARENT)?;
        let parsed = parse(value.as_bytes());
        Some(parsed.unwrap_or_else(|| TraceContext::begin(false)))
    }

    /// The header of an answer, or of a request further on.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put_hex(&mut text[3..35], self.trace_id);
        put_hex(&mut text[36..52], self.span_id.into());
        put_hex(&mut text[53..55], u128::from(if self.sampled { SAMPLED } else { 0 }));
        HeaderValue::from_bytes(&text).expect("hex and dashes")
    }
}

/// The trace that the sender of a request says to be in; none where that cannot be read.
pub(crate) fn id_of(headers: &HeaderMap) -> Option<u128> {
    Some(parse(headers.get(TRACEPARENT)?.as_bytes())?.trace_id)
}

/// The trace id, as logs show it.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.trace_id)
    }
}

fn parse(text: &[u8]) -> Option<TraceContext> {
    let (known, rest) = text.split_first_chunk::<55>()?;
    let version = hex(&known[0..2])?;
    // Later versions may append fields; this one may not.
    let ends = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
    let dashes = known[2] == b'-' && known[35] == b'-' && known[52] == b'-';
    if version == 0xff || !ends || !dashes {
        return None;
    }
    let trace_id = hex(&known[3..35])?;
    let parent = u64::try_from(hex(&known[36..52])?).ok()?;
    let sampled = hex(&known[53..55])? & u128::from(SAMPLED) != 0;
    let whole = trace_id != 0 && parent != 0;
    whole.then(|| TraceContext { trace_id, parent: Some(parent), span_id: random(), sampled })
}

/// Only lower case is allowed.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |value: u128, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(nibble))
    })
}

fn put_hex(places: &mut [u8], mut value: u128) {
    for place in places.iter_mut().rev() {
        *place = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(std::thread::current().id()));
}

/// Random enough to tell spans apart (splitmix64), and never 0.
pub(crate) fn random() -> u64 {
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let z = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) | 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_good_header_is_continued() {
        let context = parse(GOOD.as_bytes()).expect("it is good");
        assert_eq!(context.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.parent, Some(0xb7ad_6b71_6920_3331));
        assert!(context.sampled);
        let echoed = context.header();
        assert_eq!(parse(echoed.as_bytes()).expect("ours is good").parent, Some(context.span_id));
        assert!(parse(GOOD.replacen("00", "01", 1).as_bytes()).is_some());
        assert!(parse(format!("01{}-more", &GOOD[2..]).as_bytes()).is_some());
    }

    #[test]
    fn a_bad_header_begins_a_new_trace() {
        let bad = [
            "",
            "00",
            &GOOD[1..],
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &format!("{GOOD}-more"),
            &GOOD.replace('-', "_"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        ];
        for header in bad {
            assert_eq!(parse(header.as_bytes()), None, "{header}");
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, HeaderValue::from_str(header).expect("ASCII"));
            let begun = TraceContext::of(&headers).expect("there is a header");
            assert!(begun.trace_id != 0 && begun.parent.is_none(), "{header}");
            assert_eq!(id_of(&headers), None, "which its sender does not know of: {header}");
        }
    }
}
