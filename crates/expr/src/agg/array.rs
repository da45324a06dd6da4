//! Operators on arrays.

pub(crate) mod sort_by;

use crate::agg::eval::{Scope, optional};
use crate::agg::function::{ANY, Function, Named, any_nullish, function, ordered};
use crate::agg::parse::Node;
use crate::agg::value::{List, References};
use crate::agg::{MAX_VALUE_BYTES, Value, check_size, value_to_string};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bsonval::number::Number;
use bsonval::order::compare_under;
use bsonval::raw;
use bsonval::types::name_of;
use errors::{Code, Error, Result};
use keystring::Collation;

pub(super) const TABLE: &[Function] = &[
    function("$arrayElemAt", 2, 2, array_elem_at),
    function("$concatArrays", 0, ANY, concat_arrays),
    function("$first", 1, 1, |args| end(args, "$first", 0)),
    ordered("$in", 2, 2, is_in),
    ordered("$indexOfArray", 2, 4, index_of_array),
    function("$isArray", 1, 1, |args| Ok(Value::bool(args[0].as_array().is_some()))),
    function("$last", 1, 1, |args| end(args, "$last", -1)),
    function("$range", 2, 3, range),
    function("$reverseArray", 1, 1, reverse_array),
    function("$size", 1, 1, size),
    function("$slice", 2, 3, slice),
];

const N_CODES: (i32, i32, i32) = (5787900, 5787901, 5787906);

pub(super) const NAMED: &[Named] = &[
    Named {
        name: "$zip",
        args: &["inputs", "useLongestLength", "defaults"],
        required: 1,
        codes: (34460, 34464, 34465),
        eval: zip,
    },
    n_form("$firstN", |args, scope| take_n(args, scope, Take::First)),
    n_form("$lastN", |args, scope| take_n(args, scope, Take::Last)),
    n_form("$maxN", |args, scope| take_n(args, scope, Take::Max)),
    n_form("$minN", |args, scope| take_n(args, scope, Take::Min)),
];

const fn n_form(
    name: &'static str,
    eval: for<'s, 'a> fn(&'a [Option<Node>], &Scope<'s, 'a>) -> Result<Value<'a>>,
) -> Named {
    Named { name, args: &["n", "input"], required: 2, codes: N_CODES, eval }
}

/// How many elements an array has; none where it is not one.
fn count(value: &Value<'_>) -> Result<usize> {
    value.as_array().map_or(Ok(0), length)
}

fn length(array: &RawArray) -> Result<usize> {
    raw::array_elements(array).try_fold(0, |count, element| element.map(|_| count + 1))
}

/// Reads a 32-bit whole number, with the operator's own texts for what is not one.
fn whole(
    value: &Value<'_>,
    not_number: impl Fn() -> Error,
    not_whole: impl Fn() -> Error,
) -> Result<i32> {
    let number = Number::from_bson(value.bson()).ok_or_else(not_number)?;
    number.to_exact_i32().ok_or_else(not_whole)
}

fn element_at<'a>(array: &Value<'a>, index: i64) -> Result<Value<'a>> {
    let index = if index < 0 { index + count(array)? as i64 } else { index };
    let Ok(index) = usize::try_from(index) else { return Ok(Value::Missing) };
    array.part(|value| match value {
        RawBsonRef::Array(array) => raw::values(array).nth(index).transpose(),
        _ => Ok(None),
    })
}

fn array_elem_at<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    if args[0].as_array().is_none() {
        return Err(Error::location(
            28689,
            format!(
                "$arrayElemAt's first argument must be an array, but is {}",
                args[0].type_name()
            ),
        ));
    }
    let index = whole(
        &args[1],
        || {
            Error::location(
                28690,
                format!(
                    "$arrayElemAt's second argument must be a numeric value, but is {}",
                    args[1].type_name()
                ),
            )
        },
        || {
            Error::location(
                28691,
                format!(
                    "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
                    value_to_string(args[1].bson())
                ),
            )
        },
    )?;
    element_at(&args[0], i64::from(index))
}

fn end<'a>(args: &[Value<'a>], name: &str, index: i64) -> Result<Value<'a>> {
    if args[0].is_nullish() {
        return Ok(Value::NULL);
    }
    if args[0].as_array().is_none() {
        return Err(Error::location(
            28689,
            format!("{name}'s argument must be an array, but is {}", args[0].type_name()),
        ));
    }
    element_at(&args[0], index)
}

fn concat_arrays<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match args.split_first_mut() {
        None => Ok(List::default().finish()),
        Some((first, more)) => append_arrays(std::mem::replace(first, Value::Missing), more),
    }
}

/// The first array with the elements of the others behind its own; its buffer is used again.
pub(super) fn append_arrays<'a>(first: Value<'a>, more: &[Value<'_>]) -> Result<Value<'a>> {
    let refuse = |value: &Value<'_>| {
        Error::location(
            28664,
            format!("$concatArrays only supports arrays, not {}", value.type_name()),
        )
    };
    if first.is_nullish() {
        return Ok(Value::NULL);
    }
    if first.as_array().is_none() {
        return Err(refuse(&first));
    }
    let Some(mut built) = List::growing(first)? else { return Ok(Value::NULL) };
    for value in more {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        let array = value.as_array().ok_or_else(|| refuse(value))?;
        check_size(built.bytes() + array.as_bytes().len())?;
        for element in raw::values(array) {
            built.push(element?)?;
        }
    }
    Ok(built.finish())
}

