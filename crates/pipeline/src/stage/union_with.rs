//! `$unionWith`: the input, then the documents of another collection.

use crate::Pipeline;
use crate::env::CollectionName;
use crate::parse::{Inside, PipelineContext};
use crate::source::{DocumentSource, EmptySource};
use crate::stage::window::wrong_type;
use crate::stage::{Part, PipelineStage, StageInput, StageSpec};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use errors::{Error, Result};
use expr::agg::parse_fields;
use std::sync::Arc;

/// A parsed union.
#[derive(Clone, Debug)]
pub struct UnionWith {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    /// The other collection; none where the pipeline makes its own documents.
    pub from: Option<CollectionName>,
    /// What runs over it.
    pub pipeline: Pipeline,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let (coll, stages) = match value {
        RawBsonRef::String(coll) => (Some(coll), None),
        RawBsonRef::Document(spec) => {
            let [coll, pipeline] = parse_fields(spec, ["coll", "pipeline"], |name| {
                Error::location(
                    40415,
                    format!("BSON field '$unionWith.{name}' is an unknown field."),
                )
            })?;
            let coll = match coll {
                None => None,
                Some(RawBsonRef::String(coll)) => Some(coll),
                Some(other) => return Err(wrong_type("$unionWith.coll", other, "string")),
            };
            (coll, pipeline)
        }
        other => {
            return Err(Error::failed_to_parse(format!(
                "the $unionWith stage specification must be an object or string, but found {}",
                bsonval::types::name_of(other)
            )));
        }
    };
    let inner = ctx.nested(Inside::Union, coll.map(str::to_owned))?;
    let pipeline = match stages {
        None => Pipeline::default(),
        Some(RawBsonRef::Array(stages)) => Pipeline::parse(stages, &inner)?.optimize(),
        Some(other) => {
            return Err(wrong_type("$unionWith.pipeline", other, "array"));
        }
    };
    if coll.is_none() && !pipeline.has_own_source() {
        return Err(Error::failed_to_parse(
            "$unionWith stage without explicit collection must have a pipeline with $documents as \
             first stage",
        ));
    }
    let from = coll.map(|coll| CollectionName::new(&ctx.database, coll));
    Ok(PipelineStage::other(UnionWith { source: value.into(), from, pipeline }))
}

impl StageSpec for UnionWith {
    fn name(&self) -> &'static str {
        "$unionWith"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let from = self.from.iter().map(Part::Collection);
        from.chain([Part::OtherPipeline(&self.pipeline)]).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(UnionSource::new(run, self)))
    }
}

pub(crate) struct UnionSource {
    run: StageInput,
    union: Arc<UnionWith>,
    other: Option<Box<dyn DocumentSource>>,
}

impl UnionSource {
    pub(crate) fn new(run: StageInput, union: Arc<UnionWith>) -> Self {
        Self { run, union, other: None }
    }
}

impl DocumentSource for UnionSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if let Some(other) = &mut self.other {
            return other.next();
        }
        if let Some(document) = self.run.input.next()? {
            return Ok(Some(document));
        }
        let StageInput { env, variables, .. } = &self.run;
        let mut other = match &self.union.from {
            Some(from) => env.aggregate(from, &self.union.pipeline, variables)?,
            None => self.union.pipeline.execute(Box::new(EmptySource), env, variables)?,
        };
        let document = other.next()?;
        self.other = Some(other);
        Ok(document)
    }

    fn park(&mut self) {
        self.run.input.park();
        if let Some(other) = &mut self.other {
            other.park();
        }
    }
}
