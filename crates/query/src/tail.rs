//! Tailable cursors: a find on a capped collection that waits at its end.
//!
//! From → to: [`find`] opens it on the state of now; each later batch begins with a new snapshot
//! [`TailRows::refresh`] and goes on after the last document looked at.

use crate::canonical::{Canonical, Purpose};
use crate::context::OpContext;
use crate::cursor::{Found, InterruptSlot, QueryCursor, Rows, StageRows};
use crate::examined::note_way;
use crate::exec::{ArrivalStage, LimitStage, PlanStage, SkipStage};
use crate::plan::hint::Hint;
use crate::projection::ProjectStage;
use crate::request::FindRequest;
use crate::text;
use bson::raw::RawDocument;
use catalog::{Catalog, Namespace};
use errors::{Code, Error, Result};
use std::sync::Arc;

/// Runs a tailable find. Where there is no collection, or it is empty, the cursor is at its end.
pub fn find_tailable(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
) -> Result<QueryCursor> {
    if ctx.txn.is_some() || ctx.snapshot.is_some() {
        return Err(Error::new(
            Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            "tailable cursors read the newest state: they are not supported in a transaction or \
             with read concern snapshot",
        ));
    }
    let query = Canonical::of_find(ctx, ns, request, Purpose::Read)?;
    let interrupt = InterruptSlot::of(&ctx.interrupt);
    let Some(collection) = query.collection.clone() else {
        return crate::find::find(ctx, ns, request).map(Found::into_cursor);
    };
    if collection.is_view() {
        return Err(Error::new(
            Code::INVALID_PIPELINE_OPERATOR,
            "Option tailable not supported in aggregation.",
        ));
    }
    let Some(order) = collection.order() else {
        return Err(Error::bad_value(format!(
            "error processing query: ns={ns} tailable cursor requested on non capped collection"
        )));
    };
    if query.sort.is_some() || matches!(query.hint, Some(Hint::Natural { backward: true })) {
        return Err(Error::bad_value(
            "cannot use tailable option with a sort other than {$natural: 1}",
        ));
    }
    text::check_tailable(&query.filter)?;
    if query.filter.near().is_some() {
        return Err(Error::bad_value("Tailable cursors and geo $near cannot be used together"));
    }
    // Taken before the first snapshot: a commit between the two is looked for once in vain.
    let seen = collection.commits_seen();
    let filter = (!query.filter.matches_everything()).then(|| query.filter.clone());
    note_way("COLLSCAN", None);
    let scan = ArrivalStage::new(&collection, order, false, filter).tailing();
    let mut stage: Box<dyn PlanStage> = Box::new(scan);
    if query.skip > 0 {
        stage = Box::new(SkipStage::new(stage, query.skip));
    }
    if query.limit > 0 {
        stage = Box::new(LimitStage::new(stage, query.limit));
    }
    if let Some(shape) = &query.shape {
        let (filter, shape) = (query.filter.clone(), shape.clone());
        stage = Box::new(ProjectStage::new(stage, shape, filter, None, false));
    }
    let rows = TailRows {
        rows: StageRows {
            stage,
            snapshot: ctx.catalog.snapshot(),
            interrupt: Arc::clone(&interrupt),
        },
        catalog: Arc::clone(ctx.catalog),
    };
    let is_empty = collection.count() == 0;
    let cursor = QueryCursor::new(Box::new(rows), Some(collection), interrupt);
    // As MongoDB has it: a tail needs something to hold on to.
    Ok(if is_empty { cursor } else { cursor.tailing(seen) })
}

/// Stages that go on, on a newer snapshot, where they had come to their end.
struct TailRows {
    rows: StageRows,
    catalog: Arc<Catalog>,
}

impl Rows for TailRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        self.rows.next()
    }

    fn park(&mut self) {
        self.rows.park();
    }

    fn refresh(&mut self) {
        self.rows.snapshot = self.catalog.snapshot();
    }
}
