//! Plans that go outward from a point, and what geospatial indexes may be asked.

use super::candidates::{PlannerInput, Predicates, part_bounds, rank, record_bounds, without};
use super::hint::Hint;
use super::implied::holds_all;
use super::{Access, AccessPath, IndexScan, NearScan, geo};
use bounds::conjuncts;
use bsonval::SortPattern;
use catalog::Index;
use std::sync::Arc;

/// Whether a hinted index may be asked: a geospatial one holds only what has geometry.
pub(crate) fn may_hint(input: &PlannerInput<'_>, index: &Index) -> bool {
    let predicates = Predicates::new(conjuncts(input.filter.root()), input.collation());
    !index.spec().is_geo() || geo::serves(index, predicates.of(index.spec().collation.as_ref()))
}

/// The documents by their distance, through the index that narrows the search most; `None` where no
/// index tells distances.
pub(crate) fn near_scan(input: &PlannerInput<'_>) -> Option<Access> {
    let (path, near) = input.filter.near()?;
    let conjuncts = conjuncts(input.filter.root());
    let predicates = Predicates::new(conjuncts, input.collation());
    let candidate = |index: &Arc<Index>| {
        let spec = index.spec();
        let part = geo::near_part(index, path, near)?;
        let hinted = match input.hint {
            None => !spec.hidden,
            Some(Hint::Index(wanted)) => Arc::ptr_eq(wanted, index),
            Some(_) => false,
        };
        if !hinted || index.created() > input.snapshot || !holds_all(index, &predicates) {
            return None;
        }
        let multikey = index.multikey_parts();
        let collation = spec.collation.as_ref();
        let known = predicates.of(collation);
        let (bounds, mut settled) =
            part_bounds(&spec.parts, multikey, known, collation, &spec.grid);
        // What comes before the geometry must narrow the search.
        if part > 0 && bounds[0].is_all() {
            return None;
        }
        settled.extend(conjuncts.iter().position(geo::is_near));
        let ranks = bounds.iter().map(rank).sum::<u32>();
        let scan = IndexScan {
            index: Some(Arc::clone(index)),
            expanded: None,
            bounds,
            backward: false,
            key_limits: (None, None),
            covered: false,
            planned_multikey: multikey,
            record_bounds: record_bounds(input, Some(index), &predicates),
        };
        let (path, near) = (path.clone(), Arc::clone(near));
        let target = NearScan { scan, part, path, near, output: None };
        let residual = without(input.filter, conjuncts, &settled);
        let sorted = input.sort.is_none_or(SortPattern::is_empty);
        Some((ranks, Access { path: AccessPath::Near(Box::new(target)), residual, sorted }))
    };
    let found = input.collection.indexes().iter().filter_map(candidate);
    // Of equals the first.
    found.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, scan)| scan)
}
