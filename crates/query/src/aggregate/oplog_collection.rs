//! `local.oplog.rs`: a capped collection that is not stored, but read from the history.
//!
//! From → to: the bounds on `ts` of the filter say where in the history reading begins and ends; a
//! source ([`source`]) makes entries of commits; filter, sort and projection run over it as a pipeline.
//!
//! Always true: entries come once, in the order of their times, as far as they are durable; where what
//! comes next is no longer there a cursor fails with `CappedPositionLost`.

mod backward;
mod source;

use super::{QueryEnv, to_pipeline};
use crate::canonical::{collation_of, parse_context};
use crate::context::OpContext;
use crate::cursor::{QueryCursor, Rows};
use crate::permit::Opening;
use crate::request::{AggregateTarget, CountRequest, FindRequest};
use backward::Backward;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, Timestamp, doc};
use bsonval::raw::document_of;
use catalog::{Catalog, Namespace};
use engine::History;
use errors::{Code, Error, Result};
use oplog::Time;
use pipeline::{DocumentSource, Pipeline, PipelineContext, PipelineStage};
use source::{End, OplogSource};
use std::sync::Arc;

/// The times that a filter lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// Entries are later than this…
    pub(crate) after: Time,
    /// …and not later than this.
    pub(crate) until: Time,
}

impl Bounds {
    const ALL: Self = Self { after: Time(0), until: Time(u64::MAX) };

    /// What a filter says of `ts`, at its top or in a `$and` there.
    pub(crate) fn of(filter: &RawDocument) -> Self {
        let mut bounds = Self::ALL;
        bounds.narrow(filter, 0);
        bounds
    }

