//! Where a pipeline searches texts, and which of its stages read the score.
//!
//! Always true: a `$match` with `$text` is the first stage, so the collection's index answers it; the
//! score goes with each document until a stage makes others of them.

use crate::optimize::visit;
use crate::stage::PipelineStage;
use bsonval::text_score::{FIELD, unavailable};
use errors::{Error, Result};

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
        let reads = match stage {
            PipelineStage::Facet(facet) => {
                let mut any = false;
                for (_, pipeline) in &facet.pipelines {
                    any |= reads(pipeline.stages(), there)?;
                }
                any
            }
            stage => stage_reads(stage),
        };
        if reads && !there {
            return Err(unavailable());
        }
        read |= reads;
        there &= !makes_others(stage);
    }
    Ok(read)
}

/// Whether what comes out are no longer the documents that went in.
fn makes_others(stage: &PipelineStage) -> bool {
    matches!(
        stage,
        PipelineStage::Group(_)
            | PipelineStage::BucketAuto(_)
            | PipelineStage::Facet(_)
            | PipelineStage::Documents(_)
            | PipelineStage::Metadata(_)
    )
}

fn stage_reads(stage: &PipelineStage) -> bool {
    let of_sort = match stage {
        PipelineStage::Sort(sort) => sort.pattern.uses_text_score(),
        PipelineStage::Group(group) => {
            group.fields.iter().any(|(_, spec)| spec.sort_paths().iter().any(|path| *path == FIELD))
        }
        PipelineStage::Window(window) => window.sort_paths().iter().any(|path| *path == FIELD),
        _ => false,
    };
    let mut found = of_sort;
    let mut look = |expression: &expr::agg::Expression| {
        found |= expression.dependencies().fields.contains(FIELD);
    };
    match stage {
        // Their pipelines read other documents.
        PipelineStage::Lookup(lookup) => {
            lookup.lets.iter().for_each(|(_, expression)| look(expression));
        }
        PipelineStage::GraphLookup(lookup) => look(&lookup.start_with),
        PipelineStage::UnionWith(_) | PipelineStage::RankFusion(_) => {}
        stage => visit(std::slice::from_ref(stage), &mut look),
    }
    found
}
