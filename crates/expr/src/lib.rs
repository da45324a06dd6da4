//! What a filter, projection, update or aggregation expression means; no storage.
//!
//! Everything here is parsed once, with MongoDB's error codes, and then applied to raw documents
//! without deserialising them. Nothing here does I/O or asks the time.
#![forbid(unsafe_code)]

pub mod accumulator;
pub mod agg;
pub mod collation;
pub mod decimal;
pub mod filter;
mod hashed_key;
pub mod multikey;
pub mod number;
mod order;
pub mod path;
pub mod projection;
pub mod raw;
pub mod show;
pub mod sort;
pub mod text_score;
pub mod types;
pub mod update;

pub use filter::Filter;
pub use hashed_key::hashed_key;
pub use path::Path;
pub use projection::Projection;
pub use sort::SortPattern;
pub use update::Update;

/// The most components a dotted path may have: as deep as documents may nest.
pub const MAX_PATH_DEPTH: usize = 200;
