//! What the stages have in common that put several pipelines over the collection together: how their
//! argument is read, how the pipelines run, and how the documents come out.
//!
//! From → to: every input pipeline runs once [`collect`]; what each has to tell of a document stands
//! with the document, which is known by its `_id`; the stage makes one score of it, and at the end the
//! documents come by their score, the highest first, and among equals by `_id` [`best_first`].
//!
//! Always true: input pipelines choose, score and order documents and leave them as they are.

use crate::Pipeline;
use crate::env::{CollectionName, no_disk_use};
use crate::memory::StageMemory;
use crate::parse::{Inside, PipelineContext};
use crate::source::{DocumentSource, VecSource};
use crate::stage::window::{missing, wrong_type};
use crate::stage::{Part, PipelineStage, StageInput, kept};
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::number::Number;
use bsonval::text_score;
use errors::{Code, Error, Result};
use keystring::{Direction, KeyBuilder};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Stages that choose, score and order documents and leave them as they are.
const SELECTING: [&str; 9] = [
    "$match",
    "$sort",
    "$limit",
    "$skip",
    "$sample",
    "$score",
    "$geoNear",
    "$search",
    "$vectorSearch",
];
/// Stages that put searches together themselves.
const FUSING: [&str; 2] = ["$rankFusion", "$scoreFusion"];

/// What differs between the stages: their names and the codes of their errors.
pub(super) struct Rules {
    /// The stage's name.
    pub(super) stage: &'static str,
    /// Of a pipeline without stages.
    pub(super) empty: i32,
    /// Of one that puts searches together itself.
    pub(super) nested: i32,
    /// Of one that does not do what the stage needs, and how to do that.
    pub(super) unfit: (i32, &'static str),
    /// Of one that changes documents.
    pub(super) changing: i32,
    /// Whether stages of these names, of which the first is given too, do what the stage needs.
    pub(super) fits: fn(&[&str], Option<&PipelineStage>) -> bool,
}

/// One input pipeline.
#[derive(Clone, Debug)]
pub(super) struct Input {
    /// Its name.
    pub(super) name: String,
    /// What its part of a score is multiplied by.
    pub(super) weight: f64,
    /// What it does; its documents are [`kept`] with their scores.
    pub(super) pipeline: Pipeline,
}

/// A fusion's argument, as far as all have the same.
pub(super) struct Argument<'a> {
    pub(super) from: CollectionName,
    pub(super) input: &'a RawDocument,
    pub(super) combination: Option<&'a RawDocument>,
    /// Each document is to carry how its score came about.
    pub(super) details: bool,
}

impl<'a> Argument<'a> {
    pub(super) fn parse(stage: &str, value: RawBsonRef<'a>, ctx: &PipelineContext) -> Result<Self> {
        let RawBsonRef::Document(spec) = value else {
            return Err(Error::failed_to_parse(format!(
                "{stage} must take a nested object but found: a value of type {}",
                bsonval::types::name_of(value)
            )));
        };
        let Some(collection) = &ctx.collection else {
            return Err(Error::new(
                Code::INVALID_NAMESPACE,
                format!("{{aggregate: 1}} is not valid for '{stage}'; a collection is required."),
            ));
        };
        let fields = ["input", "combination", "scoreDetails"];
        let [input, combination, details] = read(stage, spec, fields)?;
        Ok(Self {
            from: CollectionName::new(&ctx.database, collection),
            input: object(stage, "input", input)?,
            combination: match given(combination) {
                None => None,
                Some(_) => Some(object(stage, "combination", combination)?),
            },
            details: flag(details, &format!("{stage}.scoreDetails"))?,
        })
    }
}

/// The values of these fields, and of no others.
pub(super) fn read<'a, const N: usize>(
    place: &str,
    document: &'a RawDocument,
    names: [&str; N],
) -> Result<[Option<RawBsonRef<'a>>; N]> {
    expr::agg::parse_fields(document, names, |name| crate::stage::window::unknown(place, name))
}

/// Null is as if it was not given.
pub(super) fn given(value: Option<RawBsonRef<'_>>) -> Option<RawBsonRef<'_>> {
    value.filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined))
}

/// True or false; false where it is not given.
pub(super) fn flag(value: Option<RawBsonRef<'_>>, place: &str) -> Result<bool> {
    match given(value) {
        None => Ok(false),
        Some(RawBsonRef::Boolean(flag)) => Ok(flag),
        Some(other) => Err(wrong_type(place, other, "bool")),
    }
}

