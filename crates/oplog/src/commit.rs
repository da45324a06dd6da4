//! A commit as it is read back: its operations, one by one, with the documents that they wrote.
//!
//! From → to: the notes are read over once ([`Commit::new`]); a [`Cursor`] then goes through them
//! and takes each operation's document from the record's rows, or from the note that tells what was
//! overwritten later.
//!
//! Always true: an operation whose document the record does not hold (its collection was dropped by
//! the same commit) is passed by; every other one is given once, in the order of the notes.

use crate::notes::{Decoder, Input, Item, Name, Session};
use crate::{Time, damaged};
use bson::raw::{RawDocument, RawDocumentBuf};
use errors::Result;
use limits::KeyMap;
use std::sync::Arc;

/// What the record wrote: the documents by dictionary and key.
pub trait Rows: Send {
    /// The document that the record leaves under a key.
    fn get(&self, dictionary: u64, key: &[u8]) -> Result<Option<Vec<u8>>>;
}

/// What the log says of a commit beside its notes and rows.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The first of its times.
    pub first: Time,
    /// How many times it takes.
    pub span: u32,
    /// It is a client's transaction: its operations are one.
    pub is_transaction: bool,
}

impl Head {
    /// The last of its times: that of a transaction's commit.
    pub fn last(&self) -> Time {
        Time(self.first.0.saturating_add(u64::from(self.span.saturating_sub(1))))
    }
}

/// What stood under a key until an operation.
struct Overwritten {
    until: u64,
    document: Vec<u8>,
}

/// A run of operations that belong to statements, one each.
struct Run {
    first: u64,
    count: u64,
    statement: u64,
}

/// A commit that is read.
pub struct Commit {
    head: Head,
    notes: Vec<Vec<u8>>,
    rows: Box<dyn Rows>,
    names: Vec<Arc<Name>>,
    wall: i64,
    session: Option<Session>,
    runs: Vec<Run>,
    overwritten: KeyMap<(u64, Vec<u8>), Vec<Overwritten>>,
    operations: u64,
}

/// What an operation did.
#[derive(Clone, Debug)]
pub enum What {
    /// A document came.
    Insert(RawDocumentBuf),
    /// A document changed.
    Update {
        /// Its `_id`, as a document.
        id: RawDocumentBuf,
        /// What changed.
        diff: RawDocumentBuf,
        /// The document then.
        after: RawDocumentBuf,
    },
    /// A document took the place of another of its `_id`.
    Replace(RawDocumentBuf),
    /// A document went; its `_id`, as a document.
    Delete(RawDocumentBuf),
    /// A change of collections or indexes.
    Command {
        /// `database.$cmd`.
        ns: String,
        /// The command.
        object: RawDocumentBuf,
        /// What it was before.
        object2: Option<RawDocumentBuf>,
    },
}

/// One operation of a commit.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its place among the commit's operations.
    pub index: u64,
    /// Which entry of its transaction it is in.
    pub entry: u32,
    /// The collection; of a command its UUID only, where it is about one.
    pub name: Option<Arc<Name>>,
    /// The UUID that goes with it.
    pub uuid: Option<[u8; 16]>,
    /// The statement of a retryable write.
    pub statement: Option<i32>,
    /// What the document was before, where the collection keeps that.
    pub before: Option<RawDocumentBuf>,
    /// What it did.
    pub what: What,
}

impl Commit {
    /// The commit of these notes.
    pub fn new(head: Head, notes: Vec<Vec<u8>>, rows: Box<dyn Rows>) -> Result<Self> {
        let mut commit = Self {
            head,
            notes: Vec::new(),
            rows,
            names: Vec::new(),
            wall: (head.first.0 >> 32) as i64 * 1000,
            session: None,
            runs: Vec::new(),
            overwritten: KeyMap::default(),
            operations: 0,
        };
        let mut decoder = Decoder::default();
        for note in &notes {
            limits::poll()?;
            decoder.read(note, |item, key| commit.see(&item, key))?;
        }
        commit.notes = notes;
        Ok(commit)
    }

    fn see(&mut self, item: &Item<'_>, key: &[u8]) -> Result<()> {
        match *item {
            Item::Wall(milliseconds) => self.wall = milliseconds,
            Item::Name { dictionary, uuid, ns } => {
                self.names.push(Arc::new(Name { dictionary, uuid, ns: ns.to_owned() }));
            }
            Item::Session(session) => self.session = Some(session),
            Item::Statements { first, count, statement } => {
                self.runs.push(Run { first, count, statement });
            }
            Item::Overwritten(slot, document) => {
                let dictionary = self.name(slot)?.dictionary;
                let all = self.overwritten.entry((dictionary, key.to_vec())).or_default();
                all.push(Overwritten {
                    until: self.operations,
                    document: document.as_bytes().to_vec(),
                });
            }
            _ if item.is_operation() => self.operations += 1,
            _ => {}
        }
        Ok(())
    }

