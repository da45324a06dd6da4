//! Accumulators: what `$group` keeps per group (`$sum`, `$push`, `$topN` …).
//!
//! A [`AccumulatorSpec`] is the parsed `{$sum: expression}`; an [`Accumulator`] is the state of one
//! group. A state can be written as a BSON value ([`Accumulator::partial`]) and taken up again by
//! [`Accumulator::merge`], so a group can spill to disk now and be merged across shards later.
//!
//! Always true: adding all documents to one state, and adding parts of them to several states
//! that are merged in order, finish with the same value.

mod ranked;
mod scripted;
mod state;
mod window;

#[cfg(test)]
mod tests;

use scripted::Scripted;
pub use state::Accumulator;
pub use window::{WindowAccumulator, WindowSum};

use crate::agg::{Expression, ParseContext, Value, Variables, parse_fields};
use crate::sort::SortPattern;
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use errors::{Code, Error, Result};

/// The most one accumulator may hold: it cannot spill by itself.
pub const MAX_ACCUMULATOR_BYTES: usize = 100 << 20;

/// A parsed accumulator.
#[derive(Clone, Debug)]
pub struct AccumulatorSpec {
    name: &'static str,
    kind: Kind,
    /// What is fed in; for `$topN` and its kin, the `output`.
    input: Expression,
    /// How many to keep, for the N forms; evaluated once per group over the group's key.
    n: Option<Expression>,
    sort: Option<SortPattern>,
    /// The percentiles asked for.
    percentiles: Vec<f64>,
    /// Of `$accumulator`: the client's functions.
    scripted: Option<Box<Scripted>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Push,
    AddToSet,
    StdDevPop,
    StdDevSamp,
    Count,
    MergeObjects,
    FirstN,
    LastN,
    MinN,
    MaxN,
    Top,
    Bottom,
    TopN,
    BottomN,
    Median,
    Percentile,
    Scripted,
}

const NAMES: &[(&str, Kind)] = &[
    ("$sum", Kind::Sum),
    ("$avg", Kind::Avg),
    ("$min", Kind::Min),
    ("$max", Kind::Max),
    ("$first", Kind::First),
    ("$last", Kind::Last),
    ("$push", Kind::Push),
    ("$addToSet", Kind::AddToSet),
    ("$stdDevPop", Kind::StdDevPop),
    ("$stdDevSamp", Kind::StdDevSamp),
    ("$count", Kind::Count),
    ("$mergeObjects", Kind::MergeObjects),
    ("$firstN", Kind::FirstN),
    ("$lastN", Kind::LastN),
    ("$minN", Kind::MinN),
    ("$maxN", Kind::MaxN),
    ("$top", Kind::Top),
    ("$bottom", Kind::Bottom),
    ("$topN", Kind::TopN),
    ("$bottomN", Kind::BottomN),
    ("$median", Kind::Median),
    ("$percentile", Kind::Percentile),
    ("$accumulator", Kind::Scripted),
];

impl AccumulatorSpec {
    /// Parses `{<name>: <value>}` as it stands in `$group`.
    pub fn parse(name: &str, value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Self> {
        let (name, kind) = *NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| Error::location(15952, format!("unknown group operator '{name}'")))?;
        match kind {
            Kind::Count => Self::parse_count(value),
            Kind::FirstN | Kind::LastN | Kind::MinN | Kind::MaxN => {
                Self::parse_n(name, kind, value, ctx)
            }
            Kind::Top | Kind::Bottom | Kind::TopN | Kind::BottomN => {
                Self::parse_sorted(name, kind, value, ctx)
            }
            Kind::Median | Kind::Percentile => Self::parse_percentile(name, kind, value, ctx),
            Kind::Scripted => {
                let (scripted, input) = Scripted::parse(value, ctx)?;
                let mut spec = Self::plain(name, kind, input);
                spec.scripted = Some(Box::new(scripted));
                Ok(spec)
            }
            _ => Ok(Self::plain(name, kind, parse_operand(name, value, ctx)?)),
        }
    }

    fn plain(name: &'static str, kind: Kind, input: Expression) -> Self {
        Self {
            name,
            kind,
            input: input.optimize(),
            n: None,
            sort: None,
            percentiles: Vec::new(),
            scripted: None,
        }
    }

