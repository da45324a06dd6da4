//! Operators on strings. "Bytes" forms count UTF-8 bytes, "CP" forms count code points.

pub(crate) mod regex;

use crate::agg::array::position;
use crate::agg::eval::{Scope, optional};
use crate::agg::function::{ANY, Function, Named, any_nullish, function};
use crate::agg::parse::Node;
use crate::agg::value::{List, Text};
use crate::agg::{Value, convert, value_to_string};
use bson::raw::RawBsonRef;
use bsonval::number::Number;
use errors::{Error, Result};
use std::borrow::Cow;

pub(super) const TABLE: &[Function] = &[
    function("$binarySize", 1, 1, binary_size),
    function("$concat", 0, ANY, concat),
    function("$indexOfBytes", 2, 4, index_of_bytes),
    function("$indexOfCP", 2, 4, index_of_cp),
    function("$split", 2, 2, split),
    function("$strLenBytes", 1, 1, |args| length(args, "$strLenBytes", 34473, str::len)),
    function("$strLenCP", 1, 1, |args| length(args, "$strLenCP", 34471, |s| s.chars().count())),
    function("$strcasecmp", 2, 2, strcasecmp),
    function("$substr", 3, 3, substr_bytes),
    function("$substrBytes", 3, 3, substr_bytes),
    function("$substrCP", 3, 3, substr_cp),
    function("$toLower", 1, 1, |args| mapped(&args[0], str::make_ascii_lowercase)),
    function("$toUpper", 1, 1, |args| mapped(&args[0], str::make_ascii_uppercase)),
];

const TRIM_CODES: (i32, i32, i32) = (50696, 50694, 50695);
const REPLACE_CODES: (i32, i32, i32) = (51751, 51750, 51749);

pub(super) const NAMED: &[Named] = &[
    trim_form("$ltrim", |args, scope| trim(args, scope, "$ltrim", true, false)),
    trim_form("$rtrim", |args, scope| trim(args, scope, "$rtrim", false, true)),
    trim_form("$trim", |args, scope| trim(args, scope, "$trim", true, true)),
    replace_form("$replaceOne", |args, scope| replace(args, scope, "$replaceOne", 1)),
    replace_form("$replaceAll", |args, scope| replace(args, scope, "$replaceAll", usize::MAX)),
];

type NamedEval = for<'s, 'a> fn(&'a [Option<Node>], &Scope<'s, 'a>) -> Result<Value<'a>>;

const fn trim_form(name: &'static str, eval: NamedEval) -> Named {
    Named { name, args: &["input", "chars"], required: 1, codes: TRIM_CODES, eval }
}

const fn replace_form(name: &'static str, eval: NamedEval) -> Named {
    let args = &["input", "find", "replacement"];
    Named { name, args, required: 3, codes: REPLACE_CODES, eval }
}

/// The text of a value for operators that coerce: null is empty, numbers and dates are printed.
fn text<'v>(value: &'v Value<'_>) -> Result<Cow<'v, str>> {
    match value.bson() {
        RawBsonRef::Null | RawBsonRef::Undefined => Ok(Cow::Borrowed("")),
        RawBsonRef::String(s) | RawBsonRef::Symbol(s) | RawBsonRef::JavaScriptCode(s) => {
            count_bytes(s)?;
            Ok(Cow::Borrowed(s))
        }
        RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Double(_)
        | RawBsonRef::Decimal128(_)
        | RawBsonRef::DateTime(_)
        | RawBsonRef::Timestamp(_) => Ok(convert::print_scalar(value.bson()).into()),
        _ => Err(Error::location(
            16007,
            format!("can't convert from BSON type {} to String", value.type_name()),
        )),
    }
}

/// Counts going over a text once as work.
fn count_bytes(text: &str) -> Result<()> {
    limits::poll_work(text.len() / limits::BYTES_PER_UNIT)
}

/// A text made of another one by changing each of its bytes.
fn mapped<'a>(value: &Value<'_>, change: fn(&mut str)) -> Result<Value<'a>> {
    let input = text(value)?;
    let mut built = Text::with_capacity(input.len())?;
    built.push(&input)?;
    change(built.as_mut_str());
    Ok(built.finish())
}

fn binary_size<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match args[0].bson() {
        RawBsonRef::Null | RawBsonRef::Undefined => Ok(Value::NULL),
        RawBsonRef::String(text) => Ok(Value::int(text.len() as i32)),
        RawBsonRef::Binary(binary) => Ok(Value::int(binary.bytes.len() as i32)),
        _ => Err(Error::location(
            51276,
            format!(
                "$binarySize requires a string or BinData argument, found: {}",
                args[0].type_name()
            ),
        )),
    }
}

fn concat<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match args.split_first_mut() {
        None => Ok(Value::string("")),
        Some((first, more)) => append_texts(std::mem::replace(first, Value::Missing), more),
    }
}

