//! Plans at work: pull stages over one snapshot.
//!
//! A stage is asked for its next row and keeps it until it is asked again; a row is a document, or
//! first only its record key. Stages own everything, so a cursor can be parked between batches.
//!
//! Always true: a row's `record_key` is the key of its document in the primary dictionary.

mod arrival;
mod budget;
mod build;
mod fetch;
mod geo_near;
mod id_set;
mod intersect;
mod ixscan;
mod look_ahead;
mod merge;
mod partitions;
mod ranges;
mod scan;
mod sort;
mod spill;
mod stats;
mod tail;
mod text;
mod union;

pub(crate) use arrival::ArrivalStage;
pub(crate) use budget::Budget;
pub(crate) use build::build_access;
pub(crate) use ixscan::CountScan;
pub(crate) use ranges::one_range;
pub(crate) use scan::EmptyStage;
pub(crate) use sort::{MEMORY_LIMIT_BYTES, SortStage};
pub(crate) use spill::{TempFiles, temporary_file};
pub(crate) use stats::{Counters, Report, number};
pub(crate) use tail::{LimitStage, SkipStage};

use crate::context::Interrupt;
use bson::raw::RawDocument;
use catalog::{Collection, Index, Reader, Txn, from_engine};
use engine::{Cursor, DictionaryId, Direction, KeyRange, Snapshot, Value};
use errors::Result;
use matcher::Filter;
use std::collections::BTreeMap;

/// Rows between two questions whether to go on.
const INTERRUPT_PERIOD: u64 = 128;

/// What a plan runs on: a snapshot, a transaction's view, or, where what it finds is about to be
/// changed, the transaction itself.
#[derive(Clone, Copy)]
pub(crate) struct ExecContext<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) txn: Option<&'a Txn>,
    pub(crate) interrupt: &'a dyn Interrupt,
    /// What the plan may cost, where that is limited.
    pub(crate) budget: Option<&'a Budget>,
}

/// Brings the documents of record keys into memory, several pages at a time; says how many had to be waited for.
pub(crate) fn prefetch<'k>(
    snapshot: &Snapshot,
    collection: &Collection,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<usize> {
    let mut by_store: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    for key in keys {
        by_store.entry(collection.primary_of(key).0).or_default().push(key);
    }
    let read = |(store, keys): (u64, Vec<&[u8]>)| {
        snapshot.prefetch(DictionaryId(store), &keys).map_err(from_engine)
    };
    by_store.into_iter().map(read).sum()
}

impl<'a> ExecContext<'a> {
    /// On a snapshot alone.
    pub(crate) fn new(snapshot: &'a Snapshot, interrupt: &'a dyn Interrupt) -> Self {
        Self { snapshot, txn: None, interrupt, budget: None }
    }

    /// Counts work that costs more than looking at an entry.
    pub(crate) fn spend(&self, cost: u64) -> Result<()> {
        self.budget.map_or(Ok(()), |budget| budget.spend(cost))
    }

    /// Whether what is found is only compared with what other plans find.
    pub(crate) fn is_trial(&self) -> bool {
        self.budget.is_some_and(Budget::is_trial)
    }

    pub(crate) fn get(&self, dictionary: DictionaryId, key: &[u8]) -> Result<Option<Value>> {
        match self.txn {
            Some(txn) => txn.get_to_change(dictionary, key),
            None => self.snapshot.get(dictionary, key).map_err(from_engine),
        }
    }

    /// The document of a record key.
    pub(crate) fn get_record(&self, collection: &Collection, key: &[u8]) -> Result<Option<Value>> {
        self.get(collection.primary_of(key), key)
    }

    /// The same for a stage that copies the document. Where it is large the operation is admitted for it
    /// first, with nothing pinned while it waits.
    pub(crate) fn get_to_copy(&self, collection: &Collection, key: &[u8]) -> Result<Option<Value>> {
        let dictionary = collection.primary_of(key);
        let Some(value) = self.get(dictionary, key)? else { return Ok(None) };
        let needed = copied_bytes(value.len());
        if !limits::must_wait_for(needed) {
            return Ok(Some(value));
        }
        drop(value);
        limits::admit(needed)?;
        self.get(dictionary, key)
    }

    /// Whether what is found may be looked at before it is asked for: nobody is kept from changing it, and no plan
    /// is judged by it.
    fn may_look_ahead(&self) -> bool {
        self.txn.is_none() && !self.snapshot.locks() && !self.is_trial()
    }

    /// [`prefetch`] in the state that is read. A hint.
    fn prefetch<'k>(
        &self,
        collection: &Collection,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<usize> {
        prefetch(self.snapshot, collection, keys)
    }