    /// `{$sum: 1}`, which `$count` and `$sortByCount` are made of.
    pub fn sum_of_one() -> Self {
        Self::plain("$sum", Kind::Sum, Expression::constant(RawBson::Int32(1)))
    }

    fn parse_count(value: RawBsonRef<'_>) -> Result<Self> {
        match value {
            RawBsonRef::Document(document) if document.is_empty() => {
                Ok(Self::plain("$count", Kind::Count, Expression::constant(RawBson::Int32(1))))
            }
            _ => Err(Error::type_mismatch("$count takes no arguments, i.e. $count:{}".to_owned())),
        }
    }

    fn parse_n(
        name: &'static str,
        kind: Kind,
        value: RawBsonRef<'_>,
        ctx: &ParseContext,
    ) -> Result<Self> {
        let RawBsonRef::Document(document) = value else {
            return Err(Error::location(
                5787900,
                format!(
                    "specification must be an object; found {name}: {}",
                    crate::agg::value_to_string(value)
                ),
            ));
        };
        let [n, input] = parse_fields(document, ["n", "input"], |other| {
            Error::location(5787901, format!("Unknown argument for 'n' operator: {other}"))
        })?;
        let n = n.ok_or_else(|| Error::location(5787906, "Missing value for 'n'"))?;
        let input = input.ok_or_else(|| Error::location(5787907, "Missing value for 'input'"))?;
        let mut spec = Self::plain(name, kind, Expression::parse(input, ctx)?);
        spec.n = Some(Expression::parse(n, ctx)?.optimize());
        Ok(spec)
    }

    fn parse_sorted(
        name: &'static str,
        kind: Kind,
        value: RawBsonRef<'_>,
        ctx: &ParseContext,
    ) -> Result<Self> {
        let RawBsonRef::Document(document) = value else {
            return Err(Error::location(
                5788001,
                format!(
                    "specification must be an object; found {name}: {}",
                    crate::agg::value_to_string(value)
                ),
            ));
        };
        let [n, sort, output] = parse_fields(document, ["n", "sortBy", "output"], |other| {
            Error::location(5788002, format!("Unknown argument to {name} '{other}'"))
        })?;
        let counted = matches!(kind, Kind::TopN | Kind::BottomN);
        let n = match (counted, n) {
            (true, None) => return Err(Error::location(5788003, "Missing value for 'n'")),
            (false, Some(_)) => {
                return Err(Error::location(5788002, format!("Unknown argument to {name} 'n'")));
            }
            (_, n) => n,
        };
        let output =
            output.ok_or_else(|| Error::location(5788004, "Missing value for 'output'"))?;
        let sort = sort.ok_or_else(|| Error::location(5788005, "Missing value for 'sortBy'"))?;
        let RawBsonRef::Document(pattern) = sort else {
            return Err(Error::location(
                5788604,
                format!("expected 'sortBy' to already be an object in the arguments to {name}"),
            ));
        };
        let mut spec = Self::plain(name, kind, Expression::parse(output, ctx)?);
        spec.sort = Some(SortPattern::parse(pattern)?);
        spec.n = n.map(|n| Expression::parse(n, ctx).map(Expression::optimize)).transpose()?;
        Ok(spec)
    }

    fn parse_percentile(
        name: &'static str,
        kind: Kind,
        value: RawBsonRef<'_>,
        ctx: &ParseContext,
    ) -> Result<Self> {
        let RawBsonRef::Document(document) = value else {
            return Err(Error::location(
                7436200,
                format!(
                    "specification must be an object; found {name}: {}",
                    crate::agg::value_to_string(value)
                ),
            ));
        };
        let [input, p, method] = parse_fields(document, ["input", "p", "method"], |other| {
            Error::location(40415, format!("BSON field '{name}.{other}' is an unknown field."))
        })?;
        let missing = |field: &str| {
            Error::location(
                40414,
                format!("BSON field '{name}.{field}' is missing but a required field"),
            )
        };
        let input = input.ok_or_else(|| missing("input"))?;
        let method = method.ok_or_else(|| missing("method"))?;
        if method.as_str() != Some("approximate") {
            return Err(Error::bad_value(
                "Currently only 'approximate' can be used as percentile 'method'.",
            ));
        }
        let mut spec = Self::plain(name, kind, Expression::parse(input, ctx)?);
        spec.percentiles = match kind {
            Kind::Median => vec![0.5],
            _ => read_percentiles(p.ok_or_else(|| missing("p"))?)?,
        };
        Ok(spec)
    }

