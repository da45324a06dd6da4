//! `$scoreFusion`: the documents that several pipelines over the collection find, by the scores that
//! each of them gives them.
//!
//! The scores of each pipeline are normalized among themselves and weighed; a document's score is
//! their average, or what an expression makes of them, which finds each under the pipeline's name.
//! The rest is what all have in common that fuse: [`fusion`].
//!
//! Always true: a pipeline that did not find a document gives it 0.

use crate::env::CollectionName;
use crate::memory::StageMemory;
use crate::parse::PipelineContext;
use crate::source::DocumentSource;
use crate::stage::fusion::{self, Argument, Found, FusionSource, Input, Rules};
use crate::stage::score::{Normalization, Span, number};
use crate::stage::window::{missing, wrong_type};
use crate::stage::{Part, PipelineStage, Place, StageInput, StageSpec};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bsonval::number::Number;
use bsonval::raw::Writer;
use bsonval::text_score;
use errors::{Error, Result};
use expr::accumulator::WindowSum;
use expr::agg::{Expression, Scored, VarId, Variables, value_to_string};
use std::sync::Arc;

/// Stages whose documents come scored.
const SCORED: [&str; 2] = ["$search", "$vectorSearch"];

const RULES: Rules = Rules {
    stage: "$scoreFusion",
    empty: 9_402_503,
    nested: 10_473_003,
    unfit: (9_402_500, "begin with a search or have a $score"),
    changing: 9_402_502,
    fits: |names, filter| {
        names.contains(&"$score")
            || names.first().is_some_and(|first| SCORED.contains(first))
            || filter.is_some_and(|filter| filter.spec().gives_score().is_some())
    },
};

/// A parsed fusion.
#[derive(Clone, Debug)]
struct ScoreFusion {
    /// The argument as the client wrote it, for explain.
    source: RawBson,
    from: CollectionName,
    /// The input pipelines, in their order.
    inputs: Vec<Input>,
    normalization: Normalization,
    combination: Combination,
    /// Each document is to carry how its score came about.
    details: bool,
}

/// What makes one score of several.
#[derive(Clone, Debug)]
enum Combination {
    Average,
    /// An expression, the variables that it finds the scores in, and how the client wrote it.
    Expression(Expression, Vec<VarId>, String),
}

/// What an input tells of a document: its score, and how that came about.
struct InputScore {
    score: f64,
    details: Option<RawDocumentBuf>,
}

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let argument = Argument::parse(RULES.stage, value, ctx)?;
    let place = "$scoreFusion.input";
    let [pipelines, normalization] =
        fusion::read(place, argument.input, ["pipelines", "normalization"])?;
    let pipelines = fusion::object(place, "pipelines", pipelines)?;
    let normalization =
        fusion::given(normalization).ok_or_else(|| missing(place, "normalization"))?;
    let normalization = Normalization::parse(normalization, "$scoreFusion.input.normalization")?;
    let mut inputs = fusion::parse_inputs(&RULES, pipelines, ctx)?;
    let combination = match argument.combination {
        None => Combination::Average,
        Some(spec) => combine(spec, &mut inputs, ctx)?,
    };
    Ok(PipelineStage::other(ScoreFusion {
        source: value.into(),
        from: argument.from,
        inputs,
        normalization,
        combination,
        details: argument.details,
    }))
}

/// Reads how scores are combined, and what weights they have.
fn combine(spec: &RawDocument, inputs: &mut [Input], ctx: &PipelineContext) -> Result<Combination> {
    let place = "$scoreFusion.combination";
    let [weights, method, expression] =
        fusion::read(place, spec, ["weights", "method", "expression"])?;
    let weights = match fusion::given(weights) {
        None => None,
        Some(_) => Some(fusion::object(place, "weights", weights)?),
    };
    let by_expression = match fusion::given(method) {
        None | Some(RawBsonRef::String("avg")) => false,
        Some(RawBsonRef::String("expression")) => true,
        Some(RawBsonRef::String(other)) => {
            return Err(Error::bad_value(format!(
                "Enumeration value '{other}' for field '{place}.method' is not valid"
            )));
        }
        Some(other) => return Err(wrong_type(&format!("{place}.method"), other, "string")),
    };
    if by_expression != expression.is_some() {
        return Err(Error::location(
            10_017_300,
            format!("{place}.expression goes with the method \"expression\", and only with it"),
        ));
    }
    match (expression, weights) {
        (Some(_), Some(_)) => Err(Error::location(
            10_017_301,
            format!("{place} cannot have both an expression and weights"),
        )),
        (None, None) => Ok(Combination::Average),
        (None, Some(weights)) => {
            fusion::weigh(RULES.stage, inputs, weights)?;
            Ok(Combination::Average)
        }
        (Some(expression), None) => {
            let mut names = ctx.parse.names.clone();
            names.scored = Scored::No;
            let variables = inputs.iter().map(|input| names.define(&input.name));
            let variables = variables.collect::<Result<Vec<_>>>()?;
            let parsed = Expression::parse_operand(expression, &names)?.optimize();
            Ok(Combination::Expression(parsed, variables, value_to_string(expression)))
        }
    }
}

