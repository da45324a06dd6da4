//! From an array of stage documents to a [`Pipeline`], and its execution.

use crate::env::{CollectionName, Env};
use crate::stage::{self, PipelineStage, Place};
use crate::text_score;
use crate::{DocumentSource, MAX_NESTING, MAX_STAGES};
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument};
use errors::{Code, Error, Result};
use expr::agg::{Scored, Variables};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where a pipeline stands while it is parsed.
#[derive(Clone, Debug)]
pub struct PipelineContext {
    /// The database of the command.
    pub database: String,
    /// The collection, unless the command runs on the database (`aggregate: 1`).
    pub collection: Option<String>,
    /// Variables in scope and their values, for filters and expressions.
    pub parse: matcher::ParseContext,
    pub(crate) inside: Inside,
    pub(crate) depth: usize,
}

/// What a sub-pipeline is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    Nothing,
    Facet,
    Lookup,
    Union,
}

impl PipelineContext {
    /// The context of a command on a collection.
    pub fn new(ns: &CollectionName, parse: matcher::ParseContext) -> Self {
        Self {
            database: ns.database.clone(),
            collection: Some(ns.collection.clone()),
            parse,
            inside: Inside::Nothing,
            depth: 0,
        }
    }

    /// The context of a command on a database.
    pub fn on_database(database: impl Into<String>, parse: matcher::ParseContext) -> Self {
        Self {
            database: database.into(),
            collection: None,
            parse,
            inside: Inside::Nothing,
            depth: 0,
        }
    }

    pub(crate) fn nested(&self, inside: Inside, collection: Option<String>) -> Result<Self> {
        if self.depth + 1 > MAX_NESTING {
            return Err(Error::new(
                Code::MAX_SUB_PIPELINE_VIEW_DEPTH_EXCEEDED,
                format!("Maximum number of nested sub-pipelines exceeded. Limit is {MAX_NESTING}"),
            ));
        }
        let mut inner = Self { inside, collection, depth: self.depth + 1, ..self.clone() };
        if inside != Inside::Facet {
            // Its documents are others.
            inner.parse.names.scored = Scored::No;
        }
        Ok(inner)
    }
}

/// A parsed pipeline.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    stages: Vec<PipelineStage>,
}

impl Pipeline {
    /// Parses a command's `pipeline` array.
    pub fn parse(stages: &RawArray, ctx: &PipelineContext) -> Result<Self> {
        let mut parsed = Vec::new();
        // What expressions may ask of a document depends on the stages before.
        let mut ctx = Cow::Borrowed(ctx);
        for element in stages {
            let RawBsonRef::Document(spec) = element? else {
                return Err(Error::type_mismatch(
                    "Each element of the 'pipeline' array must be an object",
                ));
            };
            let before = parsed.len();
            stage::parse(spec, &ctx, &mut parsed)?;
            let known = ctx.parse.names.scored;
            let scored = text_score::carried(&parsed[before..], known);
            if scored != known {
                ctx.to_mut().parse.names.scored = scored;
            }
            if parsed.len() > MAX_STAGES {
                return Err(Error::location(
                    7749501,
                    format!("Pipeline length must be no longer than {MAX_STAGES} stages"),
                ));
            }
        }
        let pipeline = Self { stages: parsed };
        pipeline.validate(&ctx)?;
        Ok(pipeline)
    }

    /// Parses a list of stage documents.
    pub fn parse_documents(stages: &[&RawDocument], ctx: &PipelineContext) -> Result<Self> {
        let array: RawArrayBuf = stages.iter().copied().collect();
        Self::parse(&array, ctx)
    }

    /// A pipeline of these stages.
    pub fn from_stages(stages: Vec<PipelineStage>) -> Self {
        Self { stages }
    }

    /// The stages, first to last.
    pub fn stages(&self) -> &[PipelineStage] {
        &self.stages
    }

    /// The stages, taken out: a planner keeps what it cannot push down.
    pub fn into_stages(self) -> Vec<PipelineStage> {
        self.stages
    }

    /// Whether there is no stage.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Whether the pipeline ends in `$out` or `$merge`.
    pub fn writes(&self) -> bool {
        matches!(self.stages.last(), Some(PipelineStage::Out(_) | PipelineStage::Merge(_)))
    }

    /// The collection written to.
    pub fn target(&self) -> Option<&CollectionName> {
        match self.stages.last() {
            Some(PipelineStage::Out(out)) => Some(&out.target),
            Some(PipelineStage::Merge(merge)) => Some(&merge.spec.into),
            _ => None,
        }
    }

