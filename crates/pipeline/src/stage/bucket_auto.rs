//! `$bucketAuto`: buckets of about equal size, boundaries chosen from the values.
//!
//! With a `granularity` boundaries are rounded outwards to a series of preferred numbers.
//! Documents are sorted by the `groupBy` value (spilling as any sort), then cut.

mod granularity;

use crate::memory::StageMemory;
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::spill::{Spool, SpoolSource};
use crate::stage::group::key_bytes;
use crate::stage::shorthand::{check_group_by, read_output};
use crate::stage::sort::{Sort, SortSource};
use crate::stage::{
    Output, Part, PipelineStage, StageInput, StageSpec, check_document_size, object,
};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::number::Number;
use bsonval::raw::Writer;
use bsonval::{Path, SortPattern};
use errors::{Error, Result};
use expr::accumulator::{Accumulator, AccumulatorSpec};
use expr::agg::{Expression, parse_fields};
use granularity::Granularity;
use keystring::Direction;
use std::sync::Arc;

/// A parsed `$bucketAuto`.
#[derive(Clone, Debug)]
pub struct BucketAuto {
    /// The argument as the client wrote it, for explain.
    pub source: RawBson,
    group_by: Expression,
    buckets: u64,
    fields: Vec<(String, AccumulatorSpec)>,
    granularity: Option<Granularity>,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec = object(value, |kind| {
        Error::location(
            40240,
            format!("The argument to $bucketAuto must be an object, but found type: {kind}."),
        )
    })?;
    let [group_by, buckets, output, granularity] =
        parse_fields(spec, ["groupBy", "buckets", "output", "granularity"], |name| {
            Error::location(40245, format!("Unrecognized option to $bucketAuto: {name}."))
        })?;
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        return Err(Error::location(
            40246,
            "$bucketAuto requires 'groupBy' and 'buckets' to be specified.",
        ));
    };
    check_group_by(group_by, 40239, "$bucketAuto")?;
    let number = Number::from_bson(buckets).ok_or_else(|| {
        Error::location(
            40241,
            format!(
                "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}.",
                bsonval::types::name_of(buckets)
            ),
        )
    })?;
    let whole = number.to_exact_i32().ok_or_else(|| {
        Error::location(
            40242,
            "The $bucketAuto 'buckets' field must be representable as a 32-bit integer".to_owned(),
        )
    })?;
    let buckets = u64::try_from(whole).ok().filter(|n| *n > 0).ok_or_else(|| {
        Error::location(
            40243,
            format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {whole}."),
        )
    })?;
    let granularity = granularity.map(Granularity::parse).transpose()?;
    let fields = match output {
        None => vec![("count".to_owned(), AccumulatorSpec::sum_of_one())],
        Some(output) => read_output(output, ctx, "$bucketAuto", 40244)?,
    };
    let group_by = Expression::parse(group_by, &ctx.parse.names)?.optimize();
    let source = value.into();
    Ok(PipelineStage::other(BucketAuto { source, group_by, buckets, fields, granularity }))
}

impl StageSpec for BucketAuto {
    fn name(&self) -> &'static str {
        "$bucketAuto"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let inputs = self.fields.iter().map(|(_, spec)| Part::Expression(spec.input()));
        [Part::Expression(&self.group_by)].into_iter().chain(inputs).collect()
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(BucketAutoSource::new(run, self)))
    }

    fn output(&self) -> Output {
        Output::Gathered
    }
}

/// Wraps every document as `{k: groupBy value, d: document}` so that it can be sorted by `k`.
struct Keyed {
    run: StageInput,
    stage: Arc<BucketAuto>,
}

impl DocumentSource for Keyed {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        let Some(document) = self.run.input.next()? else { return Ok(None) };
        let key = self.stage.group_by.evaluate(&document, &self.run.variables)?;
        let mut wrapped = RawDocumentBuf::new();
        // In a document, so that an array key sorts as a whole value.
        let mut inner = RawDocumentBuf::new();
        inner.append(cstr!("v"), key.get().unwrap_or(RawBsonRef::Null));
        wrapped.append(cstr!("k"), inner);
        wrapped.append(cstr!("d"), &*document);
        Ok(Some(wrapped))
    }
}

pub(crate) struct BucketAutoSource {
    run: Option<StageInput>,
    stage: Arc<BucketAuto>,
    buckets: Option<Buckets>,
}

struct Buckets {
    run: StageInput,
    total: u64,
    made: u64,
    /// A document read and not yet in a bucket.
    head: Option<RawDocumentBuf>,
    /// Where the bucket before ended, with a granularity: the next one begins there.
    boundary: Option<RawBson>,
}

impl BucketAutoSource {
    pub(crate) fn new(run: StageInput, stage: Arc<BucketAuto>) -> Self {
        Self { run: Some(run), stage, buckets: None }
    }

