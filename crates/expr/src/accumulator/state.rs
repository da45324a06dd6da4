//! The state of one accumulator of one group.

use crate::accumulator::Gather;
use crate::accumulator::ranked::Ranked;
use crate::agg::{Merger, Spread, Value, average, merge_input};
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef};
use bsonval::number::{Number, Sum};
use bsonval::raw;
use errors::{Code, Error, Result};
use keystring::{Collation, Direction, KeyBuilder};
use limits::KeySet;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// What a group has gathered for one field.
#[derive(Debug)]
pub struct Accumulator {
    state: State,
    /// The collation.
    under: Option<Collation>,
}

#[derive(Debug)]
pub(crate) enum State {
    Sum(Sum),
    Avg(Sum, u64),
    Extreme(Ordering, Option<RawBson>),
    /// `None`: nothing seen yet; a missing value counts as null.
    First(Option<RawBson>),
    Last(Option<RawBson>),
    Push(RawArrayBuf),
    AddToSet(KeySet<Vec<u8>>, RawArrayBuf, usize),
    StdDev(Spread, u64),
    Count(i64),
    Merge(Merger),
    FirstN(usize, Vec<RawBson>, usize),
    LastN(usize, VecDeque<RawBson>, usize),
    /// `true`: finishes as an array, else as the one value.
    Ranked(Ranked, bool),
    /// By value, in this direction.
    RankedByValue(Ranked, Direction),
    Own(Box<dyn Gather>),
}

pub(super) fn malformed() -> Error {
    Error::new(Code::INTERNAL_ERROR, "malformed partial accumulator")
}

/// Roughly what a value takes in memory.
pub(super) fn value_bytes(value: RawBsonRef<'_>) -> usize {
    match value {
        RawBsonRef::String(s) | RawBsonRef::Symbol(s) | RawBsonRef::JavaScriptCode(s) => {
            s.len() + 32
        }
        RawBsonRef::Document(document) => document.as_bytes().len() + 32,
        RawBsonRef::Array(array) => array.as_bytes().len() + 32,
        RawBsonRef::Binary(binary) => binary.bytes.len() + 32,
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            code.code.len() + code.scope.as_bytes().len() + 32
        }
        _ => 32,
    }
}

/// A value's bytes under the order of values: equal values, equal bytes.
pub(super) fn key_of(
    value: RawBsonRef<'_>,
    direction: Direction,
    under: Option<&Collation>,
) -> Result<Vec<u8>> {
    let mut key = KeyBuilder::new();
    key.append_under(value, direction, under)
        .map_err(|error| Error::new(Code::BAD_VALUE, error.to_string()))?;
    Ok(key.into_bytes())
}

impl State {
    /// An empty set.
    pub(super) fn set() -> Self {
        Self::AddToSet(KeySet::default(), RawArrayBuf::new(), 0)
    }
}

impl Accumulator {
    pub(super) fn new(state: State, under: Option<&Collation>) -> Self {
        // Few states compare; the others need not know.
        let compares =
            matches!(state, State::Extreme(..) | State::AddToSet(..) | State::RankedByValue(..));
        Self { state, under: under.filter(|_| compares).cloned() }
    }

    pub(super) fn own(state: Box<dyn Gather>, under: Option<&Collation>) -> Self {
        Self { state: State::Own(state), under: under.cloned() }
    }

    pub(super) fn add_ranked(&mut self, key: Vec<u8>, value: &Value<'_>) {
        if let State::Ranked(ranked, _) = &mut self.state {
            ranked.add(key, value.get().unwrap_or(RawBsonRef::Null));
        }
    }

