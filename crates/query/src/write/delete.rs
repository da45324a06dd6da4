//! `delete`: one document or all that match.

use super::point::{self, Found, id_of};
use super::targets::{Targets, lock};
use super::{
    FoundOnce, UntilFull, as_a_whole, check_target, deletes_range, note, remembered,
    statement as in_statement,
};
use crate::canonical::{Canonical, Purpose, collation_of, parse_filter};
use crate::context::{Atomicity, OpContext, StatementOutcome};
use crate::permit::Opening;
use crate::request::{DeleteRequest, DeleteResult, DeleteStatement};
use bson::raw::{RawBsonRef, RawDocument};
use catalog::{Namespace, Txn};
use errors::Result;
use matcher::Filter;

/// Runs delete statements.
pub fn delete(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &DeleteRequest<'_>,
) -> Result<DeleteResult> {
    let mut found = FoundOnce::Found(check_target(ctx, ns)?);
    let mut result = DeleteResult::default();
    let mut space = UntilFull::default();
    for (index, statement) in request.deletes.iter().enumerate() {
        if let Some(StatementOutcome::Deleted(n)) = ctx.done(index)? {
            result.n += n;
            continue;
        }
        let mut n = 0;
        let variables = request.let_variables;
        let outcome = space.run(|| {
            in_statement(ctx, |ctx| run(ctx, (ns, &mut found), index, statement, variables, &mut n))
        });
        let undone = outcome.is_err() && ctx.txn.is_some();
        result.n += if undone { 0 } else { n };
        if let Err(error) = outcome
            && note(&mut result.errors, index, error, request.ordered)?
        {
            break;
        }
    }
    Ok(result)
}

/// How a statement's documents are found.
enum Search<'a> {
    Id(RawBsonRef<'a>),
    Filter(Filter),
}

/// Runs one statement; `n` counts what was deleted, also where it fails later.
fn run(
    ctx: &mut OpContext<'_>,
    (ns, found): (&Namespace, &mut FoundOnce),
    index: usize,
    statement: &DeleteStatement<'_>,
    let_variables: Option<&RawDocument>,
    n: &mut u64,
) -> Result<()> {
    let collection = found.take(ctx, ns)?;
    let collation = collation_of(statement.collation, collection.as_deref())?;
    let plain = (statement.hint, statement.collation, let_variables) == (None, None, None);
    let id = if plain { id_of(collection.as_deref(), statement.filter)? } else { None };
    let search = match id {
        Some(id) => Search::Id(id),
        None => {
            Search::Filter(parse_filter(Some(statement.filter), let_variables, collation, ctx)?)
        }
    };
    if statement.only_one {
        return delete_matching(ctx, ns, index, statement, &search, n);
    }
    let range = match &search {
        Search::Filter(filter) => deletes_range(ctx, collection.as_ref(), statement, filter)?,
        Search::Id(_) => None,
    };
    let parts = ctx.atomicity == Atomicity::Part;
    let done = as_a_whole(ctx, |ctx| {
        // Of a whole only the last attempt counts.
        let mut deleted = 0;
        if let (Some(range), Some(collection), Some(txn)) =
            (&range, &collection, ctx.txn.as_deref_mut())
        {
            let done = txn.delete_range(collection, range)?;
            deleted = done.documents;
            if done.is_complete {
                return Ok(deleted);
            }
        }
        let counter = if parts { &mut *n } else { &mut deleted };
        delete_matching(ctx, ns, index, statement, &search, counter).map(|()| deleted)
    });
    *n += done?;
    Ok(())
}

fn delete_matching(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    index: usize,
    statement: &DeleteStatement<'_>,
    search: &Search<'_>,
    n: &mut u64,
) -> Result<()> {
    let filter = match search {
        Search::Filter(filter) => filter,
        Search::Id(id) => {
            let delete = |txn: &mut Txn, found: Found<'_>| {
                txn.delete_document(found.collection, found.key, found.document).map(|()| 1)
            };
            let deleted = point::write(ctx, ns, *id, delete, |deleted| outcomes(index, *deleted))?;
            *n += deleted.unwrap_or_default();
            return Ok(());
        }
    };
    loop {
        let collection = ctx.collection_for(ns, Opening::Write)?;
        let query =
            Canonical::of_filter(ctx, collection, filter.clone(), statement.hint, Purpose::Write)?;
        let Some(mut targets) = Targets::of(ctx, query)? else { return Ok(()) };
        let mut raced = false;
        loop {
            let rows = targets.take(ctx, statement.only_one)?;
            if rows.is_empty() {
                break;
            }
            let delete_rows = |txn: &mut Txn| {
                let Some(collection) = targets.open(txn, ns)? else { return Ok(0) };
                let mut deleted = 0;
                for row in &rows {
                    if let Some(locked) = lock(txn, &collection, targets.filter(), row)? {
                        let document = locked.document()?;
                        txn.delete_document(&collection, &locked.record_key, document)?;
                        deleted += 1;
                    }
                }
                Ok(deleted)
            };
            let deleted = remembered(ctx, delete_rows, |deleted| outcomes(index, *deleted))?;
            *n += deleted;
            if statement.only_one && deleted == 1 {
                return Ok(());
            }
            raced |= (deleted as usize) < rows.len();
        }
        // Somebody else changed what was found: there may be another one by now.
        if !(statement.only_one && raced) {
            return Ok(());
        }
        ctx.look_again()?;
    }
}

/// What a retryable write remembers of a part.
fn outcomes(index: usize, deleted: u64) -> Vec<(usize, StatementOutcome)> {
    match deleted {
        0 => Vec::new(),
        deleted => vec![(index, StatementOutcome::Deleted(deleted))],
    }
}
