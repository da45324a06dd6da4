//! `$median` and `$percentile`: every number is kept, and those asked for are found at the end.

use crate::accumulator::operators::{Feed, Operator};
use crate::accumulator::state::{malformed, refs};
use crate::accumulator::{AccumulatorSpec, Gather, Own, Slide, number_of};
use crate::agg::{Expression, ParseContext, Value, Variables, quantile};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bsonval::number::Number;
use errors::{Error, Result};
use keystring::Collation;
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) const MEDIAN: Operator = row("$median");
pub(crate) const PERCENTILE: Operator = row("$percentile");

const fn row(name: &'static str) -> Operator {
    Operator { name, in_windows: true, feed: Feed::Value, parse, shared: None }
}

/// Which shares of the numbers are to lie below those asked for.
#[derive(Clone, Debug)]
struct Shares {
    wanted: Vec<f64>,
    /// The value is a list of them, else the one number.
    as_array: bool,
}

fn parse(
    operator: &'static Operator,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
) -> Result<AccumulatorSpec> {
    let name = operator.name;
    let as_array = name == "$percentile";
    let RawBsonRef::Document(document) = value else {
        return Err(Error::location(
            if as_array { 7429703 } else { 7436100 },
            format!(
                "specification must be an object; found {name}: {}",
                crate::agg::value_to_string(value)
            ),
        ));
    };
    let (input, wanted) = quantile::options(name, document, ctx)?;
    let mut spec = AccumulatorSpec::plain(operator, Expression::parse(input, ctx)?);
    spec.own = Some(Arc::new(Shares { wanted, as_array }));
    Ok(spec)
}

impl Own for Shares {
    fn start(&self, _: &RawDocument, _: &Variables) -> Result<Box<dyn Gather>> {
        Ok(Box::new(Numbers { shares: self.clone(), numbers: Vec::new() }))
    }

    fn start_window(&self, slides: bool) -> Option<Box<dyn Slide>> {
        let (sorted, queue) = (Sorted::default(), VecDeque::new());
        Some(Box::new(Window { shares: self.clone(), sorted, queue, slides }))
    }
}

/// The numbers of a group, as they came.
#[derive(Debug)]
struct Numbers {
    shares: Shares,
    numbers: Vec<f64>,
}

impl Gather for Numbers {
    fn add(&mut self, value: &Value<'_>, _: Option<&Collation>) -> Result<()> {
        self.numbers.extend(number_of(value));
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.numbers.len() * 8
    }

    fn partial(&self) -> RawBson {
        RawBson::Array(self.numbers.iter().copied().collect())
    }

    fn merge(&mut self, partial: RawBsonRef<'_>, _: Option<&Collation>) -> Result<()> {
        for value in refs(partial)? {
            self.numbers.push(value.as_f64().ok_or_else(malformed)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<RawBson> {
        let Shares { wanted, as_array } = &self.shares;
        Ok(quantile::percentiles(wanted, self.numbers, *as_array))
    }
}

/// The numbers of a window, in order and as they came.
#[derive(Debug)]
struct Window {
    shares: Shares,
    sorted: Sorted,
    /// What came in, where something may go out again; `None` for what was no number.
    queue: VecDeque<Option<f64>>,
    slides: bool,
}

impl Slide for Window {
    fn add(&mut self, value: &Value<'_>) -> Result<()> {
        let number = value.get().and_then(Number::from_bson).map(Number::to_f64);
        if let Some(number) = number {
            self.sorted.insert(number);
        }
        if self.slides {
            self.queue.push_back(number);
        }
        Ok(())
    }

    fn remove_first(&mut self) {
        if let Some(number) = self.queue.pop_front().flatten() {
            self.sorted.remove(number);
        }
    }

    fn bytes(&self) -> usize {
        self.sorted.len * 8 + self.queue.len() * 32
    }

    fn value(&self) -> RawBson {
        let Shares { wanted, as_array } = &self.shares;
        let pick = |p: &f64| {
            let rank = (p * self.sorted.len as f64).ceil() as usize;
            self.sorted.nth(rank.saturating_sub(1)).map_or(RawBson::Null, RawBson::Double)
        };
        if *as_array {
            RawBson::Array(wanted.iter().map(pick).collect())
        } else {
            wanted.first().map_or(RawBson::Null, pick)
        }
    }
}

/// Numbers in order, in chunks so that neither end is far.
#[derive(Debug, Default)]
struct Sorted {
    chunks: Vec<Vec<f64>>,
    len: usize,
}

impl Sorted {
    const CHUNK: usize = 512;

    fn chunk_of(&self, number: f64) -> usize {
        let before =
            |chunk: &Vec<f64>| chunk.last().is_some_and(|last| last.total_cmp(&number).is_lt());
        self.chunks.partition_point(before)
    }

    fn insert(&mut self, number: f64) {
        self.len += 1;
        let at = self.chunk_of(number).min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(vec![number]);
            return;
        };
        let place = chunk.partition_point(|other| other.total_cmp(&number).is_lt());
        chunk.insert(place, number);
        if chunk.len() > Self::CHUNK {
            let rest = chunk.split_off(Self::CHUNK / 2);
            self.chunks.insert(at + 1, rest);
        }
    }

    fn remove(&mut self, number: f64) {
        let at = self.chunk_of(number);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let place = chunk.partition_point(|other| other.total_cmp(&number).is_lt());
        if chunk.get(place).is_some_and(|found| found.total_cmp(&number).is_eq()) {
            chunk.remove(place);
            self.len -= 1;
            if chunk.is_empty() {
                self.chunks.remove(at);
            }
        }
    }

    fn nth(&self, mut rank: usize) -> Option<f64> {
        for chunk in &self.chunks {
            if let Some(found) = chunk.get(rank) {
                return Some(*found);
            }
            rank -= chunk.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_numbers_stay_sorted() {
        let mut sorted = Sorted::default();
        for at in 0..5000_u32 {
            sorted.insert(f64::from(at * 7919 % 5000));
        }
        assert_eq!(sorted.nth(2500), Some(2500.0));
        for at in 0..2500_u32 {
            sorted.remove(f64::from(at));
        }
        assert_eq!((sorted.nth(0), sorted.len), (Some(2500.0), 2500));
        assert_eq!(sorted.nth(2500), None);
    }
}
