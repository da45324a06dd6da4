//! `update`: one document or all that match, or a new one where none does.

use super::apply::Change;
use super::targets::{Targets, lock};
use super::{check_target, in_transaction, note};
use crate::canonical::{Canonical, check_given_collation, parse_context, sort_of};
use crate::context::OpContext;
use crate::exec::Row;
use crate::request::{UpdateRequest, UpdateResult, UpdateStatement};
use bson::raw::{RawBson, RawDocument, RawDocumentBuf};
use catalog::{Namespace, Txn};
use errors::{Code, Error, Result};
use expr::Filter;

/// How often an upsert looks again after somebody else inserted the same key.
const UPSERT_ATTEMPTS: u32 = 5;

/// Runs update statements.
pub fn update(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &UpdateRequest<'_>,
) -> Result<UpdateResult> {
    check_target(ctx, ns)?;
    let mut result = UpdateResult::default();
    for (index, statement) in request.updates.iter().enumerate() {
        match run(ctx, ns, statement, request.let_variables) {
            Ok(done) => {
                result.n += done.matched + u64::from(done.upserted.is_some());
                result.n_modified += done.modified;
                result.upserted.extend(done.upserted.map(|id| (index, id)));
            }
            Err(error) => {
                if note(&mut result.errors, index, error, request.ordered)? {
                    break;
                }
            }
        }
    }
    Ok(result)
}

/// What one statement did.
#[derive(Clone, Debug, Default)]
struct Done {
    matched: u64,
    modified: u64,
    upserted: Option<RawBson>,
}

fn run(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    statement: &UpdateStatement<'_>,
    let_variables: Option<&RawDocument>,
) -> Result<Done> {
    check_given_collation(statement.collation)?;
    let parse = parse_context(&[let_variables, statement.constants], ctx.catalog)?;
    let filter = Filter::parse(statement.filter, &parse)?;
    let change = Change::parse(ctx, statement.update, statement.array_filters, &parse)?;
    if statement.multi && change.is_replacement() {
        return Err(Error::failed_to_parse(
            "multi update is not supported for replacement-style update",
        ));
    }
    if statement.multi && statement.sort.is_some() {
        return Err(Error::failed_to_parse("Cannot specify sort with multi=true"));
    }
    let sort = sort_of(statement.sort)?;
    let mut done = Done::default();
    let mut attempts = 0;
    loop {
        let collection = ctx.catalog.collection(ns);
        let mut query = Canonical::of_filter(ctx, collection, filter.clone(), statement.hint)?;
        query.sort.clone_from(&sort);
        let mut raced = false;
        if let Some(mut targets) = Targets::of(ctx, query)? {
            raced = change_all(ctx, ns, &mut targets, &change, !statement.multi, &mut done)?;
        }
        if done.matched > 0 || !(raced || statement.upsert) {
            return Ok(done);
        }
        if !raced {
            match insert_new(ctx, ns, &change, &filter) {
                Ok(id) => {
                    done.upserted = Some(id);
                    return Ok(done);
                }
                Err(error) if error.code() == Code::DUPLICATE_KEY && attempts < UPSERT_ATTEMPTS => {
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
        ctx.interrupt.check()?;
    }
}

/// Changes what the targets hold; says whether a candidate was lost to another writer.
fn change_all(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    targets: &mut Targets,
    change: &Change,
    only_one: bool,
    done: &mut Done,
) -> Result<bool> {
    let mut raced = false;
    loop {
        let rows = targets.take(ctx, only_one)?;
        if rows.is_empty() {
            return Ok(raced);
        }
        let part = in_transaction(ctx, |txn| change_rows(txn, ns, targets, change, &rows))?;
        done.matched += part.matched;
        done.modified += part.modified;
        if only_one && part.matched == 1 {
            return Ok(false);
        }
        raced |= only_one && part.matched == 0;
    }
}

fn change_rows(
    txn: &mut Txn,
    ns: &Namespace,
    targets: &Targets,
    change: &Change,
    rows: &[Row],
) -> Result<Done> {
    let mut part = Done::default();
    let Some(collection) = targets.open(txn, ns)? else { return Ok(part) };
    for row in rows {
        let Some(newest) = lock(txn, &collection, targets.filter(), row)? else { continue };
        let document = RawDocument::from_bytes(&newest[..])?;
        let outcome = change.apply(document, targets.filter())?;
        part.matched += 1;
        if outcome.modified {
            let touched = change.touched();
            txn.update_document(&collection, &row.id_key, document, &outcome.document, touched)?;
            part.modified += 1;
        }
    }
    Ok(part)
}

fn insert_new(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    change: &Change,
    filter: &Filter,
) -> Result<RawBson> {
    let document = change.upsert(filter)?;
    insert_upserted(ctx, ns, &document)?;
    let id = document
        .get("_id")?
        .ok_or_else(|| Error::new(Code::INTERNAL_ERROR, "an upserted document has an _id"))?;
    Ok(id.into())
}

/// Inserts the document of an upsert, creating the collection where it does not exist.
pub(crate) fn insert_upserted(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    document: &RawDocumentBuf,
) -> Result<()> {
    ctx.catalog.ensure_collection(ns)?;
    in_transaction(ctx, |txn| {
        let Some(collection) = txn.open_for_write(ns)? else {
            return Err(Error::new(
                Code::WRITE_CONFLICT,
                "the collection was dropped while a document was inserted",
            ));
        };
        txn.insert_document(&collection, document)
    })
}
