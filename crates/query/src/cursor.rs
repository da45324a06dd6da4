//! What a query gives its caller: documents one by one, parked between batches.

use crate::context::Interrupt;
use bson::raw::{RawDocument, RawDocumentBuf};
use catalog::Collection;
use engine::Value;
use errors::{Code, Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Where the documents of a cursor come from.
pub(crate) trait Rows: Send {
    /// The next document, lent until the next call.
    fn next(&mut self) -> Result<Option<&RawDocument>>;
    /// Gives back pinned memory; the place is kept.
    fn park(&mut self) {}
    /// Of a tailable cursor: goes on with the state of now.
    fn refresh(&mut self) {}
}

/// Where a cursor's documents come from.
enum Source {
    Rows(Box<dyn Rows>),
    /// At most one document, which was looked up.
    One {
        next: Option<Value>,
        current: Option<Value>,
    },
}

impl Source {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        match self {
            Self::Rows(rows) => rows.next(),
            Self::One { next, current } => {
                *current = next.take();
                let document = current.as_ref().map(|value| RawDocument::from_bytes(&value[..]));
                Ok(document.transpose()?)
            }
        }
    }
}

/// A running query. It owns its snapshot and may be kept across getMore.
pub struct QueryCursor {
    source: Source,
    collection: Option<Arc<Collection>>,
    /// Nobody asks it where there is one document.
    interrupt: Option<Arc<InterruptSlot>>,
    returned: Option<RawDocumentBuf>,
    lent: Option<RawDocumentBuf>,
    /// Of a tailable cursor: the commits that its snapshot has seen, at least.
    seen: Option<u64>,
}

impl QueryCursor {
    pub(crate) fn new(
        rows: Box<dyn Rows>,
        collection: Option<Arc<Collection>>,
        interrupt: Arc<InterruptSlot>,
    ) -> Self {
        let (source, interrupt) = (Source::Rows(rows), Some(interrupt));
        Self { source, collection, interrupt, returned: None, lent: None, seen: None }
    }

    /// Of at most one document, which was looked up.
    pub(crate) fn of_one(found: Option<Value>, collection: Option<Arc<Collection>>) -> Self {
        let source = Source::One { next: found, current: None };
        Self { source, collection, interrupt: None, returned: None, lent: None, seen: None }
    }

    /// The most documents that it can still give, where that is known.
    pub fn most(&self) -> Option<u64> {
        match &self.source {
            Source::Rows(_) => None,
            Source::One { .. } => Some(1),
        }
    }

    /// The cursor stays open at its end, and goes on from there.
    pub(crate) fn tailing(self, seen: u64) -> Self {
        Self { seen: Some(seen), ..self }
    }

    /// Whether its end is only the end of what is there by now.
    pub fn is_tailable(&self) -> bool {
        self.seen.is_some()
    }

    /// Of a tailable cursor: goes on with the state of now.
    pub fn refresh(&mut self) {
        if let (Some(seen), Some(collection)) = (&mut self.seen, &self.collection) {
            *seen = collection.commits_seen();
            if let Source::Rows(rows) = &mut self.source {
                rows.refresh();
            }
        }
    }

    /// Of a tailable cursor at its end: waits until something was written, or for `time`; says
    /// whether it is worth to look again.
    pub fn wait(&self, time: Duration) -> bool {
        match (self.seen, &self.collection) {
            (Some(seen), Some(collection)) => collection.wait_for_commit(seen, time),
            _ => false,
        }
    }

    /// The next document, lent until the next call; `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "lends from itself, so not an Iterator")]
    pub fn next(&mut self) -> Result<Option<&RawDocument>> {
        if let Some(document) = self.returned.take() {
            self.lent = Some(document);
            return Ok(self.lent.as_deref());
        }
        let Self { source, seen, collection, .. } = self;
        source.next().map_err(|error| match collection {
            // A tail reads the newest state: what is not in it was dropped this moment.
            Some(collection) if seen.is_some() && error.code() == Code::SNAPSHOT_UNAVAILABLE => {
                dropped(collection)
            }
            _ => error,
        })
    }

    /// Puts a document back: it is what the next call of [`QueryCursor::next`] gives. For a
    /// document that did not fit into the batch.
    pub fn push_front(&mut self, document: RawDocumentBuf) {
        self.returned = Some(document);
    }

    /// Bytes of the document that was put back.
    pub fn held_bytes(&self) -> usize {
        self.returned.as_ref().map_or(0, |document| document.as_bytes().len())
    }

    /// Ends a batch: gives back pinned memory, keeps the place.
    pub fn park(&mut self) {
        self.lent = None;
        if let Some(interrupt) = &self.interrupt {
            interrupt.set(None);
        }
        match &mut self.source {
            Source::Rows(rows) => rows.park(),
            Source::One { next, current } => {
                *current = None;
                *next = next.take().map(Value::detached);
            }
        }
    }

    /// Starts the next batch. Fails where the collection was dropped meanwhile.
    pub fn resume(&mut self, interrupt: Arc<dyn Interrupt>) -> Result<()> {
        self.check_alive()?;
        if let Some(slot) = &self.interrupt {
            slot.set(Some(interrupt));
        }
        Ok(())
    }

    /// Fails where the collection was dropped.
    pub fn check_alive(&self) -> Result<()> {
        match &self.collection {
            Some(collection) if collection.is_dropped() => Err(dropped(collection)),
            _ => Ok(()),
        }
    }
}

fn dropped(collection: &Collection) -> Error {
    let text = format!("collection dropped. UUID {}", collection.uuid());
    Error::new(Code::QUERY_PLAN_KILLED, text)
}

/// The interrupt of the batch at hand, shared with everything that runs below a cursor.
#[derive(Default)]
pub(crate) struct InterruptSlot(Mutex<Option<Arc<dyn Interrupt>>>);

impl InterruptSlot {
    pub(crate) fn of(interrupt: &Arc<dyn Interrupt>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Arc::clone(interrupt)))))
    }

    fn set(&self, interrupt: Option<Arc<dyn Interrupt>>) {
        *self.0.lock() = interrupt;
    }
}

impl Interrupt for InterruptSlot {
    fn check(&self) -> Result<()> {
        let current = self.0.lock().clone();
        current.map_or(Ok(()), |interrupt| interrupt.check())
    }
}