/// The first text with the others behind it; its buffer is used again.
pub(super) fn append_texts<'a>(first: Value<'a>, more: &[Value<'_>]) -> Result<Value<'a>> {
    let refuse = |value: &Value<'_>| {
        Error::location(16702, format!("$concat only supports strings, not {}", value.type_name()))
    };
    if first.is_nullish() {
        return Ok(Value::NULL);
    }
    if first.as_str().is_none() {
        return Err(refuse(&first));
    }
    let Some(mut built) = Text::growing(first)? else { return Ok(Value::NULL) };
    for value in more {
        if value.is_nullish() {
            return Ok(Value::NULL);
        }
        built.push(value.as_str().ok_or_else(|| refuse(value))?)?;
    }
    Ok(built.finish())
}

fn strcasecmp<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let (a, b) = (text(&args[0])?, text(&args[1])?);
    let [a, b] = [&a, &b].map(|text| text.bytes().map(|byte| byte.to_ascii_uppercase()));
    Ok(Value::int(a.cmp(b) as i32))
}

fn length<'a>(
    args: &[Value<'a>],
    name: &str,
    code: i32,
    measure: fn(&str) -> usize,
) -> Result<Value<'a>> {
    match args[0].as_str() {
        Some(s) => {
            count_bytes(s)?;
            Ok(Value::int(measure(s) as i32))
        }
        None => Err(Error::location(
            code,
            format!("{name} requires a string argument, found: {}", args[0].type_name()),
        )),
    }
}

/// Both strings of `$indexOf…`; `None` where the first is null.
fn haystack_and_needle<'v>(
    args: &'v [Value<'_>],
    name: &str,
    code: i32,
) -> Result<Option<(&'v str, &'v str)>> {
    if args[0].is_nullish() {
        return Ok(None);
    }
    let need = |at: usize, which: &str| {
        args[at].as_str().ok_or_else(|| {
            Error::location(
                code + at as i32,
                format!(
                    "{name} requires a string as the {which} argument, found: {}",
                    args[at].type_name()
                ),
            )
        })
    };
    let (hay, needle) = (need(0, "first")?, need(1, "second")?);
    count_bytes(hay)?;
    count_bytes(needle)?;
    Ok(Some((hay, needle)))
}

fn index_of_bytes<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Some((hay, needle)) = haystack_and_needle(args, "$indexOfBytes", 40091)? else {
        return Ok(Value::NULL);
    };
    let (start, end) = bounds(args, "$indexOfBytes", hay.len())?;
    if start > end {
        return Ok(Value::int(-1));
    }
    let found = find_bytes(&hay.as_bytes()[start..end], needle);
    Ok(Value::int(found.map_or(-1, |at| (at + start) as i32)))
}

/// The substring's place. Byte ranges may cut characters. What a cut leaves of a character can be
/// no part of a match, which is whole characters; so it is left out, and the library's two-way search
/// does the rest in one pass.
fn find_bytes(hay: &[u8], needle: &str) -> Option<usize> {
    let is_continuation = |byte: &&u8| **byte & 0xc0 == 0x80;
    let cut = if needle.is_empty() { 0 } else { hay.iter().take_while(is_continuation).count() };
    let whole = match std::str::from_utf8(&hay[cut..]) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&hay[cut..cut + error.valid_up_to()]).ok()?,
    };
    whole.find(needle).map(|at| cut + at)
}

fn bounds(args: &[Value<'_>], name: &str, len: usize) -> Result<(usize, usize)> {
    let position = |value, what| position(value, name, what, (40096, 40097));
    let start = args.get(2).map_or(Ok(0), |v| position(v, "starting"))?;
    let end = args.get(3).map_or(Ok(len), |v| position(v, "ending"))?;
    Ok((start, end.min(len)))
}

fn index_of_cp<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Some((hay, needle)) = haystack_and_needle(args, "$indexOfCP", 40093)? else {
        return Ok(Value::NULL);
    };
    let (start, end) = bounds(args, "$indexOfCP", hay.chars().count())?;
    if start > end {
        return Ok(Value::int(-1));
    }
    let (from, to) = (byte_of_cp(hay, start), byte_of_cp(hay, end));
    let found = hay[from..to].find(needle).map(|at| start + hay[from..from + at].chars().count());
    Ok(Value::int(found.map_or(-1, |at| at as i32)))
}

/// Where code point number `cp` begins; the end of the string beyond the last.
fn byte_of_cp(s: &str, cp: usize) -> usize {
    s.char_indices().nth(cp).map_or(s.len(), |(at, _)| at)
}

fn split<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    if any_nullish(args) {
        return Ok(Value::NULL);
    }
    let need = |at: usize, which: &str| {
        args[at].as_str().ok_or_else(|| {
            Error::location(
                40085 + at as i32,
                format!(
                    "$split requires an expression that evaluates to a string as a {which} \
                     argument, found: {}",
                    args[at].type_name()
                ),
            )
        })
    };
    let (input, separator) = (need(0, "first")?, need(1, "second")?);
    if separator.is_empty() {
        return Err(Error::location(40087, "$split requires a non-empty separator"));
    }
    count_bytes(input)?;
    List::of(input.split(separator).map(RawBsonRef::String))
}

