//! The seeds' experiments, one command each: `fern bench NAME`.
//!
//! Real operations through the official driver, against any server that speaks MongoDB's protocol.
//! An experiment is a list of phases; a phase is a number of clients that repeat a step, for some
//! seconds or until there is no more to do. What they did is sampled every second, together with
//! what the server says of itself.
//!
//! Always true:
//! 1. Data and the schedule of each client follow from the seed alone: how fast a server is decides
//!    how far a client gets, never what it does next.
//! 2. Two servers (`--vs`) are given the same work in alternating slices, never at the same time.
//! 3. Only the database [`DATABASE`] is touched. It is dropped at the start.
#![forbid(unsafe_code)]

mod experiments;
mod figures;
mod login;
mod meter;
mod options;
mod phase;
mod progress;
mod report;
mod run;
mod side;
mod status;

pub use experiments::{Curve, Experiment};
pub use login::{Login, NAMED_TWICE};
pub use options::Options;
pub use run::run;

/// Where the experiments keep their data.
pub const DATABASE: &str = "fern_bench";
