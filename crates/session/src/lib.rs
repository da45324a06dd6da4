//! Cursors, logical sessions and running operations: what the server remembers between requests.
//!
//! What is always true:
//! 1. Nothing here runs a query; a parked cursor is an opaque `C` with a name and an owner.
//! 2. Time comes in as [`std::time::Duration`] since the server's start (`os::Clock::monotonic`),
//!    so that the simulator can own it.
//! 3. Lock order: a registry's lock is a leaf; no call is made outward while it is held.
#![forbid(unsafe_code)]

mod checkouts;
mod cursors;
mod operation;
mod sessions;

pub use checkouts::{Checkouts, StateGuard as CheckedOutState};
pub use cursors::{
    CursorGuard, CursorId, CursorInfo, CursorStats, Cursors, GetMoreRequest, Killed, NewCursor,
    Waiter,
};
pub use operation::{
    OpProgress, OpSnapshot, OperationGuard, OperationSlot, OperationStart, Operations,
    ParkedOperation,
};
pub use sessions::{SessionId, SessionInfo, Sessions, UserDigest};
