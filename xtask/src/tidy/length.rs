//! A file is read in one sitting, a function on one screen.

use super::Report;
use super::scan::{closing_brace, line_of};
use super::tree::{File, Tree};

const FILE_LINES_MAX: usize = 700;
const FILE_LINES_USUAL: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;
/// A test may be a long story, told once.
const TEST_LINES_MAX: usize = 120;

pub(super) fn check(tree: &Tree, report: &mut Report) {
    let mut long = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            report.add(&file.path, 0, format!("{lines} lines; at most {FILE_LINES_MAX}"));
        } else if lines > FILE_LINES_USUAL {
            long.push(format!("{} ({lines})", file.path));
        }
        check_functions(file, report);
    }
    if !long.is_empty() {
        let count = long.len();
        report.note(format!("{count} files over {FILE_LINES_USUAL} lines: {}", long.join(", ")));
    }
}

fn check_functions(file: &File, report: &mut Report) {
    let max = if file.is_test() { TEST_LINES_MAX } else { FUNCTION_LINES_MAX };
    for function in functions(&file.code) {
        let (line, lines) = (line_of(&file.code, function.start), function.lines);
        if lines > max {
            let name = function.name;
            report.add(&file.path, line, format!("fn {name}: {lines} lines; at most {max}"));
        }
    }
}

#[derive(Debug)]
struct Function<'a> {
    name: &'a str,
    start: usize,
    /// Lines between its braces.
    lines: usize,
}

/// Every function with a body, nested ones too.
fn functions(code: &str) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    for start in super::scan::words(code, "fn") {
        let rest = &code[start + 2..];
        let name_at = rest.len() - rest.trim_start().len();
        let name = &rest[name_at..];
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '#');
        let name = &name[..name.find(|c| !is_name(c)).unwrap_or(name.len())];
        if name.is_empty() {
            continue; // A type: `fn(u32) -> u32`.
        }
        let Some(open) = body_start(code, start + 2 + name_at + name.len()) else { continue };
        let Some(close) = closing_brace(code, open) else { continue };
        let lines = code[open..close].matches('\n').count().saturating_sub(1);
        found.push(Function { name, start, lines });
    }
    found
}

/// The brace that opens the body, or `None` for a declaration that ends in `;`.
fn body_start(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut previous = b' ';
    for (offset, byte) in code.as_bytes()[from..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            // A constant in a type, `Ring<{ N }>`, is no body.
            b'{' if previous == b'<' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some(from + offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            previous = *byte;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{check, functions};
    use crate::tidy::places;

    fn function_of(lines: usize) -> String {
        format!("\nfn long() {{\n{}}}\n", "    step();\n".repeat(lines))
    }

    #[test]
    fn a_function_of_seventy_lines_passes_and_one_more_does_not() {
        let path = "crates/queue/src/apply.rs";
        assert!(places(check, &[(path, &function_of(70))]).is_empty());
        assert_eq!(places(check, &[(path, &function_of(71))]), ["crates/queue/src/apply.rs:2"]);
    }

    #[test]
    fn a_test_file_may_tell_longer_stories() {
        let path = "crates/queue/tests/story.rs";
        assert!(places(check, &[(path, &function_of(120))]).is_empty());
        assert_eq!(places(check, &[(path, &function_of(121))]), ["crates/queue/tests/story.rs:2"]);
    }

    #[test]
    fn a_file_over_seven_hundred_lines_is_found() {
        let path = "crates/queue/src/lib.rs";
        assert!(places(check, &[(path, &"// x\n".repeat(700))]).is_empty());
        assert_eq!(places(check, &[(path, &"// x\n".repeat(701))]), ["crates/queue/src/lib.rs:0"]);
    }

    #[test]
    fn bodies_are_told_from_types_and_declarations() {
        let code = "trait T { fn a(x: [u8; 2]); fn b<T>() -> Ring<{ N }> where T: Copy, {\n\n} }
            type F = fn(u32) -> u32; fn outer() {\n fn inner() {\n x\n }\n }";
        let found: Vec<_> = functions(code).into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(found, [("b", 1), ("outer", 3), ("inner", 1)]);
    }
}
