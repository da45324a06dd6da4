//! `$limit` and `$skip`.

use crate::source::{DocumentSource, EmptySource};
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bsonval::number::Number;
use errors::{Error, Result};
use std::sync::Arc;

fn count(value: RawBsonRef<'_>, name: &str, code: i32) -> Result<u64> {
    let refuse = |what: &str| {
        Error::location(
            code,
            format!(
                "invalid argument to {name} stage: {what}: {name}: {}",
                expr::agg::value_to_string(value)
            ),
        )
    };
    let number = Number::from_bson(value).ok_or_else(|| refuse("Expected a number in"))?;
    let Some(whole) = number.to_exact_i64() else {
        let fits = number.to_f64().fract() != 0.0;
        return Err(refuse(if fits {
            "Expected an integer"
        } else {
            "Cannot represent as a 64-bit integer"
        }));
    };
    u64::try_from(whole).map_err(|_| refuse("Expected a non-negative number in"))
}

pub(crate) fn parse_limit(value: RawBsonRef<'_>) -> Result<PipelineStage> {
    match count(value, "$limit", 5107201)? {
        0 => Err(Error::location(15958, "the limit must be positive")),
        limit => Ok(PipelineStage::Limit(limit)),
    }
}

pub(crate) fn parse_skip(value: RawBsonRef<'_>) -> Result<PipelineStage> {
    count(value, "$skip", 5107200).map(PipelineStage::Skip)
}

/// A parsed `$limit`: of how many documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(pub(crate) u64);

impl StageSpec for Limit {
    fn name(&self) -> &'static str {
        "$limit"
    }

    fn argument(&self) -> RawBson {
        shown(self.0)
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(LimitSource::new(run, self.0)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }
}

/// A parsed `$skip`: of how many documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skip(pub(crate) u64);

impl StageSpec for Skip {
    fn name(&self) -> &'static str {
        "$skip"
    }

    fn argument(&self) -> RawBson {
        shown(self.0)
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(SkipSource::new(run, self.0)))
    }

    fn output(&self) -> Output {
        Output::Passing
    }
}

fn shown(documents: u64) -> RawBson {
    RawBson::Int64(i64::try_from(documents).unwrap_or(i64::MAX))
}

pub(crate) struct LimitSource {
    input: Box<dyn DocumentSource>,
    left: u64,
}

impl LimitSource {
    pub(crate) fn new(run: StageInput, limit: u64) -> Self {
        Self { input: run.input, left: limit }
    }
}

impl DocumentSource for LimitSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let document = self.input.next()?;
        if self.left == 0 || document.is_none() {
            // Nothing more is wanted: let the stages below give up what they hold.
            self.left = 0;
            self.input = Box::new(EmptySource);
        }
        Ok(document)
    }

    fn park(&mut self) {
        self.input.park();
    }
}

pub(crate) struct SkipSource {
    run: StageInput,
    left: u64,
}

impl SkipSource {
    pub(crate) fn new(run: StageInput, skip: u64) -> Self {
        Self { run, left: skip }
    }
}

impl DocumentSource for SkipSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        while self.left > 0 {
            if self.left.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
            if self.run.input.next()?.is_none() {
                self.left = 0;
                return Ok(None);
            }
            self.left -= 1;
        }
        self.run.input.next()
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