fn is_in<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
    let Some(array) = args[1].as_array() else {
        return Err(Error::location(
            40081,
            format!("$in requires an array as a second argument, found: {}", args[1].type_name()),
        ));
    };
    let wanted = args[0].bson();
    for element in raw::values(array) {
        if compare_under(element?, wanted, under).is_eq() {
            return Ok(Value::bool(true));
        }
    }
    Ok(Value::bool(false))
}

/// A start or end position of `$indexOf…`: a whole number, not negative.
pub(super) fn position(
    value: &Value<'_>,
    name: &str,
    what: &str,
    codes: (i32, i32),
) -> Result<usize> {
    let number =
        Number::from_bson(value.bson()).and_then(Number::to_exact_i32).ok_or_else(|| {
            Error::location(
                codes.0,
                format!(
                    "{name}requires an integral {what} index, found a value of type: {}, with \
                     value: {}",
                    value.type_name(),
                    value_to_string(value.bson())
                ),
            )
        })?;
    usize::try_from(number).map_err(|_| {
        Error::location(
            codes.1,
            format!("{name} requires a nonnegative {what} index, found: {number}"),
        )
    })
}

fn index_of_array<'a>(args: &mut [Value<'a>], under: Option<&Collation>) -> Result<Value<'a>> {
    if args[0].is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(array) = args[0].as_array() else {
        return Err(Error::location(
            40090,
            format!(
                "$indexOfArray requires an array as a first argument, found: {}",
                args[0].type_name()
            ),
        ));
    };
    let codes = (9711600, 9711601);
    let position = |value, what| position(value, "$indexOfArray", what, codes);
    let start = args.get(2).map_or(Ok(0), |v| position(v, "starting"))?;
    let end = args.get(3).map_or(Ok(usize::MAX), |v| position(v, "ending"))?;
    for (at, element) in raw::values(array).enumerate().take(end).skip(start) {
        if compare_under(element?, args[1].bson(), under).is_eq() {
            return Ok(Value::int(at as i32));
        }
    }
    Ok(Value::int(-1))
}

fn range<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let read = |at: usize, code: i32, what: &str| {
        let value: &Value<'_> = &args[at];
        whole(
            value,
            || {
                Error::location(
                    code,
                    format!(
                        "$range requires a numeric {what} value, found value of type: {}",
                        value.type_name()
                    ),
                )
            },
            || {
                Error::location(
                    code + 1,
                    format!(
                        "$range requires a {what} value that can be represented as a 32-bit \
                         integer, found value: {}",
                        value_to_string(value.bson())
                    ),
                )
            },
        )
    };
    let (from, to) = (read(0, 34443, "starting")?, read(1, 34445, "ending")?);
    let step = if args.len() == 3 { read(2, 34447, "step")? } else { 1 };
    if step == 0 {
        return Err(Error::location(34449, "$range requires a non-zero step value"));
    }
    let (mut at, to, step) = (i64::from(from), i64::from(to), i64::from(step));
    // Each element takes a type byte, an index of some digits and four bytes.
    let steps = ((to - at) / step).max(0) as usize;
    if steps.saturating_mul(8) > MAX_VALUE_BYTES {
        return Err(Error::new(
            Code::EXCEEDED_MEMORY_LIMIT,
            format!("$range would use too much memory ({} bytes)", steps.saturating_mul(8)),
        ));
    }
    let mut built = List::default();
    while (step > 0 && at < to) || (step < 0 && at > to) {
        built.push(RawBsonRef::Int32(at as i32))?;
        at += step;
    }
    Ok(built.finish())
}

fn reverse_array<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if args[0].is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(array) = args[0].as_array() else {
        return Err(Error::location(
            34435,
            format!(
                "The argument to $reverseArray must be an array, but was of type: {}",
                args[0].type_name()
            ),
        ));
    };
    let mut elements = References::default();
    elements.extend(array)?;
    List::of(elements.iter().rev().copied())
}

fn size<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match args[0].as_array() {
        Some(array) => Ok(Value::int(length(array)? as i32)),
        None => Err(Error::location(
            17124,
            format!(
                "The argument to $size must be an array, but was of type: {}",
                args[0].type_name()
            ),
        )),
    }
}