    fn narrow(&mut self, filter: &RawDocument, depth: usize) {
        for (name, value) in filter.iter().flatten() {
            match (name.as_str(), value) {
                ("ts", RawBsonRef::Timestamp(time)) => self.take("$eq", time),
                ("ts", RawBsonRef::Document(operators)) => {
                    for (operator, value) in operators.iter().flatten() {
                        if let RawBsonRef::Timestamp(time) = value {
                            self.take(operator.as_str(), time);
                        }
                    }
                }
                ("$and", RawBsonRef::Array(all)) if depth < 10 => {
                    for one in all.into_iter().flatten() {
                        if let RawBsonRef::Document(one) = one {
                            self.narrow(one, depth + 1);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, operator: &str, time: Timestamp) {
        let time = Time::from(time);
        let before = Time(time.0.saturating_sub(1));
        match operator {
            "$gt" => self.after = self.after.max(time),
            "$gte" => self.after = self.after.max(before),
            "$lt" => self.until = self.until.min(before),
            "$lte" => self.until = self.until.min(time),
            "$eq" => {
                self.after = self.after.max(before);
                self.until = self.until.min(time);
            }
            _ => {}
        }
    }
}

/// What is wanted of the oplog in what order.
struct Wanted<'a> {
    filter: Option<&'a RawDocument>,
    stages: RawArrayBuf,
    backward: bool,
    tailable: bool,
}

/// Runs a find over the oplog.
pub fn find_oplog(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
    tailable: bool,
) -> Result<QueryCursor> {
    let natural = |order: Option<&RawDocument>| match order.map(|order| order.get("$natural")) {
        Some(Ok(Some(value))) => Some(bsonval::types::option_integer(value) == Some(-1)),
        _ => None,
    };
    let hint = match request.hint {
        Some(RawBsonRef::Document(hint)) => natural(Some(hint)),
        _ => None,
    };
    if request.hint.is_some() && hint.is_none() {
        return Err(Error::bad_value(
            "error processing query: planner returned error :: caused by :: hint provided does \
             not correspond to an existing index",
        ));
    }
    if request.min.is_some() || request.max.is_some() || request.return_key {
        return Err(Error::bad_value(format!("{ns} has no index to use")));
    }
    let by_order = natural(request.sort).or(hint);
    let sort = request.sort.filter(|sort| !sort.is_empty() && natural(Some(sort)).is_none());
    let backward = by_order == Some(true);
    if tailable && (backward || sort.is_some()) {
        return Err(Error::bad_value(
            "cannot use tailable option with a sort other than {$natural: 1}",
        ));
    }
    let mut stages = RawArrayBuf::new();
    let mut push = |name: &str, value: RawBsonRef<'_>| stages.push(document_of(name, value));
    if let Some(filter) = request.filter.filter(|filter| !filter.is_empty()) {
        push("$match", RawBsonRef::Document(filter));
    }
    if let Some(sort) = sort {
        push("$sort", RawBsonRef::Document(sort));
    }
    if request.skip > 0 {
        push("$skip", RawBsonRef::Int64(i64::try_from(request.skip).unwrap_or(i64::MAX)));
    }
    // The limit of a tail is counted over all of its batches.
    if request.limit > 0 && !tailable {
        push("$limit", RawBsonRef::Int64(i64::try_from(request.limit).unwrap_or(i64::MAX)));
    }
    if let Some(projection) = request.projection.filter(|projection| !projection.is_empty()) {
        push("$project", RawBsonRef::Document(projection));
    }
    let wanted = Wanted { filter: request.filter, stages, backward, tailable };
    run(ctx, ns, request, &wanted)
}

fn run(
    ctx: &OpContext<'_>,
    ns: &Namespace,
    request: &FindRequest<'_>,
    wanted: &Wanted<'_>,
) -> Result<QueryCursor> {
    ctx.check_permit(ns, Opening::Read)?;
    let target = AggregateTarget::Collection(ns.clone());
    let env = QueryEnv::of(ctx, &target, request.allow_disk_use);
    let collation = collation_of(request.collation, None)?;
    let parse = parse_context(&[request.let_variables], collation, ctx)?;
    let context = PipelineContext::new(&to_pipeline(ns), parse.clone());
    let pipeline = Pipeline::parse(&wanted.stages, &context)?;
    let bounds = wanted.filter.map_or(Bounds::ALL, Bounds::of);
    let (source, end) = open(ctx.catalog, &env, bounds, wanted.backward)?;
    let source = pipeline.execute(source, &env.shared(), &parse.variables)?;
    let rows = OplogRows { source, current: None, end };
    let interrupt = Arc::clone(env.interrupt());
    let cursor = QueryCursor::new(Box::new(rows), None, interrupt);
    Ok(if wanted.tailable { cursor.following() } else { cursor })
}

/// The entries within bounds, and what is known of their end.
fn open(
    catalog: &Arc<Catalog>,
    env: &QueryEnv,
    bounds: Bounds,
    backward: bool,
) -> Result<(Box<dyn DocumentSource>, Arc<End>)> {
    let history = catalog.engine().history().ok_or_else(no_oplog)?;
    let end = Arc::new(End::new(&history));
    let interrupt = Arc::clone(env.interrupt());
    let source: Box<dyn DocumentSource> = if backward {
        Box::new(Backward::new(history, interrupt, bounds)?)
    } else {
        Box::new(OplogSource::new(history, interrupt, bounds, Arc::clone(&end))?)
    };
    Ok((source, end))
}

/// The oplog as the source of a pipeline.
pub(crate) fn source_of(env: &QueryEnv, pipeline: &Pipeline) -> Result<Box<dyn DocumentSource>> {
    let bounds = match pipeline.stages().first() {
        Some(PipelineStage::Match(filter)) => {
            RawDocumentBuf::try_from(&filter.to_document()).map_or(Bounds::ALL, |f| Bounds::of(&f))
        }
        _ => Bounds::ALL,
    };
    Ok(open(env.catalog(), env, bounds, false)?.0)
}

/// Counts entries.
pub fn count_oplog(ctx: &OpContext<'_>, ns: &Namespace, request: &CountRequest<'_>) -> Result<i64> {
    let all = FindRequest {
        filter: request.filter,
        collation: request.collation,
        hint: request.hint,
        ..FindRequest::default()
    };
    let mut cursor = find_oplog(ctx, ns, &all, false)?;
    let enough = match request.limit {
        0 => u64::MAX,
        limit => limit.saturating_add(request.skip),
    };
    let mut found = 0;
    while found < enough && cursor.next()?.is_some() {
        found += 1;
    }
    Ok(crate::count::windowed(found, request))
}

/// The plan of a find over the oplog.
pub fn explain_oplog(ns: &Namespace, filter: Option<&RawDocument>) -> Result<RawDocumentBuf> {
    let bounds = filter.map_or(Bounds::ALL, Bounds::of);
    let parsed = filter.map(Document::try_from).transpose()?.unwrap_or_default();
    let mut scan = doc! { "stage": "COLLSCAN", "direction": "forward" };
    if bounds.after > Time(0) {
        scan.insert("minRecord", Bson::Timestamp(bounds.after.timestamp()));
    }
    if bounds.until < Time(u64::MAX) {
        scan.insert("maxRecord", Bson::Timestamp(bounds.until.timestamp()));
    }
    let planner = doc! {
        "namespace": ns.as_str(),
        "parsedQuery": parsed,
        "winningPlan": scan,
        "rejectedPlans": [],
    };
    let whole = doc! { "explainVersion": "1", "queryPlanner": planner, "ok": 1.0 };
    Ok(RawDocumentBuf::try_from(&whole)?)
}

pub(super) fn no_oplog() -> Error {
    Error::new(Code::NOT_A_REPLICA_SET, "only a member of a replica set has an oplog")
}

/// Entries as rows of a cursor.
struct OplogRows {
    source: Box<dyn DocumentSource>,
    current: Option<RawDocumentBuf>,
    end: Arc<End>,
}

impl Rows for OplogRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        self.current = self.source.next()?;
        Ok(self.current.as_deref())
    }

    fn park(&mut self) {
        self.current = None;
        self.source.park();
    }

    fn end_of_history(&self) -> Option<(Arc<History>, Time)> {
        Some(self.end.of_history())
    }

    fn is_over(&self) -> bool {
        self.end.is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_where_to_begin_and_end() {
        let at = |seconds: u32| Timestamp { time: seconds, increment: 1 };
        let time = |seconds: u32| Time::from(at(seconds));
        let before = |seconds: u32| Time(time(seconds).0 - 1);
        let all = Bounds::ALL;
        for (filter, after, until) in [
            (doc! {}, all.after, all.until),
            (doc! { "ts": at(5) }, before(5), time(5)),
            (doc! { "ts": { "$gt": at(5) } }, time(5), all.until),
            (doc! { "ts": { "$gte": at(5), "$lt": at(9) } }, before(5), before(9)),
            (doc! { "ts": { "$lte": at(9) }, "op": "i" }, all.after, time(9)),
            (
                doc! { "$and": [{ "ts": { "$gt": at(5) } }, { "ts": { "$gt": at(7) } }] },
                time(7),
                all.until,
            ),
            (doc! { "$or": [{ "ts": { "$gt": at(5) } }] }, all.after, all.until),
            (doc! { "ts": { "$ne": at(5) } }, all.after, all.until),
        ] {
            let raw = RawDocumentBuf::try_from(&filter).unwrap();
            assert_eq!(Bounds::of(&raw), Bounds { after, until }, "{filter}");
        }
    }
}
