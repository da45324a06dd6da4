//! A member of a set without indexes (`buildIndexes: false`, ADR 67).
//!
//! From → to: the set's log makes every index and has all of its rows, and `ROOT` names it, on every member. On such a member a
//! collection is known without those that it can do without, and the engine lets go of their dictionaries as soon as
//! the commit that names them is visible; what the log says of them later is passed over.
//!
//! Always true, from [`Catalog::leave_out_indexes`] on:
//! 1. No collection that this catalog gives out, of now or of an older state, has an index that is left out: nobody
//!    reads what is not there.
//! 2. The index on `_id` is there, and so is what the server makes for itself.
//! 3. Nothing is written here: the records in `ROOT` stay those of the other members.

use crate::catalog::Catalog;
use crate::metadata::collection::{Collection, Index, with_indexes};
use crate::metadata::records;
use engine::DictionaryId;
use errors::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Catalog {
    /// This server is a member without indexes, and stays one: those that it has go, and no others come. It follows
    /// another member, and nobody reads yet, or nothing is there.
    pub fn leave_out_indexes(&self) -> Result<()> {
        self.leaves_out_indexes.store(true, Ordering::Release);
        let mut left_out = records::unfinished(&self.snapshot())?;
        let mut namespaces = self.namespaces.write();
        for collection in namespaces.values_mut() {
            if let Some((without, dictionaries)) = without_indexes(collection) {
                *collection = Arc::new(without);
                left_out.extend(dictionaries);
            }
        }
        drop(namespaces);
        self.engine().leave_out(left_out);
        Ok(())
    }

    /// Whether this server is a member without indexes.
    pub fn leaves_out_indexes(&self) -> bool {
        self.leaves_out_indexes.load(Ordering::Acquire)
    }

    /// A collection's record, as this server knows the collection, and the dictionaries that it does without.
    pub(crate) fn read_collection(&self, record: &[u8]) -> Result<(Collection, Vec<DictionaryId>)> {
        let read = records::read_collection(record)?;
        let without = self.leaves_out_indexes().then(|| without_indexes(&read)).flatten();
        Ok(without.unwrap_or((read, Vec::new())))
    }
}

/// The collection without what a member without indexes leaves out, and the dictionaries of that; `None` where it has
/// nothing of that kind.
fn without_indexes(collection: &Collection) -> Option<(Collection, Vec<DictionaryId>)> {
    let (kept, left_out): (Vec<_>, Vec<_>) =
        collection.indexes.iter().cloned().partition(|index| is_needed(index));
    if left_out.is_empty() {
        return None;
    }
    let dictionaries = left_out
        .iter()
        .flat_map(|index| index.parts.values().copied().chain([index.dictionary]))
        .collect();
    Some((with_indexes(collection, kept), dictionaries))
}

/// Where the primary key is not `_id` alone, documents are found by their `_id` through an index.
fn is_needed(index: &Index) -> bool {
    index.spec.is_id() || index.spec.is_internal()
}
