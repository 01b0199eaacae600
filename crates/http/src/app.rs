//! The state that handlers share, and the function around every request.

use std::sync::Arc;

use axum::extract::FromRef;

use crate::limits::Limits;
use crate::route::Route;
use crate::router::{Params, Router};

/// What all requests share.
pub struct Edge {
    /// Whether callers need no key; only ever true on a loopback address.
    pub dev: bool,
    /// Bounds.
    pub limits: Limits,
}

/// [`Edge`], shared.
pub type EdgeState = Arc<Edge>;

/// The routes over their state.
pub struct App {
    /// The state.
    pub edge: EdgeState,
    /// The table.
    pub router: Router,
}

/// What a handler's extractors see besides the request: the state of the edge and the route.
#[derive(Clone)]
pub struct Ctx {
    pub(crate) app: Arc<App>,
    pub(crate) route: u32,
    pub(crate) params: Params,
}

impl Ctx {
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
}

impl FromRef<Ctx> for EdgeState {
    fn from_ref(ctx: &Ctx) -> EdgeState {
        ctx.app.edge.clone()
    }
}

/// The application over its state, with all routes.
#[must_use]
pub fn app(edge: EdgeState) -> Arc<App> {
    Arc::new(App { edge, router: Router::new(crate::routes::all()) })
}
