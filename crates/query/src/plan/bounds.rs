//! From predicates to intervals.
//!
//! Always true: every document that satisfies the predicate has a key in the intervals. Where the
//! result is `exact` the reverse holds too, so the predicate need not be asked again.
//!
//! Under collations: an index tells of strings, and of what may hold some, only where it orders
//! them as the query does; patterns are about the strings' bytes, whatever the collation.

use super::interval::{Interval, Intervals, kind_bounds};
use bson::raw::{RawBson, RawBsonRef, RawRegexRef};
use keystring::{Collation, is_collatable};
use matcher::{Comparison, InSet, Node, Pattern, Predicate};

/// How strings are ordered by a query, and by the index that bounds are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collations<'c> {
    pub(crate) query: Option<&'c Collation>,
    pub(crate) index: Option<&'c Collation>,
}

impl Collations<'_> {
    /// Whether the index tells of a value what the query asks.
    fn agree_on(self, value: RawBsonRef<'_>) -> bool {
        self.query == self.index || !is_collatable(value)
    }
}

/// The intervals of one predicate over the keys of its path.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) intervals: Intervals,
    pub(crate) exact: bool,
}

impl Bounds {
    fn exact(intervals: Intervals) -> Self {
        Self { intervals, exact: true }
    }

    fn loose(intervals: Intervals) -> Self {
        Self { intervals, exact: false }
    }

    /// How selective it looks: a value beats a list, a list beats a range.
    pub(crate) fn rank(&self) -> u32 {
        match &self.intervals {
            list if list.is_empty() || list.is_point() => 4,
            list if list.is_points() => 3,
            list if list
                .as_slice()
                .iter()
                .all(|i| i.low != RawBson::MinKey && i.high != RawBson::MaxKey) =>
            {
                2
            }
            list if !list.is_all() => 1,
            _ => 0,
        }
    }
}

/// The bounds of a predicate; `None` where it says nothing an index could use.
pub(crate) fn of_predicate(predicate: &Predicate, collations: Collations<'_>) -> Option<Bounds> {
    if let Some((comparison, value)) = predicate.as_comparison() {
        return of_comparison(comparison, value, collations);
    }
    match predicate {
        Predicate::In(set) => of_set(set, collations),
        Predicate::Regex(pattern) => Some(of_pattern(pattern, collations)),
        Predicate::Exists => Some(Bounds::loose(Intervals::all())),
        Predicate::ElemMatchValue(inner) => of_element(inner, collations),
        _ => None,
    }
}

/// The bounds of a negated predicate, for parts that never hold arrays.
pub(crate) fn of_negation(predicate: &Predicate, collations: Collations<'_>) -> Option<Bounds> {
    let bounds = of_predicate(predicate, collations)?;
    bounds.exact.then(|| Bounds::loose(bounds.intervals.complement()))
}

fn of_comparison(
    comparison: Comparison,
    value: &RawBson,
    collations: Collations<'_>,
) -> Option<Bounds> {
    let reference = value.as_raw_bson_ref();
    if !collations.agree_on(reference) {
        return None;
    }
    let point = |value| Intervals::union(vec![Interval::point(value)], collations.index);
    match (comparison, reference) {
        (Comparison::Eq, RawBsonRef::Array(_)) => Some(of_array(value, collations)),
        (_, RawBsonRef::Array(_)) => None,
        (Comparison::Eq | Comparison::Lte | Comparison::Gte, RawBsonRef::Null)
        | (Comparison::Eq, RawBsonRef::Undefined) => Some(null()),
        (Comparison::Eq, _) => Some(Bounds::exact(point(value.clone()))),
        (_, RawBsonRef::MinKey | RawBsonRef::MaxKey | RawBsonRef::Undefined) => None,
        (_, value) if is_nan(value) => {
            // Only NaN itself is as small or as large.
            let list = match comparison {
                Comparison::Lte | Comparison::Gte => point(RawBson::Double(f64::NAN)),
                _ => Intervals::none(),
            };
            Some(Bounds::loose(list))
        }
        _ => {
            let (start, end, end_inclusive) = kind_bounds(reference);
            let value = value.clone();
            let interval = match comparison {
                Comparison::Lt => Interval::new(start, true, value, false),
                Comparison::Lte => Interval::new(start, true, value, true),
                Comparison::Gt => Interval::new(value, false, end, end_inclusive),
                _ => Interval::new(value, true, end, end_inclusive),
            };
            let bounds = Intervals::union(vec![interval], collations.index);
            Some(match reference {
                RawBsonRef::Document(_)
                | RawBsonRef::RegularExpression(_)
                | RawBsonRef::DbPointer(_)
                | RawBsonRef::JavaScriptCode(_)
                | RawBsonRef::JavaScriptCodeWithScope(_)
                | RawBsonRef::Null => Bounds::loose(bounds),
                _ => Bounds::exact(bounds),
            })
        }
    }
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(v) => v.is_nan(),
        RawBsonRef::Decimal128(v) => v.to_string().contains("NaN"),
        _ => false,
    }
}

/// Null also means missing, which is stored as null, or as undefined for an empty array.
fn null() -> Bounds {
    let points = [RawBson::Undefined, RawBson::Null].map(Interval::point);
    Bounds::loose(Intervals::union(points.to_vec(), None))
}

