//! Conversions between types, and values as text.

mod binary;

use crate::agg::Value;
use crate::agg::date::{self, parse_any};
use crate::agg::eval::{Scope, optional};
use crate::agg::function::{Function, Named, function};
use crate::agg::parse::Node;
use binary::Format;
use bson::oid::ObjectId;
use bson::raw::{RawArray, RawBinaryRef, RawBson, RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bson::{Bson, DateTime};
use bsonval::decimal::Decimal;
use bsonval::number::Number;
use bsonval::types::name_of;
use errors::{Code, Error, Result};
use std::fmt::Write as _;

pub(super) const TABLE: &[Function] = &[
    function("$isNumber", 1, 1, |args| {
        Ok(Value::bool(Number::from_bson(args[0].bson()).is_some()))
    }),
    function("$toBool", 1, 1, |args| shorthand(args, Target::Bool)),
    function("$toDate", 1, 1, |args| shorthand(args, Target::Date)),
    function("$toDecimal", 1, 1, |args| shorthand(args, Target::Decimal)),
    function("$toDouble", 1, 1, |args| shorthand(args, Target::Double)),
    function("$toHashedIndexKey", 1, 1, |args| {
        let value = args[0].get().unwrap_or(RawBsonRef::Null);
        limits::poll_work(bsonval::raw::size_of_ref(value) / limits::BYTES_PER_UNIT)?;
        Ok(RawBson::Int64(bsonval::hashed_key(value)?).into())
    }),
    function("$toInt", 1, 1, |args| shorthand(args, Target::Int)),
    function("$toLong", 1, 1, |args| shorthand(args, Target::Long)),
    function("$toObjectId", 1, 1, |args| shorthand(args, Target::ObjectId)),
    function("$toString", 1, 1, |args| shorthand(args, Target::String)),
    function("$toUUID", 1, 1, |args| shorthand(args, Target::Binary(4))),
    function("$tsIncrement", 1, 1, |args| timestamp_part(args, "$tsIncrement", 5687302)),
    function("$tsSecond", 1, 1, |args| timestamp_part(args, "$tsSecond", 5687301)),
    function("$type", 1, 1, |args| Ok(Value::string(args[0].type_name()))),
];

pub(super) const NAMED: &[Named] = &[Named {
    name: "$convert",
    args: &["input", "to", "onError", "onNull", "format", "byteOrder"],
    required: 2,
    codes: (9, 9, 9),
    eval: convert,
}];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Double,
    String,
    ObjectId,
    Bool,
    Date,
    Int,
    Long,
    Decimal,
    /// Of this subtype.
    Binary(u8),
    /// A type that exists and that nothing converts to.
    Other(&'static str),
}

/// What a conversion may ask for beside its target.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    format: Option<Format>,
    big_endian: bool,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::String => "string",
            Self::ObjectId => "objectId",
            Self::Bool => "bool",
            Self::Date => "date",
            Self::Int => "int",
            Self::Long => "long",
            Self::Decimal => "decimal",
            Self::Binary(_) => "binData",
            Self::Other(name) => name,
        }
    }

    /// Reads `to`: a type's name or number, or `{type, subtype}`. `None` where null; the subtype is
    /// only looked at where the type has one.
    fn read(to: &Value<'_>) -> Result<Option<Self>> {
        let Some(RawBsonRef::Document(whole)) = to.get() else {
            return Self::read_type(to.get(), None);
        };
        let kind = whole.get("type")?;
        if kind.is_none() {
            return Err(Error::failed_to_parse(
                "$convert's 'to' argument must be a string or number, but is object",
            ));
        }
        Self::read_type(kind, whole.get("subtype")?)
    }

    fn read_type(
        kind: Option<RawBsonRef<'_>>,
        subtype: Option<RawBsonRef<'_>>,
    ) -> Result<Option<Self>> {
        const TYPES: &[(i32, &str)] = &[
            (1, "double"),
            (2, "string"),
            (3, "object"),
            (4, "array"),
            (5, "binData"),
            (6, "undefined"),
            (7, "objectId"),
            (8, "bool"),
            (9, "date"),
            (10, "null"),
            (11, "regex"),
            (12, "dbPointer"),
            (13, "javascript"),
            (14, "symbol"),
            (15, "javascriptWithScope"),
            (16, "int"),
            (17, "timestamp"),
            (18, "long"),
            (19, "decimal"),
            (-1, "minKey"),
            (127, "maxKey"),
        ];
        let name = match kind {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => return Ok(None),
            Some(RawBsonRef::String(name)) => TYPES
                .iter()
                .find(|(_, known)| *known == name)
                .map(|(_, name)| *name)
                .ok_or_else(|| Error::bad_value(format!("Unknown type name: {name}")))?,
            Some(other) => {
                let number = Number::from_bson(other).ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "$convert's 'to' argument must be a string or number, but is {}",
                        name_of(other)
                    ))
                })?;
                let number = number.to_exact_i32().ok_or_else(|| {
                    Error::failed_to_parse("In $convert, numeric 'to' argument is not an integer")
                })?;
                TYPES.iter().find(|(code, _)| *code == number).map(|(_, name)| *name).ok_or_else(
                    || {
                        Error::failed_to_parse(format!(
                            "In $convert, numeric value for 'to' does not correspond to a BSON \
                             type: {number}"
                        ))
                    },
                )?
            }
        };
        let known = [
            Self::Double,
            Self::String,
            Self::ObjectId,
            Self::Bool,
            Self::Date,
            Self::Int,
            Self::Long,
            Self::Decimal,
        ];
        Ok(Some(match known.into_iter().find(|t| t.name() == name) {
            Some(target) => target,
            None if name == "binData" => Self::Binary(read_subtype(subtype)?),
            None => Self::Other(name),
        }))
    }
}

