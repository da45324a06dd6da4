//! `$match`.

use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use errors::{Error, Result};
use expr::agg::Scored;
use matcher::Filter;
use std::sync::Arc;

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let RawBsonRef::Document(filter) = value else {
        return Err(Error::location(15959, "the match filter must be an expression in an object"));
    };
    let filter = Filter::parse(filter, &ctx.parse)?;
    if filter.uses_where() {
        return Err(Error::bad_value("$where is not allowed in this context"));
    }
    Ok(PipelineStage::Match(Arc::new(filter)))
}

/// The parsed form of a `$match` is its filter.
impl StageSpec for Filter {
    fn name(&self) -> &'static str {
        "$match"
    }

    fn argument(&self) -> RawBson {
        RawDocumentBuf::try_from(self.to_document()).map_or(RawBson::Null, RawBson::Document)
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::Filter(self)]
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(MatchSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }

    fn gives_score(&self) -> Option<Scored> {
        self.text().map(|_| Scored::Text)
    }
}

pub(crate) struct MatchSource {
    run: StageInput,
    filter: Arc<Filter>,
    skipped: u32,
}

impl MatchSource {
    fn new(run: StageInput, filter: Arc<Filter>) -> Self {
        Self { run, filter, skipped: 0 }
    }
}

impl DocumentSource for MatchSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        while let Some(document) = self.run.input.next()? {
            if self.filter.matches_with(&document, &self.run.variables)? {
                return Ok(Some(document));
            }
            // A filter that lets little through must still notice that it was killed.
            self.skipped = self.skipped.wrapping_add(1);
            if self.skipped.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
        }
        Ok(None)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
