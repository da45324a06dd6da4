//! Where a pipeline searches texts, and which of its stages read the score.
//!
//! Always true: a `$match` with `$text` is the first stage, so the collection's index answers it; the
//! score goes with each document until a stage makes others of them.

use crate::stage::{Output, Part, PipelineStage, Place};
use bsonval::text_score::{FIELD, unavailable};
use errors::{Error, Result};
use expr::agg::Expression;

/// Refuses a search behind the first stage, or anywhere `inside` another stage.
pub(crate) fn check_places(stages: &[PipelineStage], inside: bool) -> Result<()> {
    let searches = |stage: &PipelineStage| match stage {
        PipelineStage::Match(filter) => filter.text().is_some(),
        _ => false,
    };
    if stages.iter().skip(usize::from(!inside)).any(searches) {
        return Err(Error::location(
            17313,
            "$match with $text is only allowed as the first pipeline stage",
        ));
    }
    Ok(())
}

/// Whether a stage reads the score; an error where one does that has none.
pub(crate) fn reads(stages: &[PipelineStage], searched: bool) -> Result<bool> {
    let mut there = searched;
    let mut read = false;
    for (at, stage) in stages.iter().enumerate() {
        if matches!(stage, PipelineStage::RankFusion(_)) {
            // What follows reads the score that it gives, none of the collection's.
            return reads(&stages[..at], searched);
        }
        let spec = stage.spec();
        let mut here = false;
        for part in spec.parts() {
            here |= part_reads(&part, there)?;
        }
        if here && !there {
            return Err(unavailable());
        }
        read |= here;
        // What comes out may no longer be the documents that went in.
        there &= spec.output() != Output::Gathered && spec.place() != Place::Source;
    }
    Ok(read)
}

/// Whether a part of a stage reads the score of the documents that come in.
fn part_reads(part: &Part<'_>, there: bool) -> Result<bool> {
    let in_expression = |expression: &Expression| expression.dependencies().fields.contains(FIELD);
    Ok(match part {
        Part::Expression(expression) => in_expression(expression),
        Part::Field(path) => path == FIELD,
        Part::Filter(filter) => filter.expressions().into_iter().any(in_expression),
        Part::Pipeline(pipeline) => reads(pipeline.stages(), there)?,
        Part::OtherFilter(_) | Part::OtherPipeline(_) | Part::Collection(_) | Part::Chance => false,
    })
}
