//! The operator's tool: looks at a data directory, and checks it, without a server. What needs one
//! that runs, it hands on to `fern-client`.
//!
//! What is always true:
//! 1. Nothing in the directory is changed. The directory's lock is held meanwhile, so no server
//!    changes it either.
//! 2. Damage is named, with its place, and reading goes on with whatever can still be reached.
//! 3. What is damaged is never believed: every number is bounded by what really is in the file
//!    before anything is read or allocated after it.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod check;
mod datafile;
mod directory;
mod findings;
pub mod inspect;
mod log;
mod names;
pub mod restore;
pub mod rotate;
mod segment;
mod table;
mod tree;

pub use directory::DataDirectory;
pub use findings::{Damage, Findings};
