//! A collection's validator: a filter that can say why a document does not pass it.
//!
//! Beside the filter stand the client's own clauses, not normalised, so that a failure is told in
//! the client's words, in the shape of MongoDB's `errInfo.details`.
//!
//! Always true: what is told is told of a document that failed; of a clause only where it is to
//! blame.

mod explain;
mod parse;

#[cfg(test)]
mod tests;

use super::{Filter, Node, ParseContext, SchemaNode};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use bsonval::path::Path;
use errors::{Error, Result};
use expr::agg::{Expression, Variables};
use std::sync::Arc;

/// MongoDB gives up on details that grow past this.
const MAX_DETAILS_BYTES: usize = 12 << 20;

/// A parsed validator.
#[derive(Clone, Debug)]
pub struct Validator {
    filter: Filter,
    root: Arc<Clause>,
}

/// One part of what the client wrote.
#[derive(Debug)]
enum Clause {
    /// `$and`, written or implied.
    And(Vec<Clause>),
    Or(Vec<Clause>),
    Nor(Vec<Clause>),
    Not(Box<Clause>),
    Schema(Arc<SchemaNode>),
    Expr {
        expression: Expression,
        source: RawBson,
        node: Node,
    },
    Field(Field),
    /// `$alwaysTrue`, `$alwaysFalse`, `$sampleRate`: what is true without looking.
    Other {
        name: &'static str,
        source: RawBson,
        node: Node,
    },
}

/// An operator on a path.
#[derive(Debug)]
struct Field {
    path: Path,
    operator: String,
    /// `{path: {operator: operand}}`, or `{path: operand}` where it was written so.
    specified: RawDocumentBuf,
    node: Node,
}

impl Validator {
    /// Parses a validator.
    pub fn parse(validator: &RawDocument, ctx: &ParseContext) -> Result<Self> {
        let filter = Filter::parse(validator, ctx)?;
        if filter.uses_where() {
            return Err(Error::bad_value("$where is not allowed in this context"));
        }
        if filter.expressions().iter().any(|expression| expression.dependencies().code) {
            return Err(Error::location(4660800, "$function cannot be used inside a validator."));
        }
        let root = Arc::new(parse::document(validator, ctx)?);
        Ok(Self { filter, root })
    }

    /// The validator as a filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Whether a document passes.
    pub fn passes(&self, document: &RawDocument) -> Result<bool> {
        self.filter.matches(document)
    }

    /// The `errInfo` of a document that does not pass: `{failingDocumentId, details}`.
    pub fn error_info(&self, document: &RawDocument) -> Result<Document> {
        let mut info = Document::new();
        if let Some(id) = document.get("_id")? {
            info.insert("failingDocumentId", owned(id));
        }
        info.insert("details", self.explain(document)?);
        Ok(info)
    }

    /// Why a document does not pass: `{operatorName, ...}`.
    pub fn explain(&self, document: &RawDocument) -> Result<Document> {
        let variables: &Variables = self.filter.variables();
        let details = explain::clause(&self.root, document, variables, false)?;
        let small = RawDocumentBuf::try_from(&details)
            .is_ok_and(|raw| raw.as_bytes().len() <= MAX_DETAILS_BYTES);
        if small {
            return Ok(details);
        }
        Ok(doc! { "reason": "doc validation error exceeded maximum size", "truncated": true })
    }
}

/// A value on its own.
pub(super) fn owned(value: RawBsonRef<'_>) -> Bson {
    Bson::try_from(RawBson::from(value)).unwrap_or(Bson::Undefined)
}
