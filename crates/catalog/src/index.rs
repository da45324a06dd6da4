//! Indexes: what they are made of and which keys a document has in them.

mod keys;
mod spec;
mod text;
mod wildcard;

pub use keys::{DocumentKeys, IndexKey, KeyMaker, RecordKey, hash};
pub(crate) use keys::{SUFFIX_BYTES, hexadecimal, id_key};
pub use spec::{
    INTERNAL_TIME_INDEX, IndexSpec, KeyPart, PartKind, default_index_name, known_options,
};
pub use text::TextIndex;
pub use wildcard::Wildcard;