    pub(super) fn add(&mut self, value: &Value<'_>) -> Result<()> {
        let number = || value.get().and_then(Number::from_bson);
        let present = value.get().unwrap_or(RawBsonRef::Null);
        let under = self.under.as_ref();
        match &mut self.state {
            State::Sum(sum) => {
                if let Some(n) = number() {
                    sum.add(n);
                }
            }
            State::Avg(sum, count) => {
                if let Some(n) = number() {
                    sum.add(n);
                    *count += 1;
                }
            }
            State::Extreme(wanted, best) => {
                if !value.is_nullish() {
                    keep_extreme(*wanted, best, present, under);
                }
            }
            State::First(slot) => {
                if slot.is_none() {
                    *slot = Some(present.into());
                }
            }
            State::Last(slot) => *slot = Some(present.into()),
            State::Push(list) => {
                if let Some(value) = value.get() {
                    list.push(value);
                }
            }
            State::AddToSet(seen, list, bytes) => {
                if let Some(value) = value.get() {
                    add_to_set(seen, list, bytes, value, under)?;
                }
            }
            State::StdDev(spread, _) => {
                if let Some(n) = number() {
                    spread.add(n.to_f64());
                }
            }
            State::Count(count) => *count += 1,
            State::Merge(merger) => {
                if !value.is_nullish() {
                    merger.merge(merge_input(value)?)?;
                }
            }
            State::FirstN(n, list, bytes) => {
                if list.len() < *n {
                    *bytes += value_bytes(present);
                    list.push(present.into());
                }
            }
            State::LastN(n, list, bytes) => push_last(*n, list, bytes, present),
            State::RankedByValue(ranked, direction) => {
                if !value.is_nullish() {
                    ranked.add(key_of(present, *direction, under)?, present);
                }
            }
            State::Ranked(..) => {}
            State::Own(own) => own.add(value, under)?,
        }
        Ok(())
    }

    /// Roughly the memory held.
    pub fn bytes(&self) -> usize {
        match &self.state {
            State::Extreme(_, value) | State::First(value) | State::Last(value) => {
                value.as_ref().map_or(32, |v| value_bytes(v.as_raw_bson_ref()))
            }
            State::Push(list) => list.as_bytes().len(),
            State::AddToSet(_, list, bytes) => list.as_bytes().len() + bytes,
            State::Merge(merger) => merger.memory(),
            State::FirstN(_, _, bytes) | State::LastN(_, _, bytes) => *bytes,
            State::Ranked(ranked, _) | State::RankedByValue(ranked, _) => ranked.bytes(),
            State::Own(own) => own.bytes(),
            State::Sum(_) | State::Avg(..) | State::StdDev(..) | State::Count(_) => 64,
        }
    }

    /// The state as a value that [`super::AccumulatorSpec::merge`] takes up again.
    pub fn partial(&self) -> RawBson {
        let optional =
            |value: &Option<RawBson>| RawBson::Array(value.iter().collect::<RawArrayBuf>());
        match &self.state {
            State::Sum(sum) => RawBson::Array(sum.parts().iter().collect()),
            State::Avg(sum, count) => {
                let mut parts: RawArrayBuf = sum.parts().iter().collect();
                parts.push(*count as i64);
                RawBson::Array(parts)
            }
            State::Extreme(_, value) | State::First(value) | State::Last(value) => optional(value),
            State::Push(list) | State::AddToSet(_, list, _) => RawBson::Array(list.clone()),
            State::StdDev(spread, _) => {
                let mut parts = RawArrayBuf::new();
                parts.push(spread.count as i64);
                parts.push(spread.mean);
                parts.push(spread.squares);
                RawBson::Array(parts)
            }
            State::Count(count) => RawBson::Int64(*count),
            State::Merge(merger) => RawBson::Document(merger.to_document()),
            State::FirstN(_, list, _) => RawBson::Array(list.iter().collect()),
            State::LastN(_, list, _) => RawBson::Array(list.iter().collect()),
            State::Ranked(ranked, _) | State::RankedByValue(ranked, _) => ranked.partial(),
            State::Own(own) => own.partial(),
        }
    }

    /// Writes [`Self::partial`] as a field without a name; lists are not copied first.
    pub fn write_partial(&self, out: &mut raw::Writer) {
        match &self.state {
            State::Push(list) | State::AddToSet(_, list, _) => {
                out.value("", RawBsonRef::Array(list));
            }
            _ => out.value("", self.partial().as_raw_bson_ref()),
        }
    }

