//! One file a system, each a table; see [`crate::route`].

use crate::route::Routes;

pub mod system;

/// Every table. A new system adds its line here.
#[must_use]
pub fn all() -> Vec<Routes> {
    vec![system::routes()]
}
