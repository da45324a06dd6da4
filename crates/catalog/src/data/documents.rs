//! Documents inside a transaction: insert, update, delete, with exact index upkeep.
//!
//! From → to: keys of all indexes are made first, so that a document that cannot be indexed
//! changes nothing [`Txn::insert_document`]; then the primary, then each index. Only changed index
//! entries are written. A document whose primary key changes is moved: its record and its entries in
//! every index, as all of them name the record [`Txn::change_document`]. Where an index refuses after something was written (a unique key, a key or
//! a transaction that is too large), the document is rolled back to a savepoint; nothing else of
//! the transaction is lost.

use crate::data::notes::Changed;
use crate::data::txn::Txn;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index, required_id};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::Path;
use bsonval::raw::{self, Element};
use bsonval::show::document as document_text;
use engine::{Direction, KeyRange};
use errors::{Code, Error, Result};
use indexkeys::{DocumentKeys, IndexKey, RecordKey, bad_key, hexadecimal};
use keystring::Collation;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// How deep a stored document may nest.
pub const MAX_DOCUMENT_DEPTH: usize = 180;

pub(crate) type AllKeys = SmallVec<[DocumentKeys; 4]>;

impl Txn {
    /// Inserts a document that has an `_id`. Any error leaves the transaction as it was.
    pub fn insert_document(
        &mut self,
        collection: &Arc<Collection>,
        document: &RawDocument,
    ) -> Result<()> {
        if !self.bypasses_validation {
            collection.options.validation.check_insert(&collection.namespace, document)?;
        }
        if let Some(series) = &collection.options.time_series {
            series.check_document(document)?;
        }
        if self.load.as_ref().is_some_and(|load| load.is_of(collection)) {
            return self.load_document(collection, document);
        }
        let mut key = collection.record_key(document)?;
        let (whole, collection) = (collection, collection.store_of(&key));
        let mut keys = all_keys(collection, document, &key)?;
        // Where there is the record alone nothing can fail behind it.
        let is_record_alone = collection.indexes.is_empty()
            && collection.order.is_none()
            && collection.shared.changes().is_none();
        let savepoint = (!is_record_alone).then(|| self.savepoint());
        while !self.insert_record(collection, &key, document)? {
            if collection.options.time_series.is_none() {
                return Err(duplicate_id(collection, required_id(document)?));
            }
            key = self.shared_id_key(collection, document)?;
            keys = all_keys(collection, document, &key)?;
        }
        let inserted = self
            .write_inserted(collection, document, &key, &keys)
            .and_then(|()| self.check_other_stores(whole, collection, &key, &keys));
        if let (Err(_), Some(savepoint)) = (&inserted, savepoint) {
            // A caller that goes on with its next document must not commit a part of this one.
            self.rollback_to(savepoint);
        }
        inserted
    }

    /// A record key for a measurement whose `_id` another one has. Random, not the next in turn:
    /// with a million of one `_id` that would be a search.
    fn shared_id_key(&self, collection: &Collection, document: &RawDocument) -> Result<Vec<u8>> {
        let id_key = collection.id_key(required_id(document)?)?;
        let random = self.catalog.os().entropy.next_u64();
        Ok(indexkeys::shared_id_key(id_key, random.to_be_bytes()))
    }

    /// False where a document stands under the key.
    fn insert_record(
        &mut self,
        collection: &Collection,
        key: &[u8],
        document: &RawDocument,
    ) -> Result<bool> {
        let inserted = self.engine.insert(collection.primary, key, document.as_bytes());
        inserted.map_err(|error| self.failed(error))
    }

