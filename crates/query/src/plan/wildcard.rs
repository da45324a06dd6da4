//! Wildcard indexes as the planner sees them: for each path that a filter bounds, an index on it.
//!
//! Always true: a path is taken only where its bounds hold no documents, no arrays and no missing
//! fields, because such an index does not hold these, see [`Wildcard`].

use super::interval::{Interval, Intervals, kind_bounds};
use super::predicates::PathPredicate;
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};
use bsonval::path::array_index;
use catalog::index::{IndexSpec, KeyPart, PartKind, Wildcard};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// What explain calls the place of the path in an entry.
pub(crate) const PATH: &str = "$_path";

/// The paths that the predicates bound and the index holds.
pub(super) fn paths<'p>(wildcard: &Wildcard, predicates: &'p [PathPredicate]) -> BTreeSet<&'p str> {
    predicates
        .iter()
        .filter(|predicate| {
            predicate.needs_field
                && wildcard.holds(&predicate.path)
                // A number may be a field's name or an element's place, which no path tells.
                && !predicate.path.split('.').any(|name| array_index(name).is_some())
                && predicate.bounds.intervals.intersect(&CONTAINERS).is_empty()
        })
        .map(|predicate| predicate.path.as_str())
        .collect()
}

/// Documents and arrays.
static CONTAINERS: LazyLock<Intervals> = LazyLock::new(|| {
    let (low, ..) = kind_bounds(RawBson::Document(RawDocumentBuf::new()).as_raw_bson_ref());
    let (_, high, inclusive) = kind_bounds(RawBson::Array(RawArrayBuf::new()).as_raw_bson_ref());
    Intervals::union(vec![Interval::new(low, true, high, inclusive)], None)
});

/// The parts of the index for one path: the wildcard is the path and then its value.
pub(super) fn parts(spec: &IndexSpec, path: &str) -> Arc<[KeyPart]> {
    let mut parts = Vec::with_capacity(spec.parts.len() + 1);
    for part in &spec.parts {
        if part.kind != PartKind::Wildcard {
            parts.push(part.clone());
            continue;
        }
        parts.push(KeyPart { path: PATH.to_owned(), descending: false, kind: PartKind::Wildcard });
        parts.push(KeyPart {
            path: path.to_owned(),
            descending: part.descending,
            kind: PartKind::Value,
        });
    }
    parts.into()
}

/// The bounds of the path's place.
pub(super) fn path_bounds(path: &str) -> Intervals {
    Intervals::union(vec![Interval::point(Wildcard::path_value(path))], None)
}
