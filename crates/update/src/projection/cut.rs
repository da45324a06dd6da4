//! `$slice` and the positional `.$`: parts of arrays.

use super::apply::is_container;
use super::{Cuts, How};
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::raw::{self, Element, Writer};
use errors::{Error, Result};
use matcher::MatchDetails;

/// The document with its arrays cut.
pub(super) fn apply(
    cuts: &Cuts,
    document: &RawDocument,
    details: Option<MatchDetails>,
) -> Result<RawDocumentBuf> {
    let mut walk = Walk { details, out: Writer::with_capacity(document.as_bytes().len()) };
    let open = walk.out.begin();
    walk.document(document, cuts)?;
    walk.out.end(open);
    walk.out.finish()
}

struct Walk {
    details: Option<MatchDetails>,
    out: Writer,
}

impl Walk {
    fn document(&mut self, document: &RawDocument, cuts: &Cuts) -> Result<()> {
        for element in raw::elements(document) {
            let element = element?;
            match cuts.below.get(element.name()) {
                Some(below) if is_container(element.element_type()) => {
                    self.field(&element, below)?;
                }
                _ => self.out.element(&element),
            }
        }
        Ok(())
    }

    fn field(&mut self, element: &Element<'_>, cuts: &Cuts) -> Result<()> {
        match element.value()? {
            RawBsonRef::Document(inner) => {
                let open = self.out.begin_document(element.name());
                self.document(inner, cuts)?;
                self.out.end(open);
            }
            RawBsonRef::Array(array) => {
                let open = self.out.begin_array(element.name());
                match cuts.how {
                    Some(How::Slice { skip, limit }) => self.slice(array, skip, limit)?,
                    // The first array on the path is the one whose element matched.
                    _ if cuts.is_positional() => self.matched(array)?,
                    _ => self.each(array, cuts)?,
                }
                self.out.end(open);
            }
            _ => self.out.element(element),
        }
        Ok(())
    }

    /// The array lies on the way: its documents are cut.
    fn each(&mut self, array: &RawArray, cuts: &Cuts) -> Result<()> {
        for element in raw::array_elements(array) {
            let element = element?;
            if let RawBsonRef::Document(inner) = element.value()? {
                let open = self.out.begin_document(element.name());
                self.document(inner, cuts)?;
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
