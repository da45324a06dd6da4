//! Indexes: what they are made of and which keys a document has in them. BSON in, bytes out: nothing
//! here stores anything.
//!
//! Always true: the keys of a document depend on nothing but the document, the index's specification
//! and the collection's collation. Their bytes are a stored format: `docs/formats/catalog.md`.
#![forbid(unsafe_code)]

mod keys;
mod record_key;
mod record_part;
mod shape;
mod spec;
mod text;
pub mod values;
mod wildcard;

pub use keys::{DocumentKeys, IndexKey, KeyMaker, hash, hexadecimal};
pub use record_key::{
    LeadingValues, PrimaryKey, RecordKey, bad_key, id_key, id_key_in, is_suffix, shared_id_key,
};
pub use record_part::record_part;
pub use shape::{
    Compression, STORAGE_OPTIONS, StorageOptions, compression_name, reshaped, substitution,
};
pub use spec::{
    INTERNAL_TIME_INDEX, IndexChange, IndexSpec, KeyPart, PartKind, default_index_name,
    known_options, same_pattern,
};
pub use text::TextIndex;
pub use wildcard::Wildcard;
