//! The conjuncts of a filter as predicates on paths.

use crate::{Bounds, Collations, of_negation, of_predicate};
use matcher::{GeoTest, Leaf, Node, Predicate};
use std::sync::Arc;

/// How deep `$elemMatch` is looked into.
const MAX_DEPTH: usize = 8;

/// What one conjunct says about one path.
#[derive(Clone, Debug)]
pub struct PathPredicate {
    /// The path.
    pub path: String,
    /// What it says about the keys there.
    pub bounds: Bounds,
    /// The conjunct it comes from.
    pub conjunct: usize,
    /// Set inside an `$elemMatch`: predicates with the same number speak of the same element.
    pub element: Option<usize>,
    /// The paths of the `$elemMatch` it stands in, as a prefix.
    pub element_path: String,
    /// Holds only where the path has no array.
    pub scalar_only: bool,
    /// No document without the field satisfies it.
    pub needs_field: bool,
    /// What it asks of geometry.
    pub geo: Option<Arc<GeoTest>>,
}

/// The conjuncts of a filter.
pub fn conjuncts(root: &Node) -> &[Node] {
    match root {
        Node::And(parts) => parts,
        Node::AlwaysTrue => &[],
        other => std::slice::from_ref(other),
    }
}

/// What the conjuncts say about paths to an index of this collation.
pub fn path_predicates(conjuncts: &[Node], collations: Collations<'_>) -> Vec<PathPredicate> {
    let mut found = Vec::new();
    for (at, node) in conjuncts.iter().enumerate() {
        match node {
            Node::Leaf(leaf) => {
                let context =
                    LeafContext { prefix: "", conjunct: at, element: None, depth: 0, collations };
                of_leaf(leaf, context, &mut found);
            }
            Node::Not(inner) => {
                if let Node::Leaf(leaf) = &**inner
                    && let Some(bounds) = of_negation(&leaf.predicate, collations)
                {
                    found.push(PathPredicate {
                        path: leaf.path.as_str().to_owned(),
                        bounds,
                        conjunct: at,
                        element: None,
                        element_path: String::new(),
                        scalar_only: true,
                        needs_field: false,
                        geo: None,
                    });
                }
            }
            _ => {}
        }
    }
    found
}

/// Where a leaf stands.
#[derive(Clone, Copy)]
struct LeafContext<'p> {
    prefix: &'p str,
    conjunct: usize,
    element: Option<usize>,
    depth: usize,
    collations: Collations<'p>,
}

fn of_leaf(leaf: &Leaf, context: LeafContext<'_>, found: &mut Vec<PathPredicate>) {
    let LeafContext { prefix, conjunct, element, depth, collations } = context;
    if leaf.path.components().is_empty() || depth > MAX_DEPTH {
        return;
    }
    let path = match prefix {
        "" => leaf.path.as_str().to_owned(),
        prefix => format!("{prefix}.{}", leaf.path.as_str()),
    };
    if let Predicate::ElemMatchObject(inner) = &leaf.predicate {
        for part in conjuncts(inner) {
            if let Node::Leaf(inner) = part {
                let element = Some(conjunct);
                of_leaf(
                    inner,
                    LeafContext { prefix: &path, element, depth: depth + 1, ..context },
                    found,
                );
            }
        }
        return;
    }
    let bounds = of_predicate(&leaf.predicate, collations);
    let needs_field = needs_field(&leaf.predicate);
    let geo = match &leaf.predicate {
        Predicate::Geo(test) => Some(Arc::clone(test)),
        _ => None,
    };
    let bounds = match bounds {
        Some(bounds) => bounds,
        None if needs_field => {
            Bounds { intervals: crate::interval::Intervals::all(), exact: false }
        }
        None => return,
    };
    found.push(PathPredicate {
        path,
        bounds: Bounds { exact: bounds.exact && element.is_none(), ..bounds },
        conjunct,
        element,
        element_path: prefix.to_owned(),
        scalar_only: false,
        needs_field,
        geo,
    });
}

/// Whether only documents that have the field satisfy the predicate.
fn needs_field(predicate: &Predicate) -> bool {
    use bson::raw::RawBson;
    if let Some((_, value)) = predicate.as_comparison() {
        return !matches!(
            value,
            RawBson::Null | RawBson::Undefined | RawBson::MinKey | RawBson::MaxKey
        );
    }
    match predicate {
        Predicate::In(set) => {
            !set.has_null()
                && !set.values().iter().any(|v| matches!(v, RawBson::Undefined | RawBson::MinKey))
        }
        _ => true,
    }
}
