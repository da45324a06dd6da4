//! `$redact`: keeps, prunes or descends into each level of a document.

use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::{Computed, Part, PipelineStage, StageInput, StageSpec, check_depth};
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::{self, Writer};
use errors::{Error, Result};
use expr::agg::value_to_string;
use std::sync::Arc;

/// A parsed `$redact`: the rule.
#[derive(Clone, Debug)]
struct Redact(Computed);

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    Computed::parse(value, ctx).map(|rule| PipelineStage::other(Redact(rule)))
}

impl StageSpec for Redact {
    fn name(&self) -> &'static str {
        "$redact"
    }

    fn argument(&self) -> RawBson {
        self.0.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::Expression(&self.0.expression)]
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(RedactSource::new(run, self)))
    }
}

struct RedactSource {
    run: StageInput,
    rule: Arc<Redact>,
}

impl RedactSource {
    fn new(run: StageInput, rule: Arc<Redact>) -> Self {
        Self { run, rule }
    }

    /// Writes what is left of a level; `false` where it is pruned.
    fn level(
        &self,
        root: &RawDocument,
        level: &RawDocument,
        name: Option<&str>,
        depth: usize,
        out: &mut Writer,
    ) -> Result<bool> {
        check_depth(depth)?;
        let verdict = self.rule.0.expression.evaluate_in(root, level, &self.run.variables)?;
        let descend = match verdict.as_str() {
            Some("prune") => return Ok(false),
            Some("keep") => false,
            Some("descend") => true,
            _ => {
                return Err(Error::location(
                    17053,
                    format!(
                        "$redact's expression should not return anything aside from the variables \
                         $$KEEP, $$DESCEND, and $$PRUNE, but returned {}",
                        verdict.get().map_or("missing".to_owned(), value_to_string)
                    ),
                ));
            }
        };
        let open = match name {
            Some(name) => out.begin_document(name),
            None => out.begin(),
        };
        for element in raw::elements(level) {
            let element = element?;
            match element.value()? {
                RawBsonRef::Document(inner) if descend => {
                    self.level(root, inner, Some(element.name()), depth + 1, out)?;
                }
                RawBsonRef::Array(array) if descend => {
                    self.array(root, array, element.name(), depth + 1, out)?;
                }
                _ => out.element(&element),
            }
        }
        out.end(open);
        Ok(true)
    }

    fn array(
        &self,
        root: &RawDocument,
        array: &RawArray,
        name: &str,
        depth: usize,
        out: &mut Writer,
    ) -> Result<()> {
        check_depth(depth)?;
        let open = out.begin_array(name);
        let mut at = 0_usize;
        for element in raw::values(array) {
            let index = at.to_string();
            let kept = match element? {
                RawBsonRef::Document(inner) => {
                    self.level(root, inner, Some(&index), depth + 1, out)?
                }
                RawBsonRef::Array(inner) => {
                    self.array(root, inner, &index, depth + 1, out)?;
                    true
                }
                scalar => {
                    out.value(&index, scalar);
                    true
                }
            };
            at += usize::from(kept);
        }
        out.end(open);
        Ok(())
    }
}

impl DocumentSource for RedactSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let mut passed = 0_u32;
        while let Some(document) = self.run.input.next()? {
            let mut out = Writer::with_capacity(document.as_bytes().len());
            if self.level(&document, &document, None, 0, &mut out)? {
                return out.finish().map(Some);
            }
            passed += 1;
            if passed.is_multiple_of(128) {
                self.run.env.check_interrupt()?;
            }
        }
        Ok(None)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}