fn read_subtype(value: Option<RawBsonRef<'_>>) -> Result<u8> {
    let Some(value) = value else { return Ok(0) };
    let number = Number::from_bson(value).ok_or_else(|| {
        Error::location(
            4341108,
            format!(
                "For BinData, $convert's 'subtype' argument must be a number, but is {}",
                name_of(value)
            ),
        )
    })?;
    let code = number.to_exact_i32().ok_or_else(|| {
        Error::location(4341106, "In $convert, numeric 'subtype' argument is not an integer")
    })?;
    u8::try_from(code).ok().filter(|code| matches!(code, 0..=9 | 128..)).ok_or_else(|| {
        Error::location(
            4341107,
            format!(
                "In $convert, numeric value for 'subtype' does not correspond to a BinData type: \
                 {code}"
            ),
        )
    })
}

fn convert<'a>(args: &'a [Option<Node>], scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
    let input = optional(args[0].as_ref(), scope)?;
    let to = optional(args[1].as_ref(), scope)?;
    let format = optional(args[4].as_ref(), scope)?;
    let byte_order = optional(args[5].as_ref(), scope)?;
    let target = Target::read(&to)?;
    if input.is_nullish() {
        return args[3].as_ref().map_or(Ok(Value::NULL), |node| node.evaluate(scope));
    }
    let Some(target) = target else { return Ok(Value::NULL) };
    let options = Options {
        format: Format::read(&format)?,
        big_endian: binary::read_byte_order(&byte_order)?,
    };
    match (to_type(&input, target, options), &args[2]) {
        (Err(error), Some(node)) if error.code() == Code::CONVERSION_FAILURE => {
            node.evaluate(scope)
        }
        (result, _) => result,
    }
}

fn shorthand<'a>(args: &[Value<'a>], target: Target) -> Result<Value<'a>> {
    let format = match target {
        Target::String => Some(Format::Auto),
        Target::Binary(_) => Some(Format::Uuid),
        _ => None,
    };
    let options = Options { format, ..Options::default() };
    if args[0].is_nullish() { Ok(Value::NULL) } else { to_type(&args[0], target, options) }
}

fn failure(text: impl std::fmt::Display) -> Error {
    Error::new(Code::CONVERSION_FAILURE, text.to_string())
}

fn unsupported(value: &Value<'_>, target: &str) -> Error {
    failure(format!(
        "Unsupported conversion from {} to {target} in $convert with no onError value",
        value.type_name()
    ))
}

