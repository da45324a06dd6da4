//! Scheduling: what background work is done next, by whom, and how fast writers may go on.
//!
//! ```text
//!  load     what the engine looks like now: plain numbers
//!     │     gathered under the queue's lock, without a look at the disk
//!     ▼
//!  policy   what is to be done: pure functions of a load and the tuning
//!     │
//!     ▼
//!  workers  the threads: ask, run, report
//! ```
//!
//! What is always true: nothing in [`policy`] reads a clock, takes a lock or has a state. So every
//! decision that an ADR describes is a row of a table in its tests, and the simulator decides by
//! the same functions as the threads do. See ADR 30.

pub(crate) mod load;
pub(crate) mod policy;
pub(crate) mod tuning;
