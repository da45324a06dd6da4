//! Dictionaries of records that are no documents: the floors above keep them, and write to them in
//! the transactions that the records are about.
//!
//! Always true: whoever keeps such a dictionary sees to it that of each key there is one writer at a
//! time, so writes take no lock and cannot conflict.

use crate::catalog::Catalog;
use crate::data::txn::Txn;
use crate::failure::from_engine;
use engine::{DictionaryId, DictionaryOptions, Durability, TxnOptions};
use errors::{Code, Error, Result};

/// Where `ROOT` names the dictionary of the sessions' records.
pub const SESSION_RECORDS: &[u8] = b"s";

impl Catalog {
    /// The dictionary that `ROOT` names under `key`, where it exists. The keys in use are those of
    /// `docs/formats/catalog.md`.
    pub fn find_side_dictionary(&self, key: &'static [u8]) -> Result<Option<DictionaryId>> {
        let root = self.engine().snapshot();
        let stored = root.get(DictionaryId::ROOT, key).map_err(from_engine)?;
        let read = |stored: engine::Value| {
            // Made anew, it would forget what it was to remember.
            let id = stored[..].try_into().map_err(|_| {
                Error::new(Code::INTERNAL_ERROR, "damaged name of a dictionary in the catalog")
            })?;
            Ok(DictionaryId(u64::from_le_bytes(id)))
        };
        stored.map(read).transpose()
    }

    /// The dictionary that `ROOT` names under `key`, made where it does not exist yet.
    pub fn side_dictionary(&self, key: &'static [u8]) -> Result<DictionaryId> {
        if let Some(known) = self.find_side_dictionary(key)? {
            return Ok(known);
        }
        let mut txn = self.engine().begin(TxnOptions::default());
        txn.allow_within_red_zone();
        let made = txn.create_dictionary(DictionaryOptions::default()).map_err(from_engine)?;
        txn.put(DictionaryId::ROOT, key, &made.0.to_le_bytes()).map_err(from_engine)?;
        txn.commit(Durability::Buffered).map_err(from_engine)?.visible();
        Ok(made)
    }
}

impl Txn {
    /// Writes to a side dictionary as part of this transaction; `None` deletes.
    pub fn write_aside(
        &mut self,
        dictionary: DictionaryId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.engine.write_covered(dictionary, key, value).map_err(from_engine)
    }
}
