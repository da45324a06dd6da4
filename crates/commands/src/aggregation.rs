//! Commands that run pipelines.

pub(crate) mod aggregate;
mod sources;
