//! `engineStatus`: the engine in figures, under the keys that TokuMX's monitors read.
//!
//! Always true: a figure is counted or measured. Keys of what this engine has no counterpart of
//! (rollback files, leaf entries, hot indexers, loaders, dirty evictions) are absent.

use crate::command::Command;
use crate::context::Context;
use crate::needs::Needs;
use auth::Action;
use dispatch::fields::Field;
use dispatch::writer::Writer;
use engine::{MemoryKind, PageStats, Stats};
use errors::Result;
use serverstate::ServerState;
use std::sync::Arc;
use telemetry::{Registry, Value};

pub(crate) const ENGINE_STATUS: Command = Command::new(
    "engineStatus",
    "The engine's figures under TokuMX's keys.",
    Needs::Cluster(&[Action::ServerStatus]),
    run,
)
.admin_only();

/// A figure as it is shown.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Figure {
    /// A number of things, or microseconds.
    Count(u64),
    /// Bytes: `serverStatus` divides them by its scale.
    Bytes(u64),
    Seconds(f64),
    Ratio(f64),
    /// Milliseconds since 1970; 0 is never.
    Moment(i64),
    Text(&'static str),
}

use Figure::{Bytes, Count, Moment, Ratio, Seconds, Text};

impl Figure {
    /// A count that is told only where it is above a limit.
    fn only_above(self, limit: u64) -> Self {
        match self {
            Count(count) if count <= limit => Count(0),
            other => other,
        }
    }
}

/// Everything the figures are read from.
pub(crate) struct Facts {
    pub(crate) stats: Stats,
    registry: Arc<Registry>,
    /// Whether the engine takes no writes any more, and why.
    pub(crate) panic: Option<String>,
    pub(crate) space: Space,
    /// Bytes of the filesystem: all, and those that can still be written.
    pub(crate) disk: (u64, u64),
    lock_requests: u64,
    checkpoint_period_secs: u64,
    cleaner_period_secs: u64,
    cleaner_iterations: u64,
    now_ms: i64,
    started_ms: i64,
}

/// How full the disk is, against `fsRedzone`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Enough,
    /// Less than twice the red zone is free.
    Yellow,
    /// Less than the red zone: writes are refused.
    Red,
    /// Nothing is free.
    Full,
}

impl Space {
    pub(crate) fn of(total: u64, available: u64, redzone_percent: u8) -> Self {
        let zone = total / 100 * u64::from(redzone_percent);
        match available {
            0 if total > 0 => Self::Full,
            _ if available < zone => Self::Red,
            _ if available < zone * 2 => Self::Yellow,
            _ => Self::Enough,
        }
    }

    /// What TokuMX says of it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Enough => "OK",
            Self::Yellow => "Getting full...",
            Self::Red => "Critically full. Engine is read-only until space is freed.",
            Self::Full => "Completely full. Free up some space now.",
        }
    }
}

impl Facts {
    pub(crate) fn gather(service: &ServerState) -> Self {
        let engine = service.catalog.engine();
        let (options, now) = (engine.options(), engine.adjustable());
        let stats = engine.stats();
        let disk = service.os.vfs.space(&options.dir).map_or((0, 0), |s| (s.total, s.available));
        let space = match disk {
            (0, 0) => Space::Enough,
            (total, available) => Space::of(total, available, now.fs_redzone_percent()),
        };
        let now_ms = service.os.clock.wall_ms();
        Self {
            panic: stats.stopped.clone(),
            space: if stats.full && space != Space::Full { Space::Red } else { space },
            disk,
            stats,
            registry: Arc::clone(engine.registry()),
            lock_requests: engine.lock_requests(0).len() as u64,
            checkpoint_period_secs: now.checkpoint_period().as_secs(),
            cleaner_period_secs: now.cleaner_period().as_secs(),
            cleaner_iterations: u64::from(now.cleaner_iterations()),
            now_ms,
            started_ms: now_ms - service.uptime().as_millis() as i64,
        }
    }

    /// A counter of the registry, or the sum of a histogram.
    fn read(&self, name: &str) -> Option<u64> {
        match self.registry.read(name)? {
            Value::Counter(count) => Some(count),
            Value::Histogram(times) => Some(times.sum),
            Value::Gauge(_) => None,
        }
    }

    fn count(&self, name: &str) -> Option<Figure> {
        self.read(name).map(Count)
    }

