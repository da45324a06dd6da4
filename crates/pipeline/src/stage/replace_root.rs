//! `$replaceRoot` and `$replaceWith`.

use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::{
    Computed, Output, Part, PipelineStage, StageInput, StageSpec, check_document_size, object,
};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::text_score;
use errors::{Error, Result};
use expr::agg::{Expression, MEASURED, Variables, value_to_string};
use std::sync::Arc;

/// A parsed `$replaceRoot`: the new root.
#[derive(Clone, Debug)]
pub struct ReplaceRoot(pub Computed);

pub(crate) fn parse(
    name: &str,
    value: RawBsonRef<'_>,
    ctx: &PipelineContext,
) -> Result<PipelineStage> {
    let root = if name == "$replaceWith" {
        value
    } else {
        let spec = object(value, |kind| {
            Error::location(
                40229,
                format!("expected an object as specification for $replaceRoot stage, got {kind}"),
            )
        })?;
        let mut root = None;
        for element in spec.iter_elements() {
            let element = element?;
            if element.key().as_str() != "newRoot" {
                return Err(Error::location(
                    40415,
                    format!(
                        "BSON field '$replaceRoot.{}' is an unknown field.",
                        element.key().as_str()
                    ),
                ));
            }
            root = Some(element.value()?);
        }
        root.ok_or_else(|| {
            Error::location(
                40414,
                "BSON field '$replaceRoot.newRoot' is missing but a required field",
            )
        })?
    };
    Ok(PipelineStage::ReplaceRoot(Arc::new(ReplaceRoot(Computed::parse(root, ctx)?))))
}

impl StageSpec for ReplaceRoot {
    fn name(&self) -> &'static str {
        "$replaceRoot"
    }

    fn argument(&self) -> RawBson {
        let root = self.0.source.as_raw_bson_ref();
        RawBson::Document(bsonval::raw::document_of("newRoot", root))
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::Expression(&self.0.expression)]
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(ReplaceRootSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Reshaped
    }

    fn is_one_to_one(&self) -> bool {
        true
    }
}

/// The new root of one document.
pub(crate) fn replace(
    root: &Expression,
    document: &RawDocument,
    variables: &Variables,
) -> Result<RawDocumentBuf> {
    let value = root.evaluate(document, variables)?;
    let kind = value.type_name();
    let shown = |value: Option<RawBsonRef<'_>>| value.map_or("MISSING".to_owned(), value_to_string);
    match value.into_owned() {
        Some(RawBson::Document(new)) => {
            check_document_size(new.as_bytes().len())?;
            Ok(new)
        }
        other => Err(Error::location(
            40228,
            format!(
                "'newRoot' expression must evaluate to an object, but resulting value was: {}. \
                 Type of resulting value: '{kind}'. Input document: {}",
                shown(other.as_ref().map(RawBson::as_raw_bson_ref)),
                value_to_string(RawBsonRef::Document(document))
            ),
        )),
    }
}

pub(crate) struct ReplaceRootSource {
    run: StageInput,
    root: Arc<ReplaceRoot>,
}

impl ReplaceRootSource {
    pub(crate) fn new(run: StageInput, root: Arc<ReplaceRoot>) -> Self {
        Self { run, root }
    }
}

impl DocumentSource for ReplaceRootSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        match self.run.input.next()? {
            Some(document) => {
                let mut new = replace(&self.root.0.expression, &document, &self.run.variables)?;
                for name in MEASURED {
                    if let (Some(measured), None) = (document.get(name)?, new.get(name)?) {
                        new.append(<&bson::raw::CStr>::try_from(name)?, measured);
                    }
                }
                Ok(Some(text_score::carry(&document, new)))
            }
            None => Ok(None),
        }
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