    pub(super) fn merge(&mut self, partial: RawBsonRef<'_>) -> Result<()> {
        let under = self.under.as_ref();
        match &mut self.state {
            State::Sum(sum) => {
                let parts = refs(partial)?;
                sum.merge(&parts).ok_or_else(malformed)?;
            }
            State::Avg(sum, count) => {
                let parts = refs(partial)?;
                let (more, parts) = parts.split_last().ok_or_else(malformed)?;
                sum.merge(parts).ok_or_else(malformed)?;
                *count += more.as_i64().ok_or_else(malformed)? as u64;
            }
            State::Extreme(wanted, best) => {
                for value in refs(partial)? {
                    keep_extreme(*wanted, best, value, under);
                }
            }
            State::First(slot) => {
                if slot.is_none() {
                    *slot = refs(partial)?.first().map(|v| (*v).into());
                }
            }
            State::Last(slot) => {
                if let Some(value) = refs(partial)?.first() {
                    *slot = Some((*value).into());
                }
            }
            State::Push(list) => {
                for value in raw::values(array(partial)?) {
                    list.push(value?);
                }
            }
            State::AddToSet(seen, list, bytes) => {
                for value in raw::values(array(partial)?) {
                    add_to_set(seen, list, bytes, value?, under)?;
                }
            }
            State::StdDev(spread, _) => {
                let [
                    RawBsonRef::Int64(count),
                    RawBsonRef::Double(mean),
                    RawBsonRef::Double(squares),
                ] = refs(partial)?[..]
                else {
                    return Err(malformed());
                };
                spread.merge(Spread { count: count as u64, mean, squares });
            }
            State::Count(count) => *count += partial.as_i64().ok_or_else(malformed)?,
            State::Own(own) => own.merge(partial, under)?,
            State::Merge(merger) => merger.merge(partial.as_document().ok_or_else(malformed)?)?,
            State::FirstN(n, list, bytes) => {
                for value in refs(partial)? {
                    if list.len() < *n {
                        *bytes += value_bytes(value);
                        list.push(value.into());
                    }
                }
            }
            State::LastN(n, list, bytes) => {
                for value in refs(partial)? {
                    push_last(*n, list, bytes, value);
                }
            }
            State::Ranked(ranked, _) | State::RankedByValue(ranked, _) => ranked.merge(partial)?,
        }
        Ok(())
    }

    /// The field's value. Fails only where a client's code does.
    pub fn finish(self) -> Result<RawBson> {
        Ok(match self.state {
            State::Own(own) => own.finish()?,
            State::Sum(sum) => sum.result().to_bson(),
            State::Avg(sum, count) => average(sum, count).map_or(RawBson::Null, Number::to_bson),
            State::Extreme(_, value) | State::First(value) | State::Last(value) => {
                value.unwrap_or(RawBson::Null)
            }
            State::Push(list) | State::AddToSet(_, list, _) => RawBson::Array(list),
            State::StdDev(spread, less) => {
                spread.deviation(less).map_or(RawBson::Null, RawBson::Double)
            }
            State::Count(count) => {
                i32::try_from(count).map_or(RawBson::Int64(count), RawBson::Int32)
            }
            State::Merge(merger) => RawBson::Document(merger.to_document()),
            State::FirstN(_, list, _) => RawBson::Array(list.into_iter().collect()),
            State::LastN(_, list, _) => RawBson::Array(list.into_iter().collect()),
            State::Ranked(ranked, true) | State::RankedByValue(ranked, _) => {
                RawBson::Array(ranked.into_values().collect())
            }
            State::Ranked(ranked, false) => ranked.into_values().next().unwrap_or(RawBson::Null),
        })
    }
}

fn array(value: RawBsonRef<'_>) -> Result<&RawArray> {
    value.as_array().ok_or_else(malformed)
}

pub(super) fn refs(value: RawBsonRef<'_>) -> Result<Vec<RawBsonRef<'_>>> {
    raw::values(array(value)?).collect()
}

fn keep_extreme(
    wanted: Ordering,
    best: &mut Option<RawBson>,
    value: RawBsonRef<'_>,
    under: Option<&Collation>,
) {
    let better = best.as_ref().is_none_or(|best| {
        bsonval::order::compare_under(value, best.as_raw_bson_ref(), under) == wanted
    });
    if better {
        *best = Some(value.into());
    }
}

fn add_to_set(
    seen: &mut KeySet<Vec<u8>>,
    list: &mut RawArrayBuf,
    bytes: &mut usize,
    value: RawBsonRef<'_>,
    under: Option<&Collation>,
) -> Result<()> {
    let key = key_of(value, Direction::Ascending, under)?;
    let size = key.len() + 48;
    if seen.insert(key) {
        *bytes += size;
        list.push(value);
    }
    Ok(())
}

fn push_last(n: usize, list: &mut VecDeque<RawBson>, bytes: &mut usize, value: RawBsonRef<'_>) {
    if list.len() == n
        && let Some(dropped) = list.pop_front()
    {
        *bytes = bytes.saturating_sub(value_bytes(dropped.as_raw_bson_ref()));
    }
    *bytes += value_bytes(value);
    list.push_back(value.into());
}
