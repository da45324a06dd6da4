//! What the filter implies: that a partial or sparse index holds everything that matches.

use super::bounds::Collations;
use super::candidates::Predicates;
use super::predicates::PathPredicate;
use catalog::Index;
use keystring::Collation;
use matcher::{Leaf, Node, Predicate};

/// Whether everything that matches satisfies the index's partial filter, where it has one.
pub(super) fn holds_all(index: &Index, predicates: &Predicates<'_>) -> bool {
    index.spec().partial.as_ref().is_none_or(|partial| {
        let collation = index.spec().collation.as_ref();
        implied(partial.filter.root(), predicates.of(collation), collation)
    })
}

/// A sparse index holds every match only where some part's field must be there.
pub(super) fn excludes_missing(index: &Index, predicates: &Predicates<'_>) -> bool {
    predicates.of(index.spec().collation.as_ref()).iter().any(|predicate| {
        predicate.needs_field && index.spec().parts.iter().any(|part| part.path == predicate.path)
    })
}

/// Whether everything the predicates allow satisfies the partial index's filter.
pub(super) fn implied(
    node: &Node,
    predicates: &[PathPredicate],
    collation: Option<&Collation>,
) -> bool {
    let collations = Collations { query: collation, index: collation };
    match node {
        Node::AlwaysTrue => true,
        Node::And(parts) => parts.iter().all(|part| implied(part, predicates, collation)),
        Node::Or(parts) => parts.iter().any(|part| implied(part, predicates, collation)),
        Node::Leaf(Leaf { path, predicate: Predicate::Exists }) => {
            predicates.iter().any(|known| known.needs_field && known.path == path.as_str())
        }
        Node::Leaf(Leaf { path, predicate }) => {
            let Some(wanted) =
                super::bounds::of_predicate(predicate, collations).filter(|b| b.exact)
            else {
                return false;
            };
            let outside = wanted.intervals.complement();
            predicates.iter().any(|known| {
                known.path == path.as_str()
                    && !known.scalar_only
                    && known.bounds.intervals.intersect(&outside).is_empty()
            })
        }
        _ => false,
    }
}
