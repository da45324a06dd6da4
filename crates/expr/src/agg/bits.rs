//! `$bitAnd $bitOr $bitXor $bitNot`: integers only.

use crate::agg::Value;
use crate::agg::function::{ANY, Function, function};
use bson::raw::RawBsonRef;
use errors::{Error, Result};

pub(super) const TABLE: &[Function] = &[
    function("$bitAnd", 0, ANY, |args| fold(args, "$bitAnd", -1, |a, b| a & b)),
    function("$bitNot", 1, 1, not),
    function("$bitOr", 0, ANY, |args| fold(args, "$bitOr", 0, |a, b| a | b)),
    function("$bitXor", 0, ANY, |args| fold(args, "$bitXor", 0, |a, b| a ^ b)),
];

fn fold<'a>(
    args: &[Value<'a>],
    name: &str,
    start: i64,
    combine: fn(i64, i64) -> i64,
) -> Result<Value<'a>> {
    let (mut result, mut long) = (start, false);
    for value in args {
        match value.bson() {
            RawBsonRef::Null | RawBsonRef::Undefined => return Ok(Value::NULL),
            RawBsonRef::Int32(n) => result = combine(result, i64::from(n)),
            RawBsonRef::Int64(n) => {
                long = true;
                result = combine(result, n);
            }
            _ => return refuse(name, value),
        }
    }
    Ok(if long { Value::Ref(RawBsonRef::Int64(result)) } else { Value::int(result as i32) })
}

fn not<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match args[0].bson() {
        RawBsonRef::Null | RawBsonRef::Undefined => Ok(Value::NULL),
        RawBsonRef::Int32(n) => Ok(Value::int(!n)),
        RawBsonRef::Int64(n) => Ok(Value::Ref(RawBsonRef::Int64(!n))),
        RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => Err(Error::type_mismatch(format!(
            "$bitNot only supports int and long, not: {}.",
            args[0].type_name()
        ))),
        _ => Err(Error::location(
            28765,
            format!("$bitNot only supports numeric types, not {}", args[0].type_name()),
        )),
    }
}

fn refuse<'a>(name: &str, value: &Value<'_>) -> Result<Value<'a>> {
    Err(Error::type_mismatch(format!(
        "{name} only supports int and long operands, not {}.",
        value.type_name()
    )))
}
