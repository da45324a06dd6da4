//! `validate`: do the documents and every index say the same?
//!
//! Both ways at once: the keys that the documents ought to have are summed up as hashes beside
//! the entries that the index holds. Equal counts and equal sums mean equal sets; where they
//! differ, a second walk names the entries.
//!
//! Always true: it looks at one snapshot, taken while no write was inside the collection, so the
//! exact count must agree too.

use crate::catalog::Catalog;
use crate::failure::from_engine;
use crate::metadata::collection::{Collection, Index};
use crate::metadata::counts::{self, Stripe};
use crate::metadata::namespace::Namespace;
use bson::raw::RawDocument;
use engine::{Direction, KeyRange, Snapshot};
use errors::{Code, Error, Result};
use indexkeys::{IndexKey, RecordKey};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// How many damaged things are named.
const MAX_NAMED: usize = 20;

/// What `validate` found.
#[derive(Clone, Debug, Default)]
pub struct ValidateReport {
    /// Documents walked.
    pub records: u64,
    /// Documents that are no BSON or stand under a wrong key.
    pub invalid_documents: u64,
    /// Documents that the collection's validator would refuse; they are valid all the same.
    pub non_compliant: u64,
    /// Entries per index, the primary key first.
    pub keys_per_index: Vec<(String, u64)>,
    /// Indexes that disagree with the documents.
    pub invalid_indexes: Vec<String>,
    /// What is wrong, in words; empty where all is well.
    pub errors: Vec<String>,
}

impl ValidateReport {
    /// Whether everything agreed.
    pub fn valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds to the entries of an index, which are all named in one order.
    fn count_keys(&mut self, name: &str, entries: u64) {
        match self.keys_per_index.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += entries,
            None => self.keys_per_index.push((name.to_owned(), entries)),
        }
    }

    fn call_invalid(&mut self, index: &str) {
        if !self.invalid_indexes.iter().any(|known| known == index) {
            self.invalid_indexes.push(index.to_owned());
        }
    }

    fn say(&mut self, text: String) {
        if self.errors.len() < MAX_NAMED {
            self.errors.push(text);
        }
    }
}

/// Number and sum of hashes of a set of entries.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    entries: u64,
    sum: u128,
}

impl Tally {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let key = xxh3_128_with_seed(key, 1);
        let value = xxh3_128_with_seed(value, key as u64);
        self.entries += 1;
        self.sum = self.sum.wrapping_add(key ^ value.rotate_left(17));
    }
}

