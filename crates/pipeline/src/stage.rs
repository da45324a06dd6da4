//! The stages: one file each under `stage/`.
//!
//! Every stage file has a parsed form (kept behind an `Arc`, shared between runs), which says by
//! [`StageSpec`] what the rest must know of the stage, and, where it is not trivial, a source that
//! does the work.

pub mod bucket_auto;
pub mod change_stream;
pub mod densify;
pub mod documents;
pub mod facet;
mod fill;
mod fusion;
pub mod geo_near;
pub mod graph_lookup;
pub mod group;
mod kept;
pub mod limit;
pub mod lookup;
pub mod matching;
pub mod merge;
pub mod metadata;
pub mod out;
mod rank_fusion;
pub mod redact;
pub mod replace_root;
pub mod sample;
mod score;
mod score_fusion;
pub mod shorthand;
pub mod sort;
mod spec;
pub mod transform;
pub mod union_with;
pub mod unwind;
pub mod window;

use crate::DocumentSource;
use crate::env::{CollectionName, Env};
use crate::parse::PipelineContext;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Error, Result};
use expr::agg::{Expression, Variables};
use matcher::Filter;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use spec::all_apart;
pub use spec::{Output, Part, Place, StageSpec};

/// One parsed stage. What others look into (the optimiser, the planner, updates) has a variant of its
/// own; of all others only what [`StageSpec`] tells is known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PipelineStage {
    /// `$match`
    Match(Arc<Filter>),
    /// `$project $addFields $set $unset`
    Transform(Arc<transform::TransformStage>),
    /// `$sort`, with the limit that followed it
    Sort(Arc<sort::Sort>),
    /// `$limit`
    Limit(u64),
    /// `$skip`
    Skip(u64),
    /// `$unwind`
    Unwind(Arc<unwind::Unwind>),
    /// `$replaceRoot $replaceWith`
    ReplaceRoot(Arc<replace_root::ReplaceRoot>),
    /// `$lookup`
    Lookup(Arc<lookup::Lookup>),
    /// `$changeStream`, whose documents the planner makes
    ChangeStream(Arc<change_stream::ChangeStream>),
    /// `$documents`
    Documents(Arc<documents::Documents>),
    /// `$out`
    Out(Arc<out::Out>),
    /// `$merge`
    Merge(Arc<merge::Merge>),
    /// `$geoNear`, which the planner answers
    GeoNear(Arc<geo_near::GeoNear>),
    /// Every other stage.
    Other(Arc<dyn StageSpec>),
}

/// An expression that is a stage's whole argument.
#[derive(Clone, Debug)]
pub struct Computed {
    /// What is evaluated.
    pub expression: Expression,
    /// What the client wrote.
    pub source: RawBson,
}

impl Computed {
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<Self> {
        let expression = Expression::parse(value, &ctx.parse.names)?.optimize();
        Ok(Self { expression, source: value.into() })
    }
}

/// Parses one stage document; some names stand for several stages.
pub(crate) fn parse(
    spec: &RawDocument,
    ctx: &PipelineContext,
    stages: &mut Vec<PipelineStage>,
) -> Result<()> {
    let mut elements = spec.iter_elements();
    let (Some(first), None) = (elements.next().transpose()?, elements.next()) else {
        return Err(Error::location(
            40323,
            "A pipeline stage specification object must contain exactly one field.",
        ));
    };
    let (name, value) = (first.key().as_str(), first.value()?);
    let unknown = || Error::location(40324, format!("Unrecognized pipeline stage name: '{name}'"));
    match PARSERS.iter().find(|(known, ..)| *known == name) {
        Some((_, _, Parser::One(parse))) => stages.push(parse(value, ctx)?),
        Some((_, _, Parser::Several(parse))) => parse(value, ctx, stages)?,
        Some((known, _, Parser::Metadata)) => stages.push(metadata::parse(known, value, ctx)?),
        Some((known, _, Parser::Refused(code, reason))) => {
            return Err(Error::location(*code, reason.replace("{}", known)));
        }
        None => return Err(unknown()),
    }
    Ok(())
}