fn to_type<'a>(value: &Value<'a>, target: Target, options: Options) -> Result<Value<'a>> {
    if let (RawBsonRef::Binary(binary), false) = (value.bson(), target == Target::Bool) {
        return from_binary(value, binary, target, options).map(Value::from);
    }
    Ok(Value::from(match target {
        Target::Double => RawBson::Double(to_double(value)?),
        Target::String => RawBson::String(to_string(value)?),
        Target::ObjectId => RawBson::ObjectId(to_object_id(value)?),
        Target::Bool => RawBson::Boolean(to_bool(value)),
        Target::Date => RawBson::DateTime(to_date(value)?),
        Target::Int => RawBson::Int32(to_int(value)?),
        Target::Long => RawBson::Int64(to_long(value, Target::Long)?),
        Target::Decimal => RawBson::Decimal128(to_decimal(value)?.to_bson()),
        Target::Binary(subtype) => binary::from_value(value, subtype, options)?,
        Target::Other(name) => return Err(unsupported(value, name)),
    }))
}

fn from_binary(
    value: &Value<'_>,
    data: RawBinaryRef<'_>,
    target: Target,
    options: Options,
) -> Result<RawBson> {
    Ok(match target {
        Target::String => RawBson::String(binary::to_text(value, data, options)?),
        Target::Int => {
            let number = binary::to_integer(value, data, &[1, 2, 4], options)?;
            RawBson::Int32(i32::try_from(number).map_err(|_| overflow(value))?)
        }
        Target::Long => RawBson::Int64(binary::to_integer(value, data, &[1, 2, 4, 8], options)?),
        Target::Double => RawBson::Double(binary::to_double(value, data, options)?),
        Target::Binary(subtype) => binary::from_value(value, subtype, options)?,
        other => return Err(unsupported(value, other.name())),
    })
}

/// What is no number is true, whatever it is.
fn to_bool(value: &Value<'_>) -> bool {
    match value.bson() {
        RawBsonRef::Boolean(b) => b,
        other if Number::from_bson(other).is_some() => value.is_truthy(),
        _ => true,
    }
}

fn to_double(value: &Value<'_>) -> Result<f64> {
    match value.bson() {
        RawBsonRef::Boolean(b) => Ok(f64::from(u8::from(b))),
        RawBsonRef::DateTime(at) => Ok(at.timestamp_millis() as f64),
        RawBsonRef::String(text) => parse_double(text),
        RawBsonRef::Decimal128(n) => {
            let n = Decimal::from_bson(n);
            let double = n.to_f64();
            if double.is_infinite() && !n.is_infinite() { Err(overflow(value)) } else { Ok(double) }
        }
        other => Number::from_bson(other)
            .map(Number::to_f64)
            .ok_or_else(|| unsupported(value, Target::Double.name())),
    }
}

fn overflow(value: &Value<'_>) -> Error {
    failure(format!(
        "Conversion would overflow target type in $convert with no onError value: {}",
        value_to_string(value.bson())
    ))
}

fn to_int(value: &Value<'_>) -> Result<i32> {
    match value.bson() {
        RawBsonRef::DateTime(_) => Err(unsupported(value, Target::Int.name())),
        RawBsonRef::String(text) => parse_integer(text, i64::from(i32::MIN), i64::from(i32::MAX))
            .and_then(|n| i32::try_from(n).map_err(|_| parse_failure(text, "Overflow"))),
        _ => i32::try_from(to_long(value, Target::Int)?).map_err(|_| overflow(value)),
    }
}

fn to_long(value: &Value<'_>, target: Target) -> Result<i64> {
    let refuse = |what: &str| {
        failure(format!(
            "Attempt to convert {what} value to integer type in $convert with no onError value"
        ))
    };
    match value.bson() {
        RawBsonRef::Boolean(b) => Ok(i64::from(b)),
        RawBsonRef::DateTime(at) if target == Target::Long => Ok(at.timestamp_millis()),
        RawBsonRef::String(text) => parse_integer(text, i64::MIN, i64::MAX),
        RawBsonRef::Int32(n) => Ok(i64::from(n)),
        RawBsonRef::Int64(n) => Ok(n),
        RawBsonRef::Double(n) if n.is_nan() => Err(refuse("NaN")),
        RawBsonRef::Double(n) if n.is_infinite() => Err(refuse("infinity")),
        RawBsonRef::Double(n) => {
            bsonval::number::exact_i64(n.trunc()).ok_or_else(|| overflow(value))
        }
        RawBsonRef::Decimal128(n) => {
            let n = Decimal::from_bson(n);
            if n.is_nan() {
                return Err(refuse("NaN"));
            }
            if n.is_infinite() {
                return Err(refuse("infinity"));
            }
            n.to_i64().ok_or_else(|| overflow(value))
        }
        _ => Err(unsupported(value, target.name())),
    }
}