    /// Refuses the keys of unique indexes that a document in another partition has. Such an index has the
    /// fields by which partitions are told, so only those can have one that some documents with the same
    /// values there stand in: mostly none but the document's own.
    pub(crate) fn check_other_stores(
        &mut self,
        whole: &Arc<Collection>,
        store: &Arc<Collection>,
        record_key: &[u8],
        keys: &[DocumentKeys],
    ) -> Result<()> {
        let is_checked = |index: &Index| index.spec.unique && !index.spec.is_id();
        if !whole.is_partitioned() || !store.indexes.iter().any(|index| is_checked(index)) {
            return Ok(());
        }
        for place in stores_sharing(whole, record_key)? {
            let other = &whole.stores()[place];
            if other.number == store.number {
                continue;
            }
            for ((index, keys), theirs) in store.indexes.iter().zip(keys).zip(&other.indexes) {
                for entry in keys.entries.iter().filter(|_| is_checked(index)) {
                    let held = self.engine.get_for_update(theirs.dictionary, &entry.key);
                    if held.map_err(|error| self.failed(error))?.is_some() {
                        return Err(duplicate_key(whole, index, entry));
                    }
                }
            }
        }
        Ok(())
    }

    /// What comes with a record that was just written: index entries, counts, notes.
    pub(crate) fn write_inserted(
        &mut self,
        collection: &Arc<Collection>,
        document: &RawDocument,
        key: &[u8],
        keys: &[DocumentKeys],
    ) -> Result<()> {
        self.note_change(collection, key)?;
        self.arrive(collection, key, document.as_bytes().len())?;
        for (index, keys) in collection.indexes.iter().zip(keys) {
            self.note_multikey(index, keys.multikey);
            for entry in &keys.entries {
                self.add_entry(collection, index, entry)?;
            }
        }
        self.note_insert(collection, key, document)?;
        collection.shared.used.wrote(1, 0);
        for (index, keys) in collection.indexes.iter().zip(keys) {
            index.state.used.wrote(keys.entries.len(), 0);
        }
        self.count(collection, 1, document.as_bytes().len() as i64);
        Ok(())
    }

    /// Changes `old`, which stands under `key`, to `new`; `_id` stays. It stands under another key then
    /// where the primary key has other values. `touched` names the paths that may differ, `None` any:
    /// indexes over other paths are not looked at. A duplicate key leaves the transaction as it was.
    pub fn update_document(
        &mut self,
        collection: &Arc<Collection>,
        key: &[u8],
        old: &RawDocument,
        new: &RawDocument,
        touched: Option<&[Path]>,
    ) -> Result<()> {
        self.change_document(collection, key, (old, new), touched, Changed::InParts)
    }

    /// As [`Txn::update_document`], where `new` was given as a whole.
    pub fn replace_document(
        &mut self,
        collection: &Arc<Collection>,
        key: &[u8],
        old: &RawDocument,
        new: &RawDocument,
    ) -> Result<()> {
        self.change_document(collection, key, (old, new), None, Changed::AsAWhole)
    }

    /// As [`Txn::update_document`]; how the document came to be another is told.
    pub fn change_document(
        &mut self,
        collection: &Arc<Collection>,
        key: &[u8],
        (old, new): (&RawDocument, &RawDocument),
        touched: Option<&[Path]>,
        changed: Changed,
    ) -> Result<()> {
        let moved_to = moved_to(collection, key, new, touched)?;
        let mark = self.notes.as_ref().map(|notes| notes.mark());
        let keys = (key, moved_to.as_deref().unwrap_or(key));
        let stores = (collection.store_of(keys.0), collection.store_of(keys.1));
        let told = self.note_overwritten(stores.0, key, old)?;
        let changes = self.write_changed(collection, keys, (old, new), touched);
        if let (Err(_), Some(mark), Some(notes)) = (&changes, mark, &mut self.notes) {
            notes.truncate(mark);
        }
        changes?;
        if told {
            return self.note_update(stores.1, keys.1, (old, new), touched, changed);
        }
        Ok(())
    }

