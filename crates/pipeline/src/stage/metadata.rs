//! Stages whose documents the server makes: the environment answers them.

use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::window::{unknown, wrong_type};
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec, object};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Code, Error, Result};
use expr::agg::parse_fields;
use std::sync::Arc;

/// A request for such documents.
#[derive(Clone, Debug)]
pub struct Metadata {
    name: &'static str,
    spec: RawDocumentBuf,
}

impl Metadata {
    /// The stage's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The stage's argument.
    pub fn spec(&self) -> &RawDocumentBuf {
        &self.spec
    }
}

pub(crate) fn parse(
    name: &'static str,
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
) -> Result<PipelineStage> {
    let spec = object(value, |kind| match name {
        "$indexStats" => not_empty(),
        "$collStats" => Error::location(
            5447000,
            format!("$collStats must take a nested object but found: a value of type {kind}"),
        ),
        _ => Error::failed_to_parse(format!(
            "{name} must take an object argument but found: {name}: a value of type {kind}"
        )),
    })?;
    match name {
        "$indexStats" if !spec.is_empty() => return Err(not_empty()),
        "$collStats" => check_coll_stats(spec)?,
        "$planCacheStats" => {
            parse_fields(spec, ["allHosts"], |other| {
                Error::failed_to_parse(format!(
                    "$planCacheStats parameters object may contain only 'allHosts' field. Found: \
                     {other}"
                ))
            })?;
        }
        _ => {}
    }
    if ctx.collection.is_none() && matches!(name, "$collStats" | "$indexStats" | "$planCacheStats")
    {
        return Err(Error::new(
            Code::INVALID_NAMESPACE,
            format!("{{aggregate: 1}} is not valid for '{name}'; a collection is required."),
        ));
    }
    Ok(PipelineStage::other(Metadata { name, spec: spec.to_owned() }))
}

impl StageSpec for Metadata {
    fn name(&self) -> &'static str {
        self.name
    }

    fn argument(&self) -> RawBson {
        RawBson::Document(self.spec.clone())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        run.env.metadata(&self)
    }

    fn place(&self) -> Place {
        Place::Source
    }
}

fn not_empty() -> Error {
    Error::location(28803, "The $indexStats stage specification must be an empty object")
}

/// Each kind of figures is asked for by a document.
fn check_coll_stats(spec: &RawDocument) -> Result<()> {
    const KINDS: [&str; 5] =
        ["count", "latencyStats", "operationStats", "queryExecStats", "storageStats"];
    let given = parse_fields(spec, KINDS, |other| unknown("$collStats", other))?;
    for (kind, value) in KINDS.iter().zip(given) {
        if let Some(value) = value.filter(|value| value.as_document().is_none()) {
            return Err(wrong_type(&format!("$collStats.{kind}"), value, "object"));
        }
        if let ("storageStats", Some(storage)) = (*kind, value.and_then(RawBsonRef::as_document)) {
            check_storage_stats(storage)?;
        }
    }
    Ok(())
}

/// The scale is a number; the others change nothing: figures are read without locks, and are numbers.
fn check_storage_stats(spec: &RawDocument) -> Result<()> {
    const NAMES: [&str; 4] = ["scale", "verbose", "waitForLock", "numericOnly"];
    let place = "$collStats.storageStats";
    let given = parse_fields(spec, NAMES, |other| unknown(place, other))?;
    for (name, value) in NAMES.iter().zip(given) {
        let Some(value) = value.filter(|value| *value != RawBsonRef::Null) else { continue };
        let (is_right, wanted) = match *name {
            "scale" => (bsonval::types::option_integer(value).is_some(), "number"),
            _ => (value.as_bool().is_some(), "bool"),
        };
        if !is_right {
            return Err(wrong_type(&format!("{place}.{name}"), value, wanted));
        }
    }
    Ok(())
}