fn to_decimal(value: &Value<'_>) -> Result<Decimal> {
    match value.bson() {
        RawBsonRef::Boolean(b) => Ok(Decimal::from_i64(i64::from(b))),
        RawBsonRef::DateTime(at) => Ok(Decimal::from_i64(at.timestamp_millis())),
        RawBsonRef::String(text) => Decimal::parse(text)
            .ok_or_else(|| parse_failure(text, "Failed to parse string to decimal")),
        other => Number::from_bson(other)
            .map(Number::to_decimal)
            .ok_or_else(|| unsupported(value, Target::Decimal.name())),
    }
}

fn to_date(value: &Value<'_>) -> Result<DateTime> {
    let millis = match value.bson() {
        RawBsonRef::DateTime(at) => return Ok(at),
        RawBsonRef::ObjectId(id) => {
            return Ok(DateTime::from_millis(date::object_id_millis(id)));
        }
        RawBsonRef::Timestamp(at) => i64::from(at.time) * 1000,
        RawBsonRef::String(text) => parse_any(text, &date::zone::Zone::Utc)?,
        RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
            to_long(value, Target::Date)?
        }
        _ => return Err(unsupported(value, Target::Date.name())),
    };
    Ok(DateTime::from_millis(millis))
}

fn to_object_id(value: &Value<'_>) -> Result<ObjectId> {
    match value.bson() {
        RawBsonRef::ObjectId(id) => Ok(id),
        RawBsonRef::String(text) => ObjectId::parse_str(text).map_err(|_| {
            let reason = if text.len() == 24 {
                let bad = text.chars().find(|c| !c.is_ascii_hexdigit()).unwrap_or('?');
                format!("Invalid character found in hex string: {bad:?}")
            } else {
                format!(
                    "Invalid string length for parsing to OID, expected 24 but found {}",
                    text.len()
                )
            };
            failure(format!(
                "Failed to parse objectId '{text}' in $convert with no onError value: {reason}"
            ))
        }),
        _ => Err(unsupported(value, Target::ObjectId.name())),
    }
}

fn to_string(value: &Value<'_>) -> Result<String> {
    match value.bson() {
        RawBsonRef::Boolean(b) => Ok(b.to_string()),
        RawBsonRef::ObjectId(id) => Ok(id.to_hex()),
        RawBsonRef::String(text) => Ok(text.to_owned()),
        RawBsonRef::Double(n) => Ok(shortest(n)),
        RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Decimal128(_)
        | RawBsonRef::DateTime(_) => Ok(print_scalar(value.bson())),
        _ => Err(unsupported(value, Target::String.name())),
    }
}

fn parse_failure(text: &str, reason: &str) -> Error {
    failure(format!("Failed to parse number '{text}' in $convert with no onError value: {reason}"))
}

fn refuse_hex(text: &str) -> Result<()> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.starts_with("0x") || digits.starts_with("0X") {
        return Err(failure(format!(
            "Illegal hexadecimal input in $convert with no onError value: {text}"
        )));
    }
    Ok(())
}

fn parse_integer(text: &str, low: i64, high: i64) -> Result<i64> {
    refuse_hex(text)?;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text.is_empty() {
        return Err(parse_failure(text, "Empty string"));
    }
    if digits.bytes().next().is_none_or(|b| !b.is_ascii_digit()) {
        return Err(parse_failure(text, "Did not consume any digits"));
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(parse_failure(text, "Did not consume whole string."));
    }
    text.parse()
        .ok()
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| parse_failure(text, "Overflow"))
}

fn parse_double(text: &str) -> Result<f64> {
    refuse_hex(text)?;
    if text.is_empty() {
        return Err(parse_failure(text, "Empty string"));
    }
    if text.trim_start().len() != text.len() {
        return Err(parse_failure(text, "Leading whitespace"));
    }
    let parsed: f64 =
        text.parse().map_err(|_| parse_failure(text, "Did not consume whole string."))?;
    let named_infinity = text.to_ascii_lowercase().contains("inf");
    if parsed.is_infinite() && !named_infinity {
        return Err(parse_failure(text, "Out of range"));
    }
    Ok(parsed)
}

