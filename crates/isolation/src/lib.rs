//! A checker of isolation in Elle's manner (Kingsbury and Alvaro, VLDB 2020): clients append
//! unique values to lists and write unique values to registers, in random transactions; from what
//! they read follows which transaction must come before which; a cycle among those is an anomaly.
//!
//! ```text
//! history.rs    what was asked and answered, and the names of anomalies
//! versions.rs   the order of each key's versions, and what is wrong without any cycle
//! graph.rs      who comes before whom, and the cycles
//! check.rs      a history in, anomalies out
//! bin/          clients of a real server that make histories, kill it and judge
//! ```
//!
//! Always true: an anomaly is reported only where no execution of the promised kind explains the
//! history; where a read leaves the order of versions open, nothing is assumed.

mod check;
mod graph;
mod history;
mod versions;

pub use check::{Finding, Report, check};
pub use history::{Anomaly, Key, Level, Op, RecordedTxn, TxnOutcome, Value};
