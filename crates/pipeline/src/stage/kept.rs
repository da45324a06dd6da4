//! The last stage of a pipeline within another whose documents are to keep what they carry: their
//! scores. It puts each into a document of its own, which [`taken`] takes it out of again.
//!
//! Always true: no client can name it, so that only a stage that takes its documents apart sees any.

use crate::Pipeline;
use crate::source::DocumentSource;
use crate::stage::{Part, PipelineStage, StageInput, StageSpec};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::document_of;
use bsonval::text_score;
use errors::{Code, Error, Result};
use expr::agg::Scored;
use std::sync::Arc;

/// Where a document stands in the one made of it.
const FIELD: &str = "d";

/// The stage: whether the score that it keeps is that of a text search, which must be asked for.
#[derive(Clone, Copy, Debug)]
struct Kept {
    of_text: bool,
}

/// The pipeline, with documents that keep their scores.
pub(super) fn keeping(pipeline: Pipeline) -> Pipeline {
    let of_text = pipeline.scored() == Scored::Text;
    let mut stages = pipeline.into_stages();
    stages.push(PipelineStage::other(Kept { of_text }));
    Pipeline::from_stages(stages)
}

/// The document that was kept, with what it carries.
pub(super) fn taken(document: &RawDocument) -> Result<&RawDocument> {
    match document.get(FIELD)? {
        Some(RawBsonRef::Document(document)) => Ok(document),
        _ => Err(Error::new(Code::INTERNAL_ERROR, "a pipeline's documents were not kept whole")),
    }
}

impl StageSpec for Kept {
    fn name(&self) -> &'static str {
        "$replaceRoot"
    }

    fn argument(&self) -> RawBson {
        RawBson::Document(document_of(FIELD, RawBsonRef::String("$$ROOT")))
    }

    fn parts(&self) -> Vec<Part<'_>> {
        if self.of_text { vec![Part::Field(text_score::FIELD.to_owned())] } else { Vec::new() }
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(KeptSource(run.input)))
    }

    fn is_one_to_one(&self) -> bool {
        true
    }
}

struct KeptSource(Box<dyn DocumentSource>);

impl DocumentSource for KeptSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let whole = |document: RawDocumentBuf| document_of(FIELD, RawBsonRef::Document(&document));
        Ok(self.0.next()?.map(whole))
    }

    fn park(&mut self) {
        self.0.park();
    }
}
