//! What a query gives its caller: documents one by one, parked between batches.

use crate::context::Interrupt;
use crate::exec::{ExecContext, PlanStage};
use bson::raw::{RawDocument, RawDocumentBuf};
use catalog::Collection;
use engine::{History, Snapshot, Value};
use errors::{Code, Error, Result};
use oplog::Time;
use os::{Call, Watch};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use update::projection::Flat;

/// Where the documents of a cursor come from.
pub(crate) trait Rows: Send {
    /// The next document, lent until the next call.
    fn next(&mut self) -> Result<Option<&RawDocument>>;
    /// Gives back pinned memory; the place is kept.
    fn park(&mut self) {}
    /// Of a tailable cursor: goes on with the state of now.
    fn refresh(&mut self) {}
    /// Of one that follows the history, at its end: what it follows, and the time behind which there was
    /// nothing yet. `None` where there may be more already.
    fn end_of_history(&self) -> Option<(Arc<History>, Time)> {
        None
    }
    /// Of one that follows the history: nothing will follow.
    fn is_over(&self) -> bool {
        false
    }
    /// From where another stream would go on; before the last document where that was put back.
    fn resume_token(&self, _put_back: bool) -> Option<RawDocumentBuf> {
        None
    }
    /// Whether a plan was made for them.
    #[cfg(test)]
    fn is_planned(&self) -> bool {
        true
    }
}

/// Where a cursor's documents come from.
enum Source {
    Rows(Box<dyn Rows>),
    One(One),
}

/// What a find gives.
pub enum Found {
    /// At most one document, which was looked up.
    One(One),
    /// What a cursor goes through.
    Rows(QueryCursor),
}

impl Found {
    /// A cursor in either case.
    pub fn into_cursor(self) -> QueryCursor {
        match self {
            Self::One(one) => QueryCursor::of_one(one),
            Self::Rows(rows) => rows,
        }
    }
}

/// At most one document, which was looked up.
#[derive(Default)]
pub struct One {
    next: Option<Value>,
    current: Option<Value>,
    /// What of it is shown, where that is not all.
    shown: Option<Box<Flat>>,
    projected: Option<RawDocumentBuf>,
    collection: Option<Arc<Collection>>,
}

impl One {
    /// This one, of which this is shown.
    pub(crate) fn new(
        found: Option<Value>,
        shown: Option<Flat>,
        collection: Option<Arc<Collection>>,
    ) -> Self {
        let (current, projected) = (None, None);
        Self { next: found, current, shown: shown.map(Box::new), projected, collection }
    }

    /// The document, lent until the next call, which gives none.
    pub fn document(&mut self) -> Result<Option<&RawDocument>> {
        self.current = self.next.take();
        if let (Some(shown), Some(value)) = (&self.shown, &self.current) {
            let projected = shown.apply(RawDocument::from_bytes(&value[..])?)?;
            self.current = None;
            return Ok(Some(&**self.projected.insert(projected)));
        }
        let document = self.current.as_ref().map(|value| RawDocument::from_bytes(&value[..]));
        Ok(document.transpose()?)
    }

    fn park(&mut self) {
        (self.current, self.projected) = (None, None);
        self.next = self.next.take().map(Value::detached);
    }
}

impl Source {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        match self {
            Self::Rows(rows) => rows.next(),
            Self::One(one) => one.document(),
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
    tail: Tail,
}

/// What follows a cursor's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Nothing.
    None,
    /// What is inserted into its capped collection: its snapshot has seen so many commits, at least.
    Collection(u64),
    /// What the history tells from then on.
    History,
}

impl QueryCursor {
    pub(crate) fn new(
        rows: Box<dyn Rows>,
        collection: Option<Arc<Collection>>,
        interrupt: Arc<InterruptSlot>,
    ) -> Self {
        let (source, interrupt) = (Source::Rows(rows), Some(interrupt));
        Self { source, collection, interrupt, returned: None, lent: None, tail: Tail::None }
    }

    /// Of what these stages find in a state.
    pub(crate) fn of_stages(
        stage: Box<dyn PlanStage>,
        snapshot: Snapshot,
        collection: Option<Arc<Collection>>,
        interrupt: &Arc<dyn Interrupt>,
    ) -> Self {
        let interrupt = InterruptSlot::of(interrupt);
        let rows = StageRows { stage, snapshot, interrupt: Arc::clone(&interrupt) };
        Self::new(Box::new(rows), collection, interrupt)
    }

    /// Of at most one document, which was looked up.
    fn of_one(mut one: One) -> Self {
        let (collection, source) = (one.collection.take(), Source::One(one));
        Self { source, collection, interrupt: None, returned: None, lent: None, tail: Tail::None }
    }