impl StageSpec for ScoreFusion {
    fn name(&self) -> &'static str {
        RULES.stage
    }

    fn argument(&self) -> RawBson {
        self.source.clone()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = fusion::parts(&self.inputs);
        if let Combination::Expression(expression, ..) = &self.combination {
            parts.push(Part::Expression(expression));
        }
        parts
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

impl ScoreFusion {
    /// What a document takes beside itself and its id, at most; what its inputs tell is counted as it
    /// comes.
    fn bytes_of_each(&self) -> usize {
        let shown = match &self.combination {
            Combination::Average => 0,
            Combination::Expression(_, _, shown) => shown.len(),
        };
        let parts = self.inputs.iter().map(|input| 160 + input.name.len());
        if self.details { parts.fold(448 + shown, |sum, part| sum + part) } else { 160 }
    }

    fn tell(&self, document: &RawDocument) -> Result<(InputScore, usize)> {
        let score = text_score::score_of(document)
            .ok_or_else(|| text_score::missing(text_score::SCORE_META))?;
        let details = text_score::details_of(document).filter(|_| self.details);
        // They stand in the details of the whole too.
        let bytes = details.map_or(0, |details| 2 * details.as_bytes().len());
        Ok((InputScore { score, details: details.map(ToOwned::to_owned) }, bytes))
    }

    fn fuse(&self, run: &StageInput, held: &mut StageMemory) -> Result<Vec<RawDocumentBuf>> {
        let reader = |_| |document: &RawDocument| self.tell(document);
        let each = self.bytes_of_each();
        let all = fusion::collect(RULES.stage, run, held, &self.from, &self.inputs, each, reader)?;
        let mut spans = vec![Span::default(); self.inputs.len()];
        for found in all.values() {
            limits::poll_work(spans.len())?;
            for (span, told) in spans.iter_mut().zip(&found.told) {
                if let Some(told) = told {
                    span.add(told.score);
                }
            }
        }
        let mut variables = Variables::clone(&run.variables);
        let mut scored = Vec::new();
        for (_, found) in all {
            limits::poll_work(spans.len())?;
            let parts = self.inputs.iter().zip(&found.told).zip(&spans);
            let parts: Vec<f64> = parts
                .map(|((input, told), span)| {
                    let told = told.as_ref().map(|told| self.normalization.of(told.score, *span));
                    told.map_or(0.0, |score| score * input.weight)
                })
                .collect();
            let score = self.combined(&parts, &found.document, &mut variables)?;
            let details =
                if self.details { Some(self.details(score, &parts, &found)?) } else { None };
            scored.push((score, found.document, details));
        }
        fusion::best_first(scored)
    }

    fn combined(
        &self,
        parts: &[f64],
        document: &RawDocument,
        variables: &mut Variables,
    ) -> Result<f64> {
        match &self.combination {
            Combination::Average => Ok(average(parts)),
            Combination::Expression(expression, names, _) => {
                for (name, part) in names.iter().zip(parts) {
                    // It is looked for among all.
                    limits::poll_work(1 + names.len() / 64)?;
                    variables.set(*name, Some(RawBson::Double(*part)));
                }
                number(&expression.evaluate(document, variables)?)
            }
        }
    }

    fn details(
        &self,
        score: f64,
        parts: &[f64],
        found: &Found<InputScore>,
    ) -> Result<RawDocumentBuf> {
        let mut out = Writer::default();
        let open = out.begin();
        out.value("value", RawBsonRef::Double(score));
        out.value(
            "description",
            RawBsonRef::String(
                "what the combination makes of the normalized and weighed scores of the input \
                 pipelines, 0 where one did not find the document",
            ),
        );
        out.value("normalization", RawBsonRef::String(self.normalization.name()));
        let combination = out.begin_document("combination");
        match &self.combination {
            Combination::Average => out.value("method", RawBsonRef::String("average")),
            Combination::Expression(_, _, shown) => {
                out.value("method", RawBsonRef::String("custom expression"));
                out.value("expression", RawBsonRef::String(shown));
            }
        }
        out.end(combination);
        let mut list = RawArrayBuf::new();
        for ((input, told), part) in self.inputs.iter().zip(&found.told).zip(parts) {
            let mut one = RawDocumentBuf::new();
            one.append(cstr!("inputPipelineName"), input.name.as_str());
            let raw = told.as_ref().map_or(0.0, |told| told.score);
            one.append(cstr!("inputPipelineRawScore"), raw);
            one.append(cstr!("weight"), input.weight);
            one.append(cstr!("value"), *part);
            match told.as_ref().and_then(|told| told.details.as_deref()) {
                Some(details) => one.append(cstr!("details"), details),
                None => one.append(cstr!("details"), RawArrayBuf::new()),
            }
            list.push(one);
        }
        out.value("details", RawBsonRef::Array(&list));
        out.end(open);
        out.finish()
    }
}

/// The sum, rounded once, through the number of parts.
fn average(parts: &[f64]) -> f64 {
    let mut sum = WindowSum::default();
    for part in parts {
        sum.add(Number::Double(*part));
    }
    sum.total().to_f64() / parts.len() as f64
}

#[cfg(test)]
mod tests {
    use super::average;

    #[test]
    fn an_average_counts_what_was_not_found() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for (parts, expected) in [
            (&[4.0][..], 4.0),
            (&[4.0, 0.0], 2.0),
            (&[0.1, 0.2, 0.3], 0.6 / 3.0),
            (&[1e100, 1.0, -1e100], 1.0 / 3.0),
            (&[inf, 1.0], inf),
            (&[inf, -inf], nan),
            (&[nan, 1.0], nan),
        ] {
            let found = average(parts);
            let same = found.total_cmp(&expected).is_eq();
            assert!(same || (found.is_nan() && expected.is_nan()), "{parts:?} {found}");
        }
    }
}
