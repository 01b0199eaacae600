//! The documentation as one page: no scripts, nothing from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::{ABOUT, example, problems};
use crate::problem::ProblemKind;
use crate::route::{Access, Route};
use crate::router::Router;

const EXAMPLES: &str = "Examples run as they stand against `stampede serve --dev`. For another server \
    set `STAMPEDE` to its address, and `KEY` to a key. `$RECEIPT_HANDLE`, `$REDRIVE_ID` and `$KEY_ID` \
    are what a receive, a redrive and the creation of a key have answered.";
const STYLE: &str = include_str!("page.css");

pub(super) fn render(router: &Router, document: &Value) -> String {
    let systems = router.tables();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Stampede API" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                nav {
                    strong { "Stampede" }
                    @for (tag, _) in systems {
                        a href={ "#" (tag) } { (tag) }
                        ul {
                            @for route in of(router, tag) {
                                li { a href={ "#" (route.operation) } { (route.doc.summary) } }
                            }
                        }
                    }
                    a href="#problems" { "problems" }
                    a href="/openapi.json" { "openapi.json" }
                }
                main {
                    h1 { "Stampede API" }
                    p { (code_spans(ABOUT)) }
                    p { (code_spans(EXAMPLES)) }
                    @for (tag, about) in systems {
                        section {
                            h2 id=(tag) { (tag) }
                            p { (code_spans(about)) }
                            @for route in of(router, tag) { (operation(route, document)) }
                        }
                    }
                    (problem_table())
                }
            }
        }
    };
    page.into_string()
}

fn of<'a>(router: &'a Router, tag: &'a str) -> impl Iterator<Item = &'a Route> {
    router.routes().iter().filter(move |route| route.tag == tag)
}

fn operation(route: &Route, document: &Value) -> Markup {
    let method = route.method.as_str();
    let doc = &document["paths"][route.path][method.to_lowercase()];
    html! {
        article id=(route.operation) {
            h3 { span class={ "method " (method) } { (method) } " " code { (route.path) } }
            p { (code_spans(route.doc.summary)) "." @if !route.doc.description.is_empty() { " " (code_spans(route.doc.description)) } }
            p class="access" { (access(route.doc.access)) }
            @if let Some(parameters) = doc["parameters"].as_array() {
                table {
                    @for parameter in parameters { (parameter_row(parameter)) }
                }
            }
            pre { code { (curl(route, document)) } }
            dl {
                @for answer in &route.doc.answers {
                    dt { (answer.status) }
                    dd { (code_spans(answer.what)) (answer_example(doc, answer.status, document)) }
                }
                @let kinds = problems(route);
                @if !kinds.is_empty() {
                    dt { "problems" }
                    dd {
                        @for kind in kinds {
                            a href={ "#problem-" (kind.slug()) } { (kind.status().as_u16()) " " (kind.slug()) } " "
                        }
                    }
                }
            }
        }
    }
}

fn access(access: Access) -> String {
    match access {
        Access::Public => "Open to everyone.".to_owned(),
        Access::Scope(scope) => format!("Needs a key with scope {scope}."),
        Access::ScopeOrShopper(scope) => {
            format!("Needs a key with scope {scope}, or a shopper's token.")
        }
    }
}

fn parameter_row(parameter: &Value) -> Markup {
    let text = |name: &str| parameter[name].as_str().unwrap_or_default().to_owned();
    html! {
        tr {
            td { code { (text("name")) } }
            td { (text("in")) @if parameter["required"] == true { ", required" } }
            td { (code_spans(&text("description"))) }
        }
    }
}

fn answer_example(doc: &Value, status: u16, document: &Value) -> Markup {
    let schema = &doc["responses"][status.to_string()]["content"]["application/json"]["schema"];
    if schema.is_null() {
        return html! {};
    }
    let value = example::of(schema, &document["components"]["schemas"]);
    html! { pre { code { (pretty(&value)) } } }
}

fn curl(route: &Route, document: &Value) -> String {
    let method = route.method.as_str();
    let mut text = "curl".to_owned();
    if method != "GET" {
        text += &format!(" -X {method}");
    }
    // A scheme is not needed, and a page that names one asks for something elsewhere.
    text += &format!(" \"${{STAMPEDE:-127.0.0.1:7700}}{}", example::of_path(route.path));
    let in_query = route.doc.example.filter(|_| method == "GET");
    if let Some(query) = in_query {
        text += &format!("?{query}");
    }
    text += "\"";
    if route.doc.access != Access::Public {
        // Nothing at all without a key: a server with --dev would look at an empty one.
        text += " \\\n  ${KEY:+-H \"Authorization: Bearer $KEY\"}";
    }
    let operation = &document["paths"][route.path][method.to_lowercase()];
    if let Some(json) = operation["requestBody"]["content"].get("application/json") {
        let body = match route.doc.example {
            Some(given) => given.to_owned(),
            None => example::of(&json["schema"], &document["components"]["schemas"]).to_string(),
        };
        text += " \\\n  -H 'Content-Type: application/json'";
        text += &format!(" \\\n  -d '{}'", body.replace('\'', r"'\''"));
    } else if let Some(body) = route.doc.example.filter(|_| in_query.is_none()) {
        text += &format!(" \\\n  -d '{body}'");
    }
    text
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("values serialize")
}

fn problem_table() -> Markup {
    html! {
        section {
            h2 id="problems" { "problems" }
            p { "Every error is " code { "application/problem+json" } ". Match on " code { "type" } ": it never changes." }
            table {
                @for kind in ProblemKind::ALL {
                    tr id={ "problem-" (kind.slug()) } {
                        td { (kind.status().as_u16()) }
                        td { code { (kind.slug()) } }
                        td { (code_spans(kind.meaning())) }
                    }
                }
            }
        }
    }
}

/// Text in which `this` is code.
fn code_spans(text: &str) -> Markup {
    html! {
        @for (i, part) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