    /// Whether the first stage makes the documents itself, so that the collection is not read.
    pub fn has_own_source(&self) -> bool {
        self.stages.first().is_some_and(PipelineStage::is_source)
    }

    /// Every other collection the pipeline reads.
    pub fn foreign_namespaces(&self) -> BTreeSet<CollectionName> {
        let mut found = BTreeSet::new();
        for stage in &self.stages {
            stage.foreign_namespaces(&mut found);
        }
        found
    }

    /// Rearranges the stages; the result is the same with less work.
    #[must_use]
    pub fn optimize(self) -> Self {
        Self { stages: crate::optimize::optimize(self.stages) }
    }

    /// The top-level or dotted fields of the input that the stages read; `None` is all of them.
    pub fn needed_fields(&self) -> Option<BTreeSet<String>> {
        crate::optimize::needed_fields(&self.stages)
    }

    /// Whether the result depends on nothing but the input: no variables, chance or clock.
    pub fn is_uncorrelated(&self) -> bool {
        crate::optimize::is_uncorrelated(&self.stages)
    }

    /// Lays the stages over a source.
    pub fn execute(
        &self,
        input: Box<dyn DocumentSource>,
        env: &Arc<dyn Env>,
        variables: &Arc<Variables>,
    ) -> Result<Box<dyn DocumentSource>> {
        let mut source = input;
        for stage in &self.stages {
            source = stage.execute(source, env, variables)?;
        }
        let scored = self.stages.iter().any(|stage| stage.spec().gives_score().is_some());
        Ok(if scored { text_score::stripped(source) } else { source })
    }

    /// What score its documents carry at its end.
    pub(crate) fn scored(&self) -> Scored {
        text_score::carried(&self.stages, Scored::No)
    }

    /// Whether it begins with a stage that puts searches together, by their ranks or their scores.
    pub fn fuses(&self) -> bool {
        self.stages.first().is_some_and(is_fusion)
    }

    /// Whether a stage reads the text score; an error where one does that has none, because nothing
    /// is searched, or because its documents are not those that were found.
    pub fn reads_text_score(&self, searched: bool) -> Result<bool> {
        text_score::reads(&self.stages, searched)
    }

    /// Refuses a `$text` that is not asked of the collection.
    pub fn check_text(&self) -> Result<()> {
        text_score::check_places(&self.stages, false)
    }

    fn validate(&self, ctx: &PipelineContext) -> Result<()> {
        text_score::check_places(&self.stages, ctx.inside == Inside::Facet)?;
        let first = self.stages.first();
        if ctx.inside == Inside::Nothing && ctx.collection.is_none() {
            let fine = first.is_some_and(PipelineStage::is_source);
            if !fine {
                let shown = first.map_or("an empty pipeline", PipelineStage::name);
                return Err(Error::new(
                    Code::INVALID_NAMESPACE,
                    format!(
                        "{{aggregate: 1}} is not valid for '{shown}'; a collection is required."
                    ),
                ));
            }
        }
        for (at, stage) in self.stages.iter().enumerate() {
            let name = stage.name();
            let place = stage.spec().place();
            let first_only = matches!(place, Place::Source | Place::First);
            if at > 0 && is_fusion(stage) {
                return Err(Error::location(
                    10_170_100,
                    format!("{name} must be a pipeline's first stage"),
                ));
            }
            if at > 0 && first_only {
                return Err(Error::location(
                    40602,
                    format!("{name} is only valid as the first stage in a pipeline."),
                ));
            }
            if place == Place::Last {
                if ctx.inside != Inside::Nothing {
                    return Err(not_inside(name, ctx.inside));
                }
                if at + 1 != self.stages.len() {
                    return Err(Error::location(
                        40601,
                        format!("{name} can only be the final stage in the pipeline"),
                    ));
                }
            }
            if ctx.inside == Inside::Facet && (first_only || place == Place::OutsideFacet) {
                return Err(not_inside(name, ctx.inside));
            }
        }
        Ok(())
    }
}

/// Whether it makes its documents itself and gives them a score.
fn is_fusion(stage: &PipelineStage) -> bool {
    stage.is_source() && stage.spec().gives_score().is_some()
}

pub(crate) fn not_inside(name: &str, inside: Inside) -> Error {
    match inside {
        Inside::Facet => Error::location(
            40600,
            format!("{name} is not allowed to be used within a $facet stage"),
        ),
        Inside::Union => Error::location(
            31441,
            format!("{name} is not allowed within a $unionWith's sub-pipeline"),
        ),
        Inside::Lookup | Inside::Nothing => {
            Error::location(51047, format!("{name} is not allowed within a $lookup's sub-pipeline"))
        }
    }
}
