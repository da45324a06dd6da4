//! `$project $addFields $set $unset`.

use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec, all_apart};
use crate::transform::{Mode, Transform};
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use errors::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed stage.
#[derive(Clone, Debug)]
pub struct TransformStage {
    /// The name the client used.
    pub name: &'static str,
    /// What is done to each document.
    pub transform: Transform,
    /// The argument as the client wrote it, for explain.
    pub spec: RawBson,
}

pub(crate) fn parse(
    name: &str,
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
) -> Result<PipelineStage> {
    let name = match name {
        "$project" => "$project",
        "$addFields" => "$addFields",
        "$set" => "$set",
        _ => "$unset",
    };
    let transform = match name {
        "$project" => {
            let RawBsonRef::Document(spec) = value else {
                return Err(Error::location(15969, "$project specification must be an object"));
            };
            Transform::project(spec, &ctx.parse.names).map_err(|e| e.context("Invalid $project"))?
        }
        "$unset" => {
            Transform::unset(unset_names(value)?).map_err(|e| e.context("Invalid $unset"))?
        }
        _ => {
            let RawBsonRef::Document(spec) = value else {
                return Err(Error::location(
                    40272,
                    format!(
                        "{name} specification stage must be an object, got {}",
                        bsonval::types::name_of(value)
                    ),
                ));
            };
            Transform::add_fields(spec, &ctx.parse.names)
                .map_err(|e| e.context(&format!("Invalid {name}")))?
        }
    };
    Ok(PipelineStage::Transform(Arc::new(TransformStage {
        name,
        transform: transform.optimize(),
        spec: value.into(),
    })))
}

impl StageSpec for TransformStage {
    fn name(&self) -> &'static str {
        self.name
    }

    fn argument(&self) -> RawBson {
        self.spec.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let expressions = self.transform.expressions().into_iter().map(Part::Expression);
        expressions.chain(self.transform.kept_paths().into_iter().map(Part::Field)).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(TransformSource::new(run, self)))
    }

    fn output(&self) -> Output {
        if self.transform.mode() == Mode::Include { Output::Reshaped } else { Output::Passing }
    }

    fn is_one_to_one(&self) -> bool {
        true
    }

    fn lets_match_pass(&self, paths: &BTreeSet<String>) -> bool {
        if !self.transform.changed_paths().iter().all(|changed| all_apart(paths, changed)) {
            return false;
        }
        // Only whole top-level fields are certain to read the same after an inclusion.
        self.transform.mode() != Mode::Include || {
            let kept = self.transform.kept_paths();
            paths.iter().all(|path| kept.contains(path.split('.').next().unwrap_or(path)))
        }
    }
}

fn unset_names(value: RawBsonRef<'_>) -> Result<Vec<&str>> {
    let names = match value {
        RawBsonRef::String(name) => vec![name],
        RawBsonRef::Array(array) => {
            let mut names = Vec::new();
            for element in array {
                let RawBsonRef::String(name) = element? else {
                    return Err(Error::location(
                        31120,
                        "$unset specification must be a string or an array containing only string \
                         values",
                    ));
                };
                names.push(name);
            }
            names
        }
        _ => {
            return Err(Error::location(
                31002,
                "$unset specification must be a string or an array",
            ));
        }
    };
    if names.is_empty() {
        return Err(Error::location(
            31119,
            "$unset specification must be a string or an array with at least one field",
        ));
    }
    Ok(names)
}

pub(crate) struct TransformSource {
    run: StageInput,
    stage: Arc<TransformStage>,
}

impl TransformSource {
    pub(crate) fn new(run: StageInput, stage: Arc<TransformStage>) -> Self {
        Self { run, stage }
    }
}

impl DocumentSource for TransformSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        match self.run.input.next()? {
            Some(document) => self.stage.transform.apply(&document, &self.run.variables).map(Some),
            None => Ok(None),
        }
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
