//! `find`.

use crate::canonical::Canonical;
use crate::context::OpContext;
use crate::cursor::{InterruptSlot, QueryCursor, Rows};
use crate::exec::{At, Stage};
use crate::request::FindRequest;
use bson::raw::RawDocument;
use catalog::{Namespace, Snapshot};
use errors::Result;
use std::sync::Arc;

/// Runs a find. A collection that does not exist is empty.
pub fn find(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
) -> Result<QueryCursor> {
    let query = Canonical::of_find(ctx, ns, request)?;
    if let Some(view) = query.collection.as_ref().filter(|c| c.is_view()) {
        return crate::view::find(ctx, view, request);
    }
    let access = query.decide(query.fields().as_ref()).winner;
    let stage = query.stages(ctx.catalog, &access)?;
    let interrupt = InterruptSlot::of(&ctx.interrupt);
    if let Some(txn) = ctx.txn.as_deref() {
        let documents = collect(stage, &query.snapshot, txn, &*ctx.interrupt)?;
        return Ok(QueryCursor::new(Box::new(documents), query.collection, interrupt));
    }
    let rows = StageRows { stage, snapshot: query.snapshot, interrupt: Arc::clone(&interrupt) };
    Ok(QueryCursor::new(Box::new(rows), query.collection, interrupt))
}

/// Stages that run by themselves on a snapshot.
pub(crate) struct StageRows {
    pub(crate) stage: Box<dyn Stage>,
    pub(crate) snapshot: Snapshot,
    pub(crate) interrupt: Arc<InterruptSlot>,
}

impl Rows for StageRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        let at = At { snapshot: &self.snapshot, txn: None, interrupt: &*self.interrupt };
        if !self.stage.advance(&at)? {
            return Ok(None);
        }
        self.stage.row().document().map(Some)
    }

    fn park(&mut self) {
        self.stage.park();
    }
}

/// Documents that were read already.
pub(crate) struct Collected {
    documents: std::vec::IntoIter<bson::RawDocumentBuf>,
    current: Option<bson::RawDocumentBuf>,
}

impl Collected {
    pub(crate) fn new(documents: Vec<bson::RawDocumentBuf>) -> Self {
        Self { documents: documents.into_iter(), current: None }
    }
}

impl Rows for Collected {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        self.current = self.documents.next();
        Ok(self.current.as_deref())
    }
}

/// A transaction's view cannot outlive the call: its results are read at once.
fn collect(
    mut stage: Box<dyn Stage>,
    snapshot: &Snapshot,
    txn: &catalog::Txn,
    interrupt: &dyn crate::Interrupt,
) -> Result<Collected> {
    let at = At { snapshot, txn: Some(txn), interrupt };
    let mut documents = Vec::new();
    while stage.advance(&at)? {
        documents.push(stage.row().document()?.to_owned());
    }
    Ok(Collected::new(documents))
}
