//! Where documents come from: one pulled at a time.

use bson::raw::RawDocumentBuf;
use errors::Result;
use std::sync::Arc;

/// A stream of documents.
pub trait DocumentSource: Send {
    /// The next document, or `None` at the end (and ever after).
    fn next(&mut self) -> Result<Option<RawDocumentBuf>>;

    /// The consumer pauses (a batch went out to the client): let go of locks, pins and the like
    /// until the next pull.
    fn park(&mut self) {}
}

impl DocumentSource for Box<dyn DocumentSource> {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        (**self).next()
    }

    fn park(&mut self) {
        (**self).park();
    }
}

/// No documents.
#[derive(Debug, Default)]
pub struct EmptySource;

impl DocumentSource for EmptySource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        Ok(None)
    }
}

/// Documents from memory.
#[derive(Debug)]
pub struct VecSource(std::vec::IntoIter<RawDocumentBuf>);

impl VecSource {
    /// Yields these.
    pub fn new(documents: Vec<RawDocumentBuf>) -> Self {
        Self(documents.into_iter())
    }
}

impl DocumentSource for VecSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        limits::poll()?;
        Ok(self.0.next())
    }
}

/// Documents that several readers share, a copy of each at a time.
pub(crate) struct SharedSource {
    documents: Arc<[RawDocumentBuf]>,
    at: usize,
}

impl SharedSource {
    pub(crate) fn new(documents: Arc<[RawDocumentBuf]>) -> Self {
        Self { documents, at: 0 }
    }
}

impl DocumentSource for SharedSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        limits::poll()?;
        let document = self.documents.get(self.at).cloned();
        self.at += 1;
        Ok(document)
    }
}
