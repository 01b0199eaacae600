//! The machines under test: what is asked of each, and the plain model it is compared with.

pub mod probe;
pub mod queue;
pub mod recents;
pub mod streams;
pub mod tenants;
