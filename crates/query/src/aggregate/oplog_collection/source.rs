//! The entries of the oplog in their order, made of commits as they are read.

use super::Bounds;
use crate::context::Interrupt;
use crate::cursor::InterruptSlot;
use crate::past::{PastReader, Step};
use bson::raw::RawDocumentBuf;
use engine::History;
use errors::{Code, Error, Result};
use oplog::Time;
use oplog::commit::{Commit, Cursor};
use oplog::entry::{self, ApplyOps};
use parking_lot::Mutex;
use pipeline::DocumentSource;
use std::sync::Arc;

/// What is known of a cursor's end, for whoever waits there.
pub(super) struct End {
    history: Arc<History>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// All up to here was looked at.
    position: Time,
    /// Nothing that follows is wanted.
    is_over: bool,
}

impl End {
    pub(super) fn new(history: &Arc<History>) -> Self {
        Self { history: Arc::clone(history), state: Mutex::default() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// What is followed, and the time behind which nothing was read yet.
    pub(super) fn of_history(&self) -> (Arc<History>, Time) {
        (Arc::clone(&self.history), self.state.lock().position)
    }
}

/// The entries of one commit, one after the other.
pub(super) struct Entries {
    commit: Box<Commit>,
    cursor: Cursor,
    /// The entry of a transaction that is gathered.
    list: Option<ApplyOps>,
    is_done: bool,
}

impl Entries {
    pub(super) fn of(commit: Box<Commit>) -> Self {
        Self { commit, cursor: Cursor::default(), list: None, is_done: false }
    }

    /// The next entry.
    pub(super) fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.is_done {
            return Ok(None);
        }
        let total = self.commit.operations();
        loop {
            let operation = self.cursor.next(&self.commit, &|_| true)?;
            let Some(operation) = operation else {
                self.is_done = true;
                let list = self.list.take();
                return list.map(|list| list.finish(&self.commit, total)).transpose();
            };
            if !self.commit.head().is_transaction {
                return entry::plain(&self.commit, &operation).map(Some);
            }
            let full = match &self.list {
                Some(list) if list.number() != operation.entry => self.list.take(),
                _ => None,
            };
            let list = self.list.get_or_insert_with(|| ApplyOps::begin(operation.entry));
            list.push(&operation)?;
            if let Some(full) = full {
                return full.finish(&self.commit, total).map(Some);
            }
        }
    }
}

/// The entries within bounds.
pub(super) struct OplogSource {
    history: Arc<History>,
    interrupt: Arc<InterruptSlot>,
    bounds: Bounds,
    reader: Option<PastReader>,
    entries: Option<Entries>,
    end: Arc<End>,
    /// Something was given, or the end was seen: from here on nothing may be left out.
    has_begun: bool,
}

impl OplogSource {
    pub(super) fn new(
        history: Arc<History>,
        interrupt: Arc<InterruptSlot>,
        bounds: Bounds,
        end: Arc<End>,
    ) -> Result<Self> {
        let mut source =
            Self { history, interrupt, bounds, reader: None, entries: None, end, has_begun: false };
        source.begin()?;
        Ok(source)
    }

    /// Begins with the oldest that is wanted and there: what is gone already is not missed. Whether that
    /// is later than before.
    fn begin(&mut self) -> Result<bool> {
        let oldest = Time(self.history.oldest_time().map_err(catalog::from_engine)?);
        let is_later = oldest > self.bounds.after;
        self.bounds.after = self.bounds.after.max(oldest);
        self.reader = None;
        self.end.state.lock().position = self.bounds.after;
        Ok(is_later)
    }

    fn reader(&mut self) -> Result<&mut PastReader> {
        let made = match self.reader.take() {
            Some(reader) => reader,
            None => PastReader::after(&self.history, self.bounds.after)?,
        };
        Ok(self.reader.insert(made))
    }

    fn step(&mut self) -> Result<Step> {
        let interrupt = Arc::clone(&self.interrupt);
        self.reader()?.next(&*interrupt, &|_| true)
    }

    /// Looks for the next commit; false where the batch is to end.
    fn next_commit(&mut self) -> Result<bool> {
        loop {
            let step = match self.step() {
                // The log was cut between the look at its beginning and this one.
                Err(error) if is_lost(&error) && !self.has_begun && self.begin()? => continue,
                step => step.map_err(position_lost)?,
            };
            let (position, until) = (self.reader()?.position(), self.bounds.until);
            if let Step::Commit(commit) = step {
                self.entries = Some(Entries::of(commit));
                return Ok(true);
            }
            self.bounds.after = self.bounds.after.max(position);
            let mut state = self.end.state.lock();
            state.position = state.position.max(position);
            state.is_over |= position >= until;
            self.has_begun |= matches!(step, Step::End);
            if state.is_over || matches!(step, Step::End) {
                return Ok(false);
            }
        }
    }
}

/// Whether the log no longer holds what was to be read.
pub(super) fn is_lost(error: &Error) -> bool {
    error.code() == Code::CHANGE_STREAM_HISTORY_LOST
}

/// What it means to a client that its cursor's place is gone.
fn position_lost(error: Error) -> Error {
    if !is_lost(&error) {
        return error;
    }
    Error::new(
        Code::CAPPED_POSITION_LOST,
        "CollectionScan died due to position in capped collection being deleted. Last seen record \
         id is no longer in the oplog",
    )
}

impl DocumentSource for OplogSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        loop {
            self.interrupt.check()?;
            if self.end.is_over() {
                return Ok(None);
            }
            let Some(entries) = &mut self.entries else {
                if self.next_commit()? {
                    continue;
                }
                return Ok(None);
            };
            let Some(entry) = entries.next()? else {
                let last = entries.commit.head().last();
                self.entries = None;
                self.bounds.after = self.bounds.after.max(last);
                let mut state = self.end.state.lock();
                state.position = state.position.max(last);
                continue;
            };
            let Some(time) = entry::time_of(&entry) else { continue };
            if time > self.bounds.until {
                self.end.state.lock().is_over = true;
                return Ok(None);
            }
            if time > self.bounds.after {
                self.has_begun = true;
                self.bounds.after = time;
                return Ok(Some(entry));
            }
        }
    }

    fn park(&mut self) {
        // What is left of a commit is read again: its entries are later than the last one given.
        if self.entries.take().is_some() {
            self.reader = None;
        }
        if let Some(reader) = &mut self.reader {
            reader.park();
        }
    }
}
