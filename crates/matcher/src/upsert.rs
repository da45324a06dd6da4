//! What an upsert takes from its filter.

use super::{Leaf, Node, Predicate};
use bson::raw::RawBson;
use bsonval::path::Path;
use errors::{Code, Error, Result};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Every path the filter pins to one value, in order of appearance.
pub(super) fn equalities(node: &Node) -> Result<Vec<(Path, RawBson)>> {
    let mut found = Found::default();
    found.collect(node)?;
    Ok(found.values)
}

#[derive(Default)]
struct Found {
    values: Vec<(Path, RawBson)>,
    /// The paths again, each with a dot behind, so that what lies below one follows it directly.
    dotted: BTreeSet<String>,
}

impl Found {
    fn collect(&mut self, node: &Node) -> Result<()> {
        match node {
            Node::And(parts) => parts.iter().try_for_each(|part| self.collect(part)),
            Node::Or(parts) => match parts.as_slice() {
                [only] => self.collect(only),
                _ => Ok(()),
            },
            Node::Leaf(Leaf { path, predicate: Predicate::Eq(value) }) => {
                let dotted = format!("{path}.");
                if let Some(other) = self.overlapping(&dotted) {
                    return Err(overlap(path.as_str(), other.trim_end_matches('.')));
                }
                self.dotted.insert(dotted);
                self.values.push((path.clone(), value.clone()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An earlier path that is this one, leads into it, or lies below it.
    fn overlapping(&self, dotted: &str) -> Option<&str> {
        let below = self.dotted.range::<str, _>((Bound::Included(dotted), Bound::Unbounded)).next();
        if let Some(below) = below.filter(|other| other.starts_with(dotted)) {
            return Some(below);
        }
        let mut prefixes = dotted.match_indices('.').map(|(at, _)| &dotted[..=at]);
        prefixes.find_map(|prefix| self.dotted.get(prefix).map(String::as_str))
    }
}

fn overlap(path: &str, earlier: &str) -> Error {
    let message = if path == earlier {
        format!("cannot infer query fields to set, path '{path}' is matched twice")
    } else {
        format!("cannot infer query fields to set, both paths '{earlier}' and '{path}' are matched")
    };
    Error::new(Code::NOT_SINGLE_VALUE_FIELD, message)
}
