//! One file a system, each a table; see [`crate::route`].

use crate::route::Routes;

pub mod keys;
pub mod queues;
pub mod recents;
pub mod streams;
pub mod system;
pub mod tenants;

/// Every table. A new system adds its line here.
#[must_use]
pub fn all() -> Vec<Routes> {
    let mut all = vec![recents::routes(), tenants::routes(), keys::routes(), system::routes()];
    all.extend(queues::routes());
    all.extend(streams::routes());
    all.push(crate::sqs::routes());
    all
}
