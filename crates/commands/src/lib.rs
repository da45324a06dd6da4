//! One file per command: parse, run, reply.
//!
//! The server hands each message to [`Service::run`] and sends what comes back. What is always
//! true:
//! 1. A request gets exactly one document: `{…, ok: 1.0}` or `{ok: 0.0, errmsg, code, codeName}`.
//! 2. A field that a command does not know is refused here and nowhere later.
//! 3. No panic is reachable from a client's bytes.
//! 4. CRUD requests are read from raw bytes and answered in raw bytes; no owned document between.
#![forbid(unsafe_code)]

mod admin;
mod aggregation;
mod batch;
mod command;
mod compat;
mod connection;
mod context;
mod crud;
mod diagnostics;
mod fail_point;
mod finished;
mod host;
mod index_advice;
mod last_write;
mod lock_log;
mod log_levels;
mod metrics;
mod profiler;
mod registry;
mod replication;
mod scripting;
mod service;
mod session_records;
mod sessions;
mod transactions;
mod versions;
mod write_gate;

pub use compat::page as compatibility_page;
pub use connection::Connection;
pub use diagnostics::sampler::Sampler;
pub use host::{Allocator, Host, LogEvent, Network, Severity, SilentHost};
pub use log_levels::LogSettings;
pub use replication::ReplicaSetOptions;
pub use service::{Parts, ServerInfo, Service};
pub use session_records::SessionRecords;

#[cfg(test)]
mod tests;