    fn write_changed(
        &mut self,
        collection: &Arc<Collection>,
        (key, new_key): (&[u8], &[u8]),
        (old, new): (&RawDocument, &RawDocument),
        touched: Option<&[Path]>,
    ) -> Result<()> {
        if !self.bypasses_validation {
            collection.options.validation.check_update(&collection.namespace, old, new)?;
        }
        if let Some(series) = &collection.options.time_series {
            series.check_document(new)?;
        }
        let whole = collection;
        let (collection, new_store) = (whole.store_of(key), whole.store_of(new_key));
        if collection.number != new_store.number {
            return self.move_to_other_store(whole, (key, new_key), (old, new));
        }
        let changed: SmallVec<[bool; 8]> = collection
            .indexes
            .iter()
            .map(|index| match touched {
                Some(paths) => index.keys.depends_on(paths),
                None => !index.keys.has_same_values(old, new),
            })
            .collect();
        if !changed.contains(&true) {
            assert_eq!(key, new_key, "entries of every index name the record");
            self.put_record(collection, key, new)?;
            return self.note_growth(collection, old, new);
        }
        let old_keys = changed_keys(collection, old, key, &changed)?;
        let new_keys = changed_keys(collection, new, new_key, &changed)?;
        let unique_grows = collection.indexes.iter().zip(old_keys.iter().zip(&new_keys)).any(
            |(index, (old, new))| {
                (index.spec.unique || index.spec.guards_keys()) && old.entries != new.entries
            },
        );
        let savepoint = unique_grows.then(|| self.savepoint());
        if key == new_key {
            self.put_record(collection, key, new)?;
        } else {
            self.move_record(collection, (key, new_key), new)?;
        }
        for (index, (old, new)) in collection.indexes.iter().zip(old_keys.iter().zip(&new_keys)) {
            self.note_multikey(index, new.multikey);
            if let Err(error) = self.change_entries(collection, index, old, new) {
                if let (Code::DUPLICATE_KEY, Some(savepoint)) = (error.code(), savepoint) {
                    self.rollback_to(savepoint);
                }
                return Err(error);
            }
        }
        if let Some(savepoint) = savepoint
            && let Err(error) = self.check_other_stores(whole, collection, new_key, &new_keys)
        {
            self.rollback_to(savepoint);
            return Err(error);
        }
        self.note_growth(collection, old, new)
    }

    /// Takes a document out of one partition and puts what it became into another. An error leaves the
    /// transaction as it was.
    fn move_to_other_store(
        &mut self,
        whole: &Arc<Collection>,
        (key, new_key): (&[u8], &[u8]),
        (old, new): (&RawDocument, &RawDocument),
    ) -> Result<()> {
        let (from, to) = (whole.store_of(key), whole.store_of(new_key));
        let new_keys = all_keys(to, new, new_key)?;
        let savepoint = self.savepoint();
        let mut moved = || {
            self.erase_document(from, key, old)?;
            if !self.insert_record(to, new_key, new)? {
                return Err(duplicate_id(to, required_id(new)?));
            }
            self.note_change(to, new_key)?;
            for (index, keys) in to.indexes.iter().zip(&new_keys) {
                self.note_multikey(index, keys.multikey);
                for entry in &keys.entries {
                    self.add_entry(to, index, entry)?;
                }
                index.state.used.wrote(keys.entries.len(), 0);
            }
            to.shared.used.wrote(1, 0);
            self.count(to, 1, new.as_bytes().len() as i64);
            self.check_other_stores(whole, to, new_key, &new_keys)
        };
        let moved = moved();
        if moved.is_err() {
            self.rollback_to(savepoint);
        }
        moved
    }

    fn put_record(
        &mut self,
        collection: &Collection,
        key: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let put = self.engine.put(collection.primary, key, document.as_bytes());
        put.map_err(|error| self.failed(error))?;
        self.note_change(collection, key)
    }

    /// Takes a record from under one key and puts what it became under another.
    fn move_record(
        &mut self,
        collection: &Collection,
        (from, to): (&[u8], &[u8]),
        document: &RawDocument,
    ) -> Result<()> {
        let deleted = self.engine.delete(collection.primary, from);
        deleted.map_err(|error| self.failed(error))?;
        self.note_change(collection, from)?;
        if !self.insert_record(collection, to, document)? {
            // Its key ends in the `_id`, and the index on `_id` takes no second one.
            return Err(Error::new(
                Code::INTERNAL_ERROR,
                format!("{} holds two documents of one _id", collection.namespace),
            ));
        }
        self.note_change(collection, to)
    }

