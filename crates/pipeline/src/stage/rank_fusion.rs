//! `$rankFusion`: the documents that several pipelines over the collection find, by where each of
//! them ranks them.
//!
//! A document's score is the sum of `weight / (60 + rank)` over the pipelines that found it; the rest
//! is what all have in common that fuse: [`fusion`].
//!
//! Always true: documents whose sort keys are equal have one rank, and the next one's rank counts
//! them all.

use crate::env::CollectionName;
use crate::memory::StageMemory;
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::fusion::{self, Argument, Found, FusionSource, Input, Rules};
use crate::stage::window::missing;
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::SortPattern;
use bsonval::raw::Writer;
use errors::Result;
use expr::agg::Scored;
use keystring::Collation;
use std::sync::Arc;

/// What is added to a rank before the weight is divided by it.
const RANK_CONSTANT: f64 = 60.0;
/// Stages whose documents come ranked.
const RANKED: [&str; 3] = ["$geoNear", "$search", "$vectorSearch"];

const RULES: Rules = Rules {
    stage: "$rankFusion",
    empty: 9_834_300,
    nested: 10_473_002,
    unfit: (9_191_100, "begin with a ranked stage or have a $sort"),
    changing: 9_191_103,
    fits: |names, _| {
        names.first().is_some_and(|first| RANKED.contains(first)) || names.contains(&"$sort")
    },
};

/// A parsed fusion.
#[derive(Clone, Debug)]
struct RankFusion {
    /// The argument as the client wrote it, for explain.
    source: RawBson,
    from: CollectionName,
    /// The input pipelines, in their order.
    inputs: Vec<Input>,
    /// Each document is to carry how its score came about.
    details: bool,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let stage = RULES.stage;
    let argument = Argument::parse(stage, value, ctx)?;
    let place = "$rankFusion.input";
    let [pipelines] = fusion::read(place, argument.input, ["pipelines"])?;
    let pipelines = fusion::object(place, "pipelines", pipelines)?;
    let mut inputs = fusion::parse_inputs(&RULES, pipelines, ctx)?;
    if let Some(combination) = argument.combination {
        let place = "$rankFusion.combination";
        let [weights] = fusion::read(place, combination, ["weights"])?;
        if fusion::given(weights).is_none() {
            return Err(missing(place, "weights"));
        }
        fusion::weigh(stage, &mut inputs, fusion::object(place, "weights", weights)?)?;
    }
    Ok(PipelineStage::other(RankFusion {
        source: value.into(),
        from: argument.from,
        inputs,
        details: argument.details,
    }))
}

impl StageSpec for RankFusion {
    fn name(&self) -> &'static str {
        RULES.stage
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        fusion::parts(&self.inputs)
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(FusionSource::new(run, move |run, held| self.fuse(run, held))))
    }

    fn place(&self) -> Place {
        Place::Source
    }

    fn gives_score(&self) -> Option<Scored> {
        Some(if self.details { Scored::Details } else { Scored::Score })
    }
}

/// By what an input's documents are ordered; none where they come by something no document tells.
fn order_of(input: &Input) -> Option<&SortPattern> {
    input.pipeline.stages().iter().rev().find_map(|stage| match stage {
        PipelineStage::Sort(sort) => Some(&sort.pattern),
        _ => None,
    })
}

/// Counts an input's documents.
fn ranks<'i>(
    input: &'i Input,
    under: Option<&'i Collation>,
) -> impl FnMut(&RawDocument) -> Result<(u64, usize)> + 'i {
    let order = order_of(input);
    let (mut count, mut rank, mut last) = (0, 0, None);
    move |document| {
        count += 1;
        let key = order.map(|order| order.key(document, under)).transpose()?;
        if key.is_none() || key != last {
            (rank, last) = (count, key);
        }
        Ok((rank, 0))
    }
}

impl RankFusion {
    /// What a document takes beside itself and its id, at most.
    fn bytes_of_each(&self) -> usize {
        let parts = self.inputs.iter().map(|input| 160 + input.name.len());
        if self.details { parts.fold(384, |sum, part| sum + part) } else { 160 }
    }

    fn fuse(&self, run: &StageInput, held: &mut StageMemory) -> Result<Vec<RawDocumentBuf>> {
        let under = run.variables.collation();
        let reader = |input| ranks(input, under);
        let each = self.bytes_of_each();
        let all = fusion::collect(RULES.stage, run, held, &self.from, &self.inputs, each, reader)?;
        let mut scored = Vec::new();
        for (_, found) in all {
            limits::poll_work(self.inputs.len())?;
            let parts = found.told.iter().zip(&self.inputs);
            let score = parts
                .filter_map(|(rank, input)| Some(input.weight / (RANK_CONSTANT + (*rank)? as f64)))
                .fold(0.0, |sum, part| sum + part);
            let details = if self.details { Some(self.details(score, &found)?) } else { None };
            scored.push((score, found.document, details));
        }
        fusion::best_first(scored)
    }

    fn details(&self, score: f64, found: &Found<u64>) -> Result<RawDocumentBuf> {
        let mut out = Writer::default();
        let open = out.begin();
        out.value("value", RawBsonRef::Double(score));
        out.value(
            "description",
            RawBsonRef::String(
                "the sum of weight / (60 + rank) over the input pipelines that found the document",
            ),
        );
        let mut list = RawArrayBuf::new();
        for (rank, input) in found.told.iter().zip(&self.inputs) {
            let mut one = RawDocumentBuf::new();
            one.append(cstr!("inputPipelineName"), input.name.as_str());
            match rank.map(i32::try_from) {
                None => one.append(cstr!("rank"), "NA"),
                Some(rank) => {
                    one.append(cstr!("rank"), rank.unwrap_or(i32::MAX));
                    one.append(cstr!("weight"), input.weight);
                    one.append(cstr!("details"), RawArrayBuf::new());
                }
            }
            list.push(one);
        }
        out.value("details", RawBsonRef::Array(&list));
        out.end(open);
        out.finish()
    }
}
