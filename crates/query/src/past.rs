//! The history of commits, read for the oplog and for change streams.
//!
//! From → to: the engine gives commits in order ([`engine::HistoryTail`]); those that tell of
//! something a reader wants are put together with the documents that they wrote
//! ([`oplog::commit::Commit`]). The others cost a look at their notes.
//!
//! Always true: a reader that waits between two requests holds no memory of the log and no file.

use crate::context::Interrupt;
use catalog::from_engine;
use engine::{History, HistoryCommit, HistoryOperation, HistoryTail};
use errors::{Code, Error, Result};
use limits::{Growth, KeyMap, KeySet, Part};
use oplog::Time;
use oplog::commit::{Commit, Head, Rows};
use oplog::notes::{Decoder, Item, Name};
use std::sync::Arc;

/// Bytes of log that are read between two looks whether to go on.
const STEP_BYTES: u64 = 1 << 20;
/// What a row in memory costs beside its bytes.
const ROW_BYTES: usize = 96;

/// Whether a reader wants what happens to a collection; changes of collections have none.
pub(crate) type Wants = dyn Fn(Option<&Name>) -> bool + Send + Sync;

/// Reads commits from a time on.
pub(crate) struct PastReader {
    tail: HistoryTail,
}

/// What the next look into the history gave.
pub(crate) enum Step {
    /// A commit that tells of something wanted.
    Commit(Box<Commit>),
    /// Others: there may be more.
    Passed,
    /// All that is durable was given.
    End,
}

impl PastReader {
    /// Of all commits whose last time is later than `after`.
    pub(crate) fn after(history: &Arc<History>, after: Time) -> Result<Self> {
        let tail = history.read_after(after.0).map_err(lost)?;
        Ok(Self { tail })
    }

    /// All up to this time was given or passed.
    pub(crate) fn position(&self) -> Time {
        Time(self.tail.position())
    }

    /// One commit, or a piece of log without one.
    pub(crate) fn next(&mut self, interrupt: &dyn Interrupt, wants: &Wants) -> Result<Step> {
        interrupt.check()?;
        match self.tail.next_within(STEP_BYTES).map_err(lost)? {
            Some(commit) => {
                let read = put_together(&commit, wants)?;
                Ok(read.map_or(Step::Passed, |commit| Step::Commit(Box::new(commit))))
            }
            None if self.tail.is_at_end() => Ok(Step::End),
            None => Ok(Step::Passed),
        }
    }

    /// Gives memory and file back.
    pub(crate) fn park(&mut self) {
        self.tail.park();
    }
}

/// What a failed look into the history means to a client.
pub(crate) fn lost(error: engine::Error) -> Error {
    match error {
        engine::Error::HistoryLost => Error::new(
            Code::CHANGE_STREAM_HISTORY_LOST,
            "Resume of change stream was not possible, as the resume point may no longer be in the \
             oplog.",
        )
        .with_label("NonResumableChangeStreamError"),
        other => from_engine(other),
    }
}

/// The commit with what it tells of; `None` where that is nothing wanted.
fn put_together(commit: &HistoryCommit, wants: &Wants) -> Result<Option<Commit>> {
    let mut notes: Vec<Vec<u8>> = Vec::new();
    let mut memory = Growth::new(Part::Stages);
    let mut bytes = 0;
    let mut operations = commit.operations();
    while let Some(operation) = operations.next().map_err(lost)? {
        limits::poll()?;
        if let HistoryOperation::Note(note) = operation {
            bytes += note.len();
            memory.reach(bytes)?;
            notes.push(note.to_vec());
        }
    }
    let Some(dictionaries) = wanted(&notes, wants)? else { return Ok(None) };
    let mut rows = CommitRows { rows: KeyMap::default(), memory };
    let mut operations = commit.operations();
    while let Some(operation) = operations.next().map_err(lost)? {
        limits::poll()?;
        if let HistoryOperation::Put { dictionary, key, value } = operation
            && dictionaries.contains(&dictionary.0)
        {
            bytes += key.len() + value.len() + ROW_BYTES;
            rows.memory.reach(bytes)?;
            rows.rows.insert((dictionary.0, key.to_vec()), value.to_vec());
        }
    }
    let head = Head {
        first: Time(commit.time),
        span: commit.span,
        is_transaction: commit.is_client_transaction,
    };
    Commit::new(head, notes, Box::new(rows)).map(Some)
}

/// The dictionaries whose documents are wanted; `None` where nothing of the commit is.
fn wanted(notes: &[Vec<u8>], wants: &Wants) -> Result<Option<KeySet<u64>>> {
    let mut dictionaries = KeySet::default();
    let mut is_wanted = false;
    let mut decoder = Decoder::default();
    for note in notes {
        decoder.read(note, |item, _| {
            match item {
                Item::Name { dictionary, uuid, ns } => {
                    let name = Name { dictionary, uuid, ns: ns.to_owned() };
                    if wants(Some(&name)) {
                        dictionaries.insert(dictionary);
                        is_wanted = true;
                    }
                }
                Item::Command(_) => is_wanted |= wants(None),
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(is_wanted.then_some(dictionaries))
}

/// The documents that a commit wrote.
struct CommitRows {
    rows: KeyMap<(u64, Vec<u8>), Vec<u8>>,
    memory: Growth,
}

impl Rows for CommitRows {
    fn get(&self, dictionary: u64, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.get(&(dictionary, key.to_vec())).cloned())
    }
}