/// An array is stored element by element: look for its first, or for it as an element.
fn of_array(value: &RawBson, collations: Collations<'_>) -> Bounds {
    let mut points = vec![Interval::point(value.clone())];
    if let RawBson::Array(array) = value {
        match array.into_iter().next() {
            Some(Ok(first)) => points.push(Interval::point(RawBson::from(first))),
            _ => points.push(Interval::point(RawBson::Undefined)),
        }
    }
    Bounds::loose(Intervals::union(points, collations.index))
}

fn of_set(set: &InSet, collations: Collations<'_>) -> Option<Bounds> {
    let mut parts = Vec::new();
    let mut exact = true;
    for value in set.values() {
        let bounds = of_comparison(Comparison::Eq, value, collations)?;
        exact &= bounds.exact;
        parts.extend_from_slice(bounds.intervals.as_slice());
    }
    for pattern in set.patterns() {
        let bounds = of_pattern(pattern, collations);
        exact &= bounds.exact;
        parts.extend_from_slice(bounds.intervals.as_slice());
    }
    Some(Bounds { intervals: Intervals::union(parts, collations.index), exact })
}

/// Strings by the pattern's literal prefix, and the pattern itself as a stored value. Sort keys
/// have no prefixes to look for.
fn of_pattern(pattern: &Pattern, collations: Collations<'_>) -> Bounds {
    let (start, end, inclusive) = kind_bounds(RawBsonRef::String(""));
    let prefix = pattern.literal_prefix().filter(|_| collations.index.is_none());
    let strings = if let Some((prefix, _)) = prefix {
        let end = successor(&prefix).map_or(end, RawBson::String);
        Interval::new(RawBson::String(prefix), true, end, false)
    } else {
        Interval::new(start, true, end, inclusive)
    };
    let mut parts = vec![strings];
    if let Some(stored) = stored_pattern(pattern) {
        parts.push(Interval::point(stored));
    } else {
        parts.push(Interval::new(RawBson::MinKey, true, RawBson::MaxKey, true));
    }
    Bounds::loose(Intervals::union(parts, collations.index))
}

fn stored_pattern(pattern: &Pattern) -> Option<RawBson> {
    let reference = RawBsonRef::RegularExpression(RawRegexRef {
        pattern: pattern.source().try_into().ok()?,
        options: pattern.options().try_into().ok()?,
    });
    Some(RawBson::from(reference))
}

/// The smallest text above every text that begins with `prefix`.
fn successor(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // Stepping over the surrogates keeps it a text; byte order is code point order.
        let next = (last as u32 + 1..=0x10FFFF).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// One element must satisfy all of it, so the bounds of its parts may be cut with each other.
fn of_element(inner: &Node, collations: Collations<'_>) -> Option<Bounds> {
    let parts = match inner {
        Node::And(parts) => &parts[..],
        other => std::slice::from_ref(other),
    };
    let mut found: Option<Intervals> = None;
    for part in parts {
        let Node::Leaf(leaf) = part else { continue };
        if !leaf.path.components().is_empty() {
            continue;
        }
        // An element that is an array itself stands whole in the key: its kind decides.
        if let Some(bounds) = of_predicate(&leaf.predicate, collations)
            && bounds.exact
        {
            found = Some(match found {
                Some(so_far) => so_far.intersect(&bounds.intervals),
                None => bounds.intervals,
            });
        }
    }
    found.map(Bounds::loose)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Document, doc};
    use matcher::{Filter, ParseContext};

    fn check(filter: &Document, expected: &[&str]) {
        let raw = bson::RawDocumentBuf::try_from(filter).unwrap();
        let filter = Filter::parse(&raw, &ParseContext::default()).unwrap();
        let Node::Leaf(leaf) = filter.root() else { panic!("{:?} is no leaf", filter.root()) };
        let bounds =
            of_predicate(&leaf.predicate, Collations { query: None, index: None }).unwrap();
        assert_eq!(bounds.intervals.shown(false), expected, "{raw:?}");
    }

    #[test]
    fn predicates_become_intervals() {
        check(&doc! { "a": 5 }, &["[5, 5]"]);
        check(&doc! { "a": { "$gt": 5 } }, &["(5, inf]"]);
        check(&doc! { "a": { "$lte": 5 } }, &["[-inf, 5]"]);
        check(&doc! { "a": { "$lt": "x" } }, &["[\"\", \"x\")"]);
        check(&doc! { "a": { "$gte": "x" } }, &["[\"x\", {})"]);
        check(&doc! { "a": null }, &["[undefined, undefined]", "[null, null]"]);
        check(&doc! { "a": { "$in": [3, 1, "x"] } }, &["[1, 1]", "[3, 3]", "[\"x\", \"x\"]"]);
        check(&doc! { "a": [1, 2] }, &["[1, 1]", "[[ 1, 2 ], [ 1, 2 ]]"]);
        check(&doc! { "a": { "$regex": "^ab" } }, &["[\"ab\", \"ac\")", "[/^ab/, /^ab/]"]);
        check(&doc! { "a": { "$regex": "ab" } }, &["[\"\", {})", "[/ab/, /ab/]"]);
        check(&doc! { "a": { "$elemMatch": { "$gt": 3, "$lt": 8 } } }, &["(3, 8)"]);
        check(&doc! { "a": { "$gt": true } }, &[]);
    }
}
