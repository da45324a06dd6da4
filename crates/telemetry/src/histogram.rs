//! A histogram of `u64` values with bounded relative error and one atomic add per value.
//!
//! Buckets are log-linear: every power of two is cut into 16 equal parts, so a quantile is at most
//! 1/16 (6.25 %) above the true value. Values below 16 are exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PARTS_LOG2: u32 = 4;
const PARTS: usize = 1 << PARTS_LOG2;
/// 16 exact small values, then 60 powers of two (2^4 … 2^63) with 16 parts each.
const BUCKETS: usize = PARTS + (64 - PARTS_LOG2 as usize) * PARTS;

struct Cells {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

/// Counts values by size. Clones share the counts.
#[derive(Clone)]
pub struct Histogram(Arc<Cells>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Arc::new(Cells {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }))
    }
}

/// A reading of a histogram. Quantiles are upper bounds of the bucket that holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The greatest.
    pub max: u64,
    /// Half of the values are at most this.
    pub p50: u64,
    /// 90 % are at most this.
    pub p90: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// 99.9 % are at most this.
    pub p999: u64,
    /// Non-empty buckets: (greatest value of the bucket, values in it), ascending.
    pub buckets: Vec<(u64, u64)>,
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, value: u64) {
        self.0.buckets[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
        self.0.sum.fetch_add(value, Ordering::Relaxed);
        if value > self.0.max.load(Ordering::Relaxed) {
            self.0.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Counts a time in microseconds.
    pub fn record_micros(&self, time: std::time::Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// The counts now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.0.buckets.iter().map(|cell| cell.load(Ordering::Relaxed));
        let buckets: Vec<(u64, u64)> =
            counts.enumerate().filter(|(_, n)| *n != 0).map(|(i, n)| (greatest_of(i), n)).collect();
        let sum = self.0.sum.load(Ordering::Relaxed);
        HistogramSnapshot::of(buckets, sum, self.0.max.load(Ordering::Relaxed))
    }
}

impl HistogramSnapshot {
    fn of(buckets: Vec<(u64, u64)>, sum: u64, max: u64) -> Self {
        let count = buckets.iter().map(|(_, n)| n).sum();
        let quantile = |per_mille| quantile(&buckets, count, per_mille).min(max);
        Self {
            count,
            sum,
            max,
            p50: quantile(500),
            p90: quantile(900),
            p99: quantile(990),
            p999: quantile(999),
            buckets,
        }
    }

    /// What was recorded after `before`, an earlier reading of the same histogram. The greatest
    /// value is known as well as its bucket is.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut older = before.buckets.iter().peekable();
        let mut buckets = Vec::new();
        for (greatest, count) in &self.buckets {
            let had = older.next_if(|(other, _)| other == greatest).map_or(0, |(_, n)| *n);
            if *count > had {
                buckets.push((*greatest, count - had));
            }
        }
        let max = buckets.last().map_or(0, |(greatest, _)| (*greatest).min(self.max));
        Self::of(buckets, self.sum.wrapping_sub(before.sum), max)
    }
}

fn quantile(buckets: &[(u64, u64)], count: u64, per_mille: u64) -> u64 {
    let rank = (u128::from(count) * u128::from(per_mille)).div_ceil(1000);
    let mut seen = 0;
    for (greatest, n) in buckets {
        seen += u128::from(*n);
        if seen >= rank {
            return *greatest;
        }
    }
    0
}

fn bucket_of(value: u64) -> usize {
    if value < PARTS as u64 {
        return value as usize;
    }
    let power = value.ilog2();
    let part = (value >> (power - PARTS_LOG2)) as usize & (PARTS - 1);
    PARTS + (power - PARTS_LOG2) as usize * PARTS + part
}

/// The greatest value that lands in a bucket.
fn greatest_of(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let power = (bucket - PARTS) / PARTS;
    let part = (bucket % PARTS) as u64;
    let width_minus_one = (1_u64 << power) - 1;
    ((PARTS as u64 + part) << power) + width_minus_one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_all_numbers() {
        let mut previous = None;
        for bucket in 0..BUCKETS {
            let greatest = greatest_of(bucket);
            assert_eq!(bucket_of(greatest), bucket);
            if let Some(previous) = previous {
                assert_eq!(bucket_of(previous + 1), bucket);
            }
            previous = Some(greatest);
        }
        assert_eq!(previous, Some(u64::MAX));
    }

    #[test]
    fn quantiles_are_close_from_above() {
        let histogram = Histogram::default();
        (1..=10_000).for_each(|v| histogram.record(v));
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count, snapshot.max), (10_000, 10_000));
        assert_eq!(snapshot.sum, 10_000 * 10_001 / 2);
        for (got, truth) in [(snapshot.p50, 5000), (snapshot.p90, 9000), (snapshot.p99, 9900)] {
            assert!(got >= truth && got <= truth + truth / 16, "{got} for {truth}");
        }
    }

    #[test]
    fn a_later_reading_tells_what_came_between() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|v| histogram.record(v));
        let before = histogram.snapshot();
        assert_eq!(before.since(&before), HistogramSnapshot::default());
        for value in [3, 3, 7, 5000] {
            histogram.record(value);
        }
        let since = histogram.snapshot().since(&before);
        assert_eq!((since.count, since.sum, since.p50, since.max), (4, 5013, 3, 5000));
    }

    #[test]
    fn empty_histogram_reads_zero() {
        assert_eq!(Histogram::default().snapshot(), HistogramSnapshot::default());
    }
}
