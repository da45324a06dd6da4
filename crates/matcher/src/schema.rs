//! `$jsonSchema`: JSON Schema draft 4 as MongoDB understands it, with `bsonType` and `encrypt`.
//!
//! A [`Schema`] is parsed once and then asked about raw values; [`Schema::explain`] says which of
//! its rules a value breaks, as MongoDB's `errInfo.details` tells it.
//!
//! Always true:
//! 1. A rule about one kind of value (strings, numbers, arrays, objects) holds of every other.
//! 2. A property that is not there breaks nothing but `required` and `dependencies`.
//! 3. Schemas nest at most [`MAX_DEPTH`](super::MAX_DEPTH) deep, so walking them recurses within
//!    bounds.

mod explain;
mod matches;
mod parse;

#[cfg(test)]
mod tests;

use super::{Comparison, Pattern};
use bson::Document;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::decimal::Decimal;
use bsonval::path::Path;
use bsonval::types::TypeSet;
use errors::Result;
use keystring::{Direction, KeyBuilder};
use std::collections::{BTreeMap, BTreeSet};

/// A schema as a condition, with what the client wrote.
#[derive(Clone, Debug)]
pub struct SchemaNode {
    /// What must hold.
    pub schema: Schema,
    /// The operand of `$jsonSchema`.
    pub source: RawBson,
    /// What it reads: everything.
    pub(super) whole: Path,
}

impl SchemaNode {
    /// Parses the operand of `$jsonSchema`.
    pub fn parse(operand: RawBsonRef<'_>) -> Result<Self> {
        Ok(Self { schema: Schema::parse(operand)?, source: operand.into(), whole: Path::root() })
    }
}

/// A parsed schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    title: Option<String>,
    description: Option<String>,
    types: Option<Types>,
    /// In the order in which MongoDB tells what is broken.
    rules: Vec<Rule>,
}

/// The `type` or `bsonType` keyword.
#[derive(Clone, Debug)]
struct Types {
    keyword: &'static str,
    spec: RawBson,
    set: TypeSet,
}

/// One keyword.
#[derive(Clone, Debug)]
struct Rule {
    keyword: &'static str,
    /// What the client wrote, where messages repeat it; null where the keyword holds schemas.
    spec: RawBson,
    check: Check,
}

/// What a keyword demands.
#[derive(Clone, Debug)]
enum Check {
    Pattern(Pattern),
    MaxLength(i64),
    MinLength(i64),
    MultipleOf(Decimal),
    /// The bound, and whether `exclusive…` was written beside it.
    Compare(Comparison, Option<bool>),
    MinItems(i64),
    MaxItems(i64),
    UniqueItems,
    Items(Box<Schema>),
    ItemList(Vec<Schema>),
    /// No items from this position on.
    NoMoreItems(usize),
    MoreItems(usize, Box<Schema>),
    /// Encrypted by the client, and of one of these types before.
    Encrypted(Option<TypeSet>),
    Properties(Properties),
    PatternProperties(Vec<(Pattern, Schema)>),
    Additional(Additional),
    /// Sorted and distinct.
    Required(Vec<String>),
    MinProperties(i64),
    MaxProperties(i64),
    Dependencies(Vec<(String, Dependency)>),
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Box<Schema>),
    /// The members by [`unordered_key`].
    Enum(BTreeSet<Vec<u8>>),
}

/// Named properties in the order the client wrote them.
#[derive(Clone, Debug, Default)]
struct Properties {
    list: Vec<(String, Schema)>,
    places: BTreeMap<String, usize>,
}

impl Properties {
    fn get(&self, name: &str) -> Option<&Schema> {
        self.places.get(name).map(|at| &self.list[*at].1)
    }
}

/// What holds of properties that are neither named nor matched by a pattern.
#[derive(Clone, Debug)]
struct Additional {
    named: BTreeSet<String>,
    patterns: Vec<Pattern>,
    /// `None`: there may be none.
    schema: Option<Box<Schema>>,
}

impl Additional {
    fn concerns(&self, name: &str) -> Result<bool> {
        if self.named.contains(name) {
            return Ok(false);
        }
        for pattern in &self.patterns {
            if pattern.is_match(name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[derive(Clone, Debug)]
enum Dependency {
    /// These must be there too; sorted and distinct.
    Properties(Vec<String>),
    /// The whole object must also match.
    Schema(Schema),
}

impl Schema {
    /// Parses the operand of `$jsonSchema`.
    pub fn parse(operand: RawBsonRef<'_>) -> Result<Self> {
        parse::root(operand)
    }

    /// Whether a document matches.
    pub fn matches(&self, document: &RawDocument) -> Result<bool> {
        matches::schema(self, RawBsonRef::Document(document))
    }

    /// What is wrong with a document, as `{operatorName: "$jsonSchema", ...}`; or, `inverted`,
    /// that it matched where it should not have.
    pub fn explain(&self, document: &RawDocument, inverted: bool) -> Result<Document> {
        explain::root(self, document, inverted)
    }
}

/// A key that is equal for values that are equal when the order of fields does not count.
fn unordered_key(value: RawBsonRef<'_>) -> Result<Vec<u8>> {
    let sorted;
    let value = match value {
        RawBsonRef::Document(_) | RawBsonRef::Array(_) => {
            sorted = sort_fields(value)?;
            sorted.as_raw_bson_ref()
        }
        scalar => scalar,
    };
    let mut key = KeyBuilder::new();
    key.append(value, Direction::Ascending)
        .map_err(|error| errors::Error::new(errors::Code::OVERFLOW, error.to_string()))?;
    Ok(key.into_bytes())
}

/// The value with the fields of every document inside it sorted by name.
fn sort_fields(value: RawBsonRef<'_>) -> Result<RawBson> {
    Ok(match value {
        RawBsonRef::Document(document) => {
            let mut fields = Vec::new();
            for field in document {
                let (name, value) = field?;
                fields.push((name, sort_fields(value)?));
            }
            fields.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
            let mut out = RawDocumentBuf::new();
            for (name, value) in fields {
                out.append(name, value);
            }
            RawBson::Document(out)
        }
        RawBsonRef::Array(array) => {
            let mut out = bson::raw::RawArrayBuf::new();
            for value in array {
                out.push(sort_fields(value?)?);
            }
            RawBson::Array(out)
        }
        scalar => scalar.into(),
    })
}
