//! BSON values as bytes that sort right under memcmp, and the order of values itself.
//!
//! Two things live here and agree with each other by construction and by property test:
//! [`compare`], MongoDB's order of values across types, and [`KeyBuilder`], which writes a tuple of
//! values as bytes whose memcmp order is that order (each part ascending or descending).
//!
//! Always true:
//! 1. Every encoded part is prefix-free: no part is a proper prefix of another. So parts can be laid
//!    one after the other, inverted for descending order, cut off for a prefix range, and a suffix
//!    (the `_id` of the document) can follow.
//! 2. Values that [`compare`] equal encode to equal bytes; what tells them apart (`1` from `1.0`)
//!    goes to the type bits, so that [`decode`] gives back exactly what went in.
//!    Under a [`Collation`] strings are sort keys: the order is the collation's, and the way back
//!    shows the keys.
//! 3. Bytes from disk are checked, never trusted: [`decode`] returns an error, it does not panic.
//!
//! On disk: `docs/formats/keystring.md`.
#![forbid(unsafe_code)]

mod collation;
mod decode;
mod encode;
mod hash;
mod number;
mod order;
mod type_bits;

pub use collation::{
    CaseFirst, Collation, CollationError, CollationOptions, CollationRequest, MaxVariable,
    SORT_KEY_VERSION, is_collatable,
};
pub use decode::{decode, decode_collated, decode_prefix, skip};
pub use encode::{Direction, Discriminator, KeyBuilder};
pub use hash::{hash_value, hash_value_bson};
pub use order::{
    canonical_type, canonical_type_bson, compare, compare_bson, compare_documents, compare_under,
    equal, equal_bson,
};
pub use type_bits::TypeBits;

/// How deep documents and arrays may nest inside a key: MongoDB's BSON limit.
pub const MAX_DEPTH: usize = 200;

/// What can be wrong with a value or with key bytes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Key bytes that no builder wrote.
    #[error("key bytes are damaged at offset {offset}: {reason}")]
    Damaged {
        /// Where reading stopped.
        offset: usize,
        /// What was expected there.
        reason: &'static str,
    },
    /// A value nested deeper than [`MAX_DEPTH`].
    #[error("value is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A raw BSON value whose bytes are malformed.
    #[error("malformed BSON: {0}")]
    Bson(String),
}

impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        Self::Bson(error.to_string())
    }
}

/// What a fallible step here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests;
