//! Aggregation stages over a source; no storage.
#![forbid(unsafe_code)]
