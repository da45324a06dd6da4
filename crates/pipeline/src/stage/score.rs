//! `$score`: each document with a score that an expression computes, which `{$meta: "score"}` reads.
//!
//! From → to: the expression's value becomes a double, is normalized and weighed. `minMaxScaler` must
//! have seen all documents before the first goes out, so it writes them to a spool first.
//!
//! Always true: documents stay as they are but for what they carry.

use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::spill::{Spool, SpoolSource};
use crate::stage::fusion::{flag, given};
use crate::stage::window::{missing, unknown, wrong_type};
use crate::stage::{Output, Part, PipelineStage, StageInput, StageSpec};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bsonval::number::Number;
use bsonval::raw::Writer;
use bsonval::text_score;
use errors::{Error, Result};
use expr::agg::{Expression, Scored, Value, parse_fields, value_to_string};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A parsed `$score`.
#[derive(Clone, Debug)]
struct Score {
    /// The argument as the client wrote it, for explain.
    source: RawBson,
    /// What computes the score.
    expression: Expression,
    /// As the client wrote it.
    shown: String,
    normalization: Normalization,
    weight: f64,
    /// Each document is to carry how its score came about.
    details: bool,
}

/// How scores are brought into the range from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Normalization {
    /// Not at all.
    None,
    /// By `1 / (1 + e^-x)`.
    Sigmoid,
    /// By their place between the least and the greatest.
    MinMaxScaler,
}

impl Normalization {
    /// Reads the field `place` of a stage's argument.
    pub(super) fn parse(value: RawBsonRef<'_>, place: &str) -> Result<Self> {
        let RawBsonRef::String(name) = value else {
            return Err(wrong_type(place, value, "string"));
        };
        let known = [Self::None, Self::Sigmoid, Self::MinMaxScaler];
        known.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            Error::bad_value(format!("Enumeration value '{name}' for field '{place}' is not valid"))
        })
    }

    /// As the client writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sigmoid => "sigmoid",
            Self::MinMaxScaler => "minMaxScaler",
        }
    }

    /// A score, normalized among those of the span.
    pub(super) fn of(self, score: f64, span: Span) -> f64 {
        match self {
            Self::None => score,
            Self::Sigmoid => 1.0 / (1.0 + (-score).exp()),
            Self::MinMaxScaler => span.place_of(score),
        }
    }
}

/// From the least to the greatest of some scores; NaN is less than every number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span(Option<(f64, f64)>);

impl Span {
    /// Takes in a score.
    pub(super) fn add(&mut self, score: f64) {
        let (least, greatest) = self.0.unwrap_or((score, score));
        let less = |a: f64, b: f64| a < b || (a.is_nan() && !b.is_nan());
        let least = if less(score, least) { score } else { least };
        let greatest = if less(greatest, score) { score } else { greatest };
        self.0 = Some((least, greatest));
    }

    /// 0 for the least and 1 for the greatest; 0 where all are equal.
    fn place_of(self, score: f64) -> f64 {
        let (least, greatest) = self.0.unwrap_or((score, score));
        let width = greatest - least;
        if width == 0.0 { 0.0 } else { (score - least) / width }
    }
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let RawBsonRef::Document(spec) = value else {
        return Err(Error::failed_to_parse(format!(
            "The $score stage specification must be an object, found {}",
            bsonval::types::name_of(value)
        )));
    };
    let [score, normalization, weight, details] =
        parse_fields(spec, ["score", "normalization", "weight", "scoreDetails"], |name| {
            unknown("$score", name)
        })?;
    let score = score.ok_or_else(|| missing("$score", "score"))?;
    let normalization = match given(normalization) {
        None => Normalization::None,
        Some(value) => Normalization::parse(value, "$score.normalization")?,
    };
    let weight = match given(weight) {
        None => 1.0,
        Some(value) => Number::from_bson(value)
            .ok_or_else(|| wrong_type("$score.weight", value, "number"))?
            .to_f64(),
    };
    if !(0.0..=1.0).contains(&weight) {
        return Err(Error::bad_value(format!(
            "BSON field '$score.weight' must be from 0 to 1, but is {weight}"
        )));
    }
    let details = flag(details, "$score.scoreDetails")?;
    let expression = Expression::parse_operand(score, &ctx.parse.names)?.optimize();
    Ok(PipelineStage::other(Score {
        source: value.into(),
        expression,
        shown: value_to_string(score),
        normalization,
        weight,
        details,
    }))
}

impl StageSpec for Score {
    fn name(&self) -> &'static str {
        "$score"
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::Expression(&self.expression)]
    }

    fn execute(self: Arc<Self>, run: StageInput) -> Result<Box<dyn DocumentSource>> {
        Ok(Box::new(ScoreSource { run, score: self, spooled: None }))
    }

    fn output(&self) -> Output {
        Output::Passing
    }

    fn is_one_to_one(&self) -> bool {
        self.each_alone()
    }

    fn gives_score(&self) -> Option<Scored> {
        Some(if self.details { Scored::Details } else { Scored::Score })
    }

    fn lets_match_pass(&self, paths: &BTreeSet<String>) -> bool {
        self.each_alone() && !paths.iter().any(|path| text_score::is_hidden(path))
    }
}

