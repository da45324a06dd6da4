//! The server's figures for Prometheus: `/metrics` of the status port.
//!
//! Always true: a figure here stands in `serverStatus`, `engineStatus` or `top`, too; what the
//! engine's registry counts follows under its own names.

use super::engine_status::{Facts, Figure};
use crate::service::Service;
use serverstate::metrics::{CLASSES, COUNTERS, TOP_FIELDS};
use serverstate::versions::MONGODB_VERSION;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use telemetry::prometheus::Kind::{self, Counter, Gauge};
use telemetry::prometheus::{Exposition, Kind::Histogram};

/// Collections whose use is exported at most: each is a dozen lines.
const MAX_COLLECTIONS: usize = 1000;

/// A key of `engineStatus` under its name here. Times in microseconds become seconds.
struct MetricSpec {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    key: &'static str,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    key: &'static str,
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind, help, key }
}

static ENGINE: &[MetricSpec] = &[
    metric("fern_cache_bytes", Gauge, "CT_SIZE_CURRENT", "Memory the engine holds."),
    metric("fern_cache_limit_bytes", Gauge, "CT_SIZE_LIMIT", "The setting cacheSize."),
    metric("fern_cache_hits_total", Counter, "FERN_CACHE_HITS", "Pages found in memory."),
    metric("fern_cache_full_misses_total", Counter, "FERN_MISS_FULL", "Pages read from disk."),
    metric(
        "fern_cache_full_miss_seconds_total",
        Counter,
        "FERN_MISS_FULL_TIME",
        "Time of reading pages from disk.",
    ),
    metric(
        "fern_cache_partial_misses_total",
        Counter,
        "FERN_MISS_PARTIAL",
        "Pages decompressed from memory.",
    ),
    metric(
        "fern_cache_partial_miss_seconds_total",
        Counter,
        "FERN_MISS_PARTIAL_TIME",
        "Time of decompressing pages from memory.",
    ),
    metric("fern_cache_evictions_total", Counter, "CT_EVICTIONS", "Full and partial evictions."),
    metric("fern_cache_prefetches_total", Counter, "CT_PREFETCHES", "Pages read ahead."),
    metric(
        "fern_cache_prefetches_used_total",
        Counter,
        "FERN_PREFETCHES_USED",
        "Pages read ahead and then asked for.",
    ),
    metric(
        "fern_cache_prefetches_wasted_total",
        Counter,
        "FERN_PREFETCHES_WASTED",
        "Pages read ahead and evicted before anybody asked.",
    ),
    metric(
        "fern_checkpoint_failures_total",
        Counter,
        "CP_CHECKPOINT_COUNT_FAIL",
        "Failed checkpoints.",
    ),
    metric(
        "fern_checkpoint_last_duration_seconds",
        Gauge,
        "CP_TIME_CHECKPOINT_DURATION_LAST",
        "How long the last checkpoint took.",
    ),
    metric(
        "fern_checkpoint_last_end_timestamp_seconds",
        Gauge,
        "CP_TIME_LAST_CHECKPOINT_END",
        "When the last checkpoint ended.",
    ),
    metric("fern_log_bytes", Gauge, "FERN_LOG_BYTES", "Log files on disk."),
    metric("fern_memtable_bytes", Gauge, "FERN_MEMTABLE_BYTES", "Writes that wait to be drained."),
    metric(
        "fern_memtable_limit_bytes",
        Gauge,
        "FERN_MEMTABLE_LIMIT",
        "How much may wait before writers are slowed.",
    ),
    metric("fern_jobs_queued", Gauge, "FERN_JOBS_QUEUED", "Trees with background work to do."),
    metric("fern_merged_bytes_total", Counter, "FERN_MERGED_BYTES", "Bytes that merges wrote."),
    metric(
        "fern_write_amplification_ratio",
        Gauge,
        "FERN_WRITE_AMPLIFICATION",
        "Bytes written to disk for each byte taken in.",
    ),
    metric(
        "fern_compression_ratio",
        Gauge,
        "FT_DISK_FLUSH_OVERALL_COMPRESSION_RATIO",
        "Uncompressed to compressed bytes of what was written.",
    ),
    metric("fern_file_bytes", Gauge, "FERN_FILE_BYTES", "Size of the data file."),
    metric("fern_file_live_bytes", Gauge, "FERN_FILE_LIVE_BYTES", "Of it, what is in use."),
    metric("fern_disk_free_bytes", Gauge, "FERN_DISK_FREE", "Free on the disk of the data."),
    metric("fern_disk_size_bytes", Gauge, "FERN_DISK_SIZE", "The disk of the data."),
    metric("fern_locks_bytes", Gauge, "LTM_SIZE_CURRENT", "Memory of locks."),
    metric("fern_locks_waiting", Gauge, "LTM_LOCK_REQUESTS_PENDING", "Lock requests that wait."),
    metric("fern_lock_waits_total", Counter, "LTM_WAIT_COUNT", "Lock requests that had to wait."),
    metric("fern_lock_wait_seconds_total", Counter, "LTM_WAIT_TIME", "Time they waited."),
    metric("fern_lock_timeouts_total", Counter, "LTM_TIMEOUT_COUNT", "Those that waited in vain."),
    metric("fern_deadlocks_total", Counter, "LTM_DEADLOCK_COUNT", "Deadlocks found."),
    metric("fern_transactions_live", Gauge, "TXN_LIVE", "Transactions of the engine."),
    metric("fern_snapshots", Gauge, "FERN_SNAPSHOTS", "States of the data that somebody reads."),
    metric("fern_dictionaries", Gauge, "YDB_LAYER_NUM_OPEN_DBS", "Collections and indexes."),
];

