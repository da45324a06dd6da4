//! Accumulators: what `$group` keeps per group (`$sum`, `$push`, `$topN` …).
//!
//! A [`AccumulatorSpec`] is the parsed `{$sum: expression}`; an [`Accumulator`] is the state of one
//! group. A state can be written as a BSON value ([`Accumulator::partial`]) and taken up again by
//! [`Accumulator::merge`], so a group can spill to disk now and be merged across shards later.
//!
//! An accumulator is a row of [`operators::OPERATORS`]. Most share their states with others
//! (`state`, `window`); one that needs a state of its own is a file of its own: its row, how it is
//! parsed, what it gathers for a group ([`Gather`]) and in a window ([`Slide`]).
//!
//! Always true: adding all documents to one state, and adding parts of them to several states
//! that are merged in order, finish with the same value.

mod operators;
mod percentile;
mod ranked;
mod scripted;
mod state;
mod window;

#[cfg(test)]
mod tests;

use operators::{Feed, OPERATORS, Operator};
pub use state::Accumulator;
pub use window::{WindowAccumulator, WindowSum};

use crate::agg::{Expression, ParseContext, Value, Variables};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bsonval::raw;
use bsonval::sort::SortPattern;
use errors::{Code, Error, Result};
use keystring::Collation;
use std::fmt::Debug;
use std::sync::Arc;

/// The most one accumulator may hold: it cannot spill by itself.
pub const MAX_ACCUMULATOR_BYTES: usize = 100 << 20;

/// A parsed accumulator.
#[derive(Clone, Debug)]
pub struct AccumulatorSpec {
    operator: &'static Operator,
    /// What is fed in; for `$topN` and its kin, the `output`.
    input: Expression,
    /// How many to keep, for the N forms; evaluated once per group over the group's key.
    n: Option<Expression>,
    sort: Option<SortPattern>,
    /// How a state of its own begins.
    own: Option<Arc<dyn Own>>,
}

/// An accumulator with states of its own: what it was told, and how its states begin.
pub(crate) trait Own: Debug + Send + Sync {
    /// An empty state for the group with this key.
    fn start(&self, key: &RawDocument, variables: &Variables) -> Result<Box<dyn Gather>>;

    /// An empty window, where windows have the accumulator. `slides`: whether something may go out
    /// of it again.
    fn start_window(&self, slides: bool) -> Option<Box<dyn Slide>>;
}

/// What one group has gathered, where its accumulator's file alone knows how.
pub(crate) trait Gather: Debug + Send {
    /// Takes in a document's value. Values are compared `under` the collation.
    fn add(&mut self, value: &Value<'_>, under: Option<&Collation>) -> Result<()>;

    /// Roughly the memory held.
    fn bytes(&self) -> usize;

    /// The state as a value that [`Gather::merge`] takes up again.
    fn partial(&self) -> RawBson;

    /// Takes up what [`Gather::partial`] wrote.
    fn merge(&mut self, partial: RawBsonRef<'_>, under: Option<&Collation>) -> Result<()>;

    /// The group's value.
    fn finish(self: Box<Self>) -> Result<RawBson>;
}

/// What one window has gathered, where its accumulator's file alone knows how.
pub(crate) trait Slide: Debug + Send {
    /// Lets a document's value in.
    fn add(&mut self, value: &Value<'_>) -> Result<()>;

    /// Takes out the value that came in first.
    fn remove_first(&mut self);

    /// Roughly the memory held.
    fn bytes(&self) -> usize;

    /// The value of what is inside.
    fn value(&self) -> RawBson;

    /// Roughly the bytes of [`Slide::value`], where that may be large.
    fn value_bytes(&self) -> usize {
        0
    }
}

/// The names of all accumulators; `in_windows`: those that a window takes.
pub fn operator_names(in_windows: bool) -> Vec<&'static str> {
    let wanted = |operator: &&Operator| !in_windows || operator.in_windows;
    OPERATORS.iter().filter(wanted).map(|operator| operator.name).collect()
}

impl AccumulatorSpec {
    /// Parses `{<name>: <value>}` as it stands in `$group`.
    pub fn parse(name: &str, value: RawBsonRef<'_>, ctx: &ParseContext) -> Result<Self> {
        let operator = OPERATORS
            .iter()
            .find(|operator| operator.name == name)
            .ok_or_else(|| Error::location(15952, format!("unknown group operator '{name}'")))?;
        (operator.parse)(operator, value, ctx)
    }

    /// One that is fed the value of an expression.
    pub(crate) fn plain(operator: &'static Operator, input: Expression) -> Self {
        Self { operator, input: input.optimize(), n: None, sort: None, own: None }
    }

    /// `{$sum: 1}`, which `$count` and `$sortByCount` are made of.
    pub fn sum_of_one() -> Self {
        Self::plain(&operators::SUM, Expression::constant(RawBson::Int32(1)))
    }

    /// The operator's name.
    pub fn name(&self) -> &'static str {
        self.operator.name
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
        let key = key.as_document().unwrap_or(crate::agg::empty_document());
        if let Some(own) = &self.own {
            return Ok(Accumulator::own(own.start(key, variables)?, variables.collation()));
        }
        let n = self.kept(key, variables)?;
        let shared = self.operator.shared.as_ref().ok_or_else(|| self.stateless())?;
        Ok(Accumulator::new((shared.start)(n), variables.collation()))
    }

    /// How many values are kept.
    fn kept(&self, key: &RawDocument, variables: &Variables) -> Result<usize> {
        self.n.as_ref().map_or(Ok(1), |n| crate::agg::read_n(&n.evaluate(key, variables)?))
    }

    /// A row has states that are shared, or its parser names its own.
    fn stateless(&self) -> Error {
        Error::new(Code::INTERNAL_ERROR, format!("{} has no state", self.operator.name))
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
            None if self.operator.feed == Feed::Elements => {
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
                    self.operator.name,
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
                self.operator.name, MAX_ACCUMULATOR_BYTES
            ),
        )
    }
}

/// Numbers of a value: itself, or of each element where it is an array (percentiles take both).
pub(crate) fn number_of(value: &Value<'_>) -> Option<f64> {
    value.get().and_then(bsonval::number::Number::from_bson).map(bsonval::number::Number::to_f64)
}
