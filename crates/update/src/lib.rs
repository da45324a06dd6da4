//! Updates: operators, replacements and pipelines. And what a reader gets to see of a document:
//! [`projection`].
//!
//! [`Update::parse`] turns operators into a tree of paths, so that conflicting ones are found before
//! any document is touched. [`Update::apply`] walks a document and the tree together and writes the
//! new document in one pass, copying what the tree does not name.
//!
//! Always true:
//! 1. An update that changes no byte reports `modified: false`.
//! 2. The `_id` of an existing document never changes.
//! 3. Fields that are already there keep their place; new ones follow in lexicographic order,
//!    numbers by value.
#![forbid(unsafe_code)]

mod apply;
mod array;
mod array_filter;
mod by_name;
mod check;
mod delta;
mod effect;
mod number;
mod operation;
mod parse;
pub mod projection;
mod shape;
mod tree;
mod upsert;

pub use check::{MAX_STORED_DEPTH, check_stored_id};
pub use projection::Projection;

use array_filter::ArrayFilters;
use bson::oid::ObjectId;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bson::{DateTime, Timestamp};
use bsonval::path::Path;
use bsonval::raw::{self, Writer};
use errors::Result;
use keystring::Collation;
use matcher::{Filter, MatchDetails, ParseContext};
use shape::{Operations, Shape};
use std::sync::Arc;

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Operators(Operators),
    Replacement(RawDocumentBuf),
    Pipeline(Box<dyn PipelineUpdate>),
    /// An oplog entry's difference.
    Delta(RawDocumentBuf),
}

/// What update operators come to.
#[derive(Debug)]
pub(crate) struct Operators {
    shape: Arc<Shape>,
    /// At the places that the shape's tree names.
    operations: Operations,
    filters: ArrayFilters,
    /// No path plus operand reaches deeper than this.
    depth: usize,
    /// The collation, for operators that compare.
    collation: Option<Collation>,
}

/// The pipeline form of an update, which the crates above implement.
pub trait PipelineUpdate: Send + Sync + std::fmt::Debug {
    /// The document after the stages.
    fn apply(&self, document: &RawDocument) -> Result<RawDocumentBuf>;
}

/// Makes a pipeline update of its stages.
pub type PipelineParser<'p> = dyn Fn(&RawArray) -> Result<Box<dyn PipelineUpdate>> + 'p;

/// What applying an update needs to know.
#[derive(Clone, Copy, Debug)]
pub struct UpdateContext {
    /// How the document matched: where the positional operator `$` points.
    pub details: MatchDetails,
    /// For `$currentDate`.
    pub now: DateTime,
    /// For `$currentDate` with timestamps, and empty timestamps in replacements.
    pub timestamp: Timestamp,
    /// Whether empty timestamps in replacements stay.
    pub keep_empty_timestamps: bool,
}

/// An updated document.
#[derive(Clone, Debug)]
pub struct UpdateOutcome {
    /// The document as it is now.
    pub document: RawDocumentBuf,
    /// Whether any byte differs.
    pub modified: bool,
}

impl Update {
    /// Parses the `u` of an update statement.
    pub fn parse(
        update: RawBsonRef<'_>,
        array_filters: Option<&RawArray>,
        ctx: &ParseContext,
        pipeline: &PipelineParser<'_>,
    ) -> Result<Self> {
        parse::update(update, array_filters, ctx, pipeline).map(|kind| Self { kind })
    }

    /// Parses the `u` of an update statement without array filters where an update before it on this thread had the
    /// same names, and nothing else about it has to be known. `None` where that is not so, and it is to be parsed.
    pub fn bind(update: RawBsonRef<'_>, collation: Option<&Collation>) -> Result<Option<Self>> {
        let RawBsonRef::Document(update) = update else { return Ok(None) };
        let bound = shape::bind(update, collation)?;
        Ok(bound.map(|operators| Self { kind: Kind::Operators(operators) }))
    }

    /// The update of an oplog entry that tells the difference: `{$v: 2, diff: ...}`.
    pub fn from_delta(diff: &RawDocument) -> Result<Self> {
        delta::check(diff)?;
        Ok(Self { kind: Kind::Delta(diff.to_owned()) })
    }

    /// Whether this is a whole document, which must not be applied to many.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// Whether the positional operator `$` occurs, so that match details are needed.
    pub fn is_positional(&self) -> bool {
        match &self.kind {
            Kind::Operators(operators) => operators.shape.is_positional,
            Kind::Replacement(_) | Kind::Pipeline(_) | Kind::Delta(_) => false,
        }
    }

    /// The paths whose values, or whose descendants' values, may change; `None` when any may.
    /// Positional components end a path. Index keys over other paths stay as they are.
    pub fn touched(&self) -> Option<&[Path]> {
        match &self.kind {
            Kind::Operators(operators) => Some(&operators.shape.touched),
            Kind::Replacement(_) | Kind::Pipeline(_) | Kind::Delta(_) => None,
        }
    }

