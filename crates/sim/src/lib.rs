//! The whole engine from one seed: random work of several clients, background work step by step,
//! faults, crashes and crashes of recoveries, on a simulated disk and clock, against a model.
//!
//! What is asserted, at every step and after every recovery:
//! 1. What is read, at any live snapshot, is what the model holds at that commit.
//! 2. What a recovery shows is the state after some commit: at least the last one acknowledged as
//!    durable, at most the last one tried; whole transactions only.
//! 3. Every error has a cause that was injected, of the kind it names: corruption is reported only
//!    where bytes were damaged, a full disk only where it was full.
//! 4. Damaged bytes are never returned as data; where they are met, the error names a place.
//! 5. A full disk refuses writes, reads go on, and writes come back once there is room.
//! 6. The history is what was committed, in order, once; what a follower was shown is there after every
//!    crash, and no commit's time changes.
//! 7. Of a third of the seeds also what a member of a set promises: `member.rs`.
//! 8. The engine never panics, and the same seed is the same run, byte for byte.
//!
//! ```text
//!  seed ─► Features (which kinds of work and faults: a random subset each time)
//!       ─► Setup    (tiny sizes, periods)
//!       ─► World    step, step, step … ─► crash ─► recovery ─► compare ─► step …
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::unnecessary_wraps, reason = "every step of a run has the same shape")]

mod backup;
mod chain;
mod client;
mod crash;
mod faults;
mod features;
mod follower;
mod history;
mod loads;
mod member;
mod model;
mod reads;
mod run;
mod setup;
mod tombstones;
mod trace;
mod updates;
mod waiting;
mod world;

pub use engine::{PlantedBug, PlantedUpdateBug, TombstoneBug};
pub use features::{Feature, Features};
pub use run::{Failure, Plan, Summary, run, shrink};
pub use world::Tally;
