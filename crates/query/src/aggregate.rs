//! `aggregate`: pipelines over collections, with their head answered by the planner.
//!
//! From → to: leading `$match` stages become the query's filter, a leading `$sort` is answered by
//! an index where one offers the order, and the fields that the rest reads decide whether an index
//! covers it [`open`]; everything else runs in `pipeline` over that source.

mod change_stream;
pub(crate) mod collection_figures;
mod env;
mod geo_near;
mod merge;
pub(crate) mod oplog_collection;
mod out;

pub(crate) use env::QueryEnv;

use crate::canonical::{Canonical, Purpose, check_view_collation, collation_of, parse_context};
use crate::context::OpContext;
use crate::count::counting;
use crate::cursor::{InterruptSlot, QueryCursor, Rows};
use crate::examined::note_sort;
use crate::exec::{ExecContext, PlanStage};
use crate::explain::{Shape, explain_query};
use crate::permit::Opening;
use crate::plan::Access;
use crate::plan_choice::{ChosenPlan, ExplainedChoice};
use crate::request::{AggregateRequest, AggregateTarget, Verbosity};
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use catalog::{Collection, MAX_VIEW_DEPTH, Namespace};
use engine::Snapshot;
use errors::{Code, Error, Result};
use expr::agg::Variables;
use matcher::{Filter, Node, ParseContext};
use pipeline::{DocumentSource, EmptySource, Pipeline, PipelineContext, PipelineStage};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Runs a pipeline.
pub fn aggregate(
    ctx: &mut OpContext<'_>,
    target: &AggregateTarget,
    request: &AggregateRequest<'_>,
) -> Result<QueryCursor> {
    let prepared = Prepared::of(ctx, target, request)?;
    if let Some(stream) = change_stream::of(&prepared.pipeline) {
        let env = QueryEnv::of(ctx, target, request.allow_disk_use);
        let variables = &prepared.parse.variables;
        return change_stream::open(ctx, &env, &stream, &prepared.pipeline, target, variables);
    }
    if ctx.txn.is_some() {
        check_in_transaction(&prepared.pipeline)?;
    }
    let env = QueryEnv::of(ctx, target, request.allow_disk_use);
    let interrupt = Arc::clone(env.interrupt());
    let mut collection = None;
    let source = match &prepared.namespace {
        None => prepared.execute_own(&env)?,
        Some(ns) => {
            // A stage that tells about it does not read it; what does is checked where it is opened.
            collection = ctx.collection_for(ns, Opening::Metadata)?.filter(|c| !c.is_view());
            open(&env, ns, prepared.pipeline, &prepared.parse, request.hint)?
        }
    };
    Ok(QueryCursor::new(Box::new(SourceRows { source, current: None }), collection, interrupt))
}

/// Stages that write, or tell of the server, have no place in a transaction.
fn check_in_transaction(pipeline: &Pipeline) -> Result<()> {
    let refused = pipeline.stages().iter().find_map(|stage| match stage {
        PipelineStage::Out(..) => Some("$out"),
        PipelineStage::Merge(..) => Some("$merge"),
        _ => None,
    });
    match refused {
        None => Ok(()),
        Some(name) => Err(Error::new(
            Code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            format!("Stage not supported inside of a multi-document transaction: {name}"),
        )),
    }
}

/// A pipeline that was parsed, and what it runs on.
struct Prepared {
    pipeline: Pipeline,
    namespace: Option<Namespace>,
    parse: ParseContext,
}

