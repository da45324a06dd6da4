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
mod audit;
mod authorization;
mod batch;
mod command;
mod compat;
mod context;
mod crud;
mod diagnostics;
mod finished;
mod gate;
mod judged;
mod lock_wait;
mod needs;
mod not_stored;
mod outcome;
mod permit;
mod redact;
mod registry;
mod replication;
mod security;
mod service;
mod sessions;
mod transactions;
mod unfinished;

pub use authorization::page as authorization_page;
pub use compat::page as compatibility_page;
pub use diagnostics::sampler::Sampler;
pub use gate::DeclaredNeeds;
pub use service::Service;

#[cfg(test)]
mod tests;
