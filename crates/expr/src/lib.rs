//! What a filter, projection, update or aggregation expression means; no storage.
#![forbid(unsafe_code)]

pub mod agg;
pub mod decimal;
pub mod number;
