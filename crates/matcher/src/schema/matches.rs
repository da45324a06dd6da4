//! Whether a value obeys a schema.

use super::{Check, Dependency, Rule, Schema, unordered_key};
use crate::matches::compares;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bsonval::decimal::Decimal;
use bsonval::number::Number;
use bsonval::raw;
use bsonval::types::TypeSet;
use errors::Result;
use std::collections::BTreeSet;

pub(super) fn schema(schema: &Schema, value: RawBsonRef<'_>) -> Result<bool> {
    limits::poll()?;
    if schema.types.as_ref().is_some_and(|types| !types.set.contains(value)) {
        return Ok(false);
    }
    for rule in &schema.rules {
        if !holds(rule, value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a value obeys one keyword. What the keyword is not about obeys it.
pub(super) fn holds(rule: &Rule, value: RawBsonRef<'_>) -> Result<bool> {
    limits::poll()?;
    match &rule.check {
        Check::AllOf(parts) => Ok(count(parts, value, usize::MAX)? == parts.len()),
        Check::AnyOf(parts) => Ok(count(parts, value, 1)? > 0),
        Check::OneOf(parts) => Ok(count(parts, value, 2)? == 1),
        Check::Not(part) => Ok(!schema(part, value)?),
        Check::Enum(members) => Ok(members.contains(&unordered_key(value)?)),
        Check::Encrypted(types) => Ok(encrypted(value, types.as_ref()).is_ok()),
        _ => match value {
            RawBsonRef::String(text) => text_holds(&rule.check, text),
            RawBsonRef::Array(array) => array_holds(&rule.check, array),
            RawBsonRef::Document(document) => document_holds(&rule.check, document),
            value => Ok(number_holds(rule, value)),
        },
    }
}

/// How many schemas match, counted up to `enough`; stops at the first that does not where all
/// are wanted.
fn count(parts: &[Schema], value: RawBsonRef<'_>, enough: usize) -> Result<usize> {
    let mut found = 0;
    for part in parts {
        if schema(part, value)? {
            found += 1;
            if found >= enough {
                break;
            }
        } else if enough == usize::MAX {
            break;
        }
    }
    Ok(found)
}

/// `Err`: why the value is not encrypted as it must be.
pub(super) fn encrypted(
    value: RawBsonRef<'_>,
    types: Option<&TypeSet>,
) -> std::result::Result<(), &'static str> {
    let RawBsonRef::Binary(binary) = value else { return Err("value was not encrypted") };
    if binary.subtype != BinarySubtype::Encrypted {
        return Err("value was not encrypted");
    }
    let Some(types) = types else { return Ok(()) };
    // One byte of subtype, 16 of key id, then the type the value had.
    match binary.bytes.get(17) {
        Some(kind) if types.contains_code(*kind) => Ok(()),
        _ => Err("encrypted value has wrong type"),
    }
}

fn text_holds(check: &Check, text: &str) -> Result<bool> {
    Ok(match check {
        Check::Pattern(pattern) => pattern.is_match(text)?,
        Check::MaxLength(most) => code_points(text) <= *most,
        Check::MinLength(least) => code_points(text) >= *least,
        _ => true,
    })
}

fn code_points(text: &str) -> i64 {
    text.chars().count() as i64
}

fn number_holds(rule: &Rule, value: RawBsonRef<'_>) -> bool {
    let Some(number) = Number::from_bson(value) else { return true };
    match &rule.check {
        Check::MultipleOf(divisor) => is_multiple(number, *divisor),
        Check::Compare(comparison, _) => {
            compares(*comparison, rule.spec.as_raw_bson_ref(), Some(value), None)
        }
        _ => true,
    }
}

fn is_multiple(number: Number, divisor: Decimal) -> bool {
    let number = number.to_decimal();
    !number.is_nan() && !number.is_infinite() && number.rem(divisor).is_zero()
}

fn length(mut elements: raw::Elements<'_>) -> Result<i64> {
    elements.try_fold(0, |count, element| element.map(|_| count + 1))
}

fn array_holds(check: &Check, array: &RawArray) -> Result<bool> {
    Ok(match check {
        Check::MinItems(least) => length(raw::array_elements(array))? >= *least,
        Check::MaxItems(most) => length(raw::array_elements(array))? <= *most,
        Check::UniqueItems => duplicate(array)?.is_none(),
        Check::Items(part) => first_unlike(array, 0, part)?.is_none(),
        Check::MoreItems(from, part) => first_unlike(array, *from, part)?.is_none(),
        Check::NoMoreItems(from) => array.iter_elements().nth(*from).is_none(),
        Check::ItemList(parts) => {
            for (part, item) in parts.iter().zip(raw::values(array)) {
                if !schema(part, item?)? {
                    return Ok(false);
                }
            }
            true
        }
        _ => true,
    })
}

/// The first item that equals one before it.
pub(super) fn duplicate(array: &RawArray) -> Result<Option<RawBsonRef<'_>>> {
    let mut seen = BTreeSet::new();
    for item in raw::values(array) {
        let item = item?;
        if !seen.insert(unordered_key(item)?) {
            return Ok(Some(item));
        }
    }
    Ok(None)
}

/// Position and value of the first item from `from` on that does not match.
pub(super) fn first_unlike<'a>(
    array: &'a RawArray,
    from: usize,
    part: &Schema,
) -> Result<Option<(usize, RawBsonRef<'a>)>> {
    for (at, item) in raw::values(array).enumerate().skip(from) {
        let item = item?;
        if !schema(part, item)? {
            return Ok(Some((at, item)));
        }
    }
    Ok(None)
}

