//! What a serializable reader relies on beside the documents: that a collection is not there, that
//! an index has no arrays where its plan says so. Both are told by rows of `ROOT`, which whoever
//! changes them locks; so the reader locks the row.

use crate::data::txn::Txn;
use crate::failure::from_engine;
use crate::metadata::collection::Index;
use crate::metadata::namespace::Namespace;
use crate::metadata::records;
use engine::{DictionaryId, Snapshot, Value};
use errors::{Code, Error, Result};

/// Who reads: a view, or the transaction itself.
#[derive(Clone, Copy)]
pub enum Reader<'a> {
    /// A view; it may be a serializable transaction's.
    View(&'a Snapshot),
    /// A transaction.
    Txn(&'a Txn),
}

impl Reader<'_> {
    fn locks(self) -> bool {
        match self {
            Self::View(view) => view.locks(),
            Self::Txn(txn) => txn.locks_reads(),
        }
    }

    fn get(self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            Self::View(view) => view.get(DictionaryId::ROOT, key).map_err(from_engine),
            Self::Txn(txn) => txn.get(DictionaryId::ROOT, key),
        }
    }

    /// The collection is not there; for a serializable reader it will not come either. Fails with
    /// `WriteConflict` where it came just now. May wait.
    pub fn hold_absence(self, namespace: &Namespace) -> Result<()> {
        if !self.locks() || self.get(&records::namespace_key(namespace))?.is_none() {
            return Ok(());
        }
        Err(changed())
    }

    /// The plan takes the parts in `planned` for multikey; for a serializable reader no others
    /// become so. Fails with `WriteConflict` where one has just now. May wait.
    pub fn hold_shape(self, index: &Index, planned: u32) -> Result<()> {
        if !self.locks() {
            return Ok(());
        }
        let row = self.get(&records::multikey_key(index.dictionary))?;
        let stored = row.map_or(0, |value| records::read_multikey(&value));
        if stored & !planned == 0 { Ok(()) } else { Err(changed()) }
    }
}

fn changed() -> Error {
    Error::new(Code::WRITE_CONFLICT, "the metadata changed while the query was planned")
}
