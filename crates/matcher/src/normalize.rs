//! The same filter in fewer, flatter parts.
//!
//! Always true: what matches before matches after. `$and` in `$and` and `$or` in `$or` are
//! flattened, a connective of one part is that part, an `$in` of one value is an equality, an `$or`
//! of equalities on one path is an `$in`, a double negation is none.

use super::{InSet, Leaf, Node, Predicate};
use bson::raw::RawBson;
use keystring::Collation;
use std::collections::BTreeMap;

pub(super) fn normalize(node: Node, under: Option<&Collation>) -> Node {
    match node {
        Node::And(parts) => and(parts, under),
        Node::Or(parts) => or(parts, under),
        Node::Nor(parts) => match or(parts, under) {
            Node::Or(parts) => Node::Nor(parts),
            part => not(part),
        },
        Node::Not(part) => not(normalize(*part, under)),
        Node::Leaf(leaf) => self::leaf(leaf, under),
        Node::SampleRate(rate) if rate >= 1.0 => Node::AlwaysTrue,
        Node::SampleRate(rate) if rate <= 0.0 => Node::AlwaysFalse,
        other => other,
    }
}

fn and(parts: Vec<Node>, under: Option<&Collation>) -> Node {
    let mut flat = Vec::with_capacity(parts.len());
    for part in parts {
        match normalize(part, under) {
            Node::And(inner) => flat.extend(inner),
            Node::AlwaysTrue => {}
            Node::AlwaysFalse => return Node::AlwaysFalse,
            other => flat.push(other),
        }
    }
    match flat.len() {
        0 => Node::AlwaysTrue,
        1 => flat.remove(0),
        _ => Node::And(flat),
    }
}

fn or(parts: Vec<Node>, under: Option<&Collation>) -> Node {
    let mut flat = Vec::with_capacity(parts.len());
    for part in parts {
        match normalize(part, under) {
            Node::Or(inner) => flat.extend(inner),
            Node::AlwaysFalse => {}
            Node::AlwaysTrue => return Node::AlwaysTrue,
            other => flat.push(other),
        }
    }
    let mut flat = equalities_to_in(flat, under);
    match flat.len() {
        0 => Node::AlwaysFalse,
        1 => flat.remove(0),
        _ => Node::Or(flat),
    }
}

/// Equalities on one path, scattered over an `$or`, become one `$in` at the place of the first.
fn equalities_to_in(parts: Vec<Node>, under: Option<&Collation>) -> Vec<Node> {
    let mut out: Vec<Node> = Vec::with_capacity(parts.len());
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for part in parts {
        let Node::Leaf(Leaf { path, predicate }) = part else {
            out.push(part);
            continue;
        };
        let (values, patterns) = match predicate {
            // A stored regular expression beside others would read as a pattern.
            Predicate::Eq(value) if !matches!(value, RawBson::RegularExpression(_)) => {
                (vec![value], Vec::new())
            }
            Predicate::In(set) => (set.values, set.patterns),
            other => {
                out.push(Node::Leaf(Leaf { path, predicate: other }));
                continue;
            }
        };
        let earlier = places.get(path.as_str()).and_then(|at| out.get_mut(*at));
        if let Some(Node::Leaf(Leaf { predicate: Predicate::In(set), .. })) = earlier {
            set.values.extend(values);
            set.patterns.extend(patterns);
        } else {
            places.insert(path.as_str().to_owned(), out.len());
            // Sorted below, once everything is gathered.
            let set = InSet { values, patterns, has_null: false };
            out.push(Node::Leaf(Leaf { path, predicate: Predicate::In(set) }));
        }
    }
    for node in &mut out {
        if let Node::Leaf(Leaf { predicate: Predicate::In(set), .. }) = node {
            let set = std::mem::take(set);
            let Node::Leaf(leaf) = node else { continue };
            leaf.predicate = in_set(InSet::gathered(set.values, set.patterns, under));
        }
    }
    out
}

fn in_set(set: InSet) -> Predicate {
    match (set.values.as_slice(), set.patterns.as_slice()) {
        ([value], []) => Predicate::Eq(value.clone()),
        ([], [pattern]) => Predicate::Regex(pattern.clone()),
        _ => Predicate::In(set),
    }
}

fn not(part: Node) -> Node {
    match part {
        Node::AlwaysTrue => Node::AlwaysFalse,
        Node::AlwaysFalse => Node::AlwaysTrue,
        Node::Not(inner) => *inner,
        Node::Or(parts) => Node::Nor(parts),
        Node::Nor(parts) => Node::Or(parts),
        other => Node::Not(Box::new(other)),
    }
}

fn leaf(leaf: Leaf, under: Option<&Collation>) -> Node {
    let predicate = match leaf.predicate {
        Predicate::In(set) if set.values.is_empty() && set.patterns.is_empty() => {
            return Node::AlwaysFalse;
        }
        Predicate::In(set) => in_set(set),
        Predicate::ElemMatchObject(inner) => {
            Predicate::ElemMatchObject(Box::new(normalize(*inner, under)))
        }
        Predicate::ElemMatchValue(inner) => {
            Predicate::ElemMatchValue(Box::new(normalize(*inner, under)))
        }
        Predicate::Type(set) if set.is_empty() => return Node::AlwaysFalse,
        // Everything is at least null-or-missing only when it is: keep the rest as it is.
        Predicate::Lt(RawBson::MinKey) | Predicate::Gt(RawBson::MaxKey) => {
            return Node::AlwaysFalse;
        }
        other => other,
    };
    Node::Leaf(Leaf { path: leaf.path, predicate })
}
