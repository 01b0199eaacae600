//! The state that handlers share, and the function around every request.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use axum::body::{Body, HttpBody};
use axum::extract::FromRef;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};
use hyper::body::Incoming;
use kernel::TenantId;
use node::Node;

use crate::auth::Auth;
use crate::limits::{Limits, URI_BYTES_MAX};
use crate::problem::ProblemKind;
use crate::room::LargeRoom;
use crate::route::{Answer, Route};
use crate::router::{Found, Params, Router};
use crate::server::{Conn, ConnBody, InFlight, Unread};
use crate::telemetry::census::Census;
use crate::telemetry::metrics::Meter;
use crate::telemetry::otlp::{Span, Tracer};
use crate::telemetry::queue_meters::QueueMeters;
use crate::telemetry::trace::{TRACEPARENT, TraceContext};

/// What all requests share.
pub struct Edge {
    /// The shards.
    pub node: Node,
    /// Tells callers apart.
    pub auth: Auth,
    /// Whether callers need no key; only ever true on a loopback address.
    pub dev: bool,
    /// Bounds.
    pub limits: Limits,
    /// Where spans go, if anywhere.
    pub tracer: Option<Tracer>,
    /// Becomes true when the server goes down: who waits for something stops waiting.
    pub leaving: tokio::sync::watch::Sender<bool>,
    pub(crate) large: LargeRoom,
    pub(crate) meters: QueueMeters,
    /// Grows: whoever has to begin somewhere begins elsewhere than the last.
    pub(crate) turns: AtomicU64,
    pub(crate) census: Census,
}

impl Edge {
    /// The edge of a node, with the usual limits. [`telemetry::install`](crate::telemetry) comes
    /// first.
    #[must_use]
    pub fn new(node: Node) -> Edge {
        let auth = Auth::new(node.clone());
        let leaving = tokio::sync::watch::Sender::new(false);
        Edge {
            node,
            auth,
            dev: false,
            limits: Limits::default(),
            tracer: None,
            leaving,
            large: LargeRoom::default(),
            meters: QueueMeters::new(),
            turns: AtomicU64::new(0),
            census: Census::new(),
        }
    }
}

/// [`Edge`], shared.
pub type EdgeState = Arc<Edge>;

/// The routes over their state.
pub struct App {
    /// The state.
    pub edge: EdgeState,
    /// The table.
    pub router: Router,
    /// One for each route, and a last one for what is no route.
    meters: Vec<Meter>,
    pub(crate) openapi: crate::openapi::Documents,
}

/// What a handler's extractors see besides the request: the state of the edge, the route and the
/// connection.
#[derive(Clone)]
pub struct Ctx {
    pub(crate) app: Arc<App>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) route: u32,
    pub(crate) params: Params,
    caller: OnceLock<TenantId>,
}

impl Ctx {
    pub(crate) fn new(app: Arc<App>, conn: Arc<Conn>, route: u32, params: Params) -> Ctx {
        Ctx { app, conn, route, params, caller: OnceLock::new() }
    }

    /// What all requests share.
    #[must_use]
    pub fn edge(&self) -> &EdgeState {
        &self.app.edge
    }

    /// The operation that is being called; its `doc.access` says who may.
    #[must_use]
    pub fn route(&self) -> &Route {
        self.app.router.route(self.route)
    }

    /// The connection that the request came on.
    #[must_use]
    pub fn conn(&self) -> &Conn {
        &self.conn
    }

    /// Notes whose request it is, for those who take from it after the caller is known.
    pub(crate) fn is_of(&self, tenant: TenantId) {
        // Who it is does not change.
        let _ = self.caller.set(tenant);
    }

    /// Whose request it is. Where anybody may call, it is nobody's until somebody is let in.
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        self.caller.get().copied()
    }
}

impl FromRef<Ctx> for EdgeState {
    fn from_ref(ctx: &Ctx) -> EdgeState {
        ctx.app.edge.clone()
    }
}

impl FromRef<Ctx> for Arc<App> {
    fn from_ref(ctx: &Ctx) -> Arc<App> {
        ctx.app.clone()
    }
}

/// The application over its state, with all routes. [`telemetry::install`](crate::telemetry)
/// comes first.
#[must_use]
pub fn app(edge: EdgeState) -> Arc<App> {
    App::with_routes(edge, crate::routes::all())
}

