//! Sockets and threads: from an accepted connection to a served request, for any [`Service`].
//!
//! ```text
//!   listening sockets ── listening thread ── accepts; ends waits; watches requests that take long
//!                              │
//!                              ▼
//!   clients' sockets ── poller ──▶ worker (as many as processors): read, run, write, next
//!                                    │ about to wait: its permit goes to another worker
//!                                    ▼
//!                     waits on a lock or the disk, ends its request, becomes spare
//! ```
//!
//! A connection with nothing to do is an entry in a table and an epoll registration. What is always true:
//! 1. A connection is with at most one worker ([`connection::Ownership`]), and no news of its socket is lost.
//! 2. As many requests run at once as there are processors, beside those that wait or take long: those
//!    have given their permit on ([`pool`]), so they keep nobody waiting.
//! 3. Waiting for a client holds no thread: not for the rest of a message, nor for it to take a reply; nor
//!    does waiting for room for a large message, or for time to pass ([`waiting`]).
//! 4. Half messages and requests that wait together have a budget, and each half message a time within which
//!    it must be whole.
#![forbid(unsafe_code)]

mod accept_rate;
mod channel;
mod connection;
mod envelope;
mod exchange;
mod inbox;
mod legacy;
mod listener;
mod listening;
mod poll;
mod pool;
mod serve;
mod server;
mod service;
mod settings;
mod shared;
mod stream;
mod unauthenticated;
mod waiting;
mod worker;

pub use listener::{BindError, Endpoint, Listener};
pub use server::Server;
pub use service::Service;
pub use settings::{NetOptions, NetStats, TlsPort};
