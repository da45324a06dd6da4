//! Commands that run pipelines.

pub(crate) mod aggregate;
mod catalog_sources;
pub(crate) mod hand_on;
pub(crate) mod map_reduce;
pub(crate) mod sources;