    /// The most documents that it can still give, where that is known.
    pub fn most(&self) -> Option<u64> {
        match &self.source {
            Source::Rows(_) => None,
            Source::One(_) => Some(1),
        }
    }

    /// Whether a plan was made for it.
    #[cfg(test)]
    pub(crate) fn is_planned(&self) -> bool {
        match &self.source {
            Source::Rows(rows) => rows.is_planned(),
            Source::One(_) => false,
        }
    }

    /// The cursor stays open at its end, and goes on from there.
    pub(crate) fn tailing(self, seen: u64) -> Self {
        Self { tail: Tail::Collection(seen), ..self }
    }

    /// As [`QueryCursor::tailing`], of what the history tells.
    pub(crate) fn following(self) -> Self {
        Self { tail: Tail::History, ..self }
    }

    /// Whether its end is only the end of what is there by now.
    pub fn is_tailable(&self) -> bool {
        match (self.tail, &self.source) {
            (Tail::Collection(_), _) => true,
            (Tail::History, Source::Rows(rows)) => self.returned.is_some() || !rows.is_over(),
            (Tail::None, _) | (Tail::History, Source::One(_)) => false,
        }
    }

    /// Whether the cursor waits at its end without being asked to: a change stream.
    pub fn is_change_stream(&self) -> bool {
        self.resume_token().is_some()
    }

    /// From where a change stream would go on behind what was given.
    pub fn resume_token(&self) -> Option<RawDocumentBuf> {
        match &self.source {
            Source::Rows(rows) => rows.resume_token(self.returned.is_some()),
            Source::One(_) => None,
        }
    }

    /// Of a tailable cursor: goes on with the state of now.
    pub fn refresh(&mut self) {
        match (&mut self.tail, &self.collection) {
            (Tail::None, _) | (Tail::Collection(_), None) => return,
            (Tail::Collection(seen), Some(collection)) => *seen = collection.commits_seen(),
            (Tail::History, _) => {}
        }
        if let Source::Rows(rows) = &mut self.source {
            rows.refresh();
        }
    }

    /// Of a tailable cursor at its end: has `call` made when something is written. `None` where it cannot be
    /// told of. Ask [`QueryCursor::has_news`] after this: what was written before is told to nobody.
    pub fn watch(&self, call: &Call) -> Option<Watch> {
        match (self.tail, &self.collection, &self.source) {
            (Tail::Collection(_), Some(collection), _) => {
                Some(collection.watch_commits(Arc::clone(call)))
            }
            (Tail::History, _, Source::Rows(rows)) => {
                let (history, _) = rows.end_of_history()?;
                Some(history.watch(Arc::clone(call)))
            }
            _ => None,
        }
    }

    /// Of a tailable cursor: whether something was written since it went on with the newest state.
    pub fn has_news(&self) -> bool {
        match (self.tail, &self.collection, &self.source) {
            (Tail::Collection(seen), Some(collection), _) => collection.commits_seen() != seen,
            (Tail::History, _, Source::Rows(rows)) => rows
                .end_of_history()
                .is_none_or(|(history, after)| history.durable_time() > after.0),
            _ => false,
        }
    }

    /// Of a tailable cursor at its end: waits until something was written, or for `time`; says
    /// whether it is worth to look again.
    pub fn wait(&self, now: Duration, time: Duration) -> bool {
        match (self.tail, &self.collection, &self.source) {
            (Tail::Collection(seen), Some(collection), _) => collection.wait_for_commit(seen, time),
            (Tail::History, _, Source::Rows(rows)) => rows
                .end_of_history()
                .is_none_or(|(history, after)| history.wait_past(after.0, now + time)),
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
        let Self { source, tail, collection, .. } = self;
        source.next().map_err(|error| match collection {
            // A tail reads the newest state: what is not in it was dropped this moment.
            Some(collection)
                if *tail != Tail::None && error.code() == Code::SNAPSHOT_UNAVAILABLE =>
            {
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
            Source::One(one) => one.park(),
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

/// Stages that run by themselves on a snapshot.
pub(crate) struct StageRows {
    pub(crate) stage: Box<dyn PlanStage>,
    pub(crate) snapshot: Snapshot,
    pub(crate) interrupt: Arc<InterruptSlot>,
}

impl Rows for StageRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        let exec = ExecContext::new(&self.snapshot, &*self.interrupt);
        if !self.stage.advance(&exec)? {
            return Ok(None);
        }
        self.stage.row().document().map(Some)
    }

    fn park(&mut self) {
        self.stage.park();
        self.stage.release_row();
    }
}