impl Service {
    /// The figures in Prometheus' text form.
    pub fn metrics_page(&self) -> String {
        let mut page = Exposition::new();
        self.process(&mut page);
        self.operations(&mut page);
        self.clients(&mut page);
        self.collections(&mut page);
        let facts = Facts::gather(self);
        for MetricSpec { name, kind, help, key } in ENGINE {
            let Some(figure) = facts.figure(key) else { continue };
            page.family(name, *kind, help);
            match figure {
                Figure::Count(micros) if name.contains("_seconds") => page.micros(&[], micros),
                Figure::Count(n) | Figure::Bytes(n) => page.value(&[], n as f64),
                Figure::Seconds(n) | Figure::Ratio(n) => page.value(&[], n),
                Figure::Moment(at) => page.value(&[], at as f64 / 1000.0),
                Figure::Text(_) => continue,
            };
        }
        let parts = &facts.stats.cache;
        page.family("fern_cache_evicted_pages_total", Counter, "Evictions by kind and level.");
        for (kind, evictions) in
            [("full", parts.full_evictions), ("partial", parts.partial_evictions)]
        {
            for (level, n) in [("leaf", evictions.leaf), ("nonleaf", evictions.nonleaf)] {
                page.value(&[("kind", kind), ("level", level)], n.count as f64);
            }
        }
        page.registry(&self.catalog.engine().registry().snapshot());
        page.finish()
    }

    fn process(&self, page: &mut Exposition) {
        let info = &self.info;
        page.family("fern_build_info", Gauge, "The version, as labels.")
            .value(&[("version", &info.version), ("mongodb", MONGODB_VERSION)], 1.0);
        let (now, uptime) = (self.os.clock.wall_ms() as f64 / 1000.0, self.uptime().as_secs_f64());
        page.family("fern_uptime_seconds", Gauge, "Time since the start.").value(&[], uptime);
        page.family("process_start_time_seconds", Gauge, "When the server was started.")
            .value(&[], (now - uptime).round());
        let usage = os::usage();
        page.family("process_cpu_seconds_total", Counter, "Processor time, user and system.")
            .value(&[], (usage.user + usage.system).as_secs_f64());
        page.family("process_resident_memory_bytes", Gauge, "Memory that is resident.")
            .value(&[], os::resident_bytes() as f64);
    }

