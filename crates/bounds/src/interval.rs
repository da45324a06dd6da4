//! Intervals of BSON values: what an index part must lie in.
//!
//! Always true of an [`Intervals`] list: ascending in MongoDB's order under its collation, disjoint,
//! none empty. Where two lists meet, at most one of them has a collation or both have the same.

use bson::raw::{RawBinaryRef, RawBson, RawBsonRef, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{DateTime, Timestamp, oid::ObjectId};
use keystring::Collation;
use std::cmp::Ordering;

/// One interval; both ends are values.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: RawBson,
    /// Whether the lower end belongs to it.
    pub low_inclusive: bool,
    /// The upper end.
    pub high: RawBson,
    /// Whether the upper end belongs to it.
    pub high_inclusive: bool,
}

/// A union of intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    list: Vec<Interval>,
    /// The collation of the string bounds in the list.
    collation: Option<Collation>,
}

fn order(a: &RawBson, b: &RawBson, collation: Option<&Collation>) -> Ordering {
    keystring::compare_under(a.as_raw_bson_ref(), b.as_raw_bson_ref(), collation)
}

impl Interval {
    /// From `low` to `high`.
    pub fn new(low: RawBson, low_inclusive: bool, high: RawBson, high_inclusive: bool) -> Self {
        Self { low, low_inclusive, high, high_inclusive }
    }

    /// One value.
    pub fn point(value: RawBson) -> Self {
        Self::new(value.clone(), true, value, true)
    }

    fn is_point(&self, collation: Option<&Collation>) -> bool {
        self.low_inclusive && self.high_inclusive && order(&self.low, &self.high, collation).is_eq()
    }

    /// Whether values on which collations differ may lie in it.
    fn holds_collatable(&self) -> bool {
        let kind = |value: &RawBson| keystring::canonical_type(&value.as_raw_bson_ref());
        let text = keystring::canonical_type(&RawBsonRef::String(""));
        // Strings, documents and arrays follow each other; binary data comes next.
        let binary = keystring::canonical_type(&RawBsonRef::Binary(RawBinaryRef {
            subtype: BinarySubtype::Generic,
            bytes: &[],
        }));
        kind(&self.low) < binary && kind(&self.high) >= text
    }

    fn is_empty(&self, collation: Option<&Collation>) -> bool {
        match order(&self.low, &self.high, collation) {
            Ordering::Less => false,
            Ordering::Equal => !(self.low_inclusive && self.high_inclusive),
            Ordering::Greater => true,
        }
    }

    fn intersect(&self, other: &Self, collation: Option<&Collation>) -> Self {
        let (low, low_inclusive) = match order(&self.low, &other.low, collation) {
            Ordering::Less => (&other.low, other.low_inclusive),
            Ordering::Greater => (&self.low, self.low_inclusive),
            Ordering::Equal => (&self.low, self.low_inclusive && other.low_inclusive),
        };
        let (high, high_inclusive) = match order(&self.high, &other.high, collation) {
            Ordering::Less => (&self.high, self.high_inclusive),
            Ordering::Greater => (&other.high, other.high_inclusive),
            Ordering::Equal => (&self.high, self.high_inclusive && other.high_inclusive),
        };
        Self::new(low.clone(), low_inclusive, high.clone(), high_inclusive)
    }

    /// Whether `self` ends before `other` begins, with a gap or an open seam between them.
    fn is_apart_before(&self, other: &Self, collation: Option<&Collation>) -> bool {
        match order(&self.high, &other.low, collation) {
            Ordering::Less => true,
            Ordering::Equal => !self.high_inclusive && !other.low_inclusive,
            Ordering::Greater => false,
        }
    }
}

impl Intervals {
    /// Nothing.
    pub fn none() -> Self {
        Self { list: Vec::new(), collation: None }
    }

    /// Everything.
    pub fn all() -> Self {
        Self {
            list: vec![Interval::new(RawBson::MinKey, true, RawBson::MaxKey, true)],
            collation: None,
        }
    }

    /// The union of any intervals, in a collation.
    pub fn union(mut parts: Vec<Interval>, collation: Option<&Collation>) -> Self {
        parts.retain(|part| !part.is_empty(collation));
        parts.sort_by(|a, b| {
            order(&a.low, &b.low, collation).then(b.low_inclusive.cmp(&a.low_inclusive))
        });
        let mut merged: Vec<Interval> = Vec::with_capacity(parts.len());
        for part in parts {
            match merged.last_mut() {
                Some(last) if !last.is_apart_before(&part, collation) => {
                    match order(&part.high, &last.high, collation) {
                        Ordering::Greater => {
                            last.high = part.high;
                            last.high_inclusive = part.high_inclusive;
                        }
                        Ordering::Equal => last.high_inclusive |= part.high_inclusive,
                        Ordering::Less => {}
                    }
                }
                _ => merged.push(part),
            }
        }
        Self { list: merged, collation: collation.cloned() }
    }

