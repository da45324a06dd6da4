//! Matching said again in the plainest way, over owned values and straight from the client's
//! document: no parsed tree, no normal form, no raw bytes. What both agree on is what filters mean.

use super::*;
use keystring::{canonical_type, compare};

/// Whether a document matches a filter of the operators that [`small_filter`] makes.
fn matches(filter: &Document, document: &Document) -> bool {
    filter.iter().all(|(name, value)| {
        let any = |parts: &Bson| {
            let parts = parts.as_array().unwrap();
            parts.iter().any(|part| matches(part.as_document().unwrap(), document))
        };
        let all = |parts: &Bson| {
            let parts = parts.as_array().unwrap();
            parts.iter().all(|part| matches(part.as_document().unwrap(), document))
        };
        match name.as_str() {
            "$and" => all(value),
            "$or" => any(value),
            "$nor" => !any(value),
            path => {
                let operators = value.as_document().unwrap();
                operators.iter().all(|(operator, operand)| asks(document, path, operator, operand))
            }
        }
    })
}

fn asks(document: &Document, path: &str, operator: &str, operand: &Bson) -> bool {
    let names: Vec<&str> = path.split('.').collect();
    let mut ends = Vec::new();
    reach(Some(&Bson::Document(document.clone())), &names, &mut ends);
    let some = |test: &dyn Fn(Option<&Bson>) -> bool| {
        ends.iter().any(|(end, by_position)| {
            // An array stands for itself and for its elements, unless a position named it.
            test(end.as_ref())
                || !by_position
                    && matches!(end, Some(Bson::Array(list)) if list.iter().any(|e| test(Some(e))))
        })
    };
    match operator {
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" => some(&|end| compares(operator, end, operand)),
        "$ne" => !some(&|end| compares("$eq", end, operand)),
        "$in" => operand.as_array().unwrap().iter().any(|o| some(&|end| compares("$eq", end, o))),
        "$all" => operand.as_array().unwrap().iter().all(|o| some(&|end| compares("$eq", end, o))),
        "$exists" => ends.iter().any(|(end, _)| end.is_some()) == operand.as_bool().unwrap(),
        "$not" => {
            let inner = operand.as_document().unwrap();
            !inner.iter().all(|(operator, operand)| asks(document, path, operator, operand))
        }
        "$elemMatch" => {
            let inner = operand.as_document().unwrap();
            let fits = |element: &Bson| inner.iter().all(|(o, v)| compares(o, Some(element), v));
            let fitting = |end: &Option<Bson>| matches!(end, Some(Bson::Array(list)) if list.iter().any(fits));
            ends.iter().any(|(end, _)| fitting(end))
        }
        other => panic!("no operator {other}"),
    }
}

/// Every place that a path leads to, and whether its last step was a position; `None` where a field
/// is missing on the way.
fn reach(value: Option<&Bson>, path: &[&str], ends: &mut Vec<(Option<Bson>, bool)>) {
    let Some((name, rest)) = path.split_first() else {
        ends.push((value.cloned(), false));
        return;
    };
    match value {
        Some(Bson::Document(inner)) => reach(inner.get(name), rest, ends),
        Some(Bson::Array(list)) => {
            match name.parse::<usize>().ok().and_then(|at| list.get(at)) {
                Some(element) if rest.is_empty() => ends.push((Some(element.clone()), true)),
                Some(element) => reach(Some(element), rest, ends),
                None => {}
            }
            for element in list.iter().filter(|element| element.as_document().is_some()) {
                reach(Some(element), path, ends);
            }
        }
        _ => ends.push((None, false)),
    }
}

fn compares(operator: &str, value: Option<&Bson>, operand: &Bson) -> bool {
    let raw = |value: &Bson| RawBson::try_from(value.clone()).unwrap();
    let (value, operand) = (raw(value.unwrap_or(&Bson::Null)), raw(operand));
    let (value, operand) = (value.as_raw_bson_ref(), operand.as_raw_bson_ref());
    if canonical_type(&value) != canonical_type(&operand) {
        return false;
    }
    let order = compare(value, operand);
    match operator {
        "$eq" => order.is_eq(),
        "$gt" => order.is_gt(),
        "$gte" => order.is_ge(),
        "$lt" => order.is_lt(),
        _ => order.is_le(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_filter_means_what_the_plain_walk_says(
        filter in small_filter(),
        document in small_document(),
    ) {
        let expected = matches(&filter, &document);
        let found = parse(&filter).unwrap().matches(&raw_doc(&document)).unwrap();
        prop_assert_eq!(found, expected, "{} of {}", filter, document);
    }
}
