//! Set operators: arrays taken as sets. Membership is by value order's equality, so 1 and 1.0 are
//! one element. Sorting keeps every operation at n log n.

use crate::agg::compare::compare;
use crate::agg::function::{ANY, Function, any_nullish, function, ordered};
use crate::agg::value::{List, References};
use crate::agg::{Value, check_size};
use bson::raw::RawBsonRef;
use bsonval::order::compare_under;
use bsonval::raw;
use bsonval::raw::size_of_ref;
use bsonval::types::is_true;
use errors::{Error, Result};
use keystring::Collation;
use limits::{Growth, Part};

pub(super) const TABLE: &[Function] = &[
    function("$allElementsTrue", 1, 1, all_elements_true),
    function("$anyElementTrue", 1, 1, any_element_true),
    ordered("$setDifference", 2, 2, difference),
    ordered("$setEquals", 2, ANY, equals),
    ordered("$setIntersection", 0, ANY, intersection),
    ordered("$setIsSubset", 2, 2, is_subset),
    ordered("$setUnion", 0, ANY, union),
];

type Under<'c> = Option<&'c Collation>;

/// Elements sorted, without duplicates.
fn sorted<'v>(mut elements: References<'v>, under: Under<'_>) -> Result<References<'v>> {
    elements.sort_by(|a, b| compare_under(a, b, under))?;
    let mut last = None;
    elements.retain(|value| {
        let repeats = last.is_some_and(|last| compare_under(last, value, under).is_eq());
        last = Some(value);
        Ok(!repeats)
    })?;
    Ok(elements)
}

fn contains(set: &[RawBsonRef<'_>], value: RawBsonRef<'_>, under: Under<'_>) -> bool {
    set.binary_search_by(|probe| compare_under(*probe, value, under)).is_ok()
}

fn elements<'v>(value: &'v Value<'_>, code: i32, text: &str) -> Result<References<'v>> {
    let refused = || Error::location(code, format!("{text}{}", value.type_name()));
    value.references()?.ok_or_else(refused)
}

/// Whether the elements are all true, or one of them is; `wanted` ends the search.
fn any_is<'a>(value: &Value<'_>, wanted: bool, code: i32, text: &str) -> Result<Value<'a>> {
    let Some(array) = value.as_array() else {
        return Err(Error::location(code, format!("{text}{}", value.type_name())));
    };
    for element in raw::values(array) {
        if is_true(element?) == wanted {
            return Ok(Value::bool(wanted));
        }
    }
    Ok(Value::bool(!wanted))
}

fn all_elements_true<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    any_is(&args[0], false, 17040, "$allElementsTrue's argument must be an array, but is ")
}

fn any_element_true<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    any_is(&args[0], true, 17041, "$anyElementTrue's argument must be an array, but is ")
}

#[expect(
    clippy::mutable_key_type,
    reason = "the order is the value's; its charge has no part in it"
)]
fn difference<'a>(args: &mut [Value<'a>], under: Under<'_>) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    let left = elements(
        &args[0],
        17048,
        "both operands of $setDifference must be arrays. First argument is of type: ",
    )?;
    let right = sorted(
        elements(
            &args[1],
            17049,
            "both operands of $setDifference must be arrays. Second argument is of type: ",
        )?,
        under,
    )?;
    // The left side keeps its order; what it has said once it does not say again.
    let mut seen = std::collections::BTreeSet::new();
    let mut memory = Growth::new(Part::Values);
    let mut kept = List::default();
    for value in left.iter().copied() {
        if !contains(&right, value, under) && seen.insert(Ordered(Value::Ref(value), under)) {
            memory.reach(seen.len() * MEMBER_BYTES)?;
            kept.push(value)?;
        }
    }
    Ok(kept.finish())
}

/// What a member of a growing set takes beside its own bytes.
const MEMBER_BYTES: usize = 2 * size_of::<Ordered<'_, '_>>();

/// A value under its canonical order.
pub(super) struct Ordered<'a, 'c>(Value<'a>, Under<'c>);

impl PartialEq for Ordered<'_, '_> {
    fn eq(&self, other: &Self) -> bool {
        compare(&self.0, &other.0, self.1).is_eq()
    }
}

