//! The maintenance thread: what has a period of its own and must not wait until the flushers have
//! nothing to do.
//!
//! ```text
//!  ten times a second   makes the next log segment ready, fits the budget of memory for writes,
//!                       watches the disk's free space
//!  once a second        looks whether anybody uses the engine, releases dropped dictionaries, forgets
//!                       locks no snapshot asks about, lets history go that is too old, gives space
//!                       back to the disk
//! ```

mod free_space;
mod log_writer;
mod pruning;

pub(crate) use free_space::FreeSpace;
pub(crate) use log_writer::LogWriter;
pub(crate) use pruning::Pruning;

use crate::Result;
use crate::error::ignore_no_space;
use crate::health::Health;
use crate::history::{self, History};
use crate::log::Log;
use crate::schedule::load::SpaceLoad;
use crate::schedule::{Scheduler, is_due, micros, policy};
use crate::snapshots::Snapshots;
use crate::tuning::Tuning;
use blockfile::BlockFile;
use locktree::LockTable;
use os::{Clock, Padded};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const TUNING: &Tuning = &Tuning::STANDARD;

/// What is done in rounds.
pub(crate) struct Maintenance {
    pub(crate) last_round: AtomicU64,
    pub(crate) rounds_without_work: AtomicU64,
    /// The data file as it was when moving segments was of no more use.
    pub(crate) compacted: Mutex<Option<blockfile::Space>>,
    pub(crate) free_space: Arc<FreeSpace>,
    pub(crate) log: Arc<Padded<Log>>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) pruning: Pruning,
    pub(crate) schedule: Arc<Scheduler>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) blocks: BlockFile,
    pub(crate) health: Arc<Health>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Maintenance {
    /// What the maintenance thread does, until everything stops.
    pub(crate) fn run(&self) {
        while !self.schedule.queue.is_stopping() {
            self.schedule.queue.pause(TUNING.round / 10);
            self.schedule.report("prepare the log", self.free_space.prepare_log());
            self.schedule.report("maintenance", self.tick());
        }
    }

    /// The write budget fitted, and one round, where it is due.
    pub(crate) fn tick(&self) -> Result<()> {
        self.schedule.fit_budget();
        self.free_space.watch();
        if !is_due(&self.last_round, micros(self.clock.monotonic()), TUNING.round) {
            return Ok(());
        }
        let used = self.schedule.end_round();
        self.pruning.drop_invisible();
        self.locks.prune(self.snapshots.oldest_watching());
        if let Some(history) = &self.history {
            // What was too young for the last checkpoint may be old enough now.
            history::trim(&self.log, Some(history), None)?;
        }
        ignore_no_space(self.give_space_back(used.commits > 0))
    }

    /// Free space of the data file goes back to the filesystem; `written` says whether anybody has
    /// committed since the round before.
    fn give_space_back(&self, written: bool) -> Result<()> {
        let busy = written || self.schedule.queue.len() > 0;
        let rounds = if busy { 0 } else { self.rounds_without_work.load(Ordering::Relaxed) + 1 };
        self.rounds_without_work.store(rounds, Ordering::Relaxed);
        let space = self.blocks.space();
        let load = SpaceLoad {
            unused_bytes: space.unused_bytes,
            free_bytes: space.free_bytes,
            used_end_bytes: space.used_end_bytes,
            rounds_without_work: rounds,
            full: self.health.is_full(),
            compacted: *self.compacted.lock() == Some(space),
        };
        let gives = policy::give_space_back(&load, TUNING);
        if gives.shrink {
            self.health.check(self.blocks.shrink(TUNING.punches))?;
        }
        if gives.compact {
            let moved = self.health.check(self.blocks.compact(TUNING.move_bytes))?;
            if moved == 0 {
                *self.compacted.lock() = Some(self.blocks.space());
            }
        }
        Ok(())
    }
}
