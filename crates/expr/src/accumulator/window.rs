//! Accumulators over a sliding window: what came in first goes out first.
//!
//! Always true: after any sequence of [`WindowAccumulator::add`] and
//! [`WindowAccumulator::remove_first`], the value is that of the documents still inside, found
//! in time that does not grow with the window (but for values that are lists themselves). A
//! window that never removes holds no more than its value needs.

use crate::accumulator::operators::Feed;
use crate::accumulator::state::{key_of, value_bytes};
use crate::accumulator::{AccumulatorSpec, MAX_ACCUMULATOR_BYTES, Slide};
use crate::agg::{Merger, Spread, Value, Variables, merge_input};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use bsonval::decimal::Decimal;
use bsonval::number::{Number, Sum};
use errors::{Code, Error, Result};
use keystring::{Collation, Direction};
use std::collections::{BTreeMap, VecDeque};

/// What a window has gathered for one field.
#[derive(Debug)]
pub struct WindowAccumulator {
    state: State,
    /// Whether something may go out again.
    slides: bool,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) enum State {
    Sum(WindowSum, VecDeque<Option<Number>>),
    Avg(WindowSum, VecDeque<Option<Number>>),
    StdDev {
        spread: Spread,
        strange: u64,
        less: u64,
        queue: VecDeque<Option<f64>>,
    },
    Count(i64),
    List(VecDeque<Option<RawBson>>, Pick),
    /// The members with how often they are inside, and the members of each document.
    Set(BTreeMap<Vec<u8>, (u64, RawBson)>, VecDeque<Vec<Vec<u8>>>),
    /// By a sort key; or by value, in this direction.
    Ranked(Ranked, Pick, Option<Direction>),
    Own(Box<dyn Slide>),
}

/// Which of a list is the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    All,
    /// The elements of lists.
    Joined,
    /// One document of all, a later field over an earlier.
    Merged,
    First,
    Last,
    FirstN(usize),
    LastN(usize),
}

/// Values by key, then by arrival.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    entries: BTreeMap<(Vec<u8>, u64), RawBson>,
    queue: VecDeque<Option<(Vec<u8>, u64)>>,
    arrivals: u64,
}

pub(super) fn list(pick: Pick) -> State {
    State::List(VecDeque::new(), pick)
}

pub(super) fn set() -> State {
    State::Set(BTreeMap::new(), VecDeque::new())
}

pub(super) fn ranked(pick: Pick) -> State {
    State::Ranked(Ranked::default(), pick, None)
}

pub(super) fn ranked_by_value(direction: Direction, pick: Pick) -> State {
    State::Ranked(Ranked::default(), pick, Some(direction))
}

/// `less`: what the number of values is lessened by, before the mean of the squares is taken.
pub(super) fn deviation(less: u64) -> State {
    State::StdDev { spread: Spread::default(), strange: 0, less, queue: VecDeque::new() }
}

impl AccumulatorSpec {
    /// An empty window. `slides`: whether [`WindowAccumulator::remove_first`] will be called.
    pub fn start_window(&self, slides: bool, variables: &Variables) -> Result<WindowAccumulator> {
        let refused = || {
            let name = self.operator.name;
            Error::failed_to_parse(format!("Unrecognized window function, {name}"))
        };
        if !self.is_window_function() {
            return Err(refused());
        }
        let state = if let Some(own) = &self.own {
            State::Own(own.start_window(slides).ok_or_else(refused)?)
        } else {
            let n = self.kept(crate::agg::empty_document(), variables)?;
            let shared = self.operator.shared.as_ref().ok_or_else(|| self.stateless())?;
            (shared.start_window)(n)
        };
        Ok(WindowAccumulator { state, slides, bytes: 128 })
    }

    /// Whether the accumulator is one that windows have.
    pub fn is_window_function(&self) -> bool {
        self.operator.in_windows
    }