    fn bytes(&self, name: &str) -> Option<Figure> {
        self.read(name).map(Bytes)
    }

    fn sum(&self, names: [&str; 2]) -> Option<Figure> {
        let [one, other] = names.map(|name| self.read(name));
        Some(Count(one? + other?))
    }

    /// Every key with its figure, where there is one by now.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, Figure)> + '_ {
        KEYS.iter().filter_map(|(key, read)| Some((*key, read(self)?)))
    }

    /// The figure of a key, where there is one by now.
    pub(crate) fn figure(&self, key: &str) -> Option<Figure> {
        let at = KEYS.binary_search_by(|(name, _)| (*name).cmp(key)).ok()?;
        (KEYS[at].1)(self)
    }
}

fn seconds(micros: u64) -> Figure {
    Seconds(micros as f64 / 1e6)
}

/// Uncompressed to compressed; 1 where nothing was written.
fn ratio(one: PageStats, other: PageStats) -> Figure {
    let all = one + other;
    Ratio(if all.stored_bytes == 0 { 1.0 } else { all.raw_bytes as f64 / all.stored_bytes as f64 })
}

type Read = fn(&Facts) -> Option<Figure>;

/// Every key, sorted.
static KEYS: &[(&str, Read)] = &[
    ("CP_BEGIN_TIME", |f| Some(Count(f.stats.checkpoint.begin_micros))),
    ("CP_CHECKPOINT_COUNT", |f| Some(Count(f.stats.checkpoint.count))),
    ("CP_CHECKPOINT_COUNT_FAIL", |f| Some(Count(f.stats.checkpoint.failed))),
    ("CP_LAST_LSN", |f| Some(Count(f.stats.log_first))),
    ("CP_LONG_BEGIN_COUNT", |f| {
        Some(Count(u64::from(f.stats.checkpoint.longest_begin_micros > 1_000_000)))
    }),
    ("CP_LONG_BEGIN_TIME", |f| {
        Some(Count(f.stats.checkpoint.longest_begin_micros).only_above(1_000_000))
    }),
    ("CP_PERIOD", |f| Some(Count(f.checkpoint_period_secs))),
    ("CP_TIME_CHECKPOINT_DURATION", |f| Some(seconds(f.stats.checkpoint.micros))),
    ("CP_TIME_CHECKPOINT_DURATION_LAST", |f| Some(seconds(f.stats.checkpoint.last_micros))),
    ("CP_TIME_LAST_CHECKPOINT_BEGIN", |f| Some(Moment(f.stats.checkpoint.last_begin_ms))),
    ("CP_TIME_LAST_CHECKPOINT_BEGIN_COMPLETE", |f| {
        Some(Moment(f.stats.checkpoint.completed_begin_ms))
    }),
    ("CP_TIME_LAST_CHECKPOINT_END", |f| Some(Moment(f.stats.checkpoint.completed_end_ms))),
    ("CT_CLEANER_EXECUTIONS", |f| f.count("engine.cleaner.passes")),
    ("CT_CLEANER_ITERATIONS", |f| Some(Count(f.cleaner_iterations))),
    ("CT_CLEANER_PERIOD", |f| Some(Count(f.cleaner_period_secs))),
    ("CT_EVICTIONS", |f| {
        Some(Count(
            f.stats.cache.full_evictions.total().count
                + f.stats.cache.partial_evictions.total().count,
        ))
    }),
    ("CT_LONG_WAIT_PRESSURE_COUNT", |f| Some(Count(f.stats.long_stalls))),
    ("CT_LONG_WAIT_PRESSURE_TIME", |f| Some(Count(f.stats.long_stalled_micros))),
    ("CT_MISS", |f| Some(Count(f.stats.cache.misses()))),
    ("CT_MISSTIME", |f| {
        Some(Count(f.stats.cache.full_misses.micros + f.stats.cache.partial_misses.micros))
    }),
    ("CT_PREFETCHES", |f| Some(Count(f.stats.cache.prefetches))),
    ("CT_SIZE_CACHEPRESSURE", |f| Some(Bytes(f.stats.cache.parts.of(MemoryKind::Bypass)))),
    ("CT_SIZE_CURRENT", |f| Some(Bytes(f.stats.cache.parts.total()))),
    ("CT_SIZE_LIMIT", |f| Some(Bytes(f.stats.cache_size))),
    ("CT_SIZE_NONLEAF", |f| {
        Some(Bytes(
            f.stats.cache.parts.of(MemoryKind::Nodes)
                + f.stats.cache.parts.of(MemoryKind::Filters)
                + f.stats.cache.parts.of(MemoryKind::Dictionaries),
        ))
    }),
    ("CT_SIZE_WRITING", |f| Some(Bytes(f.stats.cache.parts.of(MemoryKind::Buffers)))),
    ("CT_WAIT_PRESSURE_COUNT", |f| Some(Count(f.stats.delays + f.stats.stalls))),
    ("CT_WAIT_PRESSURE_TIME", |f| Some(Count(f.stats.delayed_micros))),
    ("FERN_CACHE_HITS", |f| Some(Count(f.stats.cache.hits))),
    ("FERN_COMPRESSION_DICTIONARIES", |f| Some(Count(f.stats.trees.compression_dictionaries))),
    ("FERN_DISK_FREE", |f| Some(Bytes(f.disk.1))),
    ("FERN_DISK_SIZE", |f| Some(Bytes(f.disk.0))),
    ("FERN_DRAINS", |f| Some(Count(f.stats.drains))),
    ("FERN_FILE_BYTES", |f| Some(Bytes(f.stats.file.file_bytes))),
    ("FERN_FILE_LIVE_BYTES", |f| Some(Bytes(f.stats.file.live_bytes))),
    ("FERN_FILTER_FALSE_POSITIVES", |f| Some(Count(f.stats.trees.filter_misses))),
    ("FERN_FILTER_HITS", |f| Some(Count(f.stats.trees.filter_refusals))),
    ("FERN_JOBS_QUEUED", |f| Some(Count(f.stats.queued_jobs as u64))),
    ("FERN_LOG_BYTES", |f| Some(Bytes(f.stats.log_bytes))),
    ("FERN_LOG_SEGMENTS_MADE", |f| f.count("wal.segments_made")),
    ("FERN_LOG_SEGMENTS_RECYCLED", |f| f.count("wal.segments_recycled")),
    ("FERN_LOG_SYNC_COUNT", |f| f.count("wal.syncs")),
    ("FERN_MEMTABLE_BYTES", |f| Some(Bytes(f.stats.memtable_bytes))),
    ("FERN_MEMTABLE_LIMIT", |f| Some(Bytes(f.stats.write_budget))),
    ("FERN_MERGED_BYTES", |f| Some(Bytes(f.stats.trees.merged_bytes))),
    ("FERN_MISS_FULL", |f| Some(Count(f.stats.cache.full_misses.count))),
    ("FERN_MISS_FULL_TIME", |f| Some(Count(f.stats.cache.full_misses.micros))),
    ("FERN_MISS_PARTIAL", |f| Some(Count(f.stats.cache.partial_misses.count))),
    ("FERN_MISS_PARTIAL_TIME", |f| Some(Count(f.stats.cache.partial_misses.micros))),
    ("FERN_PREFETCHES_USED", |f| Some(Count(f.stats.cache.prefetches_used))),
    ("FERN_PREFETCHES_WASTED", |f| Some(Count(f.stats.cache.prefetches_wasted))),
    ("FERN_RUN_MERGES", |f| Some(Count(f.stats.merges))),
    ("FERN_SNAPSHOTS", |f| Some(Count(f.stats.snapshots as u64))),
    ("FERN_TAKEN_IN_BYTES", |f| Some(Bytes(f.stats.trees.drained_bytes))),
    ("FERN_WRITE_AMPLIFICATION", |f| Some(Ratio(f.stats.write_amplification()))),
    ("FERN_WRITTEN_BYTES", |f| Some(Bytes(f.stats.written_bytes))),
    ("FS_ENOSPC_REDZONE_CTR", |f| Some(Count(f.stats.refused_commits))),
    ("FS_ENOSPC_REDZONE_STATE", |f| Some(Text(f.space.text()))),
    ("FS_FSYNC_COUNT", |f| f.sum(["blockfile.syncs", "wal.syncs"])),
    ("FS_FSYNC_TIME", |f| f.sum(["blockfile.sync_micros", "wal.sync_micros"])),
    ("FS_LONG_FSYNC_COUNT", |f| f.count("wal.long_syncs")),
    ("FS_LONG_FSYNC_TIME", |f| f.count("wal.long_sync_micros")),
    ("FT_DISK_FLUSH_LEAF", |f| Some(Count(f.stats.trees.leaves_written))),
    ("FT_DISK_FLUSH_LEAF_BYTES", |f| Some(Bytes(f.stats.pages.leaf.stored_bytes))),
    ("FT_DISK_FLUSH_LEAF_COMPRESSION_RATIO", |f| {
        Some(ratio(f.stats.pages.leaf, PageStats::default()))
    }),
    ("FT_DISK_FLUSH_LEAF_UNCOMPRESSED_BYTES", |f| Some(Bytes(f.stats.pages.leaf.raw_bytes))),
    ("FT_DISK_FLUSH_NONLEAF", |f| Some(Count(f.stats.trees.runs_written))),
    ("FT_DISK_FLUSH_NONLEAF_BYTES", |f| Some(Bytes(f.stats.pages.nonleaf.stored_bytes))),
    ("FT_DISK_FLUSH_NONLEAF_BYTES_FOR_CHECKPOINT", |f| {
        Some(Bytes(f.stats.checkpoint.node_stored_bytes))
    }),
    ("FT_DISK_FLUSH_NONLEAF_COMPRESSION_RATIO", |f| {
        Some(ratio(f.stats.pages.nonleaf, PageStats::default()))
    }),
    ("FT_DISK_FLUSH_NONLEAF_FOR_CHECKPOINT", |f| Some(Count(f.stats.checkpoint.nodes))),
    ("FT_DISK_FLUSH_NONLEAF_TOKUTIME_FOR_CHECKPOINT", |f| {
        Some(seconds(f.stats.checkpoint.node_micros))
    }),
    ("FT_DISK_FLUSH_NONLEAF_UNCOMPRESSED_BYTES", |f| Some(Bytes(f.stats.pages.nonleaf.raw_bytes))),
    ("FT_DISK_FLUSH_NONLEAF_UNCOMPRESSED_BYTES_FOR_CHECKPOINT", |f| {
        Some(Bytes(f.stats.checkpoint.node_bytes))
    }),
    ("FT_DISK_FLUSH_OVERALL_COMPRESSION_RATIO", |f| {
        Some(ratio(f.stats.pages.leaf, f.stats.pages.nonleaf))
    }),
    ("FT_FLUSHER_FLUSH_TOTAL", |f| Some(Count(f.stats.flushes))),
    ("FT_FLUSHER_MERGE_LEAF", |f| Some(Count(f.stats.trees.leaf_fuses))),
    ("FT_FLUSHER_MERGE_NONLEAF", |f| Some(Count(f.stats.trees.node_fuses))),
    ("FT_FLUSHER_SPLIT_LEAF", |f| Some(Count(f.stats.trees.leaf_splits))),
    ("FT_FLUSHER_SPLIT_NONLEAF", |f| Some(Count(f.stats.trees.node_splits))),
    ("FT_FULL_EVICTIONS_LEAF", |f| Some(Count(f.stats.cache.full_evictions.leaf.count))),
    ("FT_FULL_EVICTIONS_LEAF_BYTES", |f| Some(Bytes(f.stats.cache.full_evictions.leaf.bytes))),
    ("FT_FULL_EVICTIONS_NONLEAF", |f| Some(Count(f.stats.cache.full_evictions.nonleaf.count))),
    ("FT_FULL_EVICTIONS_NONLEAF_BYTES", |f| {
        Some(Bytes(f.stats.cache.full_evictions.nonleaf.bytes))
    }),
    ("FT_LEAF_COMPRESS_TOKUTIME", |f| Some(seconds(f.stats.pages.leaf.encode_micros))),
    ("FT_LEAF_DECOMPRESS_TOKUTIME", |f| Some(seconds(f.stats.pages.leaf.decode_micros))),
    ("FT_NONLEAF_COMPRESS_TOKUTIME", |f| Some(seconds(f.stats.pages.nonleaf.encode_micros))),
    ("FT_NONLEAF_DECOMPRESS_TOKUTIME", |f| Some(seconds(f.stats.pages.nonleaf.decode_micros))),
    ("FT_PARTIAL_EVICTIONS_LEAF", |f| Some(Count(f.stats.cache.partial_evictions.leaf.count))),
    ("FT_PARTIAL_EVICTIONS_LEAF_BYTES", |f| {
        Some(Bytes(f.stats.cache.partial_evictions.leaf.bytes))
    }),
    ("FT_PARTIAL_EVICTIONS_NONLEAF", |f| {
        Some(Count(f.stats.cache.partial_evictions.nonleaf.count))
    }),
    ("FT_PARTIAL_EVICTIONS_NONLEAF_BYTES", |f| {
        Some(Bytes(f.stats.cache.partial_evictions.nonleaf.bytes))
    }),
    ("LOGGER_BYTES_WRITTEN", |f| f.bytes("wal.write_bytes")),
    ("LOGGER_NEXT_LSN", |f| Some(Count(f.stats.log_end))),
    ("LOGGER_NUM_WRITES", |f| f.count("wal.writes")),
    ("LOGGER_TOKUTIME_WRITES", |f| f.read("wal.write_micros").map(seconds)),
    ("LOGGER_WAIT_BUF_LONG", |f| f.count("wal.long_buffer_waits")),
    ("LTM_DEADLOCK_COUNT", |f| Some(Count(f.stats.locks.deadlocks))),
    ("LTM_ESCALATION_COUNT", |f| Some(Count(f.stats.locks.escalations))),
    ("LTM_LOCK_REQUESTS_PENDING", |f| Some(Count(f.lock_requests))),
    ("LTM_LONG_WAIT_COUNT", |f| Some(Count(f.stats.locks.long_waits))),
    ("LTM_LONG_WAIT_TIME", |f| Some(Count(f.stats.locks.long_waited_ms * 1000))),
    ("LTM_SIZE_CURRENT", |f| Some(Bytes(f.stats.locks.bytes))),
    ("LTM_SIZE_LIMIT", |f| Some(Bytes(f.stats.locks.max_bytes))),
    ("LTM_TIMEOUT_COUNT", |f| Some(Count(f.stats.locks.timeouts))),
    ("LTM_WAIT_COUNT", |f| Some(Count(f.stats.locks.waits))),
    ("LTM_WAIT_TIME", |f| Some(Count(f.stats.locks.waited_ms * 1000))),
    ("TXN_ABORT", |f| Some(Count(f.stats.aborted_txns))),
    ("TXN_BEGIN", |f| Some(Count(f.stats.begun_txns))),
    ("TXN_COMMIT", |f| Some(Count(f.stats.commits))),
    ("TXN_LIVE", |f| Some(Count(f.stats.live_txns as u64))),
    ("YDB_LAYER_NUM_OPEN_DBS", |f| Some(Count(f.stats.dictionaries as u64))),
    ("YDB_LAYER_TIME_NOW", |f| Some(Moment(f.now_ms))),
    ("YDB_LAYER_TIME_STARTUP", |f| Some(Moment(f.started_ms))),
];

