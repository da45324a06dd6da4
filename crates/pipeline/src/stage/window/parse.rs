//! The argument of `$setWindowFields`, with MongoDB's errors.

use super::SetWindowFields;
use super::bounds::{Bounds, read_unit};
use super::functions::{Function, Rank};
use crate::parse::PipelineContext;
use crate::stage::{PipelineStage, object};
use crate::transform::Transform;
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bsonval::SortPattern;
use bsonval::decimal::Decimal;
use bsonval::number::Number;
use bsonval::raw::Writer;
use bsonval::types::name_of;
use errors::{Error, Result};
use expr::accumulator::{AccumulatorSpec, operator_names};
use expr::agg::{Expression, ParseContext, parse_fields};
use keystring::Direction;

pub(crate) fn parse(value: RawBsonRef<'_>, ctx: &PipelineContext) -> Result<PipelineStage> {
    let spec = object(value, |kind| {
        Error::failed_to_parse(format!(
            "the $setWindowFields stage specification must be an object, found {kind}"
        ))
    })?;
    let [partition_by, sort_by, output] =
        parse_fields(spec, ["partitionBy", "sortBy", "output"], |other| {
            unknown("$setWindowFields", other)
        })?;
    let output = output.ok_or_else(|| missing("$setWindowFields", "output"))?;
    let RawBsonRef::Document(output) = output else {
        return Err(wrong_type("$setWindowFields.output", output, "object"));
    };
    let sort_by = match sort_by {
        None => None,
        Some(RawBsonRef::Document(pattern)) => Some(pattern),
        Some(other) => return Err(wrong_type("$setWindowFields.sortBy", other, "object")),
    };
    window_stage(value.into(), partition_by, sort_by, output, ctx)
}

pub(crate) fn unknown(stage: &str, field: &str) -> Error {
    Error::location(40415, format!("BSON field '{stage}.{field}' is an unknown field."))
}

pub(crate) fn missing(stage: &str, field: &str) -> Error {
    Error::location(40414, format!("BSON field '{stage}.{field}' is missing but a required field"))
}

pub(crate) fn wrong_type(field: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field '{field}' is the wrong type '{}', expected type '{expected}'",
        name_of(value)
    ))
}

/// The stage of these parts; `$fill` makes one too.
pub(crate) fn window_stage(
    source: RawBson,
    partition_by: Option<RawBsonRef<'_>>,
    sort_by: Option<&RawDocument>,
    output: &RawDocument,
    ctx: &PipelineContext,
) -> Result<PipelineStage> {
    let names = &ctx.parse.names;
    let partition_by = partition_by.map(|value| Expression::parse(value, names)).transpose()?;
    let sort_by = sort_by.map(SortPattern::parse).transpose()?.filter(|sort| !sort.is_empty());
    // Values travel in variables of our own, which no expression of the client's can see.
    let mut inner = names.clone();
    let mut outputs = Vec::new();
    let mut place = Writer::default();
    let open = place.begin();
    for (at, field) in output.iter().enumerate() {
        let (path, value) = field?;
        let RawBsonRef::Document(spec) = value else {
            return Err(Error::failed_to_parse(format!(
                "The field '{path}' must be a window function object"
            )));
        };
        let function = function(spec, sort_by.as_ref(), names)?;
        let variable = format!("window{at}");
        outputs.push((inner.define(&variable)?, function));
        place.value(path.as_str(), RawBsonRef::String(&format!("$${variable}")));
    }
    place.end(open);
    let place = place.finish()?;
    let place = if outputs.is_empty() {
        Transform::unset([])
    } else {
        Transform::add_fields(&place, &inner)
    };
    let place = place.map_err(|error| error.context("Invalid $setWindowFields"))?;
    let partition_by = partition_by.map(Expression::optimize);
    let stage = SetWindowFields { source, partition_by, sort_by, outputs, place };
    Ok(PipelineStage::other(stage))
}

