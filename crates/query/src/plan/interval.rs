//! Whether a filter means exactly the documents of one range of record keys.

use super::candidates::{Predicates, part_bounds};
use super::id_parts;
use crate::exec::one_range;
use ::geo::Grid;
use bounds::conjuncts;
use catalog::Collection;
use engine::KeyRange;
use errors::Result;
use keystring::Direction;
use matcher::{Filter, Node};

/// The range of record keys whose documents are exactly those that the filter matches; `None` where the filter
/// says anything else, or where they lie in several ranges.
pub(crate) fn record_interval(
    collection: &Collection,
    filter: &Filter,
) -> Result<Option<KeyRange>> {
    if matches!(filter.root(), Node::AlwaysFalse) {
        return Ok(None);
    }
    let conjuncts = conjuncts(filter.root());
    let predicates = Predicates::new(conjuncts, filter.variables().collation());
    let (parts, directions) = match collection.primary_index() {
        None => (id_parts(), &[Direction::Ascending][..]),
        Some(index) => (&index.spec().parts[..], index.keys().directions()),
    };
    let collation = collection.collation();
    let predicates = predicates.of(collation);
    // No field of the primary key holds an array.
    let (bounds, settled) = part_bounds(parts, 0, predicates, collation, &Grid::default());
    if settled.len() < conjuncts.len() {
        return Ok(None);
    }
    if bounds.iter().all(bounds::Intervals::is_all) {
        return Ok(Some(KeyRange::all()));
    }
    one_range(&bounds, directions, collation)
}
