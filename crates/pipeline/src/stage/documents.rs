//! `$documents`: documents written in the pipeline itself.

use crate::parse::PipelineContext;
use crate::source::{DocumentSource, VecSource};
use crate::stage::{Computed, Part, PipelineStage, Place, StageInput, StageSpec};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use errors::{Error, Result};
use expr::agg::Variables;
use std::sync::Arc;

/// A parsed `$documents`: the list.
#[derive(Clone, Debug)]
pub struct Documents(Computed);

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    Ok(PipelineStage::Documents(Arc::new(Documents(Computed::parse(value, ctx)?))))
}

impl StageSpec for Documents {
    fn name(&self) -> &'static str {
        "$documents"
    }

    fn argument(&self) -> RawBson {
        self.0.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::Expression(&self.0.expression)]
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        source(&self.0, &run.variables)
    }

    fn place(&self) -> Place {
        Place::Source
    }
}

fn source(list: &Computed, variables: &Variables) -> Result<Box<dyn DocumentSource>> {
    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
    let refuse = |what: &str| {
        Error::location(5858203, format!("error during evaluation of $documents: {what}"))
    };
    let list = list.expression.evaluate(RawDocument::from_bytes(EMPTY)?, variables)?;
    let array = list
        .as_array()
        .ok_or_else(|| refuse("an array is expected, but the expression is of another type"))?;
    let mut documents = Vec::new();
    for element in array {
        match RawBson::from(element?) {
            RawBson::Document(document) => documents.push(document),
            _ => return Err(refuse("an array of objects is expected")),
        }
    }
    Ok(Box::new(VecSource::new(documents)))
}
