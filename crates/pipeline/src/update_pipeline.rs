//! Updates written as a pipeline: `[{$set: …}, {$unset: …}]` on one document.

use crate::env::CollectionName;
use crate::parse::PipelineContext;
use crate::stage::{self, PipelineStage, replace_root};
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Code, Error, Result};
use expr::agg::Variables;
use std::sync::Arc;
use update::PipelineUpdate;

/// A parsed pipeline update.
#[derive(Clone, Debug)]
pub struct UpdatePipeline {
    stages: Vec<PipelineStage>,
    variables: Arc<Variables>,
}

impl UpdatePipeline {
    /// Parses the array; only stages that make one document of one are allowed.
    pub fn parse(stages: &RawArray, ctx: &matcher::ParseContext) -> Result<Self> {
        let inner = PipelineContext::new(&CollectionName::new("", ""), ctx.clone());
        let mut parsed = Vec::new();
        for element in stages {
            let RawBsonRef::Document(spec) = element? else {
                return Err(Error::type_mismatch(
                    "Each element of the 'pipeline' array must be an object",
                ));
            };
            let before = parsed.len();
            stage::parse(spec, &inner, &mut parsed)?;
            let allowed = parsed[before..].iter().all(|stage| {
                matches!(stage, PipelineStage::Transform(_) | PipelineStage::ReplaceRoot(_))
            });
            if !allowed {
                let name = bsonval::raw::first_name(spec).unwrap_or("");
                return Err(Error::new(
                    Code::INVALID_OPTIONS,
                    format!("{name} is not allowed to be used within an update"),
                ));
            }
        }
        Ok(Self { stages: parsed, variables: Arc::clone(&ctx.variables) })
    }

    /// The document after the stages, with other values for the variables.
    pub fn apply_with(
        &self,
        document: &RawDocument,
        variables: &Variables,
    ) -> Result<RawDocumentBuf> {
        let mut current: Option<RawDocumentBuf> = None;
        for stage in &self.stages {
            let input = current.as_deref().unwrap_or(document);
            let made = match stage {
                PipelineStage::Transform(stage) => stage.transform.apply(input, variables)?,
                PipelineStage::ReplaceRoot(root) => {
                    replace_root::replace(&root.0.expression, input, variables)?
                }
                // `parse` lets nothing else in.
                _ => input.to_owned(),
            };
            current = Some(made);
        }
        Ok(current.unwrap_or_else(|| document.to_owned()))
    }
}

impl PipelineUpdate for UpdatePipeline {
    fn apply(&self, document: &RawDocument) -> Result<RawDocumentBuf> {
        self.apply_with(document, &self.variables)
    }
}
