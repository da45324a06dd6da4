//! The server's own documents (`local.system.replset`, `config.settings`): read and replaced whole.
//!
//! Always true: they go through the same transactions as everybody's, only past the check that
//! keeps clients out of `system.` collections.

use crate::catalog::Catalog;
use crate::data::txn::TxnKind;
use crate::metadata::collection::Collection;
use crate::metadata::namespace::Namespace;
use bson::raw::{RawDocument, RawDocumentBuf};
use engine::{Direction, KeyRange};
use errors::{Code, Error, Result};
use std::sync::Arc;

impl Catalog {
    /// The first document of a collection; `None` where there is none.
    pub fn system_document(&self, namespace: &Namespace) -> Result<Option<RawDocumentBuf>> {
        let Some(collection) = self.collection(namespace) else { return Ok(None) };
        let snapshot = self.snapshot();
        let mut cursor = snapshot
            .cursor(collection.primary, KeyRange::all(), Direction::Forward)
            .map_err(crate::from_engine)?;
        match cursor.next().map_err(crate::from_engine)? {
            Some((_, document)) => Ok(Some(RawDocument::from_bytes(document)?.to_owned())),
            None => Ok(None),
        }
    }

    /// All documents of a small collection; none where it is missing.
    pub fn system_documents(&self, namespace: &Namespace) -> Result<Vec<RawDocumentBuf>> {
        let Some(collection) = self.collection(namespace) else { return Ok(Vec::new()) };
        let snapshot = self.snapshot();
        let mut cursor = snapshot
            .cursor(collection.primary, KeyRange::all(), Direction::Forward)
            .map_err(crate::from_engine)?;
        let mut all = Vec::new();
        while let Some((_, document)) = cursor.next().map_err(crate::from_engine)? {
            all.push(RawDocument::from_bytes(document)?.to_owned());
        }
        Ok(all)
    }

    /// Reads all of a collection's documents, or all entries of its indexes, so that they lie in
    /// memory as far as there is room. Says how many dictionaries were read.
    pub fn touch(
        &self,
        collection: &Collection,
        documents: bool,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<usize> {
        /// Entries between two looks whether to go on.
        const LOOK: usize = 1024;
        let places = 0..collection.partitions().len().max(1);
        let of_place = |place| -> Vec<_> {
            let indexes = collection.indexes().iter();
            let indexes = indexes.map(|index| collection.index_at(index, place));
            if documents { vec![collection.primary_at(place)] } else { indexes.collect() }
        };
        let dictionaries: Vec<_> = places.flat_map(of_place).collect();
        let snapshot = self.snapshot();
        for dictionary in &dictionaries {
            let mut cursor = snapshot
                .cursor(*dictionary, KeyRange::all(), Direction::Forward)
                .map_err(crate::from_engine)?;
            let mut read = 0;
            while cursor.next().map_err(crate::from_engine)?.is_some() {
                read += 1;
                if read % LOOK == 0 {
                    check()?;
                }
            }
        }
        Ok(dictionaries.len())
    }

    /// Puts a document in the place of the one with its `_id`, making the collection where it is
    /// missing. [`Catalog::sync`] makes it durable; where commits are held back it is visible after [`Catalog::settle`].
    pub fn put_system_document(
        self: &Arc<Self>,
        namespace: &Namespace,
        document: &RawDocument,
    ) -> Result<()> {
        let id = document
            .get("_id")?
            .ok_or_else(|| Error::new(Code::INTERNAL_ERROR, "a system document has an _id"))?;
        loop {
            self.ensure_system_collection(namespace)?;
            let mut txn = self.begin(TxnKind::Statement);
            let Some(collection) = txn.open_for_write(namespace)? else { continue };
            let key = collection.id_key(id)?;
            match txn.get_for_update(&collection, &key)? {
                Some(old) => {
                    let old = RawDocument::from_bytes(&old[..])?;
                    txn.replace_document(&collection, &key, old, document)?;
                }
                None => txn.insert_document(&collection, document)?,
            }
            return txn.commit().map(drop);
        }
    }
}