    /// Lets a document into a window.
    pub fn add_to_window(
        &self,
        window: &mut WindowAccumulator,
        document: &RawDocument,
        variables: &Variables,
    ) -> Result<()> {
        let value = self.input.evaluate(document, variables)?;
        let under = variables.collation();
        match &self.sort {
            Some(sort) => {
                let value = value.get().unwrap_or(RawBsonRef::Null);
                window.add_ranked(Some(sort.key(document, under)?), value);
            }
            None if self.operator.feed == Feed::Elements => {
                let elements = self.list(&value)?;
                window.add_elements(&value, elements, under)?;
            }
            None => window.add(&value, under)?,
        }
        if window.bytes() > MAX_ACCUMULATOR_BYTES {
            return Err(Error::new(
                Code::EXCEEDED_MEMORY_LIMIT,
                format!(
                    "{} used too much memory and cannot spill to disk. Memory limit: {} bytes",
                    self.operator.name, MAX_ACCUMULATOR_BYTES
                ),
            ));
        }
        Ok(())
    }
}

impl WindowAccumulator {
    fn add(&mut self, value: &Value<'_>, under: Option<&Collation>) -> Result<()> {
        let number = value.get().and_then(Number::from_bson);
        let slides = self.slides;
        let queued = if slides { 32 } else { 0 };
        match &mut self.state {
            State::Sum(sum, queue) | State::Avg(sum, queue) => {
                if let Some(number) = number {
                    sum.add(number);
                }
                if slides {
                    queue.push_back(number);
                }
                self.bytes += queued;
            }
            State::StdDev { spread, strange, queue, .. } => {
                let number = number.map(Number::to_f64);
                match number {
                    Some(number) if number.is_finite() => spread.add(number),
                    Some(_) => *strange += 1,
                    None => {}
                }
                if slides {
                    queue.push_back(number);
                }
                self.bytes += queued;
            }
            State::Count(count) => *count += 1,
            State::List(list, pick) => {
                if *pick == Pick::Merged && !value.is_nullish() {
                    merge_input(value)?;
                }
                let value = match pick {
                    Pick::Merged if value.is_nullish() => None,
                    Pick::All | Pick::Joined | Pick::Merged => value.get(),
                    _ => Some(value.get().unwrap_or(RawBsonRef::Null)),
                };
                let full = match pick {
                    Pick::First => !list.is_empty(),
                    Pick::FirstN(n) => list.len() >= *n,
                    _ => false,
                };
                if (full || value.is_none()) && !slides {
                    return Ok(());
                }
                self.bytes += 16 + value.map_or(0, value_bytes);
                list.push_back(value.map(Into::into));
                let most = match pick {
                    Pick::Last => 1,
                    Pick::LastN(n) => *n,
                    _ => usize::MAX,
                };
                if !slides && list.len() > most {
                    self.remove_first();
                }
            }
            State::Set(..) => return self.add_members(&Vec::from_iter(value.get()), under),
            State::Ranked(_, _, Some(direction)) => {
                let direction = *direction;
                return self.add_by_value(value, direction, under);
            }
            State::Ranked(..) => {}
            State::Own(own) => own.add(value)?,
        }
        Ok(())
    }

