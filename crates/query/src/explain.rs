//! `explain`: the plan in MongoDB's words, and what running it counted.
//!
//! Always true: nothing is changed. Writes are explained by the query that finds their documents.

use crate::canonical::{Canonical, Purpose, collation_of, parse_filter};
use crate::context::OpContext;
use crate::count;
use crate::exec::{Counters, ExecContext, Report, number};
use crate::plan_choice::{ExplainedChoice, Maker, Tried};
use crate::request::{
    CountRequest, DeleteRequest, DistinctRequest, FindAndModifyRequest, FindRequest, UpdateRequest,
    Verbosity,
};
use crate::write::deletes_range;
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, doc};
use catalog::Namespace;
use errors::{Error, Result};
use std::collections::BTreeSet;

/// Explains a find: the fields `explainVersion`, `queryPlanner`, `executionStats`.
pub fn explain_find(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let query = Canonical::of_find(ctx, ns, request, Purpose::Read)?;
    if let Some(view) = query.collection.as_ref().filter(|c| c.is_view()) {
        return crate::view::explain_find(ctx, view, request, verbosity);
    }
    let shape = Shape::default();
    let choice = query.consider(ctx, query.fields().as_ref(), shape.make)?;
    finish(&explain_query(ctx, ns, &query, &choice, verbosity, &shape)?)
}

/// Explains a count.
pub fn explain_count(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &CountRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let collection = ctx.collection(ns)?;
    let collation = collation_of(request.collation, collection.as_deref())?;
    let filter = parse_filter(request.filter, None, collation, ctx)?;
    let is_whole = filter.matches_everything() && request.hint.is_none();
    let query = Canonical::of_filter(ctx, collection, filter, request.hint, Purpose::Read)?;
    let choice = query.consider(ctx, Some(&BTreeSet::new()), count::counting)?;
    let kept = count::kept(ctx, query.collection.as_ref())?.filter(|_| is_whole);
    let (everything, counted) = (kept.is_some(), kept.unwrap_or(0));
    let shape = Shape {
        make: count::counting,
        wrap: &|input| {
            let found = if everything { counted } else { input.counters.advanced };
            let n = count::windowed(found, request) as u64;
            let counters = Counters { works: 1, finished: true, ..Counters::default() };
            let report =
                Report::new(if everything { "RECORD_STORE_FAST_COUNT" } else { "COUNT" }, counters);
            let report = report.counting("nCounted", n).counting("nSkipped", found - n.min(found));
            if everything { report } else { report.over(input) }
        },
        run: !everything,
    };
    finish(&explain_query(ctx, ns, &query, &choice, verbosity, &shape)?)
}

/// Explains a distinct.
pub fn explain_distinct(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &DistinctRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let query = crate::distinct::prepare(ctx, ns, request)?;
    let fields = BTreeSet::from([request.key.to_owned()]);
    let shape = Shape::default();
    let choice = query.consider(ctx, Some(&fields), shape.make)?;
    finish(&explain_query(ctx, ns, &query, &choice, verbosity, &shape)?)
}

/// Explains an update of one statement; nothing is changed.
pub fn explain_update(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &UpdateRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let statement = single(request.updates)?;
    let collection = ctx.collection_to_explain(ns)?;
    let collation = collation_of(statement.collation, collection.as_deref())?;
    let let_variables = request.let_variables;
    let filter = parse_filter(Some(statement.filter), let_variables, collation, ctx)?;
    let mut query = Canonical::of_filter(ctx, collection, filter, statement.hint, Purpose::Read)?;
    query.limit = u64::from(!statement.multi);
    explain_write(ctx, ns, &query, verbosity, "UPDATE")
}

/// Explains a delete of one statement; nothing is changed.
pub fn explain_delete(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &DeleteRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let statement = single(request.deletes)?;
    let collection = ctx.collection_to_explain(ns)?;
    let collation = collation_of(statement.collation, collection.as_deref())?;
    let let_variables = request.let_variables;
    let filter = parse_filter(Some(statement.filter), let_variables, collation, ctx)?;
    let range = deletes_range(ctx, collection.as_ref(), statement, &filter)?;
    let mut query = Canonical::of_filter(ctx, collection, filter, statement.hint, Purpose::Read)?;
    query.limit = u64::from(statement.only_one);
    let stage = if range.is_some() { "DELETE_RANGE" } else { "DELETE" };
    explain_write(ctx, ns, &query, verbosity, stage)
}

/// Explains a findAndModify; nothing is changed.
pub fn explain_find_and_modify(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &FindAndModifyRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let find = FindRequest {
        filter: request.filter,
        sort: request.sort,
        hint: request.hint,
        collation: request.collation,
        let_variables: request.let_variables,
        limit: 1,
        ..FindRequest::default()
    };
    let query = Canonical::of_find(ctx, ns, &find, Purpose::Read)?;
    let stage = if request.remove { "DELETE" } else { "UPDATE" };
    explain_write(ctx, ns, &query, verbosity, stage)
}

