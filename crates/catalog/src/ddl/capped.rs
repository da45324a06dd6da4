//! Capped collections: documents in the order of their arrival, the oldest making room.
//!
//! Beside the documents a capped collection has an *order* dictionary:
//!
//! | key | value |
//! |---|---|
//! | `h` | the head: next, first, documents, bytes; u64 LE each |
//! | `o` arrival u64 BE | the document's key in the primary dictionary |
//! | `p` primary key | the document's arrival, u64 LE |
//!
//! Always true:
//! 1. Whoever adds or removes a document holds the lock of `h` until it commits, so arrivals are
//!    committed in their order: who has seen one has seen all before it.
//! 2. A commit of inserts leaves the collection within its cap; updates may pass it until then.
//! 3. No arrival below `first` is left.

use crate::catalog::{Catalog, not_found};
use crate::data::metadata_lock::{Check, lock_name};
use crate::data::notes::NotedCommand;
use crate::data::txn::{Txn, TxnKind};
use crate::ddl::collections::with_options;
use crate::failure::from_engine;
use crate::metadata::cap::Cap;
use crate::metadata::collection::Collection;
use crate::metadata::collection_map::NameChange;
use crate::metadata::namespace::Namespace;
use crate::metadata::options::CollectionOptions;
use bson::raw::RawDocument;
use engine::{DictionaryId, Direction, KeyRange};
use errors::{Code, Error, Result};
use os::{Call, Watch};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Documents that go in one transaction where a whole collection is emptied or trimmed.
const CHUNK_DOCUMENTS: usize = 1000;

impl Collection {
    /// The cap, where it has one.
    pub fn cap(&self) -> Option<Cap> {
        self.options.capped
    }

    /// The dictionary of arrivals, where it is capped.
    pub fn order(&self) -> Option<DictionaryId> {
        self.order
    }

    /// A number that grows with every commit to a capped collection. Take it before the snapshot
    /// that is read to its end, then wait for another one.
    pub fn commits_seen(&self) -> u64 {
        self.shared.arrivals.seen()
    }

    /// Has `call` made when [`Collection::commits_seen`] changes. Look at that after this: a change before is
    /// told to nobody.
    pub fn watch_commits(&self, call: Call) -> Watch {
        self.shared.arrivals.watch(call)
    }

    /// Waits until [`Collection::commits_seen`] is no longer `seen`, or for `time`; says whether
    /// it changed.
    pub fn wait_for_commit(&self, seen: u64, time: Duration) -> bool {
        self.shared.arrivals.wait(seen, time)
    }
}

/// The key of an arrival.
pub fn arrival_key(arrival: u64) -> [u8; 9] {
    let mut key = [b'o'; 9];
    key[1..].copy_from_slice(&arrival.to_be_bytes());
    key
}

/// The arrival that a key of the order dictionary names.
pub fn arrival_of(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(b"o")?;
    number.try_into().ok().map(u64::from_be_bytes)
}

/// All arrivals from `first` on.
pub fn arrivals_from(first: u64) -> KeyRange {
    KeyRange {
        lower: Bound::Included(arrival_key(first).to_vec()),
        upper: Bound::Excluded(b"p".to_vec()),
    }
}

fn place_key(id_key: &[u8]) -> Vec<u8> {
    [b"p", id_key].concat()
}

const HEAD_KEY: &[u8] = b"h";

/// Where the next document goes, where the oldest is, and how much there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Head {
    next: u64,
    first: u64,
    documents: u64,
    bytes: u64,
}

impl Head {
    fn read(value: &[u8]) -> Result<Self> {
        let number = |at: usize| {
            let bytes = value.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or_else(|| damaged("its head is cut short"))
        };
        Ok(Self { next: number(0)?, first: number(1)?, documents: number(2)?, bytes: number(3)? })
    }

    fn write(self) -> Vec<u8> {
        [self.next, self.first, self.documents, self.bytes].map(u64::to_le_bytes).concat()
    }

    fn is_over(self, cap: Cap) -> bool {
        self.bytes > cap.bytes || cap.documents.is_some_and(|max| self.documents > max)
    }
}

fn damaged(what: &str) -> Error {
    Error::new(Code::INTERNAL_ERROR, format!("damaged order of a capped collection: {what}"))
}