    /// The operator's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the accumulator reads of a document.
    pub fn input(&self) -> &Expression {
        &self.input
    }

    /// The dotted paths the accumulator reads besides its input.
    pub fn sort_paths(&self) -> Vec<String> {
        let paths = self.sort.iter().flat_map(SortPattern::paths);
        paths.map(|path| path.as_str().to_owned()).collect()
    }

    /// The constant `{$sum: 1}` or `$count`: a count needs no document.
    pub fn is_count(&self) -> bool {
        self.kind == Kind::Count
            || (self.kind == Kind::Sum
                && matches!(self.input.as_constant(), Some(Some(RawBson::Int32(1)))))
    }

    /// An empty state for the group with this key.
    pub fn start(&self, key: RawBsonRef<'_>, variables: &Variables) -> Result<Accumulator> {
        if let Some(scripted) = &self.scripted {
            let key = key.as_document().unwrap_or(crate::agg::empty_document());
            return Ok(Accumulator::scripted(scripted.start(key, variables)?));
        }
        let n = match &self.n {
            None => 1,
            Some(n) => {
                let root = key.as_document().unwrap_or(crate::agg::empty_document());
                crate::agg::read_n(&n.evaluate(root, variables)?)?
            }
        };
        Ok(Accumulator::new(self.kind, n, &self.percentiles, variables.collation()))
    }

    /// Feeds one document into a state.
    pub fn add(
        &self,
        state: &mut Accumulator,
        document: &RawDocument,
        variables: &Variables,
    ) -> Result<()> {
        let value = self.input.evaluate(document, variables)?;
        let before = state.bytes();
        match &self.sort {
            None => state.add(&value)?,
            Some(sort) => {
                state.add_ranked(sort.key(document, variables.collation())?, &value);
            }
        }
        if state.bytes() > MAX_ACCUMULATOR_BYTES && state.bytes() > before {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Takes up a partial state.
    pub fn merge(&self, state: &mut Accumulator, partial: RawBsonRef<'_>) -> Result<()> {
        state.merge(partial)?;
        if state.bytes() > MAX_ACCUMULATOR_BYTES { Err(self.too_large()) } else { Ok(()) }
    }

    fn too_large(&self) -> Error {
        Error::new(
            Code::EXCEEDED_MEMORY_LIMIT,
            format!(
                "{} used too much memory and cannot spill to disk. Memory limit: {} bytes",
                self.name, MAX_ACCUMULATOR_BYTES
            ),
        )
    }
}

/// The one operand of a plain accumulator; an array must hold exactly one.
fn parse_operand(name: &str, value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Expression> {
    let RawBsonRef::Array(array) = value else {
        return Expression::parse(value, ctx);
    };
    let mut elements = array.into_iter();
    match (elements.next(), elements.next()) {
        (Some(only), None) => Expression::parse(only?, ctx),
        _ => Err(Error::location(40237, format!("The {name} accumulator is a unary operator"))),
    }
}

fn read_percentiles(value: RawBsonRef<'_>) -> Result<Vec<f64>> {
    let refuse = || {
        Error::location(
            7750301,
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0]",
        )
    };
    let RawBsonRef::Array(array) = value else {
        return Err(Error::location(
            7750300,
            "The $percentile 'p' field must be a non-empty array of constant values",
        ));
    };
    let mut found = Vec::new();
    for element in array {
        let p = crate::number::Number::from_bson(element?).ok_or_else(refuse)?.to_f64();
        if !(0.0..=1.0).contains(&p) {
            return Err(refuse());
        }
        found.push(p);
    }
    if found.is_empty() { Err(refuse()) } else { Ok(found) }
}

/// Numbers of a value: itself, or of each element where it is an array (percentiles take both).
pub(crate) fn number_of(value: &Value<'_>) -> Option<f64> {
    value.get().and_then(crate::number::Number::from_bson).map(crate::number::Number::to_f64)
}