impl Score {
    /// Whether a document's score is the same whatever others there are.
    fn each_alone(&self) -> bool {
        self.normalization != Normalization::MinMaxScaler
    }

    fn scored(&self, document: &RawDocument, raw: f64, span: Span) -> Result<RawDocumentBuf> {
        let score = self.normalization.of(raw, span) * self.weight;
        let details = if self.details { Some(self.details_of(raw, score)?) } else { None };
        Ok(text_score::with_score(document, score, details.as_deref()))
    }

    fn details_of(&self, raw: f64, score: f64) -> Result<RawDocumentBuf> {
        let mut out = Writer::default();
        let open = out.begin();
        out.value("value", RawBsonRef::Double(score));
        out.value(
            "description",
            RawBsonRef::String("the weight times what the normalization makes of the raw score"),
        );
        out.value("rawScore", RawBsonRef::Double(raw));
        out.value("normalization", RawBsonRef::String(self.normalization.name()));
        out.value("weight", RawBsonRef::Double(self.weight));
        out.value("expression", RawBsonRef::String(&self.shown));
        out.value("details", RawBsonRef::Array(&RawArrayBuf::new()));
        out.end(open);
        out.finish()
    }
}

/// The number that a score must be.
pub(super) fn number(value: &Value<'_>) -> Result<f64> {
    let number = value.get().and_then(Number::from_bson);
    number.map(Number::to_f64).ok_or_else(|| {
        Error::type_mismatch(format!("A score must be a number, but is {}", value.type_name()))
    })
}

struct ScoreSource {
    run: StageInput,
    score: Arc<Score>,
    /// All documents with their raw scores, where all must be known.
    spooled: Option<(SpoolSource, Span)>,
}

impl ScoreSource {
    /// The next document of the stage before, with its raw score.
    fn read(&mut self) -> Result<Option<(RawDocumentBuf, f64)>> {
        let Some(document) = self.run.input.next()? else { return Ok(None) };
        let raw = number(&self.score.expression.evaluate(&document, &self.run.variables)?)?;
        Ok(Some((document, raw)))
    }

    fn gather(&mut self) -> Result<(SpoolSource, Span)> {
        let env = Arc::clone(&self.run.env);
        let (mut spool, mut span) = (Spool::new("$score", &*env), Span::default());
        while let Some((document, raw)) = self.read()? {
            env.check_interrupt()?;
            span.add(raw);
            spool.add(text_score::with_score(&document, raw, None), &*env)?;
        }
        Ok((SpoolSource::new(spool.seal()?), span))
    }
}

impl DocumentSource for ScoreSource {
    fn next(&mut self) -> Result<Option<RawDocumentBuf>> {
        if self.score.each_alone() {
            let Some((document, raw)) = self.read()? else { return Ok(None) };
            return self.score.scored(&document, raw, Span::default()).map(Some);
        }
        if self.spooled.is_none() {
            self.spooled = Some(self.gather()?);
        }
        let Some((source, span)) = &mut self.spooled else { return Ok(None) };
        limits::poll()?;
        let Some(document) = source.next()? else { return Ok(None) };
        let raw = text_score::score_of(&document).unwrap_or(f64::NAN);
        self.score.scored(&document, raw, *span).map(Some)
    }

    fn park(&mut self) {
        self.run.input.park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_normalized() {
        use Normalization::{MinMaxScaler, None, Sigmoid};
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (normalization, scores, expected) in [
            (None, [3.0, -1.0, 7.0], [3.0, -1.0, 7.0]),
            (None, [nan, inf, -inf], [nan, inf, -inf]),
            (Sigmoid, [0.0, inf, -inf], [0.5, 1.0, 0.0]),
            (Sigmoid, [nan, 1000.0, -1000.0], [nan, 1.0, 0.0]),
            (MinMaxScaler, [3.0, -1.0, 7.0], [0.5, 0.0, 1.0]),
            (MinMaxScaler, [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]),
            (MinMaxScaler, [nan, 1.0, 2.0], [nan, nan, nan]),
            (MinMaxScaler, [1.0, nan, 2.0], [nan, nan, nan]),
            (MinMaxScaler, [1.0, inf, 2.0], [0.0, nan, 0.0]),
            (MinMaxScaler, [inf, inf, inf], [nan, nan, nan]),
        ] {
            let mut span = Span::default();
            for score in scores {
                span.add(score);
            }
            for (score, expected) in scores.iter().zip(expected) {
                let found = normalization.of(*score, span);
                let same = found.total_cmp(&expected).is_eq() || (found - expected).abs() == 0.0;
                let same = same || (found.is_nan() && expected.is_nan());
                assert!(same, "{normalization:?} {scores:?}: {found}, not {expected}");
            }
        }
        let one = Sigmoid.of(1.0, Span::default());
        assert!(one.total_cmp(&(1.0 / (1.0 + (-1.0_f64).exp()))).is_eq(), "{one}");
    }
}