/// How a stage is read.
enum Parser {
    One(fn(RawBsonRef<'_>, &PipelineContext) -> Result<PipelineStage>),
    /// A name that stands for several stages.
    Several(fn(RawBsonRef<'_>, &PipelineContext, &mut Vec<PipelineStage>) -> Result<()>),
    /// A stage whose documents the environment has.
    Metadata,
    /// Known and not served: the code, and the text around the name.
    Refused(i32, &'static str),
}

const ATLAS_ONLY: Parser = Parser::Refused(31082, "{} stage is only allowed on MongoDB Atlas");

/// Every stage.
const PARSERS: &[(&str, Access, Parser)] = &[
    (
        "$addFields",
        Access::Nothing,
        Parser::One(|value, ctx| transform::parse("$addFields", value, ctx)),
    ),
    ("$bucket", Access::Nothing, Parser::Several(shorthand::bucket)),
    ("$bucketAuto", Access::Nothing, Parser::One(bucket_auto::parse)),
    ("$changeStream", Access::ChangeStream, Parser::One(change_stream::parse)),
    ("$changeStreamSplitLargeEvent", Access::Nothing, Parser::One(change_stream::parse_split)),
    ("$collStats", Access::CollStats, Parser::Metadata),
    (
        "$count",
        Access::Nothing,
        Parser::Several(|value, _, stages| shorthand::count(value, stages)),
    ),
    ("$currentOp", Access::CurrentOp, Parser::Metadata),
    ("$densify", Access::Nothing, Parser::One(|value, _| densify::parse(value))),
    ("$documents", Access::Documents, Parser::One(documents::parse)),
    ("$facet", Access::Facet, Parser::One(facet::parse)),
    ("$fill", Access::Nothing, Parser::Several(fill::parse)),
    ("$geoNear", Access::Nothing, Parser::One(geo_near::parse)),
    ("$graphLookup", Access::From, Parser::One(graph_lookup::parse)),
    ("$group", Access::Nothing, Parser::One(group::parse)),
    ("$indexStats", Access::IndexStats, Parser::Metadata),
    ("$limit", Access::Nothing, Parser::One(|value, _| limit::parse_limit(value))),
    ("$listCatalog", Access::ListCatalog, Parser::Metadata),
    ("$listClusterCatalog", Access::ListClusterCatalog, Parser::Metadata),
    ("$listLocalSessions", Access::ListSessions, Parser::Metadata),
    ("$listSearchIndexes", Access::Refused, ATLAS_ONLY),
    ("$listSessions", Access::ListSessions, Parser::Metadata),
    ("$lookup", Access::From, Parser::One(lookup::parse)),
    ("$match", Access::Nothing, Parser::One(matching::parse)),
    ("$merge", Access::Merge, Parser::One(merge::parse)),
    ("$out", Access::Out, Parser::One(out::parse)),
    ("$planCacheStats", Access::PlanCacheStats, Parser::Metadata),
    (
        "$project",
        Access::Nothing,
        Parser::One(|value, ctx| transform::parse("$project", value, ctx)),
    ),
    ("$querySettings", Access::QuerySettings, Parser::Metadata),
    ("$queryStats", Access::QueryStats, Parser::Metadata),
    ("$rankFusion", Access::Fusion, Parser::One(rank_fusion::parse)),
    ("$redact", Access::Nothing, Parser::One(redact::parse)),
    (
        "$replaceRoot",
        Access::Nothing,
        Parser::One(|value, ctx| replace_root::parse("$replaceRoot", value, ctx)),
    ),
    (
        "$replaceWith",
        Access::Nothing,
        Parser::One(|value, ctx| replace_root::parse("$replaceWith", value, ctx)),
    ),
    ("$sample", Access::Nothing, Parser::One(|value, _| sample::parse(value))),
    ("$score", Access::Nothing, Parser::One(score::parse)),
    ("$scoreFusion", Access::Fusion, Parser::One(score_fusion::parse)),
    ("$search", Access::Refused, ATLAS_ONLY),
    ("$searchMeta", Access::Refused, ATLAS_ONLY),
    ("$set", Access::Nothing, Parser::One(|value, ctx| transform::parse("$set", value, ctx))),
    ("$setWindowFields", Access::Nothing, Parser::One(window::parse)),
    ("$skip", Access::Nothing, Parser::One(|value, _| limit::parse_skip(value))),
    ("$sort", Access::Nothing, Parser::One(sort::parse)),
    ("$sortByCount", Access::Nothing, Parser::Several(shorthand::sort_by_count)),
    ("$unionWith", Access::Union, Parser::One(union_with::parse)),
    ("$unset", Access::Nothing, Parser::One(|value, ctx| transform::parse("$unset", value, ctx))),
    ("$unwind", Access::Nothing, Parser::One(|value, _| unwind::parse(value))),
    ("$vectorSearch", Access::Refused, ATLAS_ONLY),
];

/// What a stage touches besides the documents that come in: whoever judges whether a client may run a pipeline goes
/// by this, and a stage without it does not compile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing.
    Nothing,
    /// Known and refused.
    Refused,
    /// It makes its documents itself: the collection is not read.
    Documents,
    /// It reads the collection in `from`, and runs the pipeline in `pipeline`, if there is one.
    From,
    /// It reads a collection, by its name or in `coll`, and runs `pipeline`.
    Union,
    /// Each of its fields is a pipeline.
    Facet,
    /// Each field of `input.pipelines` is a pipeline.
    Fusion,
    /// It replaces a collection.
    Out,
    /// It writes into a collection.
    Merge,
    /// It reads what becomes of collections.
    ChangeStream,
    /// It tells of the collection's size.
    CollStats,
    /// It tells of the collection's indexes.
    IndexStats,
    /// It tells of the collection's remembered plans.
    PlanCacheStats,
    /// It tells of what runs.
    CurrentOp,
    /// It tells of sessions.
    ListSessions,
    /// It tells of one or all collections.
    ListCatalog,
    /// It tells of the collections of the cluster.
    ListClusterCatalog,
    /// It tells of settings of queries.
    QuerySettings,
    /// It tells of queries that were run.
    QueryStats,
}

/// What the stage of a name touches.
pub fn access(name: &str) -> Option<Access> {
    PARSERS.iter().find(|(known, ..)| *known == name).map(|(_, access, _)| *access)
}

/// Every stage's name, with the code that refuses it where one does.
pub fn names() -> impl Iterator<Item = (&'static str, Option<i32>)> {
    PARSERS.iter().map(|(name, _, parser)| match parser {
        Parser::Refused(code, _) => (*name, Some(*code)),
        _ => (*name, None),
    })
}

impl PipelineStage {
    /// A stage that nobody looks into.
    pub(crate) fn other(spec: impl StageSpec + 'static) -> Self {
        Self::Other(Arc::new(spec))
    }

    /// What the stage says of itself.
    pub fn spec(&self) -> Arc<dyn StageSpec> {
        match self {
            Self::Match(filter) => filter.clone(),
            Self::Transform(transform) => transform.clone(),
            Self::Sort(sort) => sort.clone(),
            Self::Limit(documents) => Arc::new(limit::Limit(*documents)),
            Self::Skip(documents) => Arc::new(limit::Skip(*documents)),
            Self::Unwind(unwind) => unwind.clone(),
            Self::ReplaceRoot(root) => root.clone(),
            Self::Lookup(lookup) => lookup.clone(),
            Self::ChangeStream(stream) => stream.clone(),
            Self::Documents(documents) => documents.clone(),
            Self::Out(out) => out.clone(),
            Self::Merge(merge) => merge.clone(),
            Self::GeoNear(near) => near.clone(),
            Self::Other(spec) => spec.clone(),
        }
    }

    /// The name as the client writes it.
    pub fn name(&self) -> &'static str {
        self.spec().name()
    }

    /// The stage as a document, for explain. What the optimiser changed shows as changed.
    pub fn to_document(&self) -> RawDocumentBuf {
        let spec = self.spec();
        bsonval::raw::document_of(spec.name(), spec.argument().as_raw_bson_ref())
    }

    /// Whether the stage makes its documents itself and must stand first.
    pub fn is_source(&self) -> bool {
        self.spec().place() == Place::Source
    }

    pub(crate) fn foreign_namespaces(&self, found: &mut BTreeSet<CollectionName>) {
        for part in self.spec().parts() {
            match part {
                Part::Collection(from) => {
                    found.insert(from.clone());
                }
                Part::Pipeline(pipeline) | Part::OtherPipeline(pipeline) => {
                    found.extend(pipeline.foreign_namespaces());
                }
                _ => {}
            }
        }
    }

    /// Lays this stage over a source.
    pub fn execute(
        &self,
        input: Box<dyn DocumentSource>,
        env: &Arc<dyn Env>,
        variables: &Arc<Variables>,
    ) -> Result<Box<dyn DocumentSource>> {
        let run = StageInput { input, env: Arc::clone(env), variables: Arc::clone(variables) };
        self.spec().execute(run)
    }
}

/// What a stage runs over: the documents of the stage before, and what it may ask for.
pub struct StageInput {
    pub(crate) input: Box<dyn DocumentSource>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) variables: Arc<Variables>,
}

/// Refuses to follow data that nests deeper than a stored document may: only expressions can have
/// built it.
pub(crate) fn check_depth(depth: usize) -> Result<()> {
    if depth <= expr::agg::MAX_DEPTH {
        return Ok(());
    }
    Err(Error::new(
        errors::Code::OVERFLOW,
        format!("Exceeded depth limit of {} when converting to BSON", expr::agg::MAX_DEPTH),
    ))
}

/// Refuses a document past MongoDB's limit.
pub(crate) fn check_document_size(bytes: usize) -> Result<()> {
    if bytes <= crate::MAX_INTERNAL_DOCUMENT_BYTES {
        return Ok(());
    }
    Err(Error::new(
        errors::Code::BSON_OBJECT_TOO_LARGE,
        format!(
            "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and \
             {}(16MB)",
            crate::MAX_INTERNAL_DOCUMENT_BYTES
        ),
    ))
}

/// The object a stage's argument must be.
pub(crate) fn object(
    value: RawBsonRef<'_>,
    refuse: impl FnOnce(&str) -> Error,
) -> Result<&RawDocument> {
    match value {
        RawBsonRef::Document(document) => Ok(document),
        other => Err(refuse(bsonval::types::name_of(other))),
    }
}