    /// The elements of the list that a document brings.
    fn add_elements<'v>(
        &mut self,
        list: &Value<'_>,
        elements: impl Iterator<Item = Result<RawBsonRef<'v>>>,
        under: Option<&Collation>,
    ) -> Result<()> {
        match &self.state {
            State::Set(..) => {
                let members = elements.collect::<Result<Vec<_>>>()?;
                self.add_members(&members, under)
            }
            // The list itself is kept, and joined with the others when the value is asked for.
            _ => self.add(list, under),
        }
    }

    /// The members of a set that a document brings.
    fn add_members(&mut self, members: &[RawBsonRef<'_>], under: Option<&Collation>) -> Result<()> {
        let State::Set(set, queue) = &mut self.state else { return Ok(()) };
        let mut keys = Vec::with_capacity(members.len());
        for member in members {
            let key = key_of(*member, Direction::Ascending, under)?;
            let entry = set.entry(key.clone()).or_insert_with(|| {
                self.bytes += key.len() + 64 + value_bytes(*member);
                (0, (*member).into())
            });
            entry.0 += 1;
            keys.push(key);
        }
        if self.slides {
            self.bytes += 32 + keys.iter().map(Vec::len).sum::<usize>();
            queue.push_back(keys);
        }
        Ok(())
    }

    fn add_by_value(
        &mut self,
        value: &Value<'_>,
        direction: Direction,
        under: Option<&Collation>,
    ) -> Result<()> {
        if value.is_nullish() {
            self.add_ranked(None, RawBsonRef::Null);
        } else {
            self.add_ranked(Some(key_of(value.bson(), direction, under)?), value.bson());
        }
        Ok(())
    }

    /// `None`: something that does not count but will have to go out again.
    fn add_ranked(&mut self, key: Option<Vec<u8>>, value: RawBsonRef<'_>) {
        let State::Ranked(ranked, pick, _) = &mut self.state else { return };
        let Some(key) = key else {
            if self.slides {
                ranked.queue.push_back(None);
            }
            return;
        };
        let place = (key, ranked.arrivals);
        ranked.arrivals += 1;
        if self.slides {
            ranked.queue.push_back(Some(place.clone()));
        }
        self.bytes += place.0.len() * 2 + 96 + value_bytes(value);
        ranked.entries.insert(place, value.into());
        if self.slides {
            return;
        }
        let (most, from_the_end) = match *pick {
            Pick::First => (1, true),
            Pick::Last => (1, false),
            Pick::FirstN(n) => (n, true),
            Pick::LastN(n) => (n, false),
            Pick::All | Pick::Joined | Pick::Merged => return,
        };
        if ranked.entries.len() > most {
            let dropped =
                if from_the_end { ranked.entries.pop_last() } else { ranked.entries.pop_first() };
            if let Some(((key, _), value)) = dropped {
                let size = key.len() * 2 + 96 + value_bytes(value.as_raw_bson_ref());
                self.bytes = self.bytes.saturating_sub(size);
            }
        }
    }

    /// Takes out what came in first.
    pub fn remove_first(&mut self) {
        let freed = match &mut self.state {
            State::Sum(sum, queue) | State::Avg(sum, queue) => {
                if let Some(Some(number)) = queue.pop_front() {
                    sum.remove(number);
                }
                32
            }
            State::StdDev { spread, strange, queue, .. } => {
                match queue.pop_front().flatten() {
                    Some(number) if number.is_finite() => spread.remove(number),
                    Some(_) => *strange -= 1,
                    None => {}
                }
                32
            }
            State::Count(count) => {
                *count -= 1;
                0
            }
            State::List(list, _) => {
                let gone = list.pop_front().flatten();
                16 + gone.map_or(0, |value| value_bytes(value.as_raw_bson_ref()))
            }
            State::Set(set, queue) => remove_from_set(set, queue),
            State::Ranked(ranked, ..) => match ranked.queue.pop_front().flatten() {
                None => 0,
                Some(place) => {
                    let gone = ranked.entries.remove(&place);
                    let value = gone.map_or(0, |value| value_bytes(value.as_raw_bson_ref()));
                    place.0.len() * 2 + 96 + value
                }
            },
            State::Own(own) => {
                own.remove_first();
                0
            }
        };
        self.bytes = self.bytes.saturating_sub(freed);
    }

    /// Roughly the memory held.
    pub fn bytes(&self) -> usize {
        match &self.state {
            State::Own(own) => self.bytes + own.bytes(),
            _ => self.bytes,
        }
    }

    /// Roughly the bytes of [`Self::value`], where that is a list; else few.
    pub fn value_bytes(&self) -> usize {
        match &self.state {
            State::List(..) | State::Set(..) | State::Ranked(..) => self.bytes,
            State::Own(own) => own.value_bytes(),
            _ => 0,
        }
    }

    /// The value of what is inside.
    pub fn value(&self) -> RawBson {
        match &self.state {
            State::Sum(sum, _) => sum.total().to_bson(),
            State::Avg(sum, _) => sum.average().map_or(RawBson::Null, Number::to_bson),
            State::StdDev { strange: 1.., .. } => RawBson::Double(f64::NAN),
            State::StdDev { spread, less, .. } => {
                spread.deviation(*less).map_or(RawBson::Null, RawBson::Double)
            }
            State::Count(count) => {
                i32::try_from(*count).map_or(RawBson::Int64(*count), RawBson::Int32)
            }
            State::List(list, pick) => picked(list.len(), list.iter().flatten(), *pick),
            State::Set(set, _) => {
                RawBson::Array(set.values().map(|(_, value)| value).collect::<RawArrayBuf>())
            }
            State::Ranked(ranked, pick, _) => {
                picked(ranked.entries.len(), ranked.entries.values(), *pick)
            }
            State::Own(own) => own.value(),
        }
    }
}

