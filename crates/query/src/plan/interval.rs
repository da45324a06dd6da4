//! Whether a filter says nothing but where the fields of the primary key lie.

use super::candidates::{Predicates, part_bounds};
use super::id_parts;
use ::geo::Grid;
use bounds::{Intervals, conjuncts};
use catalog::Collection;
use matcher::{Filter, Node};

/// Where the fields of the primary key lie in exactly the documents that the filter matches; `None` where the
/// filter says anything else.
pub(crate) fn record_intervals(collection: &Collection, filter: &Filter) -> Option<Vec<Intervals>> {
    if matches!(filter.root(), Node::AlwaysFalse) {
        return None;
    }
    let conjuncts = conjuncts(filter.root());
    let predicates = Predicates::new(conjuncts, filter.variables().collation());
    let parts = collection.primary_index().map_or(id_parts(), |index| &index.spec().parts[..]);
    let collation = collection.collation();
    let predicates = predicates.of(collation);
    // No field of the primary key holds an array.
    let (bounds, settled) = part_bounds(parts, 0, predicates, collation, &Grid::default());
    (settled.len() == conjuncts.len()).then_some(bounds)
}
