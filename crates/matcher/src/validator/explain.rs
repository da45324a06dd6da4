//! Why a document fails a clause, or (inverted: under `$nor` and `$not`) why it should have.

use super::{Clause, Field, owned};
use crate::matches;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use bsonval::path::LeafArrays;
use bsonval::types;
use errors::Result;
use expr::agg::Variables;
use std::collections::BTreeSet;

/// More values than this are not listed.
const MAX_CONSIDERED: usize = 10;

/// Tells about one clause; the caller knows that it is to blame.
pub(super) fn clause(
    part: &Clause,
    document: &RawDocument,
    variables: &Variables,
    inverted: bool,
) -> Result<Document> {
    let list = |name: &str, parts: &[Clause], satisfied: bool| {
        list(name, parts, document, variables, satisfied)
    };
    match part {
        Clause::And(parts) => list("$and", parts, inverted),
        Clause::Or(parts) => list("$or", parts, inverted),
        Clause::Nor(parts) => list("$nor", parts, !inverted),
        Clause::Not(inner) => Ok(doc! {
            "operatorName": "$not",
            "details": clause(inner, document, variables, !inverted)?,
        }),
        Clause::Schema(node) => node.schema.explain(document, inverted),
        Clause::Expr { expression, source, .. } => {
            let result = expression.evaluate(document, variables)?;
            let mut out = doc! {
                "operatorName": "$expr",
                "specifiedAs": { "$expr": owned(source.as_raw_bson_ref()) },
                "reason": if inverted { "expression did match" } else { "expression did not match" },
            };
            if let Some(result) = result.get() {
                out.insert("expressionResult", owned(result));
            }
            Ok(out)
        }
        Clause::Other { name, source, .. } => Ok(doc! {
            "operatorName": *name,
            "specifiedAs": { *name: owned(source.as_raw_bson_ref()) },
            "reason": if inverted {
                "expression always evaluates to true"
            } else {
                "expression always evaluates to false"
            },
        }),
        Clause::Field(field) => self::field(field, document, inverted),
    }
}

/// The clauses that matched (`satisfied`) or did not.
fn list(
    name: &str,
    parts: &[Clause],
    document: &RawDocument,
    variables: &Variables,
    satisfied: bool,
) -> Result<Document> {
    let mut told = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if matched(part, document, variables)? == satisfied {
            let details = clause(part, document, variables, satisfied)?;
            told.push(doc! { "index": at as i32, "details": details });
        }
    }
    let title = if satisfied { "clausesSatisfied" } else { "clausesNotSatisfied" };
    Ok(doc! { "operatorName": name, title: told })
}

fn matched(part: &Clause, document: &RawDocument, variables: &Variables) -> Result<bool> {
    let all = |parts: &[Clause], wanted: bool| -> Result<bool> {
        for part in parts {
            if matched(part, document, variables)? != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(match part {
        Clause::And(parts) => all(parts, true)?,
        Clause::Or(parts) => !all(parts, false)?,
        Clause::Nor(parts) => all(parts, false)?,
        Clause::Not(inner) => !matched(inner, document, variables)?,
        Clause::Schema(node) => node.schema.matches(document)?,
        Clause::Expr { node, .. } | Clause::Other { node, .. } => {
            matches::matches(node, document, variables, None)?
        }
        Clause::Field(field) => matches::matches(&field.node, document, variables, None)?,
    })
}

fn field(field: &Field, document: &RawDocument, inverted: bool) -> Result<Document> {
    let mut out = doc! {
        "operatorName": field.operator.as_str(),
        "specifiedAs": owned(RawBsonRef::Document(&field.specified)),
    };
    let operator = field.operator.as_str();
    if operator == "$exists" {
        let asked = field.specified.get(field.path.as_str())?.and_then(RawBsonRef::as_document);
        let wanted = asked.map(|asked| asked.get("$exists")).transpose()?.flatten();
        let is_there = wanted.is_some_and(types::is_true) == inverted;
        out.insert("reason", if is_there { "path does exist" } else { "path does not exist" });
        return Ok(out);
    }
    let arrays = match operator {
        "$size" | "$elemMatch" | "$all" => LeafArrays::Whole,
        _ => LeafArrays::Expand,
    };
    let mut considered = Vec::new();
    field.path.any(document, arrays, &mut |value, _| {
        considered.extend(value);
        Ok(false)
    })?;
    if considered.is_empty() && !inverted {
        out.insert("reason", "field was missing");
        return Ok(out);
    }
    let expected = expected_types(operator);
    let fits = |value: &RawBsonRef<'_>| expected.contains(&types::name_of(*value));
    if !inverted && !expected.is_empty() && !considered.iter().any(fits) {
        out.insert("reason", "type did not match");
        put_types(&mut out, "considered", &considered);
        put(&mut out, "expectedType", expected.iter().copied().map(Bson::from).collect());
    } else {
        out.insert("reason", reason(operator, inverted));
        if operator == "$type" {
            put_values(&mut out, &considered);
            put_types(&mut out, "considered", &considered);
            return Ok(out);
        }
    }
    put_values(&mut out, &considered);
    Ok(out)
}

/// The types an operator can match at all; empty: any.
fn expected_types(operator: &str) -> &'static [&'static str] {
    match operator {
        "$mod" => &["decimal", "double", "int", "long"],
        "$regex" => &["regex", "string", "symbol"],
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => {
            &["binData", "decimal", "double", "int", "long"]
        }
        "$size" | "$elemMatch" => &["array"],
        _ => &[],
    }
}

fn reason(operator: &str, inverted: bool) -> &'static str {
    let (fails, holds) = match operator {
        "$ne" => ("comparison succeeded", "comparison failed"),
        "$in" => ("no matching value found in array", "matching value found in array"),
        "$nin" => ("matching value found in array", "no matching value found in array"),
        "$type" => ("type did not match", "type did match"),
        "$regex" => ("regular expression did not match", "regular expression did match"),
        "$mod" => (
            "$mod did not evaluate to expected remainder",
            "$mod did evaluate to expected remainder",
        ),
        "$size" => {
            ("array length was not equal to given size", "array length was equal to given size")
        }
        "$elemMatch" => {
            ("array did not satisfy the child predicate", "array did satisfy the child predicate")
        }
        "$all" => {
            ("array did not contain all specified values", "array did contain all specified values")
        }
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => {
            ("bitwise operator failed to match", "bitwise operator matched successfully")
        }
        _ => ("comparison failed", "comparison succeeded"),
    };
    if inverted { holds } else { fails }
}

fn put_values(out: &mut Document, values: &[RawBsonRef<'_>]) {
    let listed = values.iter().take(MAX_CONSIDERED).map(|value| owned(*value)).collect();
    put(out, "consideredValue", listed);
    if values.len() > MAX_CONSIDERED {
        out.insert("consideredValuesTruncated", true);
    }
}

fn put_types(out: &mut Document, what: &str, values: &[RawBsonRef<'_>]) {
    let names: BTreeSet<&str> = values.iter().map(|value| types::name_of(*value)).collect();
    put(out, &format!("{what}Type"), names.into_iter().map(Bson::from).collect());
}

/// One value under `name`, several under its plural.
fn put(out: &mut Document, name: &str, mut values: Vec<Bson>) {
    match values.len() {
        0 => {}
        1 => {
            out.insert(name, values.remove(0));
        }
        _ => {
            out.insert(format!("{name}s"), values);
        }
    }
}