fn remove_from_set(
    set: &mut BTreeMap<Vec<u8>, (u64, RawBson)>,
    queue: &mut VecDeque<Vec<Vec<u8>>>,
) -> usize {
    let mut freed = 32;
    for key in queue.pop_front().unwrap_or_default() {
        freed += key.len();
        if let Some(entry) = set.get_mut(&key) {
            entry.0 -= 1;
            if entry.0 == 0 {
                freed += key.len() + 64 + value_bytes(entry.1.as_raw_bson_ref());
                set.remove(&key);
            }
        }
    }
    freed
}

fn picked<'v>(
    len: usize,
    mut values: impl DoubleEndedIterator<Item = &'v RawBson>,
    pick: Pick,
) -> RawBson {
    match pick {
        Pick::All => RawBson::Array(values.collect::<RawArrayBuf>()),
        Pick::Joined => {
            let lists = values.filter_map(RawBson::as_array);
            RawBson::Array(lists.flatten().flatten().collect::<RawArrayBuf>())
        }
        Pick::Merged => {
            let mut merger = Merger::default();
            for document in values.filter_map(RawBson::as_document) {
                // These were well formed when they came in.
                if merger.merge(document).is_err() {
                    return RawBson::Null;
                }
            }
            RawBson::Document(merger.to_document())
        }
        Pick::First => values.next().cloned().unwrap_or(RawBson::Null),
        Pick::Last => values.next_back().cloned().unwrap_or(RawBson::Null),
        Pick::FirstN(n) => RawBson::Array(values.take(n).collect::<RawArrayBuf>()),
        Pick::LastN(n) => {
            // Not `skip`: the front of a long window would be walked for every document.
            let mut last: Vec<&RawBson> = values.rev().take(n.min(len)).collect();
            last.reverse();
            RawBson::Array(last.into_iter().collect::<RawArrayBuf>())
        }
    }
}

/// A sum out of which numbers can be taken again.
#[derive(Debug, Default)]
pub struct WindowSum {
    integers: i128,
    /// Of the finite doubles.
    double: Sum,
    /// Of the finite decimals.
    decimal: Option<Decimal>,
    count: u64,
    longs: u64,
    doubles: u64,
    decimals: u64,
    nans: u64,
    infinities: u64,
    negative_infinities: u64,
}

impl WindowSum {
    /// Adds a number.
    pub fn add(&mut self, number: Number) {
        self.count += 1;
        self.change(number, 1);
    }

    /// Takes out a number that was added before.
    pub fn remove(&mut self, number: Number) {
        self.count = self.count.saturating_sub(1);
        self.change(number, -1);
        // With the last of a kind go its rounding errors.
        if self.doubles == 0 {
            self.double = Sum::default();
        }
        if self.decimals == 0 {
            self.decimal = None;
        }
    }

