//! Oplog entries as MongoDB's tools and drivers read them, made of a commit's operations.
//!
//! A plain commit's operations are an entry each, with times of their own. A client's transaction is
//! a chain of `applyOps`, each at most [`crate::notes::ENTRY_BYTES`] long and a time apart.

use crate::Time;
use crate::commit::{Commit, Operation, What, id_of};
use bson::Timestamp;
use bson::raw::{RawBinaryRef, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::{BinarySubtype, ElementType};
use bsonval::raw::Writer;
use errors::Result;

/// The term that every entry has: a set of one has had one primary.
const TERM: i64 = 1;

/// What goes into a list of operations or is an entry of its own.
fn write_operation(out: &mut Writer, operation: &Operation) -> Result<()> {
    let kind = match &operation.what {
        What::Insert(_) => "i",
        What::Update { .. } | What::Replace(_) => "u",
        What::Delete(_) => "d",
        What::Command { .. } => "c",
    };
    out.value("op", RawBsonRef::String(kind));
    let ns = match (&operation.what, &operation.name) {
        (What::Command { ns, .. }, _) => ns,
        (_, Some(name)) => &name.ns,
        (_, None) => "",
    };
    out.value("ns", RawBsonRef::String(ns));
    if let Some(uuid) = &operation.uuid {
        let binary = RawBinaryRef { subtype: BinarySubtype::Uuid, bytes: uuid };
        out.value("ui", RawBsonRef::Binary(binary));
    }
    let (object, object2) = match &operation.what {
        What::Insert(document) | What::Replace(document) => {
            (document.clone(), Some(id_of(document)?))
        }
        What::Update { id, diff, .. } => {
            let mut update = Writer::with_capacity(diff.as_bytes().len() + 32);
            let open = update.begin();
            update.value("$v", RawBsonRef::Int32(2));
            update.value("diff", RawBsonRef::Document(diff));
            update.end(open);
            (update.finish()?, Some(id.clone()))
        }
        What::Delete(id) => (id.clone(), None),
        What::Command { object, object2, .. } => (object.clone(), object2.clone()),
    };
    out.value("o", RawBsonRef::Document(&object));
    if let Some(object2) = &object2 {
        out.value("o2", RawBsonRef::Document(object2));
    }
    Ok(())
}

fn write_session(out: &mut Writer, commit: &Commit) {
    let Some(session) = commit.session() else { return };
    let lsid = out.begin_document("lsid");
    let id = RawBinaryRef { subtype: BinarySubtype::Uuid, bytes: &session.id };
    out.value("id", RawBsonRef::Binary(id));
    let user = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &session.user };
    out.value("uid", RawBsonRef::Binary(user));
    out.end(lsid);
    out.value("txnNumber", RawBsonRef::Int64(session.number));
}

fn write_times(out: &mut Writer, commit: &Commit, time: Time) {
    out.value("ts", RawBsonRef::Timestamp(time.timestamp()));
    out.value("t", RawBsonRef::Int64(TERM));
    out.value("v", RawBsonRef::Int64(2));
    out.value("wall", RawBsonRef::DateTime(bson::DateTime::from_millis(commit.wall())));
}

fn write_previous(out: &mut Writer, previous: Option<Time>) {
    let (ts, term) = match previous {
        Some(time) => (time.timestamp(), TERM),
        None => (Timestamp { time: 0, increment: 0 }, -1),
    };
    let open = out.begin_document("prevOpTime");
    out.value("ts", RawBsonRef::Timestamp(ts));
    out.value("t", RawBsonRef::Int64(term));
    out.end(open);
}

/// The entry of an operation of a plain commit.
pub fn plain(commit: &Commit, operation: &Operation) -> Result<RawDocumentBuf> {
    let mut out = Writer::with_capacity(256);
    let open = out.begin();
    if operation.statement.is_some() {
        write_session(&mut out, commit);
    }
    write_operation(&mut out, operation)?;
    if let Some(statement) = operation.statement {
        out.value("stmtId", RawBsonRef::Int32(statement));
    }
    write_times(&mut out, commit, commit.time_of(operation));
    if operation.statement.is_some() {
        write_previous(&mut out, None);
    }
    out.end(open);
    out.finish()
}

/// One entry of a transaction, while its operations are gathered.
pub struct ApplyOps {
    list: Writer,
    open: bsonval::raw::Open,
    count: usize,
    number: u32,
}

impl ApplyOps {
    /// The transaction's entry of this number.
    pub fn begin(number: u32) -> Self {
        let mut list = Writer::with_capacity(1024);
        let open = list.begin();
        Self { list, open, count: 0, number }
    }

    /// The entry's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: &Operation) -> Result<()> {
        let one = self.list.begin_document(&self.count.to_string());
        write_operation(&mut self.list, operation)?;
        self.list.end(one);
        self.count += 1;
        Ok(())
    }

    /// The entry. The last one of several says how many operations all have.
    pub fn finish(mut self, commit: &Commit, total: u64) -> Result<RawDocumentBuf> {
        let head = commit.head();
        let is_last = self.number + 1 >= head.span;
        self.list.end(self.open);
        let list = self.list.finish()?;
        let mut out = Writer::with_capacity(list.as_bytes().len() + 256);
        let open = out.begin();
        write_session(&mut out, commit);
        out.value("op", RawBsonRef::String("c"));
        out.value("ns", RawBsonRef::String("admin.$cmd"));
        let object = out.begin_document("o");
        out.header(ElementType::Array, "applyOps");
        out.bytes(list.as_bytes());
        if !is_last {
            out.value("partialTxn", RawBsonRef::Boolean(true));
        } else if head.span > 1 {
            out.value("count", RawBsonRef::Int64(i64::try_from(total).unwrap_or(i64::MAX)));
        }
        out.end(object);
        let time = |number: u32| Time(head.first.0.saturating_add(u64::from(number)));
        write_times(&mut out, commit, time(self.number));
        write_previous(&mut out, self.number.checked_sub(1).map(time));
        out.end(open);
        out.finish()
    }
}

/// An entry that changes nothing.
pub fn noop(time: Time, wall: i64, message: &str) -> Result<RawDocumentBuf> {
    let mut out = Writer::with_capacity(128);
    let open = out.begin();
    out.value("op", RawBsonRef::String("n"));
    out.value("ns", RawBsonRef::String(""));
    let object = out.begin_document("o");
    out.value("msg", RawBsonRef::String(message));
    out.end(object);
    out.value("ts", RawBsonRef::Timestamp(time.timestamp()));
    out.value("t", RawBsonRef::Int64(TERM));
    out.value("v", RawBsonRef::Int64(2));
    out.value("wall", RawBsonRef::DateTime(bson::DateTime::from_millis(wall)));
    out.end(open);
    out.finish()
}

/// The time of an entry.
pub fn time_of(entry: &RawDocument) -> Option<Time> {
    match entry.get("ts") {
        Ok(Some(RawBsonRef::Timestamp(ts))) => Some(ts.into()),
        _ => None,
    }
}
