//! `$documents`: documents written in the pipeline itself.

use crate::parse::PipelineContext;
use crate::source::{DocumentSource, VecSource};
use crate::stage::{Computed, PipelineStage};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use errors::{Error, Result};
use expr::agg::Variables;

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    Ok(PipelineStage::Documents(Computed::parse(value, ctx)?))
}

pub(crate) fn source(list: &Computed, variables: &Variables) -> Result<Box<dyn DocumentSource>> {
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