impl Eq for Ordered<'_, '_> {}

impl PartialOrd for Ordered<'_, '_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered<'_, '_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        compare(&self.0, &other.0, self.1)
    }
}

fn equals<'a>(args: &mut [Value<'a>], under: Under<'_>) -> Result<Value<'a>> {
    let mut first: Option<References<'_>> = None;
    for (at, value) in args.iter().enumerate() {
        let text = format!(
            "All operands of $setEquals must be arrays. {}-th argument is of type: ",
            at + 1
        );
        let set = sorted(elements(value, 17044, &text)?, under)?;
        match &first {
            None => first = Some(set),
            Some(known) => {
                if known.len() != set.len() {
                    return Ok(Value::bool(false));
                }
                for (a, b) in known.iter().zip(set.iter()) {
                    limits::poll()?;
                    if compare_under(*a, *b, under).is_ne() {
                        return Ok(Value::bool(false));
                    }
                }
            }
        }
    }
    Ok(Value::bool(true))
}

fn intersection<'a>(args: &mut [Value<'a>], under: Under<'_>) -> Result<Value<'a>> {
    let mut common: Option<References<'_>> = None;
    for value in args.iter() {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        let set = sorted(
            elements(
                value,
                17047,
                "All operands of $setIntersection must be arrays. One argument is of type: ",
            )?,
            under,
        )?;
        common = Some(match common {
            None => set,
            Some(mut known) => {
                known.retain(|value| Ok(contains(&set, value, under)))?;
                known
            }
        });
    }
    List::of(common.unwrap_or_default().iter().copied())
}

fn is_subset<'a>(args: &mut [Value<'a>], under: Under<'_>) -> Result<Value<'a>> {
    let left = elements(
        &args[0],
        17046,
        "both operands of $setIsSubset must be arrays. First argument is of type: ",
    )?;
    let right = sorted(
        elements(
            &args[1],
            17042,
            "both operands of $setIsSubset must be arrays. Second argument is of type: ",
        )?,
        under,
    )?;
    for value in left.iter() {
        limits::poll()?;
        if !contains(&right, *value, under) {
            return Ok(Value::bool(false));
        }
    }
    Ok(Value::bool(true))
}

/// Of the members that are equal the first is kept, in the order of values.
fn union<'a>(args: &mut [Value<'a>], under: Under<'_>) -> Result<Value<'a>> {
    let mut all = References::default();
    for value in args.iter() {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        all.extend(value.as_array().ok_or_else(|| not_a_set(value))?)?;
    }
    List::of(sorted(all, under)?.iter().copied())
}

fn not_a_set(value: &Value<'_>) -> Error {
    Error::location(
        17043,
        format!(
            "All operands of $setUnion must be arrays. One argument is of type: {}",
            value.type_name()
        ),
    )
}

/// A growing set.
pub(super) struct Union<'a, 'c> {
    members: std::collections::BTreeSet<Ordered<'a, 'c>>,
    under: Under<'c>,
    bytes: usize,
    memory: Growth,
}

impl<'a, 'c> Union<'a, 'c> {
    pub(super) fn new(under: Under<'c>) -> Self {
        Self {
            members: std::collections::BTreeSet::new(),
            under,
            bytes: 0,
            memory: Growth::new(Part::Values),
        }
    }

    /// Adds the elements of an array; `false` where there is null instead.
    pub(super) fn add(&mut self, value: &Value<'a>) -> Result<bool> {
        if value.is_nullish() {
            return Ok(false);
        }
        for member in value.elements().ok_or_else(|| not_a_set(value))? {
            let member = member?;
            let bytes = size_of_ref(member.bson());
            if self.members.insert(Ordered(member, self.under)) {
                self.bytes += bytes;
                self.memory.reach(self.bytes + self.members.len() * MEMBER_BYTES)?;
                check_size(self.bytes)?;
            }
        }
        Ok(true)
    }

    pub(super) fn into_value(self) -> Result<Value<'a>> {
        List::of(self.members.iter().map(|member| member.0.bson()))
    }
}