    pub(crate) fn cursor(
        &self,
        dictionary: DictionaryId,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor> {
        match self.txn {
            Some(txn) => txn.cursor_to_change(dictionary, range, direction),
            None => self.snapshot.cursor(dictionary, range, direction).map_err(from_engine),
        }
    }

    /// For a serializable reader the index stays as the plan takes it.
    pub(crate) fn hold_shape(&self, index: &Index, planned: u32) -> Result<()> {
        self.txn.map_or(Reader::View(self.snapshot), Reader::Txn).hold_shape(index, planned)
    }

    /// Counts a unit of work, and asks the interrupt once in a while.
    pub(crate) fn tick(&self, works: u64) -> Result<()> {
        self.spend(1)?;
        if works.is_multiple_of(INTERRUPT_PERIOD) { self.interrupt.check() } else { Ok(()) }
    }
}

/// What a document of so many bytes takes beside the cache on its way to the client: a stage's copy, and
/// its place in the reply.
pub(crate) fn copied_bytes(document: usize) -> usize {
    2 * document
}

/// What a stage hands up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// The document's key in the primary dictionary.
    pub(crate) record_key: Vec<u8>,
    /// The document's bytes; empty where it has not been fetched.
    pub(crate) document: Vec<u8>,
}

impl Row {
    /// Takes over both, keeping the allocations.
    pub(crate) fn set(&mut self, record_key: &[u8], document: &[u8]) {
        self.record_key.clear();
        self.record_key.extend_from_slice(record_key);
        self.document.clear();
        self.document.extend_from_slice(document);
    }

    /// Takes over the key and the document as it is, where copying a small one would not be cheaper.
    pub(crate) fn take(&mut self, record_key: &[u8], document: Vec<u8>) {
        if document.len() > limits::LARGE_BYTES {
            self.set(record_key, &[]);
            self.document = document;
        } else {
            self.set(record_key, &document);
        }
    }

    /// Gives back the memory of a large document.
    pub(crate) fn release(&mut self) {
        if self.document.capacity() > limits::LARGE_BYTES {
            self.document = Vec::new();
        }
    }

    pub(crate) fn document(&self) -> Result<&RawDocument> {
        Ok(RawDocument::from_bytes(&self.document)?)
    }
}

/// Whether a stored document is one of those asked for.
fn passes(filter: Option<&Filter>, document: &[u8]) -> Result<bool> {
    match filter {
        Some(filter) => filter.matches(RawDocument::from_bytes(document)?),
        None => Ok(true),
    }
}

/// One step of a plan.
pub(crate) trait PlanStage: Send {
    /// Goes to the next row; false at the end. May read the disk.
    fn advance(&mut self, exec: &ExecContext<'_>) -> Result<bool>;

    /// The row it stands on.
    fn row(&self) -> &Row;

    /// Gives back pinned memory; the place is kept.
    fn park(&mut self);

    /// The row it stands on, which nobody else will look at.
    fn take_row(&mut self) -> Row {
        let row = self.row().clone();
        // Of a large document the plan's copy makes room for what becomes of it.
        self.release_row();
        row
    }

    /// Gives back the memory of the row, which nobody looks at any more.
    fn release_row(&mut self);

    /// What `explain` tells of it and of the stages below.
    fn report(&self) -> Report;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row for ever.
    struct Same(Row);

    impl PlanStage for Same {
        fn advance(&mut self, _: &ExecContext<'_>) -> Result<bool> {
            Ok(true)
        }

        fn row(&self) -> &Row {
            &self.0
        }

        fn park(&mut self) {}

        fn release_row(&mut self) {
            self.0.release();
        }

        fn report(&self) -> Report {
            Report::new("SAME", Counters::default())
        }
    }

    fn large() -> Vec<u8> {
        vec![7; limits::LARGE_BYTES + 1]
    }

    #[test]
    fn a_large_document_is_taken_over_without_a_copy_and_given_back() {
        let (document, mut row) = (large(), Row::default());
        let place = document.as_ptr();
        row.take(b"key", document);
        assert_eq!((row.document.as_ptr(), &row.record_key[..]), (place, &b"key"[..]));
        row.release();
        assert_eq!(row.document.capacity(), 0);
        row.take(b"other", vec![1, 2, 3]);
        assert_eq!((&row.record_key[..], &row.document[..]), (&b"other"[..], &[1, 2, 3][..]));
    }

    #[test]
    fn stages_that_pass_rows_on_give_back_those_below() {
        let below = || Box::new(Same(Row { record_key: vec![1], document: large() }));
        let stages: [Box<dyn PlanStage>; 3] = [
            Box::new(LimitStage::new(below(), 1)),
            Box::new(SkipStage::new(below(), 0)),
            Box::new(LimitStage::new(Box::new(SkipStage::new(below(), 0)), 1)),
        ];
        for mut stage in stages {
            assert!(stage.row().document.len() > limits::LARGE_BYTES);
            stage.release_row();
            assert_eq!(stage.row().document.capacity(), 0, "{:?}", stage.report());
            assert_eq!(stage.row().record_key, [1], "the place is kept");
        }
    }
}