    fn open(&mut self) -> Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let (env, variables) = (Arc::clone(&run.env), Arc::clone(&run.variables));
        let again =
            |input| StageInput { input, env: Arc::clone(&env), variables: Arc::clone(&variables) };
        let pattern = SortPattern::new([(Path::new("k"), Direction::Ascending)]);
        let keyed = Box::new(Keyed { run, stage: Arc::clone(&self.stage) });
        let sort = Arc::new(Sort { pattern, limit: None });
        let mut sorted = SortSource::new(again(keyed), sort);
        // How many there are must be known before the first bucket can be cut.
        let mut spool = Spool::new("$bucketAuto", &*env);
        let mut total = 0;
        while let Some(document) = sorted.next()? {
            spool.add(document, &*env)?;
            total += 1;
        }
        let mut run = again(Box::new(SpoolSource::new(spool.seal()?)));
        let head = run.input.next()?;
        self.buckets = Some(Buckets { run, total, made: 0, head, boundary: None });
        Ok(())
    }
}

fn key_of(wrapped: &RawDocument) -> Result<RawBsonRef<'_>> {
    let inner = wrapped.get("k")?.and_then(RawBsonRef::as_document);
    Ok(inner.map(|k| k.get("v")).transpose()?.flatten().unwrap_or(RawBsonRef::Null))
}

impl Buckets {
    /// The next bucket: at least its share of documents, then all that equal its last value.
    fn next(&mut self, stage: &BucketAuto) -> Result<Option<RawDocumentBuf>> {
        let Some(first) = self.head.take() else { return Ok(None) };
        // Rounded half to even as MongoDB does: the buckets still to come share what is left.
        let share = (self.total as f64 / stage.buckets as f64).round_ties_even() as u64;
        let is_last = self.made + 1 == stage.buckets;
        let wanted = if is_last { u64::MAX } else { share.max(1) };
        let variables = Arc::clone(&self.run.variables);
        let mut states: Vec<Accumulator> = stage
            .fields
            .iter()
            .map(|(_, spec)| spec.start(RawBsonRef::Null, &variables))
            .collect::<Result<_>>()?;
        let min: RawBson = match (&stage.granularity, self.boundary.take()) {
            (None, _) => key_of(&first)?.into(),
            (Some(_), Some(boundary)) => boundary,
            (Some(series), None) => {
                RawBson::Double(series.below(granularity::number(key_of(&first)?)?))
            }
        };
        let mut last_key = Vec::new();
        let mut max = min.clone();
        let (mut taken, mut current) = (0, Some(first));
        let mut held = StageMemory::within(usize::MAX);
        while let Some(wrapped) = current.take() {
            let key = key_bytes(key_of(&wrapped)?, variables.collation(), Vec::new())?;
            if taken >= wanted
                && key != last_key
                && !is_below(&wrapped, max.as_raw_bson_ref(), stage)?
            {
                max = match &stage.granularity {
                    Some(series) => {
                        let next = granularity::number(key_of(&wrapped)?)?;
                        RawBson::Double(rounded_up(series, max.as_raw_bson_ref(), Some(next))?)
                    }
                    None => key_of(&wrapped)?.into(),
                };
                self.boundary = Some(max.clone());
                self.head = Some(wrapped);
                break;
            }
            if let Some(document) = wrapped.get("d")?.and_then(RawBsonRef::as_document) {
                for ((_, spec), state) in stage.fields.iter().zip(&mut states) {
                    spec.add(state, document, &variables)?;
                }
                // Twice: what is gathered is written into the bucket's document.
                held.must_fit(2 * states.iter().map(Accumulator::bytes).sum::<usize>())?;
            }
            if taken < wanted || key == last_key || stage.granularity.is_none() {
                max = key_of(&wrapped)?.into();
            }
            last_key = key;
            taken += 1;
            current = self.run.input.next()?;
        }
        if let (Some(series), None) = (&stage.granularity, &self.head) {
            max = RawBson::Double(rounded_up(series, max.as_raw_bson_ref(), None)?);
        }
        self.made += 1;
        let mut out = Writer::default();
        let open = out.begin();
        let id = out.begin_document("_id");
        out.value("min", min.as_raw_bson_ref());
        out.value("max", max.as_raw_bson_ref());
        out.end(id);
        for ((name, _), state) in stage.fields.iter().zip(states) {
            out.value(name, state.finish()?.as_raw_bson_ref());
        }
        out.end(open);
        check_document_size(out.len())?;
        out.finish().map(Some)
    }
}

/// Whether a value lies below the rounded end of a bucket that has its share already.
fn is_below(wrapped: &RawDocument, max: RawBsonRef<'_>, stage: &BucketAuto) -> Result<bool> {
    let Some(series) = &stage.granularity else { return Ok(false) };
    let end = series.above(granularity::number(max)?);
    Ok(granularity::number(key_of(wrapped)?)? < end)
}

/// The rounded end of a bucket whose greatest value is `max`. One of zeros ends where the next
/// value, rounded down, begins.
fn rounded_up(series: &Granularity, max: RawBsonRef<'_>, next: Option<f64>) -> Result<f64> {
    let max = granularity::number(max)?;
    Ok(match next {
        Some(next) if max == 0.0 => series.below(next),
        _ => series.above(max),
    })
}

impl DocumentSource for BucketAutoSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        self.open()?;
        match &mut self.buckets {
            Some(buckets) => buckets.next(&self.stage),
            None => Ok(None),
        }
    }
}
