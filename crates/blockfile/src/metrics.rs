//! What a data file counts.

use std::time::Duration;
use telemetry::{Counter, Histogram, Registry, Unit};

/// Kinds of segments that are told apart; greater ones count as the last.
const KINDS: usize = 7;

/// The counters of one data file.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) read_time: Histogram,
    pub(crate) writes: Counter,
    pub(crate) write_bytes: Counter,
    pub(crate) syncs: Counter,
    pub(crate) sync_time: Histogram,
    pub(crate) checkpoints: Counter,
    pub(crate) checkpoint_bytes: Counter,
    pages: [PageCounters; KINDS],
}

/// Pages of the segments of one kind, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Pages written.
    pub written: u64,
    /// Their bytes before compression.
    pub raw_bytes: u64,
    /// Their bytes in the file, headers included.
    pub stored_bytes: u64,
    /// Time their compression and checksums took.
    pub encode_micros: u64,
    /// Pages read.
    pub read: u64,
    /// Time their checksums and decompression took.
    pub decode_micros: u64,
}

impl std::ops::Add for PageStats {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            written: self.written + other.written,
            raw_bytes: self.raw_bytes + other.raw_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
            encode_micros: self.encode_micros + other.encode_micros,
            read: self.read + other.read,
            decode_micros: self.decode_micros + other.decode_micros,
        }
    }
}

#[derive(Clone, Default)]
struct PageCounters {
    written: Counter,
    raw_bytes: Counter,
    stored_bytes: Counter,
    encode_nanos: Counter,
    read: Counter,
    decode_nanos: Counter,
}

impl Metrics {
    fn pages_of(&self, kind: u8) -> &PageCounters {
        &self.pages[usize::from(kind).min(KINDS - 1)]
    }

    pub(crate) fn encoded(&self, kind: u8, raw: usize, stored: usize, took: Duration) {
        let pages = self.pages_of(kind);
        pages.written.inc();
        pages.raw_bytes.add(raw as u64);
        pages.stored_bytes.add(stored as u64);
        pages.encode_nanos.add(took.as_nanos() as u64);
    }

    pub(crate) fn decoded(&self, kind: u8, took: Duration) {
        let pages = self.pages_of(kind);
        pages.read.inc();
        pages.decode_nanos.add(took.as_nanos() as u64);
    }

    pub(crate) fn page_stats(&self, kind: u8) -> PageStats {
        let pages = self.pages_of(kind);
        PageStats {
            written: pages.written.get(),
            raw_bytes: pages.raw_bytes.get(),
            stored_bytes: pages.stored_bytes.get(),
            encode_micros: pages.encode_nanos.get() / 1000,
            read: pages.read.get(),
            decode_micros: pages.decode_nanos.get() / 1000,
        }
    }

    /// Makes or finds the counters in a registry.
    pub fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, Unit::Count, help);
        let bytes = |name, help| registry.counter(name, Unit::Bytes, help);
        let micros = |name, help| registry.histogram(name, Unit::Micros, help);
        Self {
            reads: count("blockfile.reads", "read calls to the data file"),
            read_bytes: bytes("blockfile.read_bytes", "bytes read from the data file"),
            read_time: micros("blockfile.read_micros", "time of one read call"),
            writes: count("blockfile.writes", "write calls to the data file"),
            write_bytes: bytes("blockfile.write_bytes", "bytes written to the data file"),
            syncs: count("blockfile.syncs", "fdatasync calls on the data file"),
            sync_time: micros("blockfile.sync_micros", "time of one fdatasync"),
            checkpoints: count("blockfile.checkpoints", "checkpoints completed"),
            checkpoint_bytes: bytes(
                "blockfile.checkpoint_bytes",
                "bytes of tables and roots written by checkpoints",
            ),
            pages: std::array::from_fn(|_| PageCounters::default()),
        }
    }
}
