//! Sockets, configuration, wiring, shutdown; the binaries.
//!
//! The way in: [`config::Settings`] says what was asked for, [`startup`] checks that the machine
//! can give it, [`net::Server`] serves it, [`log`] tells of it. Nothing here knows a command; the
//! seam to those is [`service::Service`].
#![forbid(unsafe_code)]

pub mod config;
pub mod log;
pub mod net;
pub mod service;
