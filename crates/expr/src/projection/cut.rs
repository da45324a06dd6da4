//! `$slice` and the positional `.$`: parts of arrays.

use super::apply::is_container;
use super::{Cut, How};
use crate::filter::MatchDetails;
use crate::path::Component;
use crate::raw::{self, Element, Writer};
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Error, Result};

/// The document with one array cut.
pub(super) fn apply(
    cut: &Cut,
    document: &RawDocument,
    details: Option<MatchDetails>,
) -> Result<RawDocumentBuf> {
    let mut walk =
        Walk { how: cut.how, details, out: Writer::with_capacity(document.as_bytes().len()) };
    let open = walk.out.begin();
    walk.document(document, cut.path.components())?;
    walk.out.end(open);
    walk.out.finish()
}

struct Walk {
    how: How,
    details: Option<MatchDetails>,
    out: Writer,
}

impl Walk {
    fn document(&mut self, document: &RawDocument, path: &[Component]) -> Result<()> {
        let Some((first, rest)) = path.split_first() else { return Ok(()) };
        for element in raw::elements(document) {
            let element = element?;
            if element.name() == first.name() && is_container(element.element_type()) {
                self.field(element.name(), &element, rest)?;
            } else {
                self.out.element(&element);
            }
        }
        Ok(())
    }

    fn field(&mut self, name: &str, element: &Element<'_>, rest: &[Component]) -> Result<()> {
        match element.value()? {
            RawBsonRef::Document(inner) if !rest.is_empty() => {
                let open = self.out.begin_document(name);
                self.document(inner, rest)?;
                self.out.end(open);
            }
            RawBsonRef::Array(array) => {
                let open = self.out.begin_array(name);
                match self.how {
                    // The first array on the path is the one whose element matched.
                    How::Positional => self.matched(array)?,
                    How::Slice { skip, limit } if rest.is_empty() => {
                        self.slice(array, skip, limit)?;
                    }
                    How::Slice { .. } => self.each(array, rest)?,
                }
                self.out.end(open);
            }
            _ => self.out.element_as(name, element),
        }
        Ok(())
    }

    /// The array lies on the way: its documents are cut.
    fn each(&mut self, array: &RawArray, rest: &[Component]) -> Result<()> {
        for element in raw::array_elements(array) {
            let element = element?;
            if let RawBsonRef::Document(inner) = element.value()? {
                let open = self.out.begin_document(element.name());
                self.document(inner, rest)?;
                self.out.end(open);
            } else {
                self.out.element(&element);
            }
        }
        Ok(())
    }

    fn slice(&mut self, array: &RawArray, skip: Option<i64>, limit: i64) -> Result<()> {
        let length = array.iter_elements().count() as i64;
        let (start, count) = match skip {
            None if limit < 0 => ((length.saturating_add(limit)).max(0), length),
            None => (0, limit),
            Some(skip) if skip < 0 => ((length.saturating_add(skip)).max(0), limit),
            Some(skip) => (skip, limit),
        };
        let chosen = raw::array_elements(array).skip(start as usize).take(count as usize);
        for (position, element) in chosen.enumerate() {
            self.out.element_as(&position.to_string(), &element?);
        }
        Ok(())
    }

    fn matched(&mut self, array: &RawArray) -> Result<()> {
        let index = self.details.and_then(|details| details.array_index).ok_or_else(|| {
            Error::location(
                51246,
                "Executor error during find command :: caused by :: positional operator '.$' \
                 couldn't find a matching element in the array",
            )
        })?;
        match raw::array_elements(array).nth(index) {
            Some(element) => {
                self.out.element_as("0", &element?);
                Ok(())
            }
            None => Err(Error::location(
                51247,
                "Executor error during find command :: caused by :: positional operator '.$' \
                 element mismatch",
            )),
        }
    }
}
