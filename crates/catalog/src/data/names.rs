//! What a transaction has made of the names of collections, until its commit publishes it.
//!
//! Always true: a copy of it is all that a savepoint needs to go back to the names of then.

use crate::data::metadata_lock::{ClientInside, MetadataGuard};
use crate::metadata::collection::Collection;
use crate::metadata::namespace::Namespace;
use engine::DictionaryId;
use parking_lot::{ArcMutexGuard, RawMutex};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What a transaction has made of the names. Most change none, and take no room for it.
#[derive(Clone, Debug, Default)]
pub struct Names(Option<Box<NameChanges>>);

/// What was made of the names.
#[derive(Clone, Debug)]
pub struct NameChanges {
    /// What stands under each name that it changed; `None` where nothing is left.
    pub(crate) changed: Vec<(Namespace, Option<Arc<Collection>>)>,
    /// Numbers of the collections that it made.
    pub(crate) made: Vec<u64>,
    /// Committed collections that it dropped.
    pub(crate) ended: Vec<Arc<Collection>>,
    /// Indexes that it built over committed collections…
    pub(crate) built: Vec<DictionaryId>,
    /// …and those it dropped.
    pub(crate) unindexed: Vec<DictionaryId>,
}

/// Of who has changed none.
static NOTHING: NameChanges = NameChanges::new();

impl NameChanges {
    const fn new() -> Self {
        Self {
            changed: Vec::new(),
            made: Vec::new(),
            ended: Vec::new(),
            built: Vec::new(),
            unindexed: Vec::new(),
        }
    }
}

impl Deref for Names {
    type Target = NameChanges;

    fn deref(&self) -> &NameChanges {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Names {
    fn deref_mut(&mut self) -> &mut NameChanges {
        self.0.get_or_insert_with(|| Box::new(NameChanges::new()))
    }
}

impl Names {
    /// What stands under a name, where the transaction changed that.
    pub fn find(&self, namespace: &Namespace) -> Option<Option<&Arc<Collection>>> {
        let found = self.changed.iter().find(|(name, _)| name == namespace);
        found.map(|(_, collection)| collection.as_ref())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether there is nothing to undo: also a statement that failed half-way has done nothing.
    pub(crate) fn is_untouched(&self) -> bool {
        let Some(changes) = self.0.as_deref() else { return true };
        let NameChanges { changed, made, ended, built, unindexed } = changes;
        changed.is_empty()
            && made.is_empty()
            && ended.is_empty()
            && built.is_empty()
            && unindexed.is_empty()
    }

    /// The version of a collection that it made or changed.
    pub(crate) fn version_of(&self, number: u64) -> Option<&Arc<Collection>> {
        let versions = self.changed.iter().filter_map(|(_, collection)| collection.as_ref());
        versions.into_iter().find(|collection| collection.number == number)
    }

    pub(crate) fn has_made(&self, number: u64) -> bool {
        self.made.contains(&number)
    }

    /// Whether it is there no more.
    pub(crate) fn has_dropped(&self, number: u64) -> bool {
        self.ended.iter().any(|ended| ended.number == number)
            || self.has_made(number) && self.version_of(number).is_none()
    }

    pub(crate) fn has_dropped_index(&self, dictionary: DictionaryId) -> bool {
        self.unindexed.contains(&dictionary)
    }

    pub(crate) fn set(&mut self, namespace: &Namespace, collection: Option<Arc<Collection>>) {
        match self.changed.iter_mut().find(|(name, _)| name == namespace) {
            Some((_, known)) => *known = collection,
            None => self.changed.push((namespace.clone(), collection)),
        }
    }
}

/// A collection of which a transaction is the only writer.
pub(crate) struct Taken {
    pub(crate) number: u64,
    pub(crate) _guard: MetadataGuard,
    /// Of a client's transaction.
    pub(crate) _client: Option<ClientInside>,
    /// Keeps index builds away where the guard alone would not.
    pub(crate) _turn: Option<ArcMutexGuard<RawMutex, ()>>,
}
