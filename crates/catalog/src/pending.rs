//! Collections and indexes that a client's transaction makes: others see them from its commit on.
//!
//! From → to: the name is locked in `ROOT`, so that of two transactions one conflicts; records and
//! dictionaries are written like any document; the commit publishes the collections in the map
//! while their names are still locked. An abort leaves nothing.

use crate::build::{CreatedIndexes, missing_indexes, with_indexes};
use crate::collection::{Collection, Shared};
use crate::ddl::{exists, write_record};
use crate::failure::from_engine;
use crate::index::IndexSpec;
use crate::metadata;
use crate::namespace::Namespace;
use crate::options::CollectionOptions;
use crate::txn::Txn;
use engine::{DictionaryId, Timestamp};
use errors::{Code, Error, Result};
use std::sync::Arc;

impl Txn {
    /// The collection as this transaction sees it: one of its own, else a committed one.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let own = self.created.iter().find(|own| own.namespace == *namespace);
        own.cloned().or_else(|| self.catalog.collection(namespace))
    }

    /// The collections that it has created.
    pub fn created(&self) -> &[Arc<Collection>] {
        &self.created
    }

    /// Makes the collection where it does not exist: as part of a client's transaction, at once
    /// for a statement of its own.
    pub fn ensure_collection(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if !self.is_clients() {
            return self.catalog.ensure_collection(namespace);
        }
        match self.collection(namespace) {
            Some(existing) => Ok(existing),
            None => self.create_collection(namespace, &CollectionOptions::default()),
        }
    }

    /// Creates a collection as part of this transaction. Fails with `NamespaceExists` where the
    /// name is taken.
    pub fn create_collection(
        &mut self,
        namespace: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
        namespace.check_writable()?;
        if options.view.is_some() {
            return Err(Error::new(
                Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                "Cannot create a view in a multi-document transaction.",
            ));
        }
        if let Some(existing) = self.collection(namespace) {
            return Err(exists(namespace, &existing));
        }
        self.catalog.check_case(namespace.database())?;
        options.validation.check_place(namespace)?;
        let locked = self.engine.lock(DictionaryId::ROOT, &metadata::namespace_key(namespace));
        locked.map_err(|error| self.failed(error))?;
        if let Some(existing) = self.catalog.collection(namespace) {
            return Err(exists(namespace, &existing));
        }
        let storage = self.catalog.shape_of_collection(options);
        let primary = self.engine.create_dictionary(storage).map_err(from_engine)?;
        let order = crate::ddl::create_order(&mut self.engine, options, storage)?;
        let collection = Arc::new(Collection {
            namespace: namespace.clone(),
            uuid: self.catalog.new_uuid(),
            number: self.catalog.new_number(),
            options: options.clone(),
            primary,
            order,
            indexes: Vec::new(),
            shared: Arc::new(Shared::default()),
        });
        write_record(&mut self.engine, &collection)?;
        self.created.push(Arc::clone(&collection));
        Ok(collection)
    }

    /// Makes indexes of a collection that this transaction has created, or creates here, and that
    /// is still empty. Existing ones are left alone.
    pub fn create_indexes(
        &mut self,
        namespace: &Namespace,
        specs: &[IndexSpec],
    ) -> Result<CreatedIndexes> {
        let created_collection = self.collection(namespace).is_none();
        let collection = self.ensure_collection(namespace)?;
        if collection.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("Cannot create indexes on a view: {namespace}"),
            ));
        }
        let wanted = missing_indexes(&collection, specs)?;
        let before = collection.indexes.len() + 1;
        let after = before + wanted.len();
        let unchanged = CreatedIndexes { before, after, created_collection };
        if wanted.is_empty() {
            return Ok(unchanged);
        }
        let own = self.created.iter().position(|own| own.number == collection.number);
        let Some(at) = own.filter(|_| self.documents_added(&collection) == 0) else {
            return Err(Error::new(
                Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                format!(
                    "Cannot create new indexes on existing collection {namespace} in a \
                     multi-document transaction."
                ),
            ));
        };
        let mut indexes = collection.indexes.clone();
        for spec in wanted {
            let options = self.catalog.shape_of_index(&collection.options, &spec);
            let dictionary = self.engine.create_dictionary(options).map_err(from_engine)?;
            indexes.push(Arc::new(metadata::new_index(
                spec,
                collection.collation(),
                dictionary,
                Timestamp(0),
            )));
        }
        let collection = Arc::new(with_indexes(&collection, indexes));
        write_record(&mut self.engine, &collection)?;
        self.created[at] = Arc::clone(&collection);
        self.replace_touched(&collection);
        Ok(unchanged)
    }
}
