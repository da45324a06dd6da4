//! The documents a write means: found on a snapshot, then locked and looked at again.
//!
//! From → to: rows are taken from the plan in chunks [`Targets::take`]; a transaction locks each
//! and reads its newest version [`lock`]; where that no longer matches it is left out. A repeated
//! transaction goes over the same chunk, so the plan runs once however often others conflict.

use super::{CHUNK_BYTES, CHUNK_DOCUMENTS};
use crate::canonical::Canonical;
use crate::context::OpContext;
use crate::exec::{ExecContext, PlanStage, Row};
use bson::raw::RawDocument;
use bsonval::raw;
use catalog::{Collection, Namespace, Txn};
use engine::{Snapshot, Value};
use errors::Result;
use matcher::Filter;
use std::borrow::Cow;
use std::sync::Arc;

/// Candidates of one statement, over one snapshot.
pub(crate) struct Targets {
    collection: Arc<Collection>,
    stage: Box<dyn PlanStage>,
    query: Arc<Canonical>,
    snapshot: Snapshot,
    /// What is read from here on does not see what the statement has written.
    frozen: bool,
}

impl Targets {
    /// Plans the query. `None` where there is no collection to look in.
    pub(crate) fn of(ctx: &OpContext<'_>, query: Canonical) -> Result<Option<Self>> {
        let Some(collection) = query.collection.clone() else { return Ok(None) };
        let query = Arc::new(query);
        let chosen = query.choose_plan(ctx, None, Canonical::stages)?.for_first();
        let stage = chosen.stages(&query, ctx.catalog, Canonical::stages)?;
        let snapshot = query.snapshot.clone();
        Ok(Some(Self { collection, stage, query, snapshot, frozen: false }))
    }

    /// The filter that the documents match.
    pub(crate) fn filter(&self) -> &Filter {
        &self.query.filter
    }

    /// The next candidates: one, or as many as are changed at a time. In a client's transaction the
    /// first of them see its writes; before the statement writes any itself they are frozen, so
    /// that no document is met again where the statement has moved it to.
    pub(crate) fn take(&mut self, ctx: &OpContext<'_>, only_one: bool) -> Result<Vec<Row>> {
        let exec = ExecContext {
            snapshot: &self.snapshot,
            txn: ctx.txn.as_deref().filter(|_| !self.frozen),
            interrupt: &*ctx.interrupt,
            budget: None,
        };
        let mut rows = Vec::new();
        let mut bytes = 0;
        let limit = if only_one { 1 } else { CHUNK_DOCUMENTS };
        let mut ended = false;
        while rows.len() < limit && bytes < CHUNK_BYTES {
            ended = !self.stage.advance(&exec)?;
            if ended {
                break;
            }
            let row = self.stage.take_row();
            bytes += row.document.len();
            rows.push(row);
        }
        // While the rows are changed, which may wait for memory, the plan must not keep any.
        self.stage.park();
        if let (Some(txn), false) = (&ctx.txn, ended || only_one || self.frozen) {
            self.snapshot = txn.view();
            self.frozen = true;
        }
        Ok(rows)
    }

    /// The collection for writing; `None` where the one that was searched is gone.
    pub(crate) fn open(&self, txn: &mut Txn, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        let current = txn.open_for_write(ns)?;
        Ok(current.filter(|current| current.uuid() == self.collection.uuid()))
    }
}

/// A candidate that is locked.
pub(crate) struct Locked<'r> {
    /// The key it stands under now.
    pub(crate) record_key: Cow<'r, [u8]>,
    /// Its newest version.
    pub(crate) newest: Value,
}

impl Locked<'_> {
    /// Its newest version.
    pub(crate) fn document(&self) -> Result<&RawDocument> {
        Ok(RawDocument::from_bytes(&self.newest[..])?)
    }
}

/// Locks a candidate and gives its newest version if that still matches: also where another writer has
/// changed its primary key, so that it stands elsewhere than it was found. May wait.
pub(crate) fn lock<'r>(
    txn: &mut Txn,
    collection: &Collection,
    filter: &Filter,
    row: &'r Row,
) -> Result<Option<Locked<'r>>> {
    let found = match txn.get_for_update(collection, &row.record_key)? {
        Some(newest) => Some((Cow::Borrowed(&row.record_key[..]), newest)),
        None => moved(txn, collection, row)?.map(|(key, newest)| (Cow::Owned(key), newest)),
    };
    let Some((record_key, newest)) = found else { return Ok(None) };
    if newest[..] != row.document[..] && !filter.matches(RawDocument::from_bytes(&newest[..])?)? {
        return Ok(None);
    }
    Ok(Some(Locked { record_key, newest }))
}

/// Where the document of a row stands that is not any more where it was found.
fn moved(txn: &mut Txn, collection: &Collection, row: &Row) -> Result<Option<(Vec<u8>, Value)>> {
    if collection.id_index().is_none() {
        return Ok(None);
    }
    let Some(id) = raw::field(row.document()?, "_id")? else { return Ok(None) };
    txn.get_moved_for_update(collection, id)
}