fn slice<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    let Some(array) = args[0].as_array() else {
        return Err(Error::location(
            28724,
            format!(
                "First argument to $slice must be an array, but is of type: {}",
                args[0].type_name()
            ),
        ));
    };
    let read = |at: usize, code: i32, which: &str| {
        let value: &Value<'_> = &args[at];
        whole(
            value,
            || {
                Error::location(
                    code,
                    format!(
                        "{which} argument to $slice must be numeric, but is of type: {}",
                        value.type_name()
                    ),
                )
            },
            || {
                Error::location(
                    code + 1,
                    format!(
                        "{which} argument to $slice can't be represented as a 32-bit integer: {}",
                        value_to_string(value.bson())
                    ),
                )
            },
        )
    };
    let len = count(&args[0])? as i64;
    let first = i64::from(read(1, 28725, "Second")?);
    let (start, take) = if args.len() == 3 {
        let take = i64::from(read(2, 28727, "Third")?);
        if take <= 0 {
            return Err(Error::location(
                28729,
                format!("Third argument to $slice must be positive: {take}"),
            ));
        }
        (if first < 0 { (len + first).max(0) } else { first }, take)
    } else if first < 0 {
        ((len + first).max(0), -first)
    } else {
        (0, first)
    };
    let mut built = List::default();
    for element in raw::values(array).skip(start as usize).take(take as usize) {
        built.push(element?)?;
    }
    Ok(built.finish())
}

/// What `$zip` wants written out: lists of expressions, and the flag.
pub(super) fn check_zip(arguments: &RawDocument) -> Result<()> {
    let list = |name: &str, code: i32| match arguments.get(name)? {
        None => Ok(None),
        Some(RawBsonRef::Array(list)) => Ok(Some(list.into_iter().count())),
        Some(other) => Err(Error::location(
            code,
            format!("{name} must be an array of expressions, found {}", name_of(other)),
        )),
    };
    let inputs = list("inputs", 34461)?;
    let defaults = list("defaults", 34462)?;
    let longest = match arguments.get("useLongestLength")? {
        None => false,
        Some(RawBsonRef::Boolean(longest)) => longest,
        Some(other) => {
            return Err(Error::location(
                34463,
                format!("useLongestLength must be a bool, found {}", name_of(other)),
            ));
        }
    };
    let inputs = match inputs {
        // What is missing or unknown is found behind here.
        None => return Ok(()),
        Some(0) => return Err(Error::location(34465, "$zip requires at least one input array")),
        Some(inputs) => inputs,
    };
    match defaults {
        Some(1..) if !longest => {
            Err(Error::location(34466, "cannot specify defaults unless useLongestLength is true"))
        }
        Some(given @ 1..) if given != inputs => {
            Err(Error::location(34467, "defaults and inputs must have the same length"))
        }
        _ => Ok(()),
    }
}

fn zip<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    // As many as the client wrote arrays, each perhaps large.
    let list = |at: usize| -> Result<Vec<Value<'a>>> {
        optional(args[at].as_ref(), scope)?.elements().into_iter().flatten().collect()
    };
    let inputs = list(0)?;
    let longest = optional(args[1].as_ref(), scope)?.is_truthy();
    let mut defaults = list(2)?;
    defaults.resize(inputs.len(), Value::NULL);
    let mut columns = Vec::with_capacity(inputs.len());
    for input in &inputs {
        if input.is_nullish() {
            return Ok(Value::NULL);
        }
        columns.push(input.references()?.ok_or_else(|| {
            Error::location(
                34468,
                format!("$zip found a non-array expression in input: {}", {
                    value_to_string(input.bson())
                }),
            )
        })?);
    }
    let lengths = columns.iter().map(|column| column.len());
    let rows = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let mut built = List::default();
    for row in 0..rows {
        let mut tuple = List::default();
        for (column, default) in columns.iter().zip(&defaults) {
            tuple.push(column.get(row).copied().unwrap_or(default.bson()))?;
        }
        built.push(tuple.finish().bson())?;
    }
    Ok(built.finish())
}

#[derive(Clone, Copy)]
enum Take {
    First,
    Last,
    Max,
    Min,
}

/// The `n` of the N forms: a whole number above zero.
pub(crate) fn read_n(value: &Value<'_>) -> Result<usize> {
    let number = Number::from_bson(value.bson()).ok_or_else(|| {
        Error::location(
            5787902,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                value_to_string(value.bson())
            ),
        )
    })?;
    let n = number.to_exact_i64().ok_or_else(|| {
        Error::location(
            5787903,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                value_to_string(value.bson())
            ),
        )
    })?;
    usize::try_from(n)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| Error::location(5787908, format!("'n' must be greater than 0, found {n}")))
}

fn take_n<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>, which: Take) -> Result<Value<'a>> {
    let n = read_n(&optional(args[0].as_ref(), scope)?)?;
    let input = optional(args[1].as_ref(), scope)?;
    let Some(mut elements) = input.references()? else {
        return Err(Error::location(5788200, "Input must be an array"));
    };
    let skipped = match which {
        Take::First => 0,
        Take::Last => elements.len().saturating_sub(n),
        Take::Max | Take::Min => {
            let under = scope.variables.collation();
            elements
                .retain(|value| Ok(!matches!(value, RawBsonRef::Null | RawBsonRef::Undefined)))?;
            elements.sort_by(|a, b| compare_under(a, b, under))?;
            if matches!(which, Take::Max) {
                elements.reverse();
            }
            0
        }
    };
    List::of(elements.iter().skip(skipped).take(n).copied())
}
