//! `$rankFusion`: the documents that several pipelines over the collection find, by where each of
//! them ranks them.
//!
//! From → to: every input pipeline runs once and its documents get ranks [`FusionSource::collect`];
//! a document's score is the sum of `weight / (60 + rank)` over the pipelines that found it; at the
//! end they come by their score, the highest first, and among equals by `_id`.
//!
//! Always true: documents whose sort keys are equal have one rank, and the next one's rank counts
//! them all. The score is carried as a text's score is, for `{$meta: "score"}`, and leaves the
//! documents with the pipeline's end.

use crate::env::{CollectionName, no_disk_use};
use crate::memory::StageMemory;
use crate::parse::{Inside, Pipeline, PipelineContext};
use crate::source::{DocumentSource, VecSource};
use crate::stage::window::{missing, unknown, wrong_type};
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec};
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::SortPattern;
use bsonval::number::Number;
use bsonval::raw::Writer;
use bsonval::text_score;
use errors::{Code, Error, Result};
use expr::agg::parse_fields;
use keystring::{Direction, KeyBuilder};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is added to a rank before the weight is divided by it.
const RANK_CONSTANT: f64 = 60.0;
/// Stages that choose and order documents and leave them as they are.
const SELECTING: [&str; 8] =
    ["$match", "$sort", "$limit", "$skip", "$sample", "$geoNear", "$search", "$vectorSearch"];
/// Stages whose documents come ranked.
const RANKED: [&str; 3] = ["$geoNear", "$search", "$vectorSearch"];

/// A parsed fusion.
#[derive(Clone, Debug)]
pub struct RankFusion {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    /// The collection.
    pub from: CollectionName,
    /// The input pipelines, in their order.
    pub inputs: Vec<Input>,
    /// Each document is to carry how its score came about.
    pub details: bool,
}

/// One input pipeline.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// What its ranks count.
    pub weight: f64,
    /// What it does.
    pub pipeline: Pipeline,
    /// By what its documents are ordered; none where they come by something no document tells.
    pub order: Option<SortPattern>,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let RawBsonRef::Document(spec) = value else {
        return Err(Error::failed_to_parse(format!(
            "$rankFusion must take a nested object but found: a value of type {}",
            bsonval::types::name_of(value)
        )));
    };
    let Some(collection) = &ctx.collection else {
        return Err(Error::new(
            Code::INVALID_NAMESPACE,
            "{aggregate: 1} is not valid for '$rankFusion'; a collection is required.",
        ));
    };
    let [input, combination, details] =
        parse_fields(spec, ["input", "combination", "scoreDetails"], |name| {
            unknown("$rankFusion", name)
        })?;
    let details = match given(details) {
        None => false,
        Some(RawBsonRef::Boolean(details)) => details,
        Some(other) => return Err(wrong_type("$rankFusion.scoreDetails", other, "bool")),
    };
    let input = object("$rankFusion", "input", input)?;
    let [pipelines] =
        parse_fields(input, ["pipelines"], |name| unknown("$rankFusion.input", name))?;
    let pipelines = object("$rankFusion.input", "pipelines", pipelines)?;
    let mut inputs = Vec::new();
    for element in pipelines {
        let (name, stages) = element?;
        inputs.push(parse_input(name.as_str(), stages, ctx)?);
    }
    if inputs.is_empty() {
        return Err(Error::bad_value("$rankFusion 'input.pipelines' must have at least one entry"));
    }
    if let Some(value) = given(combination) {
        let RawBsonRef::Document(combination) = value else {
            return Err(wrong_type("$rankFusion.combination", value, "object"));
        };
        let [weights] = parse_fields(combination, ["weights"], |name| {
            unknown("$rankFusion.combination", name)
        })?;
        weigh(&mut inputs, object("$rankFusion.combination", "weights", weights)?)?;
    }
    let from = CollectionName::new(&ctx.database, collection);
    Ok(PipelineStage::RankFusion(Arc::new(RankFusion {
        source: value.into(),
        from,
        inputs,
        details,
    })))
}

impl StageSpec for RankFusion {
    fn name(&self) -> &'static str {
        "$rankFusion"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        self.inputs.iter().map(|input| Part::OtherPipeline(&input.pipeline)).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(FusionSource::new(run, self)))
    }

    fn place(&self) -> Place {
        Place::Source
    }
}

/// Null is as if it was not given.
fn given(value: Option<RawBsonRef<'_>>) -> Option<RawBsonRef<'_>> {
    value.filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined))
}

fn object<'a>(place: &str, name: &str, value: Option<RawBsonRef<'a>>) -> Result<&'a RawDocument> {
    match given(value) {
        Some(RawBsonRef::Document(document)) => Ok(document),
        Some(other) => Err(wrong_type(&format!("{place}.{name}"), other, "object")),
        None => Err(missing(place, name)),
    }
}