/// The object that a field must be.
pub(super) fn object<'a>(
    place: &str,
    name: &str,
    value: Option<RawBsonRef<'a>>,
) -> Result<&'a RawDocument> {
    match given(value) {
        Some(RawBsonRef::Document(document)) => Ok(document),
        Some(other) => Err(wrong_type(&format!("{place}.{name}"), other, "object")),
        None => Err(missing(place, name)),
    }
}

/// Reads the input pipelines.
pub(super) fn parse_inputs(
    rules: &Rules,
    pipelines: &RawDocument,
    ctx: &PipelineContext,
) -> Result<Vec<Input>> {
    let (mut inputs, mut names) = (Vec::new(), BTreeSet::new());
    for element in pipelines {
        let (name, stages) = element?;
        if !names.insert(name.as_str()) {
            return Err(Error::location(
                9_402_203,
                format!("{} has two pipelines of the name '{name}'", rules.stage),
            ));
        }
        inputs.push(parse_input(rules, name.as_str(), stages, ctx)?);
    }
    if inputs.is_empty() {
        return Err(Error::bad_value(format!(
            "{} 'input.pipelines' must have at least one entry",
            rules.stage
        )));
    }
    Ok(inputs)
}

fn parse_input(
    rules: &Rules,
    name: &str,
    stages: RawBsonRef<'_>,
    ctx: &PipelineContext,
) -> Result<Input> {
    let stage = rules.stage;
    let RawBsonRef::Array(stages) = stages else {
        return Err(wrong_type(&format!("{stage}.input.pipelines.{name}"), stages, "array"));
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
        return refused(rules.empty, &format!("{stage} input pipeline cannot be empty"));
    };
    for (at, name) in names.iter().enumerate() {
        if FUSING.contains(name) {
            let code = if at == 0 { rules.nested } else { 10_170_100 };
            return refused(code, &format!("{stage} input pipeline has a nested hybrid search"));
        }
        if !crate::stage::names().any(|(known, _)| known == *name) {
            return Err(Error::location(
                40324,
                format!("Unrecognized pipeline stage name: '{name}'"),
            ));
        }
    }
    let inner = ctx.nested(Inside::Union, ctx.collection.clone())?;
    let mut filter = Vec::new();
    if let ("$match", Some(RawBsonRef::Document(spec))) = (*first, stages.get(0)?) {
        crate::stage::parse(spec, &inner, &mut filter)?;
    }
    if !(rules.fits)(&names, filter.first()) {
        return refused(rules.unfit.0, &format!("{stage} input pipeline must {}", rules.unfit.1));
    }
    for (at, name) in names.iter().enumerate() {
        if !SELECTING.contains(name) || changes_documents(stages, at)? {
            let text = "input pipeline stages may only choose, score and order documents";
            return refused(rules.changing, &format!("{stage} {text}"));
        }
    }
    let pipeline = kept::keeping(Pipeline::parse(stages, &inner)?.optimize());
    Ok(Input { name: name.to_owned(), weight: 1.0, pipeline })
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

/// Gives the inputs the weights that the client names.
pub(super) fn weigh(stage: &str, inputs: &mut [Input], weights: &RawDocument) -> Result<()> {
    let count = weights.iter().count();
    if count > inputs.len() {
        return Err(Error::location(
            9_460_301,
            format!("{stage} has {count} weights for {} pipelines", inputs.len()),
        ));
    }
    for element in weights {
        let (name, value) = element?;
        let name = name.as_str();
        limits::poll_work(1 + inputs.len() / 64)?;
        let Some(input) = inputs.iter_mut().find(|input| input.name == name) else {
            return Err(Error::location(
                9_967_500,
                format!("{stage} has a weight for '{name}', which is no input pipeline"),
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

/// The pipelines as parts of the stage.
pub(super) fn parts(inputs: &[Input]) -> Vec<Part<'_>> {
    inputs.iter().map(|input| Part::OtherPipeline(&input.pipeline)).collect()
}

/// A document that was found, and what each input pipeline that found it tells of it.
pub(super) struct Found<T> {
    pub(super) document: RawDocumentBuf,
    pub(super) told: Vec<Option<T>>,
}

/// Runs every input pipeline; what they found by `_id`. `reader` begins one, and what it gives tells
/// something of each document, which comes with what it carries, and how many bytes it takes.
/// `each` is what a document takes beside itself.
pub(super) fn collect<'i, T, R>(
    stage: &str,
    run: &StageInput,
    held: &mut StageMemory,
    from: &CollectionName,
    inputs: &'i [Input],
    each: usize,
    mut reader: impl FnMut(&'i Input) -> R,
) -> Result<BTreeMap<Vec<u8>, Found<T>>>
where
    R: FnMut(&RawDocument) -> Result<(T, usize)>,
{
    let limit = run.env.options().memory_limit_bytes;
    let mut all: BTreeMap<Vec<u8>, Found<T>> = BTreeMap::new();
    let mut bytes = 0;
    let each = each + inputs.len() * size_of::<Option<T>>() + 64;
    for (at, input) in inputs.iter().enumerate() {
        let mut source = run.env.aggregate(from, &input.pipeline, &run.variables)?;
        let mut tell = reader(input);
        while let Some(document) = source.next()? {
            run.env.check_interrupt()?;
            let carrying = kept::taken(&document)?;
            let (told, more) = tell(carrying)?;
            let found = all.entry(id_key(carrying)?).or_insert_with_key(|id| {
                let document = text_score::strip(carrying.to_owned());
                bytes += id.len() + document.as_bytes().len() + each;
                Found {
                    document,
                    told: std::iter::repeat_with(|| None).take(inputs.len()).collect(),
                }
            });
            if let Some(place) = found.told.get_mut(at).filter(|place| place.is_none()) {
                *place = Some(told);
                bytes += more;
            }
            held.must_fit(bytes)?;
            if bytes > limit {
                return Err(no_disk_use(stage, limit));
            }
        }
    }
    Ok(all)
}

/// What a document is told by: the bytes of its `_id`, in the order of ids.
fn id_key(document: &RawDocument) -> Result<Vec<u8>> {
    let id = document.get("_id")?.unwrap_or(RawBsonRef::Null);
    let mut key = KeyBuilder::new();
    key.append(id, Direction::Ascending).map_err(|error| Error::bad_value(error.to_string()))?;
    Ok(key.into_bytes())
}

/// The documents with their scores and what tells of them, the best first; those of one score stay in
/// the order that they came in.
pub(super) fn best_first(
    scored: Vec<(f64, RawDocumentBuf, Option<RawDocumentBuf>)>,
) -> Result<Vec<RawDocumentBuf>> {
    let scored = limits::sort_by(scored, |(a, ..), (b, ..)| better(*a, *b))?;
    let carrying = scored.into_iter().map(|(score, document, details)| {
        text_score::with_score(&document, score, details.as_deref())
    });
    Ok(carrying.collect())
}

/// The higher one first, NaN last.
fn better(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// A fusion as a source: it runs when the first document is asked for.
pub(super) struct FusionSource<F> {
    run: StageInput,
    fuse: F,
    fused: Option<VecSource>,
    held: StageMemory,
}

impl<F> FusionSource<F>
where
    F: Fn(&StageInput, &mut StageMemory) -> Result<Vec<RawDocumentBuf>> + Send,
{
    pub(super) fn new(run: StageInput, fuse: F) -> Self {
        let held = StageMemory::within(run.env.options().memory_limit_bytes);
        Self { run, fuse, fused: None, held }
    }
}

impl<F> DocumentSource for FusionSource<F>
where
    F: Fn(&StageInput, &mut StageMemory) -> Result<Vec<RawDocumentBuf>> + Send,
{
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.fused.is_none() {
            self.fused = Some(VecSource::new((self.fuse)(&self.run, &mut self.held)?));
        }
        self.fused.as_mut().map_or(Ok(None), VecSource::next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_what_is_no_number_last() {
        let mut scores = vec![f64::NAN, 1.0, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY];
        scores.sort_by(|a, b| better(*a, *b));
        assert!(scores.pop().is_some_and(f64::is_nan));
        assert_eq!(scores, [f64::INFINITY, 1.0, -0.0, 0.0, f64::NEG_INFINITY]);
        for (a, b) in [(f64::NAN, f64::NAN), (-0.0, 0.0), (2.0, 2.0)] {
            assert_eq!((better(a, b), better(b, a)), (Ordering::Equal, Ordering::Equal));
        }
    }
}
