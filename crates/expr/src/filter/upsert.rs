//! What an upsert takes from its filter.

use super::{Leaf, Node, Predicate};
use crate::path::Path;
use bson::raw::RawBson;
use errors::{Code, Error, Result};

/// Every path the filter pins to one value, in order of appearance.
pub(super) fn equalities(node: &Node) -> Result<Vec<(Path, RawBson)>> {
    let mut found: Vec<(Path, RawBson)> = Vec::new();
    collect(node, &mut found)?;
    Ok(found)
}

fn collect(node: &Node, found: &mut Vec<(Path, RawBson)>) -> Result<()> {
    match node {
        Node::And(parts) => parts.iter().try_for_each(|part| collect(part, found)),
        Node::Or(parts) => match parts.as_slice() {
            [only] => collect(only, found),
            _ => Ok(()),
        },
        Node::Leaf(Leaf { path, predicate: Predicate::Eq(value) }) => {
            for (earlier, _) in &*found {
                if earlier == path {
                    return Err(not_single(format!(
                        "cannot infer query fields to set, path '{path}' is matched twice"
                    )));
                }
                if earlier.overlaps(path) {
                    return Err(not_single(format!(
                        "cannot infer query fields to set, both paths '{earlier}' and '{path}' are \
                         matched"
                    )));
                }
            }
            found.push((path.clone(), value.clone()));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn not_single(message: String) -> Error {
    Error::new(Code::NOT_SINGLE_VALUE_FIELD, message)
}
