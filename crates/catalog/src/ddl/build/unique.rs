//! An index with `prepareUnique` becomes unique: its entries stand under other keys then, so it is
//! rebuilt beside the old one, and takes its place in one transaction.

use super::online::Build;
use super::{IndexSelector, selected};
use crate::catalog::Catalog;
use crate::data::metadata_lock::Check;
use crate::data::notes::NotedCommand;
use crate::ddl::collections::write_record;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, clone_index, with_indexes};
use crate::metadata::collection_map::NameChange;
use crate::metadata::namespace::Namespace;
use crate::metadata::records::drop_index;
use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use engine::{Direction, KeyRange, Snapshot};
use errors::{Code, Error, Result};
use indexkeys::IndexChange;
use std::sync::Arc;

/// How many bytes of `_id`s an error lists; MongoDB stops there too, below the size of a reply.
const MOST_LISTED_BYTES: usize = 8 << 20;
/// Entries that are read between two questions whether to go on.
const CHECK_EVERY: usize = 4096;

impl Catalog {
    /// Makes an index unique that has been prepared for it; says whether it was not before. With
    /// `only_look` it only says whether that would go. Documents that share a key are
    /// `CannotConvertIndexToUnique`, with their `_id`s.
    pub fn make_unique(
        self: &Arc<Self>,
        namespace: &Namespace,
        selector: IndexSelector<'_>,
        only_look: bool,
        check: Check<'_>,
    ) -> Result<bool> {
        // Nobody adds a key that another document has: what is looked at without a lock stays.
        // What is looked for is read from a snapshot.
        self.wait_complete_visible()?;
        let collection = self.require(namespace)?;
        let Some(index) = prepared(&collection, selector)? else { return Ok(false) };
        look_for_shared_keys(&self.snapshot(), &collection, &index, check)?;
        if only_look {
            return Ok(true);
        }
        let (collection, guard, _ddl_guard) = self.lock_for_build(namespace, check)?;
        let Some(index) = prepared(&collection, selector)? else { return Ok(false) };
        let change = IndexChange { unique: true, ..IndexChange::default() };
        let spec = index.spec.with_change(change)?;
        self.build_online(
            &collection,
            guard,
            vec![spec],
            (check, &|| Ok(())),
            |build, visible| self.replace_index(&index, build, visible),
        )?;
        Ok(true)
    }

    /// Commits the built index in the place of the old one.
    fn replace_index(&self, old: &Arc<Index>, build: &Build, visible: &mut bool) -> Result<()> {
        let current = self.newest(&build.collection.namespace);
        let place = current.as_ref().and_then(|current| {
            current.indexes.iter().position(|index| index.dictionary == old.dictionary)
        });
        let (Some(current), Some(place), Some(new)) = (current, place, build.indexes.first())
        else {
            return Err(Error::new(
                Code::INDEX_BUILD_ABORTED,
                format!("index {} was dropped while it was made unique", old.spec.name),
            ));
        };
        let with_new = |created| -> Collection {
            let mut indexes = current.indexes.clone();
            indexes[place] = Arc::new(clone_index(new, created));
            with_indexes(&current, indexes)
        };
        let (mut txn, ()) = self.begin_change(&|| Ok(()), |txn| {
            write_record(txn, &with_new(engine::Timestamp(0))).map_err(from_engine)?;
            drop_index(txn, old).map_err(from_engine)?;
            build.finish(txn)
        })?;
        let ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || {
            let fill = |out: &mut bsonval::raw::Writer| {
                let open = out.begin_document("index");
                out.value("name", bson::raw::RawBsonRef::String(&old.spec.name));
                out.value("unique", bson::raw::RawBsonRef::Boolean(true));
                out.end(open);
            };
            NotedCommand::modified(&current, fill, Some(&old.spec.shown)).into_iter().collect()
        })?;
        let committed = self.commit_names(txn, |created| {
            *visible = true;
            NameChange::version(&Arc::new(with_new(created)))
        });
        drop(ddl_guard);
        committed
    }
}

/// The index that is to become unique; `None` where it is already.
fn prepared(collection: &Collection, selector: IndexSelector<'_>) -> Result<Option<Arc<Index>>> {
    let names = selected(collection, selector)?;
    let index = names.first().and_then(|name| collection.index(name));
    match index.filter(|index| !index.spec.unique) {
        Some(index) if !index.spec.prepare_unique => Err(Error::new(
            Code::INVALID_OPTIONS,
            "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.",
        )),
        index => Ok(index.cloned()),
    }
}

/// An error that lists the documents which share a key, where there are any.
fn look_for_shared_keys(
    snapshot: &Snapshot,
    collection: &Collection,
    index: &Index,
    check: Check<'_>,
) -> Result<()> {
    let mut cursor = snapshot
        .cursor(index.dictionary, KeyRange::all(), Direction::Forward)
        .map_err(from_engine)?;
    let mut violations = Vec::new();
    let mut sharing: Vec<Vec<u8>> = Vec::new();
    let (mut values, mut listed, mut entries) = (Vec::new(), 0, 0);
    while let Some((key, value)) = cursor.next().map_err(from_engine)? {
        entries += 1;
        if entries % CHECK_EVERY == 0 {
            check()?;
        }
        let these = index.keys.values_of(key)?;
        if these != values {
            violations.extend(violation(snapshot, collection, &sharing)?);
            sharing.clear();
            values = these.to_vec();
        }
        let id = index.keys.record_key_of(key, value)?;
        listed += if sharing.is_empty() { 0 } else { id.len() };
        if listed > MOST_LISTED_BYTES {
            return Err(cannot_convert(
                "Cannot convert the index to unique. Too many conflicting documents were \
                 detected. Please resolve them and rerun collMod.",
                violations,
            ));
        }
        sharing.push(id.to_vec());
    }
    violations.extend(violation(snapshot, collection, &sharing)?);
    if violations.is_empty() {
        return Ok(());
    }
    Err(cannot_convert(
        "Cannot convert the index to unique. Please resolve conflicting documents before running \
         collMod again.",
        violations,
    ))
}

fn cannot_convert(text: &str, violations: Vec<Document>) -> Error {
    let extra = doc! { "violations": violations };
    Error::new(Code::CANNOT_CONVERT_INDEX_TO_UNIQUE, text).with_extra(extra)
}

/// `{ids: […]}` of the documents that share a key, where they are several.
fn violation(
    snapshot: &Snapshot,
    collection: &Collection,
    sharing: &[Vec<u8>],
) -> Result<Option<Document>> {
    if sharing.len() < 2 {
        return Ok(None);
    }
    let mut ids = Vec::with_capacity(sharing.len());
    for key in sharing {
        let Some(bytes) = snapshot.get(collection.primary, key).map_err(from_engine)? else {
            continue;
        };
        if let Some(id) = RawDocument::from_bytes(&bytes[..])?.get("_id")? {
            ids.push(Bson::try_from(id)?);
        }
    }
    Ok(Some(doc! { "ids": ids }))
}

#[cfg(test)]
mod tests;
