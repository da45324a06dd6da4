//! What the engine says about itself: figures for `serverStatus`.

use crate::checkpoint::CheckpointStats;
use crate::environment::Environment;
use crate::{Recovered, Result, Timestamp};
use blockfile::PageStats;

/// Pages of the two levels, as TokuMX tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pages {
    /// Of leaves.
    pub leaf: PageStats,
    /// Of nodes and of the runs in their buffers.
    pub nonleaf: PageStats,
}

/// The engine in figures.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The setting.
    pub cache_size: u64,
    /// Who holds how much of it, and what came into memory and went.
    pub cache: cachetable::Stats,
    /// Memtables of all dictionaries that are not drained yet, in bytes.
    pub memtable_bytes: u64,
    /// What they may take before writers are slowed, as the cache is filled now.
    pub write_budget: u64,
    /// The data file.
    pub file: blockfile::Stats,
    /// Bytes of log files.
    pub log_bytes: u64,
    /// The log's positions: begin, on disk, end.
    pub log_first: u64,
    /// Up to here the log is on disk.
    pub log_synced: u64,
    /// Up to here the log is written or in memory.
    pub log_end: u64,
    /// Transactions committed with writes.
    pub commits: u64,
    /// The newest visible commit.
    pub visible_commit: Timestamp,
    /// The newest complete one: the same, unless commits are held back.
    pub complete_commit: Timestamp,
    /// The oldest commit a snapshot reads at.
    pub oldest_snapshot: Timestamp,
    /// Live snapshots.
    pub snapshots: usize,
    /// Open transactions.
    pub live_txns: usize,
    /// Transactions that have begun since the start, the engine's own included.
    pub begun_txns: u64,
    /// Those that have ended without a commit.
    pub aborted_txns: u64,
    /// The lock table.
    pub locks: locktree::Stats,
    /// Checkpoints completed since the start.
    pub checkpoints: u64,
    /// The last one: the commit it shows, when it was complete (milliseconds since 1970), and how
    /// many milliseconds it took.
    pub last_checkpoint: Option<(Timestamp, i64, u64)>,
    /// Checkpoints, in more figures.
    pub checkpoint: CheckpointStats,
    /// The log's writing, in figures.
    pub log: wal::Stats,
    /// Calls of fdatasync on the data file, and their time in microseconds.
    pub file_syncs: u64,
    /// See `file_syncs`.
    pub file_sync_micros: u64,
    /// Trees with background work waiting or running.
    pub queued_jobs: usize,
    /// Sealed memtables drained to runs and leaves.
    pub drains: u64,
    /// Merges of a node's runs.
    pub merges: u64,
    /// Children that got what waited for them.
    pub flushes: u64,
    /// Small neighbours that became one.
    pub fuses: u64,
    /// Transactions that outgrew memory: their writes went to disk before they ended.
    pub spills: u64,
    /// Commits that were slowed down, and by how many microseconds in all.
    pub delays: u64,
    /// See `delays`.
    pub delayed_micros: u64,
    /// Commits that waited for memory.
    pub stalls: u64,
    /// Those that waited for more than a second, and how many microseconds in all.
    pub long_stalls: u64,
    /// See `long_stalls`.
    pub long_stalled_micros: u64,
    /// What all trees have counted since the start; their sizes are not in it.
    pub trees: ftree::Stats,
    /// What pages cost before and after compression.
    pub pages: Pages,
    /// Bytes written to the data file and to the log.
    pub written_bytes: u64,
    /// What the last start replayed.
    pub recovered: Recovered,
    /// Why writes are refused for good, if they are.
    pub stopped: Option<String>,
    /// Commits that were refused because the disk was full.
    pub refused_commits: u64,
    /// Writes are refused because the disk is full.
    pub full: bool,
    /// What background work has found damaged and leaves alone.
    pub damage: Vec<String>,
    /// Dictionaries there are.
    pub dictionaries: usize,
}

