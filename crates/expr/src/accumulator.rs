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

use crate::agg::{Expression, ParseContext, Value, Variables, parse_fields, quantile};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bsonval::raw;
use bsonval::sort::SortPattern;
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
    ConcatArrays,
    AddToSet,
    SetUnion,
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
    ("$concatArrays", Kind::ConcatArrays),
    ("$addToSet", Kind::AddToSet),
    ("$setUnion", Kind::SetUnion),
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

/// The names of all accumulators; `in_windows`: those that a window takes.
pub fn operator_names(in_windows: bool) -> Vec<&'static str> {
    let wanted = |kind: Kind| !in_windows || kind.is_window_function();
    NAMES.iter().filter(|(_, kind)| wanted(*kind)).map(|(name, _)| *name).collect()
}

impl Kind {
    /// Whether each element of a list counts, and nothing but lists do.
    fn takes_lists(self) -> bool {
        matches!(self, Self::ConcatArrays | Self::SetUnion)
    }

    /// Whether windows have it too.
    fn is_window_function(self) -> bool {
        self != Self::Scripted
    }
}

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
                if kind == Kind::Median { 7436100 } else { 7429703 },
                format!(
                    "specification must be an object; found {name}: {}",
                    crate::agg::value_to_string(value)
                ),
            ));
        };
        let (input, percentiles) = quantile::options(name, document, ctx)?;
        let mut spec = Self::plain(name, kind, Expression::parse(input, ctx)?);
        spec.percentiles = percentiles;
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
            None if self.kind.takes_lists() => {
                for value in self.list(&value)? {
                    state.add(&Value::Ref(value?))?;
                }
            }
            None => state.add(&value)?,
            Some(sort) => {
                state.add_ranked(sort.key(document, variables.collation())?, &value);
            }
        }
        limits::poll()?;
        if state.bytes() > MAX_ACCUMULATOR_BYTES && state.bytes() > before {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// The elements of what `$concatArrays` and `$setUnion` are fed; nothing where it is missing.
    fn list<'v>(
        &self,
        value: &'v Value<'_>,
    ) -> Result<impl Iterator<Item = Result<RawBsonRef<'v>>> + use<'v>> {
        let list = match value.get() {
            None => None,
            Some(RawBsonRef::Array(list)) => Some(list),
            Some(other) => {
                return Err(Error::type_mismatch(format!(
                    "{} requires array inputs, but input {} is of type {}",
                    self.name,
                    crate::agg::value_to_string(other),
                    value.type_name()
                )));
            }
        };
        Ok(list.into_iter().flat_map(raw::values))
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

/// Numbers of a value: itself, or of each element where it is an array (percentiles take both).
pub(crate) fn number_of(value: &Value<'_>) -> Option<f64> {
    value.get().and_then(bsonval::number::Number::from_bson).map(bsonval::number::Number::to_f64)
}