fn single<T>(statements: &[T]) -> Result<&T> {
    match statements {
        [only] => Ok(only),
        _ => Err(Error::new(
            errors::Code::INVALID_LENGTH,
            "explained write batches must be of size 1",
        )),
    }
}

fn explain_write(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    query: &Canonical,
    verbosity: Verbosity,
    stage: &'static str,
) -> Result<RawDocumentBuf> {
    let choice = query.consider(ctx, None, Canonical::stages)?;
    let shape = Shape {
        make: Canonical::stages,
        wrap: &|input| {
            let found = input.counters.advanced;
            let counters = Counters { works: found, finished: true, ..Counters::default() };
            let report = Report::new(stage, counters);
            let report = match stage {
                "DELETE" | "DELETE_RANGE" => report.counting("nWouldDelete", found),
                _ => report
                    .counting("nMatched", found)
                    .counting("nWouldModify", found)
                    .counting("nWouldUpsert", 0),
            };
            report.over(input)
        },
        run: true,
    };
    finish(&explain_query(ctx, ns, query, &choice, verbosity, &shape)?)
}

/// How a command turns an access plan into stages, and shows itself above them.
pub(crate) struct Shape<'a> {
    pub(crate) make: Maker,
    pub(crate) wrap: &'a dyn Fn(Report) -> Report,
    /// Whether there is anything to run.
    pub(crate) run: bool,
}

impl Default for Shape<'_> {
    /// A find as it is.
    fn default() -> Self {
        Self { make: Canonical::stages, wrap: &|report| report, run: true }
    }
}

/// The explanation of one query.
pub(crate) fn explain_query(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    query: &Canonical,
    choice: &ExplainedChoice,
    verbosity: Verbosity,
    shape: &Shape<'_>,
) -> Result<Document> {
    let decision = &choice.decision;
    let mut stage = (shape.make)(query, ctx.catalog, &decision.winner)?;
    let mut rejected = Vec::new();
    for access in decision.rivals.iter().chain(&decision.rejected) {
        let report = (shape.wrap)((shape.make)(query, ctx.catalog, access)?.report());
        rejected.push(Bson::Document(report.plan_document()));
    }
    let hash = choice.shape.hash_text();
    let mut planner = doc! {
        "namespace": ns.as_str(),
        "indexFilterSet": decision.filtered,
        "parsedQuery": query.filter.to_document(),
        "queryHash": &hash,
        "planCacheShapeHash": &hash,
        "planCacheKey": hash,
    };
    if let Some(collation) = query.filter.variables().collation() {
        let shown = Document::try_from(&bsonval::collation::to_document(collation))?;
        planner.insert("collation", shown);
    }
    planner.extend(doc! {
        "maxIndexedOrSolutionsReached": false,
        "maxIndexedAndSolutionsReached": false,
        "maxScansToExplodeReached": false,
        "winningPlan": (shape.wrap)(stage.report()).plan_document(),
        "rejectedPlans": rejected,
    });
    let mut out = doc! { "explainVersion": "1", "queryPlanner": planner };
    if verbosity == Verbosity::QueryPlanner {
        return Ok(out);
    }
    let clock = &ctx.catalog.os().clock;
    let start = clock.monotonic();
    let exec = ExecContext::new(&query.snapshot, &*ctx.interrupt);
    while shape.run && stage.advance(&exec)? {}
    let elapsed_ms = (clock.monotonic().saturating_sub(start)).as_millis() as u64;
    let report = (shape.wrap)(stage.report());
    let mut statistics = doc! {
        "executionSuccess": true,
        "nReturned": number(report.counters.advanced),
        "executionTimeMillis": number(elapsed_ms),
        "totalKeysExamined": number(report.total_keys()),
        "totalDocsExamined": number(report.total_documents()),
        "executionStages": report.statistics_document(),
    };
    if verbosity == Verbosity::AllPlansExecution {
        let all: Vec<Bson> = choice.tried.iter().map(|tried| trial(tried).into()).collect();
        statistics.insert("allPlansExecution", all);
    }
    out.insert("executionStats", statistics);
    Ok(out)
}

/// How a plan did in the trial.
fn trial(tried: &Tried) -> Document {
    let report = &tried.report;
    doc! {
        "nReturned": number(tried.rows),
        "executionTimeMillisEstimate": 0,
        "totalKeysExamined": number(report.total_keys()),
        "totalDocsExamined": number(report.total_documents()),
        "score": tried.score(),
        "executionStages": report.statistics_document(),
    }
}

fn finish(explanation: &Document) -> Result<RawDocumentBuf> {
    Ok(RawDocumentBuf::try_from(explanation)?)
}