fn timestamp_part<'a>(args: &[Value<'a>], name: &str, code: i32) -> Result<Value<'a>> {
    match args[0].bson() {
        RawBsonRef::Null | RawBsonRef::Undefined => Ok(Value::NULL),
        RawBsonRef::Timestamp(at) => {
            let part = if name == "$tsSecond" { at.time } else { at.increment };
            Ok(Value::Ref(RawBsonRef::Int64(i64::from(part))))
        }
        _ => Err(Error::location(
            code,
            format!(" Argument to {name} must be a timestamp, but is {}", args[0].type_name()),
        )),
    }
}

/// Numbers, dates and timestamps as text.
pub(crate) fn print_scalar(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::Int32(n) => n.to_string(),
        RawBsonRef::Int64(n) => n.to_string(),
        RawBsonRef::Double(n) => double_to_string(n),
        RawBsonRef::Decimal128(n) => n.to_string(),
        RawBsonRef::DateTime(at) => date::format::iso(at.timestamp_millis()),
        RawBsonRef::Timestamp(at) => format!("Timestamp({}, {})", at.time, at.increment),
        other => value_to_string(other),
    }
}

/// A double with the fewest digits that read back as the same.
fn shortest(n: f64) -> String {
    if !n.is_finite() || n == 0.0 {
        return double_to_string(n);
    }
    let scientific = format!("{n:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{n}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// A double with up to 16 significant digits, as C's `%.16g` prints it.
pub fn double_to_string(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if n == 0.0 {
        return if n.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{n:.15e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| -> String {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..16).contains(&exponent) {
        let places = (15 - exponent).max(0) as usize;
        return trim(&format!("{n:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
}

/// A value as error messages show it.
pub fn value_to_string(value: RawBsonRef<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

/// A document as error messages show it.
pub(crate) fn display_document(document: &RawDocument) -> String {
    value_to_string(RawBsonRef::Document(document))
}

/// Messages stop growing here; nobody reads further.
const SHOWN_BYTES: usize = 10_000;

fn write_value(out: &mut String, value: RawBsonRef<'_>, depth: usize) {
    if depth > 100 || out.len() > SHOWN_BYTES {
        out.push_str("...");
        return;
    }
    match value {
        RawBsonRef::String(s) | RawBsonRef::Symbol(s) => push(out, format_args!("\"{s}\"")),
        RawBsonRef::Document(document) => write_document(out, document, depth),
        RawBsonRef::Array(array) => write_array(out, array, depth),
        RawBsonRef::Boolean(b) => push(out, format_args!("{b}")),
        RawBsonRef::Null => out.push_str("null"),
        RawBsonRef::Undefined => out.push_str("undefined"),
        RawBsonRef::MinKey => out.push_str("MinKey"),
        RawBsonRef::MaxKey => out.push_str("MaxKey"),
        RawBsonRef::ObjectId(id) => push(out, format_args!("ObjectId('{}')", id.to_hex())),
        RawBsonRef::RegularExpression(regex) => {
            push(out, format_args!("/{}/{}", regex.pattern.as_str(), regex.options.as_str()));
        }
        RawBsonRef::Binary(binary) => {
            push(out, format_args!("BinData({}, \"", u8::from(binary.subtype)));
            if binary.subtype == BinarySubtype::Generic || !binary.bytes.is_empty() {
                for byte in binary.bytes.iter().take(256) {
                    push(out, format_args!("{byte:02X}"));
                }
            }
            out.push_str("\")");
        }
        RawBsonRef::JavaScriptCode(code) => out.push_str(code),
        RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Double(_)
        | RawBsonRef::Decimal128(_)
        | RawBsonRef::DateTime(_)
        | RawBsonRef::Timestamp(_) => out.push_str(&print_scalar(value)),
        other => match Bson::try_from(other) {
            Ok(value) => push(out, format_args!("{value}")),
            Err(_) => out.push_str(name_of(other)),
        },
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes every write");
}

fn write_document(out: &mut String, document: &RawDocument, depth: usize) {
    out.push('{');
    for (at, element) in document.iter_elements().flatten().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        push(out, format_args!("{}: ", element.key().as_str()));
        if let Ok(value) = element.value() {
            write_value(out, value, depth + 1);
        }
    }
    out.push('}');
}

fn write_array(out: &mut String, array: &RawArray, depth: usize) {
    out.push('[');
    for (at, element) in array.into_iter().flatten().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write_value(out, element, depth + 1);
    }
    out.push(']');
}
