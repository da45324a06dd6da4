//! Hashes that agree with [`crate::equal`]: `1`, `1.0` and decimal `1` hash alike.
//!
//! Always true: what is hashed is the encoded key, so equal values give equal hashes.

use crate::encode::{Sink, encode};
use bson::Bson;
use bson::raw::{RawBson, RawBsonRef};
use std::hash::Hasher;

struct HashSink<'a, H>(&'a mut H);

impl<H: Hasher> Sink for HashSink<'_, H> {
    fn put(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn type_bit(&mut self, _bit: bool) {}
}

/// Feeds a value to a hasher. A malformed or too deeply nested value is hashed as far as it goes.
pub fn hash_value<H: Hasher>(value: RawBsonRef<'_>, hasher: &mut H) {
    // The bytes written before an error still depend on the value alone.
    let _hashed_so_far = encode(&mut HashSink(hasher), value, None, 0);
}

/// [`hash_value`] over a deserialised value.
pub fn hash_value_bson<H: Hasher>(value: &Bson, hasher: &mut H) {
    if let Ok(raw) = RawBson::try_from(value.clone()) {
        hash_value(raw.as_raw_bson_ref(), hasher);
    }
}
