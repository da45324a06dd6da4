//! Sockets and threads: from an accepted connection to a served request.
//!
//! ```text
//!   listeners ─┐                      ┌─ worker ── blocking read, run, write ─┐
//!              ├─ poller (one thread) ┼─ worker                               │
//!   parked ────┘        ready queue ──┴─ ...                                  │
//!      ▲──────────── nothing came for a while: parked again ──────────────────┘
//! ```
//!
//! A connection with work to do owns a thread; one without is an entry in a map and an epoll
//! registration. What is always true:
//! 1. A connection is in exactly one place: parked, in the ready queue, or with a worker.
//! 2. A parked connection is armed in epoll (one shot); taking it out of the map disarms it. Only one
//!    whose message waits for room is not: its socket is not read meanwhile.
//! 3. A worker owns its buffers; a parked connection keeps only the bytes of a half message. Half
//!    messages together have a budget, and each a time within which it must be whole.
//! 4. A client that is slow to send is parked in the middle of its message; one that is slow to
//!    read holds its own thread and nobody else's.
//! 5. Waiting holds no thread: not for the rest of a message, nor for room, nor for time to pass.
//!
//! Lock order: each lock here is a leaf; none is held while another is taken, or while a socket
//! or the service is called.

mod connection;
mod inbox;
mod listener;
mod parked;
mod poll;
mod pool;
mod stream;

pub use listener::{BindError, Endpoint, Listener};
pub use pool::{NetOptions, NetStats, Server};