fn document_holds(check: &Check, document: &RawDocument) -> Result<bool> {
    Ok(match check {
        Check::Properties(properties) => {
            return every_field(document, |name, value| match properties.get(name) {
                Some(part) => schema(part, value),
                None => Ok(true),
            });
        }
        Check::PatternProperties(patterns) => {
            return every_field(document, |name, value| {
                for (pattern, part) in patterns {
                    if pattern.is_match(name)? && !schema(part, value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            });
        }
        Check::Additional(additional) => {
            return every_field(document, |name, value| {
                Ok(!additional.concerns(name)?
                    || match &additional.schema {
                        Some(part) => schema(part, value)?,
                        None => false,
                    })
            });
        }
        Check::Required(names) => missing(document, names)?.is_empty(),
        Check::MinProperties(least) => length(raw::elements(document))? >= *least,
        Check::MaxProperties(most) => length(raw::elements(document))? <= *most,
        Check::Dependencies(list) => {
            let present = names_of(document)?;
            for (name, dependency) in list {
                if present.contains(name.as_str()) && !depends(dependency, document, &present)? {
                    return Ok(false);
                }
            }
            true
        }
        _ => true,
    })
}

fn every_field<'a>(
    document: &'a RawDocument,
    mut test: impl FnMut(&'a str, RawBsonRef<'a>) -> Result<bool>,
) -> Result<bool> {
    for field in raw::elements(document) {
        let field = field?;
        if !test(field.name(), field.value()?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn names_of(document: &RawDocument) -> Result<BTreeSet<&str>> {
    raw::elements(document).map(|element| Ok(element?.name())).collect()
}

/// Which of the sorted names the document does not have.
pub(super) fn missing<'n>(document: &RawDocument, names: &'n [String]) -> Result<Vec<&'n str>> {
    let mut found = vec![false; names.len()];
    for element in raw::elements(document) {
        let element = element?;
        if let Ok(at) = names.binary_search_by(|name| name.as_str().cmp(element.name())) {
            found[at] = true;
        }
    }
    let absent = names.iter().zip(found).filter(|(_, found)| !found);
    Ok(absent.map(|(name, _)| name.as_str()).collect())
}

fn depends(
    dependency: &Dependency,
    document: &RawDocument,
    present: &BTreeSet<&str>,
) -> Result<bool> {
    match dependency {
        Dependency::Properties(names) => {
            Ok(names.iter().all(|name| present.contains(name.as_str())))
        }
        Dependency::Schema(part) => schema(part, RawBsonRef::Document(document)),
    }
}
