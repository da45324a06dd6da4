//! `$facet`: several pipelines over the same documents, one result.
//!
//! The input is written to a spool once (in memory as far as allowed, then on disk) and read by
//! each pipeline in turn.

use crate::Pipeline;
use crate::parse::{Inside, PipelineContext};
use crate::source::DocumentSource;
use crate::spill::{Spool, SpoolSource};
use crate::stage::{
    Output, Part, PipelineStage, Place, StageInput, StageSpec, check_document_size,
};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bsonval::raw::Writer;
use errors::{Error, Result};
use std::sync::Arc;

/// A parsed facet.
#[derive(Clone, Debug)]
pub struct Facet {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    /// Output fields and their pipelines.
    pub pipelines: Vec<(String, Pipeline)>,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec = match value {
        RawBsonRef::Document(spec) if !spec.is_empty() => spec,
        other => {
            return Err(Error::location(
                40169,
                format!(
                    "the $facet specification must be a non-empty object, but found: $facet: {}",
                    expr::agg::value_to_string(other)
                ),
            ));
        }
    };
    let inner = ctx.nested(Inside::Facet, ctx.collection.clone())?;
    let mut pipelines: Vec<(String, Pipeline)> = Vec::new();
    for element in spec.iter_elements() {
        let element = element?;
        let name = element.key().as_str();
        check_name(name)?;
        let value = element.value()?;
        let RawBsonRef::Array(stages) = value else {
            return Err(Error::location(
                40170,
                format!(
                    "arguments to $facet must be arrays, {name} is type {}",
                    bsonval::types::name_of(value)
                ),
            ));
        };
        let pipeline = Pipeline::parse(stages, &inner)?.optimize();
        pipelines.push((name.to_owned(), pipeline));
    }
    Ok(PipelineStage::other(Facet { source: value.into(), pipelines }))
}

impl StageSpec for Facet {
    fn name(&self) -> &'static str {
        "$facet"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        self.pipelines.iter().map(|(_, pipeline)| Part::Pipeline(pipeline)).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(FacetSource::new(run, self)))
    }

    fn place(&self) -> Place {
        Place::OutsideFacet
    }

    fn output(&self) -> Output {
        Output::Gathered
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.starts_with('$') {
        return Err(Error::location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    if name.contains('.') {
        return Err(Error::location(
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField.",
        ));
    }
    Ok(())
}

pub(crate) struct FacetSource {
    run: StageInput,
    facet: Arc<Facet>,
    done: bool,
}

impl FacetSource {
    pub(crate) fn new(run: StageInput, facet: Arc<Facet>) -> Self {
        Self { run, facet, done: false }
    }
}

impl DocumentSource for FacetSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        let mut spool = Spool::new("$facet", &*self.run.env);
        while let Some(document) = self.run.input.next()? {
            self.run.env.check_interrupt()?;
            spool.add(document, &*self.run.env)?;
        }
        let spool = spool.seal()?;
        let mut out = Writer::default();
        let open = out.begin();
        for (name, pipeline) in &self.facet.pipelines {
            let input = Box::new(SpoolSource::new(Arc::clone(&spool)));
            let mut results = pipeline.execute(input, &self.run.env, &self.run.variables)?;
            let list = out.begin_array(name);
            let mut at = 0_usize;
            while let Some(document) = results.next()? {
                self.run.env.check_interrupt()?;
                let document = bsonval::text_score::strip(document);
                out.value(&at.to_string(), RawBsonRef::Document(&document));
                check_document_size(out.len())?;
                at += 1;
            }
            out.end(list);
        }
        out.end(open);
        out.finish().map(Some)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
