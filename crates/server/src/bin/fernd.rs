//! `fernd`, the database server.
fn main() {}
