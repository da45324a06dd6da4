//! BSON values as they stand in documents: fields and paths, numbers, types, order, collations, keys.
//!
//! What every language of the server reads documents with. Nothing here knows a query, and nothing
//! deserialises a document: all of it works on raw bytes. Nothing here does I/O or asks the time.
//!
//! Always true: a loop over a client's values polls the operation's limits.
#![forbid(unsafe_code)]

pub mod collation;
pub mod decimal;
mod hashed_key;
pub mod multikey;
pub mod number;
pub mod order;
pub mod path;
pub mod raw;
pub mod show;
pub mod sort;
pub mod text_score;
pub mod types;

pub use hashed_key::hashed_key;
pub use path::Path;
pub use sort::SortPattern;

/// The most components a dotted path may have: as deep as documents may nest.
pub const MAX_PATH_DEPTH: usize = 200;
