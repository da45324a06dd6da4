//! `$merge`: documents put into a collection one by one.
//!
//! The stage says what to do ([`MergeSpec::resolve`]); finding and writing the other document is
//! the writer's part.

use crate::env::CollectionName;
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::out::{Target, WriteSource, check_target};
use crate::stage::window::wrong_type;
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec};
use crate::update_pipeline::UpdatePipeline;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::{self, Writer};
use errors::{Code, Error, Result};
use expr::agg::{Expression, VarId, Variables, parse_fields, split_path};
use std::sync::Arc;

/// A parsed stage.
#[derive(Clone, Debug)]
pub struct Merge {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    /// What to do.
    pub spec: MergeSpec,
}

/// Where and how to merge.
#[derive(Clone, Debug)]
pub struct MergeSpec {
    /// The target.
    pub into: CollectionName,
    /// The fields that identify the document to merge with; a unique index must cover exactly
    /// them.
    pub on: Vec<String>,
    /// What to do with a match.
    pub when_matched: WhenMatched,
    /// What to do without one.
    pub when_not_matched: WhenNotMatched,
}

/// What happens to a document that is there already.
#[derive(Clone, Debug)]
pub enum WhenMatched {
    /// The new one takes its place.
    Replace,
    /// It stays.
    KeepExisting,
    /// Its top-level fields are overlaid.
    Merge,
    /// The pipeline stops.
    Fail,
    /// It is changed by stages that see the new document in variables.
    Pipeline {
        /// The stages.
        stages: UpdatePipeline,
        /// `let` variables, computed from the new document.
        lets: Vec<(VarId, Expression)>,
        /// `$$new`.
        new: VarId,
    },
}

/// What happens to a document that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// It is inserted.
    Insert,
    /// It is dropped.
    Discard,
    /// The pipeline stops.
    Fail,
}

/// What to write.
#[derive(Clone, Debug)]
pub enum MergeAction {
    /// Insert this.
    Insert(RawDocumentBuf),
    /// Put this in the place of the existing document.
    Replace(RawDocumentBuf),
    /// Nothing.
    Nothing,
}

impl MergeSpec {
    /// Decides about one document; `existing` is the target's document with the same `on` fields.
    pub fn resolve(
        &self,
        existing: Option<&RawDocument>,
        incoming: &RawDocument,
        variables: &Variables,
    ) -> Result<MergeAction> {
        let Some(existing) = existing else {
            return match self.when_not_matched {
                WhenNotMatched::Insert => Ok(MergeAction::Insert(incoming.to_owned())),
                WhenNotMatched::Discard => Ok(MergeAction::Nothing),
                WhenNotMatched::Fail => Err(Error::location(
                    13113,
                    "$merge could not find a matching document in the target collection for at \
                     least one document in the source collection",
                )),
            };
        };
        match &self.when_matched {
            WhenMatched::Replace => replaced(existing, incoming).map(MergeAction::Replace),
            WhenMatched::KeepExisting => Ok(MergeAction::Nothing),
            WhenMatched::Merge => merged(existing, incoming).map(MergeAction::Replace),
            WhenMatched::Fail => Err(Error::new(
                Code::DUPLICATE_KEY,
                format!(
                    "$merge found a matching document in {} and whenMatched is 'fail'",
                    self.into
                ),
            )),
            WhenMatched::Pipeline { stages, lets, new } => {
                let mut inner = variables.clone();
                inner.set(*new, Some(RawBson::Document(incoming.to_owned())));
                for (id, expression) in lets {
                    inner.set(*id, expression.evaluate(incoming, variables)?.into_owned());
                }
                stages.apply_with(existing, &inner).map(MergeAction::Replace)
            }
        }
    }

    /// The values of the `on` fields; missing, null and array values are refused.
    pub fn on_values(&self, incoming: &RawDocument) -> Result<Vec<(String, RawBson)>> {
        let mut found = Vec::with_capacity(self.on.len());
        for name in &self.on {
            let value = bsonval::Path::new(name).get(incoming)?;
            match value {
                // A document without `_id` gets a new one and matches nothing.
                None if name == "_id" => {}
                None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => {
                    return Err(Error::location(
                        51132,
                        "$merge write error: 'on' field cannot be missing, null, undefined or an \
                         array",
                    ));
                }
                Some(RawBsonRef::Array(_)) => {
                    return Err(Error::location(
                        51185,
                        "$merge write error: 'on' field cannot be missing, null, undefined or an \
                         array",
                    ));
                }
                Some(value) => found.push((name.clone(), value.into())),
            }
        }
        Ok(found)
    }
}

