//! Walking a document with a filter.

use super::{Comparison, Leaf, Node, Predicate};
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::order::compare_under;
use bsonval::path::LeafArrays;
use bsonval::{raw, types};
use errors::Result;
use expr::agg::Variables;
use keystring::{Collation, canonical_type};

/// Where a document matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchDetails {
    /// The position of the array element that satisfied the filter, if one did.
    pub array_index: Option<usize>,
}

/// Whether a document matches; `details` is filled in as far as positive parts find array elements.
pub(super) fn matches(
    node: &Node,
    document: &RawDocument,
    variables: &Variables,
    mut details: Option<&mut MatchDetails>,
) -> Result<bool> {
    limits::poll()?;
    Ok(match node {
        Node::AlwaysTrue => true,
        Node::AlwaysFalse => false,
        Node::And(parts) => {
            for part in parts {
                if !matches(part, document, variables, details.as_deref_mut())? {
                    return Ok(false);
                }
            }
            true
        }
        // Which of them matched is nobody's to know, so no element is the one that did.
        Node::Or(parts) => {
            for part in parts {
                if matches(part, document, variables, None)? {
                    return Ok(true);
                }
            }
            false
        }
        Node::Nor(parts) => {
            for part in parts {
                if matches(part, document, variables, None)? {
                    return Ok(false);
                }
            }
            true
        }
        Node::Not(part) => !matches(part, document, variables, None)?,
        Node::Leaf(leaf) => leaf_matches(leaf, document, variables, details)?,
        Node::Expr(expr) => expr.expression.matches(document, variables)?,
        Node::Schema(schema) => schema.schema.matches(document)?,
        Node::SampleRate(rate) => variables.random() < *rate,
        Node::Text(text) => text.matches(document)?,
    })
}

fn leaf_matches(
    leaf: &Leaf,
    document: &RawDocument,
    variables: &Variables,
    details: Option<&mut MatchDetails>,
) -> Result<bool> {
    if let Predicate::Near(near) = &leaf.predicate {
        let nearest = near.nearest(&leaf.path, document)?;
        return Ok(nearest.is_some_and(|(distance, _)| near.accepts(distance)));
    }
    let arrays =
        if leaf.predicate.expands_arrays() { LeafArrays::Expand } else { LeafArrays::Whole };
    let mut found = None;
    let matched = leaf.path.any(document, arrays, &mut |candidate, outer| {
        let mut inner = None;
        let holds = holds(&leaf.predicate, candidate, variables, Some(&mut inner))?;
        if holds {
            found = inner.or(outer);
        }
        Ok(holds)
    })?;
    if let (true, Some(details), Some(index)) = (matched, details, found) {
        details.array_index = Some(index);
    }
    Ok(matched)
}

/// Whether a bare value satisfies a tree whose leaves have the root path.
pub(super) fn value(node: &Node, candidate: RawBsonRef<'_>, variables: &Variables) -> Result<bool> {
    limits::poll()?;
    Ok(match node {
        Node::AlwaysTrue => true,
        Node::AlwaysFalse | Node::Expr(_) | Node::Schema(_) => false,
        Node::And(parts) => {
            for part in parts {
                if !value(part, candidate, variables)? {
                    return Ok(false);
                }
            }
            true
        }
        Node::Or(parts) => any_value(parts, candidate, variables)?,
        Node::Nor(parts) => !any_value(parts, candidate, variables)?,
        Node::Not(part) => !value(part, candidate, variables)?,
        Node::Leaf(leaf) if leaf.path.components().is_empty() => {
            holds(&leaf.predicate, Some(candidate), variables, None)?
        }
        Node::Leaf(_) => match candidate {
            RawBsonRef::Document(document) => matches(node, document, variables, None)?,
            _ => false,
        },
        Node::SampleRate(rate) => variables.random() < *rate,
        Node::Text(_) => return Err(super::text::no_index()),
    })
}

