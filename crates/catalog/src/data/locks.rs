//! Locks as operators read them: of which index, between which keys.

use crate::catalog::Catalog;
use crate::metadata::collection::{Collection, Index};
use bson::{Bson, Document, doc};
use engine::{DictionaryId, LockInfo};
use keystring::Direction;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A lock that is held or waited for.
#[derive(Clone, Debug)]
pub struct ShownLock {
    /// The engine's number of the transaction.
    pub txn: u64,
    /// `db.collection.$index`; `$catalog` is the list of the collections and indexes.
    pub index: String,
    /// The first and the last key: documents, `"-infinity"`, `"+infinity"`. Of numbers the exact
    /// type is not known.
    pub bounds: [Bson; 2],
    /// `None` where it is held; else how long the request has waited, in milliseconds.
    pub waiting_ms: Option<u64>,
    /// The transactions in its way.
    pub blockers: Vec<u64>,
}

type Place = (Arc<Collection>, Option<Arc<Index>>);

impl Catalog {
    /// The lock requests that wait, and up to `held` locks that are held.
    pub fn locks(&self, held: usize) -> Vec<ShownLock> {
        let requests = self.engine().lock_requests(held);
        if requests.is_empty() {
            return Vec::new();
        }
        let places = self.places();
        requests.into_iter().map(|lock| show(&places, lock)).collect()
    }

    /// A lock as operators read it.
    pub fn show_lock(&self, lock: LockInfo) -> ShownLock {
        show(&self.places(), lock)
    }

    fn places(&self) -> BTreeMap<DictionaryId, Place> {
        let mut places = BTreeMap::new();
        for collection in self.namespaces.read().values() {
            for store in collection.stores().iter().chain([collection]) {
                let primary = store.primary_index.clone();
                places.insert(store.primary, (Arc::clone(store), primary));
                for index in &store.indexes {
                    let place = (Arc::clone(store), Some(Arc::clone(index)));
                    places.insert(index.dictionary, place);
                }
            }
        }
        places
    }
}

fn show(places: &BTreeMap<DictionaryId, Place>, lock: LockInfo) -> ShownLock {
    let (lower, upper) = match (lock.key, lock.range) {
        (Some(key), _) => (Bound::Included(key.clone()), Bound::Included(key)),
        (None, Some(range)) => (range.lower, range.upper),
        (None, None) => (Bound::Unbounded, Bound::Unbounded),
    };
    let place = places.get(&DictionaryId(lock.dictionary));
    let index = match place {
        Some((collection, index)) => {
            let name = index.as_ref().map_or("_id_", |index| &index.spec.name);
            format!("{}.${name}", collection.namespace)
        }
        None if DictionaryId(lock.dictionary) == DictionaryId::ROOT => "$catalog".to_owned(),
        None => format!("$dictionary-{}", lock.dictionary),
    };
    let bounds = [key_of(place, &lower, "-infinity"), key_of(place, &upper, "+infinity")];
    let (txn, waiting_ms, blockers) = (lock.txn, lock.waiting_ms, lock.blockers);
    ShownLock { txn, index, bounds, waiting_ms, blockers }
}

fn key_of(place: Option<&Place>, bound: &Bound<Vec<u8>>, unbounded: &str) -> Bson {
    let (Bound::Included(key) | Bound::Excluded(key)) = bound else {
        return Bson::String(unbounded.to_owned());
    };
    match place {
        Some((collection, Some(index))) => Bson::Document(entry(collection, index, key)),
        Some((_, None)) => Bson::Document(match values(key, &[Direction::Ascending]).pop() {
            Some(id) => doc! { "_id": id },
            None => Document::new(),
        }),
        None => Bson::String(String::from_utf8_lossy(key).into_owned()),
    }
}

/// The parts of an entry, and under `$primaryKey` its document's key. The end of a range may have
/// fewer.
fn entry(collection: &Collection, index: &Index, key: &[u8]) -> Document {
    let mut directions = index.keys.directions().to_vec();
    let parts = index.spec.parts.iter().map(|part| part.path.clone());
    let mut names: Vec<String> = parts.collect();
    if !index.spec.unique {
        match &collection.options.primary_key {
            None => {
                directions.push(Direction::Ascending);
                names.push("$primaryKey".to_owned());
            }
            Some(primary) => {
                directions.extend_from_slice(primary.directions());
                let paths = primary.parts().iter().map(|part| &part.path);
                names.extend(paths.map(|path| format!("$primaryKey.{path}")));
            }
        }
    }
    names.into_iter().zip(values(key, &directions)).collect()
}

/// As many values as the key has whole.
fn values(key: &[u8], directions: &[Direction]) -> Vec<Bson> {
    let fits = |count: &usize| keystring::decode_prefix(key, &[], &directions[..*count]).is_ok();
    let count = (0..=directions.len()).rev().find(fits).unwrap_or(0);
    keystring::decode_prefix(key, &[], &directions[..count]).map_or_else(|_| Vec::new(), |(v, _)| v)
}
