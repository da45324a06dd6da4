//! From predicates to intervals.
//!
//! Always true: every document that satisfies the predicate has a key in the intervals. Where the
//! result is `exact` the reverse holds too, so the predicate need not be asked again.

use super::interval::{Interval, Intervals, kind_bounds};
use bson::raw::{RawBson, RawBsonRef, RawRegexRef};
use expr::filter::{Comparison, InSet, Node, Pattern, Predicate};

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
pub(crate) fn of_predicate(predicate: &Predicate) -> Option<Bounds> {
    if let Some((comparison, value)) = predicate.as_comparison() {
        return of_comparison(comparison, value);
    }
    match predicate {
        Predicate::In(set) => of_set(set),
        Predicate::Regex(pattern) => Some(of_pattern(pattern)),
        Predicate::Exists => Some(Bounds::loose(Intervals::all())),
        Predicate::ElemMatchValue(inner) => of_element(inner),
        _ => None,
    }
}

/// The bounds of a negated predicate, for parts that never hold arrays.
pub(crate) fn of_negation(predicate: &Predicate) -> Option<Bounds> {
    let bounds = of_predicate(predicate)?;
    bounds.exact.then(|| Bounds::loose(bounds.intervals.complement()))
}

fn of_comparison(comparison: Comparison, value: &RawBson) -> Option<Bounds> {
    let reference = value.as_raw_bson_ref();
    match (comparison, reference) {
        (Comparison::Eq, RawBsonRef::Array(_)) => Some(of_array(value)),
        (_, RawBsonRef::Array(_)) => None,
        (Comparison::Eq | Comparison::Lte | Comparison::Gte, RawBsonRef::Null)
        | (Comparison::Eq, RawBsonRef::Undefined) => Some(null()),
        (Comparison::Eq, _) => Some(Bounds::exact(Intervals::point(value.clone()))),
        (_, RawBsonRef::MinKey | RawBsonRef::MaxKey | RawBsonRef::Undefined) => None,
        (_, value) if is_nan(value) => {
            // Only NaN itself is as small or as large.
            let list = match comparison {
                Comparison::Lte | Comparison::Gte => Intervals::point(RawBson::Double(f64::NAN)),
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
            let bounds = Intervals::one(interval);
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
    Bounds::loose(Intervals::union(vec![
        Interval::point(RawBson::Undefined),
        Interval::point(RawBson::Null),
    ]))
}

/// An array is stored element by element: look for its first, or for it as an element.
fn of_array(value: &RawBson) -> Bounds {
    let mut points = vec![Interval::point(value.clone())];
    if let RawBson::Array(array) = value {
        match array.into_iter().next() {
            Some(Ok(first)) => points.push(Interval::point(RawBson::from(first))),
            _ => points.push(Interval::point(RawBson::Undefined)),
        }
    }
    Bounds::loose(Intervals::union(points))
}

fn of_set(set: &InSet) -> Option<Bounds> {
    let mut parts = Vec::new();
    let mut exact = true;
    for value in set.values() {
        let bounds = of_comparison(Comparison::Eq, value)?;
        exact &= bounds.exact;
        parts.extend_from_slice(bounds.intervals.as_slice());
    }
    for pattern in set.patterns() {
        let bounds = of_pattern(pattern);
        exact &= bounds.exact;
        parts.extend_from_slice(bounds.intervals.as_slice());
    }
    Some(Bounds { intervals: Intervals::union(parts), exact })
}

/// Texts by the pattern's literal prefix, and the pattern itself as a stored value.
fn of_pattern(pattern: &Pattern) -> Bounds {
    let (start, end, inclusive) = kind_bounds(RawBsonRef::String(""));
    let texts = if let Some((prefix, _)) = pattern.literal_prefix() {
        let end = successor(&prefix).map_or(end, RawBson::String);
        Interval::new(RawBson::String(prefix), true, end, false)
    } else {
        Interval::new(start, true, end, inclusive)
    };
    let mut parts = vec![texts];
    if let Some(stored) = stored_pattern(pattern) {
        parts.push(Interval::point(stored));
    } else {
        parts.push(Interval::new(RawBson::MinKey, true, RawBson::MaxKey, true));
    }
    Bounds::loose(Intervals::union(parts))
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
fn of_element(inner: &Node) -> Option<Bounds> {
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
        if let Some(bounds) = of_predicate(&leaf.predicate)
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
    use expr::filter::{Filter, ParseContext};

    fn check(filter: &Document, expected: &[&str]) {
        let raw = bson::RawDocumentBuf::try_from(filter).unwrap();
        let filter = Filter::parse(&raw, &ParseContext::default()).unwrap();
        let Node::Leaf(leaf) = filter.root() else { panic!("{:?} is no leaf", filter.root()) };
        let bounds = of_predicate(&leaf.predicate).unwrap();
        assert_eq!(bounds.intervals.texts(false), expected, "{raw:?}");
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
