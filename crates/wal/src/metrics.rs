//! What the log counts.

use std::time::Duration;

use telemetry::{Counter, Histogram, Registry, Unit};

/// A sync this long is an event of its own.
const LONG_SYNC: Duration = Duration::from_secs(1);
/// And so is a wait this long for the buffer.
const LONG_BUFFER_WAIT: Duration = Duration::from_millis(100);

/// A log in figures, since it was opened. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub appends: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes they wrote.
    pub write_bytes: u64,
    /// Time they took.
    pub write_micros: u64,
    /// Calls of fdatasync.
    pub syncs: u64,
    /// Time they took.
    pub sync_micros: u64,
    /// Those that took more than a second.
    pub long_syncs: u64,
    /// Time these took.
    pub long_sync_micros: u64,
    /// Appends that found the buffer full.
    pub buffer_waits: u64,
    /// Time they waited.
    pub buffer_wait_micros: u64,
    /// Those that waited more than 100 ms.
    pub long_buffer_waits: u64,
    /// Segment files made new.
    pub segments_made: u64,
    /// Segment files used again.
    pub segments_recycled: u64,
}

/// The counters of one log.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) appends: Counter,
    pub(crate) append_bytes: Counter,
    pub(crate) record_bytes: Counter,
    pub(crate) writes: Counter,
    pub(crate) write_bytes: Counter,
    pub(crate) syncs: Counter,
    pub(crate) sync_time: Histogram,
    pub(crate) write_time: Histogram,
    pub(crate) long_syncs: Counter,
    pub(crate) long_sync_micros: Counter,
    pub(crate) buffer_waits: Counter,
    pub(crate) buffer_wait_micros: Counter,
    pub(crate) long_buffer_waits: Counter,
    pub(crate) sync_waits: Counter,
    pub(crate) segments_made: Counter,
    pub(crate) segments_recycled: Counter,
}

impl Metrics {
    /// Makes or finds the counters in a registry.
    pub fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, Unit::Count, help);
        let bytes = |name, help| registry.counter(name, Unit::Bytes, help);
        let micros = |name, help| registry.counter(name, Unit::Micros, help);
        Self {
            appends: count("wal.appends", "records appended to the log"),
            append_bytes: bytes("wal.append_bytes", "bytes appended to the log, with headers"),
            record_bytes: bytes(
                "wal.record_bytes",
                "bytes of the records appended to the log, before they were compressed",
            ),
            writes: count("wal.writes", "write calls to the log"),
            write_bytes: bytes("wal.write_bytes", "bytes written to the log"),
            syncs: count("wal.syncs", "fdatasync calls on the log"),
            sync_time: registry.histogram(
                "wal.sync_micros",
                Unit::Micros,
                "time of one fdatasync of the log",
            ),
            write_time: registry.histogram(
                "wal.write_micros",
                Unit::Micros,
                "time of one write call to the log",
            ),
            long_syncs: count("wal.long_syncs", "fdatasync calls that took more than a second"),
            long_sync_micros: micros("wal.long_sync_micros", "time of those"),
            buffer_waits: count("wal.buffer_waits", "appends that found the log buffer full"),
            buffer_wait_micros: micros("wal.buffer_wait_micros", "time they waited"),
            long_buffer_waits: count(
                "wal.long_buffer_waits",
                "appends that waited more than 100 ms for the log buffer",
            ),
            sync_waits: count("wal.sync_waits", "commits that waited for another one's fdatasync"),
            segments_made: count("wal.segments_made", "segment files made new"),
            segments_recycled: count("wal.segments_recycled", "segment files used again"),
        }
    }
    pub(crate) fn synced(&self, took: Duration) {
        self.syncs.inc();
        self.sync_time.record_micros(took);
        if took > LONG_SYNC {
            self.long_syncs.inc();
            self.long_sync_micros.add(micros(took));
        }
    }

    pub(crate) fn waited_for_buffer(&self, waited: Duration) {
        self.buffer_waits.inc();
        self.buffer_wait_micros.add(micros(waited));
        if waited > LONG_BUFFER_WAIT {
            self.long_buffer_waits.inc();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            appends: self.appends.get(),
            writes: self.writes.get(),
            write_bytes: self.write_bytes.get(),
            write_micros: self.write_time.snapshot().sum,
            syncs: self.syncs.get(),
            sync_micros: self.sync_time.snapshot().sum,
            long_syncs: self.long_syncs.get(),
            long_sync_micros: self.long_sync_micros.get(),
            buffer_waits: self.buffer_waits.get(),
            buffer_wait_micros: self.buffer_wait_micros.get(),
            long_buffer_waits: self.long_buffer_waits.get(),
            segments_made: self.segments_made.get(),
            segments_recycled: self.segments_recycled.get(),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
