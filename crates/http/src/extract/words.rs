//! What is wrong with JSON or a query, in the words of whoever wrote it.
//!
//! The reader speaks of maps, sequences, structs and `u32`; a caller has objects, arrays and whole
//! numbers, and does not know our types.

use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

/// How the reader refuses a name in an object that is to be a number, and is none.
const NAME_IS_NO_NUMBER: &str = "invalid value: expected key to be a number in quotes";

/// Characters of a value that are said again.
const SHOWN_CHARS_MAX: usize = 60;

/// Where in a body something is wrong.
struct Place {
    /// Empty for the body itself.
    at: String,
    /// In a name there: one that could not be read is part of no path.
    is_name: bool,
}

impl Place {
    fn of(path: &Path) -> Place {
        let is_name = matches!(path.iter().next_back(), Some(Segment::Unknown));
        let text = path.to_string();
        let at = match path.iter().next() {
            None => "",
            Some(_) if is_name => text.rsplit_once('.').map_or("", |(before, _)| before),
            Some(_) => &text,
        };
        Place { at: at.to_owned(), is_name }
    }
}

/// What is wrong with a body, and where in it.
pub(super) fn of_body(path: &Path, error: &serde_json::Error) -> String {
    of_json(&Place::of(path), error)
}

fn of_json(place: &Place, error: &serde_json::Error) -> String {
    let at = &place.at;
    let text = error.to_string();
    let (what, line) = without_line(&text);
    match error.classify() {
        Category::Eof => format!("the body is not JSON: it ends too soon,{line}"),
        // A name in an object that is to be a number is read from its text.
        Category::Syntax if what == NAME_IS_NO_NUMBER => of_data(place, what),
        Category::Syntax | Category::Io => {
            if what == "recursion limit exceeded" {
                let what =
                    if at.is_empty() { "the body".to_owned() } else { format!("at {at}: it") };
                return format!("{what} is nested too deep,{line}");
            }
            let at = if at.is_empty() { String::new() } else { format!("at {at}: ") };
            // A word without quotes that begins as `true`, `false` or `null` does is told so.
            let what = if what == "expected ident" { "expected value" } else { what };
            format!("{at}the body is not JSON: {what}{line}")
        }
        Category::Data => of_data(place, what),
    }
}

fn of_data(place: &Place, what: &str) -> String {
    match (plain(what), place.at.as_str(), place.is_name) {
        (Said::Must(must), "", false) => format!("the body {must}"),
        (Said::Must(must), "", true) => format!("a name in the body {must}"),
        (Said::Must(must), at, false) => format!("at {at}: it {must}"),
        (Said::Must(must), at, true) => format!("at {at}: a name in it {must}"),
        (Said::Other(what), "", _) => what,
        (Said::Other(what), at, _) => format!("at {at}: {what}"),
    }
}

/// What is wrong with a parameter of a query.
pub(super) fn of_query(what: &str) -> String {
    match plain(what) {
        Said::Must(must) => format!("it {must}"),
        Said::Other(what) => what,
    }
}

/// Reads a part of a body that was taken apart, or says what is wrong at which place in it.
pub(crate) fn read_part<T: DeserializeOwned>(part: serde_json::Value) -> Result<T, String> {
    serde_path_to_error::deserialize(part)
        .map_err(|error| of_data(&Place::of(error.path()), &error.inner().to_string()))
}

enum Said {
    /// "must be a string, not an object".
    Must(String),
    Other(String),
}

/// " at line 1 column 7" is of use where there is no field to be named.
fn without_line(text: &str) -> (&str, &str) {
    text.rfind(" at line ").map_or((text, ""), |at| text.split_at(at))
}

