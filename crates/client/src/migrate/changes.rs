//! What the source's change stream tells, gathered until it is taken over.
//!
//! A change is only the `_id` that it is about: what is taken over is the document as the source has it then. So a change
//! may be told twice, or of a document that was copied after it, and both sides are equal once all changes are taken over.

use super::names::Name;
use bson::{Bson, Document, Timestamp, doc};
use std::collections::{BTreeMap, BTreeSet};

/// One entry of a change stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// A document was inserted, changed or removed.
    Document(Name, Bson),
    Drop(Name),
    Rename(Name, Name),
    DropDatabase(String),
    /// What the comparison of options and indexes at the end finds by itself.
    Other,
}

/// Takes an entry apart.
pub(crate) fn event(told: &Document) -> Event {
    let name = |field: &str| {
        let namespace = told.get_document(field).ok()?;
        Some(Name::new(namespace.get_str("db").ok()?, namespace.get_str("coll").ok()?))
    };
    let id = || told.get_document("documentKey").ok()?.get("_id").cloned();
    match told.get_str("operationType").unwrap_or_default() {
        "insert" | "update" | "replace" | "delete" => match (name("ns"), id()) {
            (Some(name), Some(id)) => Event::Document(name, id),
            _ => Event::Other,
        },
        "drop" => name("ns").map_or(Event::Other, Event::Drop),
        "rename" => match (name("ns"), name("to")) {
            (Some(from), Some(to)) => Event::Rename(from, to),
            _ => Event::Other,
        },
        "dropDatabase" => {
            let database = told.get_document("ns").ok().and_then(|ns| ns.get_str("db").ok());
            database.map_or(Event::Other, |name| Event::DropDatabase(name.to_owned()))
        }
        _ => Event::Other,
    }
}

/// When it happened.
pub(crate) fn time(told: &Document) -> Option<Timestamp> {
    told.get_timestamp("clusterTime").ok()
}

/// Changes that are still to be taken over.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    collections: BTreeMap<Name, Ids>,
    pub(crate) count: usize,
}

/// Each once, in the order in which they were first told.
#[derive(Debug, Default)]
struct Ids {
    ids: Vec<Bson>,
    seen: BTreeSet<Vec<u8>>,
}

impl Changes {
    pub(crate) fn add(&mut self, name: Name, id: Bson) {
        let ids = self.collections.entry(name).or_default();
        if ids.seen.insert(bytes_of(&id)) {
            ids.ids.push(id);
            self.count += 1;
        }
    }

    /// What is about a collection that is gone.
    pub(crate) fn forget(&mut self, name: &Name) {
        if let Some(ids) = self.collections.remove(name) {
            self.count -= ids.ids.len();
        }
    }

    pub(crate) fn take(&mut self) -> Vec<(Name, Vec<Bson>)> {
        self.count = 0;
        let all = std::mem::take(&mut self.collections);
        all.into_iter().map(|(name, ids)| (name, ids.ids)).collect()
    }
}

/// A value as its bytes, to tell it from others of its type and value.
pub(crate) fn bytes_of(id: &Bson) -> Vec<u8> {
    // A value out of a document goes into one.
    doc! { "": id.clone() }.to_vec().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_change_stream_are_understood() {
        let ns = doc! { "db": "a", "coll": "b.c" };
        let name = Name::new("a", "b.c");
        let of = |kind: &str, more: Document| {
            let mut told = doc! { "operationType": kind, "ns": ns.clone() };
            told.extend(more);
            event(&told)
        };
        let key = doc! { "documentKey": { "shard": 1, "_id": 5 } };
        for kind in ["insert", "update", "replace", "delete"] {
            assert_eq!(of(kind, key.clone()), Event::Document(name.clone(), Bson::Int32(5)));
        }
        assert_eq!(of("drop", doc! {}), Event::Drop(name.clone()));
        let to = doc! { "to": { "db": "a", "coll": "d" } };
        assert_eq!(of("rename", to), Event::Rename(name, Name::new("a", "d")));
        let database = event(&doc! { "operationType": "dropDatabase", "ns": { "db": "a" } });
        assert_eq!(database, Event::DropDatabase("a".to_owned()));
        for kind in ["insert", "rename", "createIndexes", "invalidate"] {
            assert_eq!(of(kind, doc! {}), Event::Other);
        }
    }

    #[test]
    fn a_document_is_taken_over_once_however_often_it_changes() {
        let (one, other) = (Name::new("a", "b"), Name::new("a", "c"));
        let mut changes = Changes::default();
        for id in [3, 1, 3, 2, 1] {
            changes.add(one.clone(), Bson::Int32(id));
        }
        changes.add(one.clone(), Bson::Int64(1));
        changes.add(other.clone(), Bson::Int32(1));
        assert_eq!(changes.count, 5);
        changes.forget(&other);
        let ids = [Bson::Int32(3), Bson::Int32(1), Bson::Int32(2), Bson::Int64(1)];
        assert_eq!(changes.take(), [(one, ids.to_vec())]);
        assert_eq!(changes.count, 0);
    }
}