impl Catalog {
    /// Walks a collection and all its indexes. `check` is asked now and then whether to go on.
    pub fn validate(
        &self,
        namespace: &Namespace,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<ValidateReport> {
        let found = self.require(namespace)?;
        if found.is_view() {
            return Err(Error::new(Code::COMMAND_NOT_SUPPORTED_ON_VIEW, "Cannot validate a view"));
        }
        let guard = self.lock_metadata(&found, check)?;
        let collection = self.require(namespace)?;
        let snapshot = self.snapshot();
        let counts: Vec<u64> = collection.stores().iter().map(|store| store.count()).collect();
        let uncounted = collection
            .counts_are_unknown()
            .then(|| (counts.iter().sum::<u64>(), collection.shared.counts.uncounted()));
        drop(guard);
        let mut report = ValidateReport::default();
        for (place, count) in counts.into_iter().enumerate() {
            self.validate_store(&snapshot, &collection, (place, count), &mut report, check)?;
        }
        if let Some((count, made)) = uncounted {
            self.correct_count(namespace, &collection, (count, report.records), made, check)?;
        }
        for wrong in crate::ddl::capped::check_order(&snapshot, &collection)? {
            report.say(wrong);
        }
        Ok(report)
    }

    /// So many documents are there where the count says so many: the count is right from now on, unless documents
    /// were made meanwhile without being counted. Not where others tell this server what to write.
    fn correct_count(
        &self,
        namespace: &Namespace,
        walked: &Arc<Collection>,
        (count, records): (u64, u64),
        made: u64,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if !self.may_update_fast() {
            return Ok(());
        }
        let _guard = self.lock_metadata(walked, check)?;
        let counts = &walked.shared.counts;
        let is_same = self.collection(namespace).is_some_and(|now| now.number == walked.number);
        if !is_same || counts.uncounted() != made {
            return Ok(());
        }
        let more = i64::try_from(records).unwrap_or(0) - i64::try_from(count).unwrap_or(0);
        let lent = counts.borrow();
        let written = || {
            let mut txn = self.engine().begin(engine::TxnOptions::default());
            let stripe = lent.stripe;
            let key = Stripe::key(walked.number, stripe.number);
            let value = Stripe::value(stripe.documents + more, stripe.bytes);
            txn.write_covered(counts::DICTIONARY, &key, Some(&value))?;
            txn.write_covered(counts::DICTIONARY, &Stripe::mark_key(walked.number), None)?;
            txn.commit(engine::Durability::Buffered).map(drop)
        };
        // Nobody who asked for a walk waits for the disk.
        if let Err(error) = engine::outside_request(written) {
            counts.give_back(lent);
            return Err(from_engine(error));
        }
        counts.publish(lent, more, 0);
        counts.unmark();
        Ok(())
    }

    /// The same of what holds documents: the collection itself, or its partition at a place.
    fn validate_store(
        &self,
        snapshot: &Snapshot,
        whole: &Arc<Collection>,
        (place, count): (usize, u64),
        report: &mut ValidateReport,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let store = &whole.stores()[place];
        let mut expected = vec![Tally::default(); store.indexes.len()];
        let before = report.records;
        walk_documents(snapshot, whole, place, &mut expected, report, check)?;
        let records = report.records - before;
        if count != records && !whole.counts_are_unknown() {
            report.say(format!("the count says {count} documents, the collection holds {records}"));
        }
        report.count_keys(store.primary_name(), records);
        self.verify(store, report);
        for (index, expected) in store.indexes.iter().zip(expected) {
            check_index(snapshot, store, index, expected, report, check)?;
        }
        Ok(())
    }
}

impl Catalog {
    /// Lets the engine check the structure of every dictionary: pivots, checksums, watermarks.
    fn verify(&self, collection: &Collection, report: &mut ValidateReport) {
        let indexes =
            collection.indexes.iter().map(|index| (index.spec.name.as_str(), index.dictionary));
        let primary = (collection.primary_name(), collection.primary);
        for (name, dictionary) in std::iter::once(primary).chain(indexes) {
            match self.engine().verify(dictionary) {
                Err(error) if !collection.is_dropped() => {
                    report.call_invalid(name);
                    report.say(format!("index {name}: {error}"));
                }
                _ => {}
            }
        }
    }
}

fn walk_documents(
    snapshot: &Snapshot,
    whole: &Arc<Collection>,
    place: usize,
    expected: &mut [Tally],
    report: &mut ValidateReport,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let collection = &whole.stores()[place];
    let mut cursor = snapshot
        .cursor(collection.primary, KeyRange::all(), Direction::Forward)
        .map_err(from_engine)?;
    while let Some((key, value)) = cursor.next().map_err(from_engine)? {
        if whole.store_at(key) != place {
            report.say(format!("key {key:02x?} is not one of its partition"));
        }
        report.records += 1;
        if report.records.is_multiple_of(1024) {
            check()?;
        }
        let compliance = &mut report.non_compliant;
        if let Err(error) = tally_document(collection, key, value, expected, compliance) {
            report.invalid_documents += 1;
            report.say(format!("document under key {key:02x?}: {error}"));
        }
    }
    Ok(())
}

fn tally_document(
    collection: &Collection,
    key: &[u8],
    value: &[u8],
    expected: &mut [Tally],
    non_compliant: &mut u64,
) -> Result<()> {
    let document = RawDocument::from_bytes(value)?;
    crate::data::documents::check_document(document)?;
    if !collection.options.validation.complies(document) {
        *non_compliant += 1;
    }
    if !collection.is_record_key(key, document)? {
        return Err(Error::new(Code::INTERNAL_ERROR, "stands under the key of another document"));
    }
    let record = RecordKey::of(document, key)?;
    for (index, tally) in collection.indexes.iter().zip(expected) {
        let keys = index.keys.make(document, record)?;
        if keys.multikey & !index.state.observed.load(Ordering::Acquire) != 0 {
            return Err(Error::new(
                Code::INTERNAL_ERROR,
                format!("has arrays that index {} has not marked", index.spec.name),
            ));
        }
        for IndexKey { key, value } in &keys.entries {
            tally.add(key, value);
        }
    }
    Ok(())
}

fn check_index(
    snapshot: &Snapshot,
    collection: &Collection,
    index: &Arc<Index>,
    expected: Tally,
    report: &mut ValidateReport,
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let mut held = Tally::default();
    let mut cursor = snapshot
        .cursor(index.dictionary, KeyRange::all(), Direction::Forward)
        .map_err(from_engine)?;
    while let Some((key, value)) = cursor.next().map_err(from_engine)? {
        held.add(key, value);
        if held.entries.is_multiple_of(4096) {
            check()?;
        }
    }
    report.count_keys(&index.spec.name, held.entries);
    if held != expected {
        report.call_invalid(&index.spec.name);
        report.say(format!(
            "index {} holds {} entries, the documents have {}",
            index.spec.name, held.entries, expected.entries
        ));
        name_differences(snapshot, collection, index, report)?;
    }
    Ok(())
}

/// Looks every key up, both ways, and names what is missing or too much.
fn name_differences(
    snapshot: &Snapshot,
    collection: &Collection,
    index: &Index,
    report: &mut ValidateReport,
) -> Result<()> {
    let mut cursor = snapshot
        .cursor(collection.primary, KeyRange::all(), Direction::Forward)
        .map_err(from_engine)?;
    while let Some((record, value)) = cursor.next().map_err(from_engine)? {
        let Ok(keys) = RawDocument::from_bytes(value)
            .map_err(Error::from)
            .and_then(|d| index.keys.make(d, RecordKey::of(d, record)?))
        else {
            continue;
        };
        for entry in keys.entries {
            let held = snapshot.get(index.dictionary, &entry.key).map_err(from_engine)?;
            if held.is_none_or(|held| held[..] != entry.value[..]) {
                report.say(format!("index {} lacks {:02x?}", index.spec.name, entry.key));
            }
        }
    }
    let mut cursor = snapshot
        .cursor(index.dictionary, KeyRange::all(), Direction::Forward)
        .map_err(from_engine)?;
    while let Some((key, value)) = cursor.next().map_err(from_engine)? {
        let record = index.keys.record_key_of(key, value).unwrap_or_default();
        let document = snapshot.get(collection.primary, record).map_err(from_engine)?;
        let belongs = document.is_some_and(|document| {
            RawDocument::from_bytes(&document[..])
                .map_err(Error::from)
                .and_then(|d| index.keys.make(d, RecordKey::of(d, record)?))
                .is_ok_and(|keys| keys.entries.iter().any(|entry| entry.key == key))
        });
        if !belongs {
            report.say(format!("index {} has {key:02x?} of no document", index.spec.name));
        }
    }
    Ok(())
}