fn plain(what: &str) -> Said {
    let mismatch = what.strip_prefix("invalid type: ").or(what.strip_prefix("invalid value: "));
    // From the end: what was found may say anything.
    if let Some((found, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) {
        return Said::Must(format!("must be {}, not {}", of_expected(expected), of_found(found)));
    }
    // The fields of an object can be read from an array, if there are as many.
    if what.starts_with("invalid length ") && what.contains("expected struct ") {
        return Said::Must("must be an object, not an array".to_owned());
    }
    if what == NAME_IS_NO_NUMBER {
        return Said::Must("must be a whole number in quotes".to_owned());
    }
    // How the standard library refuses the text of a number.
    let numbers = ["invalid digit", "cannot parse integer", "number too"];
    if numbers.iter().any(|beginning| what.starts_with(beginning)) {
        return Said::Must("must be a whole number, 0 or more, and not too large".to_owned());
    }
    Said::Other(what.replacen("unknown variant", "unknown value", 1))
}

fn of_expected(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "str" | "string" | "string or map" | "variant identifier" => "a string",
        "a map" => "an object",
        "a sequence" => "an array",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

fn of_found(found: &str) -> String {
    let quoted = |text: &str| text.trim_matches('`').to_owned();
    match found.split_once(' ') {
        Some(("string", text)) => format!("the string {}", shortened(text)),
        Some(("boolean", text)) => quoted(text),
        Some(("integer", text)) => format!("the number {}", quoted(text)),
        Some(("floating", text)) => {
            format!("the number {}", quoted(text.trim_start_matches("point ")))
        }
        _ => match found {
            "map" => "an object".to_owned(),
            "sequence" => "an array".to_owned(),
            "unit value" => "null".to_owned(),
            other => shortened(other),
        },
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read to be refused")]
    struct Thing {
        name: String,
        count: Option<u32>,
        ratio: Option<f64>,
        on: Option<bool>,
        list: Option<Vec<u8>>,
        inner: Option<Box<Thing>>,
        named: Option<BTreeMap<String, u8>>,
        numbered: Option<BTreeMap<u16, u8>>,
        colour: Option<Colour>,
    }

    #[derive(Debug, Deserialize)]
    enum Colour {
        Red,
        Green,
    }

    fn at(field: &str) -> Place {
        Place { at: field.to_owned(), is_name: false }
    }

    #[track_caller]
    fn check(json: &str, expect: &str) {
        let value = serde_json::from_str(json).expect("JSON");
        assert_eq!(read_part::<Thing>(value).expect_err("refused"), expect, "{json}");
    }

    #[test]
    fn refusals_name_the_field_and_know_nothing_of_our_types() {
        check(r#"{"name": {}}"#, "at name: it must be a string, not an object");
        check(r#"{"name": 5}"#, "at name: it must be a string, not the number 5");
        check(r#"{"name": null}"#, "at name: it must be a string, not null");
        check(
            r#"{"name": "a", "count": -1}"#,
            "at count: it must be a whole number from 0 to 4294967295, not the number -1",
        );
        check(
            r#"{"name": "a", "count": ", expected u8"}"#,
            "at count: it must be a whole number from 0 to 4294967295, not the string \
             \", expected u8\"",
        );
        check(r#"{"name": "a", "ratio": true}"#, "at ratio: it must be a number, not true");
        check(r#"{"name": "a", "on": 1.5}"#, "at on: it must be a boolean, not the number 1.5");
        check(r#"{"name": "a", "list": {}}"#, "at list: it must be an array, not an object");
        check(
            r#"{"name": "a", "list": [1, 256]}"#,
            "at list[1]: it must be a whole number from 0 to 255, not the number 256",
        );
        check(r#"{"name": "a", "inner": 1}"#, "at inner: it must be an object, not the number 1");
        check(r#"{"name": "a", "inner": {}}"#, "at inner: missing field `name`");
        check(
            r#"{"name": "a", "colour": "Blue"}"#,
            "at colour: unknown value `Blue`, expected `Red` or `Green`",
        );
        check(r#"{"name": "a", "inner": []}"#, "at inner: it must be an object, not an array");
        for (name, said) in [("?", "at named.?: it"), ("a.?", "at named.a.?: it")] {
            let must = "must be a whole number from 0 to 255, not the string \"x\"";
            let json = format!(r#"{{"name": "a", "named": {{"{name}": "x"}}}}"#);
            check(&json, &format!("{said} {must}"));
        }
        let must = "must be a whole number in quotes";
        for name in ["x", "?", "x.y"] {
            let json = format!(r#"{{"name": "a", "numbered": {{"{name}": 5}}}}"#);
            check(&json, &format!("at numbered: a name in it {must}"));
        }
        check(r#"5"#, "the body must be an object, not the number 5");
        let long = format!(r#"{{"name": "a", "count": "{}"}}"#, "x".repeat(1000));
        let said = read_part::<Thing>(serde_json::from_str(&long).expect("JSON"));
        assert!(said.expect_err("refused").len() < 200);
    }

    #[test]
    fn what_is_no_json_is_told_with_its_line() {
        let said = |text: &str| {
            of_json(&at(""), &serde_json::from_str::<Thing>(text).expect_err("refused"))
        };
        assert_eq!(said("{"), "the body is not JSON: it ends too soon, at line 1 column 1");
        let word = "the body is not JSON: expected value at line 1 column 10";
        assert_eq!(said("{\"name\": nobody}"), word.replace("10", "11"));
        assert_eq!(said("{\"name\": yes}"), word);
        assert_eq!(said("{\n x"), "the body is not JSON: key must be a string at line 2 column 2");
    }

    #[test]
    fn what_is_nested_too_deep_is_json_all_the_same() {
        let deep = "[".repeat(1000);
        let error = serde_json::from_str::<serde_json::Value>(&deep).expect_err("refused");
        assert_eq!(of_json(&at(""), &error), "the body is nested too deep, at line 1 column 128");
        assert!(of_json(&at("filter"), &error).starts_with("at filter: it is nested too deep, at"));
    }

    #[test]
    fn numbers_of_a_query_are_whole() {
        for bad in ["ten", "", "-1", "99999999999999999999"] {
            let error = bad.parse::<u32>().expect_err("no number").to_string();
            let said = "it must be a whole number, 0 or more, and not too large";
            assert_eq!(of_query(&error), said, "{error}");
        }
        assert_eq!(of_query("unknown field `x`"), "unknown field `x`");
    }
}