    fn operations(&self, page: &mut Exposition) {
        let metrics = &self.metrics;
        page.family("fern_operations_total", Counter, "Operations as opcounters count them.");
        for (name, count) in COUNTERS.iter().zip(&metrics.counters) {
            page.value(&[("type", name)], read(count));
        }
        let help = "Time of commands, without what clients asked to wait.";
        page.family("fern_command_duration_seconds", Histogram, help);
        for (class, times) in CLASSES.iter().zip(&metrics.latencies) {
            page.histogram(&[("class", class)], &times.snapshot());
        }
        let used = || metrics.runs.iter().filter(|runs| runs.total.load(Relaxed) > 0);
        page.family("fern_commands_total", Counter, "Commands that were run, by name.");
        for runs in used() {
            page.value(&[("command", runs.command)], read(&runs.total));
        }
        page.family("fern_command_failures_total", Counter, "Of these, those that failed.");
        for runs in used() {
            page.value(&[("command", runs.command)], read(&runs.failed));
        }
        page.family("fern_documents_total", Counter, "Documents, by what became of them.");
        for (name, count) in [
            ("returned", &metrics.documents_returned),
            ("inserted", &metrics.documents_inserted),
            ("updated", &metrics.documents_updated),
            ("deleted", &metrics.documents_deleted),
        ] {
            page.value(&[("action", name)], read(count));
        }
        for (name, count, help) in [
            ("fern_keys_examined_total", &metrics.keys_examined, "Index keys that were looked at."),
            (
                "fern_documents_examined_total",
                &metrics.documents_examined,
                "Documents that were looked at.",
            ),
            ("fern_user_asserts_total", &metrics.user_asserts, "Commands answered by an error."),
        ] {
            page.family(name, Counter, help).value(&[], read(count));
        }
    }

    fn clients(&self, page: &mut Exposition) {
        let network = self.host.network();
        page.family("fern_connections", Gauge, "Connections, by state.");
        for (state, n) in [
            ("open", network.connections),
            ("active", network.active),
            ("available", network.available),
        ] {
            page.value(&[("state", state)], n as f64);
        }
        let cursors = self.cursors.stats();
        let transactions = &self.transactions;
        for (name, kind, n, help) in [
            (
                "fern_connections_created_total",
                Counter,
                network.total_created as f64,
                "Connections made.",
            ),
            (
                "fern_connections_rejected_total",
                Counter,
                network.rejected as f64,
                "Connections refused for the limit.",
            ),
            (
                "fern_network_received_bytes_total",
                Counter,
                network.bytes_in as f64,
                "Bytes received.",
            ),
            ("fern_network_sent_bytes_total", Counter, network.bytes_out as f64, "Bytes sent."),
            ("fern_network_requests_total", Counter, network.requests as f64, "Messages received."),
            ("fern_cursors_open", Gauge, cursors.open as f64, "Cursors that wait for getMore."),
            (
                "fern_cursors_timed_out_total",
                Counter,
                cursors.timed_out as f64,
                "Cursors that nobody asked for.",
            ),
            ("fern_sessions", Gauge, self.sessions.len() as f64, "Logical sessions."),
            (
                "fern_transactions_started_total",
                Counter,
                read(&transactions.started),
                "Sessions' transactions begun.",
            ),
            (
                "fern_transactions_committed_total",
                Counter,
                read(&transactions.committed),
                "Those committed.",
            ),
            (
                "fern_transactions_aborted_total",
                Counter,
                read(&transactions.aborted),
                "Those aborted.",
            ),
        ] {
            page.family(name, kind, help).value(&[], n);
        }
    }

    fn collections(&self, page: &mut Exposition) {
        let all = self.metrics.top_all();
        let listed = || all.iter().take(MAX_COLLECTIONS);
        page.family("fern_collection_operations_total", Counter, "Operations, by collection.");
        for (namespace, entry) in listed() {
            for (kind, usage) in TOP_FIELDS.iter().zip(entry).filter(|(_, usage)| usage.count > 0) {
                page.value(&[("ns", namespace), ("type", kind)], usage.count as f64);
            }
        }
        page.family("fern_collection_operation_seconds_total", Counter, "The time they took.");
        for (namespace, entry) in listed() {
            for (kind, usage) in TOP_FIELDS.iter().zip(entry).filter(|(_, usage)| usage.count > 0) {
                page.micros(&[("ns", namespace), ("type", kind)], usage.micros);
            }
        }
    }
}

fn read(counter: &AtomicU64) -> f64 {
    counter.load(Relaxed) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::engine_status::is_key;
    use std::collections::BTreeSet;

    #[test]
    fn every_figure_is_a_key_of_the_engine_and_named_once() {
        let names: BTreeSet<_> = ENGINE.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ENGINE.len());
        for MetricSpec { name, kind, help, key } in ENGINE {
            assert!(is_key(key), "{key}");
            assert!(help.ends_with('.'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Counter, "{name}");
        }
    }
}
