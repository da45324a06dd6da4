//! What the request of this thread has looked at so far: index entries, documents, and the plans it
//! took; for the log and the profiler.
//!
//! A request runs on one thread from its beginning to its end, so counting takes no lock, and no
//! step of a plan has to be handed a counter.
//!
//! Always true: a stage tells what it has looked at when it is parked and when it is dropped, each
//! entry once ([`Tally`]).

use crate::exec::Counters;
use bsonval::show::document as document_text;
use catalog::Index;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What a request looked at.
#[derive(Debug, Default)]
pub struct Examined {
    /// Index entries.
    pub keys: u64,
    /// Documents.
    pub documents: u64,
    /// Of those, the ones that scans of a whole collection looked at, …
    pub scanned: u64,
    /// … and what passed their filter.
    pub found_by_scan: u64,
    /// It sorted what it found.
    pub sorts: bool,
    plans: Plans,
}

/// The ways that a request's plans took.
#[derive(Clone, Debug, Default)]
pub struct Plans(SmallVec<[Way; 2]>);

#[derive(Clone, Debug)]
struct Way {
    name: &'static str,
    index: Option<Arc<Index>>,
}

/// The most ways that are kept.
const MAX_WAYS: usize = 8;

thread_local! {
    static EXAMINED: RefCell<Examined> = RefCell::default();
}

/// What this thread has looked at since it was asked last.
pub fn take_examined() -> Examined {
    EXAMINED.with(|examined| std::mem::take(&mut *examined.borrow_mut()))
}

/// Puts back what [`take_examined`] gave: what came between is not the request's.
pub(crate) fn set_examined(examined: Examined) {
    EXAMINED.with(|kept| *kept.borrow_mut() = examined);
}

/// The ways so far, for a cursor's later batches.
pub fn plans_taken() -> Plans {
    EXAMINED.with(|examined| examined.borrow().plans.clone())
}

/// Restores the plans of an earlier request, for the plan summary of a later batch.
pub fn restore_plan_summary(plans: &Plans) {
    EXAMINED.with(|examined| examined.borrow_mut().plans.clone_from(plans));
}

impl Examined {
    /// The plans in short: `IXSCAN { a: 1 }, COLLSCAN`; `None` where there was none.
    pub fn plan_summary(&self) -> Option<String> {
        let ways: Vec<String> = self.plans.0.iter().map(Way::text).collect();
        (!ways.is_empty()).then(|| ways.join(", "))
    }
}

impl Plans {
    fn add(&mut self, name: &'static str, index: Option<&Arc<Index>>) {
        let ways = &mut self.0;
        if ways.len() < MAX_WAYS && !ways.iter().any(|way| way.is(name, index)) {
            ways.push(Way { name, index: index.cloned() });
        }
    }
}

impl Way {
    fn text(&self) -> String {
        match (&self.index, self.name) {
            (Some(index), name) => format!("{name} {}", document_text(&index.spec().key)),
            // The index that is the collection itself.
            (None, "IXSCAN") => "IXSCAN { _id: 1 }".to_owned(),
            (None, name) => name.to_owned(),
        }
    }

    fn is(&self, name: &'static str, index: Option<&Arc<Index>>) -> bool {
        self.name == name && self.index.as_ref().map(Arc::as_ptr) == index.map(Arc::as_ptr)
    }
}

/// A way that a plan takes. A `$lookup` takes the same one for each document: it is kept once.
pub(crate) fn note_way(name: &'static str, index: Option<&Arc<Index>>) {
    EXAMINED.with(|examined| examined.borrow_mut().plans.add(name, index));
}

/// One document by its `_id`, without a plan.
pub(crate) fn note_id_lookup(found: bool) {
    EXAMINED.with(|examined| {
        let mut examined = examined.borrow_mut();
        examined.plans.add("IDHACK", None);
        examined.add(u64::from(found), u64::from(found));
    });
}

/// One document by the one entry of a unique index, without a plan: what a scan of that entry would have told.
pub(crate) fn note_entry_lookup(index: &Arc<Index>, found: bool) {
    note_way("IXSCAN", Some(index));
    index.note_use();
    if found {
        index.note_scanned(1, 1);
        EXAMINED.with(|examined| examined.borrow_mut().add(1, 1));
    }
}

/// The request sorts what it finds.
pub(crate) fn note_sort() {
    EXAMINED.with(|examined| examined.borrow_mut().sorts = true);
}

impl Examined {
    fn add(&mut self, keys: u64, documents: u64) {
        self.keys += keys;
        self.documents += documents;
    }
}

/// The counters of a stage that looks at entries or documents, told to the request in the end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counters: Counters,
    told: Counters,
    scans: bool,
}

impl Tally {
    /// Of a scan of the whole collection.
    pub(crate) fn of_scan() -> Self {
        Self { scans: true, ..Self::default() }
    }

    /// Tells what was looked at since it was told last.
    pub(crate) fn tell(&mut self) {
        let Counters { keys, documents, advanced, .. } = self.counters;
        let documents = documents - self.told.documents;
        EXAMINED.with(|examined| {
            let mut examined = examined.borrow_mut();
            examined.add(keys - self.told.keys, documents);
            if self.scans {
                examined.scanned += documents;
                examined.found_by_scan += advanced - self.told.advanced;
            }
        });
        self.told = self.counters;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.tell();
    }
}

impl Deref for Tally {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        &self.counters
    }
}

impl DerefMut for Tally {
    fn deref_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}