fn parse_input(name: &str, stages: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<Input> {
    let RawBsonRef::Array(stages) = stages else {
        return Err(wrong_type(&format!("$rankFusion.input.pipelines.{name}"), stages, "array"));
    };
    let refused = |code, text: &str| Err(Error::location(code, format!("'{name}': {text}")));
    match name {
        "" => return refused(15998, "a pipeline's name must not be empty"),
        name if name.starts_with('$') => {
            return refused(16410, "a pipeline's name must not start with '$'");
        }
        name if name.contains('.') => return refused(16412, "a pipeline's name must have no '.'"),
        _ => {}
    }
    let names = stage_names(stages)?;
    let Some(first) = names.first() else {
        return refused(9_834_300, "$rankFusion input pipeline cannot be empty");
    };
    for (at, stage) in names.iter().enumerate() {
        let hybrid = matches!(*stage, "$rankFusion" | "$scoreFusion");
        if hybrid && at == 0 {
            return refused(10_473_002, "$rankFusion input pipeline has a nested hybrid search");
        }
        if hybrid {
            return refused(10_170_100, "a hybrid search must be a pipeline's first stage");
        }
        let known = crate::stage::names().any(|(known, _)| known == *stage);
        if !known {
            return Err(Error::location(
                40324,
                format!("Unrecognized pipeline stage name: '{stage}'"),
            ));
        }
        if !SELECTING.contains(stage) || changes_documents(stages, at)? {
            return refused(
                9_191_103,
                "$rankFusion input pipeline stages may only choose and order documents",
            );
        }
    }
    if !RANKED.contains(first) && !names.contains(&"$sort") {
        return refused(
            9_191_100,
            "$rankFusion input pipeline must begin with a ranked stage or have a $sort",
        );
    }
    let pipeline = Pipeline::parse(stages, &ctx.nested(Inside::Union, ctx.collection.clone())?)?;
    let order = pipeline.stages().iter().rev().find_map(|stage| match stage {
        PipelineStage::Sort(sort) if sort.pattern.uses_text_score() => Some(None),
        PipelineStage::Sort(sort) => Some(Some(sort.pattern.clone())),
        _ => None,
    });
    Ok(Input {
        name: name.to_owned(),
        weight: 1.0,
        pipeline: pipeline.optimize(),
        order: order.flatten(),
    })
}

fn stage_names(stages: &RawArray) -> Result<Vec<&str>> {
    let mut names = Vec::new();
    for stage in stages {
        let RawBsonRef::Document(stage) = stage? else {
            return Err(Error::type_mismatch(
                "Each element of the 'pipeline' array must be an object",
            ));
        };
        let mut elements = stage.iter_elements();
        let (Some(first), None) = (elements.next().transpose()?, elements.next()) else {
            return Err(Error::location(
                40323,
                "A pipeline stage specification object must contain exactly one field.",
            ));
        };
        names.push(first.key().as_str());
        if names.len() > crate::MAX_STAGES {
            return Err(Error::location(
                7_749_501,
                format!("Pipeline length must be no longer than {} stages", crate::MAX_STAGES),
            ));
        }
    }
    Ok(names)
}

/// Whether a `$geoNear` writes into the documents.
fn changes_documents(stages: &RawArray, at: usize) -> Result<bool> {
    let Some(stage) = stages.get(at)?.and_then(RawBsonRef::as_document) else { return Ok(false) };
    let Some(RawBsonRef::Document(near)) = stage.get("$geoNear")? else { return Ok(false) };
    Ok(near.get("distanceField")?.is_some() || near.get("includeLocs")?.is_some())
}

fn weigh(inputs: &mut [Input], weights: &RawDocument) -> Result<()> {
    let count = weights.iter().count();
    if count > inputs.len() {
        return Err(Error::location(
            9_460_301,
            format!("$rankFusion has {count} weights for {} pipelines", inputs.len()),
        ));
    }
    for element in weights {
        let (name, value) = element?;
        let name = name.as_str();
        let Some(input) = inputs.iter_mut().find(|input| input.name == name) else {
            return Err(Error::location(
                9_967_500,
                format!("$rankFusion has a weight for '{name}', which is no input pipeline"),
            ));
        };
        let Some(weight) = Number::from_bson(value) else {
            return Err(Error::location(13118, format!("the weight of '{name}' must be a number")));
        };
        // A decimal too small for a double keeps its sign, as -0.
        let weight = weight.to_f64();
        if weight.is_nan() || weight < 0.0 {
            return Err(Error::location(
                9_460_300,
                format!("the weight of '{name}' must not be negative, but is {weight}"),
            ));
        }
        input.weight = weight;
    }
    Ok(())
}

impl RankFusion {
    /// What a document takes beside itself and its id, at most.
    fn bytes_of_each(&self) -> usize {
        let parts = self.inputs.iter().map(|input| {
            let details = if self.details { 160 + input.name.len() } else { 0 };
            size_of::<Option<u64>>() + details
        });
        parts.fold(if self.details { 384 } else { 160 }, |sum, part| sum + part)
    }
}

/// A document that was found, and the ranks it has, by input pipeline.
struct Found {
    document: RawDocumentBuf,
    ranks: Vec<Option<u64>>,
}

pub(crate) struct FusionSource {
    run: StageInput,
    fusion: Arc<RankFusion>,
    fused: Option<VecSource>,
    held: StageMemory,
}

impl FusionSource {
    pub(crate) fn new(run: StageInput, fusion: Arc<RankFusion>) -> Self {
        let held = StageMemory::within(run.env.options().memory_limit_bytes);
        Self { run, fusion, fused: None, held }
    }

    /// Runs every input pipeline; what they found by `_id`.
    fn collect(&mut self) -> Result<BTreeMap<Vec<u8>, Found>> {
        let StageInput { env, variables, .. } = &self.run;
        let limit = env.options().memory_limit_bytes;
        let mut all: BTreeMap<Vec<u8>, Found> = BTreeMap::new();
        let mut bytes = 0;
        let each = self.fusion.bytes_of_each();
        for (at, input) in self.fusion.inputs.iter().enumerate() {
            let mut source = env.aggregate(&self.fusion.from, &input.pipeline, variables)?;
            let (mut count, mut rank, mut last) = (0, 0, None);
            while let Some(document) = source.next()? {
                env.check_interrupt()?;
                count += 1;
                let key = match &input.order {
                    Some(order) => Some(order.key(&document, variables.collation())?),
                    None => None,
                };
                if key.is_none() || key != last {
                    (rank, last) = (count, key);
                }
                let found = all.entry(id_key(&document)?).or_insert_with_key(|id| {
                    bytes += id.len() + document.as_bytes().len() + each;
                    Found { document, ranks: vec![None; self.fusion.inputs.len()] }
                });
                found.ranks[at].get_or_insert(rank);
                self.held.must_fit(bytes)?;
                if bytes > limit {
                    return Err(no_disk_use("$rankFusion", limit));
                }
            }
        }
        Ok(all)
    }

    fn fuse(&mut self) -> Result<VecSource> {
        let mut scored: Vec<(f64, Found)> = Vec::new();
        for (_, found) in self.collect()? {
            let parts = found.ranks.iter().zip(&self.fusion.inputs);
            let score = parts
                .filter_map(|(rank, input)| Some(input.weight / (RANK_CONSTANT + (*rank)? as f64)))
                .fold(0.0, |sum, part| sum + part);
            scored.push((score, found));
        }
        // Those of one score stay in the order of their ids.
        let scored = limits::sort_by(scored, |(a, _), (b, _)| b.total_cmp(a))?;
        let with_score = |(score, found): (f64, Found)| {
            let details = self.fusion.details.then(|| self.details(score, &found));
            text_score::with_details(&found.document, score, details.as_deref())
        };
        Ok(VecSource::new(scored.into_iter().map(with_score).collect()))
    }

    fn details(&self, score: f64, found: &Found) -> RawDocumentBuf {
        let mut out = Writer::default();
        let open = out.begin();
        out.value("value", RawBsonRef::Double(score));
        out.value(
            "description",
            RawBsonRef::String(
                "the sum of weight / (60 + rank) over the input pipelines that found the document",
            ),
        );
        let mut list = bson::raw::RawArrayBuf::new();
        for (rank, input) in found.ranks.iter().zip(&self.fusion.inputs) {
            let mut one = RawDocumentBuf::new();
            one.append(bson::raw::cstr!("inputPipelineName"), input.name.as_str());
            match rank.map(i32::try_from) {
                None => one.append(bson::raw::cstr!("rank"), "NA"),
                Some(rank) => {
                    one.append(bson::raw::cstr!("rank"), rank.unwrap_or(i32::MAX));
                    one.append(bson::raw::cstr!("weight"), input.weight);
                    one.append(bson::raw::cstr!("details"), bson::raw::RawArrayBuf::new());
                }
            }
            list.push(one);
        }
        out.value("details", RawBsonRef::Array(&list));
        out.end(open);
        out.finish().expect("a document just written is well formed")
    }
}

/// What a document is told by: the bytes of its `_id`, in the order of ids.
fn id_key(document: &RawDocument) -> Result<Vec<u8>> {
    let id = document.get("_id")?.unwrap_or(RawBsonRef::Null);
    let mut key = KeyBuilder::new();
    key.append(id, Direction::Ascending).map_err(|error| Error::bad_value(error.to_string()))?;
    Ok(key.into_bytes())
}

impl DocumentSource for FusionSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.fused.is_none() {
            self.fused = Some(self.fuse()?);
        }
        self.fused.as_mut().map_or(Ok(None), VecSource::next)
    }
}

/// Documents without the score that they carry.
pub(crate) struct StripSource(pub(crate) Box<dyn DocumentSource>);

impl DocumentSource for StripSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        Ok(self.0.next()?.map(text_score::strip))
    }

    fn park(&mut self) {
        self.0.park();
    }
}
