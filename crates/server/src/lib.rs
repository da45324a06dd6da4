//! Sockets, configuration, wiring, shutdown; the binaries.
//!
//! The way in: [`config::Settings`] says what was asked for, [`startup`] checks that the machine
//! can give it, [`run`] opens the rooms in order, [`net::Server`] serves, [`log`] tells of it.
//! Nothing but `wiring` knows which commands stand behind [`net::Service`].
#![forbid(unsafe_code)]

mod advisor;
mod allocator;
mod audit;
mod code_pages;
pub mod config;
mod exposure;
mod key_file;
pub mod log;
mod master_keys;
mod panics;
pub mod run;
pub mod startup;
mod status;
mod status_token;
mod syslog;
mod tls_files;
mod wiring;