/// The new document under the existing one's `_id` where it brings none.
fn replaced(existing: &RawDocument, incoming: &RawDocument) -> Result<RawDocumentBuf> {
    if incoming.get("_id")?.is_some() {
        return Ok(incoming.to_owned());
    }
    let mut out = Writer::with_capacity(incoming.as_bytes().len() + 32);
    let open = out.begin();
    if let Some(id) = existing.get("_id")? {
        out.value("_id", id);
    }
    for element in raw::elements(incoming) {
        out.element(&element?);
    }
    out.end(open);
    out.finish()
}

fn merged(existing: &RawDocument, incoming: &RawDocument) -> Result<RawDocumentBuf> {
    let mut news: limits::KeyMap<&str, raw::Element<'_>> = limits::KeyMap::default();
    for element in raw::elements(incoming) {
        let element = element?;
        news.insert(element.name(), element);
    }
    let mut out = Writer::with_capacity(existing.as_bytes().len() + incoming.as_bytes().len());
    let open = out.begin();
    for element in raw::elements(existing) {
        let element = element?;
        match news.remove(element.name()) {
            Some(new) => out.element(&new),
            None => out.element(&element),
        }
    }
    for element in raw::elements(incoming) {
        let element = element?;
        if news.contains_key(element.name()) {
            out.element(&element);
        }
    }
    out.end(open);
    crate::stage::check_document_size(out.len())?;
    out.finish()
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec = match value {
        RawBsonRef::String(name) => MergeSpec {
            into: CollectionName::new(&ctx.database, name),
            on: vec!["_id".to_owned()],
            when_matched: WhenMatched::Merge,
            when_not_matched: WhenNotMatched::Insert,
        },
        RawBsonRef::Document(spec) => parse_spec(spec, ctx)?,
        other => {
            return Err(Error::location(
                51182,
                format!(
                    "$merge requires a string or object argument, but found {}",
                    bsonval::types::name_of(other)
                ),
            ));
        }
    };
    check_target(&spec.into, "$merge")?;
    Ok(PipelineStage::Merge(Arc::new(Merge { source: value.into(), spec })))
}

impl StageSpec for Merge {
    fn name(&self) -> &'static str {
        "$merge"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(WriteSource::new(run, Target::Merge(self))))
    }

    fn place(&self) -> Place {
        Place::Last
    }
}

fn parse_spec(spec: &RawDocument, ctx: &PipelineContext) -> Result<MergeSpec> {
    let [into, on, lets, matched, not_matched] =
        parse_fields(spec, ["into", "on", "let", "whenMatched", "whenNotMatched"], |name| {
            Error::location(40415, format!("BSON field '$merge.{name}' is an unknown field."))
        })?;
    let into = into.ok_or_else(|| {
        Error::location(40414, "BSON field '$merge.into' is missing but a required field")
    })?;
    let lets = lets.filter(|lets| !matches!(lets, RawBsonRef::Null | RawBsonRef::Undefined));
    if let Some(other) = lets.filter(|lets| lets.as_document().is_none()) {
        return Err(wrong_type("$merge.let", other, "object"));
    }
    let when_not_matched = match not_matched {
        None | Some(RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::String("insert")) => {
            WhenNotMatched::Insert
        }
        Some(RawBsonRef::String("discard")) => WhenNotMatched::Discard,
        Some(RawBsonRef::String("fail")) => WhenNotMatched::Fail,
        Some(RawBsonRef::String(other)) => {
            return Err(Error::bad_value(format!(
                "Enumeration value '{other}' for field '$merge.whenNotMatched' is not a valid \
                 value."
            )));
        }
        Some(other) => return Err(wrong_type("$merge.whenNotMatched", other, "string")),
    };
    let when_matched = match matched {
        Some(RawBsonRef::String("replace")) => WhenMatched::Replace,
        Some(RawBsonRef::String("keepExisting")) => WhenMatched::KeepExisting,
        None | Some(RawBsonRef::String("merge")) => WhenMatched::Merge,
        Some(RawBsonRef::String("fail")) => WhenMatched::Fail,
        Some(RawBsonRef::Array(stages)) => parse_pipeline(stages, lets, ctx)?,
        Some(RawBsonRef::String(other)) => {
            return Err(Error::bad_value(format!(
                "Enumeration value '{other}' for field '$merge.whenMatched' is not a valid value."
            )));
        }
        Some(other) => {
            return Err(Error::location(
                51191,
                format!(
                    "$merge 'whenMatched' field must be either a string or an array, but found {}",
                    bsonval::types::name_of(other)
                ),
            ));
        }
    };
    let writes_nothing = matches!(when_matched, WhenMatched::KeepExisting | WhenMatched::Fail);
    if writes_nothing && when_not_matched != WhenNotMatched::Insert {
        return Err(Error::location(
            51181,
            "Combination of $merge modes 'whenMatched' and 'whenNotMatched' is not supported",
        ));
    }
    if lets.is_some() && !matches!(when_matched, WhenMatched::Pipeline { .. }) {
        return Err(Error::location(
            51199,
            "Cannot use 'let' variables with 'whenMatched: merge' mode",
        ));
    }
    Ok(MergeSpec {
        into: parse_into(into, ctx)?,
        on: parse_on(on)?,
        when_matched,
        when_not_matched,
    })
}