impl Txn {
    /// Gives a document that was just stored its place at the end, and makes room for it.
    pub(crate) fn arrive(
        &mut self,
        collection: &Arc<Collection>,
        key: &[u8],
        bytes: usize,
    ) -> Result<()> {
        let (Some(order), Some(cap)) = (collection.order, collection.options.capped) else {
            return Ok(());
        };
        if bytes as u64 > cap.bytes {
            return Err(Error::bad_value("object to insert exceeds cappedMaxSize"));
        }
        let mut head = self.lock_head(order)?;
        let arrival = head.next;
        head.next += 1;
        head.documents += 1;
        head.bytes += bytes as u64;
        self.covered(order, &arrival_key(arrival), Some(key))?;
        self.covered(order, &place_key(key), Some(&arrival.to_le_bytes()))?;
        while head.is_over(cap) && head.first < arrival {
            self.remove_oldest(collection, order, &mut head)?;
        }
        self.covered(order, HEAD_KEY, Some(&head.write()))
    }

    /// A document became `growth` bytes larger.
    pub(crate) fn resize(&mut self, collection: &Collection, growth: i64) -> Result<()> {
        let Some(order) = collection.order.filter(|_| growth != 0) else { return Ok(()) };
        let mut head = self.lock_head(order)?;
        head.bytes = head.bytes.saturating_add_signed(growth);
        self.covered(order, HEAD_KEY, Some(&head.write()))
    }

    /// A document was deleted: its place goes with it.
    pub(crate) fn leave(
        &mut self,
        collection: &Collection,
        key: &[u8],
        bytes: usize,
    ) -> Result<()> {
        let Some(order) = collection.order else { return Ok(()) };
        let mut head = self.lock_head(order)?;
        self.remove_place(order, key, bytes, &mut head)?;
        self.covered(order, HEAD_KEY, Some(&head.write()))
    }

    fn lock_head(&mut self, order: DictionaryId) -> Result<Head> {
        let found = self.engine.get_for_update(order, HEAD_KEY);
        match found.map_err(|error| self.failed(error))? {
            Some(value) => Head::read(&value),
            None => Ok(Head::default()),
        }
    }

    /// Writes what the lock of the head covers.
    fn covered(&mut self, order: DictionaryId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.engine.write_covered(order, key, value).map_err(|error| self.failed(error))
    }

    fn remove_place(
        &mut self,
        order: DictionaryId,
        key: &[u8],
        bytes: usize,
        head: &mut Head,
    ) -> Result<()> {
        let place = place_key(key);
        let found = self.engine.get_for_update(order, &place);
        let arrival = found.map_err(|error| self.failed(error))?;
        let arrival = arrival.and_then(|value| value[..].try_into().ok()).map(u64::from_le_bytes);
        let arrival = arrival.ok_or_else(|| damaged("a document has no place"))?;
        self.covered(order, &place, None)?;
        self.covered(order, &arrival_key(arrival), None)?;
        if arrival == head.first {
            head.first += 1;
        }
        head.documents = head.documents.saturating_sub(1);
        head.bytes = head.bytes.saturating_sub(bytes as u64);
        Ok(())
    }

    /// Removes the oldest document, or passes by the place of one that was deleted.
    fn remove_oldest(
        &mut self,
        collection: &Arc<Collection>,
        order: DictionaryId,
        head: &mut Head,
    ) -> Result<()> {
        let oldest = self.engine.get_for_update(order, &arrival_key(head.first));
        let Some(key) = oldest.map_err(|error| self.failed(error))? else {
            head.first += 1;
            return Ok(());
        };
        let Some(value) = self.get_for_update(collection, &key)? else {
            return Err(damaged("a place has no document"));
        };
        let document = RawDocument::from_bytes(&value[..])?;
        // What the cap pushes out is not told; but what this transaction has inserted is.
        self.note_overwritten(collection, &key, document)?;
        self.erase_document(collection, &key, document)?;
        self.remove_place(order, &key, value.len(), head)
    }
}

