//! Callers and administration, through the routes, over a real node.

mod administration;
mod callers;
mod searches;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kernel::{Envelope, TenantId};
use node::{Node, NodeConfig};
use serde_json::{Value, json};
use tenants::{Command, CreateKey, NewKey, Scope, Scopes};

use super::shopper::tests as tokens;
use super::*;
use crate::app::{App, Ctx, Edge};
use crate::route::{Access, Routes, doc};
use crate::router::Found;
use crate::server::Conn;

const SHOP: &str = "shop";

/// A node with tenants `default` and `shop`, and an app over it with all routes and some more.
struct World {
    app: Arc<App>,
    node: Node,
    /// Of `default`.
    operator: String,
    /// Admin of `shop`.
    shop_admin: String,
    shop: TenantId,
    folder: tempfile::TempDir,
}

fn start(folder: &tempfile::TempDir) -> Node {
    let config =
        NodeConfig { data_dir: folder.path().to_owned(), shards: Some(1), ..Default::default() };
    Node::start(config).expect("a node on an empty folder")
}

fn app_over(node: &Node, dev: bool) -> Arc<App> {
    let mut edge = Edge::new(node.clone());
    edge.dev = dev;
    let mut tables = crate::routes::all();
    tables.push(probes());
    App::with_routes(Arc::new(edge), tables)
}

/// Operations of every kind of access that say who called.
fn probes() -> Routes {
    async fn who(caller: Caller) -> axum::Json<Value> {
        let scopes: Vec<&str> = caller.scopes.iter().map(Scope::name).collect();
        axum::Json(json!({
            "tenant": caller.tenant.0, "name": caller.tenant_name(), "user": caller.user.as_deref(),
            "scopes": scopes, "key": caller.key_id.is_some(),
        }))
    }
    async fn visitor(visitor: Visitor) -> axum::Json<Value> {
        let known = visitor.caller.is_some();
        axum::Json(json!({ "tenant": visitor.tenant.0, "known": known }))
    }
    async fn store(caller: Caller) -> Result<StatusCode, Problem> {
        caller.check_room(true)?;
        Ok(StatusCode::CREATED)
    }
    Routes::new("probe", "For tests.")
        .get("/probe/public", "probe.public", visitor, doc("Public").public())
        .get("/probe/read", "probe.read", who, doc("By keys").scope("read"))
        .get("/probe/produce", "probe.produce", who, doc("By keys").scope("produce"))
        .get("/probe/both", "probe.both", who, doc("By both").scope_or_shopper("storefront"))
        .post("/probe/store", "probe.store", store, doc("Stores").scope("produce"))
}

impl World {
    async fn new() -> World {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let node = start(&folder);
        let operator = bootstrap(&node).await.expect("it works").expect("an empty folder");
        let app = app_over(&node, false);
        let (shop, shop_admin) = (TenantId(2), String::new());
        let mut world = World { app, node, operator, shop_admin, shop, folder };
        let made = world.post(&world.operator, "/v1/tenants", &json!({ "name": SHOP })).await;
        assert_eq!((made.status, &made.json["tenantId"]), (StatusCode::CREATED, &json!(2)));
        world.shop_admin = world.key(SHOP, &["admin"]).await;
        world
    }

    /// A key's secret, made by the operator.
    async fn key(&self, tenant: &str, scopes: &[&str]) -> String {
        let body = json!({ "name": "test", "scopes": scopes, "tenant": tenant });
        let made = self.post(&self.operator, "/v1/keys", &body).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.json);
        made.json["key"].as_str().expect("a secret").to_owned()
    }

    async fn get(&self, credential: &str, path: &str) -> Seen {
        self.call(Method::GET, path, &[("authorization", &bearer_of(credential))], None).await
    }

    async fn post(&self, credential: &str, path: &str, body: &Value) -> Seen {
        let headers = [("authorization", bearer_of(credential))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.call(Method::POST, path, &headers, Some(body)).await
    }

    async fn send(&self, method: Method, credential: &str, path: &str, body: &Value) -> Seen {
        let bearer = bearer_of(credential);
        self.call(method, path, &[("authorization", &bearer)], Some(body)).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Seen {
        call_on(&self.app, &conn(), method, path, headers, body).await
    }
}

fn conn() -> Arc<Conn> {
    Arc::new(Conn::new("127.0.0.1:9".parse().expect("an address"), false))
}

fn bearer_of(credential: &str) -> String {
    format!("Bearer {credential}")
}

struct Seen {
    status: StatusCode,
    headers: HeaderMap,
    json: Value,
}

impl Seen {
    fn is_problem(&self, status: u16, slug: &str) -> bool {
        self.status.as_u16() == status && self.json["type"] == slug
    }

    fn detail(&self) -> &str {
        self.json["detail"].as_str().unwrap_or_default()
    }
}

/// What the server does with a request, without a socket.
async fn call_on(
    app: &Arc<App>,
    conn: &Arc<Conn>,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Seen {
    let plain_path = path.split('?').next().expect("a first part");
    let Found::Route(route, params) = app.router.find(&method, plain_path) else {
        panic!("{method} {path} is no route")
    };
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = match body {
        Some(json) => {
            request = request.header(CONTENT_TYPE, "application/json");
            Body::from(json.to_string())
        }
        None => Body::empty(),
    };
    let ctx = Ctx::new(app.clone(), conn.clone(), route, params);
    let request = request.body(body).expect("a request");
    let response: Response = (app.router.route(route).endpoint)(request, ctx).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("bodies in memory").to_bytes();
    let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Seen { status: parts.status, headers: parts.headers, json }
}
