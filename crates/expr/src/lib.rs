//! What an aggregation expression or an accumulator means; no storage.
//!
//! Everything here is parsed once, with MongoDB's error codes, and then evaluated over raw documents
//! without deserialising them. Nothing here does I/O or asks the time.
#![forbid(unsafe_code)]

pub mod accumulator;
pub mod agg;