impl Prepared {
    fn of(
        ctx: &OpContext<'_>,
        target: &AggregateTarget,
        request: &AggregateRequest<'_>,
    ) -> Result<Self> {
        let collection = match target {
            AggregateTarget::Collection(ns) => ctx.collection_for(ns, Opening::Metadata)?,
            AggregateTarget::Database(_) => None,
        };
        let collation = collation_of(request.collation, collection.as_deref())?;
        let parse = parse_context(&[request.let_variables], collation, ctx)?;
        let (context, namespace) = match target {
            AggregateTarget::Collection(ns) => {
                (PipelineContext::new(&to_pipeline(ns), parse.clone()), Some(ns.clone()))
            }
            AggregateTarget::Database(database) => {
                (PipelineContext::on_database(database, parse.clone()), None)
            }
        };
        let pipeline = Pipeline::parse(request.pipeline, &context)?;
        if namespace.is_some()
            && matches!(pipeline.stages().first(), Some(PipelineStage::Documents(_)))
        {
            return Err(Error::new(
                Code::INVALID_NAMESPACE,
                "'$documents' can only be run with {aggregate: 1}, not on a collection",
            ));
        }
        let series = collection.as_ref().is_some_and(|c| c.options().time_series.is_some());
        if let Some(first) = pipeline.stages().first().filter(|_| series && pipeline.fuses()) {
            return Err(Error::location(
                10_557_301,
                format!("{} is not supported on time-series collections", first.name()),
            ));
        }
        let pipeline = pipeline.optimize();
        Ok(Self { pipeline, namespace, parse })
    }

    fn execute_own(&self, env: &QueryEnv) -> Result<Box<dyn DocumentSource>> {
        self.pipeline.execute(Box::new(EmptySource), &env.shared(), &self.parse.variables)
    }
}

/// The two crates' names for the same thing.
pub(crate) fn to_pipeline(ns: &Namespace) -> pipeline::CollectionName {
    pipeline::CollectionName::new(ns.database(), ns.collection())
}

/// Opens a pipeline over a collection or view.
pub(crate) fn open(
    env: &QueryEnv,
    ns: &Namespace,
    pipeline: Pipeline,
    parse: &ParseContext,
    hint: Option<RawBsonRef<'_>>,
) -> Result<Box<dyn DocumentSource>> {
    let shared = env.shared();
    if pipeline.has_own_source() {
        return pipeline.execute(Box::new(EmptySource), &shared, &parse.variables);
    }
    if env.catalog().is_oplog(ns) {
        env.check_permit(ns, Opening::Read)?;
        let source = oplog_collection::source_of(env, &pipeline)?;
        return pipeline.execute(source, &shared, &parse.variables);
    }
    let (collection, pipeline) = resolve(env, ns, pipeline, parse)?;
    let head = Head::of(env, collection, pipeline, &parse.variables, hint, PlanPurpose::Run)?;
    let carries_score = head.query.carries_score;
    let (stage, snapshot, rest) = head.stages()?;
    let source = StageSource { stage, snapshot, interrupt: Arc::clone(env.interrupt()) };
    let source = rest.execute(Box::new(source), &shared, &parse.variables)?;
    Ok(if carries_score { pipeline::stripped(source) } else { source })
}

/// Follows views down to a collection; their stages come before the pipeline's own.
fn resolve(
    env: &QueryEnv,
    ns: &Namespace,
    pipeline: Pipeline,
    parse: &ParseContext,
) -> Result<(Option<Arc<Collection>>, Pipeline)> {
    let mut stages = pipeline.into_stages();
    let mut ns = ns.clone();
    for _ in 0..=MAX_VIEW_DEPTH {
        let collection = env.collection(&ns)?;
        let view = collection.as_ref().and_then(|c| Some((c, c.options().view.as_ref()?)));
        let Some((collection, view)) = view else {
            if stages.iter().skip(1).any(|stage| matches!(stage, PipelineStage::GeoNear(_))) {
                return Err(Error::location(
                    40603,
                    "$geoNear is only valid as the first stage in an optimized pipeline.",
                ));
            }
            let pipeline = Pipeline::from_stages(stages);
            pipeline.check_text()?;
            return Ok((collection, pipeline.optimize()));
        };
        check_view_collation(collection, parse.variables.collation())?;
        env.opens_view(ns.database(), view);
        let below = Namespace::new(ns.database(), &view.on)?;
        let context = PipelineContext::new(&to_pipeline(&below), parse.clone());
        let mut whole = Pipeline::parse(&view.pipeline, &context)?.into_stages();
        whole.append(&mut stages);
        stages = whole;
        ns = below;
    }
    Err(Error::new(
        Code::VIEW_DEPTH_LIMIT_EXCEEDED,
        format!("View depth limit exceeded; maximum depth is {MAX_VIEW_DEPTH}"),
    ))
}

