//! The order of values, with the work of a comparison counted.
//!
//! Always true: comparing two large values counts as as much work as it is, so that the next poll
//! asks the interrupt. One comparison itself goes over two values of a document at most, and is not
//! stopped in the middle: an order must not depend on the time.

use crate::raw::size_of_ref;
use bson::raw::RawBsonRef;
use keystring::Collation;
use std::cmp::Ordering;

/// Compares two values in MongoDB's order; strings under a collation where there is one.
pub fn compare_under(a: RawBsonRef<'_>, b: RawBsonRef<'_>, under: Option<&Collation>) -> Ordering {
    if a.element_type() == b.element_type() {
        let bytes = size_of_ref(a).min(size_of_ref(b));
        if bytes > limits::BYTES_PER_UNIT {
            limits::note_work(bytes / limits::BYTES_PER_UNIT);
        }
    }
    keystring::compare_under(a, b, under)
}