    fn note_growth(
        &mut self,
        collection: &Arc<Collection>,
        old: &RawDocument,
        new: &RawDocument,
    ) -> Result<()> {
        let growth = new.as_bytes().len() as i64 - old.as_bytes().len() as i64;
        self.resize(collection, growth)?;
        self.count(collection, 0, growth);
        Ok(())
    }

    /// Deletes `document`, which stands under `key`.
    pub fn delete_document(
        &mut self,
        collection: &Arc<Collection>,
        key: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let collection = collection.store_of(key);
        let told = self.note_overwritten(collection, key, document)?;
        self.leave(collection, key, document.as_bytes().len())?;
        self.erase_document(collection, key, document)?;
        if told { self.note_delete(collection, key, document) } else { Ok(()) }
    }

    /// As [`Txn::delete_document`]; the caller sees to the order of a capped collection.
    pub(crate) fn erase_document(
        &mut self,
        collection: &Arc<Collection>,
        key: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let keys = all_keys(collection, document, key)?;
        let deleted = self.engine.delete(collection.primary, key);
        deleted.map_err(|error| self.failed(error))?;
        self.note_change(collection, key)?;
        for (index, keys) in collection.indexes.iter().zip(&keys) {
            for entry in &keys.entries {
                self.remove_entry(index, entry)?;
            }
        }
        collection.shared.used.wrote(0, 1);
        for (index, keys) in collection.indexes.iter().zip(&keys) {
            index.state.used.wrote(0, keys.entries.len());
        }
        self.count(collection, -1, -(document.as_bytes().len() as i64));
        Ok(())
    }

    /// Tells a build of indexes that a document changed.
    fn note_change(&mut self, collection: &Collection, key: &[u8]) -> Result<()> {
        let Some(changes) = collection.shared.changes() else { return Ok(()) };
        let noted = self.engine.write_covered(changes.dictionary(), &changes.row(key), Some(&[]));
        noted.map_err(|error| self.failed(error))
    }

    fn change_entries(
        &mut self,
        collection: &Collection,
        index: &Arc<Index>,
        old: &DocumentKeys,
        new: &DocumentKeys,
    ) -> Result<()> {
        let (gone, added) = difference(&old.entries, &new.entries);
        if !(gone.is_empty() && added.is_empty()) {
            index.state.used.wrote(added.len(), gone.len());
        }
        for entry in gone {
            self.remove_entry(index, entry)?;
        }
        for (entry, retyped) in added {
            if retyped {
                self.put_entry(index, entry)?;
            } else {
                self.add_entry(collection, index, entry)?;
            }
        }
        Ok(())
    }

    /// Adds an entry that is new; a unique index refuses one that another document holds.
    pub(crate) fn add_entry(
        &mut self,
        collection: &Collection,
        index: &Arc<Index>,
        entry: &IndexKey,
    ) -> Result<()> {
        if index.spec.guards_keys() {
            self.guard_key(collection, index, entry)?;
        }
        if !index.spec.unique {
            return self.put_entry(index, entry);
        }
        let inserted = self.engine.insert(index.dictionary, &entry.key, &entry.value);
        if !inserted.map_err(|error| self.failed(error))? {
            return Err(duplicate_key(collection, index, entry));
        }
        Ok(())
    }

    /// Refuses an entry with the values of another document's, in an index that may hold such and
    /// must take no more. Who adds the same values at the same time deletes the same key, at which
    /// nothing stands: so one waits for the other, and a snapshot from before is a conflict.
    fn guard_key(
        &mut self,
        collection: &Collection,
        index: &Arc<Index>,
        entry: &IndexKey,
    ) -> Result<()> {
        let values = index.keys.values_of(&entry.key)?;
        let deleted = self.engine.delete(index.dictionary, values);
        deleted.map_err(|error| self.failed(error))?;
        // Where commits are held back, this one remembers what it has read when it ends.
        let (newest, _) = self.catalog.engine().newest_snapshot();
        for view in [self.engine.view(), newest] {
            let mut cursor = view
                .cursor(index.dictionary, starting_with(values), Direction::Forward)
                .map_err(from_engine)?;
            while let Some((key, _)) = cursor.next().map_err(from_engine)? {
                if key == entry.key {
                    continue;
                }
                // This transaction may have deleted it, which only its own writes tell.
                let held = self.engine.get_for_update(index.dictionary, key);
                if held.map_err(|error| self.failed(error))?.is_some() {
                    return Err(duplicate_key(collection, index, entry));
                }
            }
        }
        Ok(())
    }

