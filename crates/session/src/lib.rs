//! Cursors, logical sessions and transaction numbers.
#![forbid(unsafe_code)]