    /// Applies the update to an existing document.
    pub fn apply(&self, document: &RawDocument, ctx: &UpdateContext) -> Result<UpdateOutcome> {
        let outcome = match &self.kind {
            Kind::Operators(operators) => {
                let outcome = apply::apply(operators, document, ctx, false)?;
                if outcome.modified {
                    operators.check(document, &outcome.document)?;
                }
                outcome
            }
            Kind::Replacement(replacement) => {
                changed(document, replaced(document, replacement, ctx)?)
            }
            Kind::Pipeline(pipeline) => {
                let result = pipeline.apply(document)?;
                check::depth(&result)?;
                changed(document, keep_id(document, &result)?)
            }
            Kind::Delta(diff) => {
                let result = delta::apply(document, diff)?;
                check::depth(&result)?;
                changed(document, keep_id(document, &result)?)
            }
        };
        if outcome.modified {
            check::size(&outcome.document)?;
        }
        Ok(outcome)
    }

    /// The document an upsert inserts when nothing matched: the filter's equalities with the update
    /// applied; `new_id` where neither gives an `_id`, which always comes first.
    pub fn upsert(
        &self,
        filter: &Filter,
        ctx: &UpdateContext,
        new_id: ObjectId,
    ) -> Result<RawDocumentBuf> {
        let document = match &self.kind {
            Kind::Operators(operators) => {
                let base = upsert::base(&filter.equalities_for_upsert()?)?;
                let outcome = apply::apply(operators, &base, ctx, true)?;
                operators.check(&base, &outcome.document)?;
                outcome.document
            }
            Kind::Replacement(replacement) => {
                let equalities = filter.equalities_for_upsert()?;
                let id = equalities.into_iter().filter(|(path, _)| path.as_str() == "_id");
                replaced(&upsert::base(&id.collect::<Vec<_>>())?, replacement, ctx)?
            }
            Kind::Pipeline(pipeline) => {
                let base = upsert::base(&filter.equalities_for_upsert()?)?;
                let result = pipeline.apply(&base)?;
                check::depth(&result)?;
                keep_id(&base, &result)?
            }
            Kind::Delta(diff) => {
                let base = upsert::base(&filter.equalities_for_upsert()?)?;
                let result = delta::apply(&base, diff)?;
                check::depth(&result)?;
                keep_id(&base, &result)?
            }
        };
        let document = upsert::with_id_first(document, new_id)?;
        check::size(&document)?;
        Ok(document)
    }
}

fn changed(before: &RawDocument, after: RawDocumentBuf) -> UpdateOutcome {
    let modified = before.as_bytes() != after.as_bytes();
    UpdateOutcome { document: after, modified }
}

/// The replacement under the old `_id`, which comes first. Empty timestamps at the top are filled.
fn replaced(
    document: &RawDocument,
    replacement: &RawDocument,
    ctx: &UpdateContext,
) -> Result<RawDocumentBuf> {
    under_old_id(document, replacement, (!ctx.keep_empty_timestamps).then_some(ctx.timestamp))
}

/// `after` with `_id` first: the old one, which `after` may repeat but not change.
fn keep_id(before: &RawDocument, after: &RawDocument) -> Result<RawDocumentBuf> {
    under_old_id(before, after, None)
}

/// As [`keep_id`], with empty timestamps at the top filled. In one pass: documents may be large.
fn under_old_id(
    before: &RawDocument,
    after: &RawDocument,
    fill: Option<Timestamp>,
) -> Result<RawDocumentBuf> {
    let (old, new) = (raw::field(before, "_id")?, raw::field(after, "_id")?);
    if let (Some(old), Some(new)) = (old, new)
        && !keystring::equal(old, new)
    {
        return Err(check::altered_id(new));
    }
    let empty = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });
    let mut writer = Writer::with_capacity(after.as_bytes().len() + 32);
    let open = writer.begin();
    if let Some(id) = old.or(new) {
        writer.value("_id", id);
    }
    for element in raw::elements(after) {
        let element = element?;
        if element.name_bytes() == b"_id" {
            continue;
        }
        // Values of other types need not be looked at: they are copied as they are.
        let is_timestamp = element.element_type() == ElementType::Timestamp;
        match fill.filter(|_| is_timestamp) {
            Some(now) if element.value()? == empty => {
                writer.value(element.name(), RawBsonRef::Timestamp(now));
            }
            _ => writer.element(&element),
        }
    }
    writer.end(open);
    writer.finish()
}

impl Operators {
    /// What must hold of a document the operators changed.
    fn check(&self, before: &RawDocument, after: &RawDocument) -> Result<()> {
        if self.shape.touches_id {
            let same = match (before.get("_id")?, after.get("_id")?) {
                (None, _) => true,
                (Some(old), Some(new)) => old == new,
                (Some(_), None) => false,
            };
            if !same {
                let path = self.shape.touched.iter().find(|path| path.first() == "_id");
                return Err(check::immutable_id(path.map_or("_id", Path::as_str)));
            }
        }
        if self.depth > MAX_STORED_DEPTH || !self.shape.renames.is_empty() {
            check::depth(after)?;
        }
        Ok(())
    }
}

/// The names of all operators.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    parse::OPERATORS.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests;
