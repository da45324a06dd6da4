//! The text form that Prometheus scrapes (version 0.0.4), written line by line.
//!
//! What is always true:
//! 1. Every name carries `fern_` or `process_`, a base unit, and `_total` where it only grows.
//! 2. The lines of a family stand together, behind one `HELP` and one `TYPE`.
//! 3. Times are in seconds; a histogram's buckets are the same at every scrape.

use crate::{HistogramSnapshot, Sample, Unit, Value};
use std::fmt::Write as _;

/// What a family's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by size.
    Histogram,
}

/// Histograms tell how many values were below 2^4 µs up to 2^26 µs (16 µs to 67 s).
const BUCKET_POWERS: std::ops::RangeInclusive<u32> = 4..=26;

/// A page in the making.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    name: String,
}

impl Exposition {
    /// An empty page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a family; the values that follow are its lines.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> &mut Self {
        name.clone_into(&mut self.name);
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _never_fails = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// A line of the family.
    pub fn value(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.line("", labels, value)
    }

    /// A line of the family, in microseconds: shown in seconds.
    pub fn micros(&mut self, labels: &[(&str, &str)], micros: u64) -> &mut Self {
        self.value(labels, micros as f64 / 1e6)
    }

    /// The lines of a histogram whose values are microseconds: shown in seconds.
    pub fn histogram(&mut self, labels: &[(&str, &str)], snapshot: &HistogramSnapshot) {
        for power in BUCKET_POWERS {
            // A recorded time is cut to whole microseconds, so that 2^n - 1 stands for "below 2^n".
            let below = snapshot.buckets.iter().take_while(|(greatest, _)| *greatest < 1 << power);
            let limit = ((1_u64 << power) as f64 / 1e6).to_string();
            self.bucket(labels, &limit, below.map(|(_, n)| n).sum());
        }
        self.bucket(labels, "+Inf", snapshot.count);
        self.line("_sum", labels, snapshot.sum as f64 / 1e6);
        self.line("_count", labels, snapshot.count as f64);
    }

    /// A family for each metric of a registry, named after it: `wal.sync_micros` becomes
    /// `fern_wal_sync_seconds`.
    pub fn registry(&mut self, samples: &[Sample]) {
        for sample in samples {
            match &sample.value {
                Value::Counter(count) => {
                    let name = family_name(sample, "_total");
                    self.family(&name, Kind::Counter, sample.help);
                    self.value(&[], in_base_unit(sample.unit, *count as f64));
                }
                Value::Gauge(value) => {
                    let name = family_name(sample, "");
                    self.family(&name, Kind::Gauge, sample.help);
                    self.value(&[], in_base_unit(sample.unit, *value as f64));
                }
                Value::Histogram(snapshot) => {
                    let name = family_name(sample, "");
                    self.family(&name, Kind::Histogram, sample.help).histogram(&[], snapshot);
                }
            }
        }
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }

    fn bucket(&mut self, labels: &[(&str, &str)], limit: &str, count: u64) {
        let labels: Vec<_> = labels.iter().copied().chain([("le", limit)]).collect();
        self.line("_bucket", &labels, count as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        for (at, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _never_fails = write!(self.text, "{}{label}=\"{text}\"", ["{", ","][at.min(1)]);
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _never_fails = writeln!(self.text, " {value}");
        self
    }
}

fn in_base_unit(unit: Unit, value: f64) -> f64 {
    if unit == Unit::Micros { value / 1e6 } else { value }
}

fn family_name(sample: &Sample, end: &str) -> String {
    let plain: String =
        sample.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let (stem, unit) = match sample.unit {
        Unit::Count => (plain.as_str(), ""),
        Unit::Bytes => (plain.trim_end_matches("_bytes"), "_bytes"),
        Unit::Micros => (plain.trim_end_matches("_micros"), "_seconds"),
    };
    format!("fern_{stem}{unit}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use std::time::Duration;

    #[test]
    fn a_registry_is_told_in_base_units() {
        let registry = Registry::new();
        registry.counter("wal.write_bytes", Unit::Bytes, "bytes written").add(4096);
        registry.counter("wal.wait_micros", Unit::Micros, "time waited").add(1_500_000);
        registry.gauge("engine.jobs", Unit::Count, "jobs").set(-2);
        let mut page = Exposition::new();
        page.registry(&registry.snapshot());
        assert_eq!(
            page.finish(),
            "# HELP fern_engine_jobs jobs\n# TYPE fern_engine_jobs gauge\nfern_engine_jobs -2\n\
             # HELP fern_wal_wait_seconds_total time waited\n\
             # TYPE fern_wal_wait_seconds_total counter\nfern_wal_wait_seconds_total 1.5\n\
             # HELP fern_wal_write_bytes_total bytes written\n\
             # TYPE fern_wal_write_bytes_total counter\nfern_wal_write_bytes_total 4096\n"
        );
    }

    #[test]
    fn buckets_add_up_and_end_with_all() {
        let registry = Registry::new();
        let times = registry.histogram("a.sync_micros", Unit::Micros, "time of one sync");
        for micros in [15, 16, 1023, 1024, 200_000_000] {
            times.record_micros(Duration::from_micros(micros));
        }
        let mut page = Exposition::new();
        page.registry(&registry.snapshot());
        let text = page.finish();
        for line in [
            "fern_a_sync_seconds_bucket{le=\"0.000016\"} 1\n",
            "fern_a_sync_seconds_bucket{le=\"0.000032\"} 2\n",
            "fern_a_sync_seconds_bucket{le=\"0.001024\"} 3\n",
            "fern_a_sync_seconds_bucket{le=\"0.002048\"} 4\n",
            "fern_a_sync_seconds_bucket{le=\"+Inf\"} 5\n",
            "fern_a_sync_seconds_count 5\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Exposition::new();
        page.family("fern_x", Kind::Gauge, "a\nb").value(&[("ns", "a.\"\\\n"), ("b", "c")], 1.0);
        assert!(
            page.finish()
                .ends_with("# TYPE fern_x gauge\nfern_x{ns=\"a.\\\"\\\\\\n\",b=\"c\"} 1\n")
        );
    }
}