impl Catalog {
    /// Makes a collection capped, in place: its documents keep their order, its indexes beside
    /// `_id` go, the oldest documents are removed where there are too many. Waits for writers.
    pub fn convert_to_capped(
        self: &Arc<Self>,
        namespace: &Namespace,
        size: i64,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let cap = Cap::new(size, None)?;
        namespace.check_writable()?;
        let found = self.require_newest(namespace)?;
        if found.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("cannot convert a view to a capped collection: {namespace}"),
            ));
        }
        if found.options.clustered.is_some() || found.options.time_series.is_some() {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                format!("a clustered or time-series collection cannot be capped: {namespace}"),
            ));
        }
        if found.options.shown.get("primaryKey")?.is_some() || found.is_partitioned() {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                format!(
                    "a collection with a primary key or partitions cannot be capped: {namespace}"
                ),
            ));
        }
        let (collection, guard, build_guard) = self.lock_for_build(namespace, check)?;
        let (mut txn, order) = self.begin_change(check, |txn| {
            lock_name(txn, namespace)?;
            for index in &collection.indexes {
                crate::metadata::records::drop_index(txn, index).map_err(from_engine)?;
            }
            match collection.order {
                Some(order) => Ok(order),
                None => self.order_of(txn, &collection),
            }
        })?;
        let options = collection.options.with_cap(Some(cap))?;
        let mut changed = with_options(&collection, options);
        changed.indexes = Vec::new();
        changed.order = Some(order);
        let change = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || NotedCommand::capped(&collection, size).into_iter().collect())?;
        self.commit_changed(txn, changed)?;
        drop((change, guard, build_guard));
        self.trim(namespace, cap)
    }

    /// An order dictionary over the documents that are there, in the order of their `_id`s. The
    /// caller keeps writers out.
    fn order_of(
        &self,
        txn: &mut engine::EngineTxn,
        collection: &Collection,
    ) -> Result<DictionaryId> {
        let shape = self.shape_of_collection(&collection.options);
        let order = txn.create_dictionary(shape).map_err(from_engine)?;
        let snapshot = self.snapshot();
        let mut cursor = snapshot
            .cursor(collection.primary, KeyRange::all(), Direction::Forward)
            .map_err(from_engine)?;
        let mut head = Head::default();
        while let Some((key, value)) = cursor.next().map_err(from_engine)? {
            let arrival = head.next;
            txn.put(order, &arrival_key(arrival), key).map_err(from_engine)?;
            txn.put(order, &place_key(key), &arrival.to_le_bytes()).map_err(from_engine)?;
            head.next += 1;
            head.documents += 1;
            head.bytes += value.len() as u64;
        }
        txn.put(order, HEAD_KEY, &head.write()).map_err(from_engine)?;
        Ok(order)
    }

    /// Changes the cap of a capped collection. What is too much goes with the next insert.
    pub fn change_cap(
        &self,
        namespace: &Namespace,
        size: Option<i64>,
        max: Option<i64>,
        check: Check<'_>,
    ) -> Result<()> {
        let (collection, guard) = self.lock_newest(namespace, check)?;
        let Some(cap) = collection.options.capped else {
            return Err(Error::new(
                Code::INVALID_OPTIONS,
                "Collection must be capped to change its size or maximum number of documents",
            ));
        };
        let max = max.or_else(|| cap.documents.and_then(|max| i64::try_from(max).ok()));
        let cap = Cap::new(size.unwrap_or(cap.bytes as i64), max)?;
        let options = collection.options.with_cap(Some(cap))?;
        let (mut txn, ()) = self.begin_change(check, |txn| lock_name(txn, namespace))?;
        let _ddl_guard = self.ddl_lock.take(&mut txn);
        self.tell(&mut txn, || {
            NotedCommand::options_changed(&collection, &options).into_iter().collect()
        })?;
        self.commit_changed(txn, with_options(&collection, options))?;
        drop(guard);
        Ok(())
    }

    /// Removes every document of a capped collection.
    pub fn empty_capped(self: &Arc<Self>, namespace: &Namespace) -> Result<()> {
        let collection = self.require_newest(namespace)?;
        if collection.options.capped.is_none() {
            return Err(Error::new(
                Code::ILLEGAL_OPERATION,
                format!("Cannot truncate a non-capped collection: {namespace}"),
            ));
        }
        self.trim(namespace, Cap { bytes: 0, documents: None })?;
        let (mut txn, ()) = self.begin_change(&|| Ok(()), |_| Ok(()))?;
        self.tell(&mut txn, || NotedCommand::emptied(&collection).into_iter().collect())?;
        self.commit_names(txn, |_| NameChange::default())
    }

    /// Removes the oldest documents until a capped collection is within `cap`.
    fn trim(self: &Arc<Self>, namespace: &Namespace, cap: Cap) -> Result<()> {
        loop {
            let mut txn = self.begin(TxnKind::Statement);
            let Some(collection) = txn.open_for_write(namespace)? else {
                return Err(not_found(namespace));
            };
            let Some(order) = collection.order else { return Ok(()) };
            let trimmed = (|| {
                let mut head = txn.lock_head(order)?;
                for _ in 0..CHUNK_DOCUMENTS {
                    if !head.is_over(cap) || head.first >= head.next {
                        break;
                    }
                    txn.remove_oldest(&collection, order, &mut head)?;
                }
                txn.covered(order, HEAD_KEY, Some(&head.write()))?;
                Ok(head.is_over(cap) && head.first < head.next)
            })();
            match trimmed.and_then(|more| txn.commit().map(|_| more)) {
                Ok(false) => return Ok(()),
                Err(error) if !crate::is_retryable(&error) => return Err(error),
                _ => {}
            }
        }
    }

    /// Copies a collection into a new capped one, as much of its end as there is room for.
    pub fn clone_as_capped(
        self: &Arc<Self>,
        from: &Namespace,
        to: &Namespace,
        size: i64,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let cap = Cap::new(size, None)?;
        let source = self.require_newest(from)?;
        if source.is_view() {
            return Err(Error::new(
                Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                format!("cloneCollectionAsCapped not supported for views: {from}"),
            ));
        }
        let options = CollectionOptions::default().with_cap(Some(cap))?;
        self.create_collection(to, &options, check)?;
        // As it is by now, whether readers see that yet or not.
        let snapshot = self.statement_snapshot();
        for place in 0..source.partitions().len().max(1) {
            let (dictionary, range) = match source.order {
                Some(order) => (order, arrivals_from(0)),
                None => (source.primary_at(place), KeyRange::all()),
            };
            let mut cursor =
                snapshot.cursor(dictionary, range, Direction::Forward).map_err(from_engine)?;
            let mut batch = Vec::new();
            loop {
                check()?;
                batch.clear();
                while batch.len() < CHUNK_DOCUMENTS
                    && let Some((_, value)) = cursor.next().map_err(from_engine)?
                {
                    let document = match source.order {
                        None => Some(value.to_vec()),
                        Some(_) => snapshot
                            .get(source.primary, value)
                            .map_err(from_engine)?
                            .map(|document| document.to_vec()),
                    };
                    batch.extend(document);
                }
                if batch.is_empty() {
                    break;
                }
                self.append(to, &batch)?;
            }
        }
        Ok(())
    }

    /// Inserts a batch in one transaction, repeated where it conflicts.
    fn append(self: &Arc<Self>, to: &Namespace, batch: &[Vec<u8>]) -> Result<()> {
        loop {
            let mut txn = self.begin(TxnKind::Statement);
            let Some(collection) = txn.open_for_write(to)? else { return Err(not_found(to)) };
            let inserted = batch.iter().try_for_each(|document| {
                let document = RawDocument::from_bytes(document)?;
                txn.insert_document(&collection, document)
            });
            match inserted.and_then(|()| txn.commit().map(drop)) {
                Err(error) if crate::is_retryable(&error) => {}
                other => return other,
            }
        }
    }
}

