//! Counters, gauges and histograms in one registry that every status page reads.
//!
//! What is always true:
//! 1. There is no global state: whoever counts was handed a [`Registry`].
//! 2. Counting never locks and never allocates; only making a metric and reading them all does.
//! 3. A name means one metric: asking for it again gives the same one.
#![forbid(unsafe_code)]

mod context;
mod histogram;
pub mod prometheus;

pub use context::Context;
pub use histogram::{Histogram, HistogramSnapshot};

use os::Padded;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

/// What a metric's numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Microseconds.
    Micros,
}

/// Parts of a counter, each on a line of its own: threads that count the same thing at once
/// seldom write to the same line.
const PARTS: usize = 8;

/// A number that only grows. Exact: what was added before a reading is in it.
#[derive(Clone, Default)]
pub struct Counter(Arc<[Part; PARTS]>);

#[repr(align(64))]
#[derive(Default)]
struct Part(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0[os::stripe() % PARTS].0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}

/// A number that goes up and down.
#[derive(Clone, Default)]
pub struct Gauge(Arc<Padded<AtomicI64>>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: i64) {
        self.0.0.store(value, Ordering::Relaxed);
    }

    /// Adds, or takes away where negative.
    pub fn add(&self, delta: i64) {
        self.0.0.fetch_add(delta, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> i64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
enum MetricSource {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    Computed(Arc<dyn Fn() -> i64 + Send + Sync>),
}

#[derive(Clone)]
struct Metric {
    unit: Unit,
    help: &'static str,
    source: MetricSource,
}

/// All metrics of a server. Clones share them.
#[derive(Clone, Default)]
pub struct Registry {
    metrics: Arc<Mutex<BTreeMap<String, Metric>>>,
}

/// One metric's reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Dotted name, such as `wal.syncs`.
    pub name: String,
    /// What the number means.
    pub unit: Unit,
    /// One sentence for a reader.
    pub help: &'static str,
    /// The reading.
    pub value: Value,
}

/// A reading.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a [`Counter`].
    Counter(u64),
    /// Of a [`Gauge`] or a computed metric.
    Gauge(i64),
    /// Of a [`Histogram`].
    Histogram(HistogramSnapshot),
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The counter of this name, made where missing.
    pub fn counter(&self, name: &str, unit: Unit, help: &'static str) -> Counter {
        let made = || MetricSource::Counter(Counter::default());
        match self.get_or_make(name, unit, help, made) {
            MetricSource::Counter(counter) => counter,
            _ => panic!("metric {name} exists and is not a counter"),
        }
    }

    /// The gauge of this name, made where missing.
    pub fn gauge(&self, name: &str, unit: Unit, help: &'static str) -> Gauge {
        match self.get_or_make(name, unit, help, || MetricSource::Gauge(Gauge::default())) {
            MetricSource::Gauge(gauge) => gauge,
            _ => panic!("metric {name} exists and is not a gauge"),
        }
    }

    /// The histogram of this name, made where missing.
    pub fn histogram(&self, name: &str, unit: Unit, help: &'static str) -> Histogram {
        match self.get_or_make(name, unit, help, || MetricSource::Histogram(Histogram::default())) {
            MetricSource::Histogram(histogram) => histogram,
            _ => panic!("metric {name} exists and is not a histogram"),
        }
    }

    /// A gauge that is asked only when somebody looks; replaces one of the same name.
    /// `read` must not ask the registry.
    pub fn computed(
        &self,
        name: &str,
        unit: Unit,
        help: &'static str,
        read: impl Fn() -> i64 + Send + Sync + 'static,
    ) {
        let metric = Metric { unit, help, source: MetricSource::Computed(Arc::new(read)) };
        self.metrics.lock().insert(name.to_owned(), metric);
    }

    fn get_or_make(
        &self,
        name: &str,
        unit: Unit,
        help: &'static str,
        make: impl FnOnce() -> MetricSource,
    ) -> MetricSource {
        let mut metrics = self.metrics.lock();
        let metric =
            metrics.entry(name.to_owned()).or_insert_with(|| Metric { unit, help, source: make() });
        metric.source.clone()
    }

    /// Every metric's reading, ordered by name. The readings are taken one after the other, not
    /// at one moment.
    pub fn snapshot(&self) -> Vec<Sample> {
        let metrics = self.metrics.lock();
        metrics.iter().map(|(name, metric)| metric.sample(name)).collect()
    }

    /// One metric's reading.
    pub fn read(&self, name: &str) -> Option<Value> {
        self.metrics.lock().get(name).map(|metric| metric.source.read())
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("metrics", &self.metrics.lock().len()).finish()
    }
}

impl Metric {
    fn sample(&self, name: &str) -> Sample {
        Sample {
            name: name.to_owned(),
            unit: self.unit,
            help: self.help,
            value: self.source.read(),
        }
    }
}

impl MetricSource {
    fn read(&self) -> Value {
        match self {
            Self::Counter(counter) => Value::Counter(counter.get()),
            Self::Gauge(gauge) => Value::Gauge(gauge.get()),
            Self::Histogram(histogram) => Value::Histogram(histogram.snapshot()),
            Self::Computed(read) => Value::Gauge(read()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_is_the_same_metric() {
        let registry = Registry::new();
        registry.counter("a.hits", Unit::Count, "hits").inc();
        registry.counter("a.hits", Unit::Count, "hits").add(2);
        assert_eq!(registry.read("a.hits"), Some(Value::Counter(3)));
        assert_eq!(registry.read("nothing"), None);
    }

    #[test]
    fn snapshot_is_ordered_and_reads_every_kind() {
        let registry = Registry::new();
        registry.histogram("c", Unit::Micros, "time").record(5);
        registry.gauge("b", Unit::Bytes, "size").set(-4);
        registry.counter("a", Unit::Count, "things").inc();
        registry.computed("d", Unit::Count, "computed", || 9);
        let names: Vec<_> = registry.snapshot().into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        let values: Vec<_> = registry.snapshot().into_iter().map(|s| s.value).collect();
        assert_eq!(values[0], Value::Counter(1));
        assert_eq!(values[1], Value::Gauge(-4));
        assert!(matches!(&values[2], Value::Histogram(h) if h.count == 1 && h.sum == 5));
        assert_eq!(values[3], Value::Gauge(9));
    }

    #[test]
    fn counting_from_many_threads_loses_nothing() {
        let counter = Registry::new().counter("n", Unit::Count, "n");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| counter.inc()));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }
}