fn any_value(parts: &[Node], candidate: RawBsonRef<'_>, variables: &Variables) -> Result<bool> {
    for part in parts {
        if value(part, candidate, variables)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether one value (`None`: a missing field) satisfies a predicate. `inner` is told the element
/// an `$elemMatch` found.
fn holds(
    predicate: &Predicate,
    candidate: Option<RawBsonRef<'_>>,
    variables: &Variables,
    inner: Option<&mut Option<usize>>,
) -> Result<bool> {
    let under = variables.collation();
    Ok(match predicate {
        Predicate::Eq(operand) => {
            compares(Comparison::Eq, operand.as_raw_bson_ref(), candidate, under)
        }
        Predicate::Lt(operand) => {
            compares(Comparison::Lt, operand.as_raw_bson_ref(), candidate, under)
        }
        Predicate::Lte(operand) => {
            compares(Comparison::Lte, operand.as_raw_bson_ref(), candidate, under)
        }
        Predicate::Gt(operand) => {
            compares(Comparison::Gt, operand.as_raw_bson_ref(), candidate, under)
        }
        Predicate::Gte(operand) => {
            compares(Comparison::Gte, operand.as_raw_bson_ref(), candidate, under)
        }
        Predicate::In(set) => match candidate {
            None | Some(RawBsonRef::Undefined) => set.has_null(),
            Some(value) => {
                if set.contains(value, under) {
                    return Ok(true);
                }
                for pattern in set.patterns() {
                    if text_matches(pattern, value)? {
                        return Ok(true);
                    }
                }
                false
            }
        },
        Predicate::Exists => candidate.is_some(),
        Predicate::Type(set) => candidate.is_some_and(|value| set.contains(value)),
        Predicate::Regex(pattern) => match candidate {
            Some(value) => text_matches(pattern, value)?,
            None => false,
        },
        Predicate::Mod { divisor, remainder } => candidate
            .and_then(types::truncated_integer)
            .is_some_and(|value| value.wrapping_rem(*divisor) == *remainder),
        Predicate::Size(size) => match candidate {
            Some(RawBsonRef::Array(array)) => has_length(array, *size)?,
            _ => false,
        },
        Predicate::ElemMatchObject(filter) => {
            let Some(RawBsonRef::Array(array)) = candidate else { return Ok(false) };
            return first_element(array, inner, |element| match element {
                RawBsonRef::Document(document) => matches(filter, document, variables, None),
                // An array is a document whose fields are its positions.
                RawBsonRef::Array(array) => match RawDocument::from_bytes(array.as_bytes()) {
                    Ok(document) => matches(filter, document, variables, None),
                    Err(_) => Ok(false),
                },
                _ => Ok(false),
            });
        }
        Predicate::ElemMatchValue(filter) => {
            let Some(RawBsonRef::Array(array)) = candidate else { return Ok(false) };
            return first_element(array, inner, |element| value(filter, element, variables));
        }
        Predicate::Bits(test, mask) => candidate.is_some_and(|value| mask.test(*test, value)),
        Predicate::Geo(test) => candidate.map_or(Ok(false), |value| test.holds(value))?,
        // A condition on documents, which has no place on a bare value: the parser refuses it there.
        Predicate::Near(_) => false,
    })
}

fn first_element(
    array: &bson::raw::RawArray,
    found: Option<&mut Option<usize>>,
    mut test: impl FnMut(RawBsonRef<'_>) -> Result<bool>,
) -> Result<bool> {
    for (position, element) in raw::values(array).enumerate() {
        if test(element?)? {
            if let Some(found) = found {
                *found = Some(position);
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// Stops counting once the array is longer than asked.
fn has_length(array: &bson::raw::RawArray, size: i64) -> Result<bool> {
    let Ok(size) = usize::try_from(size) else { return Ok(false) };
    let mut counted = raw::array_elements(array).take(size.saturating_add(1));
    let counted = counted.try_fold(0, |count, element| element.map(|_| count + 1))?;
    Ok(counted == size)
}

fn text_matches(pattern: &super::Pattern, value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => pattern.is_match(text),
        RawBsonRef::RegularExpression(regex) => Ok(pattern.is_same(regex)),
        _ => Ok(false),
    }
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(v) => v.is_nan(),
        RawBsonRef::Decimal128(_) => keystring::equal(value, RawBsonRef::Double(f64::NAN)),
        _ => false,
    }
}

/// Compares a value with an operand of the same kind. Missing and undefined count as null.
pub(crate) fn compares(
    comparison: Comparison,
    operand: RawBsonRef<'_>,
    candidate: Option<RawBsonRef<'_>>,
    under: Option<&Collation>,
) -> bool {
    use Comparison as C;
    let value = match candidate {
        None | Some(RawBsonRef::Undefined) => RawBsonRef::Null,
        Some(value) => value,
    };
    if canonical_type(&value) != canonical_type(&operand) {
        // The two ends of the order compare with everything.
        return match operand {
            RawBsonRef::MaxKey => matches!(comparison, C::Lt | C::Lte),
            RawBsonRef::MinKey => matches!(comparison, C::Gt | C::Gte),
            _ => false,
        };
    }
    if is_nan(value) || is_nan(operand) {
        // NaN is only comparable with itself.
        return is_nan(value) && is_nan(operand) && !matches!(comparison, C::Lt | C::Gt);
    }
    let order = compare_under(value, operand, under);
    match comparison {
        C::Eq => order.is_eq(),
        C::Lt => order.is_lt(),
        C::Lte => order.is_le(),
        C::Gt => order.is_gt(),
        C::Gte => order.is_ge(),
    }
}