fn parse_into(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<CollectionName> {
    match value {
        RawBsonRef::String("") => {
            Err(Error::location(5_786_800, "$merge 'into' field cannot be an empty string"))
        }
        RawBsonRef::String(name) => Ok(CollectionName::new(&ctx.database, name)),
        RawBsonRef::Document(spec) => {
            let [db, coll] = parse_fields(spec, ["db", "coll"], |name| {
                Error::location(
                    40415,
                    format!("BSON field '$merge.into.{name}' is an unknown field."),
                )
            })?;
            let db = match db {
                None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => &ctx.database[..],
                Some(RawBsonRef::String(db)) => db,
                Some(other) => return Err(wrong_type("$merge.into.db", other, "string")),
            };
            let coll = match coll {
                Some(RawBsonRef::String(coll)) => coll,
                None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => {
                    return Err(Error::location(
                        5_786_801,
                        "$merge 'into' field must specify a 'coll' that is not null or undefined",
                    ));
                }
                Some(other) => return Err(wrong_type("$merge.into.coll", other, "string")),
            };
            Ok(CollectionName::new(db, coll))
        }
        other => Err(Error::location(
            51178,
            format!(
                "$merge 'into' field must be either a string or an object, but found {}",
                bsonval::types::name_of(other)
            ),
        )),
    }
}

fn parse_on(value: Option<RawBsonRef<'_>>) -> Result<Vec<String>> {
    let names = match value {
        None => return Ok(vec!["_id".to_owned()]),
        Some(RawBsonRef::String(name)) => vec![name.to_owned()],
        Some(RawBsonRef::Array(array)) => {
            let mut names: Vec<String> = Vec::new();
            for element in array {
                let RawBsonRef::String(name) = element? else {
                    return Err(Error::location(
                        51134,
                        "$merge 'on' array elements must be strings",
                    ));
                };
                if names.iter().any(|known| known == name) {
                    return Err(Error::location(
                        31465,
                        format!("Found a duplicate field '{name}'"),
                    ));
                }
                names.push(name.to_owned());
            }
            names
        }
        Some(other) => {
            return Err(Error::location(
                51186,
                format!(
                    "$merge 'on' field must be either a string or an array of strings, but found {}",
                    bsonval::types::name_of(other)
                ),
            ));
        }
    };
    if names.is_empty() {
        return Err(Error::location(
            51187,
            "If explicitly specifying $merge 'on', must include at least one field",
        ));
    }
    for name in &names {
        split_path(name)?;
    }
    Ok(names)
}

fn parse_pipeline(
    stages: &bson::raw::RawArray,
    lets: Option<RawBsonRef<'_>>,
    ctx: &PipelineContext,
) -> Result<WhenMatched> {
    let mut inner = ctx.parse.clone();
    let mut parsed = Vec::new();
    match lets {
        None => {}
        Some(RawBsonRef::Document(lets)) => {
            for element in lets.iter_elements() {
                let element = element?;
                let name = element.key().as_str();
                let expression = Expression::parse(element.value()?, &ctx.parse.names)?.optimize();
                if name == "new" {
                    return Err(Error::location(
                        51273,
                        "'let' may not define a value for the reserved 'new' variable other than \
                         '$$ROOT'",
                    ));
                }
                parsed.push((inner.names.define(name)?, expression));
            }
        }
        Some(other) => {
            return Err(Error::type_mismatch(format!(
                "BSON field '$merge.let' is the wrong type '{}', expected type 'object'",
                bsonval::types::name_of(other)
            )));
        }
    }
    let new = inner.names.define("new")?;
    let stages = UpdatePipeline::parse(stages, &inner)?;
    Ok(WhenMatched::Pipeline { stages, lets: parsed, new })
}