    /// What lies in both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let (mut a, mut b) = (0, 0);
        let mut out = Vec::new();
        let collation = self.collation.as_ref().or(other.collation.as_ref());
        while let (Some(left), Some(right)) = (self.list.get(a), other.list.get(b)) {
            let both = left.intersect(right, collation);
            if !both.is_empty(collation) {
                out.push(both);
            }
            let left_ends_first = order(&left.high, &right.high, collation)
                .then(left.high_inclusive.cmp(&right.high_inclusive))
                .is_lt();
            if left_ends_first { a += 1 } else { b += 1 }
        }
        Self { list: out, collation: collation.cloned() }
    }

    /// Everything else.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut out = Vec::new();
        let (mut low, mut low_inclusive) = (RawBson::MinKey, true);
        for interval in &self.list {
            out.push(Interval::new(
                low,
                low_inclusive,
                interval.low.clone(),
                !interval.low_inclusive,
            ));
            (low, low_inclusive) = (interval.high.clone(), !interval.high_inclusive);
        }
        out.push(Interval::new(low, low_inclusive, RawBson::MaxKey, true));
        out.retain(|interval| !interval.is_empty(self.collation.as_ref()));
        Self { list: out, collation: self.collation.clone() }
    }

    /// The intervals, ascending.
    pub fn as_slice(&self) -> &[Interval] {
        &self.list
    }

    /// One of the intervals alone.
    #[must_use]
    pub fn single(&self, at: usize) -> Self {
        Self { list: self.list[at..=at].to_vec(), collation: self.collation.clone() }
    }

    /// Whether nothing lies in it.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether it is exactly one value.
    pub fn is_point(&self) -> bool {
        matches!(&self.list[..], [only] if only.is_point(self.collation.as_ref()))
    }

    /// Whether it is a list of values.
    pub fn is_points(&self) -> bool {
        self.list.iter().all(|interval| interval.is_point(self.collation.as_ref()))
    }

    /// Whether values on which collations differ may lie in it.
    pub fn holds_collatable(&self) -> bool {
        self.list.iter().any(Interval::holds_collatable)
    }

    /// Whether it is everything.
    pub fn is_all(&self) -> bool {
        matches!(&self.list[..], [only] if only.low == RawBson::MinKey && only.high == RawBson::MaxKey
            && only.low_inclusive && only.high_inclusive)
    }

    /// As `explain` shows it: `["[1, 5)"]`, reversed for a scan that runs against the values.
    pub fn shown(&self, reversed: bool) -> Vec<String> {
        let text = |interval: &Interval| {
            let value = |v: &RawBson| bsonval::show::value(v.as_raw_bson_ref());
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
        let mut shown: Vec<String> = self.list.iter().map(text).collect();
        if reversed {
            shown.reverse();
        }
        shown
    }
}

/// The smallest value of `value`'s kind, which is inclusive, and the end of its kind with whether
/// that end belongs to it.
pub fn kind_bounds(value: RawBsonRef<'_>) -> (RawBson, RawBson, bool) {
    let object = || RawBson::Document(RawDocumentBuf::new());
    let array = || RawBson::Array(bson::raw::RawArrayBuf::new());
    let binary =
        || RawBson::Binary(bson::Binary { subtype: BinarySubtype::Generic, bytes: Vec::new() });
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
        let union = Intervals::union(
            vec![
                interval(5, true, 7, false),
                interval(1, true, 3, true),
                interval(3, false, 4, true),
                interval(7, false, 9, true),
                interval(2, true, 2, false),
            ],
            None,
        );
        assert_eq!(union.shown(false), ["[1, 4]", "[5, 7)", "(7, 9]"]);
        assert_eq!(union.shown(true), ["[9, 7)", "(7, 5]", "[4, 1]"]);
    }

    #[test]
    fn intersections_and_complements_cover_the_line() {
        let a =
            Intervals::union(vec![interval(1, true, 5, true), interval(8, true, 9, true)], None);
        let b = Intervals::union(vec![interval(3, false, 8, true)], None);
        assert_eq!(a.intersect(&b).shown(false), ["(3, 5]", "[8, 8]"]);
        assert!(a.intersect(&a.complement()).is_empty());
        assert_eq!(a.complement().shown(false), ["[MinKey, 1)", "(5, 8)", "(9, MaxKey]"]);
        assert!(Intervals::none().complement().is_all());
    }
}