impl Stats {
    /// Bytes written per byte that memtables gave to the disk; 0 where they gave none yet.
    pub fn write_amplification(&self) -> f64 {
        match self.trees.drained_bytes {
            0 => 0.0,
            taken => self.written_bytes as f64 / taken as f64,
        }
    }
}

impl Environment {
    pub(crate) fn stats(&self) -> Stats {
        let wal = self.log.wal();
        let last = *self.counters.last_checkpoint.lock();
        let (file_syncs, file_sync_micros) = self.blocks.syncs();
        let (begun_txns, aborted_txns) = self.live.begun_and_aborted();
        Stats {
            cache_size: self.options.cache_size,
            cache: self.cache.stats(),
            memtable_bytes: self.memory.total(),
            write_budget: self.memory.budget(),
            file: self.blocks.stats(),
            log_bytes: wal.disk_bytes(),
            log_first: wal.first_lsn(),
            log_synced: wal.synced_lsn(),
            log_end: wal.next_lsn(),
            commits: self.counters.commits.get(),
            visible_commit: self.snapshots.visible().timestamp(),
            complete_commit: self.snapshots.complete().timestamp(),
            oldest_snapshot: Timestamp(self.snapshots.oldest()),
            snapshots: self.snapshots.live(),
            live_txns: self.live.count(),
            begun_txns,
            aborted_txns,
            locks: self.locks.stats(),
            checkpoints: self.counters.checkpoints.get(),
            last_checkpoint: last.map(|(ts, at, took)| (ts, at, took.as_millis() as u64)),
            checkpoint: self.checkpoints.stats(),
            log: wal.stats(),
            file_syncs,
            file_sync_micros,
            queued_jobs: self.schedule.queue.len(),
            drains: self.counters.drains.get(),
            merges: self.counters.merges.get(),
            flushes: self.counters.flushes.get(),
            fuses: self.counters.fuses.get(),
            spills: self.counters.spills.get(),
            delays: self.counters.delays.get(),
            delayed_micros: self.counters.delayed_micros.get(),
            stalls: self.counters.stalls.get(),
            long_stalls: self.counters.long_stalls.get(),
            long_stalled_micros: self.counters.long_stalled_micros.get(),
            trees: self.tree_counters(),
            pages: self.pages(),
            written_bytes: self.written_bytes(),
            recovered: *self.counters.recovered.lock(),
            stopped: self.health.stopped().map(str::to_owned),
            refused_commits: self.health.refused(),
            full: self.health.is_full(),
            damage: self.directory.all().iter().flat_map(|d| d.tree.damage()).collect(),
            dictionaries: self.directory.len(),
        }
    }

    fn tree_counters(&self) -> ftree::Stats {
        let mut all = self.counters.retired.lock().clone();
        for dictionary in self.directory.all() {
            all.add_counters(&dictionary.tree.counters());
        }
        all
    }

    /// Runs are of kind 1, leaves of kind 2 and 5, nodes of kind 3, large values of kind 4.
    fn pages(&self) -> Pages {
        let kind = |kind| self.blocks.page_stats(kind);
        Pages { leaf: kind(2) + kind(5) + kind(4), nonleaf: kind(1) + kind(3) }
    }

    fn written_bytes(&self) -> u64 {
        let read = |name| match self.registry.read(name) {
            Some(telemetry::Value::Counter(bytes)) => bytes,
            _ => 0,
        };
        read("blockfile.write_bytes") + read("wal.write_bytes")
    }

    /// Checks one tree, or with `None` all of them, against its own rules. Reads every page.
    pub(crate) fn verify(&self, dictionary: Option<crate::DictionaryId>) -> Result<()> {
        let newest = self.snapshots.visible().get();
        for found in self.directory.all() {
            let wanted = dictionary.is_none_or(|wanted| wanted.0 == found.id);
            if wanted && found.visible_at(newest) {
                found.tree.verify()?;
            }
        }
        Ok(())
    }
}
