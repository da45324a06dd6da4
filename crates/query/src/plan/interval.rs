//! Intervals of BSON values: what an index part must lie in.
//!
//! Always true of an [`Intervals`] list: ascending in MongoDB's order, disjoint, none empty.

use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bson::{DateTime, Timestamp, oid::ObjectId};
use std::cmp::Ordering;

/// One interval; both ends are values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: RawBson,
    pub(crate) low_inclusive: bool,
    pub(crate) high: RawBson,
    pub(crate) high_inclusive: bool,
}

/// A union of intervals.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Intervals(Vec<Interval>);

fn order(a: &RawBson, b: &RawBson) -> Ordering {
    keystring::compare(a.as_raw_bson_ref(), b.as_raw_bson_ref())
}

impl Interval {
    pub(crate) fn new(
        low: RawBson,
        low_inclusive: bool,
        high: RawBson,
        high_inclusive: bool,
    ) -> Self {
        Self { low, low_inclusive, high, high_inclusive }
    }

    pub(crate) fn point(value: RawBson) -> Self {
        Self::new(value.clone(), true, value, true)
    }

    pub(crate) fn is_point(&self) -> bool {
        self.low_inclusive && self.high_inclusive && order(&self.low, &self.high).is_eq()
    }

    fn is_empty(&self) -> bool {
        match order(&self.low, &self.high) {
            Ordering::Less => false,
            Ordering::Equal => !(self.low_inclusive && self.high_inclusive),
            Ordering::Greater => true,
        }
    }

    fn intersect(&self, other: &Self) -> Self {
        let (low, low_inclusive) = match order(&self.low, &other.low) {
            Ordering::Less => (&other.low, other.low_inclusive),
            Ordering::Greater => (&self.low, self.low_inclusive),
            Ordering::Equal => (&self.low, self.low_inclusive && other.low_inclusive),
        };
        let (high, high_inclusive) = match order(&self.high, &other.high) {
            Ordering::Less => (&self.high, self.high_inclusive),
            Ordering::Greater => (&other.high, other.high_inclusive),
            Ordering::Equal => (&self.high, self.high_inclusive && other.high_inclusive),
        };
        Self::new(low.clone(), low_inclusive, high.clone(), high_inclusive)
    }

    /// Whether `self` ends before `other` begins, with a gap or an open seam between them.
    fn is_apart_before(&self, other: &Self) -> bool {
        match order(&self.high, &other.low) {
            Ordering::Less => true,
            Ordering::Equal => !self.high_inclusive && !other.low_inclusive,
            Ordering::Greater => false,
        }
    }
}

impl Intervals {
    /// Nothing.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Everything.
    pub(crate) fn all() -> Self {
        Self(vec![Interval::new(RawBson::MinKey, true, RawBson::MaxKey, true)])
    }

    /// One value.
    pub(crate) fn point(value: RawBson) -> Self {
        Self(vec![Interval::point(value)])
    }

    /// One interval, or nothing where it is empty.
    pub(crate) fn one(interval: Interval) -> Self {
        if interval.is_empty() { Self::none() } else { Self(vec![interval]) }
    }

    /// The union of any intervals.
    pub(crate) fn union(mut parts: Vec<Interval>) -> Self {
        parts.retain(|part| !part.is_empty());
        parts.sort_by(|a, b| order(&a.low, &b.low).then(b.low_inclusive.cmp(&a.low_inclusive)));
        let mut merged: Vec<Interval> = Vec::with_capacity(parts.len());
        for part in parts {
            match merged.last_mut() {
                Some(last) if !last.is_apart_before(&part) => match order(&part.high, &last.high) {
                    Ordering::Greater => {
                        last.high = part.high;
                        last.high_inclusive = part.high_inclusive;
                    }
                    Ordering::Equal => last.high_inclusive |= part.high_inclusive,
                    Ordering::Less => {}
                },
                _ => merged.push(part),
            }
        }
        Self(merged)
    }

