//! `explain`: the plan in MongoDB's words, and what running it counted.
//!
//! Always true: nothing is changed. Writes are explained by the query that finds their documents.

use crate::canonical::{Canonical, Purpose, collation_of, parse_filter};
use crate::context::OpContext;
use crate::count;
use crate::exec::{At, Counters, Report, Stage, number};
use crate::plan::{Access, Decision};
use crate::request::{
    CountRequest, DeleteRequest, DistinctRequest, FindAndModifyRequest, FindRequest, UpdateRequest,
    Verbosity,
};
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
    let decision = query.decide(query.fields().as_ref())?;
    finish(&explain_query(ctx, ns, &query, &decision, verbosity, &plain)?)
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
    let filter = parse_filter(request.filter, None, collation, ctx.catalog)?;
    let everything = filter.matches_everything() && request.hint.is_none();
    let query = Canonical::of_filter(ctx, collection, filter, request.hint, Purpose::Read)?;
    let decision = query.decide(Some(&BTreeSet::new()))?;
    let counted = query.collection.as_ref().map_or(0, |c| c.count());
    let shape = Shape {
        stages: &|query, access| count::counting(query, access),
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
    finish(&explain_query(ctx, ns, &query, &decision, verbosity, &shape)?)
}

/// Explains a distinct.
pub fn explain_distinct(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &DistinctRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let query = crate::distinct::prepare(ctx, ns, request)?;
    let decision = query.decide(Some(&BTreeSet::from([request.key.to_owned()])))?;
    finish(&explain_query(ctx, ns, &query, &decision, verbosity, &plain)?)
}

/// Explains an update of one statement; nothing is changed.
pub fn explain_update(
    ctx: &mut OpContext<'_>,
    ns: &Namespace,
    request: &UpdateRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let statement = single(request.updates)?;
    let collection = ctx.collection(ns)?;
    let collation = collation_of(statement.collation, collection.as_deref())?;
    let let_variables = request.let_variables;
    let filter = parse_filter(Some(statement.filter), let_variables, collation, ctx.catalog)?;
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
    let collection = ctx.collection(ns)?;
    let collation = collation_of(statement.collation, collection.as_deref())?;
    let let_variables = request.let_variables;
    let filter = parse_filter(Some(statement.filter), let_variables, collation, ctx.catalog)?;
    let mut query = Canonical::of_filter(ctx, collection, filter, statement.hint, Purpose::Read)?;
    query.limit = u64::from(statement.only_one);
    explain_write(ctx, ns, &query, verbosity, "DELETE")
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
    let decision = query.decide(None)?;
    let shape = Shape {
        stages: &|query, access| query.stages(ctx.catalog, access),
        wrap: &|input| {
            let found = input.counters.advanced;
            let counters = Counters { works: found, finished: true, ..Counters::default() };
            let report = Report::new(stage, counters);
            let report = match stage {
                "DELETE" => report.counting("nWouldDelete", found),
                _ => report
                    .counting("nMatched", found)
                    .counting("nWouldModify", found)
                    .counting("nWouldUpsert", 0),
            };
            report.over(input)
        },
        run: true,
    };
    finish(&explain_query(ctx, ns, query, &decision, verbosity, &shape)?)
}

/// Makes the stages of an access plan.
type StagesOf<'a> = dyn Fn(&Canonical, &Access) -> Result<Box<dyn Stage>> + 'a;

/// How a command turns an access plan into stages, and shows itself above them.
pub(crate) struct Shape<'a> {
    stages: &'a StagesOf<'a>,
    wrap: &'a dyn Fn(Report) -> Report,
    /// Whether there is anything to run.
    run: bool,
}

/// What may be explained: a [`Shape`], or [`plain`].
pub(crate) trait Explained {
    fn stages(
        &self,
        ctx: &OpContext<'_>,
        query: &Canonical,
        access: &Access,
    ) -> Result<Box<dyn Stage>>;
    fn wrap(&self, report: Report) -> Report;
    fn runs(&self) -> bool;
}

/// A find as it is.
#[expect(non_upper_case_globals, reason = "reads as a value")]
pub(crate) const plain: Plain = Plain;

/// See [`plain`].
pub(crate) struct Plain;

impl Explained for Plain {
    fn stages(
        &self,
        ctx: &OpContext<'_>,
        query: &Canonical,
        access: &Access,
    ) -> Result<Box<dyn Stage>> {
        query.stages(ctx.catalog, access)
    }

    fn wrap(&self, report: Report) -> Report {
        report
    }

    fn runs(&self) -> bool {
        true
    }
}

impl Explained for Shape<'_> {
    fn stages(
        &self,
        _: &OpContext<'_>,
        query: &Canonical,
        access: &Access,
    ) -> Result<Box<dyn Stage>> {
        (self.stages)(query, access)
    }

    fn wrap(&self, report: Report) -> Report {
        (self.wrap)(report)
    }

    fn runs(&self) -> bool {
        self.run
    }
}

/// The explanation of one query.
pub(crate) fn explain_query(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    query: &Canonical,
    decision: &Decision,
    verbosity: Verbosity,
    shape: &dyn Explained,
) -> Result<Document> {
    let mut stage = shape.stages(ctx, query, &decision.winner)?;
    let mut rejected = Vec::new();
    for access in &decision.rejected {
        let report = shape.wrap(shape.stages(ctx, query, access)?.report());
        rejected.push(Bson::Document(report.plan_document()));
    }
    let mut planner = doc! {
        "namespace": ns.as_str(),
        "indexFilterSet": false,
        "parsedQuery": query.filter.to_document(),
    };
    if let Some(collation) = query.filter.variables().collation() {
        let shown = Document::try_from(&expr::collation::to_document(collation))?;
        planner.insert("collation", shown);
    }
    planner.extend(doc! {
        "maxIndexedOrSolutionsReached": false,
        "maxIndexedAndSolutionsReached": false,
        "maxScansToExplodeReached": false,
        "winningPlan": shape.wrap(stage.report()).plan_document(),
        "rejectedPlans": rejected,
    });
    let mut out = doc! { "explainVersion": "1", "queryPlanner": planner };
    if verbosity == Verbosity::QueryPlanner {
        return Ok(out);
    }
    let clock = &ctx.catalog.os().clock;
    let start = clock.monotonic();
    let at = At { snapshot: &query.snapshot, txn: None, interrupt: &*ctx.interrupt };
    while shape.runs() && stage.advance(&at)? {}
    let elapsed_ms = (clock.monotonic().saturating_sub(start)).as_millis() as u64;
    let report = shape.wrap(stage.report());
    let mut statistics = doc! {
        "executionSuccess": true,
        "nReturned": number(report.counters.advanced),
        "executionTimeMillis": number(elapsed_ms),
        "totalKeysExamined": number(report.total_keys()),
        "totalDocsExamined": number(report.total_documents()),
        "executionStages": report.statistics_document(),
    };
    if verbosity == Verbosity::AllPlansExecution {
        statistics.insert("allPlansExecution", Vec::<Bson>::new());
    }
    out.insert("executionStats", statistics);
    Ok(out)
}

fn finish(explanation: &Document) -> Result<RawDocumentBuf> {
    Ok(RawDocumentBuf::try_from(explanation)?)
}
