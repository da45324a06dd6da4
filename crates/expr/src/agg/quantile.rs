//! `$percentile` and `$median` of the numbers of one array.

use crate::accumulator::quantile;
use crate::agg::eval::Scope;
use crate::agg::parse::{Node, expression};
use crate::agg::{ParseContext, Value, value_to_string};
use crate::number::Number;
use crate::raw;
use bson::raw::{RawBson, RawBsonRef};
use errors::{Error, Result};
use limits::{Growth, Part};

/// A parsed call.
#[derive(Clone, Debug)]
pub(crate) struct Quantile {
    pub(crate) input: Node,
    wanted: Vec<f64>,
    /// `$percentile` gives a list, `$median` the one number.
    as_array: bool,
}

impl Quantile {
    pub(crate) fn parse(
        name: &str,
        value: RawBsonRef<'_>,
        ctx: &ParseContext,
        depth: usize,
    ) -> Result<Self> {
        let as_array = name == "$percentile";
        let RawBsonRef::Document(document) = value else {
            return Err(Error::location(
                if as_array { 7436200 } else { 7436201 },
                format!(
                    "specification must be an object; found {name}: {}",
                    value_to_string(value)
                ),
            ));
        };
        let (input, wanted) = quantile::options(name, document, ctx)?;
        Ok(Self { input: expression(input, ctx, depth)?, wanted, as_array })
    }

    /// Of an array its numbers, of a number itself; anything else has none.
    pub(crate) fn evaluate<'a>(&'a self, scope: &Scope<'_, 'a>) -> Result<Value<'a>> {
        let input = self.input.evaluate(scope)?;
        let mut numbers = Vec::new();
        let mut memory = Growth::new(Part::Values);
        match input.bson() {
            RawBsonRef::Array(array) => {
                for element in raw::values(array) {
                    memory.reach((numbers.len() + 1) * size_of::<f64>())?;
                    numbers.extend(Number::from_bson(element?).map(Number::to_f64));
                }
            }
            other => numbers.extend(Number::from_bson(other).map(Number::to_f64)),
        }
        Ok(match quantile::of(&self.wanted, numbers, self.as_array) {
            RawBson::Null => Value::NULL,
            found => found.into(),
        })
    }
}
