//! `findAndModify`: changes or removes one document and gives it back.

use super::apply::Change;
use super::point::{self, Found, id_of};
use super::targets::{Targets, lock};
use super::time_series::check_find_and_modify;
use super::update::insert_upserted;
use super::{check_target, remembered};
use crate::canonical::{Canonical, Purpose, StatementContext, collation_of};
use crate::context::{OpContext, StatementOutcome};
use crate::exec::Row;
use crate::projection::Shape;
use crate::request::{FindAndModifyRequest, FindAndModifyResult, FindRequest};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bsonval::text_score;
use catalog::{Namespace, Txn};
use errors::{Code, Error, Result};
use matcher::Filter;

/// How often an upsert looks again after somebody else inserted the same key.
const UPSERT_ATTEMPTS: u32 = 5;

/// Changes or removes one document and gives it back.
pub fn find_and_modify(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindAndModifyRequest<'_>,
) -> Result<FindAndModifyResult> {
    run(ctx, ns, request).map_err(|error| match error.code() {
        Code::DOCUMENT_VALIDATION_FAILURE => {
            error.context("Plan executor error during findAndModify")
        }
        _ => error,
    })
}

fn run(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindAndModifyRequest<'_>,
) -> Result<FindAndModifyResult> {
    let collection = check_target(ctx, ns)?;
    let find = FindRequest {
        filter: request.filter,
        sort: request.sort,
        hint: request.hint,
        collation: request.collation,
        let_variables: request.let_variables,
        ..FindRequest::default()
    };
    check_find_and_modify(collection.as_deref(), request.remove)?;
    let collation = collation_of(request.collation, collection.as_deref())?;
    let context = StatementContext::new(&[request.let_variables], collation, ctx)?;
    let shape = match request.projection {
        Some(_) => Shape::parse(request.projection, context.get(ctx)?)?,
        None => None,
    };
    let change = match (request.remove, request.update) {
        (true, None) => None,
        (false, Some(update)) => Some(Change::parse(ctx, update, request.array_filters, &context)?),
        (false, None) => {
            return Err(Error::failed_to_parse(
                "Either an update or remove=true must be specified",
            ));
        }
        (true, Some(_)) => {
            return Err(Error::failed_to_parse("Cannot specify both an update and remove=true"));
        }
    };
    if let Some(StatementOutcome::FoundAndModified(result)) = ctx.done(0)? {
        return Ok(result);
    }
    let plain = (request.sort, request.hint, request.collation) == (None, None, None)
        && shape.is_none()
        && !change.as_ref().is_some_and(Change::is_positional);
    let id = match request.filter {
        Some(filter) if plain => id_of(collection.as_deref(), filter)?,
        _ => None,
    };
    let task = Task { request, change, shape };
    let mut attempts = 0;
    loop {
        let (filter, raced) = if let Some(id) = id {
            if let Some(taken) = task.take_by_id(ctx, ns, id)? {
                return Ok(taken);
            }
            (None, false)
        } else {
            let mut query = Canonical::of_find(ctx, ns, &find, Purpose::Write)?;
            query.carries_score = task.shape.as_ref().is_some_and(Shape::needs_text_score);
            let filter = query.filter.clone();
            match task.take_by_plan(ctx, ns, query, &filter)? {
                (Some(taken), _) => return Ok(taken),
                (None, raced) => (Some(filter), raced),
            }
        };
        match &task.change {
            _ if raced => {}
            Some(change) if request.upsert => {
                let filter = match (filter, request.filter) {
                    (Some(filter), _) => filter,
                    (None, Some(given)) => Filter::parse_query(given, context.get(ctx)?)?,
                    (None, None) => Filter::all(),
                };
                match task.upsert(ctx, ns, change, &filter) {
                    Ok(result) => return Ok(result),
                    Err(error)
                        if error.code() == Code::DUPLICATE_KEY && attempts < UPSERT_ATTEMPTS =>
                    {
                        attempts += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
            _ => {
                let updated_existing = (!request.remove).then_some(false);
                return Ok(FindAndModifyResult {
                    updated_existing,
                    ..FindAndModifyResult::default()
                });
            }
        }
        ctx.look_again()?;
    }
}

/// What is to be done, and how it is shown.
struct Task<'a> {
    request: &'a FindAndModifyRequest<'a>,
    /// `None`: the document is removed.
    change: Option<Change>,
    shape: Option<Shape>,
}

impl Task<'_> {
    /// Takes the document of an `_id`, where there is one. Nothing of the task needs a filter.
    fn take_by_id(
        &self,
        ctx: &mut OpContext<'_>,
        ns: &Namespace,
        id: RawBsonRef<'_>,
    ) -> Result<Option<FindAndModifyResult>> {
        let step = |txn: &mut Txn, found: Found<'_>| {
            let shown = self.change_one(txn, found, None)?;
            self.found(shown, None, None)
        };
        point::write(ctx, ns, id, step, outcome)
    }

    /// Takes the first document of a plan that still matches; otherwise says whether another writer was
    /// faster.
    fn take_by_plan(
        &self,
        ctx: &mut OpContext<'_>,
        ns: &Namespace,
        query: Canonical,
        filter: &Filter,
    ) -> Result<(Option<FindAndModifyResult>, bool)> {
        let mut raced = false;
        let Some(mut targets) = Targets::of(ctx, query)? else { return Ok((None, raced)) };
        loop {
            let rows = targets.take(ctx, true)?;
            let Some(row) = rows.first() else { return Ok((None, raced)) };
            let step = |txn: &mut Txn| {
                let taken = self.take_row(txn, ns, &targets, row)?;
                let score = text_score::of(row.document()?);
                taken.map(|shown| self.found(shown, Some(filter), score)).transpose()
            };
            let describe =
                |taken: &Option<FindAndModifyResult>| taken.iter().flat_map(outcome).collect();
            let taken = remembered(ctx, step, describe)?;
            if taken.is_some() {
                return Ok((taken, raced));
            }
            raced = true;
        }
    }

    /// Changes or removes one candidate; `None` where another writer was faster.
    fn take_row(
        &self,
        txn: &mut Txn,
        ns: &Namespace,
        targets: &Targets,
        row: &Row,
    ) -> Result<Option<RawDocumentBuf>> {
        let Some(collection) = targets.open(txn, ns)? else { return Ok(None) };
        let Some(locked) = lock(txn, &collection, targets.filter(), row)? else { return Ok(None) };
        let (key, document) = (&locked.record_key[..], locked.document()?);
        let found = Found { collection: &collection, key, document };
        self.change_one(txn, found, Some(targets.filter())).map(Some)
    }

    /// Changes or removes a locked document; gives the one that is asked for.
    fn change_one(
        &self,
        txn: &mut Txn,
        found: Found<'_>,
        filter: Option<&Filter>,
    ) -> Result<RawDocumentBuf> {
        let Found { collection, key, document: old } = found;
        let Some(change) = &self.change else {
            txn.delete_document(collection, key, old)?;
            return Ok(old.to_owned());
        };
        let outcome = change.apply(old, filter)?;
        if outcome.modified {
            let pair = (old, &*outcome.document);
            txn.change_document(collection, key, pair, change.touched(), change.changed())?;
        }
        Ok(if self.request.return_new { outcome.document } else { old.to_owned() })
    }

    fn upsert(
        &self,
        ctx: &mut OpContext<'_>,
        ns: &Namespace,
        change: &Change,
        filter: &Filter,
    ) -> Result<FindAndModifyResult> {
        let document = change.upsert(ctx, filter)?;
        let result = self.inserted(document.clone(), filter)?;
        insert_upserted(ctx, ns, &document, || outcome(&result))?;
        Ok(result)
    }

    /// The answer where a document was there. It was found with a score, and is shown with that one also
    /// where its strings changed.
    fn found(
        &self,
        shown: RawDocumentBuf,
        filter: Option<&Filter>,
        score: Option<f64>,
    ) -> Result<FindAndModifyResult> {
        let shown = match score {
            Some(score) => text_score::with(&shown, score),
            None => shown,
        };
        Ok(FindAndModifyResult {
            value: Some(self.shaped(shown, filter)?),
            n: 1,
            updated_existing: (!self.request.remove).then_some(true),
            upserted: None,
        })
    }

    /// The answer where one was made.
    fn inserted(&self, document: RawDocumentBuf, filter: &Filter) -> Result<FindAndModifyResult> {
        let upserted = document.get("_id")?.map(Into::into);
        let shown = self.request.return_new.then(|| self.shaped(document, Some(filter)));
        let value = shown.transpose()?;
        Ok(FindAndModifyResult { value, n: 1, updated_existing: Some(false), upserted })
    }

    /// A document as the client wants it; what has a shape was found by a filter.
    fn shaped(&self, document: RawDocumentBuf, filter: Option<&Filter>) -> Result<RawDocumentBuf> {
        match (&self.shape, filter) {
            (Some(shape), Some(filter)) => shape.apply(&document, filter, None, &[]),
            _ => Ok(document),
        }
    }
}

/// What a retryable write remembers.
fn outcome(result: &FindAndModifyResult) -> Vec<(usize, StatementOutcome)> {
    vec![(0, StatementOutcome::FoundAndModified(result.clone()))]
}
