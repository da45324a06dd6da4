//! Updates that are written as one message, without reading the document; inserts that do not look whether there is one.
//!
//! Always true: nothing beside the document depends on what such an update makes of it: no index, no rule of the
//! collection, and nobody who is told of changes.

use crate::catalog::Catalog;
use crate::data::txn::Txn;
use crate::metadata::collection::Collection;
use bson::raw::{RawBsonRef, RawDocument};
use bsonval::Path;
use engine::DictionaryId;
use errors::Result;
use indexkeys::PrimaryKey;
use std::sync::Arc;

impl Collection {
    /// Whether what stands beside its documents is the same whatever an update does to these paths.
    pub fn takes_fast_updates(&self, touched: &[Path]) -> bool {
        let options = &self.options;
        let moves = |key: &PrimaryKey| key.depends_on(touched);
        !options.primary_key.as_deref().is_some_and(moves)
            && self.order.is_none()
            && self.collation().is_none()
            && !self.is_partitioned()
            && options.capped.is_none()
            && options.time_series.is_none()
            && !options.images
            && !options.validation.has_rule()
            && !self.namespace.is_system()
            && !matches!(self.namespace.database(), "admin" | "config" | "local")
            && touched.iter().all(|path| path.first() != "_id")
            && !self.indexes.iter().any(|index| index.keys.depends_on(touched))
    }

    /// The key under which the document stands, if there is one, that has these values in the fields of the primary
    /// key, of which the last is `_id`.
    fn record_key_of_values(&self, values: &[RawBsonRef<'_>]) -> Result<Vec<u8>> {
        let (id, leading) = values.split_last().expect("a primary key ends in _id");
        match &self.options.primary_key {
            None => self.id_key(*id),
            Some(key) => key.record_key_of_values(leading, *id, self.collation()),
        }
    }
}

impl Catalog {
    /// Whether updates may be fast ones at all: not where commits tell what they did.
    pub fn may_update_fast(&self) -> bool {
        !self.tells() && self.engine().options().updates.is_some()
    }

    /// The name of the collection whose documents stand in a dictionary. Looks at all collections.
    pub fn name_of(&self, dictionary: DictionaryId) -> Option<String> {
        let namespaces = self.namespaces.read();
        let found = namespaces.values().find(|collection| collection.primary == dictionary);
        found.map(|collection| collection.namespace.as_str().to_owned())
    }
}

impl Txn {
    /// Has the document with these values in the fields of the primary key changed as the engine's rules say of
    /// `argument`, if there is one, or, where it `upserts`, made, without reading it. False, and nothing was done,
    /// where that is not possible.
    pub fn update_fast(
        &mut self,
        collection: &Arc<Collection>,
        values: &[RawBsonRef<'_>],
        touched: &[Path],
        (argument, upserts): (&[u8], bool),
    ) -> Result<bool> {
        let may = self.catalog.may_update_fast()
            && self.notes.is_none()
            && collection.shared.changes().is_none()
            && collection.takes_fast_updates(touched)
            && argument.len() <= engine::MAX_UPDATE_BYTES
            && (!upserts || collection.indexes.is_empty());
        if !may {
            return Ok(false);
        }
        let key = collection.record_key_of_values(values)?;
        if upserts {
            self.note_uncounted(collection)?;
        }
        let updated = self.engine.update(collection.primary, &key, argument);
        updated.map_err(|error| self.failed(error))?;
        Ok(true)
    }

    /// Inserts a document of which the client says that no other has its `_id`: nobody looks, and one that has it is
    /// replaced. Where anything depends on what was replaced, as [`Txn::insert_document`]. From then on documents
    /// are counted by walking over them: what was replaced was counted before.
    pub fn insert_unchecked(
        &mut self,
        collection: &Arc<Collection>,
        document: &RawDocument,
    ) -> Result<()> {
        let may = self.catalog.may_update_fast()
            && self.notes.is_none()
            && self.load.is_none()
            && collection.shared.changes().is_none()
            && collection.takes_fast_updates(&[])
            && collection.indexes.is_empty();
        if !may {
            return self.insert_document(collection, document);
        }
        let key = collection.record_key(document)?;
        self.note_uncounted(collection)?;
        let put = self.engine.put(collection.primary, &key, document.as_bytes());
        put.map_err(|error| self.failed(error))?;
        self.write_inserted(collection, document, &key, &[])
    }
}