    fn change(&mut self, number: Number, sign: i64) {
        let step = |counter: &mut u64| *counter = counter.saturating_add_signed(sign);
        match number {
            Number::Int(n) => self.integers += i128::from(n) * i128::from(sign),
            Number::Long(n) => {
                step(&mut self.longs);
                self.integers += i128::from(n) * i128::from(sign);
            }
            Number::Double(n) => {
                step(&mut self.doubles);
                if n.is_nan() {
                    step(&mut self.nans);
                } else if n == f64::INFINITY {
                    step(&mut self.infinities);
                } else if n == f64::NEG_INFINITY {
                    step(&mut self.negative_infinities);
                } else {
                    self.double.add(Number::Double(n * sign as f64));
                }
            }
            Number::Decimal(n) => {
                step(&mut self.decimals);
                if n.is_nan() {
                    step(&mut self.nans);
                } else if n.is_infinite() && n.is_negative() {
                    step(&mut self.negative_infinities);
                } else if n.is_infinite() {
                    step(&mut self.infinities);
                } else {
                    let signed = if sign < 0 { n.neg() } else { n };
                    self.decimal = Some(self.decimal.map_or(signed, |sum| sum.add(signed)));
                }
            }
        }
    }

    /// What NaN and the infinities make of the sum.
    fn strange(&self) -> Option<f64> {
        match (self.nans, self.infinities, self.negative_infinities) {
            (0, 0, 0) => None,
            (0, 1.., 0) => Some(f64::INFINITY),
            (0, 0, 1..) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }

    /// The sum, in the widest type of what is inside.
    pub fn total(&self) -> Number {
        if self.decimals > 0 {
            if let Some(strange) = self.strange() {
                return Number::Decimal(Decimal::from_f64(strange));
            }
            let rest = Decimal::from_i128(self.integers)
                .add(Decimal::from_f64_exact(self.double.to_f64()));
            return Number::Decimal(self.decimal.map_or(rest, |sum| sum.add(rest)));
        }
        if self.doubles > 0 {
            return Number::Double(self.strange().unwrap_or_else(|| self.finite()));
        }
        match i64::try_from(self.integers) {
            Err(_) => Number::Double(self.integers as f64),
            Ok(n) if self.longs > 0 => Number::Long(n),
            Ok(n) => i32::try_from(n).map_or(Number::Long(n), Number::Int),
        }
    }

    /// Integers and finite doubles together.
    fn finite(&self) -> f64 {
        let mut whole = self.double;
        match i64::try_from(self.integers) {
            Ok(n) => whole.add(Number::Long(n)),
            Err(_) => whole.add(Number::Double(self.integers as f64)),
        }
        whole.to_f64()
    }

    /// The mean; `None` of nothing.
    pub fn average(&self) -> Option<Number> {
        if self.count == 0 {
            return None;
        }
        let count = self.count as f64;
        Some(match self.total() {
            Number::Decimal(total) => {
                Number::Decimal(total.div(Decimal::from_i128(i128::from(self.count))))
            }
            Number::Double(total) => Number::Double(total / count),
            _ => Number::Double(self.finite() / count),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agg::ParseContext;
    use bson::raw::RawDocumentBuf;
    use bson::{Bson, DateTime, Document, bson, doc};

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    /// Every window of `width` over the values of `a` has the value a fresh group has.
    fn check_slides(spec: &Bson, values: &[Bson], width: usize) {
        let whole = raw(&doc! {"x": spec.clone()});
        let element = whole.iter_elements().next().unwrap().unwrap();
        let inner = element.value().unwrap().as_document().unwrap();
        let (name, value) = inner.iter().next().unwrap().unwrap();
        let parsed = AccumulatorSpec::parse(name.as_str(), value, &ParseContext::new()).unwrap();
        let variables = Variables::new(DateTime::from_millis(0), 0);
        let documents: Vec<_> =
            values.iter().map(|v| raw(&doc! {"a": v.clone(), "l": [v.clone(), 1], "d": {"x": v.clone(), v.to_string(): 1}})).collect();
        let mut sliding = parsed.start_window(true, &variables).unwrap();
        let mut growing = parsed.start_window(false, &variables).unwrap();
        let fresh = |part: &[RawDocumentBuf]| {
            let mut state = parsed.start(RawBsonRef::Null, &variables).unwrap();
            for document in part {
                parsed.add(&mut state, document, &variables).unwrap();
            }
            sorted(state.finish().unwrap(), name.as_str())
        };
        for (at, document) in documents.iter().enumerate() {
            parsed.add_to_window(&mut sliding, document, &variables).unwrap();
            parsed.add_to_window(&mut growing, document, &variables).unwrap();
            if at >= width {
                sliding.remove_first();
            }
            let from = (at + 1).saturating_sub(width);
            let inside = sorted(sliding.value(), name.as_str());
            assert_eq!(inside, fresh(&documents[from..=at]), "{spec} at {at}");
            let all = sorted(growing.value(), name.as_str());
            assert_eq!(all, fresh(&documents[..=at]), "{spec} up to {at}");
        }
        let held = sliding.bytes();
        assert!(held >= 128 && held < 128 + 800 * (width + 1), "{spec}: {held}");
    }

    /// A set has no order.
    fn sorted(value: RawBson, name: &str) -> Bson {
        let value = Bson::try_from(value).unwrap();
        match value {
            Bson::Array(mut list) if matches!(name, "$addToSet" | "$setUnion") => {
                list.sort_by(keystring::compare_bson);
                Bson::Array(list)
            }
            value => value,
        }
    }

    #[test]
    fn a_sliding_window_equals_a_fresh_group() {
        let values = [
            bson!(3),
            bson!(1),
            bson!(4),
            bson!(1),
            Bson::Null,
            bson!(5),
            bson!("x"),
            bson!(9),
            Bson::Int64(2),
            bson!(6),
            bson!(5),
            bson!(3),
            bson!(5),
        ];
        let specs = [
            bson!({"$sum": "$a"}),
            bson!({"$avg": "$a"}),
            bson!({"$min": "$a"}),
            bson!({"$max": "$a"}),
            bson!({"$count": {}}),
            bson!({"$push": "$a"}),
            bson!({"$addToSet": "$a"}),
            bson!({"$concatArrays": ["$l"]}),
            bson!({"$setUnion": "$l"}),
            bson!({"$mergeObjects": "$d"}),
            bson!({"$first": "$a"}),
            bson!({"$last": "$a"}),
            bson!({"$firstN": {"n": 2, "input": "$a"}}),
            bson!({"$lastN": {"n": 2, "input": "$a"}}),
            bson!({"$minN": {"n": 2, "input": "$a"}}),
            bson!({"$maxN": {"n": 2, "input": "$a"}}),
            bson!({"$top": {"sortBy": {"a": 1}, "output": "$a"}}),
            bson!({"$bottomN": {"n": 3, "sortBy": {"a": 1}, "output": "$a"}}),
            bson!({"$median": {"input": "$a", "method": "approximate"}}),
            bson!({"$percentile": {"input": "$a", "p": [0.1, 0.9], "method": "approximate"}}),
        ];
        for spec in &specs {
            for width in [1, 2, 4, 7] {
                check_slides(spec, &values, width);
            }
        }
    }

    #[test]
    fn infinities_and_nan_leave_a_sum_again() {
        let mut sum = WindowSum::default();
        for number in [1.5, f64::INFINITY, f64::NAN] {
            sum.add(Number::Double(number));
        }
        assert!(sum.total().is_nan());
        sum.remove(Number::Double(f64::NAN));
        assert_eq!(sum.total().to_bson(), RawBson::Double(f64::INFINITY));
        sum.remove(Number::Double(f64::INFINITY));
        sum.add(Number::Int(2));
        assert_eq!(sum.total().to_bson(), RawBson::Double(3.5));
        sum.remove(Number::Double(1.5));
        assert_eq!(sum.total().to_bson(), RawBson::Int32(2));
    }

    #[test]
    fn deviations_follow_the_window() {
        let mut spread = Spread::default();
        for number in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, 100.0] {
            spread.add(number);
        }
        spread.remove(100.0);
        assert!((spread.deviation(0).unwrap() - 2.0).abs() < 1e-9);
    }
}
