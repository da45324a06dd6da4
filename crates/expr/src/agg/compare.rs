//! Comparison and `$not`. A missing value compares like undefined: below null.

use crate::agg::Value;
use crate::agg::function::{Function, function, ordered};
use errors::Result;
use keystring::Collation;
use std::cmp::Ordering;

pub(super) const TABLE: &[Function] = &[
    ordered("$cmp", 2, 2, |args, under| Ok(Value::int(compare(&args[0], &args[1], under) as i32))),
    ordered("$eq", 2, 2, |args, under| relation(args, under, Ordering::is_eq)),
    ordered("$gt", 2, 2, |args, under| relation(args, under, Ordering::is_gt)),
    ordered("$gte", 2, 2, |args, under| relation(args, under, Ordering::is_ge)),
    ordered("$lt", 2, 2, |args, under| relation(args, under, Ordering::is_lt)),
    ordered("$lte", 2, 2, |args, under| relation(args, under, Ordering::is_le)),
    ordered("$ne", 2, 2, |args, under| relation(args, under, Ordering::is_ne)),
    function("$not", 1, 1, |args| Ok(Value::bool(!args[0].is_truthy()))),
];

/// The canonical order of values.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>, under: Option<&Collation>) -> Ordering {
    bsonval::order::compare_under(a.bson(), b.bson(), under)
}

#[expect(clippy::unnecessary_wraps, reason = "rows of the table share a signature")]
fn relation<'a>(
    args: &[Value<'a>],
    under: Option<&Collation>,
    holds: fn(Ordering) -> bool,
) -> Result<Value<'a>> {
    Ok(Value::bool(holds(compare(&args[0], &args[1], under))))
}

/// Whether the operator is one a planner can turn into bounds.
pub(crate) fn is_relational(function: &Function) -> bool {
    matches!(function.name, "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte")
}