/// `{$function: argument, window: {...}}`.
fn function(
    spec: &RawDocument,
    sort_by: Option<&SortPattern>,
    names: &ParseContext,
) -> Result<Function> {
    let (mut found, mut window) = (None, None);
    for field in spec {
        let (name, value) = field?;
        match name.as_str() {
            "window" => window = Some(value),
            name if name.starts_with('$') => {
                if found.replace((name, value)).is_some() {
                    return Err(Error::failed_to_parse(
                        "Cannot specify two functions in window function spec",
                    ));
                }
            }
            other => {
                return Err(Error::failed_to_parse(format!(
                    "Window function found an unknown argument: {other}"
                )));
            }
        }
    }
    let Some((name, argument)) = found else {
        return Err(Error::failed_to_parse("Must specify a window function in output field"));
    };
    Parser { name, argument, window, sort_by, names }.function()
}

type Read = fn(&Parser<'_>) -> Result<Function>;

/// The functions that only windows have, or have in another form; the rest are accumulators.
const FUNCTIONS: &[(&str, Read)] = &[
    ("$covariancePop", |parser| parser.covariance(false)),
    ("$covarianceSamp", |parser| parser.covariance(true)),
    ("$denseRank", |parser| parser.rank(Rank::Dense)),
    ("$derivative", |parser| parser.derivative()),
    ("$documentNumber", |parser| parser.rank(Rank::Number)),
    ("$expMovingAvg", |parser| parser.exp_moving_avg()),
    ("$first", |parser| parser.edge(false)),
    ("$integral", |parser| parser.integral()),
    ("$last", |parser| parser.edge(true)),
    ("$linearFill", |parser| parser.linear_fill()),
    ("$locf", |parser| parser.locf()),
    ("$minMaxScaler", |parser| parser.min_max_scaler()),
    ("$rank", |parser| parser.rank(Rank::Sparse)),
    ("$shift", |parser| parser.shift()),
];

/// The names of all window functions.
pub fn names() -> Vec<&'static str> {
    let own = FUNCTIONS.iter().map(|(name, _)| *name);
    let mut all: Vec<_> = own.chain(operator_names(true)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

struct Parser<'a> {
    name: &'a str,
    argument: RawBsonRef<'a>,
    window: Option<RawBsonRef<'a>>,
    sort_by: Option<&'a SortPattern>,
    names: &'a ParseContext,
}

impl<'a> Parser<'a> {
    fn function(&self) -> Result<Function> {
        match FUNCTIONS.iter().find(|(name, _)| *name == self.name) {
            Some((_, parse)) => parse(self),
            None => self.accumulator(),
        }
    }

    fn accumulator(&self) -> Result<Function> {
        let unrecognized =
            || Error::failed_to_parse(format!("Unrecognized window function, {}", self.name));
        if !operator_names(true).contains(&self.name) {
            return Err(unrecognized());
        }
        let spec = AccumulatorSpec::parse(self.name, self.argument, self.names)?;
        Ok(Function::Over(spec, self.bounds()?))
    }

    fn edge(&self, last: bool) -> Result<Function> {
        let input = self.expression(self.argument)?;
        Ok(Function::Edge { input, last, bounds: self.bounds()? })
    }

    fn linear_fill(&self) -> Result<Function> {
        self.refuse_window()?;
        if self.sort_by.is_none_or(|sort| sort.paths().len() != 1) {
            return Err(Error::location(
                605001,
                "$linearFill must be specified with a top level sortBy expression with exactly \
                 one element",
            ));
        }
        Ok(Function::LinearFill(self.expression(self.argument)?))
    }

    fn locf(&self) -> Result<Function> {
        self.refuse_window()?;
        Ok(Function::Locf(self.expression(self.argument)?))
    }

    fn expression(&self, value: RawBsonRef<'_>) -> Result<Expression> {
        Ok(Expression::parse(value, self.names)?.optimize())
    }

    fn bounds(&self) -> Result<Bounds> {
        Bounds::parse(self.window, self.sort_by)
    }

    fn refuse_window(&self) -> Result<()> {
        match self.window {
            None => Ok(()),
            Some(_) => Err(Error::failed_to_parse(format!(
                "'window' field is not allowed in {}",
                self.name
            ))),
        }
    }

    fn need_sort(&self) -> Result<()> {
        match self.sort_by {
            Some(_) => Ok(()),
            None => {
                Err(Error::failed_to_parse(format!("{} requires an explicit 'sortBy'", self.name)))
            }
        }
    }

    /// Named arguments.
    fn arguments<const N: usize>(
        &self,
        known: [&'static str; N],
    ) -> Result<[Option<RawBsonRef<'a>>; N]> {
        let name = self.name;
        let RawBsonRef::Document(document) = self.argument else {
            return Err(Error::failed_to_parse(format!(
                "Argument to {name} must be an object, found {}",
                name_of(self.argument)
            )));
        };
        parse_fields(document, known, |other| {
            Error::failed_to_parse(format!("{name} got unexpected argument: {other}"))
        })
    }

    fn required<'v>(&self, value: Option<RawBsonRef<'v>>, name: &str) -> Result<RawBsonRef<'v>> {
        value.ok_or_else(|| {
            Error::failed_to_parse(format!("{} requires an '{name}' expression", self.name))
        })
    }

    fn rank(&self, kind: Rank) -> Result<Function> {
        if self.window.is_some() {
            return Err(Error::location(
                5371601,
                "Rank style window functions take no other arguments",
            ));
        }
        let name = self.name;
        if !self.argument.as_document().is_some_and(RawDocument::is_empty) {
            return Err(Error::location(
                5371603,
                format!("{name} must be specified with '{{}}' as the value"),
            ));
        }
        if self.sort_by.is_none_or(|sort| sort.paths().len() != 1) {
            return Err(Error::location(
                5371602,
                format!(
                    "{name} must be specified with a top level sortBy expression with exactly one \
                     element"
                ),
            ));
        }
        Ok(Function::Rank(kind))
    }

    fn shift(&self) -> Result<Function> {
        self.refuse_window()?;
        self.need_sort()?;
        let [output, by, default] = self.arguments(["output", "by", "default"])?;
        let output = self.expression(self.required(output, "output")?)?;
        let by = self.required(by, "by")?;
        let by = Number::from_bson(by).and_then(Number::to_exact_i32).ok_or_else(|| {
            Error::failed_to_parse(format!(
                "'$shift:by' field must be an integer, but found: {}",
                expr::agg::value_to_string(by)
            ))
        })?;
        let default = match default {
            None => RawBson::Null,
            Some(value) => match self.expression(value)?.as_constant() {
                Some(constant) => constant.cloned().unwrap_or(RawBson::Null),
                None => {
                    return Err(Error::failed_to_parse(
                        "'$shift:default' expression must yield a constant value.",
                    ));
                }
            },
        };
        Ok(Function::Shift { output, by: i64::from(by), default })
    }

    fn exp_moving_avg(&self) -> Result<Function> {
        self.refuse_window()?;
        self.need_sort()?;
        let [input, n, alpha] = self.arguments(["input", "N", "alpha"])?;
        let input = self.expression(self.required(input, "input")?)?;
        let alpha = match (n, alpha) {
            (Some(n), None) => {
                let n = Number::from_bson(n)
                    .and_then(Number::to_exact_i64)
                    .ok_or_else(|| Error::failed_to_parse("'N' field must be an integer"))?;
                if n <= 0 {
                    return Err(Error::failed_to_parse(format!(
                        "'N' must be greater than zero. Got {n}"
                    )));
                }
                let below = Decimal::from_i64(n).add(Decimal::from_i64(1));
                Number::Decimal(Decimal::from_i64(2).div(below))
            }
            (None, Some(alpha)) => {
                let number = Number::from_bson(alpha)
                    .ok_or_else(|| Error::failed_to_parse("'alpha' must be a number"))?;
                let value = number.to_f64();
                if !(value > 0.0 && value < 1.0) {
                    return Err(Error::failed_to_parse(format!(
                        "'alpha' must be between 0 and 1 (exclusive), found alpha: {}",
                        expr::agg::value_to_string(alpha)
                    )));
                }
                number
            }
            _ => {
                return Err(Error::failed_to_parse(
                    "$expMovingAvg must have exactly one of 'N' or 'alpha' fields",
                ));
            }
        };
        Ok(Function::ExpMovingAvg { input, alpha })
    }

    /// `input` and, in milliseconds, `unit`.
    fn calculus(&self) -> Result<(Expression, Option<i64>)> {
        let [input, unit] = self.arguments(["input", "unit"])?;
        let input = self.expression(self.required(input, "input")?)?;
        if self.sort_by.is_none_or(|sort| sort.directions() != [Direction::Ascending]) {
            return Err(Error::failed_to_parse(format!(
                "{} requires a single-field ascending sortBy",
                self.name
            )));
        }
        let Some(unit) = unit else { return Ok((input, None)) };
        let unit_ms = read_unit(unit)?
            .fixed_ms()
            .ok_or_else(|| Error::failed_to_parse("unit must be 'week' or smaller".to_owned()))?;
        Ok((input, Some(unit_ms)))
    }

    fn derivative(&self) -> Result<Function> {
        let (input, unit_ms) = self.calculus()?;
        if self.window.is_none() {
            return Err(Error::failed_to_parse("$derivative requires explicit window bounds"));
        }
        Ok(Function::Derivative { input, unit_ms, bounds: self.bounds()? })
    }

    fn integral(&self) -> Result<Function> {
        let (input, unit_ms) = self.calculus()?;
        Ok(Function::Integral { input, unit_ms, bounds: self.bounds()? })
    }

    fn min_max_scaler(&self) -> Result<Function> {
        let (input, low, high) = match self.argument {
            RawBsonRef::Document(named) if !bsonval::raw::starts_with_dollar(named) => {
                let [input, low, high] = self.arguments(["input", "min", "max"])?;
                (self.required(input, "input")?, low, high)
            }
            input => (input, None, None),
        };
        let limit = |value: RawBsonRef<'_>, name: &str| {
            let expression = self.expression(value)?;
            let constant = expression.as_constant().flatten();
            constant.and_then(|value| Number::from_bson(value.as_raw_bson_ref())).ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "'{name}' argument to $minMaxScaler must be a constant number"
                ))
            })
        };
        let (low, high) = match (low, high) {
            (None, None) => (Number::Int(0), Number::Int(1)),
            (Some(low), Some(high)) => (limit(low, "min")?, limit(high, "max")?),
            _ => {
                return Err(Error::failed_to_parse(
                    "Only one of 'min' and 'max' were specified as an argument to \
                     $minMaxScaler. Neither or both must be specified",
                ));
            }
        };
        if low.sub(high).to_f64() >= 0.0 {
            return Err(Error::failed_to_parse(
                "the 'max' must be strictly greater than 'min', as arguments to $minMaxScaler",
            ));
        }
        let spec = |name| AccumulatorSpec::parse(name, input, self.names);
        let specs = Box::new([spec("$min")?, spec("$max")?]);
        Ok(Function::Scale { specs, low, high, bounds: self.bounds()? })
    }

    fn covariance(&self, sample: bool) -> Result<Function> {
        let refuse = || {
            Error::failed_to_parse(format!(
                "{} requires an array of exactly two expressions",
                self.name
            ))
        };
        let array = self.argument.as_array().ok_or_else(refuse)?;
        let mut parts = array.into_iter();
        let (Some(x), Some(y), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(refuse());
        };
        let pair = Box::new([self.expression(x?)?, self.expression(y?)?]);
        Ok(Function::Covariance { pair, sample, bounds: self.bounds()? })
    }
}