/// Writes a figure; bytes in units of `scale`.
pub(crate) fn write(writer: &mut Writer, name: &str, figure: Figure, scale: u64) {
    match figure {
        Count(count) => writer.long(name, count),
        Bytes(bytes) => writer.long(name, bytes / scale),
        Seconds(value) | Ratio(value) => writer.f64(name, value),
        Moment(at) => writer.date(name, at),
        Text(text) => writer.str(name, text),
    }
}

fn run(context: &mut Context<'_>, fields: &[Field<'_>]) -> Result<()> {
    if let Some(field) = fields.get(1) {
        return Err(field.unknown());
    }
    let facts = Facts::gather(context.service);
    for (key, figure) in facts.all() {
        write(&mut context.reply, key, figure, 1);
    }
    Ok(())
}

/// Whether there is such a key.
#[cfg(test)]
pub(crate) fn is_key(key: &str) -> bool {
    KEYS.iter().any(|(known, _)| *known == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_unique() {
        assert!(KEYS.is_sorted_by(|one, next| one.0 < next.0));
    }

    #[test]
    fn space_is_told_against_the_red_zone() {
        for (available, expected) in
            [(50, Space::Enough), (9, Space::Yellow), (4, Space::Red), (0, Space::Full)]
        {
            assert_eq!(Space::of(100, available, 5), expected, "{available}");
        }
        assert_eq!(Space::of(100, 1, 0), Space::Enough);
    }
}
