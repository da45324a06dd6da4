//! A transaction over documents: the engine's, with metadata locks and counts beside it.
//!
//! Always true:
//! 1. A collection written to is locked shared until the transaction ends, so its metadata and
//!    indexes stay what they were at the first write.
//! 2. Counts and multikey marks are written in the same commit as the documents they describe.

use crate::catalog::Catalog;
use crate::collection::{Collection, Index};
use crate::counts::{self, Stripe};
use crate::failure::from_engine;
use crate::metadata;
use crate::namespace::Namespace;
use engine::{
    Cursor, DictionaryId, Direction, Durability, KeyRange, OnConflict, TxnOptions, Value,
};
use errors::{Code, Error, Result};
use parking_lot::{ArcRwLockReadGuard, RawRwLock};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a transaction is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxnKind {
    /// One statement, repeated by the server where it conflicts; writes go over the newest state.
    Statement,
    /// A client's transaction over several statements, under snapshot isolation.
    Transaction,
}

/// A read-write transaction. Dropping it aborts it.
pub struct Txn {
    pub(crate) engine: engine::Txn,
    pub(crate) catalog: Arc<Catalog>,
    touched: SmallVec<[Touched; 1]>,
    multikey: Vec<(Arc<Index>, u32)>,
    pub(crate) bypasses_validation: bool,
}

struct Touched {
    collection: Arc<Collection>,
    _guard: ArcRwLockReadGuard<RawRwLock, ()>,
    documents: i64,
    bytes: i64,
}

/// A place to roll back to.
pub struct Savepoint {
    engine: engine::Savepoint,
    counts: SmallVec<[(i64, i64); 1]>,
}

impl Catalog {
    /// Starts a transaction whose snapshot is now.
    pub fn begin(self: &Arc<Self>, kind: TxnKind) -> Txn {
        let on_conflict = match kind {
            TxnKind::Statement => OnConflict::Latest,
            TxnKind::Transaction => OnConflict::Fail,
        };
        Txn {
            engine: self.engine().begin(TxnOptions { on_conflict, lock_timeout: None }),
            catalog: Arc::clone(self),
            touched: SmallVec::new(),
            multikey: Vec::new(),
            bypasses_validation: false,
        }
    }
}

impl Txn {
    /// Names this transaction in lock tables.
    pub fn id(&self) -> u64 {
        self.engine.id()
    }

    /// The catalog it works in.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Whether the writes from now on go past the collections' validators.
    pub fn bypass_validation(&mut self, bypass: bool) {
        self.bypasses_validation = bypass;
    }

    /// The collection, locked against metadata changes until this transaction ends; `None` where
    /// it does not exist. May wait for a change of its metadata to end.
    pub fn open_for_write(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        if let Some(touched) =
            self.touched.iter().find(|touched| touched.collection.namespace == *namespace)
        {
            return Ok(Some(Arc::clone(&touched.collection)));
        }
        loop {
            let Some(found) = self.catalog.collection(namespace) else { return Ok(None) };
            if found.is_view() {
                return Err(Error::new(
                    Code::COMMAND_NOT_SUPPORTED_ON_VIEW,
                    format!("Namespace {namespace} is a view, not a collection"),
                ));
            }
            let guard = found.shared.metadata.read_arc();
            let Some(collection) = self.catalog.collection(namespace) else { return Ok(None) };
            if collection.number == found.number {
                self.touched.push(Touched {
                    collection: Arc::clone(&collection),
                    _guard: guard,
                    documents: 0,
                    bytes: 0,
                });
                return Ok(Some(collection));
            }
        }
    }

