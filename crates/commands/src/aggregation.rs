//! Commands that run pipelines.

pub(crate) mod aggregate;
pub(crate) mod map_reduce;
pub(crate) mod sources;