impl App {
    /// An application with other routes than [`app`]'s, for tests.
    #[must_use]
    pub fn with_routes(edge: EdgeState, tables: Vec<crate::route::Routes>) -> Arc<App> {
        let router = Router::new(tables);
        let operations = router.routes().iter().map(|route| route.operation).chain(["none"]);
        let meters = operations.map(Meter::new).collect();
        let openapi = crate::openapi::Documents::new(&router);
        Arc::new(App { edge, router, meters, openapi })
    }

    /// Answers a request, whatever happens.
    pub(crate) async fn answer(
        app: Arc<App>,
        conn: Arc<Conn>,
        request: Request<Incoming>,
    ) -> Response<ConnBody> {
        let misleading = misleading(&conn, &request);
        let in_flight = InFlight::new(conn);
        let is_h2 = request.version() == Version::HTTP_2;
        let began = Instant::now();
        let mut seen = Seen::new(&app, &request);
        let (request, unread) = with_body(request);
        let response = if let Some(detail) = misleading {
            ProblemKind::BadRequest.because(detail).closing().into_response()
        } else {
            App::respond(&app, &mut seen, in_flight.conn(), request).await
        };
        let response = seen.done(&app, response, began.elapsed());
        // A refusal comes before all of its request was read; others mostly have read it.
        let refused = response.status().as_u16() >= 400;
        if let Some(unread) = unread.filter(|_| refused) {
            unread.drop_rest(app.edge.limits.unread_timeout).await;
        }
        response.map(|body| ConnBody::new(body, in_flight, is_h2))
    }

    /// Nothing of the request is left when it has an answer.
    async fn respond(
        app: &Arc<App>,
        seen: &mut Seen,
        conn: &Arc<Conn>,
        request: Request<Body>,
    ) -> Response {
        let uri_len = request.uri().path_and_query().map_or(0, |text| text.as_str().len());
        if uri_len > URI_BYTES_MAX {
            let detail = format!("path and query must not have more than {URI_BYTES_MAX} bytes");
            return ProblemKind::UriTooLong.because(detail).into_response();
        }
        match app.router.find(request.method(), request.uri().path()) {
            Found::Route(number, params) => {
                seen.route = Some(number);
                let ctx = Ctx::new(app.clone(), conn.clone(), number, params);
                let answer = (app.router.route(number).endpoint)(request, ctx);
                match caught(answer).await {
                    Ok(response) => response,
                    Err(panic) => seen.defect(app, panic.as_ref()),
                }
            }
            Found::OtherMethods { allow, ends_in_name } => {
                let path = Some(request.uri().path()).filter(|_| ends_in_name);
                let misspelt = path.and_then(|path| misspelt(&app.router, path));
                other_method(request.method(), allow, misspelt)
            }
            Found::Nothing => unknown_path(&app.router, request.method(), request.uri()),
        }
    }
}

/// Whether a server before or behind this one could read the request in another way: it may hide
/// a second one in its body.
fn misleading(conn: &Conn, request: &Request<Incoming>) -> Option<&'static str> {
    let target = request.uri().path();
    let whole_server = request.method() == Method::OPTIONS && target == "*";
    if !target.starts_with('/') && !whole_server {
        return Some("the request's target must begin with a slash");
    }
    let coding = request.headers().get(TRANSFER_ENCODING)?;
    if request.headers().get_all(TRANSFER_ENCODING).iter().count() > 1 || coding != "chunked" {
        return Some("chunked, once, is the only Transfer-Encoding taken");
    }
    conn.names_a_length().then_some("Content-Length and Transfer-Encoding exclude each other")
}

/// The request for its handler, and what there may be to do about its body after the answer. One
/// without a body, as most are, takes no allocation.
fn with_body(request: Request<Incoming>) -> (Request<Body>, Option<Unread>) {
    let (head, incoming) = request.into_parts();
    let (body, unread) = if incoming.is_end_stream() {
        (Body::empty(), None)
    } else if head.version == Version::HTTP_2 {
        let unread = Unread::new(incoming);
        (unread.lend(), Some(unread))
    } else {
        (Body::new(incoming), None)
    };
    (Request::from_parts(head, body), unread)
}

