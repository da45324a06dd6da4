//! What the engine counts, in the registry and beside it.

use crate::health::Health;
use crate::{Recovered, Result, Timestamp};
use ftree::{Progress, Work};
use parking_lot::Mutex;
use std::time::Duration;
use telemetry::{Counter, Histogram, Registry, Unit};

pub(crate) struct Counters {
    pub(crate) commits: Counter,
    pub(crate) seals: Counter,
    pub(crate) delays: Counter,
    pub(crate) delayed_micros: Counter,
    pub(crate) stalls: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) background_errors: Counter,
    pub(crate) checkpoint_micros: Histogram,
    pub(crate) sync_micros: Histogram,
    pub(crate) drops: Counter,
    pub(crate) spills: Counter,
    pub(crate) drains: Counter,
    pub(crate) merges: Counter,
    pub(crate) flushes: Counter,
    pub(crate) fuses: Counter,
    pub(crate) rewrites: Counter,
    pub(crate) cleaner_passes: Counter,
    pub(crate) last_checkpoint: Mutex<Option<(Timestamp, i64, Duration)>>,
    pub(crate) recovered: Mutex<Recovered>,
    /// What trees that are gone have counted.
    pub(crate) retired: Mutex<ftree::Stats>,
    pub(crate) long_stalls: Counter,
    pub(crate) long_stalled_micros: Counter,
}

impl Counters {
    pub(crate) fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, Unit::Count, help);
        Self {
            commits: count("engine.commits", "transactions committed with writes"),
            seals: count("engine.memtable.seals", "memtables sealed"),
            delays: count("engine.writes.delayed", "commits that were slowed down"),
            delayed_micros: registry.counter(
                "engine.writes.delayed_micros",
                Unit::Micros,
                "time commits were slowed down by",
            ),
            stalls: count("engine.writes.stalled", "commits that waited for memory"),
            checkpoints: count("engine.checkpoints", "checkpoints completed"),
            background_errors: count("engine.background.errors", "background work that failed"),
            checkpoint_micros: registry.histogram(
                "engine.checkpoint.micros",
                Unit::Micros,
                "time of a checkpoint",
            ),
            sync_micros: registry.histogram(
                "engine.log.sync.micros",
                Unit::Micros,
                "time waited for the log to be on disk",
            ),
            drains: count("engine.drains", "sealed memtables drained to runs and leaves"),
            merges: count("engine.merges", "merges of a node's runs"),
            flushes: count("engine.flushes", "children that got what waited for them"),
            fuses: count("engine.fuses", "small neighbours that became one"),
            spills: count("engine.txn.spills", "transactions whose writes went to disk"),
            rewrites: count("engine.rewrites", "leaves and nodes rewritten in another shape"),
            cleaner_passes: count("engine.cleaner.passes", "passes of the cleaner"),
            drops: count("engine.drops", "transactions that dropped dictionaries"),
            last_checkpoint: Mutex::default(),
            recovered: Mutex::default(),
            retired: Mutex::default(),
            long_stalls: count("engine.writes.long_stalls", "waits for memory above a second"),
            long_stalled_micros: registry.counter(
                "engine.writes.long_stalled_micros",
                Unit::Micros,
                "time of those",
            ),
        }
    }
}

impl Counters {
    pub(crate) fn worked(&self, progress: Progress) {
        match progress {
            Progress::Done(Work::Drain) => self.drains.inc(),
            Progress::Done(Work::Merge) => self.merges.inc(),
            Progress::Done(Work::Flush) => self.flushes.inc(),
            Progress::Done(Work::Fuse) => self.fuses.inc(),
            Progress::Done(Work::Rewrite) => self.rewrites.inc(),
            Progress::Idle | Progress::Busy | Progress::Deferred => {}
        }
    }

    /// Notes what background work could not do.
    pub(crate) fn report(&self, health: &Health, what: &'static str, result: Result<()>) {
        if let Err(error) = result {
            self.background_errors.inc();
            if !health.is_closed() {
                tracing::error!(%error, "background work failed: {what}");
            }
        }
    }
}