/// How the planner answers its part of a pipeline.
enum HeadPlan {
    Run(Box<ChosenPlan>),
    Explain(Box<ExplainedChoice>),
}

impl HeadPlan {
    fn access(&self) -> &Access {
        match self {
            Self::Run(chosen) => &chosen.access,
            Self::Explain(choice) => &choice.decision.winner,
        }
    }

    /// From here on the plans that may take the winner's place are in order where it is.
    fn keep_order(&mut self) {
        match self {
            Self::Run(chosen) => chosen.keep_order(),
            Self::Explain(_) => {}
        }
    }
}

/// What a pipeline's head is planned for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlanPurpose {
    Run,
    Explain,
}

/// The part of a pipeline that the planner answers, and the rest.
struct Head {
    query: Arc<Canonical>,
    plan: HeadPlan,
    rest: Pipeline,
    /// The rest reads no field at all: it only counts.
    counts: bool,
    catalog: Arc<catalog::Catalog>,
}

impl Head {
    fn of(
        env: &QueryEnv,
        collection: Option<Arc<Collection>>,
        pipeline: Pipeline,
        variables: &Arc<Variables>,
        hint: Option<RawBsonRef<'_>>,
        purpose: PlanPurpose,
    ) -> Result<Self> {
        let mut stages = pipeline.into_stages();
        let mut conjuncts = Vec::new();
        let mut near_output = None;
        if let Some(PipelineStage::GeoNear(near)) = stages.first().cloned() {
            stages.remove(0);
            if let Some(collection) = &collection {
                conjuncts.push(geo_near::condition(collection, &near, variables)?);
                near_output = Some(geo_near::output(collection, &near, &mut stages, variables)?);
            }
        }
        let mut stages = stages.into_iter().peekable();
        // What comes after `$geoNear` may read what it writes.
        while near_output.is_none()
            && let Some(PipelineStage::Match(filter)) =
                stages.next_if(|stage| matches!(stage, PipelineStage::Match(_)))
        {
            conjuncts.push(filter.root().clone());
        }
        let filter = Filter::new(Node::And(conjuncts), Arc::clone(variables));
        let mut rest: Vec<PipelineStage> = stages.collect();
        let ctx = env.reading();
        let mut query = Canonical::of_filter(&ctx, collection, filter, hint, Purpose::Read)?;
        // Its documents come by their distance, so that no other order can be had of an index.
        let by_distance = near_output.is_some();
        query.near_output = near_output;
        if let Some(PipelineStage::Sort(sort)) = rest.first().filter(|_| !by_distance) {
            query.sort = Some(sort.pattern.clone());
            query.limit = sort.limit.unwrap_or(0);
        }
        let searched = query.filter.text().is_some();
        query.carries_score = Pipeline::from_stages(rest.clone()).reads_text_score(searched)?;
        let fields = fields_of(&rest).filter(|_| !by_distance);
        let counts = fields.as_ref().is_some_and(BTreeSet::is_empty);
        let make = if counts { counting } else { Canonical::stages };
        let mut plan = match purpose {
            PlanPurpose::Run => {
                HeadPlan::Run(Box::new(query.choose_plan(&ctx, fields.as_ref(), make)?))
            }
            PlanPurpose::Explain => {
                HeadPlan::Explain(Box::new(query.consider(&ctx, fields.as_ref(), make)?))
            }
        };
        plan.keep_order();
        // An index that offers the order takes the sort's place; its limit stays.
        if query.sort.is_some() && plan.access().sorted {
            rest[0] = PipelineStage::Limit(if query.limit == 0 { u64::MAX } else { query.limit });
            if query.limit == 0 {
                rest.remove(0);
            }
        }
        if rest.iter().any(|stage| matches!(stage, PipelineStage::Sort(_))) {
            note_sort();
        }
        (query.sort, query.limit) = (None, 0);
        Ok(Self {
            query: Arc::new(query),
            plan,
            rest: Pipeline::from_stages(rest),
            counts,
            catalog: Arc::clone(env.catalog()),
        })
    }

