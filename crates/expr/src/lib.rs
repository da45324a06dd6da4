//! What a filter, projection, update or aggregation expression means; no storage.
#![forbid(unsafe_code)]
