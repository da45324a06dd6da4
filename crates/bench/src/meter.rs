//! What clients did since somebody last looked.
//!
//! Always true: an operation is counted once, in the second it ended in.

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The clock of the experiments.
#[expect(clippy::disallowed_methods, reason = "a tool for people, never simulated")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Shared by the clients of one server.
#[derive(Default)]
pub(crate) struct Meter {
    tally: Mutex<Tally>,
}

/// Operations by their class.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) classes: BTreeMap<&'static str, Class>,
}

/// One kind of operation.
pub(crate) struct Class {
    /// What they amounted to: documents inserted, counters updated.
    pub(crate) units: u64,
    /// How long each took, in microseconds.
    pub(crate) micros: Histogram<u64>,
}

impl Default for Class {
    fn default() -> Self {
        Self { units: 0, micros: empty() }
    }
}

/// The longest time told apart: an hour, in microseconds.
const LONGEST: u64 = 3_600_000_000;

/// A histogram of microseconds with three digits. Its bounds are given, for one that grows by itself
/// cuts off what is recorded with saturation.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order")
}

impl Meter {
    /// Carries out one operation and counts it. One that fails is not counted: it ends the run.
    pub(crate) async fn time<T>(
        &self,
        class: &'static str,
        units: u64,
        work: impl Future<Output = mongodb::error::Result<T>>,
    ) -> anyhow::Result<T> {
        let began = now();
        let done = work.await?;
        self.record(class, units, began.elapsed());
        Ok(done)
    }

    /// Counts an operation that took so long.
    pub(crate) fn record(&self, class: &'static str, units: u64, took: Duration) {
        let mut tally = self.tally.lock();
        let class = tally.classes.entry(class).or_default();
        class.units += units;
        class.micros.saturating_record((took.as_micros() as u64).max(1));
    }

    /// Everything since the last time.
    pub(crate) fn take(&self) -> Tally {
        std::mem::take(&mut *self.tally.lock())
    }
}

impl Tally {
    /// Adds another's operations.
    pub(crate) fn add(&mut self, other: &Self) {
        for (name, class) in &other.classes {
            let mine = self.classes.entry(name).or_default();
            mine.units += class.units;
            mine.micros += &class.micros;
        }
    }

    /// The units that the rate is made of: of one class, or of all.
    pub(crate) fn units(&self, counted: Option<&str>) -> u64 {
        self.of(counted).map(|class| class.units).sum()
    }

    /// The times of the operations that the rate is made of.
    pub(crate) fn micros(&self, counted: Option<&str>) -> Histogram<u64> {
        let mut all = empty();
        for class in self.of(counted) {
            all += &class.micros;
        }
        all
    }

    fn of(&self, counted: Option<&str>) -> impl Iterator<Item = &Class> {
        let wanted = move |name: &str| counted.is_none_or(|counted| counted == name);
        self.classes.iter().filter(move |(name, _)| wanted(name)).map(|(_, class)| class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_not_counted_again() {
        let meter = Meter::default();
        meter.record("insert", 1000, Duration::from_secs(10));
        meter.record("query", 1, Duration::from_millis(1));
        let (first, then) = (meter.take(), meter.take());
        assert_eq!((first.units(None), first.units(Some("insert"))), (1001, 1000));
        assert_eq!(then.units(None), 0);
        let mut sum = Tally::default();
        sum.add(&first);
        sum.add(&first);
        assert_eq!(sum.units(Some("insert")), 2000);
        let inserts = sum.micros(Some("insert"));
        assert_eq!(inserts.len(), 2);
        assert!((9_990_000..=10_010_000).contains(&inserts.max()), "{}", inserts.max());
        let median = sum.micros(Some("query")).value_at_quantile(0.5);
        assert!((999..=1001).contains(&median), "{median}");
    }
}
