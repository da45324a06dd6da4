//! Field paths in expressions: `"$a.b"`, `"$$var.c"`.
//!
//! A path goes through arrays by mapping over their elements; it never takes a number as an index
//! (that is the filter language's rule, not this one's).

use crate::agg::Value;
use crate::agg::eval::Scope;
use crate::agg::value::List;
use crate::agg::variables::{VarId, cluster_time_value, user_roles_value};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bsonval::raw;
use bsonval::text_score;
use errors::{Error, Result};

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Root,
    Current,
    Now,
    ClusterTime,
    UserRoles,
    User(VarId),
}

/// A parsed path: where it starts, then field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    pub(crate) base: Base,
    pub(crate) names: Vec<String>,
}

impl FieldPath {
    /// `a.b` of the current document.
    pub(crate) fn of_current(path: &str) -> Result<Self> {
        Ok(Self { base: Base::Current, names: split(path)? })
    }

    pub(crate) fn of(base: Base, rest: Option<&str>) -> Result<Self> {
        Ok(Self { base, names: rest.map_or_else(|| Ok(Vec::new()), split)? })
    }

    /// The dotted path, where it starts at the document.
    pub(crate) fn document_path(&self) -> Option<String> {
        (self.reads_document() && !self.names.is_empty()).then(|| self.names.join("."))
    }

    pub(crate) fn reads_document(&self) -> bool {
        matches!(self.base, Base::Root | Base::Current)
    }

    pub(crate) fn evaluate<'a>(&self, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
        match self.base {
            Base::Root => self.of_document(scope.root),
            Base::Current => self.of_document(scope.current),
            Base::Now => self.within(Value::Ref(RawBsonRef::DateTime(scope.variables.now()))),
            Base::ClusterTime => self.within(cluster_time_value(scope.variables)?),
            Base::UserRoles => self.within(user_roles_value(scope.variables)?),
            Base::User(id) => self.within(scope.user(id)),
        }
    }

    /// The whole document is without the score that it carries.
    fn of_document<'a>(&self, document: &'a RawDocument) -> Result<Value<'a>> {
        if self.names.is_empty()
            && let Some(plain) = text_score::without(document)
        {
            return Ok(plain.into());
        }
        document_value(document, &self.names)
    }

    fn within<'a>(&self, base: Value<'a>) -> Result<Value<'a>> {
        if self.names.is_empty() {
            return Ok(base);
        }
        match base {
            Value::Missing => Ok(Value::Missing),
            Value::Ref(value) => value_at(value, &self.names, 0),
            Value::Owned(value) => Ok(value_at(value.as_raw_bson_ref(), &self.names, 0)?.detach()),
            Value::Shared(value) => Ok(value_at(value.as_raw_bson_ref(), &self.names, 0)?.detach()),
        }
    }
}

/// The value at `names` below a document.
pub(crate) fn document_value<'a>(document: &'a RawDocument, names: &[String]) -> Result<Value<'a>> {
    value_at(RawBsonRef::Document(document), names, 0)
}

/// The value at `names` below a value; `depth` counts the documents and arrays entered.
fn value_at<'a>(value: RawBsonRef<'a>, names: &[String], depth: usize) -> Result<Value<'a>> {
    let Some((first, rest)) = names.split_first() else { return Ok(Value::Ref(value)) };
    if depth > super::MAX_DEPTH {
        return Err(Error::new(errors::Code::OVERFLOW, "a field path enters too many levels"));
    }
    match value {
        RawBsonRef::Document(document) => match raw::field(document, first)? {
            None => Ok(Value::Missing),
            Some(value) => value_at(value, rest, depth + 1),
        },
        RawBsonRef::Array(array) => array_value(array, names, depth + 1),
        _ => Ok(Value::Missing),
    }
}

/// The values at `names` below each element, missing ones left out.
fn array_value<'a>(array: &'a RawArray, names: &[String], depth: usize) -> Result<Value<'a>> {
    let mut found = List::default();
    for element in raw::values(array) {
        if let Some(value) = value_at(element?, names, depth)?.get() {
            found.push(value)?;
        }
    }
    Ok(found.finish())
}

/// Splits and checks a dotted path.
pub fn split(path: &str) -> Result<Vec<String>> {
    bsonval::path::check_field_path(path)?;
    Ok(path.split('.').map(str::to_owned).collect())
}
