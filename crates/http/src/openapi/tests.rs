use std::collections::BTreeSet;

use super::*;

fn router() -> Router {
    Router::new(crate::routes::all())
}

#[test]
fn every_route_is_in_the_document_and_nothing_else() {
    let router = router();
    let document = document(&router);
    let registered: BTreeSet<(String, String)> = router
        .routes()
        .iter()
        .map(|route| (route.path.to_owned(), route.method.as_str().to_lowercase()))
        .collect();
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            documented.insert((path.clone(), method.clone()));
        }
    }
    assert_eq!(registered, documented);
}

#[test]
fn every_problem_is_documented() {
    let schema = problem_schema();
    let slugs = schema["properties"]["type"]["enum"].as_array().expect("an enum");
    let page = page::render(&router(), &document(&router()));
    for kind in ProblemKind::ALL {
        assert!(slugs.contains(&kind.slug().into()), "{}", kind.slug());
        assert!(page.contains(&format!("problem-{}", kind.slug())), "{}", kind.slug());
    }
}

#[test]
fn the_document_is_valid_in_structure() {
    let document = document(&router());
    assert_eq!(document["openapi"], "3.1.0");
    for required in ["title", "version"] {
        assert!(document["info"][required].is_string());
    }
    let tags: Vec<&Value> =
        document["tags"].as_array().expect("tags").iter().map(|tag| &tag["name"]).collect();
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        assert!(path.starts_with('/'));
        for (method, operation) in methods.as_object().expect("methods") {
            let at = format!("{method} {path}");
            let id = operation["operationId"].as_str().expect("an id");
            assert!(operations.insert(id.to_owned()), "{id} is there twice");
            assert!(tags.contains(&&operation["tags"][0]), "{at}");
            assert!(operation["summary"].as_str().is_some_and(|text| !text.ends_with('.')), "{at}");
            check_parameters(path, operation);
            check_responses(&at, operation);
            for requirement in operation["security"].as_array().expect("security") {
                for (scheme, scopes) in requirement.as_object().expect("a requirement") {
                    let schemes = &document["components"]["securitySchemes"];
                    assert!(schemes[scheme].is_object(), "{at}");
                    for scope in scopes.as_array().expect("scopes") {
                        assert!(SCOPES.contains(&scope.as_str().expect("text")), "{at}: {scope}");
                    }
                }
            }
        }
    }
    check_refs(&document, &document);
}

fn check_parameters(path: &str, operation: &Value) {
    let none = Vec::new();
    let parameters = operation["parameters"].as_array().unwrap_or(&none);
    let mut seen = BTreeSet::new();
    for parameter in parameters {
        let (name, place) = (&parameter["name"], &parameter["in"]);
        assert!(seen.insert((name.to_string(), place.to_string())), "{path}: {name} twice");
        assert!(["path", "query", "header"].contains(&place.as_str().expect("text")), "{path}");
        assert!(parameter["schema"].is_object(), "{path}: {name} has no schema");
        if place == "path" {
            assert_eq!(parameter["required"], true);
            assert!(path.contains(&format!("{{{}}}", name.as_str().expect("text"))), "{path}");
        }
    }
    let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
    assert_eq!(path.matches('{').count(), in_path, "{path}");
}

fn check_responses(at: &str, operation: &Value) {
    let responses = operation["responses"].as_object().expect("responses");
    assert!(responses.keys().any(|status| status.starts_with(['2', '3'])), "{at} never succeeds");
    for (status, response) in responses {
        assert!(status.parse::<u16>().is_ok_and(|s| (100..600).contains(&s)), "{at}: {status}");
        assert!(response["description"].is_string(), "{at}: {status}");
    }
}

fn check_refs(value: &Value, document: &Value) {
    match value {
        Value::Object(map) => {
            if let Some(target) = map.get("$ref").and_then(Value::as_str) {
                let pointer = target.strip_prefix('#').expect("a local reference");
                assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
            }
            map.values().for_each(|inner| check_refs(inner, document));
        }
        Value::Array(list) => list.iter().for_each(|inner| check_refs(inner, document)),
        _ => {}
    }
}

#[test]
fn the_page_stands_by_itself() {
    let router = router();
    let page = page::render(&router, &document(&router));
    for outside in ["<script", "src=", "https://", "http://", "@import", "url("] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
    for route in router.routes() {
        assert!(page.contains(&format!("id=\"{}\"", route.operation)), "{}", route.operation);
    }
}

#[test]
fn what_cannot_be_carried_out_is_documented_where_queues_are_made_changed_or_moved() {
    let router = router();
    let all = ["queues.create", "queues.update", "topics.subscribe", "redrives.start"];
    for operation in all {
        let route = router.routes().iter().find(|route| route.operation == operation);
        let kinds = problems(route.expect("a route"));
        assert!(kinds.contains(&ProblemKind::Unprocessable), "{operation}");
    }
}
