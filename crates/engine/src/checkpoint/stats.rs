//! What checkpoints cost, in figures: how often, how long, how many bytes. `serverStatus().ft`
//! shows them as `checkpoint`.

use parking_lot::Mutex;
use std::time::Duration;

/// Checkpoints since the start. Times are in microseconds, moments in milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckpointStats {
    /// Completed.
    pub count: u64,
    /// Not completed: the disk was full, or the engine had stopped.
    pub failed: u64,
    /// When the last one was begun; 0 is never.
    pub last_begin_ms: i64,
    /// When the last completed one was begun.
    pub completed_begin_ms: i64,
    /// When it was complete.
    pub completed_end_ms: i64,
    /// How long it took.
    pub last_micros: u64,
    /// How long all of them took.
    pub micros: u64,
    /// The part of `micros` in which the roots were captured.
    pub begin_micros: u64,
    /// The longest capture.
    pub longest_begin_micros: u64,
    /// Nodes stored because they had changed. Leaves and runs are on disk before a checkpoint.
    pub nodes: u64,
    /// Time that took, compression included.
    pub node_micros: u64,
    /// Their bytes.
    pub node_bytes: u64,
    /// Their bytes in the data file.
    pub node_stored_bytes: u64,
    /// Bytes of translation tables.
    pub table_bytes: u64,
    /// Bytes of roots.
    pub root_bytes: u64,
    /// Time in fdatasync of the data file and in writing the superblock.
    pub finish_micros: u64,
}

/// What one checkpoint took and wrote, step by step.
#[derive(Clone, Copy, Default)]
pub(crate) struct CheckpointTimings {
    pub(crate) begun_ms: i64,
    pub(crate) begin: Duration,
    pub(crate) nodes: ftree::NodesWritten,
    pub(crate) node_time: Duration,
    pub(crate) written: blockfile::CheckpointWritten,
    pub(crate) finish: Duration,
}

#[derive(Default)]
pub(crate) struct CheckpointCounters(Mutex<CheckpointStats>);

impl CheckpointCounters {
    pub(crate) fn begun(&self, now_ms: i64) {
        self.0.lock().last_begin_ms = now_ms;
    }

    pub(crate) fn failed(&self) {
        self.0.lock().failed += 1;
    }

    pub(crate) fn completed(&self, timings: &CheckpointTimings, now_ms: i64, took: Duration) {
        let mut stats = self.0.lock();
        stats.count += 1;
        stats.completed_begin_ms = timings.begun_ms;
        stats.completed_end_ms = now_ms;
        stats.last_micros = micros(took);
        stats.micros += micros(took);
        stats.begin_micros += micros(timings.begin);
        stats.longest_begin_micros = stats.longest_begin_micros.max(micros(timings.begin));
        stats.nodes += timings.nodes.count;
        stats.node_micros += micros(timings.node_time);
        stats.node_bytes += timings.nodes.bytes;
        stats.node_stored_bytes += timings.nodes.stored_bytes;
        stats.table_bytes += timings.written.table_bytes;
        stats.root_bytes += timings.written.root_bytes;
        stats.finish_micros += micros(timings.finish);
    }

    pub(crate) fn get(&self) -> CheckpointStats {
        *self.0.lock()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
