//! `$unionWith`: the input, then the documents of another collection.

use crate::Pipeline;
use crate::env::CollectionName;
use crate::parse::{Inside, PipelineContext};
use crate::source::{DocumentSource, EmptySource};
use crate::stage::window::wrong_type;
use crate::stage::{Part, PipelineStage, StageInput, StageSpec, kept};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use errors::{Error, Result};
use expr::agg::{Scored, parse_fields};
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
    /// What scores its documents carry; they are kept where they have any.
    scored: Scored,
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
    let scored = pipeline.scored();
    let pipeline = if scored == Scored::No { pipeline } else { kept::keeping(pipeline) };
    Ok(PipelineStage::other(UnionWith { source: value.into(), from, pipeline, scored }))
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

    fn gives_score(&self) -> Option<Scored> {
        (self.scored != Scored::No).then_some(self.scored)
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

impl UnionSource {
    /// The next document of the other collection.
    fn next_other(&mut self) -> Result<Option<RawDocumentBuf>> {
        let Some(other) = &mut self.other else { return Ok(None) };
        let Some(document) = other.next()? else { return Ok(None) };
        if self.union.scored == Scored::No {
            return Ok(Some(document));
        }
        Ok(Some(kept::taken(&document)?.to_owned()))
    }
}

impl DocumentSource for UnionSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.other.is_some() {
            return self.next_other();
        }
        if let Some(document) = self.run.input.next()? {
            return Ok(Some(document));
        }
        let StageInput { env, variables, .. } = &self.run;
        self.other = Some(match &self.union.from {
            Some(from) => env.aggregate(from, &self.union.pipeline, variables)?,
            None => self.union.pipeline.execute(Box::new(EmptySource), env, variables)?,
        });
        self.next_other()
    }

    fn park(&mut self) {
        self.run.input.park();
        if let Some(other) = &mut self.other {
            other.park();
        }
    }
}
