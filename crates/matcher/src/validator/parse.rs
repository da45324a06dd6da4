//! The client's validator to clauses. [`Filter::parse`](super::Filter::parse) has accepted it
//! before, so nothing here needs to say what is wrong.

use super::{Clause, Field};
use crate::{Node, ParseContext, SchemaNode, is_operator_document, parse};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::path::Path;
use bsonval::raw;
use errors::Result;
use expr::agg::Expression;
use std::sync::Arc;

pub(super) fn document(document: &RawDocument, ctx: &ParseContext) -> Result<Clause> {
    let mut clauses = Vec::new();
    for element in raw::elements(document) {
        let element = element?;
        let (name, value) = (element.name(), element.value()?);
        match name.strip_prefix('$') {
            None | Some("ref" | "id" | "db") => field(name, value, ctx, &mut clauses)?,
            Some("comment") => {}
            Some(_) => clauses.push(top_operator(name, value, ctx)?),
        }
    }
    Ok(and(clauses))
}

fn and(mut clauses: Vec<Clause>) -> Clause {
    if clauses.len() == 1 { clauses.remove(0) } else { Clause::And(clauses) }
}

fn top_operator(name: &str, value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Clause> {
    let other = |name: &'static str| -> Result<Clause> {
        let node = parse::filter(&raw::document_of(name, value), ctx)?;
        Ok(Clause::Other { name, source: value.into(), node })
    };
    Ok(match name {
        "$and" => Clause::And(list(value, ctx)?),
        "$or" => Clause::Or(list(value, ctx)?),
        "$nor" => Clause::Nor(list(value, ctx)?),
        "$jsonSchema" => Clause::Schema(Arc::new(SchemaNode::parse(value)?)),
        "$expr" => Clause::Expr {
            expression: Expression::parse(value, &ctx.names)?.optimize(),
            source: value.into(),
            node: parse::filter(&raw::document_of(name, value), ctx)?,
        },
        "$alwaysFalse" => other("$alwaysFalse")?,
        "$sampleRate" => other("$sampleRate")?,
        _ => other("$alwaysTrue")?,
    })
}

fn list(value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Vec<Clause>> {
    let Some(array) = value.as_array() else { return Ok(Vec::new()) };
    let mut clauses = Vec::new();
    for part in raw::values(array) {
        if let RawBsonRef::Document(part) = part? {
            clauses.push(document(part, ctx)?);
        }
    }
    Ok(clauses)
}

fn field(
    name: &str,
    value: RawBsonRef<'_>,
    ctx: &ParseContext,
    clauses: &mut Vec<Clause>,
) -> Result<()> {
    match value {
        RawBsonRef::Document(operators) if is_operator_document(operators) => {
            operators_of(name, operators, ctx, clauses)
        }
        value => {
            let operator =
                if let RawBsonRef::RegularExpression(_) = value { "$regex" } else { "$eq" };
            let specified = raw::document_of(name, value);
            clauses.push(leaf(name, operator, specified, ctx)?);
            Ok(())
        }
    }
}

fn operators_of(
    name: &str,
    operators: &RawDocument,
    ctx: &ParseContext,
    clauses: &mut Vec<Clause>,
) -> Result<()> {
    for element in raw::elements(operators) {
        let element = element?;
        let value = element.value()?;
        match (element.name(), value) {
            ("$options", _) => {}
            ("$not", RawBsonRef::Document(inner)) => {
                let mut negated = Vec::new();
                operators_of(name, inner, ctx, &mut negated)?;
                clauses.push(Clause::Not(Box::new(and(negated))));
            }
            ("$not", regex) => {
                let inner = leaf(name, "$regex", raw::document_of(name, regex), ctx)?;
                clauses.push(Clause::Not(Box::new(inner)));
            }
            (operator, _) => {
                // `$options` belongs to its `$regex`.
                let options = operators.get("$options")?.filter(|_| operator == "$regex");
                let mut inner = raw::Writer::default();
                let open = inner.begin();
                let predicate = inner.begin_document(name);
                inner.element(&element);
                if let Some(options) = options {
                    inner.value("$options", options);
                }
                inner.end(predicate);
                inner.end(open);
                clauses.push(leaf(name, operator, inner.finish()?, ctx)?);
            }
        }
    }
    Ok(())
}

fn leaf(
    path: &str,
    operator: &str,
    specified: RawDocumentBuf,
    ctx: &ParseContext,
) -> Result<Clause> {
    let node: Node = parse::filter(&specified, ctx)?;
    Ok(Clause::Field(Field {
        path: Path::new(path),
        operator: operator.to_owned(),
        specified,
        node,
    }))
}