    /// The stages of the plan and the state that they read.
    fn stages(self) -> Result<(Box<dyn PlanStage>, Snapshot, Pipeline)> {
        let make = if self.counts { counting } else { Canonical::stages };
        let stage = match self.plan {
            HeadPlan::Run(chosen) => chosen.stages(&self.query, &self.catalog, make)?,
            HeadPlan::Explain(choice) => make(&self.query, &self.catalog, &choice.decision.winner)?,
        };
        Ok((stage, self.query.snapshot.clone(), self.rest))
    }
}

fn fields_of(rest: &[PipelineStage]) -> Option<BTreeSet<String>> {
    Pipeline::from_stages(rest.to_vec()).needed_fields()
}

/// A plan's rows as documents of a pipeline.
struct StageSource {
    stage: Box<dyn PlanStage>,
    snapshot: Snapshot,
    interrupt: Arc<InterruptSlot>,
}

impl DocumentSource for StageSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let exec = ExecContext::new(&self.snapshot, &*self.interrupt);
        if !self.stage.advance(&exec)? {
            return Ok(None);
        }
        let row = self.stage.row();
        if row.document.is_empty() {
            return Ok(Some(RawDocumentBuf::new()));
        }
        Ok(Some(row.document()?.to_owned()))
    }

    fn park(&mut self) {
        self.stage.park();
        self.stage.release_row();
    }
}

/// A pipeline's documents as rows of a cursor.
struct SourceRows {
    source: Box<dyn DocumentSource>,
    current: Option<RawDocumentBuf>,
}

impl Rows for SourceRows {
    fn next(&mut self) -> Result<Option<&RawDocument>> {
        self.current = self.source.next()?;
        Ok(self.current.as_deref())
    }

    fn park(&mut self) {
        self.current = None;
        self.source.park();
    }
}

/// Explains a pipeline.
pub fn explain_aggregate(
    ctx: &mut OpContext<'_>,
    target: &AggregateTarget,
    request: &AggregateRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf> {
    let prepared = Prepared::of(ctx, target, request)?;
    if let Some(stream) = change_stream::of(&prepared.pipeline) {
        change_stream::check(ctx, &stream, &prepared.pipeline, target)?;
    }
    let given = stage_documents(request.pipeline);
    let Some(ns) = prepared.namespace.filter(|_| !prepared.pipeline.has_own_source()) else {
        let whole = doc! { "explainVersion": "1", "stages": given };
        return Ok(RawDocumentBuf::try_from(&whole)?);
    };
    if ctx.catalog.is_oplog(&ns) {
        return oplog_collection::explain_oplog(&ns, None);
    }
    let env = QueryEnv::of(ctx, target, request.allow_disk_use);
    let (collection, pipeline) = resolve(&env, &ns, prepared.pipeline, &prepared.parse)?;
    let variables = &prepared.parse.variables;
    let head = Head::of(&env, collection, pipeline, variables, request.hint, PlanPurpose::Explain)?;
    let HeadPlan::Explain(choice) = &head.plan else {
        return Err(Error::new(Code::INTERNAL_ERROR, "the plan is not one to explain"));
    };
    let make = if head.counts { counting } else { Canonical::stages };
    let shape = Shape { make, ..Shape::default() };
    let planned = explain_query(ctx, &ns, &head.query, choice, verbosity, &shape)?;
    if head.rest.is_empty() {
        return Ok(RawDocumentBuf::try_from(&planned)?);
    }
    let mut cursor = planned;
    cursor.remove("explainVersion");
    let mut stages = vec![Bson::Document(doc! { "$cursor": cursor })];
    let own = usize::from(head.query.near_output.as_ref().is_some_and(|output| output.asked));
    let left = (head.rest.stages().len() - own).min(given.len());
    stages.extend(given.into_iter().rev().take(left).rev());
    let whole = doc! { "explainVersion": "1", "stages": stages };
    Ok(RawDocumentBuf::try_from(&whole)?)
}

fn stage_documents(pipeline: &RawArray) -> Vec<Bson> {
    pipeline
        .into_iter()
        .flatten()
        .filter_map(RawBsonRef::as_document)
        .filter_map(|stage| Document::try_from(stage).ok())
        .map(Bson::Document)
        .collect()
}
