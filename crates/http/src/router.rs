//! How a path finds its route.

use crate::route::{Route, Routes};

/// Where the parameters are in a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params;

/// All routes.
pub struct Router {
    routes: Vec<Route>,
}

impl Router {
    /// The router of these tables.
    #[must_use]
    pub fn new(tables: Vec<Routes>) -> Router {
        Router { routes: tables.into_iter().flat_map(|table| table.list).collect() }
    }

    pub(crate) fn route(&self, number: u32) -> &Route {
        &self.routes[number as usize]
    }
}
