//! Just enough of Rust's grammar to tell code from comments and literals.

use std::ops::Range;

/// The text with comments, and the inside of strings and characters, turned to spaces. Quotes,
/// line ends and every byte position stay, so that an offset means the same in both.
pub(super) fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let next = bytes.get(at + 1);
        let literal = match bytes[at] {
            b'/' if next == Some(&b'/') => Some(at..line_end(bytes, at)),
            b'/' if next == Some(&b'*') => Some(at..block_comment_end(bytes, at)),
            b'"' => Some(at + 1..string_end(bytes, at)),
            b'r' if !within_word(bytes, at) => raw_string(bytes, at),
            b'\'' => char_end(text, at).map(|end| at + 1..end),
            _ => None,
        };
        let Some(literal) = literal else {
            at += 1;
            continue;
        };
        // Past the closing quote, so that it does not open the next literal; a comment has none.
        let is_comment = literal.start == at;
        at = literal.end + usize::from(!is_comment);
        for byte in &mut out[literal] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8(out).expect("whole characters are blanked, or none of their bytes")
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |found| at + found)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

/// Where the closing quote of a string is, or the end of the text.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The inside of `r"…"` or `r#"…"#`; `None` for `r#name` or a plain `r`.
fn raw_string(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let hashes = bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let found = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(open + 1..found.map_or(bytes.len(), |found| open + 1 + found))
}

/// The closing quote of a character; `None` when the first quote begins a lifetime or a label.
fn char_end(text: &str, start: usize) -> Option<usize> {
    let mut chars = text[start + 1..].char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(offset, _)| start + 1 + offset);
    }
    let (offset, second) = chars.next()?;
    (second == '\'').then_some(start + 1 + offset)
}

/// Whether the byte continues a word: the `r` of `for`, but not of `br"…"` or `cr"…"`.
fn within_word(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|index| bytes[index]);
    match before(1) {
        Some(b'b' | b'c') => before(2).is_some_and(is_word),
        Some(byte) => is_word(byte),
        None => false,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Where a text occurs in the code, not as a part of a longer word.
pub(super) fn words<'a>(code: &'a str, wanted: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let apart = |one: Option<&u8>, other: Option<&u8>| {
        !(one.copied().is_some_and(is_word) && other.copied().is_some_and(is_word))
    };
    code.match_indices(wanted).map(|(at, _)| at).filter(move |at| {
        let end = at + wanted.len();
        let before = at.checked_sub(1).map(|index| &bytes[index]);
        apart(before, bytes.get(*at)) && apart(bytes.get(end - 1), bytes.get(end))
    })
}

/// The line number, from 1, of an offset.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The offset of the brace that closes the one at `open`, in blanked code.
pub(super) fn closing_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(open + offset);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{blank, closing_brace, line_of, words};

    fn check(source: &str, expected: &str) {
        assert_eq!(blank(source), expected);
    }

    #[test]
    fn comments_are_blanked_and_line_ends_stay() {
        check("a // {\nb", "a     \nb");
        check("a /* { /* { */ { */ b", "a                   b");
    }

    #[test]
    fn strings_are_blanked_between_their_quotes() {
        check(r#"f("{ \" {", b"{")"#, r#"f("      ", b" ")"#);
        check(r##"r#"{ " {"# + 1"##, r##"r#"     "# + 1"##);
        check(r#"br"{\" + c"#, r#"br"  " + c"#);
    }

    #[test]
    fn characters_are_blanked_and_lifetimes_stay() {
        check(r"'{' '\'' '\u{7d}' 'é'", r"' ' '  ' '      ' '  '");
        check("fn f<'a>(x: &'a str) { 'l: loop {} }", "fn f<'a>(x: &'a str) { 'l: loop {} }");
    }

    #[test]
    fn raw_names_and_words_ending_in_r_are_code() {
        check("r#fn for\"{\" r", "r#fn for\" \" r");
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_text() {
        check("\"{ é", "\"    ");
        check("/* {", "    ");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("unsafe_code unsafe", "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(words("std::thread::sleep(d)", "thread::sleep").count(), 1);
        assert_eq!(words("my_thread::sleep(d)", "thread::sleep").count(), 0);
    }

    #[test]
    fn braces_are_matched() {
        assert_eq!(closing_brace("a { { } } }", 2), Some(8));
        assert_eq!(closing_brace("{ {", 0), None);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