    /// Reads a value: this transaction's own write, else its snapshot's.
    pub fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        self.engine.get(dictionary, key).map_err(from_engine)
    }

    /// Locks a document by its id key, then reads its newest version.
    pub fn get_for_update(
        &mut self,
        collection: &Collection,
        id_key: &[u8],
    ) -> Result<Option<Value>> {
        self.engine.get_for_update(collection.primary, id_key).map_err(from_engine)
    }

    /// A cursor over the snapshot and this transaction's writes as of now.
    pub fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        self.engine.cursor(dictionary, range, direction).map_err(from_engine)
    }

    /// The commit timestamp whose state this transaction reads.
    pub fn snapshot_timestamp(&self) -> engine::Timestamp {
        self.engine.snapshot_timestamp()
    }

    /// How many documents of `collection` this transaction has added so far.
    pub fn documents_added(&self, collection: &Collection) -> i64 {
        self.touched
            .iter()
            .find(|touched| touched.collection.number == collection.number)
            .map_or(0, |touched| touched.documents)
    }

    /// Marks a place to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            engine: self.engine.savepoint(),
            counts: self.touched.iter().map(|t| (t.documents, t.bytes)).collect(),
        }
    }

    /// Undoes the writes since `savepoint`; locks and multikey marks stay.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        self.engine.rollback_to(savepoint.engine);
        let zero = std::iter::repeat((0, 0));
        for (touched, before) in
            self.touched.iter_mut().zip(savepoint.counts.into_iter().chain(zero))
        {
            (touched.documents, touched.bytes) = before;
        }
    }

    /// Makes the writes visible, and durable as asked. May wait for the disk.
    pub fn commit(mut self, durability: Durability) -> Result<engine::Timestamp> {
        self.write_multikey_marks()?;
        let mut stripes: SmallVec<[(usize, Stripe); 1]> = SmallVec::new();
        let mut written = Ok(());
        for (at, touched) in self.touched.iter().enumerate() {
            if (touched.documents, touched.bytes) == (0, 0) {
                continue;
            }
            let stripe = touched.collection.shared.counts.borrow();
            stripes.push((at, stripe));
            // Whoever borrowed the stripe is its only writer.
            written = self.engine.write_covered(
                counts::DICTIONARY,
                &Stripe::key(touched.collection.number, stripe.number),
                Some(&Stripe::value(
                    stripe.documents + touched.documents,
                    stripe.bytes + touched.bytes,
                )),
            );
            if written.is_err() {
                break;
            }
        }
        let lent = || stripes.iter().map(|(at, stripe)| (&self.touched[*at], *stripe));
        let mut published = false;
        let committed = match written {
            // A commit that is visible counts, also where the disk then fails it.
            Ok(()) => self.engine.commit_with(durability, |_| {
                published = true;
                for (touched, stripe) in lent() {
                    let counts = &touched.collection.shared.counts;
                    counts.publish(stripe, touched.documents, touched.bytes);
                }
                for (index, mask) in &self.multikey {
                    index.state.persisted.fetch_or(*mask, Ordering::AcqRel);
                }
            }),
            Err(error) => Err(error),
        };
        if !published {
            for (touched, stripe) in lent() {
                touched.collection.shared.counts.give_back(stripe);
            }
        }
        committed.map_err(from_engine)
    }

    /// Forgets the writes and opens the locks.
    pub fn abort(self) {
        self.engine.abort();
    }

    /// Adds to the counts of a collection that [`Txn::open_for_write`] returned.
    pub(crate) fn count(&mut self, collection: &Collection, documents: i64, bytes: i64) {
        if let Some(touched) =
            self.touched.iter_mut().find(|touched| touched.collection.number == collection.number)
        {
            touched.documents += documents;
            touched.bytes += bytes;
        }
    }

    /// Notes that a document has arrays in the parts of `mask`.
    pub(crate) fn note_multikey(&mut self, index: &Arc<Index>, mask: u32) {
        if mask == 0 || mask & !index.state.persisted.load(Ordering::Acquire) == 0 {
            return;
        }
        index.state.observed.fetch_or(mask, Ordering::AcqRel);
        match self.multikey.iter_mut().find(|(known, _)| known.dictionary == index.dictionary) {
            Some((_, known)) => *known |= mask,
            None => self.multikey.push((Arc::clone(index), mask)),
        }
    }

    fn write_multikey_marks(&mut self) -> Result<()> {
        for (index, mask) in &self.multikey {
            let key = metadata::multikey_key(index.dictionary);
            let before = self
                .engine
                .get_for_update(DictionaryId::ROOT, &key)
                .map_err(from_engine)?
                .map_or(0, |value| metadata::read_multikey(&value));
            let mask = before | mask;
            self.engine.put(DictionaryId::ROOT, &key, &mask.to_le_bytes()).map_err(from_engine)?;
        }
        Ok(())
    }
}
