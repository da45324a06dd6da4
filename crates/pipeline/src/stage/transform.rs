//! `$project $addFields $set $unset`.

use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::{PipelineStage, Run};
use crate::transform::Transform;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use errors::{Error, Result};
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
    run: Run,
    stage: Arc<TransformStage>,
}

impl TransformSource {
    pub(crate) fn new(run: Run, stage: Arc<TransformStage>) -> Self {
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