    /// What lies in both.
    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b) = (0, 0);
        let mut out = Vec::new();
        while let (Some(left), Some(right)) = (self.0.get(a), other.0.get(b)) {
            let both = left.intersect(right);
            if !both.is_empty() {
                out.push(both);
            }
            let left_ends_first = order(&left.high, &right.high)
                .then(left.high_inclusive.cmp(&right.high_inclusive))
                .is_lt();
            if left_ends_first { a += 1 } else { b += 1 }
        }
        Self(out)
    }

    /// Everything else.
    pub(crate) fn complement(&self) -> Self {
        let mut out = Vec::new();
        let (mut low, mut low_inclusive) = (RawBson::MinKey, true);
        for interval in &self.0 {
            out.push(Interval::new(
                low,
                low_inclusive,
                interval.low.clone(),
                !interval.low_inclusive,
            ));
            (low, low_inclusive) = (interval.high.clone(), !interval.high_inclusive);
        }
        out.push(Interval::new(low, low_inclusive, RawBson::MaxKey, true));
        out.retain(|interval| !interval.is_empty());
        Self(out)
    }

    pub(crate) fn as_slice(&self) -> &[Interval] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is exactly one value.
    pub(crate) fn is_point(&self) -> bool {
        matches!(&self.0[..], [only] if only.is_point())
    }

    /// Whether it is a list of values.
    pub(crate) fn is_points(&self) -> bool {
        self.0.iter().all(Interval::is_point)
    }

    /// Whether it is everything.
    pub(crate) fn is_all(&self) -> bool {
        matches!(&self.0[..], [only] if only.low == RawBson::MinKey && only.high == RawBson::MaxKey
            && only.low_inclusive && only.high_inclusive)
    }

    /// As `explain` shows it: `["[1, 5)"]`, reversed for a scan that runs against the values.
    pub(crate) fn texts(&self, reversed: bool) -> Vec<String> {
        let text = |interval: &Interval| {
            let value = |v: &RawBson| catalog::text::value_text(v.as_raw_bson_ref());
            let (first, first_in, last, last_in) = if reversed {
                (&interval.high, interval.high_inclusive, &interval.low, interval.low_inclusive)
            } else {
                (&interval.low, interval.low_inclusive, &interval.high, interval.high_inclusive)
            };
            format!(
                "{}{}, {}{}",
                if first_in { '[' } else { '(' },
                value(first),
                value(last),
                if last_in { ']' } else { ')' }
            )
        };
        let mut texts: Vec<String> = self.0.iter().map(text).collect();
        if reversed {
            texts.reverse();
        }
        texts
    }
}

/// The smallest value of `value`'s kind, which is inclusive, and the end of its kind with whether
/// that end belongs to it.
pub(crate) fn kind_bounds(value: RawBsonRef<'_>) -> (RawBson, RawBson, bool) {
    let object = || RawBson::Document(RawDocumentBuf::new());
    let array = || RawBson::Array(bson::raw::RawArrayBuf::new());
    let binary = || {
        RawBson::Binary(bson::Binary {
            subtype: bson::spec::BinarySubtype::Generic,
            bytes: Vec::new(),
        })
    };
    match value {
        RawBsonRef::Double(_)
        | RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Decimal128(_) => {
            (RawBson::Double(f64::NEG_INFINITY), RawBson::Double(f64::INFINITY), true)
        }
        RawBsonRef::String(_) | RawBsonRef::Symbol(_) => {
            (RawBson::String(String::new()), object(), false)
        }
        RawBsonRef::Document(_) => (object(), array(), false),
        RawBsonRef::Array(_) => (array(), binary(), false),
        RawBsonRef::Binary(_) => {
            (binary(), RawBson::ObjectId(ObjectId::from_bytes([0; 12])), false)
        }
        RawBsonRef::ObjectId(_) => (
            RawBson::ObjectId(ObjectId::from_bytes([0; 12])),
            RawBson::ObjectId(ObjectId::from_bytes([0xFF; 12])),
            true,
        ),
        RawBsonRef::Boolean(_) => (RawBson::Boolean(false), RawBson::Boolean(true), true),
        RawBsonRef::DateTime(_) => (
            RawBson::DateTime(DateTime::from_millis(i64::MIN)),
            RawBson::DateTime(DateTime::from_millis(i64::MAX)),
            true,
        ),
        RawBsonRef::Timestamp(_) => (
            RawBson::Timestamp(Timestamp { time: 0, increment: 0 }),
            RawBson::Timestamp(Timestamp { time: u32::MAX, increment: u32::MAX }),
            true,
        ),
        RawBsonRef::Null => (RawBson::Null, RawBson::Null, true),
        RawBsonRef::Undefined => (RawBson::Undefined, RawBson::Undefined, true),
        RawBsonRef::MinKey => (RawBson::MinKey, RawBson::MinKey, true),
        RawBsonRef::MaxKey => (RawBson::MaxKey, RawBson::MaxKey, true),
        // Regular expressions, pointers and code: too rare for tight ends.
        _ => (RawBson::MinKey, RawBson::MaxKey, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: i32, low_inclusive: bool, high: i32, high_inclusive: bool) -> Interval {
        Interval::new(RawBson::Int32(low), low_inclusive, RawBson::Int32(high), high_inclusive)
    }

    #[test]
    fn unions_merge_what_touches() {
        let union = Intervals::union(vec![
            interval(5, true, 7, false),
            interval(1, true, 3, true),
            interval(3, false, 4, true),
            interval(7, false, 9, true),
            interval(2, true, 2, false),
        ]);
        assert_eq!(union.texts(false), ["[1, 4]", "[5, 7)", "(7, 9]"]);
        assert_eq!(union.texts(true), ["[9, 7)", "(7, 5]", "[4, 1]"]);
    }

    #[test]
    fn intersections_and_complements_cover_the_line() {
        let a = Intervals::union(vec![interval(1, true, 5, true), interval(8, true, 9, true)]);
        let b = Intervals::union(vec![interval(3, false, 8, true)]);
        assert_eq!(a.intersect(&b).texts(false), ["(3, 5]", "[8, 8]"]);
        assert!(a.intersect(&a.complement()).is_empty());
        assert_eq!(a.complement().texts(false), ["[MinKey, 1)", "(5, 8)", "(9, MaxKey]"]);
        assert!(Intervals::none().complement().is_all());
    }
}