async fn caught(mut answer: Answer) -> Result<Response, Box<dyn Any + Send>> {
    poll_fn(|cx| {
        // The future is not polled again after a panic, and what it shared was behind locks
        // that do not poison.
        match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// What is wrong with the verb that a path ends in, if it has one.
fn misspelt(router: &Router, path: &str) -> Option<String> {
    let (_, verb) = path.rsplit('/').next()?.rsplit_once(':')?;
    Some(match router.verbs(path).as_slice() {
        [] => format!("it has no verb {verb:?}"),
        verbs => format!("it has no verb {verb:?} (there are {})", verbs.join(", ")),
    })
}

/// The path has other methods than this; `misspelt` when it ends in a name of the caller's with
/// something like a verb.
fn other_method(method: &Method, allow: &HeaderValue, misspelt: Option<String>) -> Response {
    if *method == Method::OPTIONS {
        return (StatusCode::NO_CONTENT, [(ALLOW, allow.clone())]).into_response();
    }
    let methods = allow.to_str().unwrap_or_default();
    let mut detail = format!("this path does not have {method}; it has {methods}");
    if let Some(misspelt) = misspelt {
        // Else it sounds as if whoever misspells a verb had meant a name.
        detail.push_str(&format!("; {misspelt}, so that is taken as a part of a name"));
    }
    ProblemKind::MethodNotAllowed.because(detail).allowing(allow.clone()).into_response()
}

fn unknown_path(router: &Router, method: &Method, uri: &Uri) -> Response {
    let path = uri.path();
    if *method == Method::OPTIONS && path == "*" {
        // Of the server as a whole.
        return StatusCode::NO_CONTENT.into_response();
    }
    let mut detail = "no operation has this path".to_owned();
    let verbs = router.verbs(path);
    if !verbs.is_empty() {
        let without = || format!("it lacks a verb after a colon: {}", verbs.join(", "));
        detail.push_str(&format!(": {}", misspelt(router, path).unwrap_or_else(without)));
    }
    detail.push_str("; see /docs");
    ProblemKind::UnknownPath.because(detail).into_response()
}

/// What is remembered of a request until it is answered.
struct Seen {
    method: Method,
    route: Option<u32>,
    trace: Option<TraceContext>,
    /// Only when the access log is on.
    uri: Option<Uri>,
    /// Only when the request is exported.
    began: Option<SystemTime>,
}

impl Seen {
    fn new(app: &App, request: &Request<Incoming>) -> Seen {
        let mut trace = TraceContext::of(request.headers());
        let mut began = None;
        if let Some(tracer) = &app.edge.tracer {
            let context = trace.get_or_insert_with(|| TraceContext::begin(tracer.samples()));
            began = context.sampled.then(SystemTime::now);
        }
        let uri = tracing::enabled!(tracing::Level::DEBUG).then(|| request.uri().clone());
        Seen { method: request.method().clone(), route: None, trace, uri, began }
    }

    fn operation<'a>(&self, app: &'a App) -> Option<&'a Route> {
        self.route.map(|number| app.router.route(number))
    }

    /// A handler panicked: nobody's input should be able to do this.
    fn defect(&mut self, app: &App, panic: &(dyn Any + Send)) -> Response {
        let trace = *self.trace.get_or_insert_with(|| TraceContext::begin(false));
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let operation = self.operation(app).map_or("none", |route| route.operation);
        tracing::error!(trace_id = %trace, operation, panic = text, "a handler panicked");
        metrics::counter!("http_panics_total").increment(1);
        let detail = format!("it is logged under trace id {trace}");
        ProblemKind::Internal.because(detail).into_response()
    }

    fn done(mut self, app: &App, mut response: Response, took: Duration) -> Response {
        let status = response.status();
        let meter = self.route.map_or(app.meters.len() - 1, |number| number as usize);
        app.meters[meter].record(status, took);
        if status.as_u16() >= 400 && self.trace.is_none() {
            self.trace = Some(TraceContext::begin(false));
        }
        if let Some(trace) = &self.trace {
            response.headers_mut().insert(TRACEPARENT, trace.header());
        }
        if let Some(uri) = &self.uri {
            let trace = self.trace.map(|trace| trace.to_string());
            let operation = self.operation(app).map_or("none", |route| route.operation);
            tracing::debug!(
                method = %self.method,
                path = uri.path(),
                operation,
                status = status.as_u16(),
                took_us = took.as_micros(),
                trace_id = trace,
                "answered"
            );
        }
        if let (Some(tracer), Some(began), Some(trace)) = (&app.edge.tracer, self.began, self.trace)
        {
            let route = self.operation(app);
            tracer.record(Span {
                trace,
                name: route.map_or("none", |route| route.operation),
                route: route.map_or("", |route| route.path),
                method: self.method.clone(),
                status: status.as_u16(),
                began,
                took,
            });
        }
        if self.method == Method::HEAD { without_body(response) } else { response }
    }
}

/// The answer to HEAD: as to GET, length included, without the body.
fn without_body(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    if let Some(len) = body.size_hint().exact()
        && !head.headers.contains_key(CONTENT_LENGTH)
    {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    Response::from_parts(head, Body::empty())
}
