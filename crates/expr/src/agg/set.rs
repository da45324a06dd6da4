//! Set operators: arrays taken as sets. Membership is by value order's equality, so 1 and 1.0 are
//! one element. Sorting keeps every operation at n log n.

use crate::agg::compare::compare;
use crate::agg::function::{ANY, Function, any_nullish, function, ordered};
use crate::agg::value::size_of;
use crate::agg::{Value, check_size};
use bson::raw::RawArrayBuf;
use errors::{Error, Result};
use keystring::Collation;

pub(super) const TABLE: &[Function] = &[
    function("$allElementsTrue", 1, 1, all_elements_true),
    function("$anyElementTrue", 1, 1, any_element_true),
    ordered("$setDifference", 2, 2, difference),
    ordered("$setEquals", 2, ANY, equals),
    ordered("$setIntersection", 0, ANY, intersection),
    ordered("$setIsSubset", 2, 2, is_subset),
    ordered("$setUnion", 0, ANY, union),
];

/// Elements sorted, without duplicates.
fn sorted<'a>(mut elements: Vec<Value<'a>>, under: Option<&Collation>) -> Vec<Value<'a>> {
    elements.sort_by(|a, b| compare(a, b, under));
    elements.dedup_by(|a, b| compare(a, b, under).is_eq());
    elements
}

fn contains(set: &[Value<'_>], value: &Value<'_>, under: Option<&Collation>) -> bool {
    set.binary_search_by(|probe| compare(probe, value, under)).is_ok()
}

fn to_array<'a>(elements: &[Value<'_>]) -> Value<'a> {
    elements.iter().map(Value::bson).collect::<RawArrayBuf>().into()
}

fn elements<'a>(value: &Value<'a>, code: i32, text: &str) -> Result<Vec<Value<'a>>> {
    value.elements()?.ok_or_else(|| Error::location(code, format!("{text}{}", value.type_name())))
}

fn all_elements_true<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let items = elements(&args[0], 17040, "$allElementsTrue's argument must be an array, but is ")?;
    Ok(Value::bool(items.iter().all(Value::is_truthy)))
}

fn any_element_true<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let items = elements(&args[0], 17041, "$anyElementTrue's argument must be an array, but is ")?;
    Ok(Value::bool(items.iter().any(Value::is_truthy)))
}

fn difference<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
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
    );
    // The left side keeps its order; what it has said once it does not say again.
    let mut seen = std::collections::BTreeSet::new();
    let mut kept = Vec::new();
    for value in left {
        if !contains(&right, &value, under) && seen.insert(Ordered(value.clone(), under)) {
            kept.push(value);
        }
    }
    Ok(to_array(&kept))
}

/// A value under its canonical order.
pub(super) struct Ordered<'a, 'c>(Value<'a>, Option<&'c Collation>);

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

fn equals<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
    let mut first: Option<Vec<Value<'a>>> = None;
    for (at, value) in args.iter().enumerate() {
        let text = format!(
            "All operands of $setEquals must be arrays. {}-th argument is of type: ",
            at + 1
        );
        let set = sorted(elements(value, 17044, &text)?, under);
        match &first {
            None => first = Some(set),
            Some(known) => {
                let same = known.len() == set.len()
                    && known.iter().zip(&set).all(|(a, b)| compare(a, b, under).is_eq());
                if !same {
                    return Ok(Value::bool(false));
                }
            }
        }
    }
    Ok(Value::bool(true))
}

fn intersection<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
    let mut common: Option<Vec<Value<'a>>> = None;
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
        );
        common = Some(match common {
            None => set,
            Some(known) => known.into_iter().filter(|v| contains(&set, v, under)).collect(),
        });
    }
    Ok(to_array(&common.unwrap_or_default()))
}

fn is_subset<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
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
    );
    Ok(Value::bool(left.iter().all(|value| contains(&right, value, under))))
}

fn union<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
    let mut all = Union::new(under);
    for value in args.iter() {
        if !all.add(value)? {
            return Ok(Value::NULL);
        }
    }
    Ok(all.into_value())
}

/// A growing set.
pub(super) struct Union<'a, 'c> {
    members: std::collections::BTreeSet<Ordered<'a, 'c>>,
    under: Option<&'c Collation>,
    bytes: usize,
}

impl<'a, 'c> Union<'a, 'c> {
    pub(super) fn new(under: Option<&'c Collation>) -> Self {
        Self { members: std::collections::BTreeSet::new(), under, bytes: 0 }
    }

    /// Adds the elements of an array; `false` where there is null instead.
    pub(super) fn add(&mut self, value: &Value<'a>) -> Result<bool> {
        if value.is_nullish() {
            return Ok(false);
        }
        let members = elements(
            value,
            17043,
            "All operands of $setUnion must be arrays. One argument is of type: ",
        )?;
        for member in members {
            let bytes = size_of(member.bson());
            if self.members.insert(Ordered(member, self.under)) {
                self.bytes += bytes;
            }
        }
        check_size(self.bytes)?;
        Ok(true)
    }

    pub(super) fn into_value(self) -> Value<'a> {
        self.members.iter().map(|member| member.0.bson()).collect::<RawArrayBuf>().into()
    }
}