/// What `validate` says of an order: every document has one place, every place its document.
pub(crate) fn check_order(
    snapshot: &engine::Snapshot,
    collection: &Collection,
) -> Result<Vec<String>> {
    let Some(order) = collection.order else { return Ok(Vec::new()) };
    let mut wrong = Vec::new();
    let head = match snapshot.get(order, HEAD_KEY).map_err(from_engine)? {
        Some(value) => Head::read(&value)?,
        None => Head::default(),
    };
    let (mut documents, mut bytes) = (0_u64, 0_u64);
    let mut cursor =
        snapshot.cursor(order, arrivals_from(0), Direction::Forward).map_err(from_engine)?;
    while let Some((key, id)) = cursor.next().map_err(from_engine)? {
        let arrival = arrival_of(key).ok_or_else(|| damaged("a place has no number"))?;
        if !(head.first..head.next).contains(&arrival) {
            wrong.push(format!("arrival {arrival} is outside of {}..{}", head.first, head.next));
        }
        let place = snapshot.get(order, &place_key(id)).map_err(from_engine)?;
        if place.as_deref() != Some(&arrival.to_le_bytes()[..]) {
            wrong.push(format!("arrival {arrival} is not its document's place"));
        }
        match snapshot.get(collection.primary, id).map_err(from_engine)? {
            Some(document) => {
                documents += 1;
                bytes += document.len() as u64;
                let document = RawDocument::from_bytes(&document[..])?;
                if collection.record_key(document)? != id {
                    wrong.push(format!("arrival {arrival} names another document"));
                }
            }
            None => wrong.push(format!("arrival {arrival} has no document")),
        }
    }
    if (documents, bytes) != (head.documents, head.bytes) {
        wrong.push(format!(
            "the order holds {documents} documents of {bytes} bytes, its head says {} of {}",
            head.documents, head.bytes
        ));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests;
