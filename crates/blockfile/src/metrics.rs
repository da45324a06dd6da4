//! What a data file counts.

use telemetry::{Counter, Histogram, Registry, Unit};

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
}

impl Metrics {
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
        }
    }
}
