//! What the operator's tool does as a client of a running server, through the official driver.
//!
//! Nobody starts `fern-client` by hand: `fern` hands the tasks that need the driver on to it, and so
//! stays a program without driver, TLS and drawing (ADR 33).
#![forbid(unsafe_code)]

pub mod arguments;
pub mod backup;
mod failures;
mod files;
pub mod import;
pub mod migrate;
mod progress;
mod server;
pub mod stats;
