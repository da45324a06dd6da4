//! Model oracle, crash harness and generators for tests.
#![forbid(unsafe_code)]
