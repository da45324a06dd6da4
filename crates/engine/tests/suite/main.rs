//! The engine as its callers see it: against a model, through crashes, with threads, on damaged
//! files, on a full disk.
//!
//! `FERN_ENGINE_SCALE=n` multiplies the length of every random run (default 1).
//! `FERN_CRASH_STEP=1` tries every syscall of the crash workloads (default: a stride, so that the
//! suite stays short); with `cargo test -p engine --profile fast` that takes a few minutes.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod api;
mod appended;
mod bank;
mod crash;
mod damage;
mod encrypted;
mod fills;
mod held_back;
mod history;
mod hot_backup;
mod kept_states;
mod large;
mod loads;
mod lock_waits;
mod members;
mod model;
mod older_entries;
mod serializable;
mod sorter;
mod space;
mod threads;
mod tombstones;
mod undecided;
mod updates;

use engine::{Background, Engine, Options};
use os::Os;
use std::sync::Arc;
use std::time::Duration;
use telemetry::Registry;

/// Sizes so small that memtables seal, logs rotate and transactions span chunks all the time.
pub(crate) fn tiny() -> Options {
    let mut options = Options::new("/data");
    options.cache_size = 8 << 20;
    options.fs_redzone_percent = 0;
    options.lock_timeout = Duration::ZERO;
    options.background = Background::Manual;
    options.checkpoint_period = Duration::ZERO;
    options.cleaner_period = Duration::ZERO;
    options.log_flush_period = Duration::from_secs(1);
    options.sizes.write_budget = 64 << 10;
    options.sizes.memtable_bytes = 12 << 10;
    options.sizes.chunk_bytes = 300;
    options.sizes.spill_bytes = 2 << 10;
    options.sizes.log_segment_bytes = 16 << 10;
    options.sizes.log_cap = 24 << 10;
    options.sizes.tiny_trees = true;
    options
}

pub(crate) fn open(os: &Os, options: Options) -> engine::Result<Engine> {
    Engine::open(os.clone(), Arc::new(Registry::new()), options)
}

/// How much longer than usual random runs are.
pub(crate) fn scale() -> u64 {
    std::env::var("FERN_ENGINE_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
