//! The OpenAPI document and its page, both made from the route table once, at the start.

mod example;
mod page;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::extract::{Cursor, Limit};
use crate::problem::{PROBLEM_JSON, ProblemKind};
use crate::route::{Access, Content, Route, SCOPES};
use crate::router::Router;

/// What is served at `/openapi.json` and `/docs`.
pub struct Documents {
    /// OpenAPI 3.1.
    pub json: Bytes,
    /// HTML.
    pub page: Bytes,
}

impl Documents {
    /// The documents of these routes.
    #[must_use]
    pub fn new(router: &Router) -> Documents {
        let document = document(router);
        let page = page::render(router, &document).into();
        Documents { json: document.to_string().into(), page }
    }
}

const ABOUT: &str = "The backend for the moment everyone arrives at once. JSON in camelCase; times \
    are RFC 3339 with milliseconds, in UTC; durations are integers with the unit in the name. \
    Errors are `application/problem+json` with a stable `type`. A POST that creates something \
    takes an `Idempotency-Key`: same key and body, same answer for 24 hours. Lists take `limit` \
    and `cursor`, and give `nextCursor` until they end.";

fn document(router: &Router) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    schemas.insert("Problem".to_owned(), problem_schema());
    schemas.insert(Limit::name().into_owned(), plain(&<Limit as utoipa::PartialSchema>::schema()));
    schemas
        .insert(Cursor::name().into_owned(), plain(&<Cursor as utoipa::PartialSchema>::schema()));
    for route in router.routes() {
        for (name, schema) in &route.doc.schemas {
            schemas.insert(name.clone(), plain(schema));
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    let tags: Vec<Value> = router
        .tables()
        .iter()
        .map(|(name, about)| json!({"name": name, "description": about}))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stampede",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": security_schemes()},
    })
}

fn plain(schema: &impl serde::Serialize) -> Value {
    serde_json::to_value(schema).expect("schemas serialize")
}

fn security_schemes() -> Value {
    json!({
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": format!("A key, `sk_…`, with scopes out of: {}.", SCOPES.join(", ")),
        },
        "shopper": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "A token of the tenant's issuer; `sub` is the user.",
        },
    })
}

fn problem_schema() -> Value {
    let slugs: Vec<&str> = ProblemKind::ALL.iter().map(|kind| kind.slug()).collect();
    let meanings: String = ProblemKind::ALL
        .iter()
        .map(|kind| {
            format!("- `{}` ({}): {}\n", kind.slug(), kind.status().as_u16(), kind.meaning())
        })
        .collect();
    json!({
        "type": "object",
        "description": "Why a request was refused.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "enum": slugs, "description": meanings},
            "title": {"type": "string", "description": "The type, in words."},
            "status": {"type": "integer", "description": "The HTTP status."},
            "detail": {"type": "string", "description": "What exactly was wrong, for people."},
            "retryAfterMs": {
                "type": "integer",
                "minimum": 0,
                "description": "When trying again can help; also as `Retry-After`, in seconds.",
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let doc = &route.doc;
    let mut operation = json!({
        "operationId": route.operation,
        "tags": [route.tag],
        "summary": doc.summary,
        "responses": responses(route),
    });
    if !doc.description.is_empty() {
        operation["description"] = doc.description.into();
    }
    let parameters = parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = &doc.body {
        let mut content = content(body);
        if let Some(example) = doc.example.and_then(|text| serde_json::from_str::<Value>(text).ok())
        {
            content[body.media_type]["example"] = example;
        }
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation["security"] = match doc.access {
        Access::Public => json!([]),
        Access::Scope(scope) => json!([{"key": [scope]}]),
        Access::ScopeOrShopper(scope) => json!([{"key": [scope]}, {"shopper": []}]),
    };
    operation
}

fn content(content: &Content) -> Value {
    let schema = content.schema.as_ref().map_or_else(|| json!({"type": "string"}), plain);
    let mut types = Map::new();
    types.insert(content.media_type.to_owned(), json!({"schema": schema}));
    types.into()
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters: Vec<Value> = route
        .param_names()
        .map(|name| {
            let schema = json!({"type": "string"});
            let mut parameter =
                json!({"name": name, "in": "path", "required": true, "schema": schema});
            let example = example::of_parameter(name);
            if !example.starts_with('$') {
                parameter["example"] = example.into();
            }
            parameter
        })
        .collect();
    parameters.extend(route.doc.parameters.iter().map(plain));
    if route.doc.idempotent {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "description": "Same key and body, same answer for 24 hours.",
        }));
    }
    parameters
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    for answer in &route.doc.answers {
        let mut response = json!({"description": answer.what});
        if let Some(body) = &answer.content {
            response["content"] = content(body);
        }
        responses.insert(answer.status.to_string(), response);
    }
    let mut by_status: BTreeMap<u16, Vec<ProblemKind>> = BTreeMap::new();
    for kind in problems(route) {
        by_status.entry(kind.status().as_u16()).or_default().push(kind);
    }
    for (status, kinds) in by_status {
        let slugs: Vec<&str> = kinds.iter().map(|kind| kind.slug()).collect();
        let types: Vec<String> = slugs.iter().map(|slug| format!("`{slug}`")).collect();
        let mut types_content = Map::new();
        types_content.insert(
            PROBLEM_JSON.to_owned(),
            json!({"schema": {
                "allOf": [{"$ref": "#/components/schemas/Problem"}],
                "properties": {"type": {"enum": slugs}},
            }}),
        );
        // Where a route answers a problem's status itself (503 of /readyz), its own words stay.
        responses
            .entry(status.to_string())
            .or_insert_with(|| json!({"description": types.join(", "), "content": types_content}));
    }
    responses.into()
}

/// The problems of a route: its own, and those that follow from what it takes.
pub(crate) fn problems(route: &Route) -> Vec<ProblemKind> {
    use ProblemKind as Kind;
    let doc = &route.doc;
    let mut kinds = doc.problems.clone();
    if doc.access != Access::Public {
        kinds.extend([Kind::Unauthenticated, Kind::Forbidden, Kind::QuotaExceeded]);
        if route.method != Method::GET {
            kinds.extend([Kind::Overloaded, Kind::Stopped, Kind::Unavailable, Kind::DiskFull]);
        }
    }
    if doc.body.is_some() {
        kinds.extend([Kind::InvalidBody, Kind::PayloadTooLarge, Kind::Timeout]);
        kinds.push(Kind::UnsupportedMediaType);
    }
    if doc.idempotent {
        kinds.extend([Kind::InvalidHeader, Kind::IdempotencyConflict]);
    }
    if route.param_names().next().is_some() || !doc.parameters.is_empty() {
        kinds.push(Kind::InvalidParameter);
    }
    kinds.sort_unstable_by_key(|kind| (kind.status().as_u16(), kind.slug()));
    kinds.dedup();
    kinds
}

#[cfg(test)]
mod tests;
