//! What the log counts.

use telemetry::{Counter, Histogram, Registry, Unit};

/// The counters of one log.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) appends: Counter,
    pub(crate) append_bytes: Counter,
    pub(crate) writes: Counter,
    pub(crate) write_bytes: Counter,
    pub(crate) syncs: Counter,
    pub(crate) sync_time: Histogram,
    pub(crate) sync_waits: Counter,
    pub(crate) segments_made: Counter,
    pub(crate) segments_recycled: Counter,
}

impl Metrics {
    /// Makes or finds the counters in a registry.
    pub fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, Unit::Count, help);
        let bytes = |name, help| registry.counter(name, Unit::Bytes, help);
        Self {
            appends: count("wal.appends", "records appended to the log"),
            append_bytes: bytes("wal.append_bytes", "bytes appended to the log, with headers"),
            writes: count("wal.writes", "write calls to the log"),
            write_bytes: bytes("wal.write_bytes", "bytes written to the log"),
            syncs: count("wal.syncs", "fdatasync calls on the log"),
            sync_time: registry.histogram(
                "wal.sync_micros",
                Unit::Micros,
                "time of one fdatasync of the log",
            ),
            sync_waits: count("wal.sync_waits", "commits that waited for another one's fdatasync"),
            segments_made: count("wal.segments_made", "segment files made new"),
            segments_recycled: count("wal.segments_recycled", "segment files used again"),
        }
    }
}