    /// An entry of a non-unique index holds its document's record key: whoever writes it holds the
    /// lock of that key, so it needs none of its own.
    fn put_entry(&mut self, index: &Index, entry: &IndexKey) -> Result<()> {
        let (key, value) = (&entry.key, &entry.value);
        let written = if index.spec.unique {
            self.engine.put(index.dictionary, key, value)
        } else {
            self.engine.write_covered(index.dictionary, key, Some(value))
        };
        written.map_err(|error| self.failed(error))
    }

    fn remove_entry(&mut self, index: &Index, entry: &IndexKey) -> Result<()> {
        let removed = if index.spec.unique {
            self.engine.delete(index.dictionary, &entry.key)
        } else {
            self.engine.write_covered(index.dictionary, &entry.key, None)
        };
        removed.map_err(|error| self.failed(error))
    }
}

/// The record key of a document that is to take the place of the one under `key`, where it is another.
fn moved_to(
    collection: &Collection,
    key: &[u8],
    new: &RawDocument,
    touched: Option<&[Path]>,
) -> Result<Option<Vec<u8>>> {
    let Some(primary) = &collection.options.primary_key else { return Ok(None) };
    if touched.is_some_and(|paths| !primary.depends_on(paths)) {
        return Ok(None);
    }
    Ok(Some(collection.record_key(new)?).filter(|new_key| new_key != key))
}

/// The places of the stores in which documents may stand that have the same values in the fields of the
/// primary key before `_id`.
pub(crate) fn stores_sharing(
    collection: &Collection,
    record_key: &[u8],
) -> Result<std::ops::Range<usize>> {
    let Some(primary) = &collection.options.primary_key else {
        let place = collection.store_at(record_key);
        return Ok(place..place + 1);
    };
    let leading = &primary.directions()[..primary.directions().len() - 1];
    let length = keystring::skip(record_key, leading).map_err(bad_key)?;
    Ok(collection.stores_in(&starting_with(&record_key[..length])))
}

pub(crate) fn all_keys(
    collection: &Collection,
    document: &RawDocument,
    key: &[u8],
) -> Result<AllKeys> {
    if collection.indexes.is_empty() {
        return Ok(AllKeys::new());
    }
    let record = RecordKey::of(document, key)?;
    collection.indexes.iter().map(|index| index.keys.make(document, record)).collect()
}

/// The keys in the indexes of which it may have others than before; none in the others.
fn changed_keys(
    collection: &Collection,
    document: &RawDocument,
    key: &[u8],
    changed: &[bool],
) -> Result<AllKeys> {
    let record = RecordKey::of(document, key)?;
    let indexes = collection.indexes.iter().zip(changed);
    indexes
        .map(|(index, changed)| match changed {
            true => index.keys.make(document, record),
            false => Ok(DocumentKeys::default()),
        })
        .collect()
}

/// An entry to write, and whether only its type bits changed.
pub(crate) type Added<'a> = (&'a IndexKey, bool);

/// Entries only in `old`, and entries new or with other type bits in `new`. Both ascend.
pub(crate) fn difference<'a>(
    old: &'a [IndexKey],
    new: &'a [IndexKey],
) -> (Vec<&'a IndexKey>, Vec<Added<'a>>) {
    let (mut gone, mut added) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return (gone, added),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.key.cmp(&b.key),
        };
        let before = (order != Ordering::Greater).then(|| old.next()).flatten();
        let after = (order != Ordering::Less).then(|| new.next()).flatten();
        match (before, after) {
            (Some(before), None) => gone.push(before),
            (None, Some(after)) => added.push((after, false)),
            (Some(before), Some(after)) if before.value != after.value => added.push((after, true)),
            _ => {}
        }
    }
}

