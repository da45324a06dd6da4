//! Fast updates: update operators that are written as one message, without reading the document.
//!
//! The engine keeps an update's *argument* with its key and asks [`FastUpdateRules`] to apply it whenever the
//! document is read, and once for all where it meets the document on disk. So what a statement would have told at
//! once, that there is no such document or that an operator does not fit its field, shows itself later: the
//! document stays as it is, and the error is counted.
//!
//! Always true: an argument means the same to every version of the program that takes it, whatever the settings;
//! two combined do what they do one after the other, byte for byte.
//!
//! On disk: `docs/formats/fast-update.md`.

mod argument;

use argument::{Item, items, put_item};
use bson::oid::ObjectId;
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, Timestamp};
use bsonval::{Path, raw, show};
use engine::{Applied, UpdatePlace, Updates};
use errors::{Error, Result};
use matcher::{Filter, MatchDetails, ParseContext};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use update::{PipelineUpdate, Update, UpdateContext};

/// Statements that one argument stands for, where they are not all the same: a read applies each of them.
const MOST_ITEMS: usize = 64;
/// Of the same statement so many: where their sum does not do, each is applied.
const MOST_TIMES: u64 = 4096;
/// Bytes of an argument that is still combined with others.
const MOST_BYTES: usize = 4096;
/// Errors that are remembered, so that reading a document again does not count them again.
const REMEMBERED_ERRORS: usize = 1024;

/// Whether a server makes writes that do not read, and how many fast updates it has made.
#[derive(Debug, Default)]
pub struct FastUpdates {
    /// `fastUpdates`.
    pub enabled: AtomicBool,
    /// Statements that could be fast ones, by `_id`, whether they are made or not.
    pub eligible: AtomicU64,
    /// Statements that were.
    pub performed: AtomicU64,
    /// `pkUniqueChecks` is off: inserts do not look whether their `_id` is there, where nothing depends on it.
    pub skips_unique_checks: AtomicBool,
}

/// What fast updates mean, and which of them could not be applied. One for the whole process: what is stored must
/// mean the same to each engine in it.
#[derive(Debug, Default)]
pub struct FastUpdateRules {
    /// `fastUpdatesIgnoreErrors`: they are not logged.
    pub ignores_errors: AtomicBool,
    errors: AtomicU64,
    failed: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    known: BTreeSet<u64>,
    oldest_first: VecDeque<u64>,
    /// The last one, until it is logged.
    last: Option<FailedUpdate>,
}

/// An update that could not be applied.
#[derive(Clone, Debug)]
pub struct FailedUpdate {
    /// The dictionary of its collection.
    pub dictionary: u64,
    /// The document's `_id`, as `_id: 1`.
    pub id: String,
    /// Why.
    pub error: String,
}

/// The rules of this process.
pub fn fast_update_rules() -> &'static Arc<FastUpdateRules> {
    static RULES: OnceLock<Arc<FastUpdateRules>> = OnceLock::new();
    RULES.get_or_init(Arc::default)
}

impl FastUpdateRules {
    /// Updates that could not be applied so far. One may be counted again once it was combined with others.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The last update that could not be applied, where none was asked for since.
    pub fn take_failed(&self) -> Option<FailedUpdate> {
        self.failed.lock().last.take()
    }

    fn note(&self, place: UpdatePlace<'_>, times: u64, document: &RawDocument, error: &Error) {
        // What is not committed may never be.
        if place.ts == 0 {
            return;
        }
        let named = [&place.tree.to_le_bytes()[..], &place.ts.to_le_bytes(), place.key].concat();
        let name = xxhash_rust::xxh3::xxh3_64(&named);
        let mut failed = self.failed.lock();
        if !failed.known.insert(name) {
            return;
        }
        failed.oldest_first.push_back(name);
        if failed.oldest_first.len() > REMEMBERED_ERRORS
            && let Some(oldest) = failed.oldest_first.pop_front()
        {
            failed.known.remove(&oldest);
        }
        let (id, error) = (show::id_of(document), error.message().to_owned());
        failed.last = Some(FailedUpdate { dictionary: place.tree, id, error });
        drop(failed);
        self.errors.fetch_add(times, Ordering::Relaxed);
    }

    fn apply_item(
        &self,
        place: UpdatePlace<'_>,
        old: Option<&RawDocument>,
        item: &Item<'_>,
    ) -> Option<RawDocumentBuf> {
        let parsed = Parsed::of(item.update).ok()?;
        let context = context(item);
        let (mut made, mut left) = (None, item.times);
        if old.is_none() {
            let seed = item.seed?;
            let filter = Filter::parse_query(seed, &ParseContext::under(None)).ok()?;
            let new_id = ObjectId::from_bytes([0; 12]);
            match parsed.upsert(&filter, &context, new_id) {
                Ok(document) => made = Some(document),
                Err(error) => {
                    self.note(place, item.times, seed, &error);
                    return None;
                }
            }
            left -= 1;
        }
        while left > 0 {
            let document = made.as_deref().or(old)?;
            let (update, times) = match scaled(document, item, left) {
                Some(scaled) => (Parsed::of(&scaled).ok()?, left),
                None => (Rc::clone(&parsed), 1),
            };
            match update.apply(document, &context) {
                Ok(outcome) if outcome.modified => made = Some(outcome.document),
                Ok(_) => {}
                Err(error) => {
                    // So will the same ones behind it.
                    self.note(place, left, document, &error);
                    break;
                }
            }
            left -= times;
        }
        made
    }
}

