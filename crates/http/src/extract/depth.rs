//! How deep the JSON is nested that is kept as it is spelt.
//!
//! What is kept so is read past, not read: however deep it is, that costs a reader of bytes nothing.
//! Whoever receives it reads it, mostly by a function that calls itself, and cannot go on behind a
//! message that no reader of theirs takes.

use crate::problem::{Problem, ProblemKind};

/// Levels of arrays and objects. Usual readers take 100 to 1000, and an answer has some of its own
/// around what it holds: `serde_json` takes 127 in all.
pub(crate) const DEPTH_MAX: usize = 100;

/// Refuses the JSON of a field that is nested too deep. It must be JSON.
pub(crate) fn check_depth(field: &str, json: &[u8]) -> Result<(), Problem> {
    if !is_deeper(json, DEPTH_MAX) {
        return Ok(());
    }
    let detail = format!("at {field}: it is nested deeper than {DEPTH_MAX} levels");
    Err(ProblemKind::InvalidBody.because(detail))
}

fn is_deeper(json: &[u8], levels: usize) -> bool {
    // Nearly all JSON has fewer brackets, and counting them takes no branches: sixteen bytes at a time.
    has_more_openings(json, levels) && depth_of(json) > levels
}

fn is_opening(byte: u8) -> bool {
    // `[` and `{` differ in this bit.
    byte | 0x20 == b'{'
}

/// Whether there are more than so many, those in strings included.
fn has_more_openings(json: &[u8], count: usize) -> bool {
    // So many ones fit into a byte, and are summed up in one.
    let in_chunk = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(is_opening(*byte))).sum::<u8>();
    json.chunks(128).map(|chunk| usize::from(in_chunk(chunk))).sum::<usize>() > count
}

fn depth_of(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

/// To behind the quote that ends it.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize, open: &str, close: &str) -> String {
        format!("{}1{}", open.repeat(levels), close.repeat(levels))
    }

    #[test]
    fn what_is_deeper_than_it_may_be_is_told_wherever_it_is() {
        for (open, close) in [("[", "]"), (r#"{"a": "#, "}"), (r#"[{"[": "#, "}]")] {
            let brackets = open.matches(['[', '{']).count() - open.matches(r#""[""#).count();
            let most = DEPTH_MAX / brackets;
            let behind = |levels| format!(r#"["]\\", "\"", {}]"#, nested(levels, open, close));
            assert!(!is_deeper(nested(most, open, close).as_bytes(), DEPTH_MAX), "{open}");
            assert!(is_deeper(nested(most + 1, open, close).as_bytes(), DEPTH_MAX), "{open}");
            assert!(is_deeper(behind(most).as_bytes(), DEPTH_MAX), "{open}");
            assert!(!is_deeper(behind(most - 1).as_bytes(), DEPTH_MAX), "{open}");
        }
        assert!(is_deeper(nested(100_000, "[", "]").as_bytes(), DEPTH_MAX));
    }

    #[test]
    fn what_has_many_brackets_and_few_levels_is_not_deep() {
        let wide = format!("[{}[]]", "[{}],".repeat(10_000));
        let text = format!(r#"{{"text": "{}\" {}"}}"#, "[".repeat(1000), "{".repeat(1000));
        for json in [wide, text] {
            assert!(has_more_openings(json.as_bytes(), DEPTH_MAX));
            assert!(!is_deeper(json.as_bytes(), DEPTH_MAX));
        }
    }
}
