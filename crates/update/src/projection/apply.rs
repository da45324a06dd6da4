//! Writing the projected document.
//!
//! Always true: the walk recurses once per nesting level of the document, which is bounded when the
//! document is accepted.

use super::{Computed, Field, Level, Meta, Metadata, Mode, Projection};
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bsonval::raw::{self, Element, Writer};
use bsonval::text_score;
use errors::Result;
use std::collections::BTreeSet;

pub(super) fn apply(
    projection: &Projection,
    document: &RawDocument,
    meta: &Metadata,
) -> Result<RawDocumentBuf> {
    let mut walk = Walk {
        projection,
        root: document,
        meta,
        out: Writer::with_capacity(document.as_bytes().len()),
    };
    let open = walk.out.begin();
    walk.level(&projection.root, Some(document))?;
    walk.out.end(open);
    walk.out.finish()
}

struct Walk<'w> {
    projection: &'w Projection,
    root: &'w RawDocument,
    meta: &'w Metadata,
    out: Writer,
}

impl Walk<'_> {
    /// Writes the fields of a document, then the computed ones.
    fn level(&mut self, level: &Level, document: Option<&RawDocument>) -> Result<()> {
        let computes = level.computes();
        let mut seen = BTreeSet::new();
        if let Some(document) = document {
            for element in raw::elements(document) {
                let element = element?;
                match level.get(element.name()) {
                    // What carries the score is no field of the document.
                    None if element.name() == text_score::FIELD => {}
                    None if self.projection.mode == Mode::Exclude => self.out.element(&element),
                    Some(Field::Included) => self.out.element(&element),
                    None | Some(Field::Excluded | Field::Computed(_)) => {}
                    Some(Field::Below(below)) => {
                        self.below(below, &element)?;
                        if computes {
                            seen.insert(element.name());
                        }
                    }
                }
            }
        }
        if computes {
            for (name, field) in &level.fields {
                match field {
                    Field::Computed(computed) => self.computed(name, computed)?,
                    Field::Below(below) if below.computes() && !seen.contains(&**name) => {
                        self.made(name, below)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A document that holds nothing but computed fields.
    fn made(&mut self, name: &str, level: &Level) -> Result<()> {
        let open = self.out.begin_document(name);
        self.level(level, None)?;
        self.out.end(open);
        Ok(())
    }

    fn below(&mut self, level: &Level, element: &Element<'_>) -> Result<()> {
        match element.value()? {
            RawBsonRef::Document(document) => {
                let open = self.out.begin_document(element.name());
                self.level(level, Some(document))?;
                self.out.end(open);
            }
            RawBsonRef::Array(array) => {
                let open = self.out.begin_array(element.name());
                self.array(level, array)?;
                self.out.end(open);
            }
            _ if level.computes() => self.made(element.name(), level)?,
            _ if self.projection.mode == Mode::Exclude => self.out.element(element),
            _ => {}
        }
        Ok(())
    }

    /// Each element as the field itself would be; what is left out closes up.
    fn array(&mut self, level: &Level, array: &RawArray) -> Result<()> {
        let mut position = 0;
        for element in raw::array_elements(array) {
            let element = element?;
            let name = position.to_string();
            match element.value()? {
                RawBsonRef::Document(document) => {
                    let open = self.out.begin_document(&name);
                    self.level(level, Some(document))?;
                    self.out.end(open);
                }
                RawBsonRef::Array(inner) => {
                    let open = self.out.begin_array(&name);
                    self.array(level, inner)?;
                    self.out.end(open);
                }
                _ if level.computes() => self.made(&name, level)?,
                _ if self.projection.mode == Mode::Exclude => {
                    self.out.element_as(&name, &element);
                }
                _ => continue,
            }
            position += 1;
        }
        Ok(())
    }

    fn computed(&mut self, name: &str, computed: &Computed) -> Result<()> {
        match computed {
            Computed::Expression(expression) => {
                let value = expression.evaluate(self.root, &self.projection.variables)?;
                if let Some(value) = value.get() {
                    self.out.value(name, value);
                }
            }
            Computed::ElemMatch(path, filter) => {
                let Some(RawBsonRef::Array(array)) = path.get(self.root)? else { return Ok(()) };
                for element in raw::array_elements(array) {
                    let element = element?;
                    if filter.matches_value(element.value()?)? {
                        let open = self.out.begin_array(name);
                        self.out.element_as("0", &element);
                        self.out.end(open);
                        break;
                    }
                }
            }
            Computed::Meta(which) => {
                let value = match which {
                    Meta::RecordId => self.meta.record_id.as_ref(),
                    Meta::SortKey => self.meta.sort_key.as_ref(),
                    Meta::IndexKey => self.meta.index_key.as_ref(),
                    Meta::GeoDistance => self.meta.near.as_ref().map(|(distance, _)| distance),
                    Meta::GeoPoint => self.meta.near.as_ref().map(|(_, point)| point),
                    Meta::TextScore => {
                        if let Some(score) = text_score::of(self.root) {
                            self.out.value(name, RawBsonRef::Double(score));
                        }
                        return Ok(());
                    }
                };
                if let Some(value) = value {
                    self.out.value(name, RawBson::as_raw_bson_ref(value));
                }
            }
        }
        Ok(())
    }
}

/// Whether an element type can hold fields.
pub(super) fn is_container(kind: ElementType) -> bool {
    matches!(kind, ElementType::EmbeddedDocument | ElementType::Array)
}