impl Updates for FastUpdateRules {
    fn apply(&self, place: UpdatePlace<'_>, old: Option<&[u8]>, argument: &[u8]) -> Applied {
        let Ok(old) = old.map(RawDocument::from_bytes).transpose() else {
            return Applied::Unchanged;
        };
        let mut made: Option<RawDocumentBuf> = None;
        for item in items(argument) {
            let next = self.apply_item(place, made.as_deref().or(old), &item);
            made = next.or(made);
        }
        made.map_or(Applied::Unchanged, |document| Applied::Value(document.into_bytes()))
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let mut all: Vec<Item<'_>> = items(older).collect();
        for item in items(newer) {
            match all.last_mut() {
                Some(last) if last.is_same(&item) && last.may_repeat(item.times) => {
                    last.times += item.times;
                }
                Some(last) if item.overwrites(last) => *last = item,
                _ => all.push(item),
            }
        }
        let mut argument = argument::begin();
        for item in &all {
            put_item(&mut argument, item);
        }
        (all.len() <= MOST_ITEMS && argument.len() <= MOST_BYTES).then_some(argument)
    }
}

/// The argument of one statement: `update` are its operators, `seed` the `_id` of a document that it makes where
/// there is none.
pub(crate) fn argument_of(
    update: &RawDocument,
    seed: Option<&RawDocument>,
    now: Option<(DateTime, Timestamp)>,
) -> Vec<u8> {
    let mut out = argument::begin();
    put_item(&mut out, &Item { times: 1, now, seed, update });
    out
}

/// Whether an update's operators go by the time at which the statement runs.
pub(crate) fn needs_time(update: &RawDocument) -> bool {
    raw::elements(update).flatten().any(|element| element.name_bytes() == b"$currentDate")
}

fn context(item: &Item<'_>) -> UpdateContext {
    let zero = (DateTime::from_millis(0), Timestamp { time: 0, increment: 0 });
    let (now, timestamp) = item.now.unwrap_or(zero);
    let details = MatchDetails::default();
    UpdateContext { details, now, timestamp, keep_empty_timestamps: false }
}

/// An update's bytes, and what they say.
type Kept = (Box<[u8]>, Rc<Update>);

/// Parsing takes longer than applying, and what comes next is mostly the same again.
struct Parsed;

impl Parsed {
    fn of(update: &RawDocument) -> Result<Rc<Update>> {
        thread_local! {
            static LAST: RefCell<Option<Kept>> = const { RefCell::new(None) };
        }
        let bytes = update.as_bytes();
        let last = LAST.with_borrow(|last| match last {
            Some((known, parsed)) if **known == *bytes => Some(Rc::clone(parsed)),
            _ => None,
        });
        if let Some(parsed) = last {
            return Ok(parsed);
        }
        let none = |_: &RawArray| -> Result<Box<dyn PipelineUpdate>> {
            Err(Error::failed_to_parse("a fast update has no pipeline"))
        };
        let parsed =
            Update::parse(RawBsonRef::Document(update), None, &ParseContext::under(None), &none)?;
        let parsed = Rc::new(parsed);
        LAST.set(Some((bytes.into(), Rc::clone(&parsed))));
        Ok(parsed)
    }
}

/// One update that does what `times` of them do, where they add whole numbers to whole numbers and stay within
/// what those can hold.
fn scaled(document: &RawDocument, item: &Item<'_>, times: u64) -> Option<RawDocumentBuf> {
    if times < 2 {
        return None;
    }
    let times = i64::try_from(times).ok()?;
    let amounts = item.whole_amounts()?;
    let mut sums = RawDocumentBuf::new();
    for (name, amount) in amounts {
        let path = Path::new(name);
        let sum = amount.number().checked_mul(times)?;
        match path.get(document).ok()? {
            None => {}
            Some(RawBsonRef::Int32(held)) => drop(i64::from(held).checked_add(sum)?),
            Some(RawBsonRef::Int64(held)) => drop(held.checked_add(sum)?),
            Some(_) => return None,
        }
        let name = bson::raw::CString::try_from(name.to_owned()).ok()?;
        match amount {
            argument::Amount::Int32(_) => sums.append(name, i32::try_from(sum).ok()?),
            argument::Amount::Int64(_) => sums.append(name, sum),
        }
    }
    let mut update = RawDocumentBuf::new();
    update.append(bson::raw::cstr!("$inc"), sums);
    Some(update)
}

#[cfg(test)]
mod tests;
