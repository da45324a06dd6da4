//! Crash harness, generators and golden files for tests. Development only: no product code uses
//! this crate.
//!
//! - [`crash_everywhere`] runs a scripted workload once per syscall, dies at that syscall, recovers
//!   and verifies.
//! - [`Gen`] makes keys, values and choices from a seed.
//! - [`golden`] compares encoded bytes with a committed file.
//! - [`Instructions`] counts what operations cost, under callgrind.
#![forbid(unsafe_code)]

mod crash;
mod generate;
mod golden;
mod instructions;

pub use crash::{CrashPlan, CrashReport, Failure, crash_everywhere};
pub use generate::Gen;
pub use golden::{golden, golden_to_decode};
pub use instructions::Instructions;
