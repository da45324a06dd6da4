//! `update`: one document or all that match, or a new one where none does.

use super::apply::Change;
use super::point::{self, Found, id_of};
use super::targets::{Targets, lock};
use super::time_series::check_update;
use super::{
    FoundOnce, UntilFull, as_a_whole, check_target, note, remembered, statement as in_statement,
};
use crate::canonical::{Canonical, Purpose, StatementContext, collation_of, sort_of};
use crate::context::{OpContext, StatementOutcome};
use crate::exec::Row;
use crate::permit::Opening;
use crate::request::{UpdateRequest, UpdateResult, UpdateStatement};
use bson::raw::{RawBson, RawDocument, RawDocumentBuf};
use catalog::{Namespace, Txn};
use errors::{Code, Error, Result};
use limits::{LARGE_BYTES, Part};
use matcher::Filter;

/// How often an upsert looks again after somebody else inserted the same key.
const UPSERT_ATTEMPTS: u32 = 5;

/// Runs update statements.
pub fn update(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &UpdateRequest<'_>,
) -> Result<UpdateResult> {
    let mut found = FoundOnce::Found(check_target(ctx, ns)?);
    let mut result = UpdateResult::default();
    let mut space = UntilFull::default();
    for (index, statement) in request.updates.iter().enumerate() {
        if let Some(StatementOutcome::Updated { n, modified, upserted }) = ctx.done(index)? {
            result.n += n;
            result.n_modified += modified;
            result.upserted.extend(upserted.map(|id| (index, id)));
            continue;
        }
        let variables = request.let_variables;
        let run = |ctx: &mut OpContext<'_>| run(ctx, (ns, &mut found), index, statement, variables);
        match space.run(|| in_statement(ctx, run)) {
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
    (ns, found): (&Namespace, &mut FoundOnce),
    index: usize,
    statement: &UpdateStatement<'_>,
    let_variables: Option<&RawDocument>,
) -> Result<Done> {
    let collection = found.take(ctx, ns)?;
    let collation = collation_of(statement.collation, collection.as_deref())?;
    let context = StatementContext::new(&[let_variables, statement.constants], collation, ctx)?;
    let parse_filter =
        |ctx: &OpContext<'_>| Filter::parse_query(statement.filter, context.get(ctx)?);
    let plain = (statement.hint, statement.collation, statement.sort) == (None, None, None);
    let id = if plain { id_of(collection.as_deref(), statement.filter)? } else { None };
    let mut filter = if id.is_some() { None } else { Some(parse_filter(ctx)?) };
    let change = if statement.is_delta {
        Change::of_delta(ctx, statement.update, &context)?
    } else {
        Change::parse(ctx, statement.update, statement.array_filters, &context)?
    };
    if statement.multi && change.is_replacement() {
        return Err(Error::failed_to_parse(
            "multi update is not supported for replacement-style update",
        ));
    }
    if change.is_positional() && filter.is_none() {
        filter = Some(parse_filter(ctx)?);
    }
    let found = (ns, collection.as_deref(), id);
    if plain
        && let_variables.is_none()
        && super::fast::update(ctx, found, index, statement, &change)?
    {
        return Ok(Done { matched: 1, modified: 1, upserted: None });
    }
    if let Some(filter) = &filter {
        check_update(collection.as_deref(), statement, filter, &change)?;
    }
    if statement.multi && statement.sort.is_some() {
        return Err(Error::failed_to_parse("Cannot specify sort with multi=true"));
    }
    let sort = sort_of(statement.sort)?;
    let mut attempts = 0;
    let find_and_change = |ctx: &mut OpContext<'_>| {
        let mut done = Done::default();
        let filter = match (&filter, id) {
            (Some(filter), _) => filter.clone(),
            (None, Some(id)) => {
                let change =
                    |txn: &mut Txn, found: Found<'_>| change_one(txn, found, &change, None);
                let describe = |done: &Done| outcomes(index, done);
                let done = point::write(ctx, ns, id, change, describe)?;
                return Ok((done.unwrap_or_default(), false));
            }
            (None, None) => return Ok((done, false)),
        };
        let collection = ctx.collection_for(ns, Opening::Write)?;
        let mut query =
            Canonical::of_filter(ctx, collection, filter, statement.hint, Purpose::Write)?;
        query.sort.clone_from(&sort);
        let mut raced = false;
        if let Some(mut targets) = Targets::of(ctx, query)? {
            let at = (index, !statement.multi);
            raced = change_all(ctx, ns, &mut targets, &change, at, &mut done)?;
        }
        Ok((done, raced))
    };
    loop {
        let (mut done, raced) =
            if statement.multi { as_a_whole(ctx, find_and_change)? } else { find_and_change(ctx)? };
        if done.matched > 0 || !(raced || statement.upsert) {
            return Ok(done);
        }
        if !raced {
            let filter = match &filter {
                Some(filter) => filter,
                None => &parse_filter(ctx)?,
            };
            match insert_new(ctx, ns, index, &change, filter) {
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
        ctx.look_again()?;
    }
}

/// Changes what the targets hold, all or only one of them; says whether a candidate was lost to another writer.
fn change_all(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    targets: &mut Targets,
    change: &Change,
    (index, only_one): (usize, bool),
    done: &mut Done,
) -> Result<bool> {
    let mut raced = false;
    loop {
        let rows = targets.take(ctx, only_one)?;
        if rows.is_empty() {
            return Ok(raced);
        }
        let step = |txn: &mut Txn| change_rows(txn, ns, targets, change, &rows);
        let part = remembered(ctx, step, |part| outcomes(index, part))?;
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
        let Some(locked) = lock(txn, &collection, targets.filter(), row)? else { continue };
        let (key, document) = (&locked.record_key[..], locked.document()?);
        let found = Found { collection: &collection, key, document };
        let one = change_one(txn, found, change, Some(targets.filter()))?;
        part.matched += one.matched;
        part.modified += one.modified;
    }
    Ok(part)
}

/// Changes a locked document. The filter that it matches is there where the change is positional.
fn change_one(
    txn: &mut Txn,
    found: Found<'_>,
    change: &Change,
    filter: Option<&Filter>,
) -> Result<Done> {
    let Found { collection, key, document } = found;
    let outcome = change.apply(document, filter)?;
    if outcome.modified {
        let pair = (document, &*outcome.document);
        txn.change_document(collection, key, pair, change.touched(), change.changed())?;
    }
    Ok(Done { matched: 1, modified: u64::from(outcome.modified), upserted: None })
}

/// What a retryable write remembers of a part.
fn outcomes(index: usize, part: &Done) -> Vec<(usize, StatementOutcome)> {
    match *part {
        Done { matched: 0, .. } => Vec::new(),
        Done { matched: n, modified, .. } => {
            vec![(index, StatementOutcome::Updated { n, modified, upserted: None })]
        }
    }
}

fn insert_new(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    index: usize,
    change: &Change,
    filter: &Filter,
) -> Result<RawBson> {
    let document = change.upsert(ctx, filter)?;
    let bytes = document.as_bytes().len();
    let _made = (bytes > LARGE_BYTES).then(|| limits::charge_regardless(Part::Values, bytes));
    let id: RawBson = document
        .get("_id")?
        .ok_or_else(|| Error::new(Code::INTERNAL_ERROR, "an upserted document has an _id"))?
        .into();
    let outcome = || StatementOutcome::Updated { n: 1, modified: 0, upserted: Some(id.clone()) };
    insert_upserted(ctx, ns, &document, || vec![(index, outcome())])?;
    Ok(id)
}

/// Inserts the document of an upsert, creating the collection where it does not exist.
pub(crate) fn insert_upserted(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    document: &RawDocumentBuf,
    describe: impl Fn() -> Vec<(usize, StatementOutcome)>,
) -> Result<()> {
    if ctx.txn.is_none() {
        ctx.catalog.ensure_collection(ns)?;
    }
    let step = |txn: &mut Txn| {
        txn.ensure_collection(ns)?;
        let Some(collection) = txn.open_for_write(ns)? else {
            return Err(Error::new(
                Code::WRITE_CONFLICT,
                "the collection was dropped while a document was inserted",
            ));
        };
        txn.insert_document(&collection, document)
    };
    remembered(ctx, step, |()| describe())
}