fn substr_bytes<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let input = text(&args[0])?;
    let read = |at: usize, code: i32, what: &str| {
        let value: &Value<'_> = &args[at];
        Number::from_bson(value.bson()).map(|n| n.to_f64().trunc()).ok_or_else(|| {
            Error::location(
                code,
                format!(
                    "$substrBytes: {what} must be a numeric type (is BSON type {})",
                    value.type_name()
                ),
            )
        })
    };
    let (start, take) = (read(1, 16034, "starting index")?, read(2, 16035, "length")?);
    if start < 0.0 {
        return Err(Error::location(
            50752,
            format!("$substrBytes: starting index must be non-negative (got: {start})"),
        ));
    }
    let bytes = input.as_bytes();
    let start = start as usize;
    if start >= bytes.len() {
        return Ok(Value::string(""));
    }
    let end = if take < 0.0 { bytes.len() } else { start.saturating_add(take as usize) };
    let end = end.min(bytes.len());
    if !input.is_char_boundary(start) {
        return Err(Error::location(
            28656,
            "$substrBytes:  Invalid range, starting index is a UTF-8 continuation byte.",
        ));
    }
    if !input.is_char_boundary(end) {
        return Err(Error::location(
            28657,
            "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 character.",
        ));
    }
    Text::of(&input[start..end])
}

fn substr_cp<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let input = text(&args[0])?;
    let read = |at: usize, code: i32, what: &str| {
        let value: &Value<'_> = &args[at];
        let number = Number::from_bson(value.bson()).ok_or_else(|| {
            Error::location(
                code,
                format!(
                    "$substrCP: {what} must be a numeric type (is BSON type {})",
                    value.type_name()
                ),
            )
        })?;
        number.to_exact_i32().ok_or_else(|| {
            Error::location(
                code + 1,
                format!(
                    "$substrCP: {what} cannot be represented as a 32-bit integral value: {}",
                    value_to_string(value.bson())
                ),
            )
        })
    };
    let (start, take) = (read(1, 34450, "starting index")?, read(2, 34452, "length")?);
    let take = usize::try_from(take)
        .map_err(|_| Error::location(34454, "$substrCP: length must be a nonnegative integer."))?;
    let start = usize::try_from(start).map_err(|_| {
        Error::location(34455, "$substrCP: the starting index must be nonnegative integer.")
    })?;
    let from = byte_of_cp(&input, start);
    let to = from + byte_of_cp(&input[from..], take);
    Text::of(&input[from..to])
}

/// What `$trim` takes off when not told.
const WHITESPACE: &[char] = &[
    '\0', '\t', '\n', '\u{b}', '\u{c}', '\r', ' ', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}',
    '\u{2002}', '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}',
    '\u{200a}',
];

fn trim<'a>(
    args: &'a [Option<Node>],
    scope: &Scope<'_, 'a>,
    name: &str,
    left: bool,
    right: bool,
) -> Result<Value<'a>> {
    let input = optional(args[0].as_ref(), scope)?;
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    let refuse = |code, what, value: &Value<'_>| {
        Error::location(
            code,
            format!(
                "{name} requires {what} to be a string, got {} (of type {}) instead.",
                value_to_string(value.bson()),
                value.type_name()
            ),
        )
    };
    let s = input.as_str().ok_or_else(|| refuse(50699, "its input", &input))?;
    let mut chars: Vec<char> = match &args[1] {
        None => WHITESPACE.to_vec(),
        Some(node) => {
            let chars = node.evaluate(scope)?;
            if chars.is_nullish() {
                return Ok(Value::NULL);
            }
            chars.as_str().ok_or_else(|| refuse(50700, "'chars'", &chars))?.chars().collect()
        }
    };
    // Each character of the text may be looked for among all of these.
    chars.sort_unstable();
    chars.dedup();
    let is_trimmed = |c: char| chars.binary_search(&c).is_ok();
    count_bytes(s)?;
    let s = if left { s.trim_start_matches(is_trimmed) } else { s };
    let s = if right { s.trim_end_matches(is_trimmed) } else { s };
    Text::of(s)
}

fn replace<'a>(
    args: &'a [Option<Node>],
    scope: &Scope<'_, 'a>,
    name: &str,
    times: usize,
) -> Result<Value<'a>> {
    let mut values = Vec::with_capacity(3);
    for (arg, what, code) in
        [(&args[0], "input", 51746), (&args[1], "find", 51745), (&args[2], "replacement", 51744)]
    {
        let value = optional(arg.as_ref(), scope)?;
        if !value.is_nullish() && value.as_str().is_none() {
            return Err(Error::location(
                code,
                format!(
                    "{name} requires that '{what}' be a string, found: {}",
                    value_to_string(value.bson())
                ),
            ));
        }
        values.push(value);
    }
    let [Some(input), Some(find), Some(with)] = [0, 1, 2].map(|at: usize| values[at].as_str())
    else {
        return Ok(Value::NULL);
    };
    count_bytes(input)?;
    // An empty needle is found between all characters.
    let mut built = Text::with_capacity(0)?;
    let mut end = 0;
    for (at, found) in input.match_indices(find).take(times) {
        built.push(&input[end..at])?;
        built.push(with)?;
        end = at + found.len();
    }
    built.push(&input[end..])?;
    Ok(built.finish())
}
