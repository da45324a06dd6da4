//! How many hashes a thread has taken: a login of somebody who exists and one of nobody must take as many, which tests
//! compare. Counting is one addition beside a hash.

use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// The hashes that this thread has taken so far.
pub fn taken() -> u64 {
    TAKEN.get()
}

pub(super) fn count(hashes: u64) {
    TAKEN.set(TAKEN.get() + hashes);
}
