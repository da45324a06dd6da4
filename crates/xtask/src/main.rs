//! The project's one entry point.
fn main() {}
