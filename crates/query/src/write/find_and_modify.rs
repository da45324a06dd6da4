//! `findAndModify`: changes or removes one document and gives it back.

use super::apply::Change;
use super::targets::{Targets, id_of, lock};
use super::time_series::check_find_and_modify;
use super::update::insert_upserted;
use super::{check_target, remembered};
use crate::canonical::{Canonical, Purpose, collation_of, parse_context};
use crate::context::{OpContext, StatementOutcome};
use crate::exec::Row;
use crate::projection::Shape;
use crate::request::{FindAndModifyRequest, FindAndModifyResult, FindRequest};
use bson::raw::{RawDocument, RawDocumentBuf};
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
    check_target(ctx, ns)?;
    let find = FindRequest {
        filter: request.filter,
        sort: request.sort,
        hint: request.hint,
        collation: request.collation,
        let_variables: request.let_variables,
        ..FindRequest::default()
    };
    let collection = ctx.collection(ns)?;
    check_find_and_modify(collection.as_deref(), request.remove)?;
    let collation = collation_of(request.collation, collection.as_deref())?;
    let parse = parse_context(&[request.let_variables], collation, ctx)?;
    let shape = Shape::parse(request.projection, &parse)?;
    let change = match (request.remove, request.update) {
        (true, None) => None,
        (false, Some(update)) => Some(Change::parse(ctx, update, request.array_filters, &parse)?),
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
    let mut attempts = 0;
    loop {
        let (targets, filter) = match id {
            Some(id) => (Targets::by_id(ctx, ctx.collection(ns)?, id)?, None),
            None => {
                let mut query = Canonical::of_find(ctx, ns, &find, Purpose::Write)?;
                query.carries_score = shape.as_ref().is_some_and(Shape::needs_text_score);
                let filter = query.filter.clone();
                (Targets::of(ctx, query)?, Some(filter))
            }
        };
        let shape = shape.as_ref().zip(filter.as_ref());
        let mut raced = false;
        if let Some(mut targets) = targets {
            loop {
                let rows = targets.take(ctx, true)?;
                let Some(row) = rows.first() else { break };
                let step = |txn: &mut Txn| {
                    let taken = take_row(txn, ns, &targets, change.as_ref(), row)?;
                    let score = text_score::of(row.document()?);
                    let found = |(old, new): BeforeAfter| {
                        let shown = if request.return_new { new.unwrap_or(old) } else { old };
                        found(request, shape, shown, score)
                    };
                    taken.map(found).transpose()
                };
                let taken = remembered(ctx, step, |taken| {
                    taken
                        .iter()
                        .map(|r| (0, StatementOutcome::FoundAndModified(r.clone())))
                        .collect()
                })?;
                if let Some(result) = taken {
                    return Ok(result);
                }
                raced = true;
            }
        }
        match &change {
            _ if raced => {}
            Some(change) if request.upsert => {
                let filter = match (&filter, request.filter) {
                    (Some(filter), _) => filter,
                    (None, Some(given)) => &Filter::parse_query(given, &parse)?,
                    (None, None) => &Filter::all(),
                };
                let show = |document| inserted(request, shape, document);
                match upsert(ctx, ns, change, filter, show) {
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
        ctx.interrupt.check()?;
    }
}

/// A document before, and after unless it was removed.
type BeforeAfter = (RawDocumentBuf, Option<RawDocumentBuf>);

/// Changes or removes one candidate; `None` where another writer was faster.
fn take_row(
    txn: &mut Txn,
    ns: &Namespace,
    targets: &Targets,
    change: Option<&Change>,
    row: &Row,
) -> Result<Option<BeforeAfter>> {
    let Some(collection) = targets.open(txn, ns)? else { return Ok(None) };
    let Some(newest) = lock(txn, &collection, targets.filter(), row)? else { return Ok(None) };
    let old = RawDocument::from_bytes(&newest[..])?;
    let Some(change) = change else {
        txn.delete_document(&collection, &row.id_key, old)?;
        return Ok(Some((old.to_owned(), None)));
    };
    let outcome = change.apply(old, targets.filter())?;
    if outcome.modified {
        let touched = change.touched();
        txn.update_document(&collection, &row.id_key, old, &outcome.document, touched)?;
    }
    Ok(Some((old.to_owned(), Some(outcome.document))))
}

fn upsert(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    change: &Change,
    filter: &Filter,
    show: impl Fn(RawDocumentBuf) -> Result<FindAndModifyResult>,
) -> Result<FindAndModifyResult> {
    let document = change.upsert(filter)?;
    let result = show(document.clone())?;
    insert_upserted(ctx, ns, &document, || {
        vec![(0, StatementOutcome::FoundAndModified(result.clone()))]
    })?;
    Ok(result)
}

fn found(
    request: &FindAndModifyRequest<'_>,
    shape: Option<(&Shape, &Filter)>,
    shown: RawDocumentBuf,
    score: Option<f64>,
) -> Result<FindAndModifyResult> {
    let updated_existing = (!request.remove).then_some(true);
    // It was found with a score, and is shown with that one also where its strings changed.
    let shown = match score {
        Some(score) => text_score::with(&shown, score),
        None => shown,
    };
    Ok(FindAndModifyResult {
        value: Some(shaped(shape, shown)?),
        n: 1,
        updated_existing,
        upserted: None,
    })
}

fn inserted(
    request: &FindAndModifyRequest<'_>,
    shape: Option<(&Shape, &Filter)>,
    document: RawDocumentBuf,
) -> Result<FindAndModifyResult> {
    let upserted = document.get("_id")?.map(Into::into);
    let value = if request.return_new { Some(shaped(shape, document)?) } else { None };
    Ok(FindAndModifyResult { value, n: 1, updated_existing: Some(false), upserted })
}

fn shaped(shape: Option<(&Shape, &Filter)>, document: RawDocumentBuf) -> Result<RawDocumentBuf> {
    match shape {
        Some((shape, filter)) => shape.apply(&document, filter, None, &[]),
        None => Ok(document),
    }
}
