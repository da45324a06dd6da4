//! What an operation makes of a value.

use bson::raw::{RawBson, RawBsonRef};

/// What becomes of a value.
#[derive(Debug)]
pub(super) enum Effect<'a> {
    /// It stays, or stays away.
    Keep,
    /// It goes; an array element becomes null.
    Remove,
    /// It becomes this.
    Value(RawBsonRef<'a>),
    /// It becomes this.
    Owned(RawBson),
    /// It becomes the array with this body.
    Array(Vec<u8>),
}