pub(crate) fn duplicate_id(collection: &Collection, id: RawBsonRef<'_>) -> Error {
    let mut pattern = RawDocumentBuf::new();
    pattern.append(cstr!("_id"), 1);
    let mut value = RawDocumentBuf::new();
    match (collection.collation(), id) {
        (Some(collation), RawBsonRef::String(text)) => {
            value.append(cstr!("_id"), hexadecimal(collation.sort_key(text)));
        }
        _ => value.append(cstr!("_id"), id),
    }
    duplicate(collection, "_id_", collection.collation(), &pattern, &value)
}

/// The keys that begin with these bytes.
pub(crate) fn starting_with(prefix: &[u8]) -> KeyRange {
    let mut end = prefix.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    let upper = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    KeyRange { lower: Bound::Included(prefix.to_vec()), upper }
}

/// The error for an entry whose key another document holds.
pub(crate) fn duplicate_key(collection: &Collection, index: &Index, entry: &IndexKey) -> Error {
    let mut value = RawDocumentBuf::new();
    let parts = index.keys.parts_of(&entry.key, &entry.value);
    for ((path, _), part) in index.spec.key.iter().flatten().zip(&parts) {
        value.append(path, part.as_raw_bson_ref());
    }
    let collation = index.spec.collation.as_ref();
    duplicate(collection, &index.spec.name, collation, &index.spec.key, &value)
}

fn duplicate(
    collection: &Collection,
    index: &str,
    collation: Option<&Collation>,
    pattern: &RawDocument,
    value: &RawDocument,
) -> Error {
    let collation = collation.map(bsonval::collation::to_document);
    let mut extra = bson::Document::new();
    let parts = [("keyPattern", Some(pattern)), ("keyValue", Some(value))];
    for (name, raw) in parts.into_iter().chain([("collation", collation.as_deref())]) {
        if let Some(raw) = raw
            && let Ok(document) = bson::Document::try_from(raw)
        {
            extra.insert(name, document);
        }
    }
    Error::new(
        Code::DUPLICATE_KEY,
        format!(
            "E11000 duplicate key error collection: {} index: {index}{} dup key: {}",
            collection.namespace,
            collation.map_or_else(String::new, |c| format!(" collation: {}", document_text(&c))),
            document_text(value)
        ),
    )
    .with_extra(extra)
}

/// Checks that every byte of a document is well-formed and that it nests at most
/// [`MAX_DOCUMENT_DEPTH`] deep. What is stored was checked by this once.
pub fn check_document(document: &RawDocument) -> Result<()> {
    check_nested(document, 1)
}

fn check_nested(document: &RawDocument, depth: usize) -> Result<()> {
    if depth > MAX_DOCUMENT_DEPTH {
        return Err(Error::new(
            Code::OVERFLOW,
            format!(
                "cannot insert document because it exceeds {MAX_DOCUMENT_DEPTH} levels of nesting"
            ),
        ));
    }
    for element in raw::elements(document) {
        let element = element?;
        if !element.is_readable_leaf() {
            check_in(&element, depth)?;
        }
    }
    Ok(())
}

/// The same of one field of a document.
#[inline]
pub fn check_value(element: &Element<'_>) -> Result<()> {
    if element.is_surely_readable() { Ok(()) } else { check_in(element, 1) }
}

/// Of a field of a document that so many levels nest.
fn check_in(element: &Element<'_>, depth: usize) -> Result<()> {
    match element.value()? {
        RawBsonRef::Document(inner) => check_nested(inner, depth + 1),
        RawBsonRef::Array(inner) => {
            check_nested(RawDocument::from_bytes(inner.as_bytes())?, depth + 1)
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => check_nested(code.scope, depth + 1),
        _ => Ok(()),
    }
}
