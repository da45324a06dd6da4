//! The stages: one file each under `stage/`.
//!
//! Every stage file has a parsed form (kept behind an `Arc`, shared between runs) and, where it
//! is not trivial, a source that does the work.

pub mod bucket_auto;
pub mod densify;
pub mod documents;
pub mod facet;
mod fill;
pub mod geo_near;
pub mod graph_lookup;
pub mod group;
pub mod limit;
pub mod lookup;
pub mod matching;
pub mod merge;
pub mod metadata;
pub mod out;
pub mod rank_fusion;
pub mod redact;
pub mod replace_root;
pub mod sample;
pub mod shorthand;
pub mod sort;
pub mod transform;
pub mod union_with;
pub mod unwind;
pub mod window;

use crate::env::{Env, Namespace};
use crate::parse::PipelineContext;
use crate::{DocumentSource, optimize};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use errors::{Error, Result};
use expr::agg::{Expression, Variables};
use matcher::Filter;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One parsed stage.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PipelineStage {
    /// `$match`
    Match(Arc<Filter>),
    /// `$project $addFields $set $unset`
    Transform(Arc<transform::TransformStage>),
    /// `$group`
    Group(Arc<group::Group>),
    /// `$sort`, with the limit that followed it
    Sort(Arc<sort::Sort>),
    /// `$limit`
    Limit(u64),
    /// `$skip`
    Skip(u64),
    /// `$unwind`
    Unwind(Arc<unwind::Unwind>),
    /// `$replaceRoot $replaceWith`
    ReplaceRoot(Arc<Computed>),
    /// `$lookup`
    Lookup(Arc<lookup::Lookup>),
    /// `$graphLookup`
    GraphLookup(Arc<graph_lookup::GraphLookup>),
    /// `$facet`
    Facet(Arc<facet::Facet>),
    /// `$sample`
    Sample(u64),
    /// `$bucketAuto`
    BucketAuto(Arc<bucket_auto::BucketAuto>),
    /// `$setWindowFields`, and what `$fill` makes
    Window(Arc<window::SetWindowFields>),
    /// `$densify`
    Densify(Arc<densify::Densify>),
    /// `$redact`
    Redact(Arc<Computed>),
    /// `$unionWith`
    UnionWith(Arc<union_with::UnionWith>),
    /// `$documents`
    Documents(Arc<Computed>),
    /// `$out`
    Out(Arc<out::Out>),
    /// `$merge`
    Merge(Arc<merge::Merge>),
    /// `$geoNear`, which the planner answers
    GeoNear(Arc<geo_near::GeoNear>),
    /// `$rankFusion`
    RankFusion(Arc<rank_fusion::RankFusion>),
    /// `$collStats $indexStats $currentOp` and their kin
    Metadata(Arc<metadata::Metadata>),
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
    pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<Arc<Self>> {
        let expression = Expression::parse(value, &ctx.parse.names)?.optimize();
        Ok(Arc::new(Self { expression, source: value.into() }))
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
    match PARSERS.iter().find(|(known, _)| *known == name) {
        Some((_, Parser::One(parse))) => stages.push(parse(value, ctx)?),
        Some((_, Parser::Several(parse))) => parse(value, ctx, stages)?,
        Some((known, Parser::Metadata)) => stages.push(metadata::parse(known, value, ctx)?),
        Some((known, Parser::Refused(code, reason))) => {
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
const PARSERS: &[(&str, Parser)] = &[
    ("$addFields", Parser::One(|value, ctx| transform::parse("$addFields", value, ctx))),
    ("$bucket", Parser::Several(shorthand::bucket)),
    ("$bucketAuto", Parser::One(bucket_auto::parse)),
    ("$changeStream", Parser::Refused(40573, "The {} stage is only supported on replica sets")),
    ("$collStats", Parser::Metadata),
    ("$count", Parser::Several(|value, _, stages| shorthand::count(value, stages))),
    ("$currentOp", Parser::Metadata),
    ("$densify", Parser::One(|value, _| densify::parse(value))),
    ("$documents", Parser::One(documents::parse)),
    ("$facet", Parser::One(facet::parse)),
    ("$fill", Parser::Several(fill::parse)),
    ("$geoNear", Parser::One(geo_near::parse)),
    ("$graphLookup", Parser::One(graph_lookup::parse)),
    ("$group", Parser::One(group::parse)),
    ("$indexStats", Parser::Metadata),
    ("$limit", Parser::One(|value, _| limit::parse_limit(value))),
    ("$listCatalog", Parser::Metadata),
    ("$listClusterCatalog", Parser::Metadata),
    ("$listLocalSessions", Parser::Metadata),
    ("$listSearchIndexes", ATLAS_ONLY),
    ("$listSessions", Parser::Metadata),
    ("$lookup", Parser::One(lookup::parse)),
    ("$match", Parser::One(matching::parse)),
    ("$merge", Parser::One(merge::parse)),
    ("$out", Parser::One(out::parse)),
    ("$planCacheStats", Parser::Metadata),
    ("$project", Parser::One(|value, ctx| transform::parse("$project", value, ctx))),
    ("$querySettings", Parser::Metadata),
    ("$queryStats", Parser::Metadata),
    ("$rankFusion", Parser::One(rank_fusion::parse)),
    ("$redact", Parser::One(|value, ctx| Ok(PipelineStage::Redact(Computed::parse(value, ctx)?)))),
    ("$replaceRoot", Parser::One(|value, ctx| replace_root::parse("$replaceRoot", value, ctx))),
    ("$replaceWith", Parser::One(|value, ctx| replace_root::parse("$replaceWith", value, ctx))),
    ("$sample", Parser::One(|value, _| sample::parse(value))),
    ("$search", ATLAS_ONLY),
    ("$searchMeta", ATLAS_ONLY),
    ("$set", Parser::One(|value, ctx| transform::parse("$set", value, ctx))),
    ("$setWindowFields", Parser::One(window::parse)),
    ("$skip", Parser::One(|value, _| limit::parse_skip(value))),
    ("$sort", Parser::One(|value, _| sort::parse(value))),
    ("$sortByCount", Parser::Several(shorthand::sort_by_count)),
    ("$unionWith", Parser::One(union_with::parse)),
    ("$unset", Parser::One(|value, ctx| transform::parse("$unset", value, ctx))),
    ("$unwind", Parser::One(|value, _| unwind::parse(value))),
    ("$vectorSearch", ATLAS_ONLY),
];

/// Every stage's name, with the code that refuses it where one does.
pub fn names() -> impl Iterator<Item = (&'static str, Option<i32>)> {
    PARSERS.iter().map(|(name, parser)| match parser {
        Parser::Refused(code, _) => (*name, Some(*code)),
        _ => (*name, None),
    })
}

impl PipelineStage {
    /// The name as the client writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Match(_) => "$match",
            Self::Transform(stage) => stage.name,
            Self::Group(_) => "$group",
            Self::Sort(_) => "$sort",
            Self::Limit(_) => "$limit",
            Self::Skip(_) => "$skip",
            Self::Unwind(_) => "$unwind",
            Self::ReplaceRoot(_) => "$replaceRoot",
            Self::Lookup(_) => "$lookup",
            Self::GraphLookup(_) => "$graphLookup",
            Self::Facet(_) => "$facet",
            Self::Sample(_) => "$sample",
            Self::BucketAuto(_) => "$bucketAuto",
            Self::Window(_) => "$setWindowFields",
            Self::Densify(_) => "$densify",
            Self::Redact(_) => "$redact",
            Self::UnionWith(_) => "$unionWith",
            Self::Documents(_) => "$documents",
            Self::Out(_) => "$out",
            Self::Merge(_) => "$merge",
            Self::GeoNear(_) => "$geoNear",
            Self::RankFusion(_) => "$rankFusion",
            Self::Metadata(metadata) => metadata.name(),
        }
    }

    /// The stage as a document, for explain. What the optimiser changed shows as changed.
    pub fn to_document(&self) -> RawDocumentBuf {
        let value = self.argument();
        bsonval::raw::document_of(self.name(), value.as_raw_bson_ref())
    }

    fn argument(&self) -> RawBson {
        match self {
            Self::Match(filter) => RawDocumentBuf::try_from(filter.to_document())
                .map_or(RawBson::Null, RawBson::Document),
            Self::Transform(stage) => stage.spec.clone(),
            Self::Group(group) => group.spec.clone(),
            Self::Sort(sort) => RawBson::Document(sort.to_document()),
            Self::Limit(n) | Self::Skip(n) => RawBson::Int64(i64::try_from(*n).unwrap_or(i64::MAX)),
            Self::Unwind(unwind) => RawBson::Document(unwind.to_document()),
            Self::ReplaceRoot(computed) => {
                let root = computed.source.as_raw_bson_ref();
                RawBson::Document(bsonval::raw::document_of("newRoot", root))
            }
            Self::Redact(computed) | Self::Documents(computed) => computed.source.clone(),
            Self::Lookup(lookup) => lookup.to_bson(),
            Self::GraphLookup(lookup) => lookup.source.clone(),
            Self::Facet(facet) => facet.source.clone(),
            Self::Sample(size) => {
                let size = RawBsonRef::Int64(i64::try_from(*size).unwrap_or(i64::MAX));
                RawBson::Document(bsonval::raw::document_of("size", size))
            }
            Self::BucketAuto(bucket) => bucket.source.clone(),
            Self::Window(window) => window.source.clone(),
            Self::Densify(densify) => densify.source.clone(),
            Self::UnionWith(union) => union.source.clone(),
            Self::Out(out) => RawBson::Document(out.to_document()),
            Self::Merge(merge) => merge.source.clone(),
            Self::GeoNear(near) => near.source.clone(),
            Self::RankFusion(fusion) => fusion.source.clone(),
            Self::Metadata(metadata) => RawBson::Document(metadata.spec().clone()),
        }
    }

    /// Whether the stage makes its documents itself and must stand first.
    pub fn is_source(&self) -> bool {
        matches!(self, Self::Documents(_) | Self::Metadata(_) | Self::RankFusion(_))
    }

    pub(crate) fn foreign_namespaces(&self, found: &mut BTreeSet<Namespace>) {
        match self {
            Self::Lookup(lookup) => {
                found.extend(lookup.from.clone());
                found.extend(lookup.pipeline.foreign_namespaces());
            }
            Self::GraphLookup(lookup) => {
                found.insert(lookup.from.clone());
            }
            Self::UnionWith(union) => {
                found.extend(union.from.clone());
                found.extend(union.pipeline.foreign_namespaces());
            }
            Self::Facet(facet) => {
                for (_, pipeline) in &facet.pipelines {
                    found.extend(pipeline.foreign_namespaces());
                }
            }
            _ => {}
        }
    }

    /// Lays this stage over a source.
    pub fn execute(
        &self,
        input: Box<dyn DocumentSource>,
        env: &Arc<dyn Env>,
        variables: &Arc<Variables>,
    ) -> Result<Box<dyn DocumentSource>> {
        let run = Run { input, env: Arc::clone(env), variables: Arc::clone(variables) };
        Ok(match self {
            Self::Match(filter) => Box::new(matching::MatchSource::new(run, Arc::clone(filter))),
            Self::Transform(stage) => {
                Box::new(transform::TransformSource::new(run, Arc::clone(stage)))
            }
            Self::Group(group) => Box::new(group::GroupSource::new(run, Arc::clone(group))),
            Self::Sort(sort) => Box::new(sort::SortSource::new(run, Arc::clone(sort))),
            Self::Limit(limit) => Box::new(limit::LimitSource::new(run, *limit)),
            Self::Skip(skip) => Box::new(limit::SkipSource::new(run, *skip)),
            Self::Unwind(unwind) => Box::new(unwind::UnwindSource::new(run, Arc::clone(unwind))),
            Self::ReplaceRoot(root) => {
                Box::new(replace_root::ReplaceRootSource::new(run, Arc::clone(root)))
            }
            Self::Lookup(lookup) => Box::new(lookup::LookupSource::new(run, Arc::clone(lookup))),
            Self::GraphLookup(lookup) => {
                Box::new(graph_lookup::GraphLookupSource::new(run, Arc::clone(lookup)))
            }
            Self::Facet(facet) => Box::new(facet::FacetSource::new(run, Arc::clone(facet))),
            Self::Sample(size) => Box::new(sample::SampleSource::new(run, *size)),
            Self::BucketAuto(bucket) => {
                Box::new(bucket_auto::BucketAutoSource::new(run, Arc::clone(bucket)))
            }
            Self::Window(stage) => Box::new(window::WindowSource::new(run, Arc::clone(stage))?),
            Self::Densify(stage) => Box::new(densify::DensifySource::new(run, Arc::clone(stage))),
            Self::Redact(rule) => Box::new(redact::RedactSource::new(run, Arc::clone(rule))),
            Self::UnionWith(union) => {
                Box::new(union_with::UnionSource::new(run, Arc::clone(union)))
            }
            Self::Documents(list) => documents::source(list, variables)?,
            Self::Out(out) => {
                Box::new(out::WriteSource::new(run, out::Target::Out(Arc::clone(out))))
            }
            Self::Merge(merge) => {
                Box::new(out::WriteSource::new(run, out::Target::Merge(Arc::clone(merge))))
            }
            Self::GeoNear(_) => {
                return Err(Error::new(
                    errors::Code::INTERNAL_ERROR,
                    "$geoNear was not answered by an index",
                ));
            }
            Self::RankFusion(fusion) => {
                Box::new(rank_fusion::FusionSource::new(run, Arc::clone(fusion)))
            }
            Self::Metadata(metadata) => env.metadata(metadata)?,
        })
    }

    /// The fields this stage reads of its input and whether it passes others on.
    pub(crate) fn reads(&self) -> optimize::Reads {
        optimize::reads(self)
    }
}

/// What every stage's source begins with.
pub struct Run {
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
