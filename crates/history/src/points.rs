//! The points of a reading: a step's rows become one value for each column that was asked for.

use crate::block::{Column, Row};
use crate::{Error, MAX_POINTS, MAX_VALUES};
use std::collections::BTreeMap;

/// Rows further apart than this say nothing of the seconds between them.
pub(crate) const GAP_MS: i64 = 3000;

/// What is told of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Last,
    Least,
    Most,
    Slowest,
    Fastest,
}

/// A column, and what is told of its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointQuery<'a> {
    column: &'a str,
    of: Of,
}

impl<'a> PointQuery<'a> {
    pub(crate) fn parse(name: &'a str) -> Self {
        let inside = name.strip_suffix(')').and_then(|rest| rest.split_once('('));
        let of = match inside {
            Some(("least", _)) => Of::Least,
            Some(("most", _)) => Of::Most,
            Some(("slowest", _)) => Of::Slowest,
            Some(("fastest", _)) => Of::Fastest,
            _ => return Self { column: name, of: Of::Last },
        };
        Self { column: inside.map_or(name, |(_, column)| column), of }
    }
}

impl Of {
    /// What the step has after one more row.
    fn fold(self, so_far: Option<f64>, value: Option<f64>, growth: Option<f64>) -> Option<f64> {
        let either = |new: Option<f64>, choose: fn(f64, f64) -> f64| match (so_far, new) {
            (Some(old), Some(new)) => Some(choose(old, new)),
            (old, new) => old.or(new),
        };
        match self {
            Self::Last => value,
            Self::Least => either(value, f64::min),
            Self::Most => either(value, f64::max),
            Self::Slowest => either(growth, f64::min),
            Self::Fastest => either(growth, f64::max),
        }
    }
}

/// Of each step the time of its last row, and the values.
type Steps = BTreeMap<i64, (i64, Vec<Option<f64>>)>;

pub(crate) struct Points {
    from_ms: i64,
    to_ms: i64,
    step_ms: i64,
    steps: Steps,
    /// The row before, as it stood.
    before: Option<(i64, Vec<Option<f64>>)>,
}

impl Points {
    pub(crate) fn new(from_ms: i64, to_ms: i64, step_ms: i64) -> Self {
        Self { from_ms, to_ms, step_ms, steps: Steps::new(), before: None }
    }

    /// Adds rows that follow those added before. Rows older than the newest of their step are
    /// skipped; rows just before `from_ms` only serve to compute the growth of the first row.
    pub(crate) fn take(
        &mut self,
        columns: &[Column],
        rows: &[Row],
        wanted: &[PointQuery<'_>],
    ) -> Result<(), Error> {
        let places: Vec<Option<usize>> = wanted
            .iter()
            .map(|wanted| columns.iter().position(|column| column.name == wanted.column))
            .collect();
        let from_ms = self.from_ms.saturating_sub(GAP_MS);
        for row in rows.iter().filter(|row| (from_ms..=self.to_ms).contains(&row.at_ms)) {
            let step = row.at_ms.div_euclid(self.step_ms);
            if self.steps.get(&step).is_some_and(|(at_ms, _)| *at_ms >= row.at_ms) {
                continue;
            }
            let value = |place: &Option<usize>| place.map(|at| columns[at].shown(row.values[at]));
            let values: Vec<Option<f64>> = places.iter().map(value).collect();
            if row.at_ms < self.from_ms {
                self.before = Some((row.at_ms, values));
                continue;
            }
            let growths = self.growths(row.at_ms, &values);
            let (at_ms, folded) =
                self.steps.entry(step).or_insert_with(|| (0, vec![None; wanted.len()]));
            *at_ms = row.at_ms;
            for (at, wanted) in wanted.iter().enumerate() {
                folded[at] = wanted.of.fold(folded[at], values[at], growths[at]);
            }
            self.before = Some((row.at_ms, values));
            if self.steps.len() > MAX_POINTS {
                return Err(Error::TooManyPoints);
            }
            if self.steps.len() * wanted.len() > MAX_VALUES {
                return Err(Error::TooManyValues);
            }
        }
        Ok(())
    }

    /// By how much each value grew per second; none over a gap or a new start of its counter.
    fn growths(&self, at_ms: i64, values: &[Option<f64>]) -> Vec<Option<f64>> {
        let Some((before_ms, before)) = &self.before else { return vec![None; values.len()] };
        let passed = at_ms.saturating_sub(*before_ms);
        if !(1..=GAP_MS).contains(&passed) {
            return vec![None; values.len()];
        }
        let growth = |(now, before): (&Option<f64>, &Option<f64>)| {
            let more = (*now)? - (*before)?;
            (more >= 0.0).then(|| more * 1000.0 / passed as f64)
        };
        values.iter().zip(before).map(growth).collect()
    }

    pub(crate) fn by_step(self) -> impl Iterator<Item = (i64, Vec<Option<f64>>)> {
        self.steps.into_values()
    }
}
