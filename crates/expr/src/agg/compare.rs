//! Comparison and `$not`. A missing value compares like undefined: below null.

use crate::agg::Value;
use crate::agg::function::{Function, function};
use errors::Result;
use std::cmp::Ordering;

pub(super) const TABLE: &[Function] = &[
    function("$cmp", 2, 2, |args| Ok(Value::int(compare(&args[0], &args[1]) as i32))),
    function("$eq", 2, 2, |args| relation(args, Ordering::is_eq)),
    function("$gt", 2, 2, |args| relation(args, Ordering::is_gt)),
    function("$gte", 2, 2, |args| relation(args, Ordering::is_ge)),
    function("$lt", 2, 2, |args| relation(args, Ordering::is_lt)),
    function("$lte", 2, 2, |args| relation(args, Ordering::is_le)),
    function("$ne", 2, 2, |args| relation(args, Ordering::is_ne)),
    function("$not", 1, 1, |args| Ok(Value::bool(!args[0].is_truthy()))),
];

/// The canonical order of values.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    keystring::compare(a.bson(), b.bson())
}

#[expect(clippy::unnecessary_wraps, reason = "rows of the table share a signature")]
fn relation<'a>(args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Result<Value<'a>> {
    Ok(Value::bool(holds(compare(&args[0], &args[1]))))
}

/// Whether the operator is one a planner can turn into bounds.
pub(crate) fn is_relational(function: &Function) -> bool {
    matches!(function.name, "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte")
}