    fn name(&self, slot: usize) -> Result<&Arc<Name>> {
        self.names.get(slot).ok_or_else(|| damaged("a collection that was not named"))
    }

    /// Its times.
    pub fn head(&self) -> Head {
        self.head
    }

    /// When it was committed, in milliseconds.
    pub fn wall(&self) -> i64 {
        self.wall
    }

    /// Whose it is.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// How many operations it has.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The collections that it is about.
    pub fn names(&self) -> &[Arc<Name>] {
        &self.names
    }

    /// The time of an operation: its own in a plain commit, the commit's in a transaction.
    pub fn time_of(&self, operation: &Operation) -> Time {
        if self.head.is_transaction {
            return self.head.last();
        }
        Time(self.head.first.0.saturating_add(operation.index)).min(self.head.last())
    }

    fn statement_of(&self, index: u64) -> Option<i32> {
        let run = self.runs.iter().find(|run| index.wrapping_sub(run.first) < run.count)?;
        i32::try_from(run.statement.checked_add(index - run.first)?).ok()
    }

    /// The document that an operation left under a key.
    fn document(&self, dictionary: u64, key: &[u8], index: u64) -> Result<Option<RawDocumentBuf>> {
        let later = if self.overwritten.is_empty() {
            None
        } else {
            let all = self.overwritten.get(&(dictionary, key.to_vec()));
            all.and_then(|all| all.iter().find(|one| one.until > index))
        };
        let bytes = match later {
            Some(later) => Some(later.document.clone()),
            None => self.rows.get(dictionary, key)?,
        };
        let document = bytes.map(RawDocumentBuf::from_bytes).transpose();
        document.map_err(|_| damaged("a row is no document"))
    }
}

/// A place in a commit's notes.
#[derive(Default)]
pub struct Cursor {
    decoder: Decoder,
    note: usize,
    /// Where in the note, counted from its end: what is left.
    left: Option<usize>,
    index: u64,
    entry: u32,
    before: Option<RawDocumentBuf>,
}

impl Cursor {
    /// The next operation that `wants` its collection or command; others cost little.
    pub fn next(
        &mut self,
        commit: &Commit,
        wants: &dyn Fn(Option<&Name>) -> bool,
    ) -> Result<Option<Operation>> {
        loop {
            let Some(note) = commit.notes.get(self.note) else { return Ok(None) };
            let mut input = Input::of(note)?;
            if let Some(left) = self.left {
                input.skip_to(left)?;
            }
            while let Some(item) = self.decoder.next(&mut input)? {
                limits::poll()?;
                let found = self.see(commit, item, wants)?;
                if found.is_some() {
                    self.left = Some(input.left());
                    return Ok(found);
                }
            }
            self.note += 1;
            self.left = None;
        }
    }

    fn see(
        &mut self,
        commit: &Commit,
        item: Item<'_>,
        wants: &dyn Fn(Option<&Name>) -> bool,
    ) -> Result<Option<Operation>> {
        match item {
            Item::Break => self.entry = self.entry.saturating_add(1),
            Item::PreImage(document) => self.before = Some(document.to_owned()),
            _ => {}
        }
        if !item.is_operation() {
            return Ok(None);
        }
        let index = self.index;
        self.index += 1;
        let before = self.before.take();
        let slot = match item {
            Item::Insert(slot)
            | Item::Replace(slot)
            | Item::Update(slot, _)
            | Item::Delete(slot, _) => Some(slot),
            _ => None,
        };
        let name = slot.map(|slot| commit.name(slot)).transpose()?;
        if !wants(name.map(|name| &**name)) {
            return Ok(None);
        }
        let document = || match name {
            Some(name) => commit.document(name.dictionary, self.decoder.key(), index),
            None => Ok(None),
        };
        let what = match item {
            Item::Insert(_) => document()?.map(What::Insert),
            Item::Replace(_) => document()?.map(What::Replace),
            Item::Delete(_, id) => Some(What::Delete(id.to_owned())),
            Item::Update(_, diff) => match document()? {
                Some(after) => {
                    Some(What::Update { id: id_of(&after)?, diff: diff.to_owned(), after })
                }
                None => None,
            },
            Item::Command(command) => Some(What::Command {
                ns: command.ns.to_owned(),
                object: command.object.to_owned(),
                object2: command.object2.map(RawDocument::to_owned),
            }),
            _ => None,
        };
        let Some(what) = what else { return Ok(None) };
        let uuid = match item {
            Item::Command(command) => command.uuid,
            _ => name.map(|name| name.uuid),
        };
        Ok(Some(Operation {
            index,
            entry: self.entry,
            name: name.cloned(),
            uuid,
            statement: commit.statement_of(index),
            before,
            what,
        }))
    }
}

/// `{_id: …}` of a document.
pub fn id_of(document: &RawDocument) -> Result<RawDocumentBuf> {
    match bsonval::raw::field(document, "_id")? {
        Some(id) => Ok(bsonval::raw::document_of("_id", id)),
        None => Err(damaged("a document has no _id")),
    }
}

#[cfg(test)]
mod tests;
