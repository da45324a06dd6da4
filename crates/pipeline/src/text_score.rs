//! Where a pipeline searches texts, what scores its documents carry, and which of its stages read that
//! of the search.
//!
//! Always true: a `$match` with `$text` is the first stage, so the collection's index answers it; a
//! score goes with each document until a stage makes others of them, and no document that leaves a
//! pipeline has one.

use crate::source::DocumentSource;
use crate::stage::{Output, Part, PipelineStage, Place};
use bson::raw::RawDocumentBuf;
use bsonval::text_score::{FIELD, strip, unavailable};
use errors::{Error, Result};
use expr::agg::{Expression, Scored};

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
    for stage in stages {
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

/// What score documents carry behind these stages, where they came in with `before`.
pub(crate) fn carried(stages: &[PipelineStage], before: Scored) -> Scored {
    stages.iter().fold(before, |before, stage| {
        let spec = stage.spec();
        match spec.gives_score() {
            Some(scored) => scored,
            None if spec.output() == Output::Gathered => Scored::No,
            None => before,
        }
    })
}

/// The documents without what they carry.
pub fn stripped(source: Box<dyn DocumentSource>) -> Box<dyn DocumentSource> {
    Box::new(Stripped(source))
}

struct Stripped(Box<dyn DocumentSource>);

impl DocumentSource for Stripped {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        Ok(self.0.next()?.map(strip))
    }

    fn park(&mut self) {
        self.0.park();
    }
}
