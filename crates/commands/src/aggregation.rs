//! Commands that run pipelines.

pub(crate) mod aggregate;
pub(crate) mod sources;
