//! The cap of a capped collection, and what it may be.

use errors::{Error, Result};

/// The largest cap in bytes: a pebibyte.
const MAX_CAP_BYTES: i64 = 1 << 50;
/// The largest number of documents a cap may name.
const MAX_CAP_DOCUMENTS: i64 = i32::MAX as i64;

/// How much a capped collection may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cap {
    /// Bytes of documents.
    pub bytes: u64,
    /// Documents; none is as many as there is room for.
    pub documents: Option<u64>,
}

impl Cap {
    /// Checks `size` and `max` as `create` and `collMod` give them.
    pub(crate) fn new(size: i64, max: Option<i64>) -> Result<Self> {
        if !(1..=MAX_CAP_BYTES).contains(&size) {
            return Err(Error::bad_value(format!(
                "the size of a capped collection must be between 1 and {MAX_CAP_BYTES} bytes, got \
                 {size}"
            )));
        }
        let documents = match max {
            Some(max) if max > MAX_CAP_DOCUMENTS => {
                return Err(Error::bad_value(
                    "max in a capped collection has to be < 2^31 or not set",
                ));
            }
            // Zero and less have always meant "no limit".
            Some(max) => u64::try_from(max).ok().filter(|max| *max > 0),
            None => None,
        };
        Ok(Self { bytes: size as u64, documents })
    }
}
